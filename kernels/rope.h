// SPDX-License-Identifier: Apache-2.0
// The rope types of rotary_embedding, for its reference and its kernels: by which angle a pair of
// elements turns from one position to the next, how many positions there are, and the factor on
// cosine and sine.
//
// With R = rotary_dim, b = base, s = factor, L = original_max_position_embeddings, the angle of
// pair i < R/2 is
//   default  b^(−2i/R)
//   linear   that / s
//   dynamic  that of the base b · (s · max_position / max_trained_positions − (s − 1))^(R/(R−2)),
//   or
//            with `alpha` of b · alpha^(R/(R−2)); the same for every sequence, however long it is
//   llama3   that / s for wavelengths above L / low_freq_factor, unchanged for those below
//            L / high_freq_factor, a mixture between the two
//   yarn     that / s for pairs that turn less than beta_slow times over L positions, unchanged for
//            those that turn more than beta_fast times, a mixture between the two
// Formulas: vLLM's classes of the same rope types. Why float: far out a last place of the angle per
// position is seen in the result, so every step is rounded where theirs is.
#ifndef BERTH_KERNELS_ROPE_H
#define BERTH_KERNELS_ROPE_H

#include <berth/op.h>

#include <math.h>
#include <string.h>

static inline double berth_rope_number(const berth_op_site *site, const char *name,
                                       double fallback) {
    const berth_attribute *found = berth_site_attribute(site, name);
    if (!found || found->kind == BERTH_ATTRIBUTE_NONE) {
        return fallback;
    }
    return found->kind == BERTH_ATTRIBUTE_F64 ? found->f64 : (double)found->i64;
}

static inline int berth_rope_is(const berth_op_site *site, const char *type) {
    return strcmp(berth_site_attribute(site, "rope_type")->str, type) == 0;
}

// Whether the functions below know the type. The host's schema may be younger than a kernel and
// have more of them, so a kernel asks.
static inline int berth_rope_is_known(const berth_op_site *site) {
    return berth_rope_is(site, "default") || berth_rope_is(site, "linear") ||
           berth_rope_is(site, "dynamic") || berth_rope_is(site, "llama3") ||
           berth_rope_is(site, "yarn");
}

// Positions run from 0 to this, exclusive: linear and yarn stretch the length that was trained.
static inline double berth_rope_length(const berth_op_site *site) {
    const double length = berth_rope_number(site, "max_position", 0);
    const double factor = berth_rope_number(site, "factor", 1);
    return berth_rope_is(site, "linear") ? ceil(length * factor)
           : berth_rope_is(site, "yarn")
               ? ceil(berth_rope_number(site, "original_max_position_embeddings", 0) * factor)
               : length;
}

// The base of the powers; of type dynamic grown for the whole length.
static inline double berth_rope_base(const berth_op_site *site) {
    const double base = berth_rope_number(site, "base", 0);
    if (!berth_rope_is(site, "dynamic")) {
        return base;
    }
    const double dim = berth_rope_number(site, "rotary_dim", 0);
    const double factor = berth_rope_number(site, "factor", 1);
    const double length = berth_rope_number(site, "max_position", 0);
    const double trained = berth_rope_number(site, "max_trained_positions", length);
    const double growth = factor * length / trained - (factor - 1);
    return base * pow(berth_rope_number(site, "alpha", growth), dim / (dim - 2));
}

#define BERTH_ROPE_TURN 6.283185307179586476925 // radians

// llama3: the share of the unchanged angle.
static inline float berth_rope_llama3_share(const berth_op_site *site, float angle) {
    const float length = (float)berth_rope_number(site, "original_max_position_embeddings", 0);
    const float low = (float)berth_rope_number(site, "low_freq_factor", 1);
    const float high = (float)berth_rope_number(site, "high_freq_factor", 1);
    const float wavelength = (float)BERTH_ROPE_TURN / angle;
    return wavelength < length / high  ? 1
           : wavelength > length / low ? 0
           : high > low                ? (length / wavelength - low) / (high - low)
                                       : 0;
}

// yarn: the pair, as a real number, that turns so many times over the trained positions.
static inline double berth_rope_yarn_pair(const berth_op_site *site, double turns) {
    const double length = berth_rope_number(site, "original_max_position_embeddings", 0);
    return berth_rope_number(site, "rotary_dim", 0) * log(length / (turns * BERTH_ROPE_TURN)) /
           (2 * log(berth_rope_number(site, "base", 0)));
}

// yarn: the share of the unchanged angle.
static inline float berth_rope_yarn_share(const berth_op_site *site, int64_t pair) {
    double low = berth_rope_yarn_pair(site, berth_rope_number(site, "beta_fast", 32));
    double high = berth_rope_yarn_pair(site, berth_rope_number(site, "beta_slow", 1));
    if (berth_rope_number(site, "truncate", 1) != 0) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, berth_rope_number(site, "rotary_dim", 0) - 1);
    high = high == low ? high + 0.001 : high;
    return 1 - fminf(fmaxf(((float)pair - (float)low) / (float)(high - low), 0), 1);
}

// Radians per position of all pairs: [rotary_dim / 2].
static inline void berth_rope_angles(const berth_op_site *site, float *out) {
    const int64_t dim = (int64_t)berth_rope_number(site, "rotary_dim", 0);
    const float base = (float)berth_rope_base(site);
    const float factor = (float)berth_rope_number(site, "factor", 1);
    const int is_linear = berth_rope_is(site, "linear");
    const int is_llama3 = berth_rope_is(site, "llama3");
    const int is_yarn = berth_rope_is(site, "yarn");
    for (int64_t i = 0; i < dim / 2; ++i) {
        const float period = powf(base, (float)(2 * i) / (float)dim);
        const float angle = 1 / period;
        const float stretched = is_yarn ? 1 / (factor * period) : angle / factor;
        const float share = is_linear   ? 0
                            : is_llama3 ? berth_rope_llama3_share(site, angle)
                            : is_yarn   ? berth_rope_yarn_share(site, i)
                                        : 1;
        out[i] = stretched * (1 - share) + angle * share;
    }
}

// What cosine and sine are multiplied by: yarn sharpens attention over the longer context.
static inline float berth_rope_scale(const berth_op_site *site) {
    if (!berth_rope_is(site, "yarn")) {
        return 1;
    }
    const double factor = berth_rope_number(site, "factor", 1);
    const double growth = factor > 1 ? 0.1 * log(factor) : 0;
    const double mscale = berth_rope_number(site, "mscale", 0);
    const double all = berth_rope_number(site, "mscale_all_dim", 0);
    const double scale =
        mscale != 0 && all != 0 ? (mscale * growth + 1) / (all * growth + 1) : growth + 1;
    return (float)berth_rope_number(site, "attention_factor", scale);
}

#endif
