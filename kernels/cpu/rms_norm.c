// SPDX-License-Identifier: Apache-2.0
// rms_norm: x / sqrt(mean(x²) + eps) · weight; x + residual, rounded, in x's place. Rounded before
// the weight and at the end, like the reference.
#include <cpu/norm.h>

enum { X, RESIDUAL, WEIGHT };

enum { IS_ROUNDED = 1 }; // option: before the weight

static const berth_norm_operands operands = {
    .gate = RESIDUAL,
    .weight = WEIGHT,
    .bias = -1,
    .sum = 1,
};

BERTH_INLINE berth_vec sum_of(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at) {
    return berth_vec_round_to(dtype,
                              berth_norm_x(row, dtype, at) + berth_norm_gate(row, dtype, at));
}

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, berth_norm_at at,
                            berth_vec normal) {
    const berth_vec rounded =
        row->self->options & IS_ROUNDED ? berth_vec_round_to(dtype, normal) : normal;
    return rounded * berth_norm_weight(row, at);
}

BERTH_INLINE void scale(const berth_norm_row *row, berth_sweep_kind as, berth_norm_take take) {
    const int64_t columns = row->self->group > 0 ? row->self->group : row->hidden;
    const berth_norm_slice all = {
        .columns = {0, row->hidden},
        .factor = berth_norm_factor(row, as.dtype, take, 0, (berth_span){0, columns    }
          ),
    };
    berth_norm_scale(row, as, take, give, &all);
}

BERTH_INLINE void one(const berth_norm_row *row, berth_sweep_kind as) {
    if (row->gate) {
        berth_norm_keep(row, as, sum_of, BERTH_NORM_VALUES);
        scale(row, as, berth_norm_value);
    } else {
        scale(row, as, berth_norm_x);
    }
}

BERTH_NORM(one, operands)

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

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = berth_norm_create(site, device, out_self);
    const berth_value_type *weight = site->inputs[WEIGHT];
    if (status == BERTH_OK) {
        berth_norm *self = *out_self;
        self->group = berth_site_attribute(site, "var_hidden_size")->i64;
        self->options = weight && weight->dtype == site->inputs[X]->dtype ? IS_ROUNDED : 0;
    }
    return status;
}

const berth_op_impl berth_kernel_rms_norm = {
    BERTH_NORM_KERNEL("rms_norm", create),
    .revision = 1,
    .supports = supports,
};
