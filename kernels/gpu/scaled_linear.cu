// SPDX-License-Identifier: Apache-2.0
// scaled_linear on a GPU of any kind, codes of i8 and e4m3 in groups of any size: codes become
// numbers, sums of a group are of integers or of f32. Few rows: a warp an output, so that weights
// are read once. More: tiles in shared memory. It is the one that takes what faster kernels do not:
// groups of columns, f32 results, devices whose tensor cores know no e4m3.
#include "codes.h"
#include "tiles.h"

namespace {

constexpr int WARPS = 8;   // of a block, few rows
constexpr int MAX_FEW = 4; // rows

enum { X, X_SCALE, WEIGHT, WEIGHT_SCALE, SUM_BIAS, BIAS };

struct scaled : gpu_op {
    gpu_code_scales scales;
};

struct operands {
    gpu_rows x;
    const uint8_t *weight; // [outputs, depth]
    gpu_code_scales scales;
    gpu_rows x_scales;
    int x_scale_rows;        // 0: one for all
    int x_scale_groups;      // 0: one a row
    const int32_t *sum_bias; // NULL: none
    const void *bias;        // NULL: absent
    berth_dtype bias_dtype;
    gpu_rows y;
    int rows, outputs, depth;
};

// Codes of either type, and what their products are summed in.
struct i8_codes {
    using sum = int32_t;
    static __device__ float number(uint8_t code) {
        return static_cast<float>(static_cast<int8_t>(code));
    }
};
struct f8_codes {
    using sum = float;
    static __device__ float number(uint8_t code) {
        return gpu_from_f8_bits(code);
    }
};

__device__ float x_scale_of(const operands &all, int row, int group) {
    const float *of_row = gpu_row<const float>(all.x_scales, all.x_scale_rows ? row : 0);
    return of_row[all.x_scale_groups ? group : 0];
}

__device__ float scale_of(const operands &all, int row, int output, int group) {
    return x_scale_of(all, row, group) * gpu_code_scale(all.scales, output, group);
}

// `sum` is what groups have made of it, or without groups the sum of products of codes.
template <typename Y, typename S>
__device__ void finish(const operands &all, int row, int output, S sum, bool is_scaled) {
    const float bias = all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
    double value = sum;
    if (!is_scaled) { // rounded once: an activation's code may depend on the last bit
        const S whole = sum + (all.sum_bias ? static_cast<S>(all.sum_bias[output]) : S(0));
        value = static_cast<double>(whole) * x_scale_of(all, row, 0) *
                gpu_code_scale(all.scales, output, 0);
    }
    gpu_row<Y>(all.y, row)[output] = gpu_round<Y>(static_cast<float>(value + bias));
}

// ---- few rows -----------------------------------------------------------------------------------

template <typename C, int N>
__device__ typename C::sum dot(const gpu_pack<uint8_t, N> &a, const gpu_pack<uint8_t, N> &b) {
    float sum = 0; // of up to 16 products: exact for i8
#pragma unroll
    for (int j = 0; j < N; ++j) {
        sum += C::number(a.at[j]) * C::number(b.at[j]);
    }
    return static_cast<typename C::sum>(sum);
}

__device__ int32_t warp_sum(int32_t value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value += gpu_shuffle_xor(value, mask);
    }
    return value;
}
__device__ float warp_sum(float value) {
    return gpu_warp_sum(value);
}

// N codes at once, which are of one group.
template <typename Y, typename C, bool IS_GROUPED, int N>
__global__ void few_rows_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int output = static_cast<int>(blockIdx.x) * WARPS + threadIdx.y;
    if (output >= all.outputs) {
        return;
    }
    const uint8_t *weight = all.weight + static_cast<int64_t>(output) * all.depth;
    typename C::sum sums[MAX_FEW] = {};
    float totals[MAX_FEW] = {};
    for (int k = threadIdx.x * N; k < all.depth; k += 32 * N) {
        const gpu_pack<uint8_t, N> w = gpu_load<uint8_t, N>(weight, k);
#pragma unroll
        for (int row = 0; row < MAX_FEW; ++row) {
            if (row < all.rows) {
                const gpu_pack<uint8_t, N> x =
                    gpu_load<uint8_t, N>(gpu_row<const uint8_t>(all.x, row), k);
                const typename C::sum sum = dot<C, N>(x, w);
                if (IS_GROUPED) {
                    totals[row] +=
                        static_cast<float>(sum) *
                        scale_of(all, row, output, static_cast<int>(k / all.scales.columns));
                } else {
                    sums[row] += sum;
                }
            }
        }
    }
