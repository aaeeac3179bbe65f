// SPDX-License-Identifier: Apache-2.0
// rms_norm. Two sweeps of a row: the sum of squares, then the scaling, each with x + residual where
// there is a residual. One rounding at the end.
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

// One row of each operand.
typedef struct rows {
    const void *x;
    const void *residual; // NULL: none, and no residual_out
    void *residual_out;
    const void *weight; // NULL: ones
    void *y;
} rows;

// x, or x + residual.
BERTH_INLINE float value_at(const rows *row, berth_dtype dtype, int64_t i) {
    const float x = berth_load_at(row->x, dtype, i);
    return row->residual ? x + berth_load_at(row->residual, dtype, i) : x;
}

// In sixteen partial sums, which the compiler keeps in vector registers.
BERTH_INLINE float sum_of_squares(const rows *row, berth_dtype dtype, int64_t count) {
    float sums[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (int64_t lane = 0; lane < 16; ++lane) {
            const float value = value_at(row, dtype, i + lane);
            sums[lane] += value * value;
        }
    }
    float sum = 0;
    for (int64_t lane = 0; lane < 16; ++lane) {
        sum += sums[lane];
    }
    for (; i < count; ++i) {
        sum += value_at(row, dtype, i) * value_at(row, dtype, i);
    }
    return sum;
}

BERTH_INLINE void scale(const rows *row, berth_dtype dtype, float factor, int64_t count) {
    BERTH_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
        const float value = value_at(row, dtype, i);
        const float weight = row->weight ? berth_load_at(row->weight, dtype, i) : 1;
        if (row->residual) {
            berth_store_at(row->residual_out, dtype, i, value);
        }
        berth_store_at(row->y, dtype, i, value * factor * weight);
    }
}

BERTH_INLINE void normalise(const norm *self, rows row, berth_dtype dtype, int64_t hidden) {
    const int64_t columns = self->variance_columns ? self->variance_columns : hidden;
    const float mean = sum_of_squares(&row, dtype, columns) / (float)columns;
    scale(&row, dtype, 1.0f / sqrtf(mean + self->eps), hidden);
}

static berth_status forward(void *state, const berth_op_args *args) {
    const norm *self = state;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *residual = args->inputs[RESIDUAL];
    const int64_t hidden = berth_row_length(x);
    rows row = {.weight = args->inputs[WEIGHT] ? berth_data(args->inputs[WEIGHT]) : NULL};
    for (int64_t i = 0; i < berth_row_count(x); ++i) {
        row.x = berth_row(x, i);
        row.y = berth_row(args->outputs[Y], i);
        row.residual = residual ? berth_row(residual, i) : NULL;
        row.residual_out = residual ? berth_row(args->outputs[RESIDUAL_OUT], i) : NULL;
        if (x->dtype == BERTH_DTYPE_F32) {
            normalise(self, row, BERTH_DTYPE_F32, hidden);
        } else if (x->dtype == BERTH_DTYPE_BF16) {
            normalise(self, row, BERTH_DTYPE_BF16, hidden);
        } else {
            normalise(self, row, BERTH_DTYPE_F16, hidden);
        }
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
    .supports = berth_supports_same,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
