// SPDX-License-Identifier: Apache-2.0
// silu_and_mul for ops that end with it.
#ifndef BERTH_KERNELS_GPU_SILU_AND_MUL_H
#define BERTH_KERNELS_GPU_SILU_AND_MUL_H

#include "launch.h"

// y [rows, width] of x [rows, 2 · width], both of that dtype.
berth_status gpu_silu_and_mul_run(const gpu_op *op, berth_dtype dtype, const gpu_rows &x,
                                  const gpu_rows &y, int64_t rows, int64_t width);

#endif
