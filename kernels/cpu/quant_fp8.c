// SPDX-License-Identifier: Apache-2.0
// quant_fp8. Two sweeps of what shares a scale, the second out of the cache: the largest magnitude,
// then the codes, while the next row is fetched. The operations are the reference's, so codes and
// scales are its bits.
#include <cpu/cpu.h>
#include <cpu/fp8_table.h>
#include <cpu/magnitude.h>
#include <cpu/simd.h>

#include <fp8.h>

enum { X, SCALE, SCALE_UB };
enum { Q, SCALE_OUT };

#define ALONE 4096 // so few elements a part are not worth waking other threads

typedef struct quant {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t group;    // columns of a dynamic group, 0: whole rows
    int64_t channels; // columns, where each has a scale of its own, else 0
    int is_static;
    int is_per_tensor;
    int is_by_column;
    int is_ue8m0;
} quant;

typedef struct job {
    const quant *self;
    const berth_op_args *args;
    float *largest; // [parts], per tensor
    float *factors; // [parts, columns], by channel: 1 / scale
} job;

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return !berth_site_attribute(site, "column_major_scales")->i64 || site->inputs[X]->ndim == 2
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "scales by column are of one matrix here");
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(quant), out_self);
    if (status == BERTH_OK) {
        const int64_t *group = berth_site_attribute(site, "group_shape")->i64s;
        const berth_value_type *x = site->inputs[X];
        quant *self = *out_self;
        self->cpu = device->self;
        self->is_static = berth_site_attribute(site, "static")->i64 != 0;
        self->is_per_tensor = group[0] == -1;
        self->channels = self->is_static && group[1] == 1 ? x->dims[x->ndim - 1].b : 0;
        self->group = group[1] > 0 ? group[1] : 0;
        self->is_by_column = berth_site_attribute(site, "column_major_scales")->i64 != 0;
        self->is_ue8m0 = berth_site_attribute(site, "use_ue8m0")->i64 != 0;
    }
    return status;
}

// ---- elements -----------------------------------------------------------------------------------

// What becomes of x before it is a code, and whether codes may be out of range, or NaN.
typedef enum quant_way { DIVIDED, MULTIPLIED, MULTIPLIED_ANY, BY_CHANNEL } quant_way;

// What a sweep is compiled for.
typedef struct sweep {
    berth_dtype dtype;
    quant_way way;
} sweep;

// Columns of a row, and the number, or the vector, that they are divided or multiplied by.
typedef struct piece {
    const void *row;
    const void *next; // the row after it
    uint8_t *q;
    int64_t width; // of the rows
    berth_span columns;
    float scale;
    const float *factors; // of the whole row, by channel
    int is_past;          // codes go past the caches
} piece;

// Whatever x and the scale are.
BERTH_SELDOM void quantise_slowly(sweep as, piece of, int64_t first) {
    const berth_vec scale = berth_vec_of(of.scale);
    for (int64_t i = first; i < of.columns.end; i += BERTH_LANES) {
        const int64_t left = of.columns.end - i;
        const berth_vec x = berth_vec_load_some(of.row, as.dtype, i, of.columns.end);
        const berth_vec factors =
            as.way == BY_CHANNEL
                ? berth_vec_load_some(of.factors, BERTH_DTYPE_F32, i, of.columns.end)
                : scale;
        const berth_vec_bytes codes = vec_to_f8(as.way == DIVIDED ? x / scale : x * factors);
        memcpy(of.q + i, &codes, (size_t)(left < BERTH_LANES ? left : BERTH_LANES));
    }
}

BERTH_INLINE berth_vec_bits words_of(sweep as, const piece *of, float one_over, int64_t i) {
    const berth_vec x = berth_vec_load_as(of->row, as.dtype, i);
    const berth_vec scale = berth_vec_of(of->scale);
    switch (as.way) {
    case DIVIDED:
        return vec_f8_words(berth_vec_divide(x, scale, berth_vec_of(one_over)));
    case MULTIPLIED:
        return vec_f8_words(x * scale);
    case MULTIPLIED_ANY:
        return vec_f8_words_of_any(x * scale);
    case BY_CHANNEL:
    default:
        return vec_f8_words_of_any(x * berth_vec_load(of->factors + i));
    }
}

