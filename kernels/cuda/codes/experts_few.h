// SPDX-License-Identifier: Apache-2.0
// quantized_experts' product of few rows on CUDA's tensor cores; experts_few.cu says how.
#ifndef BERTH_KERNELS_CUDA_CODES_EXPERTS_FEW_H
#define BERTH_KERNELS_CUDA_CODES_EXPERTS_FEW_H

#include <gpu/coded_experts.h>

// Whether a stack's rows and their scales come in whole chunks, of which a block holds all of a
// row of x.
bool cuda_experts_few_takes(const gpu_coded *op, const gpu_coded_stack &stack);

// Each choice by itself. Not for inputs of GPU_CODES_NVFP4.
berth_status cuda_experts_few(const gpu_coded *op, const gpu_coded_call &call,
                              const gpu_codes_product &all);

#endif
