// SPDX-License-Identifier: Apache-2.0
// scale_logits: y = soft_cap · tanh(x / soft_cap) · scale, what a LogitsProcessor does to logits.
//
//   x  [rows, vocabulary]  f32, f16 or bf16
//   y  like x
//
// `soft_cap` 0: none; `scale` 1: none. Every step is rounded to x's dtype: vLLM's LogitsProcessor.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

enum { X };
enum { ATTR_SCALE, SOFT_CAP };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const double scale = site->attributes[ATTR_SCALE]->f64;
    const double cap = site->attributes[SOFT_CAP]->f64;
    BERTH_RULE_TRY(berth_rule_float(site, X));
    if (!isfinite(scale)) {
        return BERTH_RULE_ATTRIBUTE(site, ATTR_SCALE, "must be finite, is %g", scale);
    }
    if (!(cap >= 0 && isfinite(cap))) {
        return BERTH_RULE_ATTRIBUTE(site, SOFT_CAP, "must be finite and not negative, is %g", cap);
    }
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

static float capped(berth_dtype dtype, float value, float cap) {
    const float share = berth_round_to(dtype, value / cap);
    return berth_round_to(dtype, berth_round_to(dtype, tanhf(share)) * cap);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const float scale = (float)site->attributes[ATTR_SCALE]->f64;
    const float cap = (float)site->attributes[SOFT_CAP]->f64;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        for (int64_t i = 0; i < berth_row_length(x); ++i) {
            const float value = berth_load_at(berth_row(x, row), x->dtype, i);
            berth_store_at(berth_row(args->outputs[0], row), x->dtype, i,
                           scale * (cap > 0 ? capped(x->dtype, value, cap) : value));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64, .f64 = 1.0),
    BERTH_OPTIONAL_ATTRIBUTE("soft_cap", BERTH_ATTRIBUTE_F64, .f64 = 0.0),
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
    .is_rowwise = berth_every_row,
};
