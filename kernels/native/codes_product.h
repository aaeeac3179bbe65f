// SPDX-License-Identifier: Apache-2.0
// What the references of ops over quantized weights multiply: a matrix of codes, alone or one of a
// stack, and a row of numbers.
#ifndef BERTH_KERNELS_NATIVE_CODES_PRODUCT_H
#define BERTH_KERNELS_NATIVE_CODES_PRODUCT_H

#include <codes.h>

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

// A weight before it is scaled.
static inline float codes_number(const codes_matrix *self, const codes_run *run, int64_t k) {
    return berth_code_value(self->code, run->row, k) - run->zero;
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

// Row n times the input: sums within a group, which are exact where the input's numbers are codes,
// then the groups with their scales.
static inline double codes_multiply(const codes_matrix *self, int64_t n, const codes_input *x) {
    double total = 0;
    for (int64_t first = 0; first < self->width; first += self->scales.columns) {
        const int64_t group = first / self->scales.columns;
        const int64_t rest = self->width - first;
        const int64_t count = rest < self->scales.columns ? rest : self->scales.columns;
        const codes_run run = codes_run_of(self, n, group);
        double sum = (double)x->addend;
        for (int64_t k = first; k < first + count; ++k) {
            sum += (double)x->numbers[k] * (double)codes_number(self, &run, k);
        }
        const double scale = x->scale_count < 1   ? 1
                             : x->scale_count > 1 ? (double)x->scales[group]
                                                  : (double)x->scales[0];
        total += sum * scale * (double)codes_scale(self, n, group);
    }
    return total;
}

#endif
