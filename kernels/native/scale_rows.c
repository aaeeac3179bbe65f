// SPDX-License-Identifier: Apache-2.0
// scale_rows: y = x · scale, everything of a token by that token's number.
//
//   x      [tokens, ...]  f32, f16 or bf16
//   scale  [tokens, 1]    any float dtype
//   y      like x
//
// In f32 with one rounding. What llama_4_scaling does with queries.
#include <berth/op.h>

#include "norm.h"

enum { X, SCALE };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(berth_rule_float(site, SCALE));
    BERTH_RULE_TRY(berth_rule_rank(site, SCALE, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, SCALE, 0, site->inputs[X]->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, SCALE, 1, BERTH_DIM_CONST(1)));
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scale = args->inputs[SCALE];
    const int64_t rows = berth_row_count(x);
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t token = row / (rows / x->shape[0]);
        const float by = berth_load_at(berth_row(scale, token), scale->dtype, 0);
        for (int64_t i = 0; i < berth_row_length(x); ++i) {
            berth_store_at(berth_row(args->outputs[0], row), x->dtype, i,
                           berth_load_at(berth_row(x, row), x->dtype, i) * by);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_STRIDED_INPUT("scale"),
};

const berth_op berth_op_scale_rows = {
    .size = sizeof(berth_op),
    .name = "scale_rows",
    .class_name = "ScaleRows",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
