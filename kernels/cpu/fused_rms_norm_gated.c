// SPDX-License-Identifier: Apache-2.0
// fused_rms_norm_gated: x / sqrt(mean(x²) + eps) · weight · act(g).
#include <cpu/near.h>
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = 1, .weight = 2, .bias = -1, .sum = -1};

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_norm_kind as, berth_norm_at at,
                            berth_vec normal) {
    const berth_vec g = berth_norm_gate(row, as, at);
    const berth_vec gate =
        row->self->options ? berth_vec_sigmoid_as(as.dtype, g) : berth_vec_silu_as(as.dtype, g);
    return berth_norm_weigh(row, as, at, normal) * gate;
}

static const berth_norm_form form = {.take = berth_norm_x, .give = give, .is_gated = 1};

BERTH_NORM(form, operands)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_norm_create(site, device, out_self);
    if (status == BERTH_OK) {
        ((berth_norm *)*out_self)->options = berth_norm_gate_is_sigmoid(site);
    }
    return status;
}

const berth_op_impl berth_kernel_fused_rms_norm_gated = {
    BERTH_NORM_KERNEL("fused_rms_norm_gated", create),
    .revision = 1,
};
