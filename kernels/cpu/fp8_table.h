// SPDX-License-Identifier: Apache-2.0
// Codes of f8_e4m3fn of bf16 by a factor, 64 at a time out of a table, for machines that
// berth_vec_has_pick_bytes. A power of two changes neither how a product is rounded nor how its
// code is, as long as both are normal numbers: so a table has what the seven bits behind x's first
// one make of the code, and x's exponent is added. The same bits as the arithmetic of fp8_codes.h.
#ifndef BERTH_KERNELS_CPU_FP8_TABLE_H
#define BERTH_KERNELS_CPU_FP8_TABLE_H

#include <cpu/fp8_codes.h>

#define VEC_F8_VECTORS 8 // of pairs, that are looked at together

typedef uint8_t vec_f8_bytes __attribute__((vector_size(BERTH_LANES * 4)));

typedef struct vec_f8_table {
    berth_vec_bits codes[2]; // of 128 bytes, less what the exponent's neighbours add
    uint16_t least;          // magnitudes as bf16, from here ...
    uint16_t most;           // ... to here, are what the table is for
} vec_f8_table;

// Whether there is a table of that factor; it is worth being made for a thousand numbers.
BERTH_INLINE int vec_f8_table_of(float factor, vec_f8_table *out) {
    if (!berth_vec_has_pick_bytes() || !(factor > 0x1p-60f && factor < 0x1p60f)) {
        return 0;
    }
    const uint32_t bits = berth_bits_of_float(factor);
    const berth_vec near = berth_vec_of(berth_float_of_bits((bits & 0x7fffffu) | 0x3f800000u));
    const uint32_t power = (bits >> 23) - 127; // factor is near · 2^power
    BERTH_UNROLL
    for (int half = 0; half < 2; ++half) {
        vec_f8_bytes added;
        berth_vec_bits words[4];
        for (int k = 0; k < 4; ++k) {
            berth_vec_bits x;
            for (int lane = 0; lane < BERTH_LANES; ++lane) {
                const uint32_t first = (uint32_t)((4 * half + k) * BERTH_LANES + lane);
                x[lane] = 0x3f800000u | first << 16;
                added[k * BERTH_LANES + lane] = (uint8_t)(first >> 4);
            }
            words[k] = vec_f8_words((berth_vec)x * near);
        }
        const vec_f8_bytes codes = (vec_f8_bytes)vec_pack_f8(words);
        out->codes[half] = (berth_vec_bits)(codes + (uint8_t)(8 * (power - 127)) - added);
    }
    // A product below 2^-6 may have a code of fewer bits; 456 is one that still becomes 448.
    out->least = (uint16_t)((berth_bits_of_float(0x1p-6f / factor) >> 16) + 1);
    out->most = (uint16_t)(berth_bits_of_float(456.0f / factor) >> 16);
    return 1;
}

// Whether the table is for all numbers of some vectors of pairs.
BERTH_INLINE int vec_f8_table_has(const vec_f8_table *table, const uint16_t *x) {
    berth_vec_words outside = {0}; // the first bits of words
    BERTH_UNROLL
    for (int k = 0; k < VEC_F8_VECTORS; ++k) {
        const berth_vec pairs = berth_vec_load(x + k * 2 * BERTH_LANES);
        const berth_vec_words sizes = (berth_vec_words)pairs & 0x7fff;
        outside |= (sizes - table->least) | (table->most - sizes);
    }
    uint64_t parts[sizeof outside / sizeof(uint64_t)];
    uint64_t any = 0;
    memcpy(parts, &outside, sizeof parts);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
        any |= parts[i];
    }
    return (any & UINT64_C(0x8000800080008000)) == 0;
}

// Codes of the numbers of two vectors of pairs. Eight times the exponent, in the lowest byte of the
// words that are shifted, has the first bits of what is looked up behind it, and is too large by
// multiples of 128.
BERTH_INLINE berth_vec vec_f8_table_codes(const vec_f8_table *table, const uint16_t *x) {
    vec_f8_bytes even;
    for (int i = 0; i < 4 * BERTH_LANES; ++i) {
        even[i] = (uint8_t)(2 * i);
    }
    const berth_vec_bits low = (berth_vec_bits)even;
    const berth_vec_bits high = (berth_vec_bits)(even + 1);
    const berth_vec_bits a = (berth_vec_bits)berth_vec_load(x);
    const berth_vec_bits b = (berth_vec_bits)berth_vec_load(x + 2 * BERTH_LANES);
    const berth_vec_bits powers = berth_vec_pick_bytes(
        (berth_vec_bits)((berth_vec_words)a >> 4), (berth_vec_bits)((berth_vec_words)b >> 4), low);
    const berth_vec_bits found =
        berth_vec_pick_bytes(table->codes[0], table->codes[1], berth_vec_pick_bytes(a, b, low));
    const berth_vec_bits sum = (berth_vec_bits)((vec_f8_bytes)found + (vec_f8_bytes)powers);
    const berth_vec_bits signs = berth_vec_pick_bytes(a, b, high);
    return (berth_vec)((sum & 0x7f7f7f7fu) | (signs & 0x80808080u));
}

#endif
