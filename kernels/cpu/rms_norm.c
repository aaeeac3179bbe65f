// SPDX-License-Identifier: Apache-2.0
// rms_norm: x / sqrt(mean(x²) + eps) · weight, the mean over the first var_hidden_size columns; x +
// residual in x's place, kept in float32 for the norm and written rounded. In float16 rounded where
// the reference does.
#include <cpu/norm.h>

enum { X, RESIDUAL, WEIGHT };

static const berth_norm_operands operands = {
    .gate = RESIDUAL,
    .weight = WEIGHT,
    .bias = -1,
    .sum = 1,
};

// Why: the reference rounds to the weight's dtype before the product, which is within the tolerance
// of x's dtype only where the weight is not narrower.
static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_dtype dtype = site->inputs[X]->dtype;
    const berth_value_type *weight = site->inputs[WEIGHT];
    const berth_value_type *residual = site->inputs[RESIDUAL];
    if (residual && residual->dtype != dtype) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "a residual must have the dtype of 'x' here");
    }
    return !weight || weight->dtype == BERTH_DTYPE_F32 || weight->dtype == dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "a 16-bit weight must have the dtype of 'x' here");
}

BERTH_INLINE berth_vec sum_of(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at) {
    return berth_vec_round_as(dtype, berth_norm_sum(row, dtype, at));
}

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                            berth_vec normal) {
    return berth_vec_round_as(dtype, normal) * berth_norm_weight(row, at);
}

static void part_of(const void *work, int64_t part, int64_t parts) {
    const berth_norm_job *in = work;
    const berth_norm_form sums = {.take = sum_of, .give = give, .is_kept = 1};
    const berth_norm_form plain = {.take = berth_norm_x, .give = give};
    if (berth_norm_input(in, operands.gate)) {
        berth_norm_part(in, sums, part, parts);
    } else {
        berth_norm_part(in, plain, part, parts);
    }
}

BERTH_NORM_FORWARD(operands)

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_norm_create(site, device, out_self);
    if (status == BERTH_OK) {
        ((berth_norm *)*out_self)->measured = berth_site_attribute(site, "var_hidden_size")->i64;
    }
    return status;
}

const berth_op_impl berth_kernel_rms_norm = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norm",
    .name = "cpu.rms_norm",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_IN_PLACE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = berth_norm_workspace,
    .forward = forward,
    .destroy = berth_instance_free,
};
