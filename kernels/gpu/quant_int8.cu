// SPDX-License-Identifier: Apache-2.0
// quant_int8 on a GPU: a block a row (quant_rows.h).
#include "quant_rows.h"

namespace {

enum { X, SCALE, ZERO_POINT };

constexpr float MOST = 127.0f;

__device__ uint16_t pair_of(uint8_t low, uint8_t high) {
    return static_cast<uint16_t>(low | high << 8);
}

struct of_row {
    static constexpr bool IS_GIVEN = false;
    __device__ float magnitude(float value) const {
        return value == value ? fabsf(value) : 0.0f;
    }
    __device__ float scale(float largest) const {
        return gpu_div_rn(largest, MOST);
    }
    __device__ float factor(float largest) const {
        return largest > 0 ? gpu_mul_rn(gpu_div_rn(1.0f, largest), MOST) : 0.0f;
    }
    __device__ uint8_t code(float value, float factor) const {
        return gpu_to_i8_bits(gpu_mul_rn(value, factor));
    }
    __device__ uint16_t pair(float low, float high, float factor) const {
        return pair_of(code(low, factor), code(high, factor));
    }
};

struct as_given {
    static constexpr bool IS_GIVEN = true;
    const float *given;
    const int8_t *zero; // NULL: 0
    __device__ float magnitude(float) const {
        return 0;
    }
    __device__ float scale(float) const {
        return *given;
    }
    __device__ float factor(float) const {
        return *given;
    }
    __device__ uint8_t code(float value, float factor) const {
        const float number = zero ? static_cast<float>(*zero) : 0.0f;
        return gpu_to_i8_bits(gpu_add_rn(rintf(gpu_div_rn(value, factor)), number));
    }
    __device__ uint16_t pair(float low, float high, float factor) const {
        return pair_of(code(low, factor), code(high, factor));
    }
};

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *given = args->inputs[SCALE];
    const berth_tensor *zero = args->inputs[ZERO_POINT];
    if (berth_tensor_row_count(args->inputs[X]) == 0) {
        return BERTH_OK;
    }
    if (!given) {
        return gpu_quant_rows(op, args, of_row{});
    }
    const as_given rule = {
        static_cast<const float *>(berth_gpu_data(given)),
        zero ? static_cast<const int8_t *>(berth_gpu_data(zero)) : nullptr,
    };
    return gpu_quant_rows(op, args, rule);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_quant_int8;
const berth_op_impl berth_kernel_quant_int8 = {
    BERTH_GPU_KERNEL("quant_int8"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
