// SPDX-License-Identifier: Apache-2.0
// Some rows by codes of 4 bits: codes less their zero points are exact in 16 bits and go from
// registers into the tensor core; its sums of 128 of them are scaled in f32. A lane's 16 bytes of a
// row's codes serve eight products, for which x lies in another order (cuda_batch_place).
#include <cuda/codes/batch_kernel.h>

namespace {

constexpr int BLOCKS = 2; // of 128 codes, of a unit
constexpr int BATCH = 2;  // units whose scales are loaded together

template <typename T, int OF_ROWS> struct packed {
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
    // Of the products under way.
    float sums[HALVES][COUNT];
    float behind[2]; // the scales of the second half's
    uint32_t held;   // their stage's barrier, 0: there are none

    unit_place next; // whose are loaded next
    int blocks_of_scale;
    bool is_bf16; // scales
    int is_odd;   // the unit's number

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
        behind[0] = behind[1] = 0;
        none_behind();
        load(all, of);
    }
    __device__ void keep_rows(const cuda_coded &, float *) {
    }
    // What the codes of the block's unit `i` are scaled by is at hand.
    __device__ void fetch(const cuda_coded &all, const share &of, int i) {
        is_bf16 = all.scale_dtype == BERTH_DTYPE_BF16;
        is_odd = i % BATCH;
        if (!is_odd) {
#pragma unroll
            for (int j = 0; j < BATCH * BLOCKS; ++j) {
                now[j] = scales[j] | zeros[j] << 16;
            }
            load(all, of);
        }
    }
    // Of one of its blocks.
    __device__ void pick(int block) {
        const uint32_t own = is_odd ? now[BLOCKS + block] : now[block];
        const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
        for (int j = 0; j < HALVES * 2; ++j) {
            const uint32_t both = __shfl_sync(0xffffffffu, own, j * 8 + g);
            const uint16_t bits = static_cast<uint16_t>(both);
            scale[j / 2][j % 2] = is_bf16 ? __uint_as_float(both << 16) : gpu_float(gpu_f16{bits});
            zero[j / 2][j % 2] = (cuda_counting<T> + (both >> 16)) * 0x10001u;
        }
    }
    static __device__ uint4 load_codes(uint32_t from) {
        uint4 codes;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(codes.x), "=r"(codes.y), "=r"(codes.z), "=r"(codes.w)
                     : "r"(from)
                     : "memory");
        return codes;
    }
    // The first operands of eight products: outputs g and g + 8 of a half.
    __device__ void widen(uint32_t weight, int half, uint32_t (*a)[4]) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        const int row = warp / 4 * 128 + half * 64 + warp % 4 * 16 + lane / 4;
        const uint32_t codes = weight + static_cast<uint32_t>(row * UNIT_BYTES + lane % 4 * 16);
        const uint4 low = load_codes(codes);
        const uint4 high = load_codes(codes + 8 * UNIT_BYTES);
        const uint32_t lows[4] = {low.x, low.y, low.z, low.w};
        const uint32_t highs[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            uint32_t l[4];
            uint32_t h[4];
            cuda_widen<T>(lows[word], zero[half][0], l);
            cuda_widen<T>(highs[word], zero[half][1], h);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                a[2 * word + i][0] = l[2 * i];
                a[2 * word + i][1] = h[2 * i];
                a[2 * word + i][2] = l[2 * i + 1];
                a[2 * word + i][3] = h[2 * i + 1];
            }
        }
    }
    __device__ void begin_products(int half, uint32_t (*a)[4], uint32_t x) {
        cuda_settle<COUNT>(sums[half]);
        cuda_group_begin();
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const uint32_t at = x + i / 4 * PANEL_BYTES<packed> + i % 4 * 32;
            cuda_batch_numbers<T, ROWS>(sums[half], a[i], cuda_matrix(at, 16), i > 0);
        }
        cuda_group_commit();
    }
    // Codes at `weight`, x behind them; `empty`: the stage's barrier. While codes of a half are
    // widened the products of the half before run: of the second half they are still under way at
    // the end.
    __device__ void multiply(uint32_t weight, uint32_t empty, float (*totals)[COUNT]) {
        const uint32_t x = weight + WEIGHT_BYTES<packed>;
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            uint32_t first[8][4];
            uint32_t second[8][4];
            pick(block);
            widen(weight + block * BLOCK_BYTES, 0, first);
            begin_products(0, first, x + block * 2 * PANEL_BYTES<packed>);
            cuda_group_wait<1>();
            add(sums[1], behind, totals[1]);
            if (block == 0 && held != 0) {
                release(held);
            }
            widen(weight + block * BLOCK_BYTES, 1, second);
            begin_products(1, second, x + block * 2 * PANEL_BYTES<packed>);
            cuda_group_wait<1>();
            add(sums[0], scale[0], totals[0]);
            behind[0] = scale[1][0];
            behind[1] = scale[1][1];
        }
        held = empty;
    }
    // The products under way, too.
    __device__ void end(float (*totals)[COUNT]) {
        cuda_group_wait<0>();
        add(sums[1], behind, totals[1]);
        release(held);
        none_behind();
    }
    __device__ void none_behind() {
        held = 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            sums[1][i] = 0;
        }
    }
    static __device__ void add(float *sums, const float *by, float *totals) {
        cuda_settle<COUNT>(sums);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            totals[i] += sums[i] * by[i / 2 % 2];
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

template <typename T>
berth_status start(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room) {
    return all.rows <= 16   ? launch<packed<T, 16>>(op, all, room)
           : all.rows <= 32 ? launch<packed<T, 32>>(op, all, room)
                            : launch<packed<T, 64>>(op, all, room);
}

} // namespace

berth_status cuda_batch_packed(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room,
                               berth_dtype y) {
    berth_status status = BERTH_OK;
    for (int first = 0; first < all.rows && status == BERTH_OK; first += CUDA_BATCH_ROWS) {
        cuda_coded some = all;
        some.rows = all.rows - first < CUDA_BATCH_ROWS ? all.rows - first : CUDA_BATCH_ROWS;
        some.x += first * all.x_gap;
        some.y = static_cast<uint16_t *>(all.y) + first * all.y_gap;
        status = y == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, some, room)
                                       : start<gpu_f16>(op, some, room);
    }
    return status;
}
