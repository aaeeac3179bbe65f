// SPDX-License-Identifier: Apache-2.0
// quant_nvfp4 on a GPU: a thread a group of 16. Codes and scales are the reference's bits: every
// step is one correctly rounded operation.
#include "codes.h"

namespace {

enum { X, GLOBAL_SCALE };
enum { Q, SCALE };

constexpr int GROUP = 16;
constexpr int THREADS = 128;

struct operands {
    gpu_rows x;
    gpu_rows q;
    gpu_rows scales;
    const float *global;
    int64_t groups; // of a row
    int64_t count;  // of all
};

// Twice a number of e2m1, which is whole: to nearest, ties to the even code; a NaN becomes 12.
__device__ int8_t twice_e2m1(float value) {
    const float size = fabsf(value);
    const int twice = size <= 0.25f   ? 0
                      : size < 0.75f  ? 1
                      : size <= 1.25f ? 2
                      : size < 1.75f  ? 3
                      : size <= 2.5f  ? 4
                      : size < 3.5f   ? 6
                      : size <= 5.0f  ? 8
                                      : 12;
    return static_cast<int8_t>(value < 0 ? -twice : twice);
}

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
    float largest = 0;
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
        values[i] = gpu_float(x[i]);
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    }
    const float global = *all.global;
    const float wanted = gpu_mul_rn(global, gpu_mul_rn(largest, 1.0f / 6.0f));
    const float local =
        gpu_from_f8_bits(gpu_to_f8_bits(wanted < BERTH_F8_MAX ? wanted : BERTH_F8_MAX));
    const float factor =
        local > 0 ? gpu_div_rn(1.0f, gpu_mul_rn(local, gpu_div_rn(1.0f, global))) : 0.0f;
    gpu_pack<int8_t, GROUP> codes;
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
        codes.at[i] = twice_e2m1(gpu_mul_rn(values[i], factor));
    }
    gpu_store<int8_t, GROUP>(q, 0, codes);
    gpu_row<float>(all.scales, row)[group] = gpu_mul_rn(0.5f, gpu_div_rn(local, global));
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *x = args->inputs[X];
    operands all = {};
    all.x = gpu_rows_of(x);
    all.q = gpu_rows_of(args->outputs[Q]);
    all.scales = gpu_rows_of(args->outputs[SCALE]);
    all.global = static_cast<const float *>(berth_gpu_data(args->inputs[GLOBAL_SCALE]));
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
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
