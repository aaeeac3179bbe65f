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
    berth_next_row next;
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

#define TWO  ((int64_t)(2 * BERTH_LANES))
#define FOUR ((int64_t)(4 * BERTH_LANES))

// 1.5 · 2^23, beside which a 1 is the last place, more by the number: its code is the lowest byte.
BERTH_INLINE berth_vec_bits sum_of(const piece *of, berth_vec x) {
    return (berth_vec_bits)(x * berth_vec_of(of->by) + berth_vec_of(0x1.8p+23f));
}

// Codes of two vectors of a row without a scale, whose largest magnitude is finite.
BERTH_INLINE berth_vec_words codes_of_two(berth_dtype dtype, const piece *of, int64_t first) {
    if (dtype == BERTH_DTYPE_BF16) {
        const berth_vec pairs = berth_vec_load((const uint16_t *)of->row + first);
        return berth_vec_turn_lower(sum_of(of, berth_vec_first_of(pairs)),
                                    sum_of(of, berth_vec_second_of(pairs)));
    }
    const berth_vec second = berth_vec_load_as(of->row, dtype, first + BERTH_LANES);
    return berth_vec_join_lower(sum_of(of, berth_vec_load_as(of->row, dtype, first)),
                                sum_of(of, second));
}

BERTH_INLINE berth_vec quantise_four(berth_dtype dtype, const piece *of, int64_t first) {
    const berth_vec_words a = codes_of_two(dtype, of, first) & 0xff;
    const berth_vec_words b = codes_of_two(dtype, of, first + TWO) & 0xff;
    return (berth_vec)berth_vec_pack_as(dtype, a, b);
}

// As many of the columns of such a row as are whole fours of vectors. Returns the largest magnitude
// of the next row, which is looked at meanwhile.
BERTH_INLINE float quantise_fours(berth_dtype dtype, piece *all) {
    const piece of = *all; // no store changes it, for all that the compiler knows
    const int is_past = of.is_past && berth_vec_can_pass(of.q);
    berth_vec_largest_so_far next = {0};
    const int64_t steps = of.width / FOUR;
    for (int64_t turn = 0; turn < steps; ++turn) {
        const int64_t i = berth_step_at(turn, steps, of.next.ahead.is_far) * FOUR;
        berth_vec_look_on(&of.next, dtype, i, &next);
        berth_vec_put_codes(is_past, of.q + i, quantise_four(dtype, &of, i));
    }
    all->done = steps * FOUR;
    return berth_vec_look_end(&of.next, dtype, (berth_span){all->done, of.width}, &next);
}

static float quantise_finite(berth_dtype dtype, piece *of) {
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

// By a scale of its own. `any` is the row's largest magnitude, or NaN; returns that of the next
// one.
static float quantise_row(const berth_op_args *args, int64_t row, piece *of, float any) {
    const berth_tensor *x = args->inputs[X];
    const berth_span columns = {0, of->width};
    const float largest = isnan(any) ? largest_of(x->dtype, of) : any;
    *(float *)berth_row(args->outputs[SCALE_OUT], row) = berth_i8_scale(largest);
    of->by = berth_i8_factor(largest);
    of->done = 0;
    const float next = any < INFINITY && of->by < INFINITY
                           ? quantise_finite(x->dtype, of)
                           : berth_vec_largest_of(of->next.row, x->dtype, columns);
    multiply(x->dtype, of);
    return next;
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const reads_job *in = work;
    const berth_op_args *args = in->args;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scale = args->inputs[SCALE];
    const berth_tensor *zero = args->inputs[ZERO_POINT];
    piece of = {
        .width = berth_row_length(x),
        .next.ahead = reads_ahead(in->self->cpu, BERTH_SWEEP_LEAD, BERTH_SWEEP_LEAD_FAR),
        .by = scale ? *(const float *)berth_data(scale) : 0,
        .zero = zero ? *(const int8_t *)berth_data(zero) : 0,
        .is_past = berth_is_past(berth_row_count(x) * berth_row_length(x), BERTH_DTYPE_I8),
    };
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    float largest = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        of.row = berth_row(x, row);
        of.next.row = berth_row(x, row + 1 < rows.end ? row + 1 : row);
        of.q = berth_row(args->outputs[Q], row);
        if (scale) {
            divide(x->dtype, &of);
        } else {
            largest = row > rows.first
                          ? largest
                          : berth_vec_largest_of(of.row, x->dtype, (berth_span){0, of.width});
            largest = quantise_row(args, row, &of, largest);
        }
    }
    berth_past_end();
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_tensor *scale = args->inputs[SCALE];
    if (scale) {
        *(float *)berth_data(args->outputs[SCALE_OUT]) = *(const float *)berth_data(scale);
    }
    return reads_run(self, args, quantise_part);
}

const berth_op_impl berth_kernel_quant_int8 = {
    .size = sizeof(berth_op_impl),
    .op = "quant_int8",
    .name = "cpu.quant_int8",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = reads_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
