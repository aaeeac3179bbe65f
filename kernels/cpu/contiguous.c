// SPDX-License-Identifier: Apache-2.0
// contiguous: rows whose elements stand together are copied whole.
#include <cpu/cpu.h>

BERTH_INLINE void gather(const void *from, int64_t stride, void *to, int64_t count, int is_f32) {
    for (int64_t i = 0; i < count; ++i) {
        if (is_f32) {
            ((float *)to)[i] = ((const float *)from)[i * stride];
        } else {
            ((uint16_t *)to)[i] = ((const uint16_t *)from)[i * stride];
        }
    }
}

static void copy_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    const int64_t stride = x->strides[x->ndim - 1];
    const berth_rows from = berth_rows_of(x);
    const berth_rows to = berth_rows_of(y);
    const berth_span rows = berth_share(berth_row_count(y), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        const void *source = berth_rows_at(&from, row);
        void *target = berth_rows_at(&to, row);
        if (stride == 1) {
            memcpy(target, source, (size_t)width * BERTH_DTYPE_BITS(y->dtype) / 8);
        } else if (y->dtype == BERTH_DTYPE_F32) {
            gather(source, stride, target, width, 1);
        } else {
            gather(source, stride, target, width, 0);
        }
    }
}

static berth_status forward(void *state, const berth_op_args *args) {
    const berth_tensor *y = args->outputs[0];
    berth_run(((const berth_instance *)state)->cpu, copy_part, args,
              berth_row_count(y) * berth_row_length(y));
    return BERTH_OK;
}

const berth_op_impl berth_kernel_contiguous = {
    .size = sizeof(berth_op_impl),
    .op = "contiguous",
    .name = "cpu.contiguous",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = berth_supports_same,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
