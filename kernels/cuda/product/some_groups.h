// SPDX-License-Identifier: Apache-2.0
// Scales of groups in some_kernel.h: what a thread's sums of a step are multiplied with before they
// are added to its totals.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_GROUPS_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_GROUPS_H

#include <cuda/codes/group_scales.h>
#include <cuda/product/some_stage.h>

namespace {

// Codes of e4m3 whose columns have scales of their own, as a type of x and weight.
struct grouped_f8 {
    uint8_t bits;
};
template <typename X> constexpr bool IS_GROUPED = false;
template <> constexpr bool IS_GROUPED<grouped_f8> = true;

// A part is eight outputs, which a thread has four sums of.
template <int N> using some_scales = cuda_step_scales<ROWS, GROUPS * N / 8>;
static_assert(STEP == CUDA_GROUP_STEP && CUDA_GROUP_PART % 8 == 0);

template <int N>
__device__ void bring_scales(const cuda_some &all, const some_part &part, const cuda_ring &ring,
                             some_scales<N> *room) {
    constexpr int PARTS = GROUPS * N / 8;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int output = min(part.output + lane % PARTS * 8, all.outputs - 1);
    cuda_lane_scales<ROWS, PARTS> own(all.groups, all.groups.begin_of(output));
    cuda_place at = {0, 1};
    gpu_wait_for_inputs();
    own.choose([&](int row) { return min(part.row + row, all.rows - 1); });
    cuda_bring_scales<ROWS, PARTS>(own, part.begin, part.end, {ring, X_STAGES<N>, room}, &at);
}

// Of a thread: those of its rows g and g + 8 (some_results.h), and of its group's outputs.
template <int N> struct own_scales {
    float rows[2];
    float parts[N / 8];

    __device__ explicit own_scales(const some_scales<N> &step) {
        const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const int part = static_cast<int>(threadIdx.x) / 128 * (N / 8);
        rows[0] = step.rows[row];
        rows[1] = step.rows[row + 8];
#pragma unroll
        for (int i = 0; i < N / 8; ++i) {
            parts[i] = step.parts[part + i];
        }
    }
    __device__ void add(const float *sums, float *totals) const {
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            totals[i] += sums[i] * (rows[i / 2 % 2] * parts[i / 4]);
        }
    }
};

} // namespace

#endif
