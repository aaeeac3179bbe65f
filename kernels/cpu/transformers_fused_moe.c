// SPDX-License-Identifier: Apache-2.0
// transformers_fused_moe: experts.h as this op.
#include <cpu/experts_run.h>

const berth_op_impl berth_kernel_transformers_fused_moe = EXPERTS_KERNEL("transformers_fused_moe");