#define FOUR ((int64_t)(4 * BERTH_LANES))
#define LOT  ((int64_t)(VEC_F8_VECTORS * 2 * BERTH_LANES)) // that is looked at for a table at once

// Rows that are gone through once have no other sweep that fetches the first half.
BERTH_INLINE void fetch_next(sweep as, const piece *of, int64_t first, int64_t count) {
    const berth_span columns = {first, first + count};
    if (as.way == BY_CHANNEL || as.way == MULTIPLIED_ANY) {
        berth_vec_fetch_next(BERTH_SWEEP_LARGEST, as.dtype, of->next, of->width, columns);
    }
    berth_vec_fetch_next(BERTH_SWEEP_CODES, as.dtype, of->next, of->width, columns);
}

BERTH_INLINE void quantise_four(sweep as, const piece *of, float one_over, int64_t first) {
    berth_vec_bits words[4];
    BERTH_UNROLL
    for (int k = 0; k < 4; ++k) {
        words[k] = words_of(as, of, one_over, first + k * BERTH_LANES);
    }
    berth_vec_put_codes(of->is_past, of->q + first, (berth_vec)vec_pack_f8(words));
}

// One lot of columns, by the table where it has all of them.
BERTH_INLINE void quantise_lot(sweep as, const piece *of, const vec_f8_table *table,
                               int64_t first) {
    const uint16_t *x = (const uint16_t *)of->row + first;
    const int is_in_table = vec_f8_table_has(table, x);
    for (int64_t k = 0; k < LOT; k += FOUR) {
        if (is_in_table) {
            berth_vec_put_codes(of->is_past, of->q + first + k, vec_f8_table_codes(table, x + k));
        } else {
            quantise_four(as, of, 0, first + k);
        }
    }
}

// As many columns of bf16 as there are whole lots of for a table; returns where they end.
BERTH_INLINE int64_t quantise_by_table(sweep as, const piece *of) {
    int64_t i = of->columns.first;
    vec_f8_table table;
    if (of->columns.end - i < 4 * LOT || !vec_f8_table_of(of->scale, &table)) {
        return i;
    }
    for (; i + LOT <= of->columns.end; i += LOT) {
        fetch_next(as, of, i, LOT);
        quantise_lot(as, of, &table, i);
    }
    return i;
}

BERTH_INLINE void quantise_as(sweep as, const piece *all) {
    piece of = *all; // no store changes it, for all that the compiler knows
    const float one_over = 1.0f / of.scale;
    const int has_factor = as.way == MULTIPLIED || as.way == MULTIPLIED_ANY;
    of.is_past = of.is_past && berth_vec_can_pass(of.q + of.columns.first);
    int64_t i =
        as.dtype == BERTH_DTYPE_BF16 && has_factor ? quantise_by_table(as, &of) : of.columns.first;
    for (; i + FOUR <= of.columns.end; i += FOUR) {
        fetch_next(as, &of, i, FOUR);
        quantise_four(as, &of, one_over, i);
    }
    if (i < of.columns.end) {
        quantise_slowly(as, of, i);
    }
}

BERTH_INLINE void quantise_way(quant_way way, berth_dtype dtype, const piece *of) {
    if (dtype == BERTH_DTYPE_F32) {
        quantise_as((sweep){BERTH_DTYPE_F32, way}, of);
    } else if (dtype == BERTH_DTYPE_BF16) {
        quantise_as((sweep){BERTH_DTYPE_BF16, way}, of);
    } else {
        quantise_as((sweep){BERTH_DTYPE_F16, way}, of);
    }
}

