// SPDX-License-Identifier: Apache-2.0
// modular_fused_moe: experts.h as this op.
#include <cpu/experts_run.h>

const berth_op_impl berth_kernel_modular_fused_moe = EXPERTS_KERNEL("modular_fused_moe");
