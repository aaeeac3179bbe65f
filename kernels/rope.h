// SPDX-License-Identifier: Apache-2.0
// The rope types of rotary_embedding: by which angle a pair of elements turns from one position to
// the next, how many positions there are, and the factor on cosine and sine.
//
// With R = rotary_dim, b = base, s = factor, L = original_max_position_embeddings, the angle of
// pair i < R/2 is
//   default   b^(−2i/R)
//   linear    that / s
//   ntk       (b·s)^(−2i/R) / s^(2/R), or with m = `mixed_b`
//             b^(−2i/R) / exp(a·(i + 1)^m), a = ln(s) / (R/2)^m
//   dynamic   default's of b · (s · max_position / max_trained_positions − (s − 1))^(R/(R−2)), or
//             with `alpha` of b · alpha^(R/(R−2)); the same for every sequence, however long
//   llama3    default's / s for wavelengths above L / low_freq_factor, unchanged for those below
//             L / high_freq_factor, a mixture between the two
//   yarn      default's / s for pairs that turn less than beta_slow times over L positions,
//             unchanged for those that turn more than beta_fast times, a mixture between the two;
//             deepseek_yarn the same
//   longrope  default's / short_factor[i], or / long_factor[i] when max_model_len exceeds L
//   proportional  b^(−2i/d) over the head size d for i < partial_rotary_factor·d / 2, else 0
//   mllama4   default's, of R pairs, half for the column of an image's patch, half for its row
// Formulas: vLLM's classes of the same rope types. Why float: far out a last place of the angle per
// position is seen in the result, so every step is rounded where theirs is.
#ifndef BERTH_KERNELS_ROPE_H
#define BERTH_KERNELS_ROPE_H

#include <berth/op.h>

#include <math.h>

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

static inline int berth_rope_has(const berth_op_site *site, const char *name) {
    const berth_attribute *found = berth_site_attribute(site, name);
    return found && found->kind != BERTH_ATTRIBUTE_NONE;
}

static inline int berth_rope_is_yarn(const berth_op_site *site) {
    return berth_rope_is(site, "yarn") || berth_rope_is(site, "deepseek_yarn");
}

// Whether the type is one of those below, whose pairs are the same for every head and in order. The
// host's schema may be younger than a kernel and have more, so a kernel asks.
static inline int berth_rope_is_known(const berth_op_site *site) {
    static const char *const names[] = {
        "default",  "linear",       "ntk",       "dynamic",       "llama3",   "yarn",
        "longrope", "proportional", "openpangu", "bailing_mrope", "ernie_vl", "deepseek_yarn",
    };
    int is_known = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        is_known |= berth_rope_is(site, names[i]);
    }
    return is_known;
}

// A rope for positions of three axes (time, height, width) is longer by a factor.
static inline int berth_rope_has_axes(const berth_op_site *site) {
    return berth_rope_has(site, "mrope_section");
}
static inline double berth_rope_stretch(const berth_op_site *site) {
    return berth_rope_has_axes(site) ? berth_rope_number(site, "mrope_positions_factor", 4) : 1;
}

static inline double berth_rope_original(const berth_op_site *site) {
    return berth_rope_number(site, "original_max_position_embeddings", 0);
}

// longrope: whether the model's longest sequence asks for the long factors.
static inline int berth_rope_is_long(const berth_op_site *site) {
    return berth_rope_number(site, "max_model_len", berth_rope_number(site, "max_position", 0)) >
           berth_rope_original(site);
}

// The row of position 0 in a cache: a longrope's begins with the short rope's rows.
static inline int64_t berth_rope_first_row(const berth_op_site *site) {
    return berth_rope_is(site, "longrope") && berth_rope_is_long(site)
               ? (int64_t)berth_rope_original(site)
               : 0;
}

// Positions run from 0 to this, exclusive: linear and yarn stretch the length that was trained.
static inline double berth_rope_length(const berth_op_site *site) {
    const double length = berth_rope_number(site, "max_position", 0) * berth_rope_stretch(site);
    const double factor = berth_rope_number(site, "factor", 1);
    return berth_rope_is(site, "linear") ? ceil(length * factor)
           : berth_rope_is_yarn(site)
               ? ceil(berth_rope_original(site) * berth_rope_stretch(site) * factor)
           : berth_rope_is(site, "longrope") && !berth_rope_is_long(site)
               ? berth_rope_original(site)
           : berth_rope_is(site, "mllama4") ? length + 1
                                            : length;
}

// Pairs of a head that turn.
static inline int64_t berth_rope_pairs(const berth_op_site *site) {
    const int64_t dim = (int64_t)berth_rope_number(site, "rotary_dim", 0);
    const berth_value_type *query = site->inputs[1];
    return berth_rope_is(site, "proportional") || berth_rope_is(site, "fope")
               ? query->dims[query->ndim - 1].b / 2
           : berth_rope_is(site, "mllama4") ? dim
                                            : dim / 2;
}

