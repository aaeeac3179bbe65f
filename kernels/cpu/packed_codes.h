// SPDX-License-Identifier: Apache-2.0
// Rows of x that are codes themselves, as products by a weight of codes load them (packed_load_fn):
// the codes of i8 and e4m3 as the numbers that they are for, or of i8 as integers. x is the first
// input of the job's call.
#ifndef BERTH_KERNELS_CPU_PACKED_CODES_H
#define BERTH_KERNELS_CPU_PACKED_CODES_H

#include <cpu/packed_job.h>

// Of a group of i8: sums of x are exact as floats, those of products as integers.
#define CODES_MOST_COLUMNS 65536

static inline void codes_load_i8(const packed_job *in, int64_t row, int64_t first, int64_t count,
                                 float *to) {
    const int8_t *codes = (const int8_t *)berth_row(in->args->inputs[0], row) + first;
    for (int64_t i = 0; i < count; ++i) {
        to[i] = (float)codes[i];
    }
}

static inline void codes_load_e4m3(const packed_job *in, int64_t row, int64_t first, int64_t count,
                                   float *to) {
    const uint8_t *codes = (const uint8_t *)berth_row(in->args->inputs[0], row) + first;
    const float raise = packed_by_shifts(in) ? E4M3_RAISE : 1;
    const berth_vec factor = berth_vec_of(raise * packed_factor(PACKED_E4M3, TIMES_F32));
    int64_t i = 0;
    for (; i + BERTH_LANES <= count; i += BERTH_LANES) {
        berth_vec_bytes bytes;
        memcpy(&bytes, codes + i, sizeof bytes);
        const berth_vec_halves halves = __builtin_convertvector(bytes, berth_vec_halves);
        berth_vec_store(to + i, packed_e4m3(halves) * factor);
    }
    for (; i < count; ++i) {
        to[i] = berth_from_f8(codes[i]) * raise;
    }
}

// Four codes each.
static inline void codes_load_bytes(const packed_job *in, int64_t row, int64_t first, int64_t count,
                                    float *to) {
    const int8_t *codes = (const int8_t *)berth_row(in->args->inputs[0], row) + first * 4;
    const int64_t there = at_most(in->self->in - first * 4, count * 4);
    if (there < count * 4) {
        memset(to, 0, (size_t)count * sizeof *to);
    }
    memcpy(to, codes, (size_t)there);
}

// Of four codes two words of 16 bits each: the even columns, then the odd ones.
static inline void codes_to_words(const int8_t *codes, float *to) {
    typedef int16_t words __attribute__((vector_size(BERTH_LANES * 4)));
    words both;
    memcpy(&both, codes, sizeof both);
    const berth_vec even = (berth_vec)((words)((berth_vec_words)both << 8) >> 8);
    const berth_vec odd = (berth_vec)(both >> 8);
    berth_vec_store(to, berth_vec_low(even, odd));
    berth_vec_store(to + BERTH_LANES, berth_vec_high(even, odd));
}

static inline void codes_load_words(const packed_job *in, int64_t row, int64_t first, int64_t count,
                                    float *to) {
    const int8_t *codes = berth_row(in->args->inputs[0], row);
    for (int64_t i = 0; i < count; i += 2 * BERTH_LANES) {
        const int64_t column = (first + i) * 2;
        const int64_t words = at_most(2 * BERTH_LANES, count - i);
        int8_t some[4 * BERTH_LANES] = {0};
        float pairs[2 * BERTH_LANES];
        memcpy(some, codes + column, (size_t)at_most(2 * words, in->self->in - column));
        codes_to_words(some, pairs);
        memcpy(to + i, pairs, (size_t)words * sizeof *to);
    }
}

// The words that a product takes.
static inline packed_load_fn codes_load_of(const packed *self) {
    return self->product == DOT_BYTES || self->product == MATRIX_BYTES ? codes_load_bytes
           : self->product == DOT_WORDS && !self->is_fixed             ? codes_load_words
           : self->kind == PACKED_E4M3                                 ? codes_load_e4m3
                                                                       : codes_load_i8;
}

// And columns as floats.
static inline packed_load_fn codes_floats_of(const packed *self) {
    return self->kind == PACKED_E4M3 ? codes_load_e4m3 : codes_load_i8;
}

#endif
