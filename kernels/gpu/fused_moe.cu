// SPDX-License-Identifier: Apache-2.0
// fused_moe on a GPU: every token's experts, weighed and added up (experts_run.h).
#include "experts_run.h"

extern "C" {
extern const berth_op_impl berth_kernel_fused_moe;
const berth_op_impl berth_kernel_fused_moe = {
    BERTH_GPU_KERNEL("fused_moe"),
    .revision = 1,
    GPU_MIXTURE_SLOTS,
};
}
