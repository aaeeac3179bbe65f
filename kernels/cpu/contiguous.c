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

static berth_status forward(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    const int64_t stride = x->strides[x->ndim - 1];
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const void *from = berth_row(x, row);
        if (stride == 1) {
            memcpy(berth_row(y, row), from, (size_t)width * BERTH_DTYPE_BITS(y->dtype) / 8);
        } else if (y->dtype == BERTH_DTYPE_F32) {
            gather(from, stride, berth_row(y, row), width, 1);
        } else {
            gather(from, stride, berth_row(y, row), width, 0);
        }
    }
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
    .forward = forward,
};
