// SPDX-License-Identifier: Apache-2.0
// What the references of ops over quantized weights multiply: a matrix of codes, alone or one of a
// stack, and a row of numbers.
#ifndef BERTH_KERNELS_NATIVE_CODES_PRODUCT_H
#define BERTH_KERNELS_NATIVE_CODES_PRODUCT_H

#include <codes.h>

// ---- eight at a time ----------------------------------------------------------------------------

typedef uint8_t codes_bytes __attribute__((vector_size(8)));
typedef uint32_t codes_bits __attribute__((vector_size(32)));
typedef float codes_numbers __attribute__((vector_size(32)));
typedef double codes_sums __attribute__((vector_size(64)));

// A byte for each of eight codes; of two in one the lower half is first.
static inline codes_bytes codes_load_bytes(berth_code code, const uint8_t *row, int64_t k) {
    codes_bytes bytes;
    if (!berth_code_is_half(code)) {
        memcpy(&bytes, row + k, sizeof bytes);
        return bytes;
    }
    for (int i = 0; i < 4; ++i) {
        const uint8_t both = row[k / 2 + i];
        bytes[2 * i] = both & 15;
        bytes[2 * i + 1] = both >> 4;
    }
    return bytes;
}

// Eight codes from k on, which is even, as numbers: what berth_code_value says of each. Where codes
// have an exponent, their bits go where a float's are, and the product makes up for the two biases.
static inline void codes_load(berth_code code, const uint8_t *row, int64_t k, codes_numbers *to) {
    typedef int8_t signed_bytes __attribute__((vector_size(8)));
    const codes_bytes bytes = codes_load_bytes(code, row, k);
    const codes_bits bits = __builtin_convertvector(bytes, codes_bits);
    switch (code) {
    case BERTH_CODE_U4:
    case BERTH_CODE_U8:
        *to = __builtin_convertvector(bytes, codes_numbers);
        return;
    case BERTH_CODE_I8:
        *to = __builtin_convertvector((signed_bytes)bytes, codes_numbers);
        return;
    case BERTH_CODE_E2M1:
        *to = (codes_numbers)((bits & 7) << 22 | (bits & 8) << 28) * 0x1p126f;
        return;
    default: {
        const codes_bits is_nan = (codes_bits)((bits & 0x7f) == 0x7f);
        const codes_bits aligned = (bits & 0x7f) << 20 | (bits & 0x80) << 24;
        *to = (codes_numbers)((codes_bits)((codes_numbers)aligned * 0x1p120f) |
                              (is_nan & 0x7fc00000u));
    }
    }
}

static inline double codes_dot(const float *a, const float *b, int64_t count) {
    codes_sums sums = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        codes_numbers of_a;
        codes_numbers of_b;
        memcpy(&of_a, a + i, sizeof of_a);
        memcpy(&of_b, b + i, sizeof of_b);
        sums +=
            __builtin_convertvector(of_a, codes_sums) * __builtin_convertvector(of_b, codes_sums);
    }
    double sum = 0;
    for (int lane = 0; lane < 8; ++lane) {
        sum += sums[lane];
    }
    for (; i < count; ++i) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

// ---- matrices -----------------------------------------------------------------------------------

typedef struct codes_matrix {
    berth_code code;
    const berth_tensor *weight; // [..., n, k], as codes lie
    const berth_tensor *zeros;  // like the scales; NULL: the zero point of the code
    berth_code_scales scales;
    int64_t row;   // where the matrix begins in the rows of `weight`
    int64_t group; // and in those of scales and zero points
    int64_t width; // k
} codes_matrix;

// What row n of the matrix has in one group of columns: codes, and what is taken off each.
typedef struct codes_run {
    const void *row; // codes from column 0 on
    float zero;
} codes_run;

static inline codes_run codes_run_of(const codes_matrix *self, int64_t n, int64_t group) {
    const int64_t row = self->group + n / self->scales.rows;
    return (codes_run){
        .row = berth_row(self->weight, self->row + n),
        .zero = self->zeros ? (float)((const uint8_t *)berth_row(self->zeros, row))[group]
                            : berth_code_zero(self->code),
    };
}

// Weights of columns [first, first + count) before they are scaled. An odd column of two codes to
// a byte is not where eight can be loaded.
static inline void codes_widen(const codes_matrix *self, const codes_run *run, int64_t first,
                               int64_t count, float *to) {
    int64_t i = 0;
    for (; first % 2 == 0 && i + 8 <= count; i += 8) {
        codes_numbers numbers;
        codes_load(self->code, run->row, first + i, &numbers);
        numbers -= run->zero;
        memcpy(to + i, &numbers, sizeof numbers);
    }
    for (; i < count; ++i) {
        to[i] = berth_code_value(self->code, run->row, first + i) - run->zero;
    }
}

static inline float codes_scale(const codes_matrix *self, int64_t n, int64_t group) {
    const berth_tensor *scales = self->scales.tensor;
    return berth_load_at(berth_row(scales, self->group + n / self->scales.rows), scales->dtype,
                         group);
}

// Numbers [k] of an input and what they are multiplied by: nothing, one scale, or one a group.
typedef struct codes_input {
    const float *numbers;
    const float *scales;
    int64_t scale_count;
    int64_t addend; // to the sum of a group, where a zero point of the input ends
} codes_input;

// The products of one group of columns, which add up exactly where the input's numbers are codes.
static inline double codes_multiply_run(const codes_matrix *self, const codes_run *run,
                                        const float *numbers, int64_t first, int64_t count) {
    float room[64];
    double sum = 0;
    for (int64_t i = 0; i < count; i += 64) {
        const int64_t some = count - i < 64 ? count - i : 64;
        codes_widen(self, run, first + i, some, room);
        sum += codes_dot(room, numbers + first + i, some);
    }
    return sum;
}

// Row n times the input: group by group, each with its scales.
static inline double codes_multiply(const codes_matrix *self, int64_t n, const codes_input *x) {
    double total = 0;
    for (int64_t first = 0; first < self->width; first += self->scales.columns) {
        const int64_t group = first / self->scales.columns;
        const int64_t rest = self->width - first;
        const int64_t count = rest < self->scales.columns ? rest : self->scales.columns;
        const codes_run run = codes_run_of(self, n, group);
        const double sum =
            (double)x->addend + codes_multiply_run(self, &run, x->numbers, first, count);
        const double scale = x->scale_count < 1   ? 1
                             : x->scale_count > 1 ? (double)x->scales[group]
                                                  : (double)x->scales[0];
        total += sum * scale * (double)codes_scale(self, n, group);
    }
    return total;
}

#endif
