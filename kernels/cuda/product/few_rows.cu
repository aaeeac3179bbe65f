// SPDX-License-Identifier: Apache-2.0
// linear of up to 16 rows before compute capability 9: the weights are the tensor core's first
// operand, the few rows its second, so that a warp loads 16 outputs' weights with 16 bytes a lane
// straight into registers. Eight warps share the depth and add up in shared memory. The first
// weights are on their way before the kernel waits for its input, which hides the start of one
// kernel behind the end of the one before it.
#include <cuda/mma.h>
#include <cuda/product/product.h>

namespace {

constexpr int WARPS = 8;
constexpr int OUTPUTS = 16; // of a tile
constexpr int CHUNK = 32;   // of the depth: 8 elements a lane, two products
constexpr int UNROLL = 4;   // chunks that a warp loads at once

// UNROLL chunks of the 16 outputs' weights.
struct weights {
    uint4 low[UNROLL];  // output g
    uint4 high[UNROLL]; // output g + 8
};

__device__ void load_weights(const cuda_few_operands &all, const uint16_t *low,
                             const uint16_t *high, int k, weights *out) {
    const uint4 none = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
        const int at = k + i * CHUNK;
        out->low[i] = at < all.depth ? cuda_stream(low + at) : none;
        out->high[i] = at < all.depth ? cuda_stream(high + at) : none;
    }
}

template <typename T, int TILES>
__device__ void multiply(const cuda_few_operands &all, const weights &w, int k, float (*sums)[4]) {
    const int g = threadIdx.x / 4;
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
        const int at = k + i * CHUNK;
        const uint32_t first[4] = {w.low[i].x, w.high[i].x, w.low[i].y, w.high[i].y};
        const uint32_t second[4] = {w.low[i].z, w.high[i].z, w.low[i].w, w.high[i].w};
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const int row = tile * 8 + g;
            uint4 x = {0, 0, 0, 0};
            if (row < all.rows && at < all.depth) {
                x = *reinterpret_cast<const uint4 *>(all.x + row * all.x_gap + at);
            }
            const uint32_t x_first[2] = {x.x, x.y};
            const uint32_t x_second[2] = {x.z, x.w};
            cuda_mma(sums[tile], first, x_first, T{});
            cuda_mma(sums[tile], second, x_second, T{});
        }
    }
}

// The warps' sums together, rounded, to y: thread t has output t % 16.
template <typename T, int TILES>
__device__ void finish(const cuda_few_operands &all, const float (*sums)[4], int first) {
    __shared__ float room[WARPS][TILES * 8][OUTPUTS + 1];
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        float(*rows)[OUTPUTS + 1] = &room[threadIdx.y][tile * 8 + 2 * c];
        rows[0][g] = sums[tile][0];
        rows[1][g] = sums[tile][1];
        rows[0][g + 8] = sums[tile][2];
        rows[1][g + 8] = sums[tile][3];
    }
    __syncthreads();
    const int number = threadIdx.y * 32 + threadIdx.x;
    const int output = first + number % OUTPUTS;
    const int row = number / OUTPUTS;
    if (row < all.rows && row < TILES * 8 && output < all.outputs) {
        float sum = all.bias ? gpu_float(static_cast<const T *>(all.bias)[output]) : 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) {
            sum += room[warp][row][number % OUTPUTS];
        }
        static_cast<T *>(all.y)[row * all.y_gap + output] = gpu_round<T>(sum);
    }
}

template <typename T, int TILES>
__global__ void __launch_bounds__(WARPS * 32, 2) few_rows_kernel(cuda_few_operands all) {
    constexpr int STEP = WARPS * UNROLL * CHUNK;
    const int first = static_cast<int>(blockIdx.x) * OUTPUTS;
    const int g = threadIdx.x / 4;
    const int last = all.outputs - 1;
    const int low = first + g < last ? first + g : last;
    const int high = first + g + 8 < last ? first + g + 8 : last;
    const uint16_t *low_row = all.weight + static_cast<int64_t>(low) * all.depth;
    const uint16_t *high_row = all.weight + static_cast<int64_t>(high) * all.depth;
    int k = threadIdx.y * UNROLL * CHUNK + threadIdx.x % 4 * 8;
    float sums[TILES][4] = {};
    weights now;
    weights next;
    gpu_let_next_begin();
    load_weights(all, low_row, high_row, k, &now);
    gpu_wait_for_inputs();
    for (; k < all.depth; k += STEP) {
        load_weights(all, low_row, high_row, k + STEP, &next);
        multiply<T, TILES>(all, now, k, sums);
        now = next;
    }
    finish<T, TILES>(all, sums, first);
}

template <typename T> berth_status start(const gpu_op *op, const cuda_few_operands &all) {
    const gpu_grid grid = {dim3(gpu_ceil(all.outputs, OUTPUTS)), dim3(32, WARPS), 0};
    return all.rows <= 8 ? gpu_run(op, "linear", grid, few_rows_kernel<T, 1>, all)
                         : gpu_run(op, "linear", grid, few_rows_kernel<T, 2>, all);
}

} // namespace

berth_status cuda_few_rows(const gpu_op *op, const cuda_product &product) {
    if (op->gpu->overlaps[op->device]) {
        return cuda_streamed_rows(op, product);
    }
    const cuda_few_operands all = cuda_few_operands_of(product);
    return product.dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, all) : start<gpu_f16>(op, all);
}
