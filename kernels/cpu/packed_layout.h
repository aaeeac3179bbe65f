// SPDX-License-Identifier: Apache-2.0
// The resident layout of a weight of codes, and how a weight gets into it: for packed_linear and
// scaled_linear.
//
// Codes [out, in] are cut into panels of 32 outputs, an even number of them. Two of them lie in one
// piece, side by side, their columns in steps (what is missing of the last step and panel is code
// 0):
//
//   u4, e2m1              [in / 8][64 outputs] words: column 2p at bit 4p, column 2p + 1 at bit
//                         16 + 4p, so that a shift brings a pair to where two bf16 have it; of e2m1
//                         the codes are their numbers' places in ascending order
//   u8, e4m3, i8 as u8    [in / 2][64 outputs][2]     of i8 128 higher
//   i8 by i8              [2][in / 4][32 outputs][4]  128 higher: unsigned, as dot_bytes wants one;
//                         one panel behind the other, as linear has them
//
// Behind two panels of e4m3 stands a float for each output: NaN if one of its codes is, else 0. A
// product that adds it need not look at every code.
//
// Scales and zero points lie beside them as [panels / 2][groups][64 outputs]. One row of x reads
// all of it front to back. Why side by side: two panels, or two groups, that are read in turns are
// more streams than the processor fetches ahead (Zen 5, u4, one thread: 0.72 of the reading rate
// against 0.97). It is the same for every instruction set.
#ifndef BERTH_KERNELS_CPU_PACKED_LAYOUT_H
#define BERTH_KERNELS_CPU_PACKED_LAYOUT_H

#include <math.h>

#include <codes.h>
#include <cpu/linear_panel.h>
#include <cpu/simd.h>

#define PACKED_WIDTH 64 // outputs of two panels, which are multiplied together

// What codes are to the arithmetic.
typedef enum packed_kind {
    PACKED_U4,
    PACKED_U8,
    PACKED_E2M1,
    PACKED_E4M3,
    PACKED_I8, // by i8
} packed_kind;

static inline packed_kind packed_kind_of(berth_code code) {
    return code == BERTH_CODE_U4     ? PACKED_U4
           : code == BERTH_CODE_E2M1 ? PACKED_E2M1
           : code == BERTH_CODE_E4M3 ? PACKED_E4M3
                                     : PACKED_U8;
}

BERTH_INLINE int packed_is_half(packed_kind kind) {
    return kind == PACKED_U4 || kind == PACKED_E2M1;
}

// Columns of a step, and bytes of it for each output.
BERTH_INLINE int packed_columns(packed_kind kind) {
    return packed_is_half(kind) ? 8 : kind == PACKED_I8 ? 4 : 2;
}

BERTH_INLINE int packed_bytes_of(packed_kind kind) {
    return kind == PACKED_I8 || packed_is_half(kind) ? 4 : 2;
}

// Outputs of a step.
BERTH_INLINE int packed_beside(packed_kind kind) {
    return kind == PACKED_I8 ? PANEL : PACKED_WIDTH;
}

// Bytes of two panels' codes, and with what stands behind them.
static inline int64_t packed_codes_bytes(packed_kind kind, int64_t columns) {
    return pieces(columns, packed_columns(kind)) * packed_bytes_of(kind) * PACKED_WIDTH;
}

static inline int64_t packed_panels_bytes(packed_kind kind, int64_t columns) {
    const int64_t marks = kind == PACKED_E4M3 ? PACKED_WIDTH * (int64_t)sizeof(float) : 0;
    return packed_codes_bytes(kind, columns) + marks;
}

// ---- codes --------------------------------------------------------------------------------------

#define PACKED_SLAB 64 // words of a row at a time

// Rows of a weight as they are stored, any of them, or of its scales or zero points.
typedef struct packed_source {
    const berth_tensor *rows;
    packed_kind kind;
    int64_t outputs; // of all
    int64_t columns;
    uint32_t flip;   // bits of every word of codes that change
    int64_t repeats; // outputs for each row of scales or zero points; 0: codes
} packed_source;

// Some outputs of a step, of one panel, of which the first is that row of the source.
typedef struct packed_outputs {
    int64_t row;
    int64_t first;
    int64_t end; // beyond the source's rows: code 0
} packed_outputs;

static inline void packed_load(const packed_source *from, const packed_outputs *at, int64_t word,
                               float words[PANEL][PACKED_SLAB]) {
    const int64_t bytes = from->rows->shape[1];
    const int64_t rows = at_most(at->end - at->first, from->rows->shape[0] - at->row);
    const int64_t count = at_most((int64_t)sizeof words[0], bytes - word * 4);
    memset(words, 0, PANEL * sizeof words[0]);
    for (int64_t row = 0; row < rows; ++row) {
        memcpy(words[row], (const char *)berth_row(from->rows, at->row + row) + word * 4,
               (size_t)count);
    }
}

// Four nibbles, one in each byte, one behind the other.
static inline uint32_t packed_join(uint32_t nibbles) {
    const uint32_t twos = (nibbles | nibbles >> 4) & 0x00ff00ffu;
    return (twos | twos >> 8) & 0xffffu;
}

// Codes of e2m1 in ascending order of their numbers: those with a sign from the largest on.
static inline uint32_t packed_ascending(uint32_t codes) {
    const uint32_t signs = codes & 0x88888888u;
    return codes ^ (signs - (signs >> 3)) ^ 0x88888888u;
}

