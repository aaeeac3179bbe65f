// SPDX-License-Identifier: Apache-2.0
// layer_norm: (x − mean) / sqrt(variance + eps) · weight + bias.
#include <cpu/norm.h>

static const berth_norm_operands operands = {.gate = -1, .weight = 1, .bias = 2, .sum = -1};

BERTH_INLINE berth_vec take(const berth_norm_row *row, berth_dtype dtype, int64_t first) {
    return berth_vec_load_some(row->x, dtype, first, row->hidden);
}

BERTH_INLINE berth_vec give(const berth_norm_row *row, berth_dtype dtype, int64_t first,
                            berth_vec normal) {
    (void)dtype;
    const berth_vec scaled = normal * berth_norm_weight(row, first);
    if (!row->bias) {
        return scaled;
    }
    return scaled + berth_vec_load_some(row->bias, row->bias_dtype, first, row->hidden);
}

BERTH_INLINE void one(const berth_norm_row *row, berth_dtype dtype) {
    const float mean = berth_norm_mean(row, dtype, take);
    berth_norm_columns(row, dtype, take, give, (berth_norm_slice){mean, {.end = row->hidden}});
}

BERTH_NORM(one, operands)

const berth_op_impl berth_kernel_layer_norm = {
    BERTH_NORM_KERNEL("layer_norm", berth_norm_create),
    .revision = 1,
};