#pragma unroll
    for (int row = 0; row < MAX_FEW; ++row) {
        const float total = gpu_warp_sum(totals[row]);
        const typename C::sum sum = warp_sum(sums[row]);
        if (row < all.rows && threadIdx.x == 0) {
            if (IS_GROUPED) {
                finish<Y>(all, row, output, total, true);
            } else {
                finish<Y>(all, row, output, sum, false);
            }
        }
    }
}

// ---- tiles --------------------------------------------------------------------------------------

constexpr int MINE = GPU_TILE_PER_THREAD;

// A slice of the depth [k, end), at most GPU_TILE_DEPTH: sums of products of codes, exact for i8.
template <typename C>
__device__ void slice(const operands &all, gpu_tile_room *room, int k, int end,
                      float (*sums)[MINE]) {
    const int first_output = static_cast<int>(blockIdx.x) * GPU_TILE;
    const int first_row = static_cast<int>(blockIdx.y) * GPU_TILE;
    gpu_tile_load(room->rows, end, k, [&](int row, int at) {
        return first_row + row < all.rows
                   ? C::number(gpu_row<const uint8_t>(all.x, first_row + row)[at])
                   : 0.0f;
    });
    gpu_tile_load(room->outputs, end, k, [&](int output, int at) {
        const int64_t number = first_output + output;
        return number < all.outputs ? C::number(all.weight[number * all.depth + at]) : 0.0f;
    });
    __syncthreads();
#pragma unroll
    for (int d = 0; d < GPU_TILE_DEPTH; ++d) {
        gpu_tile_step(room->rows[d] + threadIdx.x / 16 * MINE,
                      room->outputs[d] + threadIdx.x % 16 * MINE, sums);
    }
    __syncthreads();
}

// The thread's first row and output.
__device__ int my_row() {
    return static_cast<int>(blockIdx.y) * GPU_TILE + threadIdx.x / 16 * MINE;
}
__device__ int my_output() {
    return static_cast<int>(blockIdx.x) * GPU_TILE + threadIdx.x % 16 * MINE;
}

// For each of the thread's rows and outputs that are there: call(i, j, row, output).
template <typename F> __device__ void for_mine(const operands &all, F call) {
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
#pragma unroll
        for (int j = 0; j < MINE; ++j) {
            if (my_row() + i < all.rows && my_output() + j < all.outputs) {
                call(i, j, my_row() + i, my_output() + j);
            }
        }
    }
}

template <typename Y, typename C> __global__ void tiles_kernel(operands all) {
    __shared__ gpu_tile_room room;
    typename C::sum totals[MINE][MINE] = {};
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int k = 0; k < all.depth; k += GPU_TILE_DEPTH) {
        float sums[MINE][MINE] = {};
        slice<C>(all, &room, k, all.depth, sums);
        for_mine(all, [&](int i, int j, int, int) {
            totals[i][j] += static_cast<typename C::sum>(sums[i][j]);
        });
    }
    for_mine(all, [&](int i, int j, int row, int output) {
        finish<Y>(all, row, output, totals[i][j], false);
    });
}

