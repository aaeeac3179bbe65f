// SPDX-License-Identifier: Apache-2.0
// The resident layout of a weight of linear, and how a weight gets into it.
//
// A weight [out, in] is cut into panels of 32 outputs, each of which lies in one piece, the columns
// in pairs (an odd one is padded by zeros, as is the last panel):
//
//   bf16   [in / 2][32 outputs][2]    f16, f32   [in / 2][2][32 outputs]
//
// Why: one row of x reads it front to back, as fast as memory gets (places.h); several rows read
// the same bytes; a vector of bf16 pairs is what the dot product takes, and a shift and a mask away
// from two vectors of floats. It is the same for every instruction set.
#ifndef BERTH_KERNELS_CPU_LINEAR_PANEL_H
#define BERTH_KERNELS_CPU_LINEAR_PANEL_H

#include <berth/types.h>

#include <cpu/transpose.h>
#include <tensor.h>

#define PANEL        32 // outputs
#define PACKED_PAIRS 64 // packed at a time

static inline int64_t at_most(int64_t value, int64_t limit) {
    return value < limit ? value : limit;
}

static inline int64_t pieces(int64_t count, int64_t of) {
    return (count + of - 1) / of;
}

// Bytes of a pair of columns of a panel.
static inline int64_t pair_bytes(berth_dtype weight) {
    return (int64_t)BERTH_DTYPE_BITS(weight) / 8 * 2 * PANEL;
}

static inline int64_t panel_bytes(int64_t in, berth_dtype weight) {
    return pieces(in, 2) * pair_bytes(weight);
}

// Rows and columns of the weight as they are stored, zeros around them.
typedef struct slab {
    float words[PANEL][2 * PACKED_PAIRS]; // of a 16-bit dtype a pair of elements each
} slab;

static inline void load_slab(slab *self, const berth_tensor *weight, int64_t output,
                             int64_t column) {
    const int64_t element = BERTH_DTYPE_BITS(weight->dtype) / 8;
    const int64_t rows = at_most(PANEL, weight->shape[0] - output);
    const int64_t columns = at_most(2 * PACKED_PAIRS, weight->shape[1] - column);
    memset(self, 0, sizeof *self);
    for (int64_t row = 0; row < rows; ++row) {
        memcpy(self->words[row], (const char *)berth_row(weight, output + row) + column * element,
               (size_t)(columns * element));
    }
}

// Columns of pairs become a column of first and one of second elements.
static inline void split_pairs(const uint32_t *from, uint16_t *to, int64_t pairs) {
    for (int64_t pair = 0; pair < pairs; ++pair) {
        for (int64_t output = 0; output < PANEL; ++output) {
            to[2 * pair * PANEL + output] = (uint16_t)from[pair * PANEL + output];
            to[(2 * pair + 1) * PANEL + output] = (uint16_t)(from[pair * PANEL + output] >> 16);
        }
    }
}

static inline void pack_slab(const slab *self, berth_dtype weight, int64_t pairs, char *to) {
    float *words = (float *)(void *)to;
    const int64_t width = 2 * PACKED_PAIRS;
    if (weight == BERTH_DTYPE_F32) {
        berth_transpose(self->words[0], width, PANEL, 2 * pairs, words);
    } else if (weight == BERTH_DTYPE_BF16) {
        berth_transpose(self->words[0], width, PANEL, pairs, words);
    } else {
        float columns[PACKED_PAIRS * PANEL];
        berth_transpose(self->words[0], width, PANEL, pairs, columns);
        split_pairs((const uint32_t *)(const void *)columns, (uint16_t *)(void *)to, pairs);
    }
}

// Packs rows of a weight as they are stored, to where the first of them belongs.
static inline void pack_panels(const berth_tensor *weight, char *to) {
    const int64_t pairs = pieces(weight->shape[1], 2);
    slab piece;
    for (int64_t output = 0; output < weight->shape[0]; output += PANEL) {
        for (int64_t pair = 0; pair < pairs; pair += PACKED_PAIRS) {
            const int64_t count = at_most(PACKED_PAIRS, pairs - pair);
            load_slab(&piece, weight, output, 2 * pair);
            pack_slab(&piece, weight->dtype, count, to);
            to += count * pair_bytes(weight->dtype);
        }
    }
}

#endif
