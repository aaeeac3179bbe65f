// SPDX-License-Identifier: Apache-2.0
// mix_rows: y = base + Σ (coefficient + offset) · x over several x, each token with its own
// coefficients.
//
//   base          [tokens, d]  f32, f16 or bf16
//   coefficients  [tokens, n]  base's dtype, one for each x
//   x0 … x7       like base, the first n of them
//   y             like base
//
// In f32 with one rounding. What AltUp does with the streams of Gemma 3n.
#include <berth/op.h>

#include "rules.h"

enum { BASE, COEFFICIENTS, FIRST };
enum { OFFSET };

static uint64_t count_of(const berth_op_site *site) {
    uint64_t count = 0;
    while (FIRST + count < site->input_count && site->inputs[FIRST + count]) {
        ++count;
    }
    return count;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const uint64_t count = count_of(site);
    BERTH_RULE_TRY(berth_rule_float(site, BASE));
    BERTH_RULE_TRY(berth_rule_rank(site, BASE, 2));
    BERTH_RULE_TRY(berth_rule_width(site, BASE));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, COEFFICIENTS, BASE));
    BERTH_RULE_TRY(berth_rule_rank(site, COEFFICIENTS, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, COEFFICIENTS, 0, site->inputs[BASE]->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, COEFFICIENTS, 1, BERTH_DIM_CONST((int64_t)count)));
    for (uint64_t i = FIRST; i < FIRST + count; ++i) {
        BERTH_RULE_TRY(berth_rule_same_dtype(site, i, BASE));
        BERTH_RULE_TRY(berth_rule_same_shape(site, i, BASE));
    }
    berth_rule_give(out, site->inputs[BASE]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *base = args->inputs[BASE];
    const uint64_t count = count_of(site);
    const float offset = (float)site->attributes[OFFSET]->f64;
    for (int64_t row = 0; row < berth_row_count(base); ++row) {
        const void *shares = berth_row(args->inputs[COEFFICIENTS], row);
        for (int64_t i = 0; i < berth_row_length(base); ++i) {
            float sum = berth_load_at(berth_row(base, row), base->dtype, i);
            for (uint64_t k = 0; k < count; ++k) {
                const float share = berth_load_at(shares, base->dtype, (int64_t)k) + offset;
                sum +=
                    share * berth_load_at(berth_row(args->inputs[FIRST + k], row), base->dtype, i);
            }
            berth_store_at(berth_row(args->outputs[0], row), base->dtype, i, sum);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("base"),        BERTH_STRIDED_INPUT("coefficients"),
    BERTH_STRIDED_INPUT("x0"),          BERTH_OPTIONAL_STRIDED_INPUT("x1"),
    BERTH_OPTIONAL_STRIDED_INPUT("x2"), BERTH_OPTIONAL_STRIDED_INPUT("x3"),
    BERTH_OPTIONAL_STRIDED_INPUT("x4"), BERTH_OPTIONAL_STRIDED_INPUT("x5"),
    BERTH_OPTIONAL_STRIDED_INPUT("x6"), BERTH_OPTIONAL_STRIDED_INPUT("x7"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("offset", BERTH_ATTRIBUTE_F64, .f64 = 0.0),
};

const berth_op berth_op_mix_rows = {
    .size = sizeof(berth_op),
    .name = "mix_rows",
    .class_name = "MixRows",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
