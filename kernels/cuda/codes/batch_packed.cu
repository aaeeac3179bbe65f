// SPDX-License-Identifier: Apache-2.0
// Some rows by codes of 4 bits: codes less their zero points are exact in 16 bits and go from
// registers into the tensor core. A lane's 16 bytes of a row's codes serve eight products, for
// which x lies in another order (cuda_batch_place).
//
// Two kinds. Of up to 16 rows a warp makes products, whose sums of 128 codes are scaled in f32. Of
// more four warps do, with numbers that are scaled before and rounded to 16 bits, as widen.h has
// them for more rows still: sums of a thread are then those of all groups, so that there is room
// for 128 rows. On an H200, 28672 outputs 4096 deep: 27 us of 16 rows, 31 of 32, 38 of 64, 52 of
// 128, where sums of each group that were scaled in f32 took 33, 41 and, of 64 rows twice, 80.
#include <cuda/codes/batch_numbers.h>
#include <cuda/pieces.h>

namespace {

// Up to 16 rows.
template <typename T> struct few_rows : packed_numbers<T, 16> {
    using base = packed_numbers<T, 16>;
    using base::BLOCK_BYTES;
    using base::COUNT;
    static constexpr int EIGHTS = 2;

    // Of two products, `first` and the next, the inputs of eight rows.
    static __device__ void load_inputs(uint32_t x, int eight, int first, uint32_t *b) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const uint32_t panel = x + first / 4 * PANEL_BYTES<few_rows>;
        cuda_load_matrices(panel + cuda_panel_place(eight * 8 + lane % 8, first % 4 * 2 + lane / 8),
                           b);
    }
    __device__ void multiply_block(uint32_t weight, uint32_t x, float (*sums)[COUNT]) const {
        const code_words codes[HALVES] = {this->words_of(weight, 0), this->words_of(weight, 1)};
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            uint32_t a[HALVES][2][4];
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                this->widen(codes[half], word, half, a[half]);
            }
#pragma unroll
            for (int eight = 0; eight < EIGHTS; ++eight) {
                uint32_t b[4];
                load_inputs(x, eight, 2 * word, b);
#pragma unroll
                for (int i = 0; i < 2 * HALVES; ++i) {
                    cuda_mma(sums[i % HALVES] + 4 * eight, a[i % HALVES][i / HALVES],
                             b + i / HALVES * 2, T{});
                }
            }
        }
    }
    static __device__ void add(const float *sums, const float *by, float *totals) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            totals[i] += sums[i] * by[i / 2 % 2];
        }
    }
    // Codes at `weight`, x behind them; `empty`: the stage's barrier.
    __device__ void multiply(uint32_t weight, uint32_t empty, float (*totals)[COUNT]) {
        const uint32_t x = weight + WEIGHT_BYTES<few_rows>;
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            float sums[HALVES][COUNT] = {};
            this->pick(block);
            multiply_block(weight + block * BLOCK_BYTES, x + block * 2 * PANEL_BYTES<few_rows>,
                           sums);
            if (block == BLOCKS - 1) {
                cuda_barrier_arrive_warp(cuda_behind_loads(empty, bits_of(sums), this->positive));
            }
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                add(sums[half], this->scale[half], totals[half]);
            }
        }
    }
    // What is there when all that was loaded is.
    static __device__ uint32_t bits_of(const float (*sums)[COUNT]) {
        uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < HALVES * EIGHTS; ++i) {
            bits |= __float_as_uint(sums[i / EIGHTS][i % EIGHTS * 4]);
        }
        return bits;
    }
    __device__ void end(float (*)[COUNT]) {
    }
};

