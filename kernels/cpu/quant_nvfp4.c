// SPDX-License-Identifier: Apache-2.0
// quant_nvfp4. Of as many groups as a vector has lanes first the largest magnitudes, then their
// scales as the reference makes them, then the codes. The operations are the reference's, so codes
// and scales are its bits.
#include <cpu/cpu.h>
#include <cpu/fetch.h>
#include <cpu/fp8_codes.h>
#include <cpu/magnitude.h>
#include <cpu/simd.h>

#include <codes.h>
#include <nvfp4.h>

enum { X, GLOBAL_SCALE, SCALE_DIVISOR };
enum { Q, SCALE };

#define GROUP   BERTH_NVFP4_GROUP
#define VECTORS (GROUP / BERTH_LANES)            // of a group
#define LOT     ((int64_t)(GROUP * BERTH_LANES)) // columns of as many groups as a vector has lanes
#define FOUR    ((int64_t)(4 * BERTH_LANES))

// Columns of a row: as many as are worked at together.
typedef struct piece {
    const void *row;
    int64_t width;
    berth_ahead ahead; // from the row to what is fetched meanwhile
    int8_t *q;
    float *scales;
    float global;
    float divisor; // of scales
    int is_past;   // codes go past the caches
    const struct table *codes;
} piece;

// Twice the number of e2m1 that is nearest, ties to the even code; 12 of a NaN. The last place of a
// number beside 2^22 times the power of two with which it begins, or beside 2^22, is that of its
// code, so an addition rounds it.
BERTH_INLINE berth_vec twice_of(berth_vec x) {
    const berth_vec most = berth_vec_of(6);
    const berth_vec kept = berth_vec_max(berth_vec_min(x, most), -most);
    const berth_vec large = berth_vec_power(kept, 1) * berth_vec_of(0x1p22f);
    const berth_vec rounded = (kept + large) - large;
    return rounded + rounded;
}

// A NaN is passed over, as the reference does.
BERTH_INLINE berth_vec largest_of(berth_dtype dtype, const void *row, int64_t first) {
    berth_vec largest = berth_vec_of(0);
    BERTH_UNROLL
    for (int i = 0; i < VECTORS; ++i) {
        const berth_vec x = berth_vec_load_as(row, dtype, first + i * BERTH_LANES);
        largest = berth_vec_max((berth_vec)berth_vec_magnitude(x), largest);
    }
    return largest;
}

// Of the groups from `first` on, each in a lane; a NaN is passed over, or is the largest.
BERTH_SELDOM berth_vec largest_of_any(berth_dtype dtype, const void *row, int64_t first) {
    float largest[BERTH_LANES];
    for (int group = 0; group < BERTH_LANES; ++group) {
        largest[group] = berth_vec_largest(largest_of(dtype, row, first + group * GROUP));
    }
    return berth_vec_load(largest);
}

BERTH_INLINE berth_vec largest_of_groups(berth_dtype dtype, const void *row, int64_t first) {
    berth_vec_ints of[BERTH_LANES] = {{0}};
    BERTH_UNROLL
    for (int i = 0; i < VECTORS * BERTH_LANES; ++i) {
        const berth_vec x = berth_vec_load_as(row, dtype, first + i * BERTH_LANES);
        of[i / VECTORS] = berth_vec_larger(berth_vec_magnitude(x), of[i / VECTORS]);
    }
    return berth_vec_largest_each(of, BERTH_LANES, 0);
}

// The same of bf16 as words, by vectors that have two groups one behind the other where they have
// room for that: neighbours are folded onto each other, the two of a pair last.
#define PAIRS     ((int)(LOT / (2 * BERTH_LANES))) // vectors of pairs of a lot
#define HAS_PAIRS (2 * BERTH_LANES >= GROUP)
BERTH_INLINE berth_vec largest_of_pairs(const void *row, int64_t first) {
    berth_vec_ints of[PAIRS];
    BERTH_UNROLL
    for (int i = 0; i < PAIRS; ++i) {
        const int64_t at = first + i * (int64_t)(2 * BERTH_LANES);
        of[i] = (berth_vec_ints)berth_vec_load((const uint16_t *)row + at) & 0x7fff7fff;
    }
    const berth_vec_bits pairs = (berth_vec_bits)berth_vec_largest_each(of, PAIRS, 1);
    return (berth_vec)berth_vec_larger((berth_vec_ints)(pairs & 0xffff0000u),
                                       (berth_vec_ints)(pairs << 16));
}

