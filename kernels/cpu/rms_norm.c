// SPDX-License-Identifier: Apache-2.0
// rms_norm. Two sweeps of a row: the sum of squares, with x + residual written on the way, then the
// scaling, in 16 bits of the rounded sum. One rounding at the end.
#include <cpu/cpu.h>

#include <math.h>

enum { X, RESIDUAL, WEIGHT };
enum { Y, RESIDUAL_OUT };

typedef struct norm {
    const berth_host *host;
    float eps;
    int64_t variance_columns; // 0: all
} norm;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    const berth_status status = berth_instance_new(site, sizeof(norm), out_self);
    if (status == BERTH_OK) {
        norm *self = *out_self;
        self->eps = (float)berth_site_attribute(site, "eps")->f64;
        self->variance_columns = berth_site_attribute(site, "var_hidden_size")->i64;
    }
    return status;
}

// One row of each operand; the optional ones are NULL when absent.
typedef struct rows {
    berth_dtype dtype; // of all but the weight
    berth_dtype weight_dtype;
    int64_t hidden;
    void *y;
    void *residual_out;
    const void *x;
    const void *residual;
    const void *weight;
} rows;

// x + residual, which takes x's place in the second sweep from residual_out.
static const float *add(const rows *row, int64_t first, int64_t count, float *room) {
    float x_room[BERTH_CHUNK];
    float residual_room[BERTH_CHUNK];
    const float *x = berth_floats(row->x, row->dtype, first, count, x_room);
    const float *residual = berth_floats(row->residual, row->dtype, first, count, residual_room);
    float *sum = berth_floats_of(row->residual_out, row->dtype, first, room);
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
        sum[i] = x[i] + residual[i];
    }
    berth_floats_done(row->residual_out, row->dtype, first, count, sum);
    return sum;
}

// Of the first `columns`; on the way all of residual_out is written.
static float sum_of_squares(const rows *row, int64_t columns) {
    float room[BERTH_CHUNK];
    float sum = 0;
    for (int64_t first = 0; first < row->hidden; first += BERTH_CHUNK) {
        const int64_t count = berth_chunk(row->hidden, first);
        const int64_t counted = columns - first < count ? columns - first : count;
        const float *values = row->residual ? add(row, first, count, room)
                                            : berth_floats(row->x, row->dtype, first, count, room);
        sum += counted > 0 ? berth_dot_f32(values, values, counted) : 0;
    }
    return sum;
}

static void scale(const float *x, float factor, const float *weight, float *y, int64_t count) {
    if (!weight) {
        BERTH_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) {
            y[i] = x[i] * factor;
        }
        return;
    }
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
        y[i] = x[i] * factor * weight[i];
    }
}

static void normalise(const rows *row, float factor) {
    const void *values = row->residual ? row->residual_out : row->x;
    float values_room[BERTH_CHUNK];
    float weight_room[BERTH_CHUNK];
    float y_room[BERTH_CHUNK];
    for (int64_t first = 0; first < row->hidden; first += BERTH_CHUNK) {
        const int64_t count = berth_chunk(row->hidden, first);
        const float *x = berth_floats(values, row->dtype, first, count, values_room);
        const float *weight =
            row->weight ? berth_floats(row->weight, row->weight_dtype, first, count, weight_room)
                        : NULL;
        float *y = berth_floats_of(row->y, row->dtype, first, y_room);
        scale(x, factor, weight, y, count);
        berth_floats_done(row->y, row->dtype, first, count, y);
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const norm *self = state;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *residual = args->inputs[RESIDUAL];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const int64_t hidden = berth_row_length(x);
    const int64_t columns = self->variance_columns ? self->variance_columns : hidden;
    rows row = {
        .dtype = x->dtype,
        .hidden = hidden,
        .weight = weight ? berth_data(weight) : NULL,
        .weight_dtype = weight ? weight->dtype : BERTH_DTYPE_NONE,
    };
    for (int64_t i = 0; i < berth_row_count(x); ++i) {
        row.x = berth_row(x, i);
        row.y = berth_row(args->outputs[Y], i);
        row.residual = residual ? berth_row(residual, i) : NULL;
        row.residual_out = residual ? berth_row(args->outputs[RESIDUAL_OUT], i) : NULL;
        const float mean = sum_of_squares(&row, columns) / (float)columns;
        normalise(&row, 1.0f / sqrtf(mean + self->eps));
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_rms_norm = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norm",
    .name = "cpu.rms_norm",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_IN_PLACE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
