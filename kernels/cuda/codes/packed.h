// SPDX-License-Identifier: Apache-2.0
// What fused_packed_linear asks of cuda.packed_linear, whose instance it has inside.
#ifndef BERTH_KERNELS_CUDA_CODES_PACKED_H
#define BERTH_KERNELS_CUDA_CODES_PACKED_H

#include <cuda/codes/before.h>

// Whether so many rows are multiplied as a batch, for which whoever makes them puts them into its
// order (cuda_before.is_ordered).
bool cuda_packed_wants_order(const void *self, int rows);
// packed_linear's forward of such rows, dense.
berth_status cuda_packed_run_ordered(const void *self, const berth_op_args *args);

#endif
