// SPDX-License-Identifier: Apache-2.0
// layer_norm: y = (x − mean(x)) / sqrt(variance(x) + eps) · weight + bias over the last dimension.
//
//   x             [..., hidden]  f32, f16 or bf16
//   weight, bias  [hidden]       optional; any float dtype
//   y             like x
//
// `weight_rows` n: weight is [n, hidden] and x [..., n, hidden]; each of the n rows has its own.
// In f32 with one rounding: vLLM's LayerNorm.forward_native.
#include <berth/op.h>

#include "norm.h"

enum { X, WEIGHT, BIAS };
enum { EPS, WEIGHT_ROWS };

// Rows of the weight; 1: a vector.
static int64_t weight_rows(const berth_op_site *site) {
    const berth_attribute *rows = site->attributes[WEIGHT_ROWS];
    return rows->kind == BERTH_ATTRIBUTE_NONE ? 1 : rows->i64;
}

static berth_status check_weight_rows(const berth_op_site *site) {
    const berth_value_type *x = site->inputs[X];
    const int64_t rows = weight_rows(site);
    if (rows < 1 || x->ndim < 2 || !site->inputs[WEIGHT]) {
        return BERTH_RULE_ATTRIBUTE(site, WEIGHT_ROWS,
                                    "is %lld: needs a weight and rows of x to go with its rows",
                                    (long long)rows);
    }
    BERTH_RULE_TRY(berth_rule_float(site, WEIGHT));
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, WEIGHT, 0, BERTH_DIM_CONST(rows)));
    BERTH_RULE_TRY(berth_rule_dim(site, WEIGHT, 1, berth_last_dim(x)));
    return berth_rule_dim(site, X, x->ndim - 2, BERTH_DIM_CONST(rows));
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(site->attributes[WEIGHT_ROWS]->kind == BERTH_ATTRIBUTE_NONE
                       ? berth_rule_per_column(site, WEIGHT, X)
                       : check_weight_rows(site));
    BERTH_RULE_TRY(berth_rule_per_column(site, BIAS, X));
    BERTH_RULE_TRY(berth_rule_eps(site, EPS));
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

// Takes the mean away, so that what is left is scaled as in an rms norm.
static void centre(float *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        sum += (double)values[i];
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] = (float)((double)values[i] - sum / (double)count);
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_tensor *y = args->outputs[0];
    const int64_t hidden = berth_row_length(y);
    const int64_t rows = weight_rows(site);
    float *values = berth_data(args->workspace); // [hidden]
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        berth_load(berth_row(x, row), x->dtype, 0, hidden, values);
        centre(values, hidden);
        const float scale = berth_rms_scale(values, hidden, berth_site_f64(site, EPS));
        const int64_t first = row % rows * hidden; // of the weight
        for (int64_t i = 0; i < hidden; ++i) {
            const float scaled =
                values[i] * scale * berth_weight_at(args->inputs[WEIGHT], first + i);
            const float shift = bias ? berth_weight_at(bias, i) : 0;
            berth_store_at(berth_row(y, row), y->dtype, i, scaled + shift);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_OPTIONAL_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("bias"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-5),
    BERTH_LATER_ATTRIBUTE("weight_rows", BERTH_ATTRIBUTE_I64, 2),
};

const berth_op berth_op_layer_norm = {
    .size = sizeof(berth_op),
    .name = "layer_norm",
    .class_name = "LayerNorm",
    .revision = 2,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    BERTH_ATTRIBUTE_TABLE(attributes),
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = berth_norm_workspace,
    .has_decomposition = 1,
    .compatible_revision = 1,
};
