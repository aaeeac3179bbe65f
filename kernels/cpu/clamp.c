// SPDX-License-Identifier: Apache-2.0
// clamp: x, but no further from 0 than the limit.
#include <cpu/elementwise.h>

enum { LIMIT };

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)unused;
    return berth_vec_clamp(x, berth_vec_round_to(dtype, berth_vec_of(self->numbers[LIMIT])));
}

BERTH_SWEEP(exact_unary, formula)

const berth_op_impl berth_kernel_clamp = {
    BERTH_ACTIVATION_KERNEL("clamp", berth_activation_create),
    .revision = 1,
};
