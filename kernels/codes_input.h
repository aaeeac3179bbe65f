// SPDX-License-Identifier: Apache-2.0
// How a row of floats becomes codes before a quantized product, for references that quantise their
// own input. The rules are those of quant_int8, quant_fp8 and quant_nvfp4.
#ifndef BERTH_KERNELS_CODES_INPUT_H
#define BERTH_KERNELS_CODES_INPUT_H

#include <codes.h>
#include <int8.h>
#include <nvfp4.h>
#include <tensor.h>

#include <string.h>

// NONE for a text that is none of them.
typedef enum codes_rule {
    CODES_INPUT_NONE,
    CODES_INPUT_FLOAT,  // left as it is
    CODES_INPUT_STATIC, // by a given scale
    CODES_INPUT_TOKEN,  // by one scale for the row
    CODES_INPUT_GROUP,  // by one for as many columns as share a scale of the weight
    CODES_INPUT_NVFP4,  // the same, by a scale in e4m3 below a given divisor
} codes_rule;

// By the attribute `input`, and of groups by whether divisors are given (`has_global_scales`).
static inline codes_rule codes_rule_of(const berth_op_site *site) {
    const char *name = berth_site_attribute(site, "input")->str;
    const int has_divisors = berth_site_attribute(site, "has_global_scales")->i64 != 0;
    return strcmp(name, "float") == 0    ? CODES_INPUT_FLOAT
           : strcmp(name, "static") == 0 ? CODES_INPUT_STATIC
           : strcmp(name, "token") == 0  ? CODES_INPUT_TOKEN
           : strcmp(name, "group") != 0  ? CODES_INPUT_NONE
           : has_divisors                ? CODES_INPUT_NVFP4
                                         : CODES_INPUT_GROUP;
}

// The values of e4m3 codes; `scale` is written unless the rule says that it is given.
static inline void codes_to_e4m3(codes_rule rule, float *x, int64_t count, float *scale) {
    if (rule != CODES_INPUT_STATIC) {
        float largest = 0;
        for (int64_t i = 0; i < count; ++i) {
            largest = berth_max_or_nan(fabsf(x[i]), largest);
        }
        *scale = berth_f8_scale(largest);
    }
    const float factor = 1.0f / *scale;
    for (int64_t i = 0; i < count; ++i) {
        const float scaled = rule == CODES_INPUT_GROUP ? x[i] / *scale : x[i] * factor;
        x[i] = berth_from_f8(berth_to_f8(scaled));
    }
}

// The same of i8.
static inline void codes_to_i8(codes_rule rule, float *x, int64_t count, float *scale) {
    float largest = 0;
    for (int64_t i = 0; i < count; ++i) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float factor = berth_i8_factor(largest);
    for (int64_t i = 0; i < count; ++i) {
        const float scaled = rule == CODES_INPUT_STATIC ? x[i] / *scale : x[i] * factor;
        x[i] = (float)berth_to_i8(scaled);
    }
    if (rule != CODES_INPUT_STATIC) {
        *scale = berth_i8_scale(largest);
    }
}

// The numbers of e2m1 codes of a group.
static inline void codes_to_e2m1(float global, float *x, float *scale) {
    float largest = 0;
    for (int64_t i = 0; i < BERTH_NVFP4_GROUP; ++i) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float local = berth_nvfp4_local(largest, global);
    const float factor = berth_nvfp4_factor(local, global);
    for (int64_t i = 0; i < BERTH_NVFP4_GROUP; ++i) {
        x[i] = 0.5f * (float)berth_e2m1_twice(berth_to_e2m1(x[i] * factor));
    }
    *scale = local / global;
}

#endif
