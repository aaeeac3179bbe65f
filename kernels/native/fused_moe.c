// SPDX-License-Identifier: Apache-2.0
// fused_moe: the experts of a mixture, each token's choice of them weighed and added up.
// Operands, attributes and rounding: moe_entry.h.
#include <berth/op.h>

#include "moe_entry.h"

const berth_op berth_op_fused_moe = MOE_ENTRY("fused_moe", "FusedMoE");
