// SPDX-License-Identifier: Apache-2.0
// scale_columns: y = x · weight, each column by a number of its own.
//
//   x       [..., d]  f32, f16 or bf16
//   weight  [d]       any float dtype
//   y       like x
//
// In f32 with one rounding.
#include <berth/op.h>

#include "norm.h"

enum { X, WEIGHT };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(berth_rule_per_column(site, WEIGHT, X));
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        for (int64_t i = 0; i < berth_row_length(x); ++i) {
            berth_store_at(berth_row(args->outputs[0], row), x->dtype, i,
                           berth_load_at(berth_row(x, row), x->dtype, i) *
                               berth_weight_at(args->inputs[WEIGHT], i));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
};

const berth_op berth_op_scale_columns = {
    .size = sizeof(berth_op),
    .name = "scale_columns",
    .class_name = "ScaleColumns",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
