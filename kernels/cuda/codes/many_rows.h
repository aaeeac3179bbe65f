// SPDX-License-Identifier: Apache-2.0
// Tiles of 128 rows by 192 outputs, rows being the tensor core's first operand: what kernels of
// such tiles share, and how sums become results.
#ifndef BERTH_KERNELS_CUDA_CODES_MANY_ROWS_H
#define BERTH_KERNELS_CUDA_CODES_MANY_ROWS_H

#include <cuda/codes/many_send.h>
#include <cuda/mma.h>
#include <cuda/pieces.h>
#include <cuda/shared.h>

namespace {

constexpr int ROWS = FIRST;
constexpr int TILE = SECOND;
constexpr int PART = 64; // outputs that are written out together
constexpr int PARTS = TILE / PART;
constexpr uint32_t OUT_BYTES = OWN * PART * 2; // of a group
constexpr uint32_t SHARED_BYTES = STAGES * STAGE_BYTES + GROUPS * OUT_BYTES;
// As many as kernels start with.
constexpr int BRINGING_REGISTERS = 56;
constexpr int MULTIPLYING_REGISTERS = 224;

// What a tile's sums need to become results, of each output a scale and what is added:
// ends(output). By a group, which has room of its own for it.
template <typename E> __device__ void keep_ends(const E &ends, int first, float2 *room) {
    for (int i = static_cast<int>(threadIdx.x) % 128; i < TILE; i += 128) {
        room[i] = ends(first + i);
    }
}

// A part of the sums as rows of 128 bytes whose pieces are exchanged by the row's number.
template <typename T> __device__ void lay_out(const float2 *ends, const float *sums, uint32_t out) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int eight = 0; eight < PART / 8; eight += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 *at = ends + (eight + i) * 8 + lane % 4 * 2;
            const float4 of = *reinterpret_cast<const float4 *>(at);
            const float *own = sums + 4 * (eight + i);
            pairs[2 * i] = cuda_pair(own[0] * of.x + of.y, own[1] * of.z + of.w, T{});
            pairs[2 * i + 1] = cuda_pair(own[2] * of.x + of.y, own[3] * of.z + of.w, T{});
        }
        cuda_store_matrices(out + cuda_panel_place(row, eight + lane / 16), pairs, pairs + 2);
    }
}

} // namespace

#endif
