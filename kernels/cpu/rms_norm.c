// SPDX-License-Identifier: Apache-2.0
// rms_norm. Two sweeps of a row, which stays in the first cache: the sum of squares, with
// x + residual written on the way, then the scaling, in 16 bits of the rounded sum. Rounded before
// the weight and at the end, like the reference; with a bias only at the end.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <math.h>

enum { X, RESIDUAL, WEIGHT, BIAS };
enum { Y, RESIDUAL_OUT };

#define SUMS 4 // vectors of partial sums

typedef struct norm {
    const berth_host *host;
    const berth_cpu *cpu;
    float eps;
    int64_t variance_columns; // 0: all
} norm;

// Why: the reference rounds to the weight's dtype before the product, which is within the tolerance
// of x's dtype only where the weight is not narrower.
static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_dtype dtype = site->inputs[X]->dtype;
    const berth_value_type *weight = site->inputs[WEIGHT];
    const berth_value_type *bias = site->inputs[BIAS];
    const berth_value_type *residual = site->inputs[RESIDUAL];
    if (residual && residual->dtype != dtype) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "a residual must have the dtype of 'x' here");
    }
    if (bias && bias->dtype != BERTH_DTYPE_F32 && bias->dtype != dtype) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "a 16-bit bias must have the dtype of 'x' here");
    }
    return !weight || weight->dtype == BERTH_DTYPE_F32 || weight->dtype == dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "a 16-bit weight must have the dtype of 'x' here");
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(norm), out_self);
    if (status == BERTH_OK) {
        norm *self = *out_self;
        self->cpu = device->self;
        self->eps = (float)berth_site_attribute(site, "eps")->f64;
        self->variance_columns = berth_site_attribute(site, "var_hidden_size")->i64;
    }
    return status;
}

// One row of each operand; the optional ones are NULL when absent. In the functions below `dtype`
// is constant, that of all but the weight.
typedef struct row {
    int64_t hidden;
    int64_t variance_columns;
    float eps;
    berth_dtype weight_dtype;
    berth_dtype bias_dtype;
    void *y;
    void *residual_out;
    const void *x;
    const void *residual;
    const void *weight;
    const void *bias;
} row;

// x, or x + residual, which takes x's place in the second sweep from residual_out.
BERTH_INLINE berth_vec take(const row *self, berth_dtype dtype, int64_t first) {
    const berth_vec x = berth_vec_load_some(self->x, dtype, first, self->hidden);
    if (!self->residual) {
        return x;
    }
    const berth_vec sum = x + berth_vec_load_some(self->residual, dtype, first, self->hidden);
    berth_vec_store_some(self->residual_out, dtype, first, self->hidden, sum);
    return sum;
}

// The mean of the first squares. On the way all of residual_out is written.
BERTH_INLINE float mean_of_squares(const row *self, berth_dtype dtype) {
    const int64_t whole = self->variance_columns / (SUMS * BERTH_LANES) * (SUMS * BERTH_LANES);
    berth_vec sums[SUMS] = {berth_vec_of(0), berth_vec_of(0), berth_vec_of(0), berth_vec_of(0)};
    int64_t first = 0;
    for (; first < whole; first += SUMS * BERTH_LANES) {
        BERTH_UNROLL
        for (int i = 0; i < SUMS; ++i) {
            const berth_vec x = take(self, dtype, first + i * BERTH_LANES);
            sums[i] = berth_vec_fma(x, x, sums[i]);
        }
    }
    for (; first < self->hidden; first += BERTH_LANES) {
        float lanes[BERTH_LANES];
        berth_vec_store(lanes, take(self, dtype, first));
        const berth_vec x =
            berth_vec_load_some(lanes, BERTH_DTYPE_F32, 0, self->variance_columns - first);
        sums[0] = berth_vec_fma(x, x, sums[0]);
    }
    return berth_vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3])) / (float)self->variance_columns;
}

BERTH_INLINE void scale(const row *self, berth_dtype dtype, berth_dtype weight_dtype,
                        berth_vec factor) {
    const void *values = self->residual ? self->residual_out : self->x;
    for (int64_t first = 0; first < self->hidden; first += BERTH_LANES) {
        berth_vec y = berth_vec_load_some(values, dtype, first, self->hidden) * factor;
        if (self->weight) {
            const berth_vec normal = self->bias ? y : berth_vec_round_to(weight_dtype, y);
            y = normal * berth_vec_load_some(self->weight, weight_dtype, first, self->hidden);
        }
        if (self->bias) {
            y += berth_vec_load_some(self->bias, self->bias_dtype, first, self->hidden);
        }
        berth_vec_store_some(self->y, dtype, first, self->hidden, y);
    }
}

BERTH_INLINE void normalise(const row *self, berth_dtype dtype) {
    const float mean = mean_of_squares(self, dtype);
    const berth_vec factor = berth_vec_of(1.0f / sqrtf(mean + self->eps));
    if (!self->weight || self->weight_dtype == dtype) {
        scale(self, dtype, dtype, factor);
    } else {
        scale(self, dtype, self->weight_dtype, factor);
    }
}

// ---- all rows -----------------------------------------------------------------------------------

typedef struct job {
    const norm *self;
    const berth_op_args *args;
} job;

static void normalise_part(const void *work, int64_t part, int64_t parts) {
    const job *in = work;
    const berth_tensor *const *inputs = in->args->inputs;
    const int has_residual = inputs[RESIDUAL] != NULL;
    const int64_t hidden = berth_row_length(inputs[X]);
    const int64_t columns = in->self->variance_columns;
    const berth_rows x = berth_rows_of(inputs[X]);
    const berth_rows y = berth_rows_of(in->args->outputs[Y]);
    const berth_rows residual = has_residual ? berth_rows_of(inputs[RESIDUAL]) : x;
    const berth_rows residual_out =
        has_residual ? berth_rows_of(in->args->outputs[RESIDUAL_OUT]) : y;
    const berth_span rows = berth_share(berth_row_count(inputs[X]), part, parts);
    row at = {
        .hidden = hidden,
        .variance_columns = columns ? columns : hidden,
        .eps = in->self->eps,
    };
    if (inputs[WEIGHT]) {
        at.weight = berth_data(inputs[WEIGHT]);
        at.weight_dtype = inputs[WEIGHT]->dtype;
    }
    if (inputs[BIAS]) {
        at.bias = berth_data(inputs[BIAS]);
        at.bias_dtype = inputs[BIAS]->dtype;
    }
    for (int64_t i = rows.first; i < rows.end; ++i) {
        at.x = berth_rows_at(&x, i);
        at.y = berth_rows_at(&y, i);
        at.residual = has_residual ? berth_rows_at(&residual, i) : NULL;
        at.residual_out = has_residual ? berth_rows_at(&residual_out, i) : NULL;
        if (inputs[X]->dtype == BERTH_DTYPE_F32) {
            normalise(&at, BERTH_DTYPE_F32);
        } else if (inputs[X]->dtype == BERTH_DTYPE_BF16) {
            normalise(&at, BERTH_DTYPE_BF16);
        } else {
            normalise(&at, BERTH_DTYPE_F16);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const job in = {.self = state, .args = args};
    const berth_tensor *x = args->inputs[X];
    berth_run(in.self->cpu, normalise_part, &in, berth_row_count(x) * berth_row_length(x));
    return BERTH_OK;
}

const berth_op_impl berth_kernel_rms_norm = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norm",
    .name = "cpu.rms_norm",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_IN_PLACE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = berth_instance_free,
};
