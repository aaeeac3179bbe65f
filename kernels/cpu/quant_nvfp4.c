// SPDX-License-Identifier: Apache-2.0
// quant_nvfp4. Of as many groups as a vector has lanes first the largest magnitudes, then their
// scales as the reference makes them, then the codes. The operations are the reference's, so codes
// and scales are its bits.
#include <cpu/cpu.h>
#include <cpu/fp8_codes.h>
#include <cpu/magnitude.h>
#include <cpu/simd.h>

#include <codes.h>
#include <nvfp4.h>

enum { X, GLOBAL_SCALE };
enum { Q, SCALE };

#define GROUP   BERTH_NVFP4_GROUP
#define VECTORS (GROUP / BERTH_LANES)            // of a group
#define LOT     ((int64_t)(GROUP * BERTH_LANES)) // columns of as many groups as a vector has lanes
#define FOUR    ((int64_t)(4 * BERTH_LANES))
#define AHEAD   4096 // bytes that are on their way
#define LINE    64

// Columns of a row: as many as are worked at together.
typedef struct piece {
    const void *row;
    int8_t *q;
    float *scales;
    float global;
    int is_past; // codes go past the caches
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
        largest = berth_vec_max((berth_vec)((berth_vec_bits)x & 0x7fffffffu), largest);
    }
    return largest;
}

// Of the groups from `first` on, each in a lane: halves of all vectors are folded onto each other
// until one lane of each is left.
BERTH_INLINE berth_vec largest_of_groups(berth_dtype dtype, const void *row, int64_t first) {
    berth_vec of[BERTH_LANES];
    BERTH_UNROLL
    for (int group = 0; group < BERTH_LANES; ++group) {
        of[group] = largest_of(dtype, row, first + group * GROUP);
    }
    BERTH_UNROLL
    for (int half = BERTH_LANES / 2; half > 0; half /= 2) {
        BERTH_UNROLL
        for (int group = 0; group < half; ++group) {
            const berth_vec a = of[group];
            const berth_vec b = of[group + half];
            of[group] = berth_vec_max(berth_vec_low(a, b), berth_vec_high(a, b));
        }
    }
    return of[0];
}

// berth_nvfp4_local and berth_nvfp4_factor of every lane.
BERTH_INLINE berth_vec locals_of(berth_vec largest, float global) {
    const berth_vec wanted = berth_vec_of(global) * (largest * berth_vec_of(1.0f / 6.0f));
    const berth_vec_bytes codes = vec_to_f8(berth_vec_min(wanted, berth_vec_of(BERTH_F8_MAX)));
    return vec_load_f8((const uint8_t *)&codes, 0, BERTH_LANES, VEC_F8_SCALE);
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

// The factors of a lot, whose scales are written.
BERTH_INLINE void scale_lot(berth_dtype dtype, const piece *of, int64_t first, float *factors) {
    const int64_t bytes = BERTH_DTYPE_BITS(dtype) / 8;
    const berth_vec locals = locals_of(largest_of_groups(dtype, of->row, first), of->global);
    for (int64_t at = 0; at < LOT * bytes; at += LINE) {
        BERTH_PREFETCH((const char *)of->row + first * bytes + at + AHEAD);
    }
    berth_vec_store(factors, factors_of(locals, of->global));
    berth_vec_store(of->scales + first / GROUP,
                    berth_vec_of(0.5f) * (locals / berth_vec_of(of->global)));
}

BERTH_INLINE void quantise_lot(berth_dtype dtype, const piece *of, int64_t first,
                               const float *factors) {
    BERTH_UNROLL
    for (int64_t k = 0; k < LOT; k += FOUR) {
        const berth_vec codes = codes_of(dtype, of, first + k, factors + k / GROUP);
        berth_vec_put_codes(of->is_past, of->q + first + k, codes);
    }
}

// As many columns of a row as are whole lots; returns where they end. Why the next lot's factors
// come before this one's codes: what they are made of waits for each other, and codes do not.
BERTH_INLINE int64_t quantise_lots(berth_dtype dtype, const piece *of, int64_t width) {
    const int64_t end = width - width % LOT;
    float factors[2][BERTH_LANES];
    if (end > 0) {
        scale_lot(dtype, of, 0, factors[0]);
    }
    for (int64_t first = 0; first < end; first += LOT) {
        const int64_t turn = first / LOT % 2;
        if (first + LOT < end) {
            scale_lot(dtype, of, first + LOT, factors[1 - turn]);
        }
        quantise_lot(dtype, of, first, factors[turn]);
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
    of->scales[first / GROUP] = 0.5f * (local / of->global);
}

BERTH_INLINE void quantise_row(berth_dtype dtype, const piece *all, int64_t width) {
    piece of = *all; // no store changes it, for all that the compiler knows
    of.is_past = of.is_past && berth_vec_can_pass(of.q);
    for (int64_t first = quantise_lots(dtype, &of, width); first < width; first += GROUP) {
        quantise_group(dtype, &of, first);
    }
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *x = args->inputs[X];
    const int64_t width = berth_row_length(x);
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const piece of = {
            .row = berth_row(x, row),
            .q = berth_row(args->outputs[Q], row),
            .scales = berth_row(args->outputs[SCALE], row),
            .global = *(const float *)berth_data(args->inputs[GLOBAL_SCALE]),
            .is_past = berth_is_past(berth_row_count(x) * width, BERTH_DTYPE_I8),
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
    return berth_run_rows(self, args, quantise_part, args->inputs[X]);
}

const berth_op_impl berth_kernel_quant_nvfp4 = {
    .size = sizeof(berth_op_impl),
    .op = "quant_nvfp4",
    .name = "cpu.quant_nvfp4",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
