// SPDX-License-Identifier: Apache-2.0
// The resident layout of a weight of packed_linear, and the arithmetic of a few columns of it.
//
// Codes [out, in] are cut into panels of 64 outputs, each of which lies in one piece, the columns
// in pairs (an odd one is padded by code 0, as is the last panel):
//
//   two codes to a byte   [in / 2][64 outputs]      the even column in the lower half
//   one                   [in / 2][2][64 outputs]   i8 as u8, 128 higher
//
// Scales and zero points lie beside them as [panels][groups][64 outputs]. One row of x reads all of
// it front to back.
//
// A chunk of the columns, of one group, is multiplied by the numbers that the codes are for, less
// the zero point; scales come when the group is complete. A few rows widen codes in registers; many
// widen them once, to panels of linear, and have the same sums in the same order.
#ifndef BERTH_KERNELS_CPU_PACKED_TILE_H
#define BERTH_KERNELS_CPU_PACKED_TILE_H

#include <codes.h>
#include <cpu/linear_tile.h>

#define PACKED_WIDTH 64 // outputs of a panel
#define PACKED_CHUNK 32 // pairs of columns at a time
#define PACKED_FEW   4  // rows

// What codes are to the arithmetic.
typedef enum packed_kind {
    PACKED_U4,
    PACKED_U8,
    PACKED_E2M1,
    PACKED_E4M3,
    PACKED_KINDS
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

// Bytes of a pair of columns.
BERTH_INLINE int64_t packed_pair(packed_kind kind) {
    return packed_is_half(kind) ? PACKED_WIDTH : 2 * PACKED_WIDTH;
}

// What the numbers below are to be multiplied by: floats are widened as f16, whose exponents begin
// lower.
static inline float packed_factor(packed_kind kind) {
    return kind == PACKED_E2M1 ? 0x1p14f : kind == PACKED_E4M3 ? 0x1p8f : 1.0f;
}

// A float with this exponent is a whole number, its lowest bits: 2^23 more than a code there.
#define PACKED_WHOLE 0x1p23f

// Columns of one group of a panel.
typedef struct packed_chunk {
    const uint8_t *codes; // at the first pair
    const float *zeros;   // [PACKED_WIDTH], PACKED_WHOLE more than the zero points
    const float *x;       // [2 * pairs][rows]
    float *sums;          // [PACKED_WIDTH / PANEL][rows][PANEL]
    int64_t pairs;
    int64_t is_first; // the sums begin at zero, otherwise where they are
} packed_chunk;

// ---- numbers ------------------------------------------------------------------------------------

BERTH_INLINE berth_vec packed_as_f16(berth_vec_halves halves) {
    return berth_vec_load_f16((const uint16_t *)&halves);
}

BERTH_INLINE berth_vec packed_e2m1(berth_vec_halves code) {
    return packed_as_f16((code & 7) << 9 | (code & 8) << 12);
}

BERTH_INLINE berth_vec packed_e4m3(berth_vec_halves code) {
    const berth_vec_halves magnitude = code & 0x7f;
    const berth_vec_halves is_nan = (berth_vec_halves)(magnitude == 0x7f);
    return packed_as_f16(magnitude << 7 | (code & 0x80) << 8 | (is_nan & 0x7e00));
}

// Vector `index` of column `second` of a pair.
BERTH_INLINE berth_vec packed_at(packed_kind kind, const uint8_t *pair, int second, int index,
                                 berth_vec zeros) {
    const int is_half = packed_is_half(kind);
    berth_vec_bytes bytes;
    memcpy(&bytes, pair + (is_half ? 0 : second * PACKED_WIDTH) + index * BERTH_LANES,
           sizeof bytes);
    if (kind == PACKED_E2M1 || kind == PACKED_E4M3) {
        const berth_vec_halves halves = __builtin_convertvector(bytes, berth_vec_halves);
        return kind == PACKED_E4M3 ? packed_e4m3(halves)
                                   : packed_e2m1(second ? halves >> 4 : halves);
    }
    const berth_vec_bits wide = berth_vec_widen_twice(bytes);
    const berth_vec_bits code = !is_half ? wide : second ? wide >> 4 : wide & 15u;
    return (berth_vec)(code | (berth_vec_bits)berth_vec_of(PACKED_WHOLE)) - zeros;
}

// ---- a few rows ---------------------------------------------------------------------------------

// What is compiled for: so many rows by vectors [first, first + vectors) of the panel.
typedef struct packed_shape {
    packed_kind kind;
    int rows;
    int first;
    int vectors;
} packed_shape;

#define PACKED_VECTORS 8 // at most

typedef berth_vec packed_sums[PACKED_FEW][PACKED_VECTORS];

BERTH_INLINE float *packed_sum_at(float *sums, packed_shape shape, int row, int i) {
    const int output = (shape.first + i) * BERTH_LANES;
    return sums + (output / PANEL * shape.rows + row) * PANEL + output % PANEL;
}

BERTH_INLINE void packed_add_column(packed_shape shape, packed_sums sums, const packed_chunk *of,
                                    int64_t pair, int second) {
    const uint8_t *codes = of->codes + pair * packed_pair(shape.kind);
    const float *x = of->x + (2 * pair + second) * shape.rows;
    berth_vec weights[PACKED_VECTORS];
    BERTH_UNROLL
    for (int i = 0; i < shape.vectors; ++i) {
        const int index = shape.first + i;
        weights[i] = packed_at(shape.kind, codes, second, index,
                               berth_vec_load(of->zeros + index * BERTH_LANES));
    }
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        const berth_vec value = berth_vec_of(x[row]);
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            sums[row][i] = berth_vec_fma(weights[i], value, sums[row][i]);
        }
    }
}

