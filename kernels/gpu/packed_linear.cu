// SPDX-License-Identifier: Apache-2.0
// packed_linear on a GPU, of every code, group and permutation: weights become numbers on their way
// to the products, whose sums are in f32. Few rows: a warp an output, so that codes are read once.
// More: tiles in shared memory.
#include "codes.h"
#include "tiles.h"

namespace {

constexpr int WARPS = 8;   // of a block, few rows
constexpr int MAX_FEW = 4; // rows
constexpr int WIDE = 8;    // codes that a lane takes at once

enum { X, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, BIAS, OUTPUT_SCALE };

struct packed : gpu_op {
    berth_code code;
    gpu_code_scales scales;
};

struct operands {
    berth_code code;
    gpu_rows x;
    const uint8_t *weight;
    int64_t weight_gap; // bytes of a row
    gpu_code_scales scales;
    const uint8_t *zeros;       // NULL: the code's own
    const int32_t *permutation; // NULL: columns are in their order
    const void *bias;           // NULL: absent
    berth_dtype bias_dtype;
    const float *factors; // of outputs, NULL: 1
    gpu_rows y;
    int rows, outputs, depth;
};

__device__ float zero_of(const operands &all, int output, int group) {
    return all.zeros
               ? static_cast<float>(all.zeros[output / all.scales.rows * all.scales.across + group])
           : all.code == BERTH_CODE_U4 ? 8.0f
           : all.code == BERTH_CODE_U8 ? 128.0f
                                       : 0.0f;
}

__device__ bool is_half(berth_code code) {
    return code == BERTH_CODE_U4 || code == BERTH_CODE_E2M1;
}

// Code k of a row's bytes.
__device__ uint32_t code_at(berth_code code, const uint8_t *row, int k) {
    return is_half(code) ? row[k / 2] >> (k % 2 * 4) & 15u : row[k];
}

__device__ float weight_at(const operands &all, int output, int k) {
    const int group = static_cast<int>(k / all.scales.columns);
    const uint32_t bits = code_at(all.code, all.weight + output * all.weight_gap, k);
    return (gpu_code_value(all.code, bits) - zero_of(all, output, group)) *
           gpu_code_scale(all.scales, output, group);
}

// WIDE weights from k on, which are of one group.
__device__ void weights_at(const operands &all, int output, int k, float *out) {
    const int group = static_cast<int>(k / all.scales.columns);
    const float zero = zero_of(all, output, group);
    const float scale = gpu_code_scale(all.scales, output, group);
    const uint8_t *row = all.weight + output * all.weight_gap;
    gpu_pack<uint8_t, WIDE> bytes = {};
    if (is_half(all.code)) {
        const uint32_t word = *reinterpret_cast<const uint32_t *>(row + k / 2);
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            bytes.at[j] = static_cast<uint8_t>(word >> 4 * j & 15u);
        }
    } else {
        bytes = gpu_load<uint8_t, WIDE>(row, k);
    }
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
        out[j] = (gpu_code_value(all.code, bytes.at[j]) - zero) * scale;
    }
}

template <typename T> __device__ float input_at(const operands &all, int row, int k) {
    return gpu_float(gpu_row<const T>(all.x, row)[all.permutation ? all.permutation[k] : k]);
}

template <typename T> __device__ void finish(const operands &all, int row, int output, float sum) {
    const float bias = all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
    const float factor = all.factors ? all.factors[output] : 1.0f;
    gpu_row<T>(all.y, row)[output] = gpu_round<T>(sum * factor + bias);
}

template <typename T, bool IS_WIDE> __global__ void few_rows_kernel(operands all) {
    constexpr int N = IS_WIDE ? WIDE : 1;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int output = static_cast<int>(blockIdx.x) * WARPS + threadIdx.y;
    if (output >= all.outputs) {
        return;
    }
    float sums[MAX_FEW] = {};
    for (int k = threadIdx.x * N; k < all.depth; k += 32 * N) {
        float w[N];
        if (IS_WIDE) {
            weights_at(all, output, k, w);
        } else {
            w[0] = weight_at(all, output, k);
        }
#pragma unroll
        for (int row = 0; row < MAX_FEW; ++row) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                sums[row] += row < all.rows ? w[j] * input_at<T>(all, row, k + j) : 0.0f;
            }
        }
    }
