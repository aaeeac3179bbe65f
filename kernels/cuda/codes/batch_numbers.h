// SPDX-License-Identifier: Apache-2.0
// What both kinds of batch_packed.cu, which alone includes this, have in common: codes of 4 bits in
// a stage, and what they are scaled by.
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_NUMBERS_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_NUMBERS_H

#include <cuda/codes/batch_kernel.h>

namespace {

constexpr int BLOCKS = 2; // of 128 codes, of a unit
constexpr int BATCH = 2;  // units whose scales are loaded together

// A lane's 16 bytes of the codes of outputs g and g + 8, in words of eight codes.
struct code_words {
    uint32_t low[4];
    uint32_t high[4];
};

template <typename T, int OF_ROWS> struct packed_numbers {
    static constexpr int ROWS = OF_ROWS;
    static constexpr int BLOCK_BYTES = CUDA_BATCH_BLOCK / 2;
    static constexpr int UNIT_BYTES = BLOCKS * BLOCK_BYTES;
    static constexpr int X_PANELS = BLOCKS * 2;
    static constexpr int PANEL_COLUMNS = 64;
    static constexpr CUtensorMapDataType X_TYPE = CU_TENSOR_MAP_DATA_TYPE_UINT16;
    static constexpr CUtensorMapSwizzle WEIGHT_ORDER = CU_TENSOR_MAP_SWIZZLE_NONE;
    static constexpr int COUNT = ROWS / 2;

    // Lane l has scale and zero point of row l of its warp's: 16 of each half of its group's
    // outputs. Those to come are as they are in memory, since what converts them waits for them.
    uint32_t now[BATCH * BLOCKS];
    uint32_t scales[BATCH * BLOCKS];
    uint32_t zeros[BATCH * BLOCKS];
    float scale[HALVES][2];
    uint32_t zero[HALVES][2];
    unit_place next; // whose are loaded next
    int blocks_of_scale;
    bool is_bf16; // scales
    int is_odd;   // the unit's number
    int positive; // rows

    __device__ void load(const cuda_coded &all, const share &of) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int row = warp / 4 * 128 + lane / 16 * 64 + warp % 4 * 16 + lane % 16;
#pragma unroll
        for (int i = 0; i < BATCH * BLOCKS; ++i) {
            const int output = min(next.tile * CUDA_BATCH_TILE + row, all.outputs - 1);
            const int block = next.step * BLOCKS + i % BLOCKS;
            const int group = blocks_of_scale == 1 ? block : block / blocks_of_scale;
            const int64_t number =
                static_cast<int64_t>(output) * all.across + min(group, all.across - 1);
            scales[i] = all.group_scales[number];
            zeros[i] = all.zeros ? all.zeros[number] : 8u;
            if (i % BLOCKS == BLOCKS - 1) {
                next.go_on(of.steps);
            }
        }
    }
    __device__ void begin(const cuda_coded &all, const share &of, const unit_place &first) {
        next = first;
        blocks_of_scale = all.group / CUDA_BATCH_BLOCK;
        is_bf16 = all.scale_dtype == BERTH_DTYPE_BF16;
        positive = all.rows;
        load(all, of);
    }
    __device__ void keep_rows(const cuda_coded &, float *) {
    }
    // What the codes of the block's unit `i` are scaled by is at hand.
    __device__ void fetch(const cuda_coded &all, const share &of, int i) {
        is_odd = i % BATCH;
        if (!is_odd) {
#pragma unroll
            for (int j = 0; j < BATCH * BLOCKS; ++j) {
                now[j] = scales[j] | zeros[j] << 16;
            }
            load(all, of);
        }
    }
    // The lane's row's of one of its blocks.
    __device__ uint32_t own_of(int block) const {
        return is_odd ? now[BLOCKS + block] : now[block];
    }
    __device__ void pick(int block) {
        const uint32_t own = own_of(block);
        const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
        for (int j = 0; j < HALVES * 2; ++j) {
            const uint32_t both = __shfl_sync(0xffffffffu, own, j * 8 + g);
            const uint16_t bits = static_cast<uint16_t>(both);
            scale[j / 2][j % 2] = is_bf16 ? __uint_as_float(both << 16) : gpu_float(gpu_f16{bits});
            zero[j / 2][j % 2] = (cuda_counting<T> + (both >> 16)) * 0x10001u;
        }
    }
    // Of a half of the group's outputs.
    __device__ code_words words_of(uint32_t weight, int half) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int row = warp / 4 * 128 + half * 64 + warp % 4 * 16 + lane / 4;
        const uint32_t codes = weight + static_cast<uint32_t>(row * UNIT_BYTES + lane % 4 * 16);
        const uint4 low = load_codes(codes);
        const uint4 high = load_codes(codes + 8 * UNIT_BYTES);
        return {
            {low.x,  low.y,  low.z,  low.w },
            {high.x, high.y, high.z, high.w}
        };
    }
    static __device__ uint4 load_codes(uint32_t from) {
        uint4 codes;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(codes.x), "=r"(codes.y), "=r"(codes.z), "=r"(codes.w)
                     : "r"(from)
                     : "memory");
        return codes;
    }
    // The first operands of two products, of a word of each of the two outputs.
    __device__ void widen(const code_words &codes, int word, int half, uint32_t (*a)[4]) const {
        uint32_t l[4];
        uint32_t h[4];
        cuda_widen<T>(codes.low[word], zero[half][0], l);
        cuda_widen<T>(codes.high[word], zero[half][1], h);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            a[i][0] = l[2 * i];
            a[i][1] = h[2 * i];
            a[i][2] = l[2 * i + 1];
            a[i][3] = h[2 * i + 1];
        }
    }
    static __device__ output_ends prepare(const cuda_coded &all, int output) {
        return {1, bias_of(all, output)};
    }
    __device__ void store(const cuda_coded &all, int row, int output, float sum,
                          const output_ends &end) const {
        static_cast<T *>(all.y)[row * all.y_gap + output] = gpu_round<T>(sum + end.more);
    }
};

} // namespace

#endif
