// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul_sparse: gelu of what stands above the row's cutoff, rounded, times the second half.
// A row is read twice: for mean and deviation of its gates, then for the result.
#include <cpu/elementwise.h>

#include <quantile.h>

#define SUMS 4 // vectors of partial sums

static double total_of(const berth_vec sums[SUMS]) {
    return (double)berth_vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Of the squares about a number near the mean, whose part in them is taken off: the mean of the
// first vector. In doubles from there on: what a gate is above the cutoff is a small part of both.
BERTH_INLINE float cutoff_of(const void *x, berth_dtype dtype, int64_t width, float multiplier) {
    const int64_t some = width < BERTH_LANES ? width : BERTH_LANES;
    const float near = berth_vec_sum(berth_vec_load_some(x, dtype, 0, width)) / (float)some;
    berth_vec sums[SUMS] = {{0}};
    berth_vec squares[SUMS] = {{0}};
    int64_t first = 0;
    for (; first + SUMS * BERTH_LANES <= width; first += SUMS * BERTH_LANES) {
        BERTH_UNROLL
        for (int i = 0; i < SUMS; ++i) {
            berth_sweep_fetch((berth_sweep_kind){.dtype = dtype}, x, first + i * BERTH_LANES, 0);
            const berth_vec distance =
                berth_vec_load_as(x, dtype, first + i * BERTH_LANES) - berth_vec_of(near);
            sums[i] = sums[i] + distance;
            squares[i] = berth_vec_fma(distance, distance, squares[i]);
        }
    }
    for (; first < width; first += BERTH_LANES) {
        const berth_vec distance = berth_vec_cut(
            berth_vec_load_some(x, dtype, first, width) - berth_vec_of(near), width - first);
        sums[0] = sums[0] + distance;
        squares[0] = berth_vec_fma(distance, distance, squares[0]);
    }
    const double count = (double)width;
    const double off = total_of(sums) / count;
    const double all = total_of(squares) / count;
    const double left = isinf(all) ? all : all - off * off;
    const double variance = left < 0 ? 0 : left; // a NaN stays
    const float mean = berth_round_to(dtype, (float)(near + off));
    const float deviation = berth_round_to(dtype, (float)sqrt(variance));
    return berth_round_to(dtype, mean + berth_round_to(dtype, deviation * multiplier));
}

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    const berth_vec kept = berth_vec_max(berth_vec_of(0), a);
    return b * berth_vec_round_as(dtype, self->flag ? berth_vec_gelu_tanh_as(dtype, kept)
                                                    : berth_vec_gelu_erf_as(dtype, kept));
}

BERTH_INLINE void berth_sweep_sparse_row(const berth_sweep *in, berth_vec_formula of,
                                         berth_sweep_kind as, const void *x, void *y) {
    const berth_activation self = *in->self;
    const int64_t width = in->width;
    const berth_vec cutoff = berth_vec_of(cutoff_of(x, as.dtype, width, self.numbers[0]));
    int64_t first = 0;
    for (; first + 2 * BERTH_LANES <= width; first += 2 * BERTH_LANES) {
        const int64_t then = first + BERTH_LANES;
        as.is_gated = 1;
        berth_sweep_fetch(as, x, width + first, BERTH_LANES);
        const berth_vec a =
            berth_vec_round_as(as.dtype, berth_vec_load_as(x, as.dtype, first) - cutoff);
        const berth_vec b = berth_vec_load_as(x, as.dtype, width + first);
        const berth_vec c =
            berth_vec_round_as(as.dtype, berth_vec_load_as(x, as.dtype, then) - cutoff);
        const berth_vec d = berth_vec_load_as(x, as.dtype, width + then);
        berth_sweep_store_two(as, y, first, of(&self, as.dtype, a, b), of(&self, as.dtype, c, d));
    }
    for (; first < width; first += BERTH_LANES) {
        const berth_vec a =
            berth_vec_round_as(as.dtype, berth_vec_load_some(x, as.dtype, first, width) - cutoff);
        const berth_vec b = berth_vec_load_some(x, as.dtype, width + first, 2 * width);
        berth_vec_store_some(y, as.dtype, first, width, of(&self, as.dtype, a, b));
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
