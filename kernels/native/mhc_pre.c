// SPDX-License-Identifier: Apache-2.0
// mhc_pre: how a block is entered from several residual streams (formulas: mhc_rules.h).
//
//   residual     [..., streams, hidden]                        f32, f16 or bf16
//   fn           [streams² + 2 streams, streams · hidden]      f32
//   hc_scale     [3]                                           f32
//   hc_base      [streams² + 2 streams]                        f32
//   post_mix     [..., streams, 1]                             f32
//   comb_mix     [..., streams, streams]                       f32, row: source, column:
//   destination layer_input  [..., hidden]                                 residual's dtype
//
// vLLM's MHCPreOp.forward_native. A norm of layer_input by a norm_weight, which one of its device
// kernels can do and native leaves out, is an op of its own here.
#include <berth/op.h>

#include "mhc_streams.h"

enum { RESIDUAL, FN };
enum { POST_MIX };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(mhc_check_residual(site, RESIDUAL));
    BERTH_RULE_TRY(mhc_check_pre(site, RESIDUAL, FN));
    mhc_give_pre(site->inputs[RESIDUAL], out);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    mhc_enter(self, args->inputs[RESIDUAL], args->inputs + FN, args->outputs + POST_MIX,
              berth_data(args->workspace));
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("residual"),
    MHC_PRE_WEIGHTS,
};
static const berth_op_attribute *const attributes[] = {MHC_ATTRIBUTES};

const berth_op berth_op_mhc_pre = {
    .size = sizeof(berth_op),
    .name = "mhc_pre",
    .class_name = "MHCPreOp",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = mhc_workspace,
};
