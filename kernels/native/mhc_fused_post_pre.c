// SPDX-License-Identifier: Apache-2.0
// mhc_fused_post_pre: one block left and the next one entered, mhc_post and then mhc_pre of its
// rounded result (formulas: mhc_rules.h).
//
//   x                [..., hidden]           f32, f16 or bf16: what the block made
//   residual         [..., streams, hidden]  x's dtype
//   post_layer_mix   [..., streams, 1]       f32, as comb_res_mix [..., streams, streams]
//   fn, hc_scale, hc_base                    those of mhc_pre
//   residual_cur     like residual
//   post_mix_cur, comb_mix_cur, layer_input_cur   what mhc_pre gives
#include <berth/op.h>

#include "mhc_streams.h"

enum { X, RESIDUAL, POST_LAYER_MIX, COMB_RES_MIX, FN };
enum { RESIDUAL_CUR, POST_MIX_CUR };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(mhc_check_residual(site, RESIDUAL));
    BERTH_RULE_TRY(mhc_check_post(site, X, RESIDUAL, POST_LAYER_MIX));
    BERTH_RULE_TRY(mhc_check_pre(site, RESIDUAL, FN));
    berth_rule_give(out, site->inputs[RESIDUAL]);
    mhc_give_pre(site->inputs[RESIDUAL], out);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_tensor *residual = args->outputs[RESIDUAL_CUR];
    mhc_leave(args->inputs, residual);
    mhc_enter(self, residual, args->inputs + FN, args->outputs + POST_MIX_CUR,
              berth_data(args->workspace));
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    MHC_POST_OPERANDS,
    MHC_PRE_WEIGHTS,
};
static const berth_op_attribute *const attributes[] = {MHC_ATTRIBUTES};

const berth_op berth_op_mhc_fused_post_pre = {
    .size = sizeof(berth_op),
    .name = "mhc_fused_post_pre",
    .class_name = "MHCFusedPostPreOp",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = mhc_workspace,
};
