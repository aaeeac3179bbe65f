// SPDX-License-Identifier: Apache-2.0
// mla_decode_concat_quant_fp8 on a GPU: an element a thread.
#include "codes.h"
#include "each.h"

namespace {

enum { DECODE_QL_NOPE, DECODE_Q_PE, SCALE };

struct formula {
    gpu_rows nope;
    gpu_rows pe;
    int64_t split; // columns of the first part
    const float *scale;

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const T value =
            i < split ? gpu_row<const T>(nope, row)[i] : gpu_row<const T>(pe, row)[i - split];
        return gpu_mul_rn(gpu_float(value), gpu_div_rn(1.0f, *scale));
    }
};

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *nope = args->inputs[DECODE_QL_NOPE];
    const formula all = {gpu_rows_of(nope), gpu_rows_of(args->inputs[DECODE_Q_PE]), nope->shape[2],
                         static_cast<const float *>(berth_gpu_data(args->inputs[SCALE]))};
    return gpu_with_type(nope->dtype, [&](auto type) {
        return gpu_each<typename decltype(type)::type, gpu_f8>(op, all, args->outputs[0]);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mla_decode_concat_quant_fp8;
const berth_op_impl berth_kernel_mla_decode_concat_quant_fp8 = {
    BERTH_GPU_KERNEL("mla_decode_concat_quant_fp8"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
