// SPDX-License-Identifier: Apache-2.0
// match_magnitude: y = x · rms(like) / sqrt(max(mean(x²), least)), row by row.
//
//   x     [..., d]  f32, f16 or bf16
//   like  like x
//   y     like x
//
// In f32 with one rounding. How Gemma 3n's streams keep the size of the first.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

enum { X, LIKE };
enum { LEAST };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, LIKE, X));
    BERTH_RULE_TRY(berth_rule_same_shape(site, LIKE, X));
    if (!(site->attributes[LEAST]->f64 > 0)) {
        return BERTH_RULE_ATTRIBUTE(site, LEAST, "must be above 0, is %g",
                                    site->attributes[LEAST]->f64);
    }
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

static double mean_of_squares(const void *row, berth_dtype dtype, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        const double value = (double)berth_load_at(row, dtype, i);
        sum += value * value;
    }
    return sum / (double)count;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const int64_t count = berth_row_length(x);
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        const void *from = berth_row(x, row);
        const double wanted = mean_of_squares(berth_row(args->inputs[LIKE], row), x->dtype, count);
        const double own =
            fmax(mean_of_squares(from, x->dtype, count), site->attributes[LEAST]->f64);
        const float scale = (float)sqrt(wanted / own);
        for (int64_t i = 0; i < count; ++i) {
            berth_store_at(berth_row(args->outputs[0], row), x->dtype, i,
                           berth_load_at(from, x->dtype, i) * scale);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_STRIDED_INPUT("like"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("least", BERTH_ATTRIBUTE_F64, .f64 = 1e-5),
};

const berth_op berth_op_match_magnitude = {
    .size = sizeof(berth_op),
    .name = "match_magnitude",
    .class_name = "MatchMagnitude",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
