// SPDX-License-Identifier: Apache-2.0
// What activations share: shape rules, drivers over rows, and the scalar functions that their
// formulas are made of. An op is then its table and one formula.
//
// A formula gets its elements as floats and the dtype of the result, to which it rounds wherever
// vLLM's native code does (berth_round_to). A NaN goes through every one of them: comparisons below
// are written so that it does.
#ifndef BERTH_KERNELS_NATIVE_ELEMENTWISE_H
#define BERTH_KERNELS_NATIVE_ELEMENTWISE_H

#include "rules.h"

#include <math.h>

// ---- scalars ------------------------------------------------------------------------------------

static inline float berth_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

static inline float berth_silu(float x) {
    return x / (1.0f + expf(-x));
}

static inline float berth_gelu_erf(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
}

static inline float berth_gelu_tanh(float x) {
    const float inner = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

static inline float berth_at_most(float x, float limit) {
    return x > limit ? limit : x;
}

static inline float berth_clamp(float x, float limit) {
    return x < -limit ? -limit : berth_at_most(x, limit);
}

// ---- attributes ---------------------------------------------------------------------------------

static inline double berth_site_f64(const berth_op_site *site, uint64_t attribute) {
    return site->attributes[attribute]->f64;
}

static inline berth_status berth_rule_finite(const berth_op_site *site, uint64_t attribute) {
    const berth_attribute *found = site->attributes[attribute];
    return found->kind == BERTH_ATTRIBUTE_NONE || isfinite(found->f64)
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be finite, is %g", found->f64);
}

static inline berth_status berth_rule_positive(const berth_op_site *site, uint64_t attribute) {
    const berth_attribute *found = site->attributes[attribute];
    return found->kind == BERTH_ATTRIBUTE_NONE || (found->f64 > 0 && isfinite(found->f64))
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be finite and above 0, is %g",
                                      found->f64);
}

// An attribute `approximate`: "none" or "tanh".
static inline berth_status berth_rule_approximate(const berth_op_site *site, uint64_t attribute) {
    const char *name = site->attributes[attribute]->str;
    return strcmp(name, "none") == 0 || strcmp(name, "tanh") == 0
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be none or tanh, is '%s'", name);
}

static inline int berth_site_is(const berth_op_site *site, uint64_t attribute, const char *text) {
    return strcmp(site->attributes[attribute]->str, text) == 0;
}

// ---- shape rules --------------------------------------------------------------------------------

// x [..., d] → y like x.
static inline berth_status berth_infer_unary(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, 0));
    BERTH_RULE_TRY(berth_rule_width(site, 0));
    berth_rule_give(out, site->inputs[0]);
    return BERTH_OK;
}

// x [..., 2d] → y [..., d].
static inline berth_status berth_infer_gated(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, 0));
    BERTH_RULE_TRY(berth_rule_width(site, 0));
    const int64_t width = berth_last_dim(site->inputs[0]).b;
    if (width % 2 != 0) {
        return BERTH_RULE_FAIL(site, 0, "must have an even last dimension, has %lld",
                               (long long)width);
    }
    berth_value_type *y = berth_rule_give(out, site->inputs[0]);
    y->dims[y->ndim - 1] = BERTH_DIM_CONST(width / 2);
    return BERTH_OK;
}

// ---- drivers ------------------------------------------------------------------------------------

typedef float (*berth_unary_fn)(const berth_op_site *site, berth_dtype dtype, float x);
typedef float (*berth_gated_fn)(const berth_op_site *site, berth_dtype dtype, float first,
                                float second);

// y[i] = formula(x[i])
static inline berth_status berth_map_unary(const berth_op_site *site, const berth_op_args *args,
                                           berth_unary_fn formula) {
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        for (int64_t i = 0; i < berth_row_length(y); ++i) {
            const float value = berth_load_at(berth_row(x, row), x->dtype, i);
            berth_store_at(berth_row(y, row), y->dtype, i, formula(site, y->dtype, value));
        }
    }
    return BERTH_OK;
}

// y[i] = formula(x[i · step], x[i · step + distance])
static inline void berth_map_pairs(const berth_op_site *site, const berth_op_args *args,
                                   berth_gated_fn formula, int64_t step, int64_t distance) {
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const void *from = berth_row(x, row);
        void *to = berth_row(y, row);
        for (int64_t i = 0; i < width; ++i) {
            const float first = berth_load_at(from, x->dtype, i * step);
            const float second = berth_load_at(from, x->dtype, i * step + distance);
            berth_store_at(to, y->dtype, i, formula(site, y->dtype, first, second));
        }
    }
}

// y[i] = formula(x[i], x[d + i])
static inline berth_status berth_map_gated(const berth_op_site *site, const berth_op_args *args,
                                           berth_gated_fn formula) {
    berth_map_pairs(site, args, formula, 1, berth_row_length(args->outputs[0]));
    return BERTH_OK;
}

// y[i] = formula(x[2i], x[2i + 1])
static inline berth_status berth_map_interleaved(const berth_op_site *site,
                                                 const berth_op_args *args,
                                                 berth_gated_fn formula) {
    berth_map_pairs(site, args, formula, 2, 1);
    return BERTH_OK;
}

// ---- tables -------------------------------------------------------------------------------------

static const berth_op_argument *const berth_elementwise_inputs[] = {BERTH_STRIDED_INPUT("x")};

// What every activation's table begins with: x alone, no attributes.
#define BERTH_ELEMENTWISE(op_name, op_class, op_infer)                                             \
    .size = sizeof(berth_op), .name = (op_name), .class_name = (op_class),                         \
    .inputs = berth_elementwise_inputs, .input_count = 1, .infer = (op_infer),                     \
    .reference = reference, .has_decomposition = 1, .is_rowwise = berth_every_row
#define BERTH_ATTRIBUTE_TABLE(table)                                                               \
    .attributes = (table), .attribute_count = sizeof(table) / sizeof((table)[0])

#endif
