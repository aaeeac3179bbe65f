// SPDX-License-Identifier: Apache-2.0
// What fused_packed_linear asks of cuda.packed_linear, whose instance it has inside.
#ifndef BERTH_KERNELS_CUDA_CODES_PACKED_H
#define BERTH_KERNELS_CUDA_CODES_PACKED_H

#include <cuda/codes/before.h>

// How whoever makes the rows of a call, dense, had better lay them out.
cuda_layout cuda_packed_layout(const void *self, const berth_op_args *args);
// packed_linear's forward of rows that are laid out so, not in rows.
berth_status cuda_packed_run_laid_out(const void *self, const berth_op_args *args);

#endif
