// SPDX-License-Identifier: Apache-2.0
// scaled_linear: y = (codes of x, scaled) · (codes of weight, scaled)ᵀ + bias, both quantized.
//
//   x             [..., k]  i8 or f8_e4m3fn
//   x_scale       f32       one element; [..., 1] per row; [..., ceil(k / columns)] per group
//   weight        [n, k]    the dtype of x
//   weight_scale  [ceil(n / rows), ceil(k / columns)]  f32, f16 or bf16
//   sum_bias      [n]       optional, i32, of i8 with one group: added to the sums of products of
//                           codes, which is where a zero point of x ends
//   bias          [n]       optional, any float dtype
//   y             [..., n]  `dtype`
//
// `group_shape` [rows, columns] of weight_scale, −1: all. Sums of products of codes are exact
// within a group; the groups of a row are added up with their scales, and rounded once.
#include <berth/op.h>

#include "codes_product.h"
#include "codes_rules.h"

enum { X, X_SCALE, WEIGHT, WEIGHT_SCALE, SUM_BIAS, BIAS };
enum { GROUP_SHAPE, DTYPE };

static berth_status check_x_scale(const berth_op_site *site, int64_t groups) {
    const berth_value_type *x = site->inputs[X];
    const berth_value_type *scale = site->inputs[X_SCALE];
    BERTH_RULE_TRY(berth_rule_f32(site, X_SCALE));
    if (scale->ndim == 1 && berth_dim_is(berth_last_dim(scale), BERTH_DIM_CONST(1))) {
        return BERTH_OK;
    }
    BERTH_RULE_TRY(berth_rule_rank(site, X_SCALE, x->ndim));
    for (uint32_t dim = 0; dim + 1 < x->ndim; ++dim) {
        BERTH_RULE_TRY(berth_rule_dim(site, X_SCALE, dim, x->dims[dim]));
    }
    return berth_dim_is(berth_last_dim(scale), BERTH_DIM_CONST(1))
               ? BERTH_OK
               : berth_rule_dim(site, X_SCALE, x->ndim - 1, BERTH_DIM_CONST(groups));
}

static berth_status check_codes(const berth_op_site *site) {
    const berth_dtype dtype = site->inputs[X]->dtype;
    if (dtype != BERTH_DTYPE_I8 && dtype != BERTH_DTYPE_F8_E4M3FN) {
        return BERTH_RULE_FAIL(site, X, "must be i8 or f8_e4m3fn");
    }
    BERTH_RULE_TRY(berth_rule_same_dtype(site, WEIGHT, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, 2));
    BERTH_RULE_TRY(berth_rule_constant(site, WEIGHT, 0));
    return berth_rule_dim(site, WEIGHT, 1, berth_last_dim(site->inputs[X]));
}

static berth_status check_sum_bias(const berth_op_site *site, int64_t n, int64_t groups) {
    const berth_value_type *bias = site->inputs[SUM_BIAS];
    if (bias && (bias->dtype != BERTH_DTYPE_I32 || site->inputs[X]->dtype != BERTH_DTYPE_I8 ||
                 groups != 1)) {
        return BERTH_RULE_FAIL(site, SUM_BIAS, "must be i32, beside codes of i8 in one group");
    }
    return codes_check_per_output(site, SUM_BIAS, n);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(check_codes(site));
    const int64_t n = site->inputs[WEIGHT]->dims[0].b;
    const int64_t k = site->inputs[WEIGHT]->dims[1].b;
    BERTH_RULE_TRY(codes_check_scales(site, WEIGHT_SCALE, GROUP_SHAPE, n, k));
    const int64_t groups = site->inputs[WEIGHT_SCALE]->dims[1].b;
    BERTH_RULE_TRY(check_x_scale(site, groups));
    BERTH_RULE_TRY(check_sum_bias(site, n, groups));
    BERTH_RULE_TRY(berth_rule_float(site, BIAS));
    BERTH_RULE_TRY(codes_check_per_output(site, BIAS, n));
    berth_value_type *y = berth_rule_give(out, site->inputs[X]);
    y->dims[y->ndim - 1] = site->inputs[WEIGHT]->dims[0];
    return berth_rule_dtype(site, DTYPE, &y->dtype);
}

// ---- reference ----------------------------------------------------------------------------------

static codes_input scales_of_row(const berth_tensor *scale, int64_t row) {
    const int is_one = berth_row_count(scale) == 1 && berth_row_length(scale) == 1;
    return (codes_input){
        .scales = berth_row(scale, is_one ? 0 : row),
        .scale_count = berth_row_length(scale),
    };
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *sum_bias = args->inputs[SUM_BIAS];
    const berth_tensor *bias = args->inputs[BIAS];
    const int64_t n = weight->shape[0];
    const int64_t k = weight->shape[1];
    const codes_matrix matrix = {
        .code = x->dtype == BERTH_DTYPE_I8 ? BERTH_CODE_I8 : BERTH_CODE_E4M3,
        .weight = weight,
        .scales = berth_code_scales_of(self, args->inputs[WEIGHT_SCALE], n, k),
        .width = k,
    };
    float *numbers = berth_data(args->workspace);
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        codes_input input = scales_of_row(args->inputs[X_SCALE], row);
        input.numbers = numbers;
        for (int64_t i = 0; i < k; ++i) {
            numbers[i] = berth_code_value(matrix.code, berth_row(x, row), i);
        }
        for (int64_t i = 0; i < n; ++i) {
            const float start = bias ? berth_load_at(berth_data(bias), bias->dtype, i) : 0;
            input.addend = sum_bias ? ((const int32_t *)berth_data(sum_bias))[i] : 0;
            berth_store_at(berth_row(y, row), y->dtype, i,
                           (float)((double)start + codes_multiply(&matrix, i, &input)));
        }
    }
    return BERTH_OK;
}

static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)berth_last_dim(site->inputs[X]).b * sizeof(float);
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("x"),
    BERTH_INPUT("x_scale"),
    BERTH_INPUT("weight"),
    BERTH_INPUT("weight_scale"),
    BERTH_OPTIONAL_INPUT("sum_bias"),
    BERTH_OPTIONAL_INPUT("bias"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("group_shape", BERTH_ATTRIBUTE_I64S),
    BERTH_REQUIRED_ATTRIBUTE("dtype", BERTH_ATTRIBUTE_STR),
};

const berth_op berth_op_scaled_linear = {
    .size = sizeof(berth_op),
    .name = "scaled_linear",
    .class_name = "ScaledLinear",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = reference_workspace,
};