// berth_nvfp4_local and berth_nvfp4_factor of every lane.
BERTH_INLINE berth_vec locals_of(berth_vec largest, float global) {
    const berth_vec wanted = berth_vec_of(global) * (largest * berth_vec_of(1.0f / 6.0f));
    return vec_f8_near(berth_vec_min(wanted, berth_vec_of(BERTH_F8_MAX)));
}

BERTH_INLINE berth_vec factors_of(berth_vec locals, float global) {
    const berth_vec zero = berth_vec_of(0);
    const berth_vec one = berth_vec_of(1);
    return berth_vec_if_less(zero, locals, one / (locals * berth_vec_of(1.0f / global)), zero);
}

// Four vectors of codes. Adding 1.5 · 2^23 leaves a whole number in the lowest bits; that of the
// codes more by 128 is not below 0.
BERTH_INLINE berth_vec codes_of(berth_dtype dtype, const piece *of, int64_t first,
                                const float *factors) {
    const uint32_t shift = 0x4b400000u - 128;
    berth_vec_bits codes[4];
    BERTH_UNROLL
    for (int k = 0; k < 4; ++k) {
        const berth_vec x = berth_vec_load_as(of->row, dtype, first + k * BERTH_LANES);
        const berth_vec twice = twice_of(x * berth_vec_of(factors[k * BERTH_LANES / GROUP]));
        codes[k] = (berth_vec_bits)(twice + berth_vec_of(0x1.8p+23f)) - shift;
    }
    const berth_vec_bits packed =
        berth_vec_pack(berth_vec_join(codes[0], codes[1]), berth_vec_join(codes[2], codes[3]));
    return (berth_vec)(packed ^ 0x80808080u);
}

// What is fetched while four vectors become codes. Why both halves of a row side by side: one
// behind the other have 0.78 of a copy's speed in float32 on one thread of a Sapphire Rapids, these
// 0.9.
BERTH_INLINE void fetch_four(berth_dtype dtype, const piece *of, int64_t first) {
    berth_fetch_halves(of->row, dtype, (berth_span){first, first + FOUR}, of->width, of->ahead);
}

// ---- by a table ---------------------------------------------------------------------------------

// Codes of numbers below FAST_MOST, for machines that berth_vec_has_pick_bytes: beside 1.5 · 2^21 a
// quarter is the last place, and between quarters all numbers have one code. The sum of what such
// an addition leaves there, rounded down and rounded up, says which quarters a number is between,
// or that it is one. A table has the codes of these sums, modulo 128.
#define FAST_MOST 7.75f
typedef struct table {
    berth_vec_bits of[2];
    berth_vec_bits order; // of bytes that were joined: where each is
} table;

// Where in two vectors of words the lower bytes of columns stand that places_of has joined.
BERTH_INLINE berth_vec_bits order_of(berth_dtype dtype) {
    berth_vec_bits a = {0};
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        a[lane] = (uint32_t)lane;
    }
    const berth_vec_words joined = berth_vec_join_lower(a, a + BERTH_LANES);
    vec_f8_bytes order = vec_f8_lower_bytes();
    for (int i = 0; i < 2 * BERTH_LANES && dtype != BERTH_DTYPE_BF16; ++i) {
        order[joined[i]] = (uint8_t)(2 * i);
        order[joined[i] + 2 * BERTH_LANES] = (uint8_t)(2 * i + sizeof order);
    }
    return (berth_vec_bits)order;
}

BERTH_INLINE table make_table(berth_dtype dtype) {
    table made;
    uint8_t codes[sizeof made.of];
    for (int i = 0; i < (int)sizeof made.of; i += BERTH_LANES) {
        berth_vec at;
        for (int lane = 0; lane < BERTH_LANES; ++lane) {
            at[lane] = (float)lane;
        }
        const int first = i < (int)sizeof codes / 2 ? i : i - (int)sizeof codes;
        const berth_vec number = (at + berth_vec_of((float)first)) * berth_vec_of(0.125f);
        const berth_vec_bytes some =
            berth_vec_narrow_twice((berth_vec_bits)(twice_of(number) + berth_vec_of(0x1.8p+23f)));
        memcpy(codes + i, &some, sizeof some);
    }
    memcpy(made.of, codes, sizeof made.of);
    made.order = order_of(dtype);
    return made;
}

// What is added the second time are whole quarters, so that the last places are the sum of both.
BERTH_INLINE berth_vec_bits place_of(berth_vec x) {
    return (berth_vec_bits)berth_vec_add_down(x, berth_vec_add_up(x, berth_vec_of(0x1.8p+21f)));
}

