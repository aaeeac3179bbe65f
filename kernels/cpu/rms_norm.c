// SPDX-License-Identifier: Apache-2.0
// rms_norm in float32. Two sweeps of a row: the sum of squares, with x + residual written on the
// way, then the scaling.
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

static void add(const float *x, const float *residual, float *sum, int64_t count) {
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
        sum[i] = x[i] + residual[i];
    }
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

static berth_status forward(void *state, const berth_op_args *args) {
    const norm *self = state;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *residual = args->inputs[RESIDUAL];
    const float *weight = args->inputs[WEIGHT] ? berth_data(args->inputs[WEIGHT]) : NULL;
    const int64_t hidden = berth_row_length(x);
    const int64_t columns = self->variance_columns ? self->variance_columns : hidden;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        const float *values = berth_row(x, row);
        if (residual) {
            float *sum = berth_row(args->outputs[RESIDUAL_OUT], row);
            add(values, berth_row(residual, row), sum, hidden);
            values = sum;
        }
        const float mean = berth_dot_f32(values, values, columns) / (float)columns;
        scale(values, 1.0f / sqrtf(mean + self->eps), weight, berth_row(args->outputs[Y], row),
              hidden);
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
    .supports = berth_supports_f32,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
