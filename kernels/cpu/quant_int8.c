// SPDX-License-Identifier: Apache-2.0
// quant_int8. Of a row without a scale two sweeps, the second out of the cache: the largest
// magnitude, then the codes. The operations are the reference's, so codes and scales are its bits.
#include <cpu/cpu.h>
#include <cpu/int8_codes.h>
#include <cpu/magnitude.h>

enum { X, SCALE, ZERO_POINT };
enum { Q, SCALE_OUT };

// What becomes of x before it is rounded.
typedef enum quant_way { DIVIDED, MULTIPLIED } quant_way;

// A row on its way to codes.
typedef struct piece {
    const void *row;
    int8_t *q;
    const void *next; // the row after it
    int64_t width;
    int64_t done; // columns whose codes are there
    float by;     // what x is divided or multiplied by
    int32_t zero; // the code of 0
    int is_past;  // codes go past the caches
} piece;

// ---- elements -----------------------------------------------------------------------------------

static float largest_of(berth_dtype dtype, const piece *of) {
    return dtype == BERTH_DTYPE_F32    ? vec_i8_largest(of->row, BERTH_DTYPE_F32, of->width)
           : dtype == BERTH_DTYPE_BF16 ? vec_i8_largest(of->row, BERTH_DTYPE_BF16, of->width)
                                       : vec_i8_largest(of->row, BERTH_DTYPE_F16, of->width);
}

BERTH_INLINE berth_vec_bytes codes_of(quant_way way, const piece *of, berth_vec x) {
    const berth_vec by = berth_vec_of(of->by);
    return vec_to_i8(way == DIVIDED ? x / by : x * by, of->zero);
}

// Four vectors of a row without a scale, whose largest magnitude is finite: their codes more by
// 128.
BERTH_INLINE berth_vec_bits join_codes(berth_dtype dtype, const piece *of, int64_t first) {
    const uint32_t shift = 0x4b400000u - 128; // of 1.5 · 2^23, beside which a 1 is the last place
    berth_vec_bits codes[4];
    BERTH_UNROLL
    for (int k = 0; k < 4; ++k) {
        const berth_vec x = berth_vec_load_as(of->row, dtype, first + k * BERTH_LANES);
        codes[k] = (berth_vec_bits)(x * berth_vec_of(of->by) + berth_vec_of(0x1.8p+23f)) - shift;
    }
    return berth_vec_pack(berth_vec_join(codes[0], codes[1]), berth_vec_join(codes[2], codes[3]));
}

#define FOUR ((int64_t)(4 * BERTH_LANES))

// As many of the columns of such a row as are whole fours of vectors; how many.
BERTH_INLINE int64_t quantise_fours(berth_dtype dtype, const piece *all) {
    const piece of = *all;
    const int is_past = of.is_past && berth_vec_can_pass(of.q);
    int64_t i = 0;
    for (; i + FOUR <= of.width; i += FOUR) {
        berth_vec_fetch_next(BERTH_SWEEP_CODES, dtype, of.next, of.width,
                             (berth_span){i, i + FOUR});
        const berth_vec codes = (berth_vec)(join_codes(dtype, &of, i) ^ 0x80808080u);
        berth_vec_put_codes(is_past, of.q + i, codes);
    }
    return i;
}

static int64_t quantise_finite(berth_dtype dtype, const piece *of) {
    return dtype == BERTH_DTYPE_F32    ? quantise_fours(BERTH_DTYPE_F32, of)
           : dtype == BERTH_DTYPE_BF16 ? quantise_fours(BERTH_DTYPE_BF16, of)
                                       : quantise_fours(BERTH_DTYPE_F16, of);
}

BERTH_INLINE void quantise_as(quant_way way, berth_dtype dtype, const piece *all) {
    const piece of = *all; // no store changes it, for all that the compiler knows
    int64_t i = of.done;
    for (; i + BERTH_LANES <= of.width; i += BERTH_LANES) {
        const berth_vec_bytes codes = codes_of(way, &of, berth_vec_load_as(of.row, dtype, i));
        memcpy(of.q + i, &codes, sizeof codes);
    }
    if (i < of.width) {
        const berth_vec rest = berth_vec_load_part(of.row, dtype, i, of.width - i);
        const berth_vec_bytes codes = codes_of(way, &of, rest);
        memcpy(of.q + i, &codes, (size_t)(of.width - i));
    }
}

BERTH_INLINE void quantise_way(quant_way way, berth_dtype dtype, const piece *of) {
    if (dtype == BERTH_DTYPE_F32) {
        quantise_as(way, BERTH_DTYPE_F32, of);
    } else if (dtype == BERTH_DTYPE_BF16) {
        quantise_as(way, BERTH_DTYPE_BF16, of);
    } else {
        quantise_as(way, BERTH_DTYPE_F16, of);
    }
}

static void divide(berth_dtype dtype, const piece *of) {
    quantise_way(DIVIDED, dtype, of);
}

static void multiply(berth_dtype dtype, const piece *of) {
    quantise_way(MULTIPLIED, dtype, of);
}

// ---- rows ---------------------------------------------------------------------------------------

static void quantise_row(const berth_op_args *args, int64_t row, piece *of) {
    const berth_tensor *x = args->inputs[X];
    of->row = berth_row(x, row);
    of->next = berth_row(x, row + 1 < berth_row_count(x) ? row + 1 : row);
    of->q = berth_row(args->outputs[Q], row);
    if (args->inputs[SCALE]) {
        divide(x->dtype, of);
    } else {
        const float any =
            berth_vec_largest_of(of->row, x->dtype, (berth_span){0, of->width}, of->next);
        const float largest = isnan(any) ? largest_of(x->dtype, of) : any;
        *(float *)berth_row(args->outputs[SCALE_OUT], row) = berth_i8_scale(largest);
        of->by = berth_i8_factor(largest);
        of->done = any < INFINITY && of->by < INFINITY ? quantise_finite(x->dtype, of) : 0;
        multiply(x->dtype, of);
    }
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scale = args->inputs[SCALE];
    const berth_tensor *zero = args->inputs[ZERO_POINT];
    piece of = {
        .width = berth_row_length(x),
        .by = scale ? *(const float *)berth_data(scale) : 0,
        .zero = zero ? *(const int8_t *)berth_data(zero) : 0,
        .is_past = berth_is_past(berth_row_count(x) * berth_row_length(x), BERTH_DTYPE_I8),
    };
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        quantise_row(args, row, &of);
    }
    berth_past_end();
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_tensor *scale = args->inputs[SCALE];
    if (scale) {
        *(float *)berth_data(args->outputs[SCALE_OUT]) = *(const float *)berth_data(scale);
    }
    return berth_run_rows(self, args, quantise_part, args->inputs[X]);
}

const berth_op_impl berth_kernel_quant_int8 = {
    .size = sizeof(berth_op_impl),
    .op = "quant_int8",
    .name = "cpu.quant_int8",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
