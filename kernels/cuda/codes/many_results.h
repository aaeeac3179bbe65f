// SPDX-License-Identifier: Apache-2.0
// Results of a group of four warps of many_scaled.cu, from sums in registers through shared memory
// to y: half of a tile's rows at a time, so that a ring of five stages fits beside them.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_RESULTS_H
#define BERTH_KERNELS_CUDA_CODES_MANY_RESULTS_H

#include <cuda/codes/many_send.h>

namespace {

constexpr int ROWS = SECOND; // of a tile
constexpr int TILE = FIRST;  // outputs
constexpr int PARTS = 2;     // of a tile's rows
constexpr int PART_ROWS = ROWS / PARTS;
constexpr uint32_t OUT_BYTES = PART_ROWS * OWN * 2; // of a group

// Four matrices of 8 outputs by 8 rows of x; each lane has the address of a row of one.
template <bool IS_90 = CUDA_IS_90>
__device__ void store_four(uint32_t to, const uint32_t *matrices) {
    if constexpr (IS_90) {
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
            "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
            : "memory");
    }
}

// What a tile's results need beside their sums. The scales of its rows are in shared memory.
struct many_ends {
    many_place place;
    float scales[2]; // of the lane's outputs
    float *of_rows;

    __device__ many_ends(const many_call &in, const many_place &at, float *room)
        : place(at), of_rows(room) {
        const cuda_coded &all = in.all;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int output = at.output + warp * 16 + lane / 4 + i * 8;
            scales[i] = all.scales[min(output, all.outputs - 1)];
        }
        for (int row = static_cast<int>(threadIdx.x) % 128; row < ROWS; row += 128) {
            of_rows[row] = all.x_scales[min(at.row + row, all.rows - 1) * all.x_scale_gap];
        }
    }
};

// A part of the sums, scaled, as rows of 128 bytes whose pieces are exchanged by the row's number.
// Of eight rows a thread has four sums: outputs g and g + 8 of rows 2c and 2c + 1, g = lane / 4 and
// c = lane % 4.
template <typename T>
__device__ void lay_out(const float *sums, const float *of_rows, const float *scales,
                        uint32_t out) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t piece = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
#pragma unroll
    for (int eight = 0; eight < PART_ROWS / 8; eight += 2) {
        uint32_t matrices[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float *of = sums + 4 * (eight + i);
            const float2 rows =
                *reinterpret_cast<const float2 *>(of_rows + 8 * (eight + i) + threadIdx.x % 4 * 2);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                matrices[2 * i + j] = cuda_pair(of[2 * j] * (rows.x * scales[j]),
                                                of[2 * j + 1] * (rows.y * scales[j]), T{});
            }
        }
        const uint32_t row = static_cast<uint32_t>(eight) * 8 + lane / 16 * 8 + lane % 8;
        store_four(out + row * (OWN * 2) + ((piece ^ (row & 7)) << 4), matrices);
    }
}

// By a group, whose room is `out`.
template <typename T>
__device__ void finish(const many_ends &ends, const float *sums, const CUtensorMap *y,
                       uint32_t out) {
    const int output = ends.place.output + static_cast<int>(threadIdx.x) / 128 * OWN;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        if (threadIdx.x % 128 == 0) {
            wait_for_sent();
        }
        group_sync();
        lay_out<T>(sums + part * (SUMS / PARTS), ends.of_rows + part * PART_ROWS, ends.scales, out);
        cuda_publish_shared();
        group_sync();
        if (threadIdx.x % 128 == 0) {
            send_out(y, output, ends.place.row + part * PART_ROWS, out);
        }
    }
}

} // namespace

#endif
