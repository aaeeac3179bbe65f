// SPDX-License-Identifier: Apache-2.0
// Products of many rows of e4m3 by codes of e4m3, bound by the tensor cores. Compute capability
// 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_H
#define BERTH_KERNELS_CUDA_CODES_MANY_H

#include <cuda/codes/codes.h>

#define CUDA_MANY_FIRST  128 // rows of the tensor core's operands
#define CUDA_MANY_SECOND 192

// Whether the product has so many tiles that the multiprocessors end together, and is laid out as
// copies of tiles want it.
bool cuda_many_takes(const gpu_op *op, const cuda_coded &all);
// Results of 16 bits, scaled by rows and outputs, without bias.
berth_status cuda_many_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype y);

// By scales of groups that are blocks; x, y and their rows are aligned to 16 bytes.
berth_status cuda_many_groups(const gpu_op *op, const cuda_coded &all, berth_dtype y);
// What that takes, about, to choose between kernels: microseconds of an H200.
double cuda_many_groups_time(const gpu_op *op, const cuda_coded &all);

#endif
