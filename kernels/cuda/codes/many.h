// SPDX-License-Identifier: Apache-2.0
// Products of many rows of e4m3 by codes of e4m3, bound by the tensor cores. Compute capability
// 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_H
#define BERTH_KERNELS_CUDA_CODES_MANY_H

#include <cuda/codes/codes.h>

#define CUDA_MANY_ROWS 192 // of a tile
#define CUDA_MANY_TILE 128 // outputs

// Whether the product has so many tiles that the multiprocessors end together, and is laid out as
// copies of tiles want it.
bool cuda_many_takes(const gpu_op *op, const cuda_coded &all);
// Results of 16 bits, scaled by rows and outputs, without bias.
berth_status cuda_many_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype y);

#endif
