// SPDX-License-Identifier: Apache-2.0
// fatrelu_and_mul: (gate above the threshold, else 0) · up.
#include <cpu/elementwise.h>

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec a,
                               berth_vec b) {
    (void)dtype;
    const berth_vec threshold = berth_vec_of(self->numbers[0]);
    return berth_vec_pick((berth_vec_ints)(a <= threshold), berth_vec_of(0), a) * b;
}

BERTH_SWEEP(exact_gated, formula)

const berth_op_impl berth_kernel_fatrelu_and_mul = {
    BERTH_ACTIVATION_KERNEL("fatrelu_and_mul", berth_activation_create),
    .revision = 1,
};
