// SPDX-License-Identifier: Apache-2.0
// unquantized_fused_moe: the experts of a layer whose weights are as the checkpoint has them.
// Operands, attributes and rounding: moe_entry.h.
#include <berth/op.h>

#include "moe_entry.h"

const berth_op berth_op_unquantized_fused_moe =
    MOE_ENTRY("unquantized_fused_moe", "UnquantizedFusedMoEMethod");
