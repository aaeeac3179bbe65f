// SPDX-License-Identifier: Apache-2.0
// Rows of floats as codes of 8 bits with one scale a row, or one given for all: a block a row,
// which keeps it in registers as far as it fits. What the codes are is a rule's business:
//
//   IS_GIVEN             nothing depends on the row's largest magnitude, which is then 0
//   magnitude(value)     what counts for the largest one, not below 0
//   scale(largest)       what is stored
//   factor(largest)      what code() and pair() are given with every value
//   code(value, factor)
//   pair(low, high, factor)   two codes, the first in the lower byte
//
// Every step is one correctly rounded operation, so codes and scales are the reference's bits.
#ifndef BERTH_KERNELS_GPU_QUANT_ROWS_H
#define BERTH_KERNELS_GPU_QUANT_ROWS_H

#include "launch.h"

#define GPU_QUANT_HELD 4   // loads that a thread keeps
#define GPU_QUANT_FEW  128 // rows that leave multiprocessors idle

// The larger; NaN where the first or the second is NaN.
static __device__ inline float gpu_larger(float a, float b) {
    return a != a || a > b ? a : b;
}

// The same of numbers that are not below 0. As integers they have the same order, NaN above all,
// and the larger of two is one instruction.
static __device__ inline float gpu_larger_size(float a, float b) {
    const uint32_t left = __float_as_uint(a);
    const uint32_t right = __float_as_uint(b);
    return __uint_as_float(left > right ? left : right);
}

static __device__ inline float gpu_warp_max(float value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value = gpu_larger(gpu_shuffle_xor(value, mask), value);
    }
    return value;
}

// Over all threads of a block of whole warps, the same bits in each; `room` has a float a warp.
static __device__ inline float gpu_block_max(float value, float *room) {
    value = gpu_warp_max(value);
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = value;
    }
    __syncthreads();
    const unsigned lane = threadIdx.x % 32;
    return gpu_warp_max(room[lane < blockDim.x / 32 ? lane : 0]);
}

// i8, to nearest, ties to even, saturated; a NaN becomes 0.
static __device__ inline uint8_t gpu_to_i8_bits(float value) {
    const float rounded = rintf(value);
    const float number = rounded > 127.0f     ? 127.0f
                         : rounded < -128.0f  ? -128.0f
                         : rounded == rounded ? rounded
                                              : 0.0f;
    return static_cast<uint8_t>(static_cast<int8_t>(number));
}

struct gpu_quant_operands {
    gpu_rows x;
    gpu_rows q;
    gpu_rows scales;
    int64_t width;
};

template <typename T, int N, typename R>
static __device__ inline float gpu_quant_largest(const gpu_pack<T, N> &pack, const R &rule,
                                                 float largest) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
        largest = gpu_larger_size(rule.magnitude(gpu_float(pack.at[j])), largest);
    }
    return largest;
}

template <typename T, int N, typename R>
static __device__ inline gpu_pack<uint8_t, N> gpu_quant_codes(const gpu_pack<T, N> &pack,
                                                              const R &rule, float factor) {
    gpu_pack<uint8_t, N> codes;
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            const uint16_t pair =
                rule.pair(gpu_float(pack.at[j]), gpu_float(pack.at[j + 1]), factor);
            codes.at[j] = static_cast<uint8_t>(pair);
            codes.at[j + 1] = static_cast<uint8_t>(pair >> 8);
        }
    } else {
        codes.at[0] = rule.code(gpu_float(pack.at[0]), factor);
    }
    return codes;
}

template <typename T, int N, typename R>
static __global__ void gpu_quant_rows_kernel(gpu_quant_operands all, R rule) {
    __shared__ float room[32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const T *x = gpu_row<const T>(all.x, blockIdx.x);
    uint8_t *q = gpu_row<uint8_t>(all.q, blockIdx.x);
    const int64_t step = static_cast<int64_t>(blockDim.x) * N;
    const int64_t mine = static_cast<int64_t>(threadIdx.x) * N;
    const int64_t rest = mine + GPU_QUANT_HELD * step;
    gpu_pack<T, N> held[GPU_QUANT_HELD];
    float largest = 0;
#pragma unroll
    for (int i = 0; i < GPU_QUANT_HELD; ++i) {
        held[i] =
            mine + i * step < all.width ? gpu_load<T, N>(x, mine + i * step) : gpu_pack<T, N>{};
        largest = R::IS_GIVEN ? largest : gpu_quant_largest<T, N>(held[i], rule, largest);
    }
    for (int64_t k = rest; k < all.width && !R::IS_GIVEN; k += step) {
        largest = gpu_quant_largest<T, N>(gpu_load<T, N>(x, k), rule, largest);
    }
    if (!R::IS_GIVEN) {
        largest = gpu_block_max(largest, room);
    }
    const float factor = rule.factor(largest);
#pragma unroll
    for (int i = 0; i < GPU_QUANT_HELD; ++i) {
        if (mine + i * step < all.width) {
            gpu_store<uint8_t, N>(q, mine + i * step, gpu_quant_codes<T, N>(held[i], rule, factor));
        }
    }
    for (int64_t k = rest; k < all.width; k += step) {
        gpu_store<uint8_t, N>(q, k, gpu_quant_codes<T, N>(gpu_load<T, N>(x, k), rule, factor));
    }
    if (threadIdx.x == 0 && (!R::IS_GIVEN || blockIdx.x == 0)) {
        *gpu_row<float>(all.scales, blockIdx.x) = rule.scale(largest);
    }
}

template <typename T, int N, typename R>
static inline berth_status gpu_quant_start(const gpu_op *op, const gpu_quant_operands &all,
                                           int64_t rows, const R &rule) {
    constexpr int64_t MOST = 1024; // threads
    const int64_t loads = (all.width + N - 1) / N;
    // Few rows: as many threads as loads. Many: as few as keep the row, so that more rows are on
    // their way at once.
    const int64_t least = (loads + MOST - 1) / MOST;
    const int64_t turns = rows >= GPU_QUANT_FEW && least < GPU_QUANT_HELD ? GPU_QUANT_HELD : least;
    const unsigned warps = gpu_ceil((loads + turns - 1) / turns, 32);
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows)), dim3(warps * 32), 0};
    return gpu_run(op, "a quantiser of rows", grid, gpu_quant_rows_kernel<T, N, R>, all, rule);
}

// q and scales of the rows of x; at least one.
template <typename R>
static inline berth_status gpu_quant_rows(const gpu_op *op, const berth_op_args *args,
                                          const R &rule) {
    const berth_tensor *x = args->inputs[0];
    const int64_t rows = berth_tensor_row_count(x);
    const gpu_quant_operands all = {gpu_rows_of(x), gpu_rows_of(args->outputs[0]),
                                    gpu_rows_of(args->outputs[1]), x->shape[x->ndim - 1]};
    return gpu_with_type(x->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = gpu_wide<T>;
        const int is_wide = all.width % N == 0 && gpu_is_aligned(all.x) &&
                            (reinterpret_cast<uintptr_t>(all.q.data) |
                             static_cast<uint64_t>(all.q.outer_gap | all.q.inner_gap)) %
                                    N ==
                                0;
        return is_wide ? gpu_quant_start<T, N>(op, all, rows, rule)
                       : gpu_quant_start<T, 1>(op, all, rows, rule);
    });
}

#endif
