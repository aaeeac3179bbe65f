// SPDX-License-Identifier: Apache-2.0
// What a block of some_kernel.h brings into shared memory, in steps of 128 bytes of the depth:
// weights by one thread, which waits for no other kernel, and x by another, each through a ring of
// its own. Weights' is as large as can be, as they come from far and before x is there.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_STAGE_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_STAGE_H

#include <cuda/product/some.h>
#include <cuda/tile.h>

namespace {

constexpr int GROUPS = 2;             // that multiply
constexpr int THREADS = GROUPS * 128; // of them
constexpr int ROWS = CUDA_SOME_ROWS;
constexpr int STEP = 128; // bytes of a row
constexpr int MOST_STAGES = 16;

// N: outputs of a group. Of a stage:
template <int N> constexpr uint32_t WEIGHT_BYTES = GROUPS *N *STEP;
constexpr uint32_t X_BYTES = ROWS * STEP;
// Narrow tiles go through x faster.
template <int N> constexpr int X_STAGES = N > 64 ? 4 : 8;
// Stages of weights that a block has under way while its ring fills for the first time: the loads
// of the kernels that still run come behind them (streamed_ring.h). An H200 took 33.5 us for 28672
// outputs of 4096 so, and 35.8 with all under way; with one, some products take half as long again.
constexpr uint32_t UNDER_WAY_BYTES = 56 << 10;
template <int N> constexpr int UNDER_WAY = UNDER_WAY_BYTES / WEIGHT_BYTES<N>;

struct some_call {
    cuda_some all;
    int steps;  // of the depth
    int stages; // of weights
};

struct some_rings {
    cuda_ring weights;
    cuda_ring x;
    void *scales; // of groups, a step's beside each stage of x; NULL: there are none
};

// The tile of a block, and its steps. Its number in the cluster is blockIdx.y; blocks that have the
// same weights are neighbours along x, as they begin together and find each other's in the second
// cache.
struct some_part {
    int output; // the tile's first
    int row;
    int begin;
    int end;

    __device__ some_part(const some_call &in, int tile)
        : output(static_cast<int>(blockIdx.z) * tile), row(static_cast<int>(blockIdx.x) * ROWS),
          begin(in.steps * static_cast<int>(blockIdx.y) / static_cast<int>(gridDim.y)),
          end(in.steps * static_cast<int>(blockIdx.y + 1) / static_cast<int>(gridDim.y)) {
    }
    __device__ int count() const {
        return end - begin;
    }
};

template <int N>
__device__ void bring_weights(const some_call &in, const some_part &part, const cuda_ring &ring,
                              const CUtensorMap *weight) {
    cuda_place at = {0, 1}; // the first round waits for nobody
    for (int i = 0; i < part.count(); ++i) {
        const uint32_t full = ring.full + 8 * at.stage;
        if (i >= UNDER_WAY<N> && i < in.stages) {
            cuda_barrier_wait(ring.full + 8 * (i - UNDER_WAY<N>), 0);
        }
        cuda_barrier_wait(ring.empty + 8 * at.stage, at.parity);
        cuda_barrier_expect(full, WEIGHT_BYTES<N>);
        cuda_tile_stream(ring.memory + at.stage * WEIGHT_BYTES<N>, weight, (part.begin + i) * STEP,
                         part.output, full);
        at.go_on(in.stages);
    }
}

template <int N>
__device__ void bring_x(const some_part &part, const cuda_ring &ring, const CUtensorMap *x) {
    cuda_place at = {0, 1};
    gpu_wait_for_inputs();
    for (int step = part.begin; step < part.end; ++step) {
        const uint32_t full = ring.full + 8 * at.stage;
        cuda_barrier_wait(ring.empty + 8 * at.stage, at.parity);
        cuda_barrier_expect(full, X_BYTES);
        cuda_tile_copy(ring.memory + at.stage * X_BYTES, x, step * STEP, part.row, full);
        at.go_on(X_STAGES<N>);
    }
}

} // namespace

#endif