// By a scale that was made from these columns: what is not finite makes that a scale that is not.
static void divide(berth_dtype dtype, const piece *of) {
    if (of->scale < INFINITY) {
        quantise_way(DIVIDED, dtype, of);
    } else {
        quantise_slowly((sweep){dtype, DIVIDED}, *of, of->columns.first);
    }
}

static void multiply(berth_dtype dtype, const piece *of) {
    quantise_way(MULTIPLIED, dtype, of);
}

static void multiply_any(berth_dtype dtype, const piece *of) {
    quantise_way(MULTIPLIED_ANY, dtype, of);
}

static void multiply_channels(berth_dtype dtype, const piece *of) {
    quantise_way(BY_CHANNEL, dtype, of);
}

// By 1 / scale.
static void scale_by(berth_dtype dtype, piece *of, float scale, int is_bound) {
    of->scale = 1.0f / scale;
    if (is_bound && scale < INFINITY) {
        multiply(dtype, of);
    } else {
        multiply_any(dtype, of);
    }
}

// All of a row.
static piece piece_of(const job *in, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    const int64_t rows = berth_row_count(x);
    return (piece){
        .row = berth_row(x, row),
        .next = berth_row(x, row + 1 < rows ? row + 1 : row),
        .q = berth_row(in->args->outputs[Q], row),
        .width = berth_row_length(x),
        .columns = {0, berth_row_length(x)},
        .is_past = berth_is_past(rows * berth_row_length(x), BERTH_DTYPE_F8_E4M3FN),
    };
}

// ---- rows ---------------------------------------------------------------------------------------

#define GROUPS 16 // whose scales are made together: one by one each waits for its own steps

static void scale_groups(const job *in, const piece *of, int64_t count, float *scales) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t first = of->columns.first + i * in->self->group;
        const int64_t end = first + in->self->group;
        const berth_span columns = {first, end < of->columns.end ? end : of->columns.end};
        scales[i] = berth_vec_largest_of(of->row, in->args->inputs[X]->dtype, columns, of->next);
    }
    for (int64_t i = 0; i < count; ++i) {
        scales[i] = berth_f8_scale(scales[i]);
    }
    for (int64_t i = 0; i < count && in->self->is_ue8m0; ++i) {
        scales[i] = berth_f8_power_of_two(scales[i]);
    }
}

static void quantise_groups(const job *in, int64_t row) {
    const quant *self = in->self;
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    float *to = self->is_by_column ? (float *)berth_data(scales) + row : berth_row(scales, row);
    const int64_t step = self->is_by_column ? scales->strides[0] : 1;
    piece of = piece_of(in, row);
    const int64_t width = of.width;
    const int64_t groups = (width + self->group - 1) / self->group;
    for (int64_t group = 0; group < groups; group += GROUPS) {
        float made[GROUPS];
        const int64_t count = groups - group < GROUPS ? groups - group : GROUPS;
        of.columns = (berth_span){group * self->group, width};
        scale_groups(in, &of, count, made);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t end = of.columns.first + self->group;
            of.columns.end = end < width ? end : width;
            of.scale = to[(group + i) * step] = made[i];
            divide(in->args->inputs[X]->dtype, &of);
            of.columns.first = end;
        }
    }
}

static void quantise_token(const job *in, int64_t row) {
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    const berth_tensor *bound = in->args->inputs[SCALE_UB];
    piece of = piece_of(in, row);
    float largest = berth_vec_largest_of(of.row, dtype, of.columns, of.next);
    if (bound && largest > *(const float *)berth_data(bound)) {
        largest = *(const float *)berth_data(bound);
    }
    const float used = berth_f8_scale(largest);
    *(float *)berth_row(in->args->outputs[SCALE_OUT], row) = used;
    scale_by(dtype, &of, used, !bound);
}

