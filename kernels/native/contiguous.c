// SPDX-License-Identifier: Apache-2.0
// contiguous: y = x with rows one after another. The plan inserts it where an op needs that and its
// input is a view with gaps.
//
//   x  [...]   f32, f16 or bf16, any strides
//   y  like x  dense
#include <berth/op.h>

#include "rules.h"

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, 0));
    BERTH_RULE_TRY(berth_rule_width(site, 0));
    berth_rule_give(out, site->inputs[0]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t stride = x->strides[x->ndim - 1];
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const void *from = berth_row(x, row);
        void *to = berth_row(y, row);
        for (int64_t i = 0; i < berth_row_length(y); ++i) {
            berth_store_at(to, y->dtype, i, berth_load_at(from, x->dtype, i * stride));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument x_argument = {
    .size = sizeof x_argument,
    .name = "x",
    .layout = BERTH_LAYOUT_ANY,
};
static const berth_op_argument *const inputs[] = {&x_argument};

const berth_op berth_op_contiguous = {
    .size = sizeof(berth_op),
    .name = "contiguous",
    .class_name = "Contiguous",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
