// SPDX-License-Identifier: Apache-2.0
// Codes of two panels as panels that rows are multiplied by in any number (packed_rows.h): floats
// and pairs of bf16 as linear has them, or of four bits the bytes that DOT_WORDS takes.
#ifndef BERTH_KERNELS_CPU_PACKED_WIDEN_H
#define BERTH_KERNELS_CPU_PACKED_WIDEN_H

#include <cpu/packed_job.h>

#define PACKED_WIDENED ((int64_t)PACKED_CHUNK * PACKED_WIDTH) // floats of a widened chunk

// A word of a step to both panels. As pairs they are not in order yet (packed_turn).
BERTH_INLINE void packed_widen_word(packed_shape all, const packed_chunk *of, berth_span at,
                                    const float *zeros, float *const to[2]) {
    const int64_t step = at.first;
    const int word = (int)at.end;
    packed_vectors weights;
    if (all.product == DOT_BF16) {
        packed_pairs(all, of, step, word, weights);
    } else if (all.product == DOT_WORDS) {
        BERTH_UNROLL
        for (int i = 0; i < PACKED_VECTORS; ++i) {
            weights[i] = packed_words_of_two(all.kind, packed_at(all.kind, of, step, i), word);
        }
    } else {
        BERTH_UNROLL
        for (int i = 0; i < PACKED_VECTORS; ++i) {
            weights[i] = packed_number(all.kind, packed_at(all.kind, of, step, i), word,
                                       berth_vec_load(zeros + i * BERTH_LANES));
        }
    }
    BERTH_UNROLL
    for (int i = 0; i < PACKED_VECTORS; ++i) {
        berth_vec_store(to[i * BERTH_LANES / PANEL] + i * BERTH_LANES % PANEL, weights[i]);
    }
}

// Words of a step.
BERTH_INLINE int packed_words(packed_shape all) {
    return packed_columns(all.kind) / (all.product == DOT_BF16    ? 2
                                       : all.product == DOT_WORDS ? 4
                                                                  : 1);
}

// A step to where the panels' words at it are, which then are those of the next one.
BERTH_INLINE void packed_widen_step(packed_shape all, const packed_chunk *of, int64_t step,
                                    const float *zeros, float *to[2]) {
    packed_prefetch(all, of, step);
    BERTH_UNROLL
    for (int word = 0; word < packed_words(all); ++word) {
        packed_widen_word(all, of, (berth_span){step, word}, zeros, to);
        to[0] += PANEL;
        to[1] += PANEL;
    }
}

// To panels of linear, one behind the other.
BERTH_INLINE void packed_widen_as(packed_kind kind, int product, const packed_chunk *all,
                                  const float *zeros, float *to) {
    const packed_shape shape = {kind, product, 0, 0, PACKED_VECTORS};
    uint8_t table[PACKED_TABLE]; // no store changes it, for all that the compiler knows
    packed_chunk of = *all;
    memcpy(table, all->table, sizeof table);
    of.table = table;
    float *panels[2] = {to, to + of.steps * packed_words(shape) * PANEL};
    for (int64_t step = 0; step < of.steps; ++step) {
        packed_widen_step(shape, &of, step, zeros, panels);
    }
}

// `zeros`: [PACKED_WIDTH], as packed_zeros has them.
static void packed_widen_floats(packed_kind kind, const packed_chunk *of, const float *zeros,
                                float *to) {
    if (kind == PACKED_U4) {
        packed_widen_as(PACKED_U4, TIMES_F32, of, zeros, to);
    } else if (kind == PACKED_U8) {
        packed_widen_as(PACKED_U8, TIMES_F32, of, zeros, to);
    } else if (kind == PACKED_E2M1) {
        packed_widen_as(PACKED_E2M1, TIMES_F32, of, zeros, to);
    } else {
        packed_widen_as(PACKED_E4M3, TIMES_F32, of, zeros, to);
    }
}

static void packed_widen_pairs(packed_kind kind, const packed_chunk *of, const float *zeros,
                               float *to) {
    if (kind == PACKED_U4) {
        packed_widen_as(PACKED_U4, DOT_BF16, of, zeros, to);
    } else if (kind == PACKED_U8) {
        packed_widen_as(PACKED_U8, DOT_BF16, of, zeros, to);
    } else {
        packed_widen_as(PACKED_E4M3, DOT_BF16, of, zeros, to);
    }
}

static inline void packed_widen(const packed *self, const packed_chunk *chunk, const float *zeros,
                                float *to) {
    if (self->product == DOT_WORDS && self->kind == PACKED_E2M1) {
        packed_widen_as(PACKED_E2M1, DOT_WORDS, chunk, zeros, to);
    } else if (self->product == DOT_WORDS) {
        packed_widen_as(PACKED_U4, DOT_WORDS, chunk, zeros, to);
    } else if (is_paired(self->product)) {
        packed_widen_pairs(self->kind, chunk, zeros, to);
    } else {
        packed_widen_floats(self->kind, chunk, zeros, to);
    }
}

// Columns of what is a pair to the tiles.
static inline int64_t packed_pair_columns(int product) {
    return product == DOT_WORDS ? 4 : 2;
}

// Steps that are widened at a time: as many as a chunk has room for.
static inline int64_t packed_widened_steps(const packed *self) {
    const int is_half = self->product == DOT_WORDS || is_paired(self->product);
    return PACKED_CHUNK * (1 + is_half) / packed_columns(self->kind);
}

#endif
