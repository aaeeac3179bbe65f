// SPDX-License-Identifier: Apache-2.0
// quant_fp8. Two sweeps of what shares a scale, the second out of the cache: the largest magnitude,
// then the codes, while the next row is fetched. The operations are the reference's, so codes and
// scales are its bits.
#include <cpu/cpu.h>
#include <cpu/fp8_codes.h>
#include <cpu/simd.h>

#include <fp8.h>

enum { X, SCALE, SCALE_UB };
enum { Q, SCALE_OUT };

#define ALONE 4096 // so few elements a part are not worth waking other threads

typedef struct quant {
    const berth_host *host;
    const berth_cpu *cpu;
    int64_t group; // columns of a dynamic group, 0: whole rows
    int is_static;
    int is_per_tensor;
    int is_by_column;
    int is_ue8m0;
} quant;

typedef struct job {
    const quant *self;
    const berth_op_args *args;
    float *largest; // [parts], per tensor
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
        quant *self = *out_self;
        self->cpu = device->self;
        self->is_static = berth_site_attribute(site, "static")->i64 != 0;
        self->is_per_tensor = group[0] == -1;
        self->group = group[1] > 0 ? group[1] : 0;
        self->is_by_column = berth_site_attribute(site, "column_major_scales")->i64 != 0;
        self->is_ue8m0 = berth_site_attribute(site, "use_ue8m0")->i64 != 0;
    }
    return status;
}

// ---- elements -----------------------------------------------------------------------------------

// Why integers: magnitudes order as they do, and a NaN is above all of them.
BERTH_INLINE float largest_as(const void *row, berth_dtype dtype, berth_span columns) {
    berth_vec_ints largest[2] = {{0}};
    int64_t i = columns.first;
    for (; i + 2 * BERTH_LANES <= columns.end; i += 2 * BERTH_LANES) {
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) {
            const berth_vec x = berth_vec_load_as(row, dtype, i + k * BERTH_LANES);
            largest[k] = berth_vec_larger(vec_magnitude(x), largest[k]);
        }
    }
    for (; i < columns.end; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(row, dtype, i, columns.end);
        largest[0] = berth_vec_larger(vec_magnitude(x), largest[0]);
    }
    largest[0] = berth_vec_larger(largest[0], largest[1]);
    BERTH_UNROLL
    for (int round = 1; round < BERTH_LANES; round *= 2) {
        const berth_vec folded = (berth_vec)largest[0];
        largest[0] = berth_vec_larger((berth_vec_ints)berth_vec_low(folded, folded),
                                      (berth_vec_ints)berth_vec_high(folded, folded));
    }
    return berth_float_of_bits((uint32_t)largest[0][0]);
}

static float largest_of(const void *row, berth_dtype dtype, berth_span columns) {
    return dtype == BERTH_DTYPE_F32    ? largest_as(row, BERTH_DTYPE_F32, columns)
           : dtype == BERTH_DTYPE_BF16 ? largest_as(row, BERTH_DTYPE_BF16, columns)
                                       : largest_as(row, BERTH_DTYPE_F16, columns);
}

// What becomes of x before it is a code.
typedef enum quant_way { DIVIDED, MULTIPLIED, BY_CHANNEL } quant_way;

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
    berth_span columns;
    float scale;
    const float *channels; // of the whole row
} piece;

BERTH_INLINE berth_vec_bytes codes_of(sweep as, const piece *of, berth_vec x, int64_t first) {
    if (as.way == BY_CHANNEL) {
        const berth_vec scales =
            berth_vec_load_some(of->channels, BERTH_DTYPE_F32, first, of->columns.end);
        return vec_to_f8(x * (berth_vec_of(1) / scales));
    }
    const berth_vec scale = berth_vec_of(of->scale);
    return vec_to_f8(as.way == DIVIDED ? x / scale : x * scale);
}

