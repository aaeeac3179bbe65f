// SPDX-License-Identifier: Apache-2.0
// Some rows of e4m3 by codes of e4m3, both from shared memory. Behind every 128 codes their sums go
// to others in f32: the tensor core's own lose bits of 14336 products. Scales of rows and outputs
// come at the end.
#include <cuda/codes/batch_kernel.h>

namespace {

template <typename T> struct scaled {
    static constexpr int ROWS = CUDA_BATCH_SCALED_ROWS;
    static constexpr int UNIT_BYTES = 128;
    static constexpr int X_PANELS = 1;
    static constexpr int PANEL_COLUMNS = 128;
    static constexpr CUtensorMapDataType X_TYPE = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    static constexpr CUtensorMapSwizzle WEIGHT_ORDER = CU_TENSOR_MAP_SWIZZLE_128B;
    static constexpr int COUNT = ROWS / 2;

    const float *scales; // of rows, in shared memory

    __device__ void begin(const cuda_coded &, const share &, const unit_place &) {
    }
    __device__ void keep_rows(const cuda_coded &all, float *of_rows) {
        const int row = static_cast<int>(threadIdx.x);
        if (row < ROWS) {
            of_rows[row] = all.x_scales[min(row, all.rows - 1) * all.x_scale_gap];
        }
        scales = of_rows;
    }
    __device__ void fetch(const cuda_coded &, const share &, int) {
    }
    __device__ void end(float (*)[COUNT]) {
    }
    // `empty`: the stage's barrier.
    __device__ void multiply(uint32_t weight, uint32_t empty, float (*totals)[COUNT]) {
        const uint32_t x = weight + WEIGHT_BYTES<scaled>;
        float sums[HALVES][COUNT];
        const uint32_t own = weight + threadIdx.x / 128 * (128 * UNIT_BYTES);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            cuda_settle<COUNT>(sums[half]);
            cuda_group_begin();
#pragma unroll
            for (int i = 0; i < UNIT_BYTES / 32; ++i) {
                cuda_batch_codes(sums[half],
                                 cuda_matrix(own + half * (64 * UNIT_BYTES) + i * 32, 16),
                                 cuda_matrix(x + i * 32, 16), i > 0);
            }
            cuda_group_commit();
        }
        cuda_group_wait<1>();
        add(sums[0], totals[0]);
        cuda_group_wait<0>();
        cuda_barrier_arrive_warp(empty);
        add(sums[1], totals[1]);
    }
    static __device__ void add(float *sums, float *totals) {
        cuda_settle<COUNT>(sums);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            totals[i] += sums[i];
        }
    }
    static __device__ output_ends prepare(const cuda_coded &all, int output) {
        return {all.scales[output], bias_of(all, output)};
    }
    __device__ void store(const cuda_coded &all, int row, int output, float sum,
                          const output_ends &end) const {
        static_cast<T *>(all.y)[row * all.y_gap + output] =
            gpu_round<T>(sum * (scales[row] * end.scale) + end.more);
    }
};

} // namespace

berth_status cuda_batch_scaled(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room,
                               berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? launch<scaled<gpu_bf16>>(op, all, room)
                                 : launch<scaled<gpu_f16>>(op, all, room);
}
