// SPDX-License-Identifier: Apache-2.0
// quant_fp8. Largest magnitudes, quotients and codes of a chunk are loops of vector code; the
// operations are the reference's, so codes and scales are its bits.
#include <cpu/cpu.h>

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
    const int64_t *group = berth_site_attribute(site, "group_shape")->i64s;
    return !berth_site_attribute(site, "static")->i64 || (group[0] == -1 && group[1] == -1)
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "given scales are for whole tensors here");
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

// Why bits: magnitudes order as integers do, and a NaN is above all of them.
static float largest_of(const void *row, berth_dtype dtype, int64_t first, int64_t end) {
    float room[BERTH_CHUNK];
    uint32_t largest = 0;
    for (int64_t i = first; i < end; i += BERTH_CHUNK) {
        const int64_t count = berth_chunk(end, i);
        const float *x = berth_floats(row, dtype, i, count, room);
        for (int64_t j = 0; j < count; ++j) {
            const uint32_t bits = berth_bits_of_float(x[j]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
    }
    return berth_float_of_bits(largest);
}

// Codes of columns [first, end): x · factor, or x / divisor where the factor is 0.
static void quantise(const berth_tensor *x, const void *row, uint8_t *q, berth_span columns,
                     const float scale[2]) {
    float room[BERTH_CHUNK];
    float scaled[BERTH_CHUNK];
    for (int64_t i = columns.first; i < columns.end; i += BERTH_CHUNK) {
        const int64_t count = berth_chunk(columns.end, i);
        const float *from = berth_floats(row, x->dtype, i, count, room);
        for (int64_t j = 0; j < count && scale[0] != 0; ++j) {
            scaled[j] = from[j] * scale[0];
        }
        for (int64_t j = 0; j < count && scale[0] == 0; ++j) {
            scaled[j] = from[j] / scale[1];
        }
        for (int64_t j = 0; j < count; ++j) {
            q[i + j] = berth_to_f8(scaled[j]);
        }
    }
}

// ---- rows ---------------------------------------------------------------------------------------

static void quantise_groups(const job *in, int64_t row) {
    const quant *self = in->self;
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *scales = in->args->outputs[SCALE_OUT];
    const int64_t width = berth_row_length(x);
    const void *from = berth_row(x, row);
    float *to = self->is_by_column ? (float *)berth_data(scales) + row : berth_row(scales, row);
    const int64_t step = self->is_by_column ? scales->strides[0] : 1;
    for (int64_t first = 0; first < width; first += self->group) {
        const berth_span columns = {first,
                                    first + self->group < width ? first + self->group : width};
        float scale[] = {0, berth_f8_scale(largest_of(from, x->dtype, first, columns.end))};
        scale[1] = self->is_ue8m0 ? berth_f8_power_of_two(scale[1]) : scale[1];
        to[first / self->group * step] = scale[1];
        quantise(x, from, berth_row(in->args->outputs[Q], row), columns, scale);
    }
}

static void quantise_token(const job *in, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *bound = in->args->inputs[SCALE_UB];
    const berth_span columns = {0, berth_row_length(x)};
    float largest = largest_of(berth_row(x, row), x->dtype, 0, columns.end);
    if (bound && largest > *(const float *)berth_data(bound)) {
        largest = *(const float *)berth_data(bound);
    }
    const float used = berth_f8_scale(largest);
    const float scale[] = {1.0f / used, used};
    *(float *)berth_row(in->args->outputs[SCALE_OUT], row) = used;
    quantise(x, berth_row(x, row), berth_row(in->args->outputs[Q], row), columns, scale);
}

static void find_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    float largest = 0;
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const float of_row = largest_of(berth_row(x, row), x->dtype, 0, berth_row_length(x));
        largest = berth_max_or_nan(of_row, largest);
    }
    in->largest[part] = largest;
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *x = in->args->inputs[X];
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    const berth_span columns = {0, berth_row_length(x)};
    for (int64_t row = rows.first; row < rows.end; ++row) {
        if (in->self->is_per_tensor) {
            const float used = *(const float *)berth_data(in->args->outputs[SCALE_OUT]);
            const float scale[] = {1.0f / used, used};
            quantise(x, berth_row(x, row), berth_row(in->args->outputs[Q], row), columns, scale);
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

static void scale_tensor(const job *in) {
    float *used = berth_data(in->args->outputs[SCALE_OUT]);
    if (in->self->is_static) {
        *used = *(const float *)berth_data(in->args->inputs[SCALE]);
        return;
    }
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
    if (in.self->is_per_tensor) {
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
