// SPDX-License-Identifier: Apache-2.0
// select_rows: y[r] = x[rows[r]], for instance the rows whose logits are wanted.
//
//   x     [n, ...]  f32, f16 or bf16
//   rows  [r]       i32 or i64, 0 to n − 1
//   y     [r, ...]  x's dtype
#include <berth/op.h>

#include "rules.h"

enum { X, ROWS };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    if (site->inputs[X]->ndim < 2) {
        return BERTH_RULE_FAIL(site, X, "must have at least 2 dimensions, has 1");
    }
    BERTH_RULE_TRY(berth_rule_integer(site, ROWS));
    BERTH_RULE_TRY(berth_rule_rank(site, ROWS, 1));
    berth_rule_give(out, site->inputs[X])->dims[0] = site->inputs[ROWS]->dims[0];
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    const berth_tensor *rows = args->inputs[ROWS];
    const void *numbers = berth_data(rows);
    // Rows of the last dimension in one row of the first: 1 for a matrix.
    const int64_t inner = y->shape[0] > 0 ? berth_row_count(y) / y->shape[0] : 0;
    for (int64_t r = 0; r < y->shape[0]; ++r) {
        const int64_t from = berth_integer_at(numbers, rows->dtype, r);
        if (from < 0 || from >= x->shape[0]) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "select_rows: row %lld of %lld", (long long)from,
                                     (long long)x->shape[0]);
        }
        for (int64_t i = 0; i < inner; ++i) {
            memcpy(berth_row(y, r * inner + i), berth_row(x, from * inner + i),
                   (size_t)berth_row_length(y) * BERTH_DTYPE_BITS(y->dtype) / 8);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x"), BERTH_INPUT("rows")};

const berth_op berth_op_select_rows = {
    .size = sizeof(berth_op),
    .name = "select_rows",
    .class_name = "SelectRows",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