// Slices end where groups do.
template <typename Y, typename C> __global__ void group_tiles_kernel(operands all) {
    __shared__ gpu_tile_room room;
    float totals[MINE][MINE] = {};
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int group = 0; group < all.scales.across; ++group) {
        const int first = group * static_cast<int>(all.scales.columns);
        const int there = all.depth - first;
        const int end =
            first + (there < all.scales.columns ? there : static_cast<int>(all.scales.columns));
        float sums[MINE][MINE] = {};
        for (int k = first; k < end; k += GPU_TILE_DEPTH) {
            slice<C>(all, &room, k, end, sums);
        }
        for_mine(all, [&](int i, int j, int row, int output) {
            totals[i][j] += sums[i][j] * scale_of(all, row, output, group);
        });
    }
    for_mine(all, [&](int i, int j, int row, int output) {
        finish<Y>(all, row, output, totals[i][j], true);
    });
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_rank(site, X);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<scaled>(site, device, out_self);
    if (status == BERTH_OK) {
        const berth_value_type *weight = site->inputs[WEIGHT];
        static_cast<scaled *>(*out_self)->scales =
            gpu_code_scales_of(site, weight->dims[0].b, weight->dims[1].b);
    }
    return status;
}

operands operands_of(const scaled *op, const berth_op_args *args) {
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *x_scale = args->inputs[X_SCALE];
    const berth_tensor *sum_bias = args->inputs[SUM_BIAS];
    const berth_tensor *bias = args->inputs[BIAS];
    const int has_groups = x_scale->shape[x_scale->ndim - 1] > 1;
    operands all = {};
    all.x = gpu_rows_of(args->inputs[X]);
    all.weight = static_cast<const uint8_t *>(berth_gpu_data(weight));
    all.scales = gpu_code_scales_at(op->scales, args->inputs[WEIGHT_SCALE]);
    all.x_scales = gpu_rows_of(x_scale);
    all.x_scale_rows = has_groups || berth_tensor_row_count(x_scale) > 1;
    all.x_scale_groups = has_groups;
    all.sum_bias = sum_bias ? static_cast<const int32_t *>(berth_gpu_data(sum_bias)) : nullptr;
    all.bias = bias ? berth_gpu_data(bias) : nullptr;
    all.bias_dtype = bias ? bias->dtype : BERTH_DTYPE_F32;
    all.y = gpu_rows_of(args->outputs[0]);
    all.rows = static_cast<int>(berth_tensor_row_count(args->inputs[X]));
    all.outputs = static_cast<int>(weight->shape[0]);
    all.depth = static_cast<int>(weight->shape[1]);
    return all;
}

template <typename Y, typename C, bool IS_GROUPED>
berth_status start_few(const scaled *op, const operands &all) {
    const bool is_wide = all.depth % 16 == 0 && gpu_is_aligned(all.x) &&
                         reinterpret_cast<uintptr_t>(all.weight) % 16 == 0 &&
                         (!IS_GROUPED || all.scales.columns % 16 == 0);
    const gpu_grid grid = {dim3(gpu_ceil(all.outputs, WARPS)), dim3(32, WARPS), 0};
    return is_wide ? gpu_run(op, "scaled_linear", grid, few_rows_kernel<Y, C, IS_GROUPED, 16>, all)
                   : gpu_run(op, "scaled_linear", grid, few_rows_kernel<Y, C, IS_GROUPED, 1>, all);
}

template <typename Y, typename C> berth_status start(const scaled *op, const operands &all) {
    const bool is_grouped = all.scales.across > 1;
    if (all.rows <= MAX_FEW) {
        return is_grouped ? start_few<Y, C, true>(op, all) : start_few<Y, C, false>(op, all);
    }
    const gpu_grid grid = {dim3(gpu_ceil(all.outputs, GPU_TILE), gpu_ceil(all.rows, GPU_TILE)),
                           dim3(GPU_TILE_THREADS), 0};
    return is_grouped ? gpu_run(op, "scaled_linear", grid, group_tiles_kernel<Y, C>, all)
                      : gpu_run(op, "scaled_linear", grid, tiles_kernel<Y, C>, all);
}

berth_status forward(void *self, const berth_op_args *args) {
    const scaled *op = static_cast<const scaled *>(self);
    const operands all = operands_of(op, args);
    if (all.rows == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(args->outputs[0]->dtype, [&](auto type) {
        using Y = typename decltype(type)::type;
        return args->inputs[X]->dtype == BERTH_DTYPE_I8 ? start<Y, i8_codes>(op, all)
                                                        : start<Y, f8_codes>(op, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_scaled_linear;
const berth_op_impl berth_kernel_scaled_linear = {
    BERTH_GPU_KERNEL("scaled_linear"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
