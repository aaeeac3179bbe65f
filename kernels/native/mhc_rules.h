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

static inline uint64_t mhc_mix_bytes(const berth_value_type *residual) {
    const uint64_t streams = (uint64_t)mhc_streams(residual);
    return (streams * streams + 2 * streams) * sizeof(float);
}

// ---- reference ----------------------------------------------------------------------------------

static inline float mhc_sigmoid(float value) {
    return 1.0f / (1.0f + expf(-value));
}

// Σ over the streams of a token of their squares, divided by their number, plus eps, as a factor.
static inline float mhc_norm(const berth_tensor *residual, int64_t first_row, int64_t streams,
                             float eps) {
    const int64_t hidden = berth_row_length(residual);
    double squares = 0;
    for (int64_t i = 0; i < streams * hidden; ++i) {
        const double value = (double)berth_load_at(berth_row(residual, first_row + i / hidden),
                                                   residual->dtype, i % hidden);
        squares += value * value;
    }
    return 1.0f / sqrtf((float)(squares / (double)(streams * hidden)) + eps);
}

// Row `row` of fn times the streams of a token.
static inline float mhc_product(const berth_tensor *residual, int64_t first_row, int64_t streams,
                                const berth_tensor *fn, int64_t row) {
    const int64_t hidden = berth_row_length(residual);
    const float *weights = berth_row(fn, row);
    float sum = 0;
    for (int64_t stream = 0; stream < streams; ++stream) {
        sum += berth_dot(berth_row(residual, first_row + stream), residual->dtype,
                         weights + stream * hidden, BERTH_DTYPE_F32, hidden);
    }
    return sum;
}

// Divides rows, or columns, by their sum + eps.
static inline void mhc_divide(float *comb, int64_t streams, int is_column, float eps) {
    const int64_t step = is_column ? streams : 1;
    for (int64_t i = 0; i < streams; ++i) {
        float *first = comb + i * (is_column ? 1 : streams);
        float sum = eps;
        for (int64_t j = 0; j < streams; ++j) {
            sum += first[j * step];
        }
        for (int64_t j = 0; j < streams; ++j) {
            first[j * step] /= sum;
        }
    }
}

static inline void mhc_softmax(float *row, int64_t count, float eps) {
    float largest = row[0];
    float sum = 0;
    for (int64_t i = 1; i < count; ++i) {
        largest = row[i] > largest ? row[i] : largest;
    }
    for (int64_t i = 0; i < count; ++i) {
        row[i] = expf(row[i] - largest);
        sum += row[i];
    }
    for (int64_t i = 0; i < count; ++i) {
        row[i] = row[i] / sum + eps;
    }
}

static inline void mhc_sinkhorn(const berth_op_site *site, float *comb, int64_t streams) {
    const float eps = (float)site->attributes[MHC_SINKHORN_EPS]->f64;
    for (int64_t i = 0; i < streams; ++i) {
        mhc_softmax(comb + i * streams, streams, eps);
    }
    mhc_divide(comb, streams, 1, eps);
    for (int64_t i = 1; i < site->attributes[MHC_REPEAT]->i64; ++i) {
        mhc_divide(comb, streams, 0, eps);
        mhc_divide(comb, streams, 1, eps);
    }
}

// y = Σ factor_i · stream i, rounded once, over `streams` rows from `first_row` on.
static inline void mhc_mix_streams(const berth_tensor *residual, int64_t first_row, int64_t streams,
                                   const float *factors, void *y) {
    for (int64_t i = 0; i < berth_row_length(residual); ++i) {
        float sum = 0;
        for (int64_t stream = 0; stream < streams; ++stream) {
            sum += factors[stream] *
                   berth_load_at(berth_row(residual, first_row + stream), residual->dtype, i);
        }
        berth_store_at(y, residual->dtype, i, sum);
    }
}

// Where mhc_pre writes.
typedef struct mhc_outputs {
    const berth_tensor *post_mix;
    const berth_tensor *comb_mix;
    const berth_tensor *layer_input;
} mhc_outputs;

// `weights`: fn, scale, base. `mix` is room.
static inline void mhc_enter(const berth_op_site *site, const berth_tensor *residual,
                             const berth_tensor *const *weights, const mhc_outputs *out,
                             float *mix) {
    const int64_t streams = residual->shape[residual->ndim - 2];
    const float *scale = berth_data(weights[1]);
    const float *base = berth_data(weights[2]);
    for (int64_t token = 0; token < berth_row_count(out->layer_input); ++token) {
        const int64_t first = token * streams;
        const float norm =
            mhc_norm(residual, first, streams, (float)site->attributes[MHC_RMS_EPS]->f64);
        for (int64_t i = 0; i < streams * streams + 2 * streams; ++i) {
            const int64_t kind = i < streams ? 0 : i < 2 * streams ? 1 : 2;
            mix[i] =
                mhc_product(residual, first, streams, weights[0], i) * norm * scale[kind] + base[i];
        }
        float *post = (float *)berth_data(out->post_mix) + first;
        float *comb = (float *)berth_data(out->comb_mix) + first * streams;
        for (int64_t i = 0; i < streams; ++i) {
            mix[i] = mhc_sigmoid(mix[i]) + (float)site->attributes[MHC_PRE_EPS]->f64;
            post[i] = mhc_sigmoid(mix[streams + i]) * (float)site->attributes[MHC_POST_MULT]->f64;
        }
        memcpy(comb, mix + 2 * streams, (size_t)(streams * streams) * sizeof *comb);
        mhc_sinkhorn(site, comb, streams);
        mhc_mix_streams(residual, first, streams, mix, berth_row(out->layer_input, token));
    }
}

// `operands`: x, residual, post_layer_mix, comb_res_mix.
static inline void mhc_leave(const berth_tensor *const *operands, const berth_tensor *y) {
    const berth_tensor *x = operands[0];
    const berth_tensor *residual = operands[1];
    const int64_t streams = residual->shape[residual->ndim - 2];
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const int64_t first = row / streams * streams;
        const float post = ((const float *)berth_data(operands[2]))[row];
        const float *comb = (const float *)berth_data(operands[3]) + first * streams;
        for (int64_t i = 0; i < berth_row_length(x); ++i) {
            float sum = post * berth_load_at(berth_row(x, row / streams), x->dtype, i);
            for (int64_t stream = 0; stream < streams; ++stream) {
                sum += comb[stream * streams + row % streams] *
                       berth_load_at(berth_row(residual, first + stream), residual->dtype, i);
            }
            berth_store_at(berth_row(y, row), y->dtype, i, sum);
        }
    }
}

#endif
