// SPDX-License-Identifier: Apache-2.0
// contiguous in float32: rows whose elements stand together are copied whole.
#include <cpu/cpu.h>

static void gather(const float *from, int64_t stride, float *to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        to[i] = from[i * stride];
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    const int64_t stride = x->strides[x->ndim - 1];
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        if (stride == 1) {
            memcpy(berth_row(y, row), berth_row(x, row), (size_t)width * sizeof(float));
        } else {
            gather(berth_row(x, row), stride, berth_row(y, row), width);
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
    .supports = berth_supports_f32,
    .forward = forward,
};