// Of two vectors of columns, in bf16 of pairs.
BERTH_INLINE berth_vec_words places_of(berth_dtype dtype, const void *row, int64_t first,
                                       const berth_vec by[2]) {
    if (dtype == BERTH_DTYPE_BF16) {
        const berth_vec pairs = berth_vec_load((const uint16_t *)row + first);
        return berth_vec_turn_lower(place_of(berth_vec_first_of(pairs) * by[0]),
                                    place_of(berth_vec_second_of(pairs) * by[0]));
    }
    const berth_vec a = berth_vec_load_as(row, dtype, first);
    const berth_vec b = berth_vec_load_as(row, dtype, first + BERTH_LANES);
    return berth_vec_join_lower(place_of(a * by[0]), place_of(b * by[1]));
}

// The factors of all vectors of a lot: in bf16 half of a vector of pairs is a group.
BERTH_INLINE void spread(berth_dtype dtype, const float *factors, berth_vec by[2 * PAIRS]) {
    if (dtype != BERTH_DTYPE_BF16) {
        for (int i = 0; i < 2 * PAIRS; ++i) {
            by[i] = berth_vec_of(factors[i * BERTH_LANES / GROUP]);
        }
        return;
    }
    berth_vec spread[PAIRS] = {berth_vec_load(factors)};
    BERTH_UNROLL
    for (int count = 1; count < PAIRS; count *= 2) {
        BERTH_UNROLL
        for (int i = count - 1; i >= 0; --i) {
            const berth_vec one = spread[i];
            spread[2 * i] = berth_vec_low(one, one);
            spread[2 * i + 1] = berth_vec_high(one, one);
        }
    }
    BERTH_UNROLL
    for (int i = 0; i < PAIRS; ++i) {
        by[2 * i] = spread[i];
    }
}

BERTH_INLINE void look_up_lot(berth_dtype dtype, const piece *of, int64_t first,
                              const float *factors) {
    berth_vec by[2 * PAIRS];
    spread(dtype, factors, by);
    BERTH_UNROLL
    for (int k = 0; k < PAIRS; k += 2) {
        const int64_t at = first + k * (int64_t)(2 * BERTH_LANES);
        fetch_four(dtype, of, at);
        const berth_vec_words a = places_of(dtype, of->row, at, by + 2 * k);
        const berth_vec_words b = places_of(dtype, of->row, at + 2 * BERTH_LANES, by + 2 * k + 2);
        const berth_vec_bits places =
            berth_vec_pick_bytes((berth_vec_bits)a, (berth_vec_bits)b, of->codes->order);
        berth_vec_put_codes(
            of->is_past, of->q + at,
            (berth_vec)berth_vec_pick_bytes(of->codes->of[0], of->codes->of[1], places));
    }
}

// ---- lots ---------------------------------------------------------------------------------------

#define MANY 4 // lots whose scales are made together: those of each wait for their own steps

// Why half as many in float32: so many bytes are gone through twice, and 1024 columns are 0.84 of a
// copy's speed where 512 are 0.86.
BERTH_INLINE int64_t many_of(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32 ? MANY / 2 : MANY;
}

// What is there of lots before their codes.
typedef struct lots {
    int64_t first; // column
    int64_t count;
    float factors[MANY][BERTH_LANES];
    int are_fast[MANY]; // their numbers are what the table is for
} lots;

// The factors of one lot, whose scales are written. `largest` has a NaN where a group has one.
BERTH_INLINE void scale_lot(berth_dtype dtype, const piece *of, lots *out, int64_t lot,
                            berth_vec largest) {
    const int64_t first = out->first + lot * LOT;
    const int is_finite = berth_vec_all_less(largest, berth_vec_of(INFINITY));
    if (!is_finite) {
        largest = largest_of_any(dtype, of->row, first);
    }
    const berth_vec locals = locals_of(largest, of->global);
    const berth_vec factors = factors_of(locals, of->global);
    out->are_fast[lot] = berth_vec_has_pick_bytes() && is_finite &&
                         berth_vec_all_less(largest * factors, berth_vec_of(FAST_MOST));
    berth_vec_store(out->factors[lot], factors);
    berth_vec_store(of->scales + first / GROUP,
                    berth_vec_of(0.5f) * (locals / berth_vec_of(of->divisor)));
}

