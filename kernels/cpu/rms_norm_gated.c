// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated: norm(x)·weight·act(z), or norm(x·act(z))·weight, over groups of the row.
#include <cpu/norm.h>

enum { IS_SIGMOID = 1, IS_NORM_FIRST = 2 }; // options

static const berth_norm_operands operands = {.gate = 2, .weight = 1, .bias = -1, .sum = -1};

BERTH_INLINE berth_vec gated(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                             berth_vec value) {
    const berth_vec z = berth_norm_gate(row, dtype, at);
    return value * (row->self->options & IS_SIGMOID ? berth_vec_sigmoid_as(dtype, z)
                                                    : berth_vec_silu_as(dtype, z));
}

BERTH_INLINE berth_vec take(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at) {
    return gated(row, dtype, at, berth_norm_x(row, dtype, at));
}

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                            berth_vec normal) {
    const berth_vec scaled = normal * berth_norm_weight(row, at);
    if (!row->gate || !(row->self->options & IS_NORM_FIRST)) {
        return scaled;
    }
    return gated(row, dtype, at, scaled);
}

static void part_of(const void *work, int64_t part, int64_t parts) {
    const berth_norm_job *in = work;
    const berth_norm_form gated_first = {.take = take, .give = give, .is_kept = 1};
    const berth_norm_form plain = {.take = berth_norm_x, .give = give};
    if (berth_norm_input(in, operands.gate) && !(in->self->options & IS_NORM_FIRST)) {
        berth_norm_part(in, gated_first, part, parts);
    } else {
        berth_norm_part(in, plain, part, parts);
    }
}

BERTH_NORM_FORWARD(operands)

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