// The base of the powers; of type dynamic grown for the whole length.
static inline double berth_rope_base(const berth_op_site *site) {
    const double base = berth_rope_number(site, "base", 0);
    if (berth_rope_is(site, "ntk") && !berth_rope_has(site, "mixed_b")) {
        return base * berth_rope_number(site, "factor", 1);
    }
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
    const double length = berth_rope_original(site) * berth_rope_stretch(site);
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

// ntk, longrope: by what the default angle of a pair is divided.
static inline float berth_rope_divisor(const berth_op_site *site, int64_t pair) {
    const double factor = berth_rope_number(site, "factor", 1);
    const double dim = berth_rope_number(site, "rotary_dim", 0);
    if (berth_rope_is(site, "longrope")) {
        const char *name = berth_rope_is_long(site) ? "long_factor" : "short_factor";
        return (float)berth_site_attribute(site, name)->f64s[pair];
    }
    if (!berth_rope_is(site, "ntk")) {
        return 1;
    }
    const double mixed = berth_rope_number(site, "mixed_b", 0);
    return mixed > 0 ? expf((float)(log(factor) / pow(dim / 2, mixed)) *
                            powf((float)pair + 1, (float)mixed))
                     : (float)pow(factor, 2 / dim);
}

// Radians per position of pair `pair` of those that have a frequency of their own.
static inline float berth_rope_angle(const berth_op_site *site, int64_t pair) {
    const int64_t dim = (int64_t)berth_rope_number(site, "rotary_dim", 0);
    const float factor = (float)berth_rope_number(site, "factor", 1);
    const float period = powf((float)berth_rope_base(site), (float)(2 * pair) / (float)dim);
    const float angle = 1 / period;
    if (berth_rope_is(site, "longrope")) {
        return 1 / (berth_rope_divisor(site, pair) * period);
    }
    if (berth_rope_is(site, "ntk")) {
        return angle / berth_rope_divisor(site, pair);
    }
    const int is_yarn = berth_rope_is_yarn(site);
    const float stretched = is_yarn ? 1 / (factor * period) : angle / factor;
    const float share = berth_rope_is(site, "linear")   ? 0
                        : berth_rope_is(site, "llama3") ? berth_rope_llama3_share(site, angle)
                        : is_yarn                       ? berth_rope_yarn_share(site, pair)
                                                        : 1;
    return stretched * (1 - share) + angle * share;
}

// Radians per position of all pairs: [berth_rope_pairs].
static inline void berth_rope_angles(const berth_op_site *site, float *out) {
    const int64_t pairs = berth_rope_pairs(site);
    const int64_t half = (int64_t)berth_rope_number(site, "rotary_dim", 0) / 2;
    const double share = berth_rope_number(site, "partial_rotary_factor", 1);
    const int64_t turning =
        berth_rope_is(site, "proportional") ? (int64_t)(share * (double)(2 * pairs)) / 2 : pairs;
    for (int64_t i = 0; i < pairs; ++i) {
        out[i] =
            i < turning ? berth_rope_angle(site, berth_rope_is(site, "mllama4") ? i % half : i) : 0;
    }
}

static inline double berth_rope_growth(double factor, double mscale) {
    return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

// longrope: attention gets sharper with the length.
static inline double berth_rope_long_scale(const berth_op_site *site) {
    const double trained = berth_rope_original(site);
    const double growth = berth_rope_number(site, "max_position", 0) / trained;
    const char *name = berth_rope_is_long(site) ? "long_mscale" : "short_mscale";
    return berth_rope_number(site, name, growth > 1 ? sqrt(1 + log(growth) / log(trained)) : 1);
}

// What cosine and sine are multiplied by: yarn sharpens attention over the longer context.
static inline float berth_rope_scale(const berth_op_site *site) {
    const double factor = berth_rope_number(site, "factor", 1);
    if (berth_rope_is(site, "longrope")) {
        return (float)berth_rope_long_scale(site);
    }
    if (berth_rope_is(site, "deepseek_yarn")) {
        return (float)(berth_rope_growth(factor, berth_rope_number(site, "mscale", 1)) /
                       berth_rope_growth(factor, berth_rope_number(site, "mscale_all_dim", 0)));
    }
    if (!berth_rope_is(site, "yarn")) {
        return 1;
    }
    const double mscale = berth_rope_number(site, "mscale", 0);
    const double all = berth_rope_number(site, "mscale_all_dim", 0);
    const double scale = mscale != 0 && all != 0
                             ? berth_rope_growth(factor, mscale) / berth_rope_growth(factor, all)
                             : berth_rope_growth(factor, 1);
    return (float)berth_rope_number(site, "attention_factor", scale);
}

#endif
