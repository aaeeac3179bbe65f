// SPDX-License-Identifier: Apache-2.0
// How rows become what a stack of a mixture of experts in codes (coded_experts.h) is multiplied by:
// floats as they are, or codes by the rules of quant_fp8 and quant_int8, the bits of which they
// are.
#ifndef BERTH_KERNELS_CPU_CODED_INPUT_H
#define BERTH_KERNELS_CPU_CODED_INPUT_H

#include <cpu/coded_job.h>
#include <cpu/fp8_codes.h>
#include <cpu/int8_codes.h>
#include <cpu/magnitude.h>

// Numbers on their way to codes.
typedef struct coded_numbers {
    const float *from;
    uint8_t *to;
    int64_t count;
    float by; // what they are divided or multiplied by
    int is_divided;
    int is_e4m3;
} coded_numbers;

BERTH_INLINE berth_vec_bytes coded_codes(const coded_numbers *of, berth_vec x) {
    const berth_vec by = berth_vec_of(of->by);
    const berth_vec value = of->is_divided ? x / by : x * by;
    return of->is_e4m3 ? vec_to_f8(value) : vec_to_i8(value, 0);
}

static inline void coded_convert(const coded_numbers *all) {
    const coded_numbers of = *all; // no store changes it, for all that the compiler knows
    int64_t i = 0;
    for (; i + BERTH_LANES <= of.count; i += BERTH_LANES) {
        const berth_vec_bytes codes = coded_codes(&of, berth_vec_load(of.from + i));
        memcpy(of.to + i, &codes, sizeof codes);
    }
    if (i < of.count) {
        const berth_vec rest = berth_vec_load_part(of.from, BERTH_DTYPE_F32, i, of.count - i);
        const berth_vec_bytes codes = coded_codes(&of, rest);
        memcpy(of.to + i, &codes, (size_t)(of.count - i));
    }
}

// The scale is written, unless the rule says that it is given.
static inline void coded_to_e4m3(codes_rule rule, coded_numbers of, float *scale) {
    if (rule != CODES_INPUT_STATIC) {
        *scale = berth_f8_scale(
            berth_vec_largest_of(of.from, BERTH_DTYPE_F32, (berth_span){0, of.count}));
    }
    of.is_e4m3 = 1;
    of.is_divided = rule == CODES_INPUT_GROUP;
    of.by = of.is_divided ? *scale : 1.0f / *scale;
    coded_convert(&of);
}

static inline void coded_to_i8(codes_rule rule, coded_numbers of, float *scale) {
    of.is_divided = rule == CODES_INPUT_STATIC;
    of.by = *scale;
    if (rule != CODES_INPUT_STATIC) {
        const float largest = vec_i8_largest(of.from, BERTH_DTYPE_F32, of.count);
        *scale = berth_i8_scale(largest);
        of.by = berth_i8_factor(largest);
    }
    coded_convert(&of);
}

// The expert that has the row.
static inline int64_t coded_expert(const coded_job *in, int64_t row) {
    const experts_slice *slice = in->of.slices;
    while (row >= slice->first + slice->rows) {
        ++slice;
    }
    return slice->expert;
}

// The codes of e2m1 that the row becomes below its expert's divisor, as twice their numbers, which
// are whole. Why by the reference: of a product's work this is little.
static inline void coded_keep_nvfp4(const coded_job *in, int stack, int64_t row,
                                    const float *numbers) {
    const coded_side *side = &in->sides[stack];
    const float *divisors = berth_data(in->args->inputs[coded_places[stack].input_scale]);
    const float divisor = divisors[coded_expert(in, row)];
    int8_t *to = berth_row(&side->x.tensor, row);
    float *scales = berth_row(&side->scales.tensor, row);
    for (int64_t group = 0; group < in->self->stacks[stack].product.groups; ++group) {
        const int64_t first = group * BERTH_NVFP4_GROUP;
        float of_group[BERTH_NVFP4_GROUP];
        float scale = 0;
        memcpy(of_group, numbers + first, sizeof of_group);
        codes_to_e2m1(divisor, of_group, &scale);
        for (int64_t i = 0; i < BERTH_NVFP4_GROUP; ++i) {
            to[first + i] = (int8_t)(2 * of_group[i]);
        }
        scales[group] = scale / 2;
    }
}

// A row of floats to where the side of a stack has row `row`.
static inline void coded_keep(const coded_job *in, int stack, int64_t row, const float *numbers) {
    const coded *self = in->self;
    const coded_side *side = &in->sides[stack];
    const packed *product = &self->stacks[stack].product;
    const berth_tensor *given = in->args->inputs[coded_places[stack].input_scale];
    void *to = berth_row(&side->x.tensor, row);
    if (self->rule == CODES_INPUT_FLOAT) {
        berth_store(to, side->x.tensor.dtype, 0, product->in, numbers);
        return;
    }
    if (self->rule == CODES_INPUT_NVFP4) {
        coded_keep_nvfp4(in, stack, row, numbers);
        return;
    }
    float one = given ? *(const float *)berth_data(given) : 0;
    float *scales = given ? &one : berth_row(&side->scales.tensor, row);
    const int64_t step =
        self->rule == CODES_INPUT_GROUP ? packed_group_columns(product) : product->in;
    for (int64_t first = 0; first < product->in; first += step) {
        const coded_numbers of = {
            .from = numbers + first,
            .to = (uint8_t *)to + first,
            .count = at_most(step, product->in - first),
        };
        (self->is_e4m3 ? coded_to_e4m3 : coded_to_i8)(self->rule, of, scales + first / step);
    }
}

#endif
