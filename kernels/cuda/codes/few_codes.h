// SPDX-License-Identifier: Apache-2.0
// Products of few rows by codes of weights on compute capability 9: of choices with their experts'
// matrices, or of rows with one matrix. few_codes.cu says how.
#ifndef BERTH_KERNELS_CUDA_CODES_FEW_CODES_H
#define BERTH_KERNELS_CUDA_CODES_FEW_CODES_H

#include <gpu/codes_product.h>

#define CUDA_FEW_CODES_ROWS 4 // of one matrix, at most: more cost more than to widen it

struct cuda_few_codes {
    gpu_choices choices; // ids NULL: all are the first matrix's
    gpu_codes_product all;
    berth_dtype dtype; // bf16 or f16: of y, and of x that is no codes
};

// Whether rows of so many codes and their scales come in pieces that the kernel takes, and a block
// has room for a row of x.
bool cuda_few_codes_takes(berth_code code, const gpu_code_scales &scales, int64_t depth);

// Each row by itself. Weights are aligned to 16 bytes, and rows of x are.
berth_status cuda_run_few_codes(const gpu_op *op, const cuda_few_codes &call);

#endif
