// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul_sparse: gelu of what stands above the row's cutoff, rounded, times the second half.
// A row is read twice: for mean and deviation of its gates, then for the result. Rounded where the
// reference does, since a gate near the cutoff is a difference.
#include <cpu/elementwise.h>

#include <quantile.h>

// In doubles: what a gate is above the cutoff is a small part of both.
BERTH_INLINE float cutoff_of(const void *x, berth_dtype dtype, int64_t width, float multiplier) {
    double sum = 0;
    double squares = 0;
    for (int64_t first = 0; first < width; first += BERTH_LANES) {
        sum += (double)berth_vec_sum(berth_vec_load_some(x, dtype, first, width));
    }
    const double mean = sum / (double)width;
    for (int64_t first = 0; first < width; first += BERTH_LANES) {
        const int64_t count = width - first < BERTH_LANES ? width - first : BERTH_LANES;
        const berth_vec distance =
            berth_vec_load_some(x, dtype, first, width) - berth_vec_of((float)mean);
        float lanes[BERTH_LANES];
        berth_vec_store(lanes, distance * distance);
        squares += (double)berth_vec_sum(berth_vec_load_some(lanes, BERTH_DTYPE_F32, 0, count));
    }
    const float rounded = berth_round_to(dtype, (float)mean);
    const float deviation = berth_round_to(dtype, (float)sqrt(squares / (double)width));
    return berth_round_to(dtype, rounded + berth_round_to(dtype, deviation * multiplier));
}

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    const berth_vec kept = berth_vec_max(berth_vec_of(0), a);
    const berth_vec gelu = self->flag ? berth_vec_gelu_tanh(kept) : berth_vec_gelu_erf(kept);
    return berth_vec_round_to(dtype, gelu) * b;
}

BERTH_INLINE void berth_sweep_sparse_row(const berth_sweep *in, berth_vec_formula of,
                                         berth_sweep_kind as, const void *x, void *y) {
    const berth_activation self = *in->self;
    const int64_t width = in->width;
    const berth_vec cutoff = berth_vec_of(cutoff_of(x, as.dtype, width, self.numbers[0]));
    int64_t first = 0;
    for (; first + BERTH_LANES <= width; first += BERTH_LANES) {
        const berth_vec a = berth_vec_load_as(x, as.dtype, first) - cutoff;
        const berth_vec b = berth_vec_load_as(x, as.dtype, width + first);
        berth_sweep_store(as, y, first, of(&self, as.dtype, berth_vec_round_to(as.dtype, a), b));
    }
    if (first < width) {
        const berth_vec a = berth_vec_load_part(x, as.dtype, first, width - first) - cutoff;
        const berth_vec b = berth_vec_load_part(x, as.dtype, width + first, width - first);
        berth_vec_store_part(y, as.dtype, first, width - first,
                             of(&self, as.dtype, berth_vec_round_to(as.dtype, a), b));
    }
}

BERTH_SWEEP(sparse, formula)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_gelu_create(site, device, out_self);
    if (status == BERTH_OK) {
        ((berth_activation *)*out_self)->numbers[0] =
            (float)berth_normal_quantile(berth_site_attribute(site, "activation_sparsity")->f64);
    }
    return status;
}

const berth_op_impl berth_kernel_gelu_and_mul_sparse = {
    BERTH_ACTIVATION_KERNEL("gelu_and_mul_sparse", create),
    .revision = 1,
};
