// SPDX-License-Identifier: Apache-2.0
// rms_norm: x / sqrt(mean(x²) + eps) · weight + bias; x + residual in x's place, kept in float32
// for the norm and written rounded. y is rounded once, at its end, as the op allows.
#include <cpu/norm.h>

enum { X, RESIDUAL, WEIGHT, BIAS };
enum { Y, RESIDUAL_OUT };

static const berth_norm_operands operands = {
    .gate = RESIDUAL,
    .weight = WEIGHT,
    .bias = BIAS,
    .sum = RESIDUAL_OUT,
};

// Why: the reference rounds to the weight's dtype before the product, which is within the tolerance
// of x's dtype only where the weight is not narrower.
static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_dtype dtype = site->inputs[X]->dtype;
    const berth_value_type *weight = site->inputs[WEIGHT];
    const berth_value_type *bias = site->inputs[BIAS];
    const berth_value_type *residual = site->inputs[RESIDUAL];
    if (residual && residual->dtype != dtype) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "a residual must have the dtype of 'x' here");
    }
    if (bias && bias->dtype != BERTH_DTYPE_F32 && bias->dtype != dtype) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "a 16-bit bias must have the dtype of 'x' here");
    }
    return !weight || weight->dtype == BERTH_DTYPE_F32 || weight->dtype == dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "a 16-bit weight must have the dtype of 'x' here");
}

static const berth_norm_form alone = {
    .take = berth_norm_x,
    .give = berth_norm_weigh_and_add,
};
static const berth_norm_form with_residual = {
    .take = berth_norm_sum,
    .give = berth_norm_weigh_and_add,
    .is_gated = 1,
    .is_kept = 1,
    .is_summed = 1,
};

BERTH_NORM_EITHER(berth_norm_input(in, operands.gate), with_residual, alone, operands)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_norm_create(site, device, out_self);
    const int64_t measured = berth_site_attribute(site, "var_hidden_size")->i64;
    if (status == BERTH_OK) {
        berth_norm *self = *out_self;
        self->measured = measured < self->hidden ? measured : 0;
    }
    return status;
}

const berth_op_impl berth_kernel_rms_norm = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norm",
    .name = "cpu.rms_norm",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_IN_PLACE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = berth_norm_workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
