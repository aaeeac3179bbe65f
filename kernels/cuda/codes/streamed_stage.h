// SPDX-License-Identifier: Apache-2.0
// Sizes of streamed_codes.cu: a tile, a stage of the ring, what shared memory holds; what a lane
// has of them. Only the files of streamed_codes.cu include this.
#ifndef BERTH_KERNELS_CUDA_CODES_STREAMED_STAGE_H
#define BERTH_KERNELS_CUDA_CODES_STREAMED_STAGE_H

#include <cuda/bulk.h>
#include <cuda/codes/codes.h>
#include <cuda/tile.h>

namespace {

constexpr int OUTPUTS = 16;                // of a tile
constexpr int BLOCKS = 2;                  // of a multiprocessor
constexpr int STAGES = 6;                  // of the ring, at most
constexpr int LEAST_STAGES = 4;            // beside a copy of x
constexpr int STAGE = 1024;                // bytes of a row
constexpr int PIECE = CUDA_CODED_BYTES;    // that a warp takes at once: 16 a lane
constexpr uint32_t STAGE_ROW = STAGE + 64; // in the ring: rows begin in different banks
constexpr uint32_t SCALES = 32;            // bytes of a row's scales of 4-bit codes in a stage
constexpr uint32_t ZEROS = 16;             // and of its zero points, which follow
constexpr uint32_t STAGE_BYTES = OUTPUTS * STAGE_ROW;
constexpr int PANEL = 128; // bytes of a row of codes of 8 bits that lie together in the ring
constexpr uint32_t PANEL_BYTES = OUTPUTS * PANEL;
constexpr uint32_t BLOCK_BYTES = 113u << 10; // of a block's shared memory, where BLOCKS fit
constexpr int GROUP_PIECES = PIECE / 4;      // of x in 16 bits, 16 bytes each: a piece's inputs
constexpr int NEAR_GROUP = 2 * PIECE;        // codes of 4 bits whose inputs have a sum

// What shared memory holds: the ring, then, where it is near, x: rows `gap` bytes apart, and for
// codes of 4 bits the sums of NEAR_GROUP inputs, of 8 rows each.
struct layout {
    int stages;
    uint32_t gap;
    uint32_t bytes;

    __host__ __device__ uint32_t x() const {
        return static_cast<uint32_t>(stages) * STAGE_BYTES;
    }
    __host__ __device__ uint32_t sums(int rows) const {
        return x() + static_cast<uint32_t>(rows) * gap;
    }
};

__device__ uint32_t load_shared_16(uint32_t from) {
    uint16_t value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from));
    return value;
}

__device__ uint32_t load_shared_32(uint32_t from) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from));
    return value;
}

// What a lane has of x for one step: row g of each eight.
template <int EIGHTS> struct inputs { uint4 at[EIGHTS][4]; };

// Outputs g and g + 8 of a tile: a lane's 16 bytes of their codes.
struct codes {
    uint4 low;
    uint4 high;
};

// What is made of a sum before it is rounded; loaded while the sum is made.
struct finishing {
    float scale;
    float x_scale;
    float bias;
    int32_t sum_bias;
};

// Where a warp is: a stage's bytes of the rows of a tile.
struct position {
    int first; // output
    int begin; // byte

    __device__ position next(const cuda_coded &all) const {
        return begin + STAGE < all.bytes
                   ? position{first, begin + STAGE}
                   : position{first + static_cast<int>(gridDim.x) * OUTPUTS, 0};
    }
};

} // namespace

#endif
