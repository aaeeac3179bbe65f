// SPDX-License-Identifier: Apache-2.0
// The tile of a convolution (convolution_tile.h) as products of matrices: 16 channels' pairs at
// once by up to 16 neighbours in a line of y, of which two lots go together. x has a line of 16
// words for every element of a channel's lines, so that neighbours are lines one behind the other;
// what is missing of the last line is zero. The weight lies as it does for pairs: those of a tap
// are as many lines apart as the kernel has taps.
//
// An output's sum goes over lines of channels, then over the taps that are not outside of x.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_MATRIX_H
#define BERTH_KERNELS_CPU_CONVOLUTION_MATRIX_H

#include <cpu/convolution_tile.h>
#include <cpu/linear_matrix.h>

// Neighbours: where the kernel begins at the first of them, in the first line of channels.
typedef struct conv_lot {
    const float *x;
    float *sums; // [rows][PANEL]
    int64_t rows;
} conv_lot;

// Two lots that meet the same taps; a second one without rows begins with the first.
typedef struct conv_lots {
    conv_lot of[2];
    int64_t half; // rows of the registers
} conv_lots;

// One tap with a line of channels, `at` floats from where the lots begin.
BERTH_INLINE void conv_add_line(const char *weight, int64_t step, const conv_lots *lots, int64_t at,
                                int halves) {
    const void *const x[] = {lots->of[0].x + at, lots->of[1].x + at};
    matrix_add((matrix_shape){MATRIX_BF16, halves}, weight, step, x);
}

// The same of pairs that are no whole line, and zeros.
BERTH_INLINE void conv_add_rest(const conv_tile *self, const char *weight, const conv_lots *lots,
                                int64_t at, int halves) {
    _Alignas(BERTH_LINE) char line[MATRIX_STEP];
    const int64_t pairs = self->pairs % MATRIX_WORDS;
    for (int64_t pair = 0; pair < pairs; ++pair) {
        memcpy(line + pair * MATRIX_PAIR, weight + pair * self->weight_bytes, MATRIX_PAIR);
    }
    memset(line + pairs * MATRIX_PAIR, 0, (size_t)((MATRIX_WORDS - pairs) * MATRIX_PAIR));
    conv_add_line(line, MATRIX_PAIR, lots, at, halves);
}

// Every tap with the line of channels from pair `pair` on.
BERTH_INLINE void conv_add_taps(const conv_tile *self, const conv_lots *lots, int64_t pair,
                                int halves) {
    const conv_tap *const end = self->taps + self->tap_count;
    const char *weight = self->weight + pair * self->weight_bytes;
    const char *next = self->next + pair / MATRIX_WORDS * (self->tap_count * self->next_step);
    for (const conv_tap *tap = self->taps; tap != end; ++tap, next += self->next_step) {
        const int64_t at = pair * self->x_floats + tap->x * MATRIX_WORDS;
        for (int64_t line = 0; line < self->next_step; line += BERTH_LINE) {
            BERTH_PREFETCH_FAR(next + line);
        }
        if (pair + MATRIX_WORDS <= self->pairs) {
            conv_add_line(weight + tap->weight, self->weight_bytes, lots, at, halves);
        } else {
            conv_add_rest(self, weight + tap->weight, lots, at, halves);
        }
    }
}

BERTH_INLINE void conv_multiply_lots(const conv_tile *self, const conv_lots *lots, int halves) {
    if (self->is_first) {
        berth_matrix_zero();
    }
    for (int second = 0; second < halves && !self->is_first; ++second) {
        matrix_take(lots->of[second].sums, lots->of[second].rows, lots->half, second);
    }
    for (int64_t pair = 0; pair < self->pairs; pair += MATRIX_WORDS) {
        conv_add_taps(self, lots, pair, halves);
    }
    for (int second = 0; second < halves; ++second) {
        matrix_keep(lots->of[second].sums, lots->of[second].rows, lots->half, second);
    }
}

// `self` knows the weight and the taps.
static void conv_matrix(const conv_tile *self, const conv_lots *lots) {
    if (lots->of[1].rows > 0) {
        conv_multiply_lots(self, lots, 2);
    } else {
        conv_multiply_lots(self, lots, 1);
    }
}

#endif
