// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated: norm(x)·weight·act(z), or norm(x·act(z))·weight, over groups of the row.
#include <cpu/near.h>
#include <cpu/norm.h>

enum { IS_SIGMOID = 1, IS_NORM_FIRST = 2 }; // options

static const berth_norm_operands operands = {.gate = 2, .weight = 1, .bias = -1, .sum = -1};

static int is_gate_first(const berth_norm_job *in) {
    return berth_norm_input(in, operands.gate) && !(in->self->options & IS_NORM_FIRST);
}

BERTH_INLINE berth_vec gated(const berth_norm_row *row, berth_norm_kind as, berth_norm_at at,
                             berth_vec value) {
    const berth_vec z = berth_norm_gate(row, as, at);
    return value * (row->self->options & IS_SIGMOID ? berth_vec_sigmoid_as(as.dtype, z)
                                                    : berth_vec_silu_as(as.dtype, z));
}

BERTH_INLINE berth_vec take(const berth_norm_row *row, berth_norm_kind as, berth_norm_at at) {
    return gated(row, as, at, berth_norm_x(row, as, at));
}

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_norm_kind as, berth_norm_at at,
                            berth_vec normal) {
    const berth_vec scaled = berth_norm_weigh(row, as, at, normal);
    return row->gate ? gated(row, as, at, scaled) : scaled;
}

static const berth_norm_form gate_first = {
    .take = take, .give = berth_norm_weigh, .is_gated = 1, .is_kept = 1};
static const berth_norm_form norm_first = {.take = berth_norm_x, .give = give, .is_gated = 1};

BERTH_NORM_EITHER(is_gate_first(in), gate_first, norm_first, operands)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_norm_create(site, device, out_self);
    if (status == BERTH_OK) {
        berth_norm *self = *out_self;
        self->group = berth_site_attribute(site, "group_size")->i64;
        self->options = (berth_norm_gate_is_sigmoid(site) ? IS_SIGMOID : 0) |
                        (berth_site_attribute(site, "norm_before_gate")->i64 ? IS_NORM_FIRST : 0);
    }
    return status;
}

const berth_op_impl berth_kernel_rms_norm_gated = {
    BERTH_NORM_KERNEL("rms_norm_gated", create),
    .revision = 1,
};