// Up to 128. LIKE_X: scales are of its type.
template <typename T, int OF_ROWS, bool LIKE_X> struct more_rows : packed_numbers<T, OF_ROWS> {
    using base = packed_numbers<T, OF_ROWS>;
    using base::BLOCK_BYTES;
    using base::COUNT;
    static constexpr int PRODUCTS = 8; // of 128 codes

    uint32_t held; // the barrier of the stage whose products are under way, 0: none are

    __device__ void begin(const cuda_coded &all, const share &of, const unit_place &first) {
        base::begin(all, of, first);
        held = 0;
    }
    // A pair of numbers, scaled and rounded once.
    static __device__ uint32_t scaled(uint32_t pair, float by) {
        if constexpr (LIKE_X) {
            return cuda_times<T>(pair, cuda_pair(by, by, T{}));
        } else {
            return cuda_pair(gpu_float(T{static_cast<uint16_t>(pair)}) * by,
                             gpu_float(T{static_cast<uint16_t>(pair >> 16)}) * by, T{});
        }
    }
    __device__ void widen_all(uint32_t weight, int half, uint32_t (*a)[4]) const {
        const code_words codes = this->words_of(weight, half);
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            this->widen(codes, word, half, a + 2 * word);
        }
#pragma unroll
        for (int i = 0; i < PRODUCTS * 4; ++i) {
            a[i / 4][i % 4] = scaled(a[i / 4][i % 4], this->scale[half][i % 2]);
        }
    }
    __device__ void begin_products(uint32_t (*a)[4], uint32_t x, float *totals) const {
        cuda_group_begin();
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i) {
            const uint32_t at = x + i / 4 * PANEL_BYTES<more_rows> + i % 4 * 32;
            cuda_batch_numbers<T, OF_ROWS>(totals, a[i], cuda_matrix(at, 16), 1);
        }
        cuda_group_commit();
    }
    // Codes at `weight`, x behind them; `empty`: the stage's barrier. While codes of a half are
    // widened the products of the half before run.
    __device__ void multiply(uint32_t weight, uint32_t empty, float (*totals)[COUNT]) {
        const uint32_t x = weight + WEIGHT_BYTES<more_rows>;
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            const uint32_t codes = weight + block * BLOCK_BYTES;
            const uint32_t panels = x + block * 2 * PANEL_BYTES<more_rows>;
            uint32_t first[PRODUCTS][4];
            uint32_t second[PRODUCTS][4];
            this->pick(block);
            widen_all(codes, 0, first);
            begin_products(first, panels, totals[0]);
            cuda_group_wait<1>();
            if (block == 0 && held != 0) {
                cuda_barrier_arrive_warp(held);
            }
            widen_all(codes, 1, second);
            begin_products(second, panels, totals[1]);
            cuda_group_wait<1>();
        }
        held = empty;
    }
    // The products under way, too.
    __device__ void end(float (*totals)[COUNT]) {
        cuda_group_wait<0>();
        cuda_settle<COUNT>(totals[0]);
        cuda_settle<COUNT>(totals[1]);
        cuda_barrier_arrive_warp(held);
        held = 0;
    }
};

// Rows that are multiplied at a time: as many each time, as few times as can be.
int rows_at_once(int rows) {
    const unsigned times = gpu_ceil(rows, CUDA_BATCH_ROWS);
    return static_cast<int>(gpu_ceil(rows, times));
}

template <typename T>
berth_status start(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room) {
    const bool is_like_x = (all.scale_dtype == BERTH_DTYPE_BF16) == gpu_is_bf16<T>;
    return all.rows <= 16                 ? launch<few_rows<T>>(op, all, room)
           : !is_like_x && all.rows <= 64 ? launch<more_rows<T, 64, false>>(op, all, room)
           : !is_like_x                   ? launch<more_rows<T, 128, false>>(op, all, room)
           : all.rows <= 32               ? launch<more_rows<T, 32, true>>(op, all, room)
           : all.rows <= 64               ? launch<more_rows<T, 64, true>>(op, all, room)
           : all.rows <= 96               ? launch<more_rows<T, 96, true>>(op, all, room)
                                          : launch<more_rows<T, 128, true>>(op, all, room);
}

} // namespace

berth_status cuda_batch_packed(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room,
                               berth_dtype y) {
    const int rows = rows_at_once(all.rows);
    berth_status status = BERTH_OK;
    for (int first = 0; first < all.rows && status == BERTH_OK; first += rows) {
        cuda_coded some = all;
        some.rows = all.rows - first < rows ? all.rows - first : rows;
        some.x += first * all.x_gap;
        some.y = static_cast<uint16_t *>(all.y) + first * all.y_gap;
        status = y == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, some, room)
                                       : start<gpu_f16>(op, some, room);
    }
    return status;
}
