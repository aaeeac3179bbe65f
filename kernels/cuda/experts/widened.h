// SPDX-License-Identifier: Apache-2.0
// Products of many rows of 16 bits with experts' matrices of codes: matrices of some experts at a
// time become numbers, rounded once, as weights of packed_linear are. Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_EXPERTS_WIDENED_H
#define BERTH_KERNELS_CUDA_EXPERTS_WIDENED_H

#include <gpu/coded_experts.h>

// Whether the products with a stack's matrices are such.
bool cuda_experts_are_widened(const gpu_coded *op, const gpu_coded_stack &of);
// What they take of a call's `more`.
uint64_t cuda_experts_widened_bytes(const gpu_coded *op);
berth_status cuda_experts_widened(const gpu_coded *op, const gpu_coded_call &call,
                                  const gpu_codes_product &all);

#endif
