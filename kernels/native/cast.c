// SPDX-License-Identifier: Apache-2.0
// cast: x in another float dtype, rounded to nearest.
//
//   x  [...]   f32, f16 or bf16
//   y  like x, of `dtype` ("f32", "f16", "bf16")
#include <berth/op.h>

#include "rules.h"

enum { X };
enum { DTYPE };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    return berth_rule_dtype(site, DTYPE, &berth_rule_give(out, site->inputs[X])->dtype);
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        for (int64_t i = 0; i < berth_row_length(x); ++i) {
            berth_store_at(berth_row(y, row), y->dtype, i,
                           berth_load_at(berth_row(x, row), x->dtype, i));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x")};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("dtype", BERTH_ATTRIBUTE_STR),
};

const berth_op berth_op_cast = {
    .size = sizeof(berth_op),
    .name = "cast",
    .class_name = "Cast",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
