// SPDX-License-Identifier: Apache-2.0
// modular_fused_moe: what moe_prepare, moe_experts and moe_finalize give one after
// another, for those who replace the three as one.
// Operands, attributes and rounding: moe_entry.h.
#include <berth/op.h>

#include "moe_entry.h"

const berth_op berth_op_modular_fused_moe = MOE_ENTRY("modular_fused_moe", "FusedMoEModularMethod");
