// SPDX-License-Identifier: Apache-2.0
// gelu_and_mul: gelu of the first half, rounded, times the second.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec by_erf(const berth_activation *self, berth_dtype dtype, berth_vec a,
                              berth_vec b) {
    (void)self;
    return berth_vec_round_as(dtype, berth_vec_gelu_erf_as(dtype, a)) * b;
}

BERTH_INLINE berth_vec by_tanh(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    (void)self;
    return berth_vec_round_as(dtype, berth_vec_gelu_tanh_as(dtype, a)) * b;
}

BERTH_SWEEP_EITHER(gated, by_tanh, by_erf)

const berth_op_impl berth_kernel_gelu_and_mul = {
    BERTH_ACTIVATION_KERNEL("gelu_and_mul", berth_gelu_create),
    .revision = 1,
};