BERTH_INLINE void quantise_as(sweep as, const piece *all) {
    const piece of = *all; // no store changes it, for all that the compiler knows
    const int64_t end = of.columns.end;
    int64_t i = of.columns.first;
    for (; i + BERTH_LANES <= end; i += BERTH_LANES) {
        BERTH_PREFETCH((const char *)of.next + i * (BERTH_DTYPE_BITS(as.dtype) / 8));
        const berth_vec_bytes codes = codes_of(as, &of, berth_vec_load_as(of.row, as.dtype, i), i);
        memcpy(of.q + i, &codes, sizeof codes);
    }
    if (i < end) {
        const berth_vec x = berth_vec_load_part(of.row, as.dtype, i, end - i);
        const berth_vec_bytes codes = codes_of(as, &of, x, i);
        memcpy(of.q + i, &codes, (size_t)(end - i));
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

static void divide(berth_dtype dtype, const piece *of) {
    quantise_way(DIVIDED, dtype, of);
}

static void multiply(berth_dtype dtype, const piece *of) {
    quantise_way(MULTIPLIED, dtype, of);
}

static void multiply_channels(berth_dtype dtype, const piece *of) {
    quantise_way(BY_CHANNEL, dtype, of);
}

// All of a row.
static piece piece_of(const job *in, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    return (piece){
        .row = berth_row(x, row),
        .next = berth_row(x, row + 1 < berth_row_count(x) ? row + 1 : row),
        .q = berth_row(in->args->outputs[Q], row),
        .columns = {0, berth_row_length(x)},
    };
}

// ---- rows ---------------------------------------------------------------------------------------

static void quantise_groups(const job *in, int64_t row) {
    const quant *self = in->self;
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    float *to = self->is_by_column ? (float *)berth_data(scales) + row : berth_row(scales, row);
    const int64_t step = self->is_by_column ? scales->strides[0] : 1;
    piece of = piece_of(in, row);
    const int64_t width = of.columns.end;
    for (int64_t first = 0; first < width; first += self->group) {
        const int64_t end = first + self->group;
        of.columns = (berth_span){first, end < width ? end : width};
        const float least = berth_f8_scale(largest_of(of.row, dtype, of.columns));
        of.scale = self->is_ue8m0 ? berth_f8_power_of_two(least) : least;
        to[first / self->group * step] = of.scale;
        divide(dtype, &of);
    }
}

static void quantise_token(const job *in, int64_t row) {
    const berth_dtype dtype = in->args->inputs[X]->dtype;
    const berth_tensor *bound = in->args->inputs[SCALE_UB];
    piece of = piece_of(in, row);
    float largest = largest_of(of.row, dtype, of.columns);
    if (bound && largest > *(const float *)berth_data(bound)) {
        largest = *(const float *)berth_data(bound);
    }
    const float used = berth_f8_scale(largest);
    *(float *)berth_row(in->args->outputs[SCALE_OUT], row) = used;
    of.scale = 1.0f / used;
    multiply(dtype, &of);
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
    if (width == 1) {
        of.channels = used;
        multiply_channels(x->dtype, &of);
        return;
    }
    for (int64_t block = 0; block < across; ++block) {
        of.columns = (berth_span){block * width, (block + 1) * width};
        of.scale = 1.0f / used[block];
        multiply(x->dtype, &of);
    }
}

static void find_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    const berth_span columns = {0, berth_row_length(x)};
    float largest = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const float of_row = largest_of(berth_row(x, row), x->dtype, columns);
        largest = berth_max_or_nan(of_row, largest);
    }
    in->largest[part] = largest;
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        if (in->self->is_static || in->self->is_per_tensor) {
            quantise_blocks(in, row);
        } else if (in->self->group > 0) {
            quantise_groups(in, row);
        } else {
            quantise_token(in, row);
        }
    }
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
    return (uint64_t)self->cpu->threads * sizeof(float);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args, .largest = berth_data(args->workspace)};
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
