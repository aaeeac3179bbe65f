// SPDX-License-Identifier: Apache-2.0
// swigluoai_and_mul: (up + 1) · gate · sigmoid(alpha · gate) of clamped pairs, with one rounding.
// Even columns are gates: two vectors are taken apart into gates and ups.
#include <cpu/elementwise.h>
#include <cpu/fetch.h>

enum { ALPHA, LIMIT };

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    const berth_vec limit = berth_vec_round_to(dtype, berth_vec_of(self->numbers[LIMIT]));
    const berth_vec g = berth_vec_at_most(a, limit);
    const berth_vec glu = berth_vec_gate_as(dtype, g, berth_vec_of(self->numbers[ALPHA]), g);
    return (berth_vec_clamp(b, limit) + berth_vec_of(1)) * glu;
}

// The next BERTH_LANES pairs.
BERTH_INLINE berth_vec of_pairs(const berth_activation *self, berth_vec_formula of,
                                berth_dtype dtype, const void *pairs) {
    if (dtype == BERTH_DTYPE_BF16) {
        return of(self, dtype, berth_vec_first(pairs), berth_vec_second(pairs));
    }
    const berth_vec low = berth_vec_load_as(pairs, dtype, 0);
    const berth_vec high = berth_vec_load_as(pairs, dtype, BERTH_LANES);
    return of(self, dtype, berth_vec_even(low, high), berth_vec_odd(low, high));
}

BERTH_INLINE void berth_sweep_paired_row(const berth_sweep *in, berth_vec_formula of,
                                         berth_sweep_kind as, const void *x, void *y) {
    const berth_activation self = *in->self;
    const int64_t width = in->width;
    const int64_t bytes = 2 * (BERTH_DTYPE_BITS(as.dtype) / 8);
    int64_t first = 0;
    for (; first + 2 * BERTH_LANES <= width; first += 2 * BERTH_LANES) {
        const char *pairs = (const char *)x + first * bytes;
        berth_fetch_lines(pairs + BERTH_SWEEP_AHEAD, 2 * BERTH_LANES * bytes, 0);
        const berth_vec low = of_pairs(&self, of, as.dtype, pairs);
        const berth_vec high = of_pairs(&self, of, as.dtype, pairs + BERTH_LANES * bytes);
        berth_sweep_store_two(as, y, first, low, high);
    }
    for (; first + BERTH_LANES <= width; first += BERTH_LANES) {
        const void *pairs = (const char *)x + first * bytes;
        berth_sweep_store(as, y, first, of_pairs(&self, of, as.dtype, pairs));
    }
    if (first < width) {
        float pairs[2 * BERTH_LANES] = {0};
        memcpy(pairs, (const char *)x + first * bytes, (size_t)((width - first) * bytes));
        berth_vec_store_part(y, as.dtype, first, width - first,
                             of_pairs(&self, of, as.dtype, pairs));
    }
}

BERTH_SWEEP(paired, formula)

const berth_op_impl berth_kernel_swigluoai_and_mul = {
    BERTH_ACTIVATION_KERNEL("swigluoai_and_mul", berth_activation_create),
    .revision = 1,
};