#pragma unroll
    for (int row = 0; row < MAX_FEW; ++row) {
        const float sum = gpu_warp_sum(sums[row]);
        if (row < all.rows && threadIdx.x == 0) {
            finish<T>(all, row, output, sum);
        }
    }
}

template <typename T> __global__ void tiles_kernel(operands all) {
    __shared__ gpu_tile_room room;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int first_output = static_cast<int>(blockIdx.x) * GPU_TILE;
    const int first_row = static_cast<int>(blockIdx.y) * GPU_TILE;
    gpu_tile_product(
        all.depth, &room,
        [&](int row, int k) {
            return first_row + row < all.rows ? input_at<T>(all, first_row + row, k) : 0.0f;
        },
        [&](int output, int k) {
            return first_output + output < all.outputs ? weight_at(all, first_output + output, k)
                                                       : 0.0f;
        },
        [&](int row, int output, float sum) {
            if (first_row + row < all.rows && first_output + output < all.outputs) {
                finish<T>(all, first_row + row, first_output + output, sum);
            }
        });
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<packed>(site, device, out_self);
    if (status == BERTH_OK) {
        const berth_value_type *x = site->inputs[X];
        packed *self = static_cast<packed *>(*out_self);
        self->code = berth_code_of(berth_site_attribute(site, "code")->str);
        self->scales =
            gpu_code_scales_of(site, site->inputs[WEIGHT]->dims[0].b, x->dims[x->ndim - 1].b);
    }
    return status;
}

operands operands_of(const packed *op, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *zeros = args->inputs[ZERO_POINTS];
    const berth_tensor *permutation = args->inputs[PERMUTATION];
    const berth_tensor *bias = args->inputs[BIAS];
    const berth_tensor *factors = args->inputs[OUTPUT_SCALE];
    operands all = {};
    all.code = op->code;
    all.x = gpu_rows_of(x);
    all.weight = static_cast<const uint8_t *>(berth_gpu_data(weight));
    all.weight_gap = weight->shape[1];
    all.scales = gpu_code_scales_at(op->scales, args->inputs[WEIGHT_SCALE]);
    all.zeros = zeros ? static_cast<const uint8_t *>(berth_gpu_data(zeros)) : nullptr;
    all.permutation =
        permutation ? static_cast<const int32_t *>(berth_gpu_data(permutation)) : nullptr;
    all.bias = bias ? berth_gpu_data(bias) : nullptr;
    all.bias_dtype = bias ? bias->dtype : BERTH_DTYPE_F32;
    all.factors = factors ? static_cast<const float *>(berth_gpu_data(factors)) : nullptr;
    all.y = gpu_rows_of(args->outputs[0]);
    all.rows = static_cast<int>(berth_tensor_row_count(x));
    all.outputs = static_cast<int>(weight->shape[0]);
    all.depth = static_cast<int>(x->shape[x->ndim - 1]);
    return all;
}

template <typename T> berth_status start(const packed *op, const operands &all) {
    const gpu_grid few = {dim3(gpu_ceil(all.outputs, WARPS)), dim3(32, WARPS), 0};
    const gpu_grid tiles = {dim3(gpu_ceil(all.outputs, GPU_TILE), gpu_ceil(all.rows, GPU_TILE)),
                            dim3(GPU_TILE_THREADS), 0};
    const bool is_wide = all.depth % WIDE == 0 && all.scales.columns % WIDE == 0 &&
                         reinterpret_cast<uintptr_t>(all.weight) % WIDE == 0;
    return all.rows > MAX_FEW ? gpu_run(op, "packed_linear", tiles, tiles_kernel<T>, all)
           : is_wide          ? gpu_run(op, "packed_linear", few, few_rows_kernel<T, true>, all)
                              : gpu_run(op, "packed_linear", few, few_rows_kernel<T, false>, all);
}

berth_status forward(void *self, const berth_op_args *args) {
    const packed *op = static_cast<const packed *>(self);
    const operands all = operands_of(op, args);
    return all.rows == 0 ? BERTH_OK : gpu_with_type(args->inputs[X]->dtype, [&](auto type) {
        return start<typename decltype(type)::type>(op, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_packed_linear;
const berth_op_impl berth_kernel_packed_linear = {
    BERTH_GPU_KERNEL("packed_linear"),
    .revision = 2,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
