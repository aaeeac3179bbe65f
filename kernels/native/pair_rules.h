// SPDX-License-Identifier: Apache-2.0
// Ops on two tensors of one dtype and shape, element by element, with one rounding.
//
//   a, b  [...]  f32, f16 or bf16
//   y     like a
#ifndef BERTH_KERNELS_NATIVE_PAIR_RULES_H
#define BERTH_KERNELS_NATIVE_PAIR_RULES_H

#include "rules.h"

enum { A, B };

static inline berth_status pair_infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, A));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, B, A));
    BERTH_RULE_TRY(berth_rule_same_shape(site, B, A));
    berth_rule_give(out, site->inputs[A]);
    return BERTH_OK;
}

// Every element by `combine`.
static inline berth_status pair_run(const berth_op_args *args, float (*combine)(float a, float b)) {
    const berth_tensor *a = args->inputs[A];
    for (int64_t row = 0; row < berth_row_count(a); ++row) {
        const void *from_a = berth_row(a, row);
        const void *from_b = berth_row(args->inputs[B], row);
        void *y = berth_row(args->outputs[0], row);
        for (int64_t i = 0; i < berth_row_length(a); ++i) {
            berth_store_at(
                y, a->dtype, i,
                combine(berth_load_at(from_a, a->dtype, i), berth_load_at(from_b, a->dtype, i)));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("a"),
    BERTH_STRIDED_INPUT("b"),
};

// What the table of such an op has beside its revision.
#define BERTH_PAIR_OP(op_name, op_class)                                                           \
    .size = sizeof(berth_op), .name = (op_name), .class_name = (op_class), .inputs = inputs,       \
    .input_count = sizeof inputs / sizeof inputs[0], .infer = pair_infer, .reference = reference,  \
    .is_rowwise = berth_every_row

#endif
