// SPDX-License-Identifier: Apache-2.0
// transformers_fused_moe on a GPU: every token's experts, weighed and added up (fused_moe.cu).
#include "mixture.h"

extern "C" {
extern const berth_op_impl berth_kernel_transformers_fused_moe;
const berth_op_impl berth_kernel_transformers_fused_moe = {
    BERTH_GPU_KERNEL("transformers_fused_moe"),
    GPU_MIXTURE_SLOTS,
};
}
