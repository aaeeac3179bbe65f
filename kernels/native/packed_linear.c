// SPDX-License-Identifier: Apache-2.0
// packed_linear: y = x · ((codes of weight − zero points), scaled)ᵀ + bias: only the weight is
// quantized. The one form in which every scheme of 4 and 8 bits ends.
//
//   x             [..., k]  f32, f16 or bf16
//   weight        [n, k]    u8 of code u8, i8, f8_e4m3fn; [n, k / 2] u8 of codes u4 and e2m1, two
//                           to a byte, the even k in the lower half
//   weight_scale  [ceil(n / rows), ceil(k / columns)]  f32, f16 or bf16
//   zero_points   like weight_scale, u8: optional, of u4 and u8; else 8 and 128
//   permutation   [k]       optional, i32: the input that column k of the weight is for
//   bias          [n]       optional, any float dtype
//   output_scale  [n]       optional, f32: sums are multiplied by it, then the bias is added;
//                           since revision 2
//   y             [..., n]  x's dtype
//
// `code`: "u4", "u8", "e2m1", "i8" or "e4m3". `group_shape` [rows, columns] of weight_scale, −1:
// all. A weight is (code − zero) · scale in f32, sums are rounded once.
#include <berth/op.h>

#include "codes_product.h"
#include "codes_rules.h"

enum { X, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, BIAS, OUTPUT_SCALE };
enum { CODE, GROUP_SHAPE };

static berth_status check_permutation(const berth_op_site *site, int64_t k) {
    const berth_value_type *permutation = site->inputs[PERMUTATION];
    return permutation && permutation->dtype != BERTH_DTYPE_I32
               ? BERTH_RULE_FAIL(site, PERMUTATION, "must be i32")
               : codes_check_per_output(site, PERMUTATION, k);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    const int64_t k = berth_last_dim(site->inputs[X]).b;
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, 2));
    BERTH_RULE_TRY(berth_rule_constant(site, WEIGHT, 0));
    BERTH_RULE_TRY(codes_check_codes(site, WEIGHT, CODE, k));
    const int64_t n = site->inputs[WEIGHT]->dims[0].b;
    BERTH_RULE_TRY(codes_check_scales(site, WEIGHT_SCALE, GROUP_SHAPE, n, k));
    BERTH_RULE_TRY(codes_check_zero_points(site, ZERO_POINTS, WEIGHT_SCALE, CODE));
    BERTH_RULE_TRY(check_permutation(site, k));
    BERTH_RULE_TRY(berth_rule_float(site, BIAS));
    BERTH_RULE_TRY(codes_check_per_output(site, BIAS, n));
    BERTH_RULE_TRY(berth_rule_f32(site, OUTPUT_SCALE));
    BERTH_RULE_TRY(codes_check_per_output(site, OUTPUT_SCALE, n));
    berth_value_type *y = berth_rule_give(out, site->inputs[X]);
    y->dims[y->ndim - 1] = site->inputs[WEIGHT]->dims[0];
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

#define ROWS 8 // of x that a row of the weight meets each time that it is widened

// Row n as floats [k].
static void widen(const codes_matrix *matrix, int64_t n, float *weight) {
    const int64_t columns = matrix->scales.columns;
    for (int64_t first = 0; first < matrix->width; first += columns) {
        const int64_t rest = matrix->width - first;
        const int64_t count = rest < columns ? rest : columns;
        const codes_run run = codes_run_of(matrix, n, first / columns);
        const float scale = codes_scale(matrix, n, first / columns);
        codes_widen(matrix, &run, first, count, weight + first);
        for (int64_t k = first; k < first + count; ++k) {
            weight[k] *= scale;
        }
    }
}

// A row of x as floats [k], in the order of the weight's columns.
static void read_row(const berth_op_args *args, int64_t row, float *to) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *permutation = args->inputs[PERMUTATION];
    const int32_t *from = permutation ? berth_data(permutation) : NULL;
    if (!from) {
        berth_load(berth_row(x, row), x->dtype, 0, berth_row_length(x), to);
        return;
    }
    for (int64_t k = 0; k < berth_row_length(x); ++k) {
        to[k] = berth_load_at(berth_row(x, row), x->dtype, from[k]);
    }
}

// Rows [first, first + count) of y.
static void multiply_rows(const codes_matrix *matrix, const berth_op_args *args, int64_t first,
                          int64_t count) {
    const berth_tensor *y = args->outputs[0];
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_tensor *factors = args->inputs[OUTPUT_SCALE];
    const int64_t width = matrix->width;
    float *weight = berth_data(args->workspace);
    float *inputs = weight + width;
    for (int64_t row = 0; row < count; ++row) {
        read_row(args, first + row, inputs + row * width);
    }
    for (int64_t n = 0; n < matrix->weight->shape[0]; ++n) {
        const float start = bias ? berth_load_at(berth_data(bias), bias->dtype, n) : 0;
        const float factor = factors ? ((const float *)berth_data(factors))[n] : 1;
        widen(matrix, n, weight);
        for (int64_t row = 0; row < count; ++row) {
            const float sum = (float)codes_dot(inputs + row * width, weight, width);
            berth_store_at(berth_row(y, first + row), y->dtype, n, sum * factor + start);
        }
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const int64_t width = berth_row_length(args->inputs[X]);
    const int64_t outputs = args->inputs[WEIGHT]->shape[0];
    const int64_t rows = berth_row_count(args->outputs[0]);
    const codes_matrix matrix = {
        .code = berth_code_of(site->attributes[CODE]->str),
        .weight = args->inputs[WEIGHT],
        .zeros = args->inputs[ZERO_POINTS],
        .scales = berth_code_scales_of(site, args->inputs[WEIGHT_SCALE], outputs, width),
        .width = width,
    };
    for (int64_t first = 0; first < rows; first += ROWS) {
        multiply_rows(&matrix, args, first, rows - first < ROWS ? rows - first : ROWS);
    }
    return BERTH_OK;
}

static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)(1 + ROWS) * (uint64_t)berth_last_dim(site->inputs[X]).b * sizeof(float);
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_INPUT("weight_scale"),
    BERTH_OPTIONAL_INPUT("zero_points"),
    BERTH_OPTIONAL_INPUT("permutation"),
    BERTH_OPTIONAL_INPUT("bias"),
    BERTH_LATER_INPUT("output_scale", 2),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("code", BERTH_ATTRIBUTE_STR),
    BERTH_REQUIRED_ATTRIBUTE("group_shape", BERTH_ATTRIBUTE_I64S),
};

const berth_op berth_op_packed_linear = {
    .size = sizeof(berth_op),
    .name = "packed_linear",
    .class_name = "PackedLinear",
    .revision = 2,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = reference_workspace,
    .compatible_revision = 1,
};
