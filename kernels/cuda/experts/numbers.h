// SPDX-License-Identifier: Apache-2.0
// Products of many rows of 16 bits with experts' matrices, for the whole mixtures and moe_experts.
// Compute capability 9.0.
#ifndef BERTH_KERNELS_CUDA_EXPERTS_NUMBERS_H
#define BERTH_KERNELS_CUDA_EXPERTS_NUMBERS_H

#include <gpu/experts_run.h>

#define CUDA_MOST_EXPERTS 512

// Which inputs of a site they are.
struct cuda_experts_inputs {
    int x, w13_weight, w2_weight;
};

// Why a site is not for them; NULL: it is.
const char *cuda_experts_why_not(const berth_op_site *site, const berth_device *device,
                                 const cuda_experts_inputs &at);
// Experts of ordered rows, of bf16 or f16. `ordered.first` and `ordered.tiles` begin with the first
// of them.
struct cuda_some_experts {
    gpu_ordered ordered;
    int experts;
    berth_dtype dtype;
};

berth_status cuda_run_experts(const gpu_op *op, const cuda_some_experts &some,
                              const gpu_expert_product &all);
// A gpu_experts_faster.
berth_status cuda_experts_numbers(const gpu_op *op, const gpu_experts &experts,
                                  const gpu_expert_product &all);

#endif
