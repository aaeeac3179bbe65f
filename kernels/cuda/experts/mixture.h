// SPDX-License-Identifier: Apache-2.0
// Whole mixtures of experts of many rows in 16 bits: what fused_moe shares with
// unquantized_fused_moe and its like (fused_moe_fast.cu).
#ifndef BERTH_KERNELS_CUDA_EXPERTS_MIXTURE_H
#define BERTH_KERNELS_CUDA_EXPERTS_MIXTURE_H

#include <gpu/mixture.h>

berth_status cuda_mixture_supports(const berth_op_site *site, const berth_device *device);
berth_status cuda_mixture_create(const berth_op_site *site, const berth_device *device,
                                 void **out_self);

#define CUDA_MIXTURE(op_name)                                                                      \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = op_name, .name = "cuda." op_name,                     \
        .dispatch_key = BERTH_DISPATCH_CUDA, .revision = 1, .priority = 10,                        \
        .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,                                 \
        .supports = cuda_mixture_supports, .create = cuda_mixture_create,                          \
        .workspace = gpu_mixture_workspace, .forward = gpu_mixture_forward,                        \
        .destroy = gpu_destroy,                                                                    \
    }

#endif
