// SPDX-License-Identifier: Apache-2.0
// mul: y = a · b, element by element.
//
//   a, b  [...]  f32, f16 or bf16, of one dtype and shape
//   y     like a
//
// One rounding.
#include <berth/op.h>

#include "rules.h"

enum { A, B };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, A));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, B, A));
    BERTH_RULE_TRY(berth_rule_same_shape(site, B, A));
    berth_rule_give(out, site->inputs[A]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *a = args->inputs[A];
    const berth_dtype dtype = a->dtype;
    for (int64_t row = 0; row < berth_row_count(a); ++row) {
        for (int64_t i = 0; i < berth_row_length(a); ++i) {
            berth_store_at(berth_row(args->outputs[0], row), dtype, i,
                           berth_load_at(berth_row(a, row), dtype, i) *
                               berth_load_at(berth_row(args->inputs[B], row), dtype, i));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("a"),
    BERTH_STRIDED_INPUT("b"),
};

const berth_op berth_op_mul = {
    .size = sizeof(berth_op),
    .name = "mul",
    .class_name = "Mul",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
