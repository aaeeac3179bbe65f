// SPDX-License-Identifier: Apache-2.0
// unquantized_fused_moe on a GPU: every token's experts, weighed and added up (experts_run.h).
#include "experts_run.h"

extern "C" {
extern const berth_op_impl berth_kernel_unquantized_fused_moe;
const berth_op_impl berth_kernel_unquantized_fused_moe = {
    BERTH_GPU_KERNEL("unquantized_fused_moe"),
    .revision = 1,
    GPU_MIXTURE_SLOTS,
};
}
