// SPDX-License-Identifier: Apache-2.0
// dequantize on a GPU: the number of each code times the scale of its group.
#include "codes.h"
#include "each.h"

namespace {

enum { X, SCALE };

struct formula {
    gpu_rows x;
    gpu_rows scale;
    berth_code code;
    int64_t group;
    int64_t scale_rows; // 0: one for all

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const float *its = gpu_row<const float>(scale, scale_rows ? row : 0);
        const uint32_t bits = gpu_row<const uint8_t>(x, row)[i];
        return gpu_mul_rn(gpu_code_value(code, bits), its[i / group]);
    }
};

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *scale = args->inputs[SCALE];
    const formula times = {
        gpu_rows_of(x),
        gpu_rows_of(scale),
        x->dtype == BERTH_DTYPE_I8 ? BERTH_CODE_I8 : BERTH_CODE_E4M3,
        x->shape[x->ndim - 1] / scale->shape[scale->ndim - 1],
        berth_tensor_row_count(scale) > 1,
    };
    return gpu_with_type(args->outputs[0]->dtype, [&](auto type) {
        return gpu_each<uint8_t, typename decltype(type)::type>(op, times, args->outputs[0]);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_dequantize;
const berth_op_impl berth_kernel_dequantize = {
    BERTH_GPU_KERNEL("dequantize"),
    .revision = 2,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
