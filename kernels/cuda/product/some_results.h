// SPDX-License-Identifier: Apache-2.0
// What a block of some_kernel.h does with its sums: results, scaled by rows and outputs; where
// several blocks share a depth, each finishes a share of the tile and gets the others' sums of it.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_RESULTS_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_RESULTS_H

#include <cuda/cluster.h>
#include <cuda/mma.h>
#include <cuda/pieces.h>
#include <cuda/product/some_stage.h>

namespace {

// What results take beside their sums, in shared memory.
template <int N> struct some_ends {
    float rows[ROWS];
    float2 outputs[GROUPS * N]; // a scale, and what is added

    // Of weights only.
    __device__ void keep_outputs(const cuda_some &all, int first) {
        for (int i = static_cast<int>(threadIdx.x); i < GROUPS * N; i += THREADS) {
            const int output = min(first + i, all.outputs - 1);
            outputs[i] = {all.scales ? all.scales[output] : 1.0f,
                          all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f};
        }
    }
    __device__ void keep_rows(const cuda_some &all, int first) {
        const int row = static_cast<int>(threadIdx.x);
        if (row < ROWS) {
            const int its = min(first + row, all.rows - 1);
            rows[row] = all.scales ? all.x_scales[its * all.x_scale_gap] : 1.0f;
        }
    }
};

__device__ void wait_for_all() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// A thread's sums are quads, eight outputs of its group apart: outputs 2c and 2c + 1 of rows g and
// g + 8 of its warp's 16, g = lane / 4 and c = lane % 4. As results, a pair of each row.
template <typename T, int N> struct some_quad {
    int row;    // the first
    int output; // of the tile
    uint32_t pairs[2];

    __device__ some_quad(const some_ends<N> &ends, int number, const float4 &sums) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
        output = static_cast<int>(threadIdx.x) / 128 * N + number * 8 + lane % 4 * 2;
        const float2 left = ends.outputs[output];
        const float2 right = ends.outputs[output + 1];
        const float first = ends.rows[row];
        const float second = ends.rows[row + 8];
        pairs[0] = cuda_pair(sums.x * (first * left.x) + left.y,
                             sums.y * (first * right.x) + right.y, T{});
        pairs[1] = cuda_pair(sums.z * (second * left.x) + left.y,
                             sums.w * (second * right.x) + right.y, T{});
    }
    // To y, of a tile.
    __device__ void store(const cuda_some &all, const some_part &tile) const {
        const int64_t first = tile.row + row;
        T *to = static_cast<T *>(all.y) + first * all.y_gap + tile.output + output;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (first + 8 * i < all.rows && tile.output + output < all.outputs) {
                *reinterpret_cast<uint32_t *>(to + 8 * i * all.y_gap) = pairs[i];
            }
        }
    }
};

// ---- a block that has all of the depth ----------------------------------------------------------

// Of a row of results in shared memory: 16 bytes more keep banks apart.
template <int N> constexpr uint32_t OUT_GAP = GROUPS *N * 2 + 16;

template <typename T, int N>
__device__ void lay_out(const some_ends<N> &ends, const float *totals, uint32_t out) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t to = out + (threadIdx.x % 128 / 32 * 16 + lane % 16) * OUT_GAP<N> +
                        (threadIdx.x / 128 * N + lane / 16 * 8) * 2;
#pragma unroll
    for (int quad = 0; quad < N / 8; quad += 2) {
        const float *own = totals + 4 * quad;
        const some_quad<T, N> first(ends, quad, {own[0], own[1], own[2], own[3]});
        const some_quad<T, N> second(ends, quad + 1, {own[4], own[5], own[6], own[7]});
        cuda_store_matrices(to + quad * 16, first.pairs, second.pairs);
    }
}

// From there to y, 16 bytes at a time.
template <typename T, int N>
__device__ void write_out(const cuda_some &all, const some_part &tile, uint32_t out) {
    constexpr int PIECES = GROUPS * N / 8; // of a row
    const int rows = min(all.rows - tile.row, ROWS);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < rows * PIECES; i += THREADS) {
        const int row = i / PIECES;
        const int output = tile.output + i % PIECES * 8;
        if (output < all.outputs) {
            T *to = static_cast<T *>(all.y) + (tile.row + row) * all.y_gap + output;
            *reinterpret_cast<uint4 *>(to) =
                cuda_load_shared(out + static_cast<uint32_t>(row) * OUT_GAP<N> + i % PIECES * 16);
        }
    }
}

// ---- blocks that share a depth ------------------------------------------------------------------

// Quads that each block of a cluster finishes, but that the last ones may have fewer.
template <int N> __host__ __device__ constexpr int quads_each(int blocks) {
    return (N / 8 + blocks - 1) / blocks;
}

template <bool IS_90 = CUDA_IS_90> __device__ void store_there(uint32_t to, const float *quad) {
    if constexpr (IS_90) {
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(quad[0]),
                     "f"(quad[1]), "f"(quad[2]), "f"(quad[3])
                     : "memory");
    }
}

// Every quad to the block that finishes it, which has room for those of all blocks.
template <int N> __device__ void hand_over(uint32_t room, const float *totals) {
    const int each = quads_each<N>(static_cast<int>(gridDim.y));
    const uint32_t own = room + (blockIdx.y * each * THREADS + threadIdx.x) * 16;
    uint32_t block = 0;
    uint32_t to = cuda_place_in(own, 0);
    int left = each;
#pragma unroll
    for (int quad = 0; quad < N / 8; ++quad) {
        if (left == 0) {
            to = cuda_place_in(own, ++block);
            left = each;
        }
        --left;
        store_there(to, totals + 4 * quad);
        to += THREADS * 16;
    }
}

// The quads that this block finishes, added up in the blocks' order.
template <typename T, int N>
__device__ void finish(const cuda_some &all, const some_ends<N> &ends, const some_part &tile,
                       uint32_t room) {
    const int each = quads_each<N>(static_cast<int>(gridDim.y));
    const int begin = static_cast<int>(blockIdx.y) * each;
    uint32_t from = room + threadIdx.x * 16;
#pragma unroll 1
    for (int quad = begin; quad < min(begin + each, N / 8); ++quad) {
        float4 sums = {0, 0, 0, 0};
        uint32_t part = from;
#pragma unroll 1
        for (unsigned block = 0; block < gridDim.y; ++block) {
            const uint4 bits = cuda_load_shared(part);
            sums = {sums.x + __uint_as_float(bits.x), sums.y + __uint_as_float(bits.y),
                    sums.z + __uint_as_float(bits.z), sums.w + __uint_as_float(bits.w)};
            part += static_cast<uint32_t>(each * THREADS) * 16;
        }
        some_quad<T, N>(ends, quad, sums).store(all, tile);
        from += THREADS * 16;
    }
}

} // namespace

#endif
