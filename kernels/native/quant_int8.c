// SPDX-License-Identifier: Apache-2.0
// quant_int8: q = rint(x / scale) + zero point in i8, saturated at −128 and 127; without a scale
// one is made for every row.
//
//   x           [..., k]  f32, f16 or bf16
//   scale       f32       optional, one element
//   zero_point  i8        optional, one element, beside a scale
//   q           like x    i8
//   scale       f32       what was used: [..., 1], or [1] as given
//
// Of a row the scale is max|x| / 127, and codes are rint(x · (127 · (1 / max|x|))), ties to even; a
// row of zeros has scale 0 and codes 0. That is vLLM's rule in torch; its device kernels divide 127
// by the maximum, and a kernel may do so.
#include <berth/op.h>

#include "rules.h"

#include <int8.h>

enum { X, SCALE, ZERO_POINT };
enum { Q, SCALE_OUT };

static berth_status check_one(const berth_op_site *site, uint64_t input, berth_dtype dtype) {
    const berth_value_type *type = site->inputs[input];
    return !type || (type->dtype == dtype && type->ndim == 1 &&
                     berth_dim_is(berth_last_dim(type), BERTH_DIM_CONST(1)))
               ? BERTH_OK
               : BERTH_RULE_FAIL(site, input, "must be one element of %s",
                                 dtype == BERTH_DTYPE_F32 ? "f32" : "i8");
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(check_one(site, SCALE, BERTH_DTYPE_F32));
    BERTH_RULE_TRY(check_one(site, ZERO_POINT, BERTH_DTYPE_I8));
    if (site->inputs[ZERO_POINT] && !site->inputs[SCALE]) {
        return BERTH_RULE_FAIL(site, ZERO_POINT, "is for a given scale only");
    }
    berth_rule_give(out, site->inputs[X])->dtype = BERTH_DTYPE_I8;
    berth_value_type *scale = berth_rule_give(out, site->inputs[X]);
    scale->dtype = BERTH_DTYPE_F32;
    scale->ndim = site->inputs[SCALE] ? 1 : scale->ndim;
    scale->dims[scale->ndim - 1] = BERTH_DIM_CONST(1);
    return BERTH_OK;
}

static void quantise_row(const berth_op_args *args, int64_t row) {
    const berth_tensor *x = args->inputs[X];
    int8_t *q = berth_row(args->outputs[Q], row);
    float largest = 0;
    for (int64_t i = 0; i < berth_row_length(x); ++i) {
        const float magnitude = fabsf(berth_load_at(berth_row(x, row), x->dtype, i));
        largest = magnitude > largest ? magnitude : largest;
    }
    *(float *)berth_row(args->outputs[SCALE_OUT], row) = berth_i8_scale(largest);
    const float factor = berth_i8_factor(largest);
    for (int64_t i = 0; i < berth_row_length(x); ++i) {
        q[i] = berth_to_i8(berth_load_at(berth_row(x, row), x->dtype, i) * factor);
    }
}

static void quantise_by(const berth_op_args *args, int64_t row, float scale, float zero) {
    const berth_tensor *x = args->inputs[X];
    int8_t *q = berth_row(args->outputs[Q], row);
    for (int64_t i = 0; i < berth_row_length(x); ++i) {
        q[i] = berth_to_i8(rintf(berth_load_at(berth_row(x, row), x->dtype, i) / scale) + zero);
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *given = args->inputs[SCALE];
    const berth_tensor *zero_point = args->inputs[ZERO_POINT];
    const float zero = zero_point ? (float)*(const int8_t *)berth_data(zero_point) : 0;
    if (given) {
        *(float *)berth_data(args->outputs[SCALE_OUT]) = *(const float *)berth_data(given);
    }
    for (int64_t row = 0; row < berth_row_count(args->inputs[X]); ++row) {
        if (given) {
            quantise_by(args, row, *(const float *)berth_data(given), zero);
        } else {
            quantise_row(args, row);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_OPTIONAL_INPUT("scale"),
    BERTH_OPTIONAL_INPUT("zero_point"),
};

const berth_op berth_op_quant_int8 = {
    .size = sizeof(berth_op),
    .name = "quant_int8",
    .class_name = "QuantInt8",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
