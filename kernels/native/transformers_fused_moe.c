// SPDX-License-Identifier: Apache-2.0
// transformers_fused_moe: the experts of a model that has routed its tokens itself.
// Operands, attributes and rounding: moe_entry.h.
#include <berth/op.h>

#include "moe_entry.h"

const berth_op berth_op_transformers_fused_moe =
    MOE_ENTRY("transformers_fused_moe", "TransformersMoERunner");
