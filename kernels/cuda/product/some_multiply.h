// SPDX-License-Identifier: Apache-2.0
// What groups of some_kernel.h do with the steps of a tile: products, which are added to the totals
// of a thread.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_MULTIPLY_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_MULTIPLY_H

#include <cuda/product/some_groups.h>
#include <cuda/product/some_wgmma.h>

#include <limits.h>

namespace {

// Steps behind which the tensor core's sums of codes go to others in f32, as its own keep 14 bits
// of the largest: as often as can be, since memory is waited for. Those of numbers stay.
template <typename X> constexpr int PROMOTED = sizeof(X) == 1 ? 1 : INT_MAX / 2;
template <typename X, int N>
__device__ void begin_step(uint32_t weights, uint32_t x, float *sums, int adds) {
    const uint32_t own = weights + threadIdx.x / 128 * (N * STEP);
    cuda_group_begin();
#pragma unroll
    for (uint32_t i = 0; i < STEP / 32; ++i) {
        cuda_some_multiply<X, N>(sums, cuda_matrix(x + i * 32, 16), cuda_matrix(own + i * 32, 16),
                                 i > 0 || adds);
    }
    cuda_group_commit();
}

// A step is released when the next one's products are under way.
template <typename X, int N>
__device__ void multiply(const some_rings &rings, int stages, int steps, float *totals) {
    constexpr int SUMS = N / 2;
    cuda_place at = {0, 0};
    cuda_place x = {0, 0};
    for (int first = 0; first < steps; first += PROMOTED<X>) {
        float sums[SUMS];
        uint32_t weights_behind = 0;
        uint32_t x_behind = 0;
        const int end = min(first + PROMOTED<X>, steps);
        cuda_settle<SUMS>(sums);
        for (int i = first; i < end; ++i) {
            cuda_barrier_wait(rings.weights.full + 8 * at.stage, at.parity);
            cuda_barrier_wait(rings.x.full + 8 * x.stage, x.parity);
            begin_step<X, N>(rings.weights.memory + at.stage * WEIGHT_BYTES<N>,
                             rings.x.memory + x.stage * X_BYTES, sums, i > first);
            if (i > first) {
                cuda_group_wait<1>();
                cuda_barrier_arrive_warp(weights_behind);
                cuda_barrier_arrive_warp(x_behind);
            }
            weights_behind = rings.weights.empty + 8 * at.stage;
            x_behind = rings.x.empty + 8 * x.stage;
            at.go_on(stages);
            x.go_on(X_STAGES<N>);
        }
        cuda_group_wait<0>();
        cuda_barrier_arrive_warp(weights_behind);
        cuda_barrier_arrive_warp(x_behind);
        cuda_settle<SUMS>(sums);
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            totals[i] += sums[i];
        }
    }
}

// The same by scales of groups, of which a step has one.
template <typename X, int N>
__device__ void multiply_groups(const some_rings &rings, int stages, int steps, float *totals) {
    constexpr int SUMS = N / 2;
    const some_scales<N> *scales = static_cast<const some_scales<N> *>(rings.scales);
    cuda_place at = {0, 0};
    cuda_place x = {0, 0};
    for (int step = 0; step < steps; ++step) {
        float sums[SUMS];
        cuda_settle<SUMS>(sums);
        cuda_barrier_wait(rings.weights.full + 8 * at.stage, at.parity);
        cuda_barrier_wait(rings.x.full + 8 * x.stage, x.parity);
        begin_step<X, N>(rings.weights.memory + at.stage * WEIGHT_BYTES<N>,
                         rings.x.memory + x.stage * X_BYTES, sums, 0);
        const own_scales<N> own(scales[x.stage]);
        cuda_group_wait<0>();
        cuda_barrier_arrive_warp(rings.weights.empty + 8 * at.stage);
        cuda_barrier_arrive_warp(rings.x.empty + 8 * x.stage);
        cuda_settle<SUMS>(sums);
        own.add(sums, totals);
        at.go_on(stages);
        x.go_on(X_STAGES<N>);
    }
}

} // namespace

#endif
