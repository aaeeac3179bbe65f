// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a convolution whose patches overlap: neighbours in a line of y times one panel
// of the weight (linear_panel.h), whose columns are pairs of channels for each tap of the kernel.
// What a tap meets at neighbours of y are neighbours of x, which are read where they lie.
//
// Every output is one sum, over the pairs of channels and then over the taps that are not outside
// of x, in their order: it depends on nothing but the position.
#ifndef BERTH_KERNELS_CPU_CONVOLUTION_TILE_H
#define BERTH_KERNELS_CPU_CONVOLUTION_TILE_H

#include <cpu/linear_tile.h>

#define CONV_X_AHEAD 16 // floats of every channel, which neighbours further on meet

typedef struct conv_tap {
    int64_t x;      // floats from where the kernel begins to what the tap meets
    int64_t weight; // bytes from the first tap to this one
} conv_tap;

typedef struct conv_tile {
    const char *weight;   // a panel, at the first pair of channels
    int64_t weight_bytes; // of a pair of channels
    const float *x;       // where the kernel begins at the first row, in the same pair
    int64_t x_floats;     // of a channel; for DOT_BF16 of a pair
    int64_t pairs;
    const conv_tap *taps; // of all pairs; for matrices of one
    int64_t tap_count;
    float *sums;      // [rows][PANEL]
    const char *next; // weight that is wanted later: next_step bytes come nearer with each tap
    int64_t next_step;
    int64_t is_first; // the sums begin at zero, otherwise where they are
} conv_tile;

typedef void (*conv_tile_fn)(const conv_tile *self);

BERTH_INLINE void conv_add(const conv_tile *self, tile_shape shape, tile_sums sums) {
    const int is_pair = shape.product == DOT_BF16;
    const conv_tap *const end = self->taps + self->tap_count;
    const char *const weight = self->weight;
    const float *const first = self->x;
    const float *const second = self->x + self->x_floats;
    const char *next = self->next;
    for (const conv_tap *tap = self->taps; tap != end; ++tap) {
        BERTH_PREFETCH_FAR(next);
        next += self->next_step;
        BERTH_PREFETCH(first + tap->x + CONV_X_AHEAD);
        add_column(shape, sums, weight + tap->weight, 0, first + tap->x);
        if (!is_pair) {
            BERTH_PREFETCH(second + tap->x + CONV_X_AHEAD);
            add_column(shape, sums, weight + tap->weight, 1, second + tap->x);
        }
    }
}

BERTH_INLINE void conv_multiply(const conv_tile *self, tile_shape shape) {
    tile_sums sums;
    take_sums(self->sums, self->is_first, shape, sums);
    conv_add(self, shape, sums);
    keep_sums(self->sums, shape, sums);
}

#define CONV_TILE(product, rows)                                                                   \
    static void conv_##product##_##rows(const conv_tile *self) {                                   \
        for (int first = 0; first < PANEL / BERTH_LANES; first += 2) {                             \
            conv_multiply(self, (tile_shape){product, rows, first, 2});                            \
        }                                                                                          \
    }
#define CONV_TILE_F32(rows) CONV_TILE(TIMES_F32, rows)
#define CONV_TILE_DOT(rows) CONV_TILE(DOT_BF16, rows)
BERTH_TILE_HEIGHTS(CONV_TILE_F32)
BERTH_TILE_HEIGHTS(CONV_TILE_DOT)

#define CONV_ROW_F32(rows) [rows] = conv_TIMES_F32_##rows,
#define CONV_ROW_DOT(rows) [rows] = conv_DOT_BF16_##rows,

// Floats, and pairs of bf16.
static const conv_tile_fn conv_tiles[2][BERTH_TILE_ROWS + 1] = {
    {BERTH_TILE_HEIGHTS(CONV_ROW_F32)},
    {BERTH_TILE_HEIGHTS(CONV_ROW_DOT)},
};

#endif
