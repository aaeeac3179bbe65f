// SPDX-License-Identifier: Apache-2.0
// The arithmetic of hyper-connections, for the references of the mhc ops (formulas: mhc_rules.h).
#ifndef BERTH_KERNELS_NATIVE_MHC_STREAMS_H
#define BERTH_KERNELS_NATIVE_MHC_STREAMS_H

#include "mhc_rules.h"

#include <mhc.h>

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

// `weights`: fn, scale, base; `out`: post_mix, comb_mix, layer_input; `mix` is room.
static inline void mhc_enter(const berth_op_site *site, const berth_tensor *residual,
                             const berth_tensor *const *weights, berth_tensor *const *out,
                             float *mix) {
    const int64_t streams = residual->shape[residual->ndim - 2];
    const float *scale = berth_data(weights[1]);
    const float *base = berth_data(weights[2]);
    for (int64_t token = 0; token < berth_row_count(out[2]); ++token) {
        const int64_t first = token * streams;
        const float norm =
            mhc_norm(residual, first, streams, (float)site->attributes[MHC_RMS_EPS]->f64);
        for (int64_t i = 0; i < streams * streams + 2 * streams; ++i) {
            const int64_t kind = i < streams ? 0 : i < 2 * streams ? 1 : 2;
            mix[i] =
                mhc_product(residual, first, streams, weights[0], i) * norm * scale[kind] + base[i];
        }
        float *post = (float *)berth_data(out[0]) + first;
        float *comb = (float *)berth_data(out[1]) + first * streams;
        for (int64_t i = 0; i < streams; ++i) {
            mix[i] = mhc_sigmoid(mix[i]) + (float)site->attributes[MHC_PRE_EPS]->f64;
            post[i] = mhc_sigmoid(mix[streams + i]) * (float)site->attributes[MHC_POST_MULT]->f64;
        }
        memcpy(comb, mix + 2 * streams, (size_t)(streams * streams) * sizeof *comb);
        mhc_sinkhorn(comb, streams, (float)site->attributes[MHC_SINKHORN_EPS]->f64,
                     site->attributes[MHC_REPEAT]->i64);
        mhc_mix_streams(residual, first, streams, mix, berth_row(out[2], token));
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
