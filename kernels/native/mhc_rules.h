// SPDX-License-Identifier: Apache-2.0
// Hyper-connections: `streams` residual streams beside each other, mixed before and after every
// block of a model. What mhc_pre, mhc_post and mhc_fused_post_pre share.
//
// How a block is entered, mhc_pre, with x the streams [streams · hidden] of a token in f32:
//
//   mix   = (x · fnᵀ) / sqrt(mean(x²) + rms_eps)              [2 streams + streams²]
//   pre   = sigmoid(mix · scale₀ + base) + hc_pre_eps         the first `streams` of mix
//   post  = sigmoid(mix · scale₁ + base) · hc_post_mult_value the next
//   comb  = softmax(mix · scale₂ + base) + hc_sinkhorn_eps    the rest, by row
//   comb  is divided by the sums of its columns, then `sinkhorn_repeat` − 1 times by those of its
//         rows and its columns, each sum + hc_sinkhorn_eps
//   layer_input = Σ pre_i · x_i, rounded once
//
// How it is left, mhc_post: stream j = Σ comb_ij · x_i + post_j · the block's output, rounded once.
#ifndef BERTH_KERNELS_NATIVE_MHC_RULES_H
#define BERTH_KERNELS_NATIVE_MHC_RULES_H

#include "rules.h"

#include <math.h>

#define MHC_ATTRIBUTES                                                                             \
    BERTH_REQUIRED_ATTRIBUTE("rms_eps", BERTH_ATTRIBUTE_F64),                                      \
        BERTH_REQUIRED_ATTRIBUTE("hc_pre_eps", BERTH_ATTRIBUTE_F64),                               \
        BERTH_REQUIRED_ATTRIBUTE("hc_sinkhorn_eps", BERTH_ATTRIBUTE_F64),                          \
        BERTH_REQUIRED_ATTRIBUTE("hc_post_mult_value", BERTH_ATTRIBUTE_F64),                       \
        BERTH_REQUIRED_ATTRIBUTE("sinkhorn_repeat", BERTH_ATTRIBUTE_I64)

// The inputs by which a block is entered, and those by which it is left.
#define MHC_PRE_WEIGHTS BERTH_INPUT("fn"), BERTH_INPUT("hc_scale"), BERTH_INPUT("hc_base")
#define MHC_POST_OPERANDS                                                                          \
    BERTH_INPUT("x"), BERTH_INPUT("residual"), BERTH_INPUT("post_layer_mix"),                      \
        BERTH_INPUT("comb_res_mix")

// The order of MHC_ATTRIBUTES.
enum { MHC_RMS_EPS, MHC_PRE_EPS, MHC_SINKHORN_EPS, MHC_POST_MULT, MHC_REPEAT };

// ---- shape rules --------------------------------------------------------------------------------

// The number of residual streams; `residual` is [..., streams, hidden].
static inline int64_t mhc_streams(const berth_value_type *residual) {
    return residual->dims[residual->ndim - 2].b;
}

static inline berth_status mhc_check_residual(const berth_op_site *site, uint64_t residual) {
    const berth_value_type *type = site->inputs[residual];
    BERTH_RULE_TRY(berth_rule_float(site, residual));
    if (type->ndim < 2) {
        return BERTH_RULE_FAIL(site, residual, "must have at least 2 dimensions");
    }
    BERTH_RULE_TRY(berth_rule_constant(site, residual, type->ndim - 2));
    return berth_rule_width(site, residual);
}

static inline berth_status mhc_check_eps(const berth_op_site *site, uint64_t attribute) {
    const double eps = site->attributes[attribute]->f64;
    return eps >= 0 && isfinite(eps)
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, attribute, "must be finite and not negative, is %g",
                                      eps);
}

