// SPDX-License-Identifier: Apache-2.0
// Products of many rows of e4m3 with experts' matrices of e4m3, as codes: one scale an output, or
// one of each block. Compute capability 9.0, results of 16 bits.
#ifndef BERTH_KERNELS_CUDA_EXPERTS_BLOCKS_H
#define BERTH_KERNELS_CUDA_EXPERTS_BLOCKS_H

#include <gpu/coded_experts.h>

// Whether the products with a stack's matrices are such.
bool cuda_experts_are_blocks(const gpu_coded *op, const gpu_coded_stack &of);
berth_status cuda_experts_blocks(const gpu_coded *op, const gpu_coded_call &call,
                                 const gpu_codes_product &all);

#endif
