// SPDX-License-Identifier: Apache-2.0
// Some rows by codes of 4 bits: codes less their zero points are exact in 16 bits and go from
// registers into the tensor core; its sums of 128 of them are scaled in f32. A lane's 16 bytes of a
// row's codes serve eight products, for which x lies in another order (cuda_batch_place).
//
// Why two kinds: on an H200 16 rows take 4 % less by products of a warp, 32 rows 6 % less by those
// of four warps.
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
                this->add(sums[half], this->scale[half], totals[half]);
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

// Up to 32 or 64.
template <typename T, int OF_ROWS> struct more_rows : packed_numbers<T, OF_ROWS> {
    using base = packed_numbers<T, OF_ROWS>;
    using base::BLOCK_BYTES;
    using base::COUNT;
    static constexpr int PRODUCTS = 8; // of 128 codes

    // Of the products under way.
    float sums[HALVES][COUNT];
    float behind[2]; // the scales of the second half's
    uint32_t held;   // their stage's barrier, 0: there are none

    __device__ void begin(const cuda_coded &all, const share &of, const unit_place &first) {
        base::begin(all, of, first);
        behind[0] = behind[1] = 0;
        none_behind();
    }
    __device__ void widen_all(uint32_t weight, int half, uint32_t (*a)[4]) const {
        const code_words codes = this->words_of(weight, half);
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            this->widen(codes, word, half, a + 2 * word);
        }
    }
    __device__ void begin_products(int half, uint32_t (*a)[4], uint32_t x) {
        cuda_settle<COUNT>(sums[half]);
        cuda_group_begin();
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i) {
            const uint32_t at = x + i / 4 * PANEL_BYTES<more_rows> + i % 4 * 32;
            cuda_batch_numbers<T, OF_ROWS>(sums[half], a[i], cuda_matrix(at, 16), i > 0);
        }
        cuda_group_commit();
    }
    __device__ void settle_and_add(int half, const float *by, float *totals) {
        cuda_settle<COUNT>(sums[half]);
        this->add(sums[half], by, totals);
    }
    // Codes at `weight`, x behind them; `empty`: the stage's barrier. While codes of a half are
    // widened the products of the half before run: of the second half they are still under way at
    // the end.
    __device__ void multiply(uint32_t weight, uint32_t empty, float (*totals)[COUNT]) {
        const uint32_t x = weight + WEIGHT_BYTES<more_rows>;
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            uint32_t first[PRODUCTS][4];
            uint32_t second[PRODUCTS][4];
            this->pick(block);
            widen_all(weight + block * BLOCK_BYTES, 0, first);
            begin_products(0, first, x + block * 2 * PANEL_BYTES<more_rows>);
            cuda_group_wait<1>();
            settle_and_add(1, behind, totals[1]);
            if (block == 0 && held != 0) {
                cuda_barrier_arrive_warp(held);
            }
            widen_all(weight + block * BLOCK_BYTES, 1, second);
            begin_products(1, second, x + block * 2 * PANEL_BYTES<more_rows>);
            cuda_group_wait<1>();
            settle_and_add(0, this->scale[0], totals[0]);
            behind[0] = this->scale[1][0];
            behind[1] = this->scale[1][1];
        }
        held = empty;
    }
    // The products under way, too.
    __device__ void end(float (*totals)[COUNT]) {
        cuda_group_wait<0>();
        settle_and_add(1, behind, totals[1]);
        cuda_barrier_arrive_warp(held);
        none_behind();
    }
    __device__ void none_behind() {
        held = 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            sums[1][i] = 0;
        }
    }
};

template <typename T>
berth_status start(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room) {
    return all.rows <= 16   ? launch<few_rows<T>>(op, all, room)
           : all.rows <= 32 ? launch<more_rows<T, 32>>(op, all, room)
                            : launch<more_rows<T, 64>>(op, all, room);
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