BERTH_INLINE void scale_lots(berth_dtype dtype, const piece *of, lots *out) {
    berth_vec largest[MANY];
    for (int64_t lot = 0; lot < out->count; ++lot) {
        const int64_t first = out->first + lot * LOT;
        largest[lot] = dtype == BERTH_DTYPE_BF16 && HAS_PAIRS
                           ? largest_of_pairs(of->row, first)
                           : largest_of_groups(dtype, of->row, first);
    }
    for (int64_t lot = 0; lot < out->count; ++lot) {
        scale_lot(dtype, of, out, lot, largest[lot]);
    }
}

BERTH_INLINE void quantise_lot(berth_dtype dtype, const piece *of, int64_t first, int is_fast,
                               const float *factors) {
    if (is_fast) {
        look_up_lot(dtype, of, first, factors);
        return;
    }
    for (int64_t k = 0; k < LOT; k += FOUR) {
        fetch_four(dtype, of, first + k);
        const berth_vec made = codes_of(dtype, of, first + k, factors + k / GROUP);
        berth_vec_put_codes(of->is_past, of->q + first + k, made);
    }
}

// As many columns of a row as are whole lots; returns where they end.
BERTH_INLINE int64_t quantise_lots(berth_dtype dtype, const piece *of, int64_t width) {
    const int64_t end = width / LOT * LOT;
    const int64_t many = many_of(dtype);
    for (int64_t first = 0; first < end; first += many * LOT) {
        const int64_t left = (end - first) / LOT;
        lots now = {.first = first, .count = left < many ? left : many};
        scale_lots(dtype, of, &now);
        for (int64_t lot = 0; lot < now.count; ++lot) {
            quantise_lot(dtype, of, first + lot * LOT, now.are_fast[lot], now.factors[lot]);
        }
    }
    return end;
}

// A group that is left over.
BERTH_INLINE void quantise_group(berth_dtype dtype, const piece *of, int64_t first) {
    const float largest = berth_vec_largest(largest_of(dtype, of->row, first));
    const float local = berth_nvfp4_local(largest, of->global);
    const berth_vec factor = berth_vec_of(berth_nvfp4_factor(local, of->global));
    for (int64_t i = first; i < first + GROUP; i += BERTH_LANES) {
        const berth_vec twice = twice_of(berth_vec_load_as(of->row, dtype, i) * factor);
        const berth_vec_bytes codes =
            berth_vec_narrow_twice((berth_vec_bits)(twice + berth_vec_of(0x1.8p+23f)));
        memcpy(of->q + i, &codes, sizeof codes);
    }
    of->scales[first / GROUP] = 0.5f * (local / of->divisor);
}

BERTH_INLINE void quantise_row(berth_dtype dtype, const piece *all, int64_t width) {
    piece of = *all; // no store changes it, for all that the compiler knows
    of.is_past = of.is_past && berth_vec_can_pass(of.q);
    for (int64_t first = quantise_lots(dtype, &of, width); first < width; first += GROUP) {
        quantise_group(dtype, &of, first);
    }
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const reads_job *in = work;
    const berth_op_args *args = in->args;
    const berth_tensor *x = args->inputs[X];
    const int64_t width = berth_row_length(x);
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    const float *global = berth_data(args->inputs[GLOBAL_SCALE]);
    const berth_tensor *divisor = args->inputs[SCALE_DIVISOR];
    const table codes = make_table(x->dtype);
    const int64_t next_row = berth_fetch_row_ahead(width * (BERTH_DTYPE_BITS(x->dtype) / 8));
    const berth_ahead ahead = reads_ahead(in->self->cpu, next_row, next_row);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const piece of = {
            .row = berth_row(x, row),
            .width = width,
            .ahead = ahead,
            .q = berth_row(args->outputs[Q], row),
            .scales = berth_row(args->outputs[SCALE], row),
            .global = *global,
            .divisor = divisor ? *(const float *)berth_data(divisor) : *global,
            .is_past = berth_is_past(berth_row_count(x) * width, BERTH_DTYPE_I8),
            .codes = &codes,
        };
        if (x->dtype == BERTH_DTYPE_F32) {
            quantise_row(BERTH_DTYPE_F32, &of, width);
        } else if (x->dtype == BERTH_DTYPE_BF16) {
            quantise_row(BERTH_DTYPE_BF16, &of, width);
        } else {
            quantise_row(BERTH_DTYPE_F16, &of, width);
        }
    }
    berth_past_end();
}

static berth_status forward(void *self, const berth_op_args *args) {
    return reads_run(self, args, quantise_part);
}

const berth_op_impl berth_kernel_quant_nvfp4 = {
    .size = sizeof(berth_op_impl),
    .op = "quant_nvfp4",
    .name = "cpu.quant_nvfp4",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = reads_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