// fn [rows, streams · hidden], scale [scales] and base [rows], all f32, at `fn` and behind it.
static inline berth_status mhc_check_weights(const berth_op_site *site, uint64_t fn,
                                             const berth_value_type *residual, int64_t rows,
                                             int64_t scales) {
    const int64_t width = mhc_streams(residual) * berth_last_dim(residual).b;
    const int64_t shapes[] = {rows, scales, rows};
    for (uint64_t i = 0; i < 3; ++i) {
        BERTH_RULE_TRY(berth_rule_f32(site, fn + i));
        BERTH_RULE_TRY(berth_rule_rank(site, fn + i, i == 0 ? 2 : 1));
        BERTH_RULE_TRY(berth_rule_dim(site, fn + i, 0, BERTH_DIM_CONST(shapes[i])));
    }
    return berth_rule_dim(site, fn, 1, BERTH_DIM_CONST(width));
}

static inline berth_status mhc_check_pre(const berth_op_site *site, uint64_t residual,
                                         uint64_t fn) {
    const int64_t streams = mhc_streams(site->inputs[residual]);
    BERTH_RULE_TRY(
        mhc_check_weights(site, fn, site->inputs[residual], streams * streams + 2 * streams, 3));
    for (uint64_t i = MHC_RMS_EPS; i <= MHC_SINKHORN_EPS; ++i) {
        BERTH_RULE_TRY(mhc_check_eps(site, i));
    }
    const int64_t repeat = site->attributes[MHC_REPEAT]->i64;
    return repeat >= 1 ? BERTH_OK
                       : BERTH_RULE_ATTRIBUTE(site, MHC_REPEAT, "must be at least 1, is %lld",
                                              (long long)repeat);
}

// x [..., hidden], post_layer_mix [..., streams, 1] and comb_res_mix [..., streams, streams].
static inline berth_status mhc_check_post(const berth_op_site *site, uint64_t x, uint64_t residual,
                                          uint64_t post) {
    const berth_value_type *type = site->inputs[residual];
    const uint64_t comb = post + 1;
    const uint32_t last = type->ndim - 1;
    BERTH_RULE_TRY(berth_rule_same_dtype(site, x, residual));
    BERTH_RULE_TRY(berth_rule_rank(site, x, last));
    BERTH_RULE_TRY(berth_rule_dim(site, x, last - 1, type->dims[last]));
    for (uint64_t mix = post; mix <= comb; ++mix) {
        BERTH_RULE_TRY(berth_rule_f32(site, mix));
        BERTH_RULE_TRY(berth_rule_rank(site, mix, type->ndim));
        BERTH_RULE_TRY(berth_rule_dim(site, mix, last - 1, type->dims[last - 1]));
    }
    BERTH_RULE_TRY(berth_rule_dim(site, post, last, BERTH_DIM_CONST(1)));
    BERTH_RULE_TRY(berth_rule_dim(site, comb, last, type->dims[last - 1]));
    for (uint32_t dim = 0; dim + 1 < last; ++dim) {
        BERTH_RULE_TRY(berth_rule_dim(site, x, dim, type->dims[dim]));
        BERTH_RULE_TRY(berth_rule_dim(site, post, dim, type->dims[dim]));
        BERTH_RULE_TRY(berth_rule_dim(site, comb, dim, type->dims[dim]));
    }
    return BERTH_OK;
}

// The outputs post_mix, comb_mix and layer_input.
static inline void mhc_give_pre(const berth_value_type *residual, berth_op_result *out) {
    const uint32_t last = residual->ndim - 1;
    berth_value_type *post = berth_rule_give(out, residual);
    post->dtype = BERTH_DTYPE_F32;
    post->dims[last] = BERTH_DIM_CONST(1);
    berth_value_type *comb = berth_rule_give(out, residual);
    comb->dtype = BERTH_DTYPE_F32;
    comb->dims[last] = residual->dims[last - 1];
    berth_value_type *input = berth_rule_give(out, residual);
    input->ndim = last;
    input->dims[last - 1] = residual->dims[last];
}

// A float for each element of base, the last input.
static inline uint64_t mhc_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)berth_last_dim(site->inputs[site->input_count - 1]).b * sizeof(float);
}

#endif
