// SPDX-License-Identifier: Apache-2.0
// quant_fp8. Two sweeps of what shares a scale, the second out of the cache: the largest magnitude,
// then the codes. The operations are the reference's, so codes and scales are its bits.
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
    const int64_t *group = berth_site_attribute(site, "group_shape")->i64s;
    if (berth_site_attribute(site, "column_major_scales")->i64 && site->inputs[0]->ndim != 2) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "scales by column are of one matrix here");
    }
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

// Why integers: magnitudes order as they do, and a NaN is above all of them.
BERTH_INLINE float largest_as(const void *row, berth_dtype dtype, berth_span columns) {
    berth_vec_ints largest[2] = {{0}};
    int64_t i = columns.first;
    for (; i + 2 * BERTH_LANES <= columns.end; i += 2 * BERTH_LANES) {
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) {
            const berth_vec x = berth_vec_load_as(row, dtype, i + k * BERTH_LANES);
            largest[k] = vec_larger(vec_magnitude(x), largest[k]);
        }
    }
    for (; i < columns.end; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(row, dtype, i, columns.end);
        largest[0] = vec_larger(vec_magnitude(x), largest[0]);
    }
    largest[0] = vec_larger(largest[0], largest[1]);
    int32_t bits = 0;
    for (int lane = 0; lane < BERTH_LANES; ++lane) {
        bits = largest[0][lane] > bits ? largest[0][lane] : bits;
    }
    return berth_float_of_bits((uint32_t)bits);
}

static float largest_of(const void *row, berth_dtype dtype, berth_span columns) {
    return dtype == BERTH_DTYPE_F32    ? largest_as(row, BERTH_DTYPE_F32, columns)
           : dtype == BERTH_DTYPE_BF16 ? largest_as(row, BERTH_DTYPE_BF16, columns)
                                       : largest_as(row, BERTH_DTYPE_F16, columns);
}

// What a sweep is compiled for: the dtype of a row, and whether it divides by the scale or
// multiplies by its reciprocal.
typedef struct sweep {
    berth_dtype dtype;
    int is_divided;
} sweep;

BERTH_INLINE vec_bytes codes_of(sweep as, berth_vec x, berth_vec scale) {
    return vec_to_f8(as.is_divided ? x / scale : x * scale);
}

BERTH_INLINE void quantise_as(sweep as, const void *row, uint8_t *q, berth_span columns,
                              float scale) {
    const berth_vec factor = berth_vec_of(scale);
    int64_t i = columns.first;
    for (; i + BERTH_LANES <= columns.end; i += BERTH_LANES) {
        const vec_bytes codes = codes_of(as, berth_vec_load_as(row, as.dtype, i), factor);
        memcpy(q + i, &codes, sizeof codes);
    }
    if (i < columns.end) {
        const berth_vec x = berth_vec_load_some(row, as.dtype, i, columns.end);
        const vec_bytes codes = codes_of(as, x, factor);
        memcpy(q + i, &codes, (size_t)(columns.end - i));
    }
}

static void divide(const berth_tensor *x, const void *row, uint8_t *q, berth_span columns,
                   float scale) {
    if (x->dtype == BERTH_DTYPE_F32) {
        quantise_as((sweep){BERTH_DTYPE_F32, 1}, row, q, columns, scale);
    } else if (x->dtype == BERTH_DTYPE_BF16) {
        quantise_as((sweep){BERTH_DTYPE_BF16, 1}, row, q, columns, scale);
    } else {
        quantise_as((sweep){BERTH_DTYPE_F16, 1}, row, q, columns, scale);
    }
}

// A whole row by the reciprocal.
static void multiply(const job *in, int64_t row, float scale) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_span columns = {0, berth_row_length(x)};
    const void *from = berth_row(x, row);
    uint8_t *q = berth_row(in->args->outputs[Q], row);
    if (x->dtype == BERTH_DTYPE_F32) {
        quantise_as((sweep){BERTH_DTYPE_F32, 0}, from, q, columns, 1.0f / scale);
    } else if (x->dtype == BERTH_DTYPE_BF16) {
        quantise_as((sweep){BERTH_DTYPE_BF16, 0}, from, q, columns, 1.0f / scale);
    } else {
        quantise_as((sweep){BERTH_DTYPE_F16, 0}, from, q, columns, 1.0f / scale);
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
        const float least = berth_f8_scale(largest_of(from, x->dtype, columns));
        const float scale = self->is_ue8m0 ? berth_f8_power_of_two(least) : least;
        to[first / self->group * step] = scale;
        divide(x, from, berth_row(in->args->outputs[Q], row), columns, scale);
    }
}

static void quantise_token(const job *in, int64_t row) {
    const berth_tensor *x = in->args->inputs[X];
    const berth_tensor *bound = in->args->inputs[SCALE_UB];
    const berth_span columns = {0, berth_row_length(x)};
    float largest = largest_of(berth_row(x, row), x->dtype, columns);
    if (bound && largest > *(const float *)berth_data(bound)) {
        largest = *(const float *)berth_data(bound);
    }
    const float used = berth_f8_scale(largest);
    *(float *)berth_row(in->args->outputs[SCALE_OUT], row) = used;
    multiply(in, row, used);
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
        if (in->self->is_per_tensor) {
            multiply(in, row, *(const float *)berth_data(in->args->outputs[SCALE_OUT]));
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
