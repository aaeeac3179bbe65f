// SPDX-License-Identifier: Apache-2.0
// How a row of floats becomes codes before a quantized product, for references that quantise their
// own input. The rules are those of quant_int8 and quant_fp8.
#ifndef BERTH_KERNELS_CODES_INPUT_H
#define BERTH_KERNELS_CODES_INPUT_H

#include <fp8.h>
#include <int8.h>
#include <tensor.h>

#include <string.h>

// By the attribute `input`; NONE for a text that is none of them.
typedef enum codes_rule {
    CODES_INPUT_NONE,
    CODES_INPUT_FLOAT,  // left as it is
    CODES_INPUT_STATIC, // by a given scale
    CODES_INPUT_TOKEN,  // by one scale for the row
    CODES_INPUT_GROUP,  // by one for as many columns as share a scale of the weight
} codes_rule;

static inline codes_rule codes_rule_of(const char *name) {
    return strcmp(name, "float") == 0    ? CODES_INPUT_FLOAT
           : strcmp(name, "static") == 0 ? CODES_INPUT_STATIC
           : strcmp(name, "token") == 0  ? CODES_INPUT_TOKEN
           : strcmp(name, "group") == 0  ? CODES_INPUT_GROUP
                                         : CODES_INPUT_NONE;
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

#endif
