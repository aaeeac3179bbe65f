// SPDX-License-Identifier: Apache-2.0
// dequantize: y = codes · scale, as numbers again.
//
//   x      [..., k]  i8 or f8_e4m3fn
//   scale  f32       one element; [..., 1] per row; [..., g] for each k / g columns
//   y      [..., k]  `dtype`, f32 unless it is given; since revision 2
//
// For products whose other side has codes of another kind.
#include <berth/op.h>

#include "rules.h"

#include <codes.h>

enum { X, SCALE };
enum { DTYPE };

static berth_status check_scale(const berth_op_site *site, int64_t k) {
    const berth_value_type *x = site->inputs[X];
    const berth_value_type *scale = site->inputs[SCALE];
    BERTH_RULE_TRY(berth_rule_f32(site, SCALE));
    if (scale->ndim == 1 && berth_dim_is(berth_last_dim(scale), BERTH_DIM_CONST(1))) {
        return BERTH_OK;
    }
    BERTH_RULE_TRY(berth_rule_rank(site, SCALE, x->ndim));
    for (uint32_t dim = 0; dim + 1 < x->ndim; ++dim) {
        BERTH_RULE_TRY(berth_rule_dim(site, SCALE, dim, x->dims[dim]));
    }
    const int64_t groups = berth_last_dim(scale).b;
    return berth_dim_is(berth_last_dim(scale), BERTH_DIM_CONST(groups)) && groups > 0 &&
                   k % groups == 0
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, SCALE, "must divide the columns into groups of one size");
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_dtype dtype = site->inputs[X]->dtype;
    if (dtype != BERTH_DTYPE_I8 && dtype != BERTH_DTYPE_F8_E4M3FN) {
        return BERTH_RULE_FAIL(site, X, "must be i8 or f8_e4m3fn");
    }
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(check_scale(site, berth_last_dim(site->inputs[X]).b));
    berth_value_type *y = berth_rule_give(out, site->inputs[X]);
    y->dtype = BERTH_DTYPE_F32;
    return site->attributes[DTYPE]->kind == BERTH_ATTRIBUTE_NONE
               ? BERTH_OK
               : berth_rule_dtype(site, DTYPE, &y->dtype);
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scale = args->inputs[SCALE];
    const berth_tensor *y = args->outputs[0];
    const berth_code code = x->dtype == BERTH_DTYPE_I8 ? BERTH_CODE_I8 : BERTH_CODE_E4M3;
    const int64_t width = berth_row_length(x);
    const int64_t group = width / berth_row_length(scale);
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        const void *codes = berth_row(x, row);
        const float *of_row = berth_row(scale, berth_row_count(scale) == 1 ? 0 : row);
        void *to = berth_row(y, row);
        for (int64_t i = 0; i < width; ++i) {
            berth_store_at(to, y->dtype, i, berth_code_value(code, codes, i) * of_row[i / group]);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("x"),
    BERTH_INPUT("scale"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_LATER_ATTRIBUTE("dtype", BERTH_ATTRIBUTE_STR, 2),
};

const berth_op berth_op_dequantize = {
    .size = sizeof(berth_op),
    .name = "dequantize",
    .class_name = "Dequantize",
    .revision = 2,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .compatible_revision = 1,
};
