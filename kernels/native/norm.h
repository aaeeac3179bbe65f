// SPDX-License-Identifier: Apache-2.0
// What norms share: rules, a row of floats to work in, root mean squares.
#ifndef BERTH_KERNELS_NATIVE_NORM_H
#define BERTH_KERNELS_NATIVE_NORM_H

#include "elementwise.h"

static inline berth_status berth_rule_eps(const berth_op_site *site, uint64_t attribute) {
    const double eps = site->attributes[attribute]->f64;
    return eps >= 0 && isfinite(eps)
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be finite and not negative, is %g",
                                      eps);
}

// x [..., hidden] of a float dtype.
static inline berth_status berth_rule_rows(const berth_op_site *site, uint64_t input) {
    BERTH_RULE_TRY(berth_rule_float(site, input));
    return berth_rule_width(site, input);
}

// An input of x's shape and dtype.
static inline berth_status berth_rule_like(const berth_op_site *site, uint64_t input, uint64_t as) {
    BERTH_RULE_TRY(berth_rule_same_dtype(site, input, as));
    return berth_rule_same_shape(site, input, as);
}

// A weight or bias [hidden] of any float dtype.
static inline berth_status berth_rule_per_column(const berth_op_site *site, uint64_t input,
                                                 uint64_t as) {
    BERTH_RULE_TRY(berth_rule_float(site, input));
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, berth_last_dim(site->inputs[as]));
}

// "silu" and "swish" are two names of one.
static inline berth_status berth_rule_gate(const berth_op_site *site, uint64_t attribute) {
    return berth_site_is(site, attribute, "swish") || berth_site_is(site, attribute, "silu") ||
                   berth_site_is(site, attribute, "sigmoid")
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be swish, silu or sigmoid, is '%s'",
                                      site->attributes[attribute]->str);
}

static inline float berth_gate(const berth_op_site *site, uint64_t attribute, float x) {
    return berth_site_is(site, attribute, "sigmoid") ? berth_sigmoid(x) : berth_silu(x);
}

// Scratch of a reference: one row of x as floats.
static inline uint64_t berth_norm_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)berth_last_dim(site->inputs[0]).b * sizeof(float);
}

// 1 / sqrt(mean(x²) + eps)
static inline float berth_rms_scale(const float *values, int64_t count, double eps) {
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) {
        squares += (double)values[i] * (double)values[i];
    }
    return 1.0f / sqrtf((float)(squares / (double)count) + (float)eps);
}

// Element i of an optional weight, 1 without one.
static inline float berth_weight_at(const berth_tensor *weight, int64_t i) {
    return weight ? berth_load_at(berth_data(weight), weight->dtype, i) : 1.0f;
}

// y[i] = formula of x[i] / sqrt(mean(x²) + eps), row by row; `eps` is an attribute. Takes the
// workspace above.
typedef float (*berth_norm_fn)(const berth_op_site *site, const berth_op_args *args, int64_t row,
                               int64_t i, float normal);
static inline berth_status berth_norm_map(const berth_op_site *site, const berth_op_args *args,
                                          uint64_t eps, berth_norm_fn formula) {
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t hidden = berth_row_length(y);
    float *values = berth_data(args->workspace); // [hidden]
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        berth_load(berth_row(x, row), x->dtype, 0, hidden, values);
        const float scale = berth_rms_scale(values, hidden, berth_site_f64(site, eps));
        for (int64_t i = 0; i < hidden; ++i) {
            berth_store_at(berth_row(y, row), y->dtype, i,
                           formula(site, args, row, i, values[i] * scale));
        }
    }
    return BERTH_OK;
}

#endif
