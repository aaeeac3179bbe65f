// SPDX-License-Identifier: Apache-2.0
// Products of some rows by codes of weights, more than streamed_codes.cu takes and few enough to be
// bound by the weights' bytes, or not much above: what their kernels are given. Compute capability
// 9.0.
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_H

#include <cuda/codes/codes.h>

#define CUDA_BATCH_ROWS        128 // at a time, of codes of 4 bits
#define CUDA_BATCH_SCALED_ROWS 16  // at most, of e4m3
#define CUDA_BATCH_TILE        256 // outputs
#define CUDA_BATCH_BLOCK       128 // elements of x that are put into another order together
#define CUDA_BATCH_HELD        2   // tiles that a block may have a part of

// What blocks that have parts of a tile tell each other by: device memory of an instance.
struct cuda_batch_room {
    float *parts;       // cuda_batch_bytes
    uint64_t *arrivals; // of each tile, in all runs together; zeros at first
};

static __host__ __device__ inline int cuda_batch_tiles(int64_t outputs) {
    return static_cast<int>((outputs + CUDA_BATCH_TILE - 1) / CUDA_BATCH_TILE);
}
// An instance's, in the device's memory: cudaFree.
static inline berth_status cuda_batch_keep_arrivals(const gpu_op *op, int64_t outputs,
                                                    uint64_t **out_arrivals) {
    void *memory = nullptr;
    const uint64_t bytes = static_cast<uint64_t>(cuda_batch_tiles(outputs)) * sizeof(uint64_t);
    const berth_status status = gpu_keep(op, nullptr, bytes, &memory);
    *out_arrivals = static_cast<uint64_t *>(memory);
    return status;
}
static inline uint64_t cuda_batch_bytes(int multiprocessors) {
    return static_cast<uint64_t>(multiprocessors) * CUDA_BATCH_HELD * CUDA_BATCH_TILE *
           CUDA_BATCH_ROWS * sizeof(float);
}

// x dense, of y's type, in the order of cuda_batch_place; codes of 4 bits, depth and groups
// multiples of 128.
berth_status cuda_batch_packed(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room,
                               berth_dtype y);
// x dense codes of e4m3, depth a multiple of 128.
berth_status cuda_batch_scaled(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room,
                               berth_dtype y);

// Of 128 neighbours of a row of x, where pair `i` of the eight from `first` on goes, in pairs: its
// elements are i and i + 4 of the eight (cuda_interleave). So 16 bytes of codes, which a lane loads
// at once, are what it needs for 16 elements of each of eight products.
static __host__ __device__ inline int cuda_batch_place(int first, int i) {
    const int lane = first % CUDA_BATCH_BLOCK / 32;
    const int word = first % 32 / 8;
    return first / CUDA_BATCH_BLOCK * (CUDA_BATCH_BLOCK / 2) + 8 * (2 * word + i / 2) +
           4 * (i % 2) + lane;
}

#endif
