// SPDX-License-Identifier: Apache-2.0
// rms_norm: y = x / sqrt(mean(x²) + eps) · weight + bias over the last dimension; with `residual`,
// the sum x + residual takes x's place and is the second output.
//
//   x         [..., hidden]   f32, f16 or bf16
//   residual  like x          optional; any float dtype
//   weight    [hidden]        optional; any float dtype
//   bias      [hidden]        optional; any float dtype; since revision 2
//   y         like x
//   residual_out like x       only with `residual`; rounded, while y comes from the unrounded sum
//
// `var_hidden_size`: the mean runs over the first so many columns only; all are scaled. The
// normalised value is rounded to the weight's dtype before the product, the product to y's.
// Rounding points: vLLM's RMSNorm.forward_native. Its fused device kernels normalise the rounded
// sum and round once; that is within the tolerance and an implementation may do so. Its
// batch-invariant kernels refuse `var_hidden_size`, which is for everybody here. With a bias (norms
// of ModelSlim's checkpoints; vLLM-Ascend's fused add, norm and bias) all is f32, with one
// rounding.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

enum { X, RESIDUAL, WEIGHT, BIAS };
enum { Y, RESIDUAL_OUT };
enum { EPS, VAR_HIDDEN_SIZE };

static berth_status check_vector(const berth_op_site *site, uint64_t input) {
    BERTH_RULE_TRY(berth_rule_float(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, berth_last_dim(site->inputs[X]));
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_float(site, RESIDUAL));
    BERTH_RULE_TRY(berth_rule_same_shape(site, RESIDUAL, X));
    BERTH_RULE_TRY(check_vector(site, WEIGHT));
    BERTH_RULE_TRY(check_vector(site, BIAS));
    const double eps = site->attributes[EPS]->f64;
    if (!(eps >= 0 && isfinite(eps))) {
        return BERTH_RULE_ATTRIBUTE(site, EPS, "must be finite and not negative, is %g", eps);
    }
    const berth_attribute *columns = site->attributes[VAR_HIDDEN_SIZE];
    const int64_t hidden = berth_last_dim(site->inputs[X]).b;
    if (columns->kind != BERTH_ATTRIBUTE_NONE && (columns->i64 < 1 || columns->i64 > hidden)) {
        return BERTH_RULE_ATTRIBUTE(site, VAR_HIDDEN_SIZE, "must be 1 to %lld, is %lld",
                                    (long long)hidden, (long long)columns->i64);
    }
    berth_rule_give(out, site->inputs[X]);
    if (site->inputs[RESIDUAL]) {
        berth_rule_give(out, site->inputs[X]);
    }
    return BERTH_OK;
}

// One row of each operand; the optional ones are NULL when absent.
typedef struct rows {
    const void *x;
    const void *residual;
    const void *weight;
    const void *bias;
    void *y;
    void *residual_out;
    berth_dtype dtype; // of x and of both results
    berth_dtype residual_dtype;
    berth_dtype weight_dtype;
    berth_dtype bias_dtype;
    int64_t hidden;
} rows;

// x, or the unrounded x + residual.
static float value_at(const rows *row, int64_t i) {
    const float x = berth_load_at(row->x, row->dtype, i);
    return row->residual ? x + berth_load_at(row->residual, row->residual_dtype, i) : x;
}

static void normalise(const rows *row, int64_t variance_columns, float eps) {
    double squares = 0;
    for (int64_t i = 0; i < variance_columns; ++i) {
        const double value = value_at(row, i);
        squares += value * value;
    }
    const float scale = 1.0f / sqrtf((float)(squares / (double)variance_columns) + eps);
    for (int64_t i = 0; i < row->hidden; ++i) {
        const float value = value_at(row, i);
        float y = value * scale;
        if (row->weight) {
            const float weight = berth_load_at(row->weight, row->weight_dtype, i);
            y = row->bias ? y * weight
                          : berth_round_to(row->weight_dtype,
                                           berth_round_to(row->weight_dtype, y) * weight);
        }
        if (row->bias) {
            y += berth_load_at(row->bias, row->bias_dtype, i);
        }
        berth_store_at(row->y, row->dtype, i, y);
        if (row->residual) {
            berth_store_at(row->residual_out, row->dtype, i, value);
        }
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *residual = args->inputs[RESIDUAL];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_attribute *columns = site->attributes[VAR_HIDDEN_SIZE];
    rows row = {.dtype = x->dtype, .hidden = berth_row_length(x)};
    if (weight) {
        row.weight = berth_data(weight);
        row.weight_dtype = weight->dtype;
    }
    if (bias) {
        row.bias = berth_data(bias);
        row.bias_dtype = bias->dtype;
    }
    if (residual) {
        row.residual_dtype = residual->dtype;
    }
    for (int64_t i = 0; i < berth_row_count(x); ++i) {
        row.x = berth_row(x, i);
        row.y = berth_row(args->outputs[Y], i);
        row.residual = residual ? berth_row(residual, i) : NULL;
        row.residual_out = residual ? berth_row(args->outputs[RESIDUAL_OUT], i) : NULL;
        normalise(&row, columns->kind == BERTH_ATTRIBUTE_NONE ? row.hidden : columns->i64,
                  (float)site->attributes[EPS]->f64);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_OPTIONAL_STRIDED_INPUT("residual"),
    BERTH_OPTIONAL_INPUT("weight"),
    BERTH_LATER_INPUT("bias", 2),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-6),
    BERTH_ABSENT_ATTRIBUTE("var_hidden_size", BERTH_ATTRIBUTE_I64),
};

const berth_op berth_op_rms_norm = {
    .size = sizeof(berth_op),
    .name = "rms_norm",
    .class_name = "RMSNorm",
    .revision = 2,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .has_decomposition = 1,
    .compatible_revision = 1,
};
