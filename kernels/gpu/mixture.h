// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts on a GPU: the slots of fused_moe, which unquantized_fused_moe and its like
// share (fused_moe.cu), and those of moe_experts (moe_experts.cu). A platform's own kernels are the
// same slots with a faster product.
#ifndef BERTH_KERNELS_GPU_MIXTURE_H
#define BERTH_KERNELS_GPU_MIXTURE_H

#include "experts_run.h"

struct gpu_mixture : gpu_op {
    berth_moe moe;
    berth_dim tokens; // of x
    int64_t per_token;
    int64_t experts;
    int64_t widest; // of the rows of both products
    int64_t width;  // of the activated
    int64_t bytes;  // of an element
    gpu_experts_faster faster;
};

berth_status gpu_mixture_supports(const berth_op_site *site, const berth_device *device);
berth_status gpu_mixture_create(const berth_op_site *site, const berth_device *device,
                                void **out_self);
uint64_t gpu_mixture_workspace(void *self, uint64_t tokens);
berth_status gpu_mixture_forward(void *self, const berth_op_args *args);

struct gpu_expert_rows : gpu_op {
    berth_moe moe;
    berth_dim rows; // of expert_x
    int64_t experts;
    int64_t inner; // rows of w13
    int64_t width; // columns of w2
    int64_t bytes; // of an element
    gpu_experts_faster faster;
};

berth_status gpu_expert_rows_create(const berth_op_site *site, const berth_device *device,
                                    void **out_self);
uint64_t gpu_expert_rows_workspace(void *self, uint64_t tokens);
berth_status gpu_expert_rows_forward(void *self, const berth_op_args *args);

#define GPU_MIXTURE_SLOTS                                                                          \
    .revision = 1, .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,                      \
    .supports = gpu_mixture_supports, .create = gpu_mixture_create,                                \
    .workspace = gpu_mixture_workspace, .forward = gpu_mixture_forward, .destroy = gpu_destroy

#endif
