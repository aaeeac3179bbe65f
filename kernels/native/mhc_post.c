// SPDX-License-Identifier: Apache-2.0
// mhc_post: how a block is left for several residual streams (formula: mhc_rules.h).
//
//   x               [..., hidden]            f32, f16 or bf16: what the block made
//   residual        [..., streams, hidden]   x's dtype
//   post_layer_mix  [..., streams, 1]        f32, as comb_res_mix [..., streams, streams]
//   y               like residual
//
// Sums in f32, one rounding: vLLM's MHCPostOp.forward_native.
#include <berth/op.h>

#include "mhc_streams.h"

enum { X, RESIDUAL, POST_LAYER_MIX };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(mhc_check_residual(site, RESIDUAL));
    BERTH_RULE_TRY(mhc_check_post(site, X, RESIDUAL, POST_LAYER_MIX));
    berth_rule_give(out, site->inputs[RESIDUAL]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    mhc_leave(args->inputs, args->outputs[0]);
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    MHC_POST_OPERANDS,
};

const berth_op berth_op_mhc_post = {
    .size = sizeof(berth_op),
    .name = "mhc_post",
    .class_name = "MHCPostOp",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
