// SPDX-License-Identifier: Apache-2.0
// x in fixed point, for products of codes of four bits by DOT_WORDS: of each row the columns of a
// group are whole numbers of 16 bits times a power of two, the group's own (block floating point).
// Their products with codes are added up exactly, as integers, and sixteen codes take four
// instructions, where floats take them one by one.
//
// What that costs: a number is off by 2^-15 of its group's largest at most, in groups of more than
// 4,369 columns of u4 or 2,730 of e2m1 by 2^-14, and so on to 2^-12 in those of 34,952 or 21,845,
// the longest. The largest one itself, rounded to bf16, is off by up to 2^-9, to f16 by 2^-12, so
// that a sum is as good as its numbers were. Numbers below 2^-125 become 0, as in products of pairs
// of bf16.
#ifndef BERTH_KERNELS_CPU_PACKED_FIXED_H
#define BERTH_KERNELS_CPU_PACKED_FIXED_H

#include <math.h>

#include <cpu/magnitude.h>
#include <cpu/packed_job.h>

#define FIXED_COLUMNS 128       // at a time
#define FIXED_SMALL   0x1p-110f // what is below counts as this when a scale is found
#define FIXED_WHOLE   0x1.8p23f // beside it a number is whole, its lower half the number's bits

// Columns [first, end) of a row of x: of one group, or of what is packed at a time.
typedef struct fixed_row {
    const packed_job *job;
    int64_t at; // in x
    berth_span columns;
} fixed_row;

static inline float fixed_largest(const fixed_row *of) {
    const packed_job *in = of->job;
    if (in->plain) {
        return berth_vec_largest_of(berth_row(in->plain, of->at), in->plain->dtype, of->columns);
    }
    float largest = 0;
    float values[FIXED_COLUMNS];
    for (int64_t i = of->columns.first; i < of->columns.end; i += FIXED_COLUMNS) {
        const berth_span some = {0, at_most(FIXED_COLUMNS, of->columns.end - i)};
        in->floats(in, of->at, i, some.end, values);
        const float here = berth_vec_largest_of(values, BERTH_DTYPE_F32, some);
        largest = here <= largest || isnan(largest) ? largest : here;
    }
    return largest;
}

BERTH_INLINE berth_vec fixed_whole(berth_vec x, float by) {
    return x * berth_vec_of(by) + berth_vec_of(FIXED_WHOLE);
}

static inline float fixed_sum(const fixed_row *of, float by) {
    berth_vec sum = berth_vec_of(0);
    float values[FIXED_COLUMNS];
    for (int64_t i = of->columns.first; i < of->columns.end; i += FIXED_COLUMNS) {
        const int64_t count = at_most(FIXED_COLUMNS, of->columns.end - i);
        of->job->floats(of->job, of->at, i, count, values);
        for (int64_t k = 0; k < count; k += BERTH_LANES) {
            const berth_vec x = berth_vec_load_some(values, BERTH_DTYPE_F32, k, count);
            sum += fixed_whole(x, by) - berth_vec_of(FIXED_WHOLE);
        }
    }
    return berth_vec_sum(sum);
}

// The power of two that whole numbers of a group are to be multiplied by; codes are whole already.
static inline float fixed_scale(const packed_job *in, float largest) {
    const float at_least = largest > FIXED_SMALL ? largest : FIXED_SMALL;
    const uint32_t power = berth_bits_of_float(at_least) & 0x7f800000u;
    const float limit = packed_fixed_limit(in->self->kind, packed_group_columns(in->self));
    return in->x_scales || !isfinite(largest) ? 1 : 2 * berth_float_of_bits(power) / limit;
}

// The sum of a group's numbers, NaN where one is not finite, and their scale.
static inline float fixed_group(const fixed_row *of, float *out_scale) {
    const float largest = fixed_largest(of);
    *out_scale = fixed_scale(of->job, largest);
    return isfinite(largest) ? fixed_sum(of, 1 / *out_scale) : NAN;
}

static inline void fixed_put(const float *values, int64_t count, float by, char *to) {
    for (int64_t i = 0; i < count; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(values, BERTH_DTYPE_F32, i, count);
        const berth_vec_halves words = berth_vec_narrow((berth_vec_bits)fixed_whole(x, by));
        memcpy(to + i * 2, &words, (size_t)at_most(BERTH_LANES, count - i) * 2);
    }
}

// At most FIXED_COLUMNS of row `row` at hand, whose scales are known, as words.
static inline void fixed_load(const fixed_row *of, int64_t row, float *to) {
    const packed_job *in = of->job;
    const int64_t group = packed_group_columns(in->self);
    const int64_t end = at_most(of->columns.end, in->self->in);
    float values[FIXED_COLUMNS];
    memset(to, 0, (size_t)(of->columns.end - of->columns.first) * 2);
    for (int64_t column = of->columns.first, next = 0; column < end; column = next) {
        const int64_t at = column / group;
        const float scale = in->x_scales ? 1 : in->scales_of_x[at * in->rows + row];
        next = at_most((at + 1) * group, end);
        in->floats(in, of->at, column, next - column, values);
        fixed_put(values, next - column, 1 / scale, (char *)to + (column - of->columns.first) * 2);
    }
}

// The words of one row in fixed point as packed_add_bytes takes them: of a step's columns the upper
// bytes of 0, 4, 1 and 5, of 2, 6, 3 and 7, then the lower ones.
static inline void fixed_split(const packed *self, float *words) {
    enum { COLUMNS = 8 };
    static const int columns[COLUMNS] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (int64_t step = 0; step < self->steps; ++step, words += self->step_words) {
        uint16_t of_columns[COLUMNS];
        uint8_t bytes[2][COLUMNS];
        memcpy(of_columns, words, sizeof of_columns);
        for (int i = 0; i < COLUMNS; ++i) {
            bytes[0][i] = (uint8_t)(of_columns[columns[i]] >> 8);
            bytes[1][i] = (uint8_t)of_columns[columns[i]];
        }
        memcpy(words, bytes, sizeof bytes);
    }
}

#endif
