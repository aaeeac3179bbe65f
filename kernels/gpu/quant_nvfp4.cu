// SPDX-License-Identifier: Apache-2.0
// quant_nvfp4 on a GPU: a thread a group of 16. Codes and scales are the reference's bits.
#include "nvfp4.h"

namespace {

enum { X, GLOBAL_SCALE, SCALE_DIVISOR };
enum { Q, SCALE };

constexpr int GROUP = BERTH_NVFP4_GROUP;
constexpr int THREADS = 128;

struct operands {
    gpu_rows x;
    gpu_rows q;
    gpu_rows scales;
    const float *global;
    const float *divisor; // of scales
    int64_t groups;       // of a row
    int64_t count;        // of all
};

template <typename T> __global__ void quantise_kernel(operands all) {
    const int64_t number = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (number >= all.count) {
        return;
    }
    const int64_t row = number / all.groups;
    const int64_t group = number % all.groups;
    const T *x = gpu_row<const T>(all.x, row) + group * GROUP;
    int8_t *q = gpu_row<int8_t>(all.q, row) + group * GROUP;
    float values[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
        values[i] = gpu_float(x[i]);
    }
    gpu_pack<int8_t, GROUP> codes;
    const float local = gpu_nvfp4_group(values, *all.global, &codes);
    gpu_row<float>(all.scales, row)[group] = gpu_nvfp4_scale(local, *all.divisor);
    gpu_store<int8_t, GROUP>(q, 0, codes);
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *divisor = args->inputs[SCALE_DIVISOR];
    operands all = {};
    all.x = gpu_rows_of(x);
    all.q = gpu_rows_of(args->outputs[Q]);
    all.scales = gpu_rows_of(args->outputs[SCALE]);
    all.global = static_cast<const float *>(berth_gpu_data(args->inputs[GLOBAL_SCALE]));
    all.divisor = divisor ? static_cast<const float *>(berth_gpu_data(divisor)) : all.global;
    all.groups = x->shape[x->ndim - 1] / GROUP;
    all.count = berth_tensor_row_count(x) * all.groups;
    if (all.count == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(x->dtype, [&](auto type) {
        const gpu_grid grid = {dim3(gpu_ceil(all.count, THREADS)), dim3(THREADS), 0};
        return gpu_run(op, "quant_nvfp4", grid, quantise_kernel<typename decltype(type)::type>,
                       all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_quant_nvfp4;
const berth_op_impl berth_kernel_quant_nvfp4 = {
    BERTH_GPU_KERNEL("quant_nvfp4"),
    .revision = 2,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
