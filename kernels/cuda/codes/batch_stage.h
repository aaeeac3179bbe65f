// SPDX-License-Identifier: Apache-2.0
// What a block of batch_kernel.h brings into shared memory: units of codes and of x, by one thread,
// ahead of those that multiply.
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_STAGE_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_STAGE_H

#include <cuda/codes/batch_share.h>
#include <cuda/tile.h>

namespace {

constexpr int GROUPS = 2;             // that multiply
constexpr int THREADS = GROUPS * 128; // of them
constexpr int HALVES = 2;             // of a group's outputs, 64 each
constexpr int MOST_STAGES = 10;
constexpr uint32_t RING_BYTES = 200 << 10; // at most
// Stages of weights that a block has under way while its ring fills for the first time: the loads
// of the kernels that still run come behind them (streamed_ring.h). 16 requests of Llama-3-8B on an
// H200: 3.36 ms a step with all under way, 3.27 so in fp8; by codes of 4 bits 3.33 and 3.22, and
// 3.26 with one.
constexpr int UNDER_WAY = 2;
constexpr int BRINGING_REGISTERS = 24;
constexpr int MULTIPLYING_REGISTERS = 240;

struct batch_call {
    cuda_coded all;
    cuda_batch_room room;
};

// K::UNIT_BYTES: of a row of the weight. K::X_PANELS: of a unit's x.
template <typename K> constexpr uint32_t WEIGHT_BYTES = CUDA_BATCH_TILE *K::UNIT_BYTES;
template <typename K> constexpr uint32_t PANEL_BYTES = K::ROWS * 128;
template <typename K>
constexpr uint32_t STAGE_BYTES = WEIGHT_BYTES<K> + K::X_PANELS *PANEL_BYTES<K>;
template <typename K>
constexpr int STAGES =
    RING_BYTES / STAGE_BYTES<K> < MOST_STAGES ? RING_BYTES / STAGE_BYTES<K> : MOST_STAGES;

// What an output's results take beside their sums.
struct output_ends {
    float scale;
    float more;
};

__device__ float bias_of(const cuda_coded &all, int output) {
    return all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
}

// Addresses of shared memory; barriers of stage 0. Of the first round weights have barriers of
// their own, as they come before x.
struct ring {
    uint32_t memory;
    uint32_t full;
    uint32_t empty;
    uint32_t first;
};

// ---- the thread that brings ---------------------------------------------------------------------

// `barrier`: one that expects it.
template <typename K>
__device__ void bring_weight(uint32_t stage, const CUtensorMap *weight, const unit_place &unit,
                             uint32_t barrier) {
    cuda_tile_stream(stage, weight, unit.step * K::UNIT_BYTES, unit.tile * CUDA_BATCH_TILE,
                     barrier);
}

template <typename K>
__device__ void bring_x(const ring &to, const CUtensorMap *x, const unit_place &unit, int stage) {
    const uint32_t memory = to.memory + stage * STAGE_BYTES<K> + WEIGHT_BYTES<K>;
#pragma unroll
    for (int panel = 0; panel < K::X_PANELS; ++panel) {
        cuda_tile_copy(memory + panel * PANEL_BYTES<K>, x,
                       (unit.step * K::X_PANELS + panel) * K::PANEL_COLUMNS, 0,
                       to.full + 8 * stage);
    }
}

template <typename K>
__device__ void bring(const share &of, const ring &to, const CUtensorMap *weight,
                      const CUtensorMap *x) {
    const int ahead = min(STAGES<K>, of.count());
    unit_place unit = of.place_of(of.begin);
    for (int i = 0; i < ahead; ++i) {
        if (i >= UNDER_WAY) {
            cuda_barrier_wait(to.first + 8 * (i - UNDER_WAY), 0);
        }
        cuda_barrier_expect(to.first + 8 * i, WEIGHT_BYTES<K>);
        bring_weight<K>(to.memory + i * STAGE_BYTES<K>, weight, unit, to.first + 8 * i);
        unit.go_on(of.steps);
    }
    gpu_wait_for_inputs();
    unit = of.place_of(of.begin);
    for (int i = 0; i < ahead; ++i) {
        cuda_barrier_expect(to.full + 8 * i, STAGE_BYTES<K> - WEIGHT_BYTES<K>);
        bring_x<K>(to, x, unit, i);
        unit.go_on(of.steps);
    }
    cuda_place at = {0, 0};
    for (int i = ahead; i < of.count(); ++i) {
        cuda_barrier_wait(to.empty + 8 * at.stage, at.parity);
        const uint32_t full = to.full + 8 * at.stage;
        cuda_barrier_expect(full, STAGE_BYTES<K>);
        bring_weight<K>(to.memory + at.stage * STAGE_BYTES<K>, weight, unit, full);
        bring_x<K>(to, x, unit, at.stage);
        unit.go_on(of.steps);
        at.go_on(STAGES<K>);
    }
}

} // namespace

#endif
