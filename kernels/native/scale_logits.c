// SPDX-License-Identifier: Apache-2.0
// scale_logits: what vLLM's LogitsProcessor does to logits, y = tanh(x / soft_cap) · soft_cap ·
// scale.
//
//   x  [..., vocabulary]  f32, f16 or bf16
//   y  like x
//
// Without `soft_cap` only the scale. Quotient, tanh and both products are each rounded to x's
// dtype.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

enum { SOFT_CAP, SCALE };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_attribute *cap = site->attributes[SOFT_CAP];
    BERTH_RULE_TRY(berth_rule_float(site, 0));
    BERTH_RULE_TRY(berth_rule_width(site, 0));
    if (cap->kind != BERTH_ATTRIBUTE_NONE && !(cap->f64 > 0 && isfinite(cap->f64))) {
        return BERTH_RULE_ATTRIBUTE(site, SOFT_CAP, "must be finite and above 0, is %g", cap->f64);
    }
    if (!isfinite(site->attributes[SCALE]->f64)) {
        return BERTH_RULE_ATTRIBUTE(site, SCALE, "must be finite");
    }
    berth_rule_give(out, site->inputs[0]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[0];
    const float cap = (float)site->attributes[SOFT_CAP]->f64;
    const float scale = (float)site->attributes[SCALE]->f64;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        for (int64_t i = 0; i < berth_row_length(x); ++i) {
            float value = berth_load_at(berth_row(x, row), x->dtype, i);
            if (cap > 0) {
                value = berth_round_to(x->dtype, value / cap);
                value = berth_round_to(x->dtype, tanhf(value));
                value = berth_round_to(x->dtype, value * cap);
            }
            berth_store_at(berth_row(args->outputs[0], row), x->dtype, i, value * scale);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x")};
static const berth_op_attribute *const attributes[] = {
    BERTH_ABSENT_ATTRIBUTE("soft_cap", BERTH_ATTRIBUTE_F64),
    BERTH_OPTIONAL_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64, .f64 = 1),
};

const berth_op berth_op_scale_logits = {
    .size = sizeof(berth_op),
    .name = "scale_logits",
    .class_name = "ScaleLogits",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