// Word `at` of the outputs to its steps.
static inline void packed_place(const packed_source *from, const uint32_t *words, int64_t at,
                                const packed_outputs *to, uint8_t *codes) {
    const int64_t beside = packed_beside(from->kind);
    const int64_t bytes = packed_bytes_of(from->kind); // of a word's four
    const int64_t of_word = 4 / bytes;
    const int64_t steps = pieces(from->columns, packed_columns(from->kind));
    const int64_t end = at_most((at + 1) * of_word, steps);
    for (int64_t output = to->first; output < to->end; ++output) {
        uint32_t word = words[output - to->first] ^ from->flip;
        word = from->kind == PACKED_E2M1 ? packed_ascending(word) : word;
        if (packed_is_half(from->kind)) {
            word = packed_join(word & 0x0f0f0f0fu) | packed_join(word >> 4 & 0x0f0f0f0fu) << 16;
        }
        for (int64_t step = at * of_word; step < end; ++step) {
            memcpy(codes + (step * beside + output) * bytes,
                   (const char *)&word + (step - at * of_word) * bytes, (size_t)bytes);
        }
    }
}

// Of four codes of e4m3 of each output, adds bits to `out_any` for those that are NaN.
static inline void packed_find_nan(const uint32_t *words, uint32_t out_any[PANEL]) {
    for (int output = 0; output < PANEL; ++output) {
        out_any[output] |= ((words[output] & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
    }
}

static inline void packed_put_marks(const packed_source *from, const packed_outputs *at,
                                    const uint32_t any[PANEL], uint8_t *codes) {
    uint8_t *marks = codes + packed_codes_bytes(from->kind, from->columns);
    for (int64_t output = at->first; output < at->end; ++output) {
        const float mark = any[output - at->first] ? NAN : 0;
        memcpy(marks + output * (int64_t)sizeof mark, &mark, sizeof mark);
    }
}

static inline void packed_put_some(const packed_source *from, const packed_outputs *at,
                                   uint8_t *codes) {
    const int64_t words = pieces(from->rows->shape[1], 4);
    const int is_marked = from->kind == PACKED_E4M3;
    uint32_t any[PANEL] = {0};
    float rows[PANEL][PACKED_SLAB];
    float columns[PACKED_SLAB][PANEL];
    for (int64_t word = 0; word < words; word += PACKED_SLAB) {
        const int64_t count = at_most(PACKED_SLAB, words - word);
        packed_load(from, at, word, rows);
        berth_transpose(rows[0], PACKED_SLAB, PANEL, count, columns[0]);
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t *column = (const uint32_t *)(const void *)columns[i];
            packed_place(from, column, word + i, at, codes);
            if (is_marked) {
                packed_find_nan(column, any);
            }
        }
    }
    if (is_marked) {
        packed_put_marks(from, at, any, codes);
    }
}

// The first output behind those that end at `end`: all of two panels, where those are the last.
static inline int64_t packed_padded(const packed_source *from, int64_t end) {
    return end == from->outputs ? pieces(end, PACKED_WIDTH) * PACKED_WIDTH : end;
}

// To where row `first`, the first of them, belongs; other outputs of a panel stay as they are.
static inline void packed_put_codes(const packed_source *from, int64_t first, uint8_t *to) {
    const int64_t beside = packed_beside(from->kind);
    const int64_t bytes =
        packed_panels_bytes(from->kind, from->columns) / (PACKED_WIDTH / beside); // of all steps
    const int64_t end = packed_padded(from, first + from->rows->shape[0]);
    for (int64_t output = first, next = 0; output < end; output = next) {
        const int64_t place = output / beside * beside;
        next = at_most((output / PANEL + 1) * PANEL, end);
        const packed_outputs at = {output - first, output - place, next - place};
        packed_put_some(from, &at, to + place / beside * bytes);
    }
}

static inline uint64_t packed_bytes_for(packed_kind kind, int64_t outputs, int64_t columns) {
    return (uint64_t)(pieces(outputs, PACKED_WIDTH) * packed_panels_bytes(kind, columns));
}

// ---- scales and zero points ---------------------------------------------------------------------

// Of groups of `rows` outputs, of which there are `outputs`.
static inline uint64_t packed_scale_bytes(const berth_value_type *scales, int64_t outputs) {
    const int64_t groups = scales->dims[scales->ndim - 1].b;
    return (uint64_t)(pieces(outputs, PACKED_WIDTH) * PACKED_WIDTH * groups) *
           BERTH_DTYPE_BITS(scales->dtype) / 8;
}

// What an output without a row gets is zero.
static inline void packed_put_scale(const char *row, int64_t groups, int64_t element, char *to) {
    for (int64_t i = 0; i < groups; ++i) {
        if (row) {
            memcpy(to + i * PACKED_WIDTH * element, row + i * element, (size_t)element);
        } else {
            memset(to + i * PACKED_WIDTH * element, 0, (size_t)element);
        }
    }
}

static inline void packed_put_scales(const packed_source *from, int64_t first, uint8_t *to) {
    const int64_t element = BERTH_DTYPE_BITS(from->rows->dtype) / 8;
    const int64_t groups = from->rows->shape[1];
    const int64_t end = at_most((first + from->rows->shape[0]) * from->repeats, from->outputs);
    const int64_t padded = packed_padded(from, end);
    for (int64_t output = first * from->repeats; output < padded; ++output) {
        const int64_t place = output / PACKED_WIDTH * groups * PACKED_WIDTH + output % PACKED_WIDTH;
        const char *row =
            output < end ? berth_row(from->rows, output / from->repeats - first) : NULL;
        packed_put_scale(row, groups, element, (char *)to + place * element);
    }
}

// Rows from `first` on to where they belong.
static inline berth_status packed_put(const packed_source *from, int64_t first, uint8_t *to) {
    if (from->repeats > 0) {
        packed_put_scales(from, first, to);
    } else {
        packed_put_codes(from, first, to);
    }
    return BERTH_OK;
}

#endif
