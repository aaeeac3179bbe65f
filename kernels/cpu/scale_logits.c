// SPDX-License-Identifier: Apache-2.0
// scale_logits: every step rounded to x's dtype, as the reference has it.
#include <cpu/elementwise.h>

enum { SCALE, SOFT_CAP }; // as `create` finds them

BERTH_INLINE berth_vec formula(const berth_activation *self, berth_dtype dtype, berth_vec x,
                               berth_vec unused) {
    (void)unused;
    if (self->numbers[SOFT_CAP] > 0) {
        const berth_vec cap = berth_vec_of(self->numbers[SOFT_CAP]);
        const berth_vec share = berth_vec_round_to(dtype, x / cap);
        x = berth_vec_round_to(dtype, berth_vec_round_to(dtype, berth_vec_tanh(share)) * cap);
    }
    return berth_vec_of(self->numbers[SCALE]) * x;
}

BERTH_SWEEP(exact_unary, formula)

const berth_op_impl berth_kernel_scale_logits = {
    BERTH_ACTIVATION_KERNEL("scale_logits", berth_activation_create),
    .revision = 1,
};
