// SPDX-License-Identifier: Apache-2.0
// Whole mixtures of experts on a GPU: the slots of fused_moe, which unquantized_fused_moe and its
// like share. They are in fused_moe.cu.
#ifndef BERTH_KERNELS_GPU_MIXTURE_H
#define BERTH_KERNELS_GPU_MIXTURE_H

#include "launch.h"

berth_status gpu_mixture_supports(const berth_op_site *site, const berth_device *device);
berth_status gpu_mixture_create(const berth_op_site *site, const berth_device *device,
                                void **out_self);
uint64_t gpu_mixture_workspace(void *self, uint64_t tokens);
berth_status gpu_mixture_forward(void *self, const berth_op_args *args);

#define GPU_MIXTURE_SLOTS                                                                          \
    .revision = 1, .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,                      \
    .supports = gpu_mixture_supports, .create = gpu_mixture_create,                                \
    .workspace = gpu_mixture_workspace, .forward = gpu_mixture_forward, .destroy = gpu_destroy

#endif
