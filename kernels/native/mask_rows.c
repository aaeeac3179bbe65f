// SPDX-License-Identifier: Apache-2.0
// mask_rows: zeros in place of the rows that a mask names.
//
//   x     [..., d]  any dtype
//   mask  [...]     bool, not zero: a row of zeros
//   y     like x
#include <berth/op.h>

#include "rules.h"

enum { X, MASK };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *x = site->inputs[X];
    BERTH_RULE_TRY(berth_rule_width(site, X));
    if (site->inputs[MASK]->dtype != BERTH_DTYPE_BOOL) {
        return BERTH_RULE_FAIL(site, MASK, "must be bool");
    }
    BERTH_RULE_TRY(berth_rule_rank(site, MASK, x->ndim - 1));
    for (uint32_t dim = 0; dim + 1 < x->ndim; ++dim) {
        BERTH_RULE_TRY(berth_rule_dim(site, MASK, dim, x->dims[dim]));
    }
    berth_rule_give(out, x);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const uint8_t *mask = berth_data(args->inputs[MASK]);
    const size_t bytes = (size_t)berth_row_length(x) * BERTH_DTYPE_BITS(x->dtype) / 8;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        void *to = berth_row(args->outputs[0], row);
        if (mask[row]) {
            memset(to, 0, bytes);
        } else {
            memmove(to, berth_row(x, row), bytes);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("mask"),
};

const berth_op berth_op_mask_rows = {
    .size = sizeof(berth_op),
    .name = "mask_rows",
    .class_name = "MaskRows",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
