// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul_sparse: gelu of what stands above the row's cutoff, rounded, times the second half.
// The gates of a row are read three times: for their mean, their deviation and the result.
#include <cpu/elementwise.h>

#include <quantile.h>

enum { MULTIPLIER, CUTOFF }; // the numbers of an instance

#define SUMS  4                           // side by side
#define BLOCK (64 * (int64_t)BERTH_LANES) // elements that are added up in float32

typedef berth_vec (*sum_formula)(berth_vec sum, berth_vec distance);

BERTH_INLINE berth_vec add(berth_vec sum, berth_vec distance) {
    return sum + distance;
}

BERTH_INLINE berth_vec add_square(berth_vec sum, berth_vec distance) {
    return berth_vec_fma(distance, distance, sum);
}

BERTH_INLINE float sum_of(const void *x, berth_dtype dtype, berth_span columns, sum_formula formula,
                          berth_vec from) {
    berth_vec sums[SUMS] = {{0}};
    int64_t i = columns.first;
    for (; i + SUMS * BERTH_LANES <= columns.end; i += SUMS * BERTH_LANES) {
        BERTH_UNROLL
        for (int k = 0; k < SUMS; ++k) {
            const berth_vec one = berth_vec_load_as(x, dtype, i + k * BERTH_LANES);
            sums[k] = formula(sums[k], one - from);
        }
    }
    for (; i < columns.end; i += BERTH_LANES) {
        const berth_vec distance = berth_vec_load_some(x, dtype, i, columns.end) - from;
        const int64_t left = columns.end - i;
        sums[0] = formula(sums[0], left < BERTH_LANES ? berth_vec_cut(distance, left) : distance);
    }
    return berth_vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// The mean of the formula's terms, from block to block in doubles: what a gate is above the cutoff
// is a small part of both.
BERTH_INLINE double mean_of(const void *x, berth_dtype dtype, int64_t width, sum_formula formula,
                            float from) {
    double sum = 0;
    for (int64_t first = 0; first < width; first += BLOCK) {
        const int64_t end = first + BLOCK < width ? first + BLOCK : width;
        sum += (double)sum_of(x, dtype, (berth_span){first, end}, formula, berth_vec_of(from));
    }
    return sum / (double)width;
}

BERTH_INLINE float cutoff_of(const void *x, berth_dtype dtype, int64_t width, float multiplier) {
    const float mean = (float)mean_of(x, dtype, width, add, 0);
    const double squares = mean_of(x, dtype, width, add_square, mean);
    const float deviation = berth_round_to(dtype, (float)sqrt(squares));
    return berth_round_to(dtype, berth_round_to(dtype, mean) +
                                     berth_round_to(dtype, deviation * multiplier));
}

// Rounded where the reference does, in bf16 too: so few results are not 0 that the last place of
// the largest one is much beside their mean.
BERTH_INLINE berth_vec kept_of(const berth_activation *self, berth_dtype dtype, berth_vec a) {
    const berth_vec above = a - berth_vec_of(self->numbers[CUTOFF]);
    return berth_vec_max(berth_vec_of(0), berth_vec_round_to(dtype, above));
}

BERTH_INLINE berth_vec by_tanh(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    return berth_vec_round_to(dtype, berth_vec_gelu_tanh(kept_of(self, dtype, a))) * b;
}

BERTH_INLINE berth_vec by_erf(const berth_activation *self, berth_dtype dtype, berth_vec a,
                              berth_vec b) {
    return berth_vec_round_to(dtype, berth_vec_gelu_erf(kept_of(self, dtype, a))) * b;
}

BERTH_INLINE void berth_sweep_sparse_row(const berth_sweep *all, berth_vec_formula formula,
                                         berth_sweep_kind as, const void *x, void *y) {
    berth_activation self = *all->self;
    berth_sweep in = *all;
    self.numbers[CUTOFF] = cutoff_of(x, as.dtype, in.width, self.numbers[MULTIPLIER]);
    in.self = &self;
    berth_sweep_gated_row(&in, formula, as, x, y);
}

BERTH_SWEEP_EITHER(sparse, by_tanh, by_erf)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_gelu_create(site, device, out_self);
    if (status == BERTH_OK) {
        ((berth_activation *)*out_self)->numbers[MULTIPLIER] =
            (float)berth_normal_quantile(berth_site_attribute(site, "activation_sparsity")->f64);
    }
    return status;
}

const berth_op_impl berth_kernel_gelu_and_mul_sparse = {
    BERTH_ACTIVATION_KERNEL("gelu_and_mul_sparse", create),
    .revision = 1,
};
