// SPDX-License-Identifier: Apache-2.0
// mixer2_gated_rms_norm: weight · norm(x · silu(gate)) over groups of the row, with one rounding.
// A group that spans ranks is the reference's.
#include <cpu/near.h>
#include <cpu/norm.h>

#include <assert.h>

static const berth_norm_operands operands = {.gate = 1, .weight = 2, .bias = -1, .sum = -1};

BERTH_INLINE berth_vec take(const berth_norm_row *row, berth_norm_kind as, berth_norm_at at) {
    assert(row->gate); // no optional input
    return berth_norm_x(row, as, at) * berth_vec_silu_as(as.dtype, berth_norm_gate(row, as, at));
}

static const berth_norm_form form = {
    .take = take, .give = berth_norm_weigh, .is_gated = 1, .is_kept = 1};

static void part_of(const void *work, int64_t part, int64_t parts) {
    const berth_norm_job *in = work;
    if (in->self->options) {
        berth_norm_part(in, form, part, parts);
    } else {
        berth_norm_map(in, take, part, parts);
    }
}

BERTH_NORM_FORWARD(operands)

static int64_t number(const berth_op_site *site, const char *name) {
    return berth_site_attribute(site, name)->i64;
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return number(site, "tp_size") == 1 || number(site, "full_n_groups") > 1
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "ranks share one group");
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_norm_create(site, device, out_self);
    if (status == BERTH_OK) {
        berth_norm *self = *out_self;
        self->group = number(site, "full_hidden_size") / number(site, "full_n_groups");
        self->options = number(site, "use_rms_norm");
    }
    return status;
}

const berth_op_impl berth_kernel_mixer2_gated_rms_norm = {
    BERTH_NORM_KERNEL("mixer2_gated_rms_norm", create),
    .revision = 1,
    .supports = supports,
};