// By scales that are there: one, or blocks of which each dimension has equally large ones.
static void quantise_blocks(const job *in, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    const int is_one = scales->ndim < 2;
    const int64_t down = is_one ? 1 : scales->shape[0];
    const int64_t across = is_one ? 1 : scales->shape[1];
    const int64_t height = (berth_row_count(x) + down - 1) / down;
    const float *used = (const float *)berth_data(scales) + row / height * across;
    piece of = piece_of(in, row);
    const int64_t width = of.columns.end / across;
    for (int64_t block = 0; block < across; ++block) {
        of.columns = (berth_span){block * width, (block + 1) * width};
        scale_by(x->dtype, &of, used[block], !in->self->is_static);
    }
}

// By scales that are there, of every column one, the same for `height` rows each.
static void quantise_channels(const job *in, berth_span rows, float *factors) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    const int64_t height = (berth_row_count(x) + scales->shape[0] - 1) / scales->shape[0];
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const float *used = berth_row(scales, row / height);
        piece of = piece_of(in, row);
        if (row == rows.first || row % height == 0) {
            for (int64_t i = 0; i < of.columns.end; ++i) {
                factors[i] = 1.0f / used[i];
            }
        }
        of.factors = factors;
        multiply_channels(x->dtype, &of);
    }
}

static void find_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    const berth_span columns = {0, berth_row_length(x)};
    float largest = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const float of_row = berth_vec_largest_of(berth_row(x, row), x->dtype, columns, NULL);
        largest = berth_max_or_nan(of_row, largest);
    }
    in->largest[part] = largest;
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    berth_span rows = berth_share(berth_row_count(x), part, parts);
    if (in->self->channels > 0 && berth_row_length(scales) == in->self->channels) {
        quantise_channels(in, rows, in->factors + part * in->self->channels);
        rows.first = rows.end;
    }
    for (int64_t row = rows.first; row < rows.end; ++row) {
        if (in->self->is_static || in->self->is_per_tensor) {
            quantise_blocks(in, row);
        } else if (in->self->group > 0) {
            quantise_groups(in, row);
        } else {
            quantise_token(in, row);
        }
    }
    berth_past_end();
}

// ---- a step -------------------------------------------------------------------------------------

static int64_t run(const job *in, berth_work_fn work) {
    const berth_cpu *cpu = in->self->cpu;
    const berth_tensor *x = in->args->inputs[X];
    if (berth_row_count(x) * berth_row_length(x) < ALONE * cpu->threads) {
        work(in, 0, 1);
        return 1;
    }
    cpu->run(cpu, work, in);
    return cpu->threads;
}

// The given scales are those that are used.
static void hand_on_scales(const berth_op_args *args) {
    const berth_tensor *used = args->outputs[SCALE_OUT];
    const int64_t count = berth_row_count(used) * berth_row_length(used);
    memcpy(berth_data(used), berth_data(args->inputs[SCALE]), (size_t)count * sizeof(float));
}

static void scale_tensor(const job *in) {
    float *used = berth_data(in->args->outputs[SCALE_OUT]);
    const int64_t parts = run(in, find_part);
    float largest = 0;
    for (int64_t part = 0; part < parts; ++part) {
        largest = berth_max_or_nan(in->largest[part], largest);
    }
    *used = berth_f8_scale(largest);
}

static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const quant *self = state;
    const int64_t each = self->channels > 0 ? self->channels : 1;
    return (uint64_t)(self->cpu->threads * each) * sizeof(float);
}

static berth_status forward(void *state, const berth_op_args *args) {
    float *room = berth_data(args->workspace);
    const job in = {.self = state, .args = args, .largest = room, .factors = room};
    const berth_tensor *q = args->outputs[Q];
    for (int64_t row = berth_row_count(args->inputs[X]); row < berth_row_count(q); ++row) {
        memset(berth_row(q, row), 0, (size_t)berth_row_length(q));
    }
    if (in.self->is_static) {
        hand_on_scales(args);
    } else if (in.self->is_per_tensor) {
        scale_tensor(&in);
    }
    (void)run(&in, quantise_part);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_quant_fp8 = {
    .size = sizeof(berth_op_impl),
    .op = "quant_fp8",
    .name = "cpu.quant_fp8",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