BERTH_INLINE void packed_multiply(packed_shape shape, const packed_chunk *all) {
    const packed_chunk of = *all;
    packed_sums sums;
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            sums[row][i] = of.is_first ? berth_vec_of(0)
                                       : berth_vec_load(packed_sum_at(of.sums, shape, row, i));
        }
    }
    for (int64_t pair = 0; pair < of.pairs; ++pair) {
        packed_add_column(shape, sums, &of, pair, 0);
        packed_add_column(shape, sums, &of, pair, 1);
    }
    BERTH_UNROLL
    for (int row = 0; row < shape.rows; ++row) {
        BERTH_UNROLL
        for (int i = 0; i < shape.vectors; ++i) {
            berth_vec_store(packed_sum_at(of.sums, shape, row, i), sums[row][i]);
        }
    }
}

// Eight vectors of sums: enough to be added at once, and not too many for any set's registers.
#define PACKED_TILE(kind, rows)                                                                    \
    static void kind##_##rows(const packed_chunk *of) {                                            \
        enum {                                                                                     \
            ALL = PACKED_WIDTH / BERTH_LANES,                                                      \
            FIT = (rows) == 1   ? 8                                                                \
                  : (rows) == 2 ? 4                                                                \
                                : 2,                                                               \
            VECTORS = FIT < ALL ? FIT : ALL                                                        \
        };                                                                                         \
        for (int first = 0; first < ALL; first += VECTORS) {                                       \
            packed_multiply((packed_shape){kind, rows, first, VECTORS}, of);                       \
        }                                                                                          \
    }
#define PACKED_TILES(kind)                                                                         \
    PACKED_TILE(kind, 1) PACKED_TILE(kind, 2) PACKED_TILE(kind, 3) PACKED_TILE(kind, 4)
PACKED_TILES(PACKED_U4)
PACKED_TILES(PACKED_U8)
PACKED_TILES(PACKED_E2M1)
PACKED_TILES(PACKED_E4M3)

#define PACKED_ROW(kind) [kind] = {NULL, kind##_1, kind##_2, kind##_3, kind##_4}

static void (*const packed_few[PACKED_KINDS][PACKED_FEW + 1])(const packed_chunk *of) = {
    PACKED_ROW(PACKED_U4),
    PACKED_ROW(PACKED_U8),
    PACKED_ROW(PACKED_E2M1),
    PACKED_ROW(PACKED_E4M3),
};

// ---- many rows ----------------------------------------------------------------------------------

#define PACKED_WIDENED ((int64_t)2 * PACKED_CHUNK * PACKED_WIDTH) // floats of a widened chunk

BERTH_INLINE void packed_widen_as(packed_kind kind, const packed_chunk *of, float *to) {
    for (int64_t pair = 0; pair < of->pairs; ++pair) {
        const uint8_t *codes = of->codes + pair * packed_pair(kind);
        for (int output = 0; output < PACKED_WIDTH; output += BERTH_LANES) {
            const berth_vec zeros = berth_vec_load(of->zeros + output);
            float *column = to + (output / PANEL * of->pairs + pair) * 2 * PANEL + output % PANEL;
            const int index = output / BERTH_LANES;
            berth_vec_store(column, packed_at(kind, codes, 0, index, zeros));
            berth_vec_store(column + PANEL, packed_at(kind, codes, 1, index, zeros));
        }
    }
}

static void packed_widen(packed_kind kind, const packed_chunk *of, float *to) {
    if (kind == PACKED_U4) {
        packed_widen_as(PACKED_U4, of, to);
    } else if (kind == PACKED_U8) {
        packed_widen_as(PACKED_U8, of, to);
    } else if (kind == PACKED_E2M1) {
        packed_widen_as(PACKED_E2M1, of, to);
    } else {
        packed_widen_as(PACKED_E4M3, of, to);
    }
}

#endif
