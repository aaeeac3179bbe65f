// SPDX-License-Identifier: Apache-2.0
// argmax: y[r] = the column of the largest element of row r, of equal ones the first; −1 where
// none is finite. NaN is as good as −inf. The greedy choice of a token, where the logits are.
//
//   x  [..., n]  f32, f16 or bf16
//   y  [...]     i32
#include <berth/op.h>

#include "rules.h"

#include <math.h>

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, 0));
    BERTH_RULE_TRY(berth_rule_width(site, 0));
    berth_value_type *y = berth_rule_give(out, site->inputs[0]);
    y->dtype = BERTH_DTYPE_I32;
    --y->ndim;
    return BERTH_OK;
}

static int32_t find_largest(const void *row, berth_dtype dtype, int64_t length) {
    float largest = -INFINITY;
    int64_t column = -1;
    for (int64_t i = 0; i < length; ++i) {
        const float value = berth_load_at(row, dtype, i);
        if (value > largest) {
            largest = value;
            column = i;
        }
    }
    return isfinite(largest) ? (int32_t)column : -1;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    int32_t *y = berth_data(args->outputs[0]);
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        y[row] = find_largest(berth_row(x, row), x->dtype, berth_row_length(x));
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x")};

const berth_op berth_op_argmax = {
    .size = sizeof(berth_op),
    .name = "argmax",
    .class_name = "Argmax",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
