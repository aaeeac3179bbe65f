// SPDX-License-Identifier: Apache-2.0
// swigluoai_and_mul: (up + 1) · gate · sigmoid(alpha · gate) of clamped pairs, with one rounding.
// Even columns are gates: two vectors are taken apart into gates and ups.
#include <cpu/elementwise.h>

enum { ALPHA, LIMIT };

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    const berth_vec limit = berth_vec_round_to(dtype, berth_vec_of(self->numbers[LIMIT]));
    const berth_vec g = berth_vec_at_most(a, limit);
    const berth_vec glu = g * berth_vec_sigmoid(berth_vec_of(self->numbers[ALPHA]) * g);
    return (berth_vec_clamp(b, limit) + berth_vec_of(1)) * glu;
}

// Lane i of the result is lane 2i + `odd` of the two vectors one after the other.
BERTH_INLINE berth_vec every_second(berth_vec a, berth_vec b, int odd) {
    berth_vec taken = a;
    BERTH_UNROLL
    for (int lane = 0; lane < BERTH_LANES / 2; ++lane) {
        taken[lane] = a[2 * lane + odd];
        taken[lane + BERTH_LANES / 2] = b[2 * lane + odd];
    }
    return taken;
}

BERTH_INLINE void berth_sweep_paired_row(const berth_sweep *in, berth_vec_formula of,
                                         berth_dtype dtype, const void *x, void *y) {
    for (int64_t first = 0; first < in->width; first += BERTH_LANES) {
        const berth_vec low = berth_vec_load_some(x, dtype, 2 * first, 2 * in->width);
        const berth_vec high =
            berth_vec_load_some(x, dtype, 2 * first + BERTH_LANES, 2 * in->width);
        berth_vec_store_some(
            y, dtype, first, in->width,
            of(in->self, dtype, every_second(low, high, 0), every_second(low, high, 1)));
    }
}

BERTH_SWEEP(paired, formula)

const berth_op_impl berth_kernel_swigluoai_and_mul = {
    BERTH_ACTIVATION_KERNEL("swigluoai_and_mul", berth_activation_create),
    .revision = 1,
};
