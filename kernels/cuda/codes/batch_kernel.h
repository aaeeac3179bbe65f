// SPDX-License-Identifier: Apache-2.0
// The kernel of products of some rows by codes: batch_packed.cu and batch_scaled.cu give it what
// they multiply, a kind K. Blocks, one a multiprocessor, share the work evenly (batch_share.h). One
// thread brings a unit of codes and of x at a time into a ring, the first codes before it waits for
// x; two groups of four warps have 128 outputs of a tile each, and then their sums
// (batch_exchange.h).
#ifndef BERTH_KERNELS_CUDA_CODES_BATCH_KERNEL_H
#define BERTH_KERNELS_CUDA_CODES_BATCH_KERNEL_H

#include <cuda/codes/batch_exchange.h>
#include <cuda/codes/batch_wgmma.h>
#include <cuda/shared.h>

#include <algorithm>

namespace {

template <typename K> struct multiplier {
    static constexpr int COUNT = K::ROWS / 2;
    const batch_call &in;
    const share &of;
    const ring &from;
    exchange<K> sums;
    K kind;
    cuda_place at = {0, 0};
    float totals[HALVES][COUNT];

    // Number `i` of the block's units.
    __device__ void multiply(int i) {
        const uint32_t stage = from.memory + static_cast<uint32_t>(at.stage) * STAGE_BYTES<K>;
        kind.fetch(in.all, of, i);
        if (i < STAGES<K>) {
            cuda_barrier_wait(from.first + 8 * at.stage, 0);
        }
        cuda_barrier_wait(from.full + 8 * at.stage, at.parity);
        kind.multiply(stage, from.empty + 8 * at.stage, totals);
        at.go_on(STAGES<K>);
    }
    // Why tile after tile: where sums may be set to zero at each unit, the compiler waits for all
    // products at each.
    __device__ void run() {
        unit_place unit = of.place_of(of.begin);
        kind.begin(in.all, of, unit);
        for (int i = 0; i < of.count();) {
            const int end = min(i + of.steps - unit.step, of.count());
#pragma unroll
            for (int j = 0; j < HALVES * COUNT; ++j) {
                totals[j / COUNT][j % COUNT] = 0;
            }
            for (; i < end; ++i) {
                multiply(i);
            }
            kind.end(totals);
            sums.hand_in(kind, unit.tile, totals);
            unit = {unit.tile + 1, 0};
        }
        // Why only now: this kernel takes all registers of the multiprocessors that it runs on, so
        // blocks of the next one would come to lie on the few that it leaves free, several on each.
        gpu_let_next_begin();
        const int first = of.begin / of.steps;
        const int last = (of.end - 1) / of.steps;
        sums.put_together(kind, first);
        if (last != first) {
            sums.put_together(kind, last);
        }
    }
};

template <typename K>
__global__ void __launch_bounds__(THREADS + 128, 1)
    batch_kernel(batch_call in, const __grid_constant__ CUtensorMap weight,
                 const __grid_constant__ CUtensorMap x) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[3 * MOST_STAGES];
    __shared__ float of_rows[CUDA_BATCH_ROWS];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const ring stages = {static_cast<uint32_t>(__cvta_generic_to_shared(shared)), signal,
                         signal + 8 * MOST_STAGES, signal + 16 * MOST_STAGES};
    const share of(in.all, K::UNIT_BYTES);
    if (threadIdx.x == THREADS) {
        for (int stage = 0; stage < STAGES<K>; ++stage) {
            cuda_barrier_init(stages.full + 8 * stage, 1);
            cuda_barrier_init(stages.first + 8 * stage, 1);
            cuda_barrier_init(stages.empty + 8 * stage, THREADS / 32);
        }
        cuda_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        cuda_give_back<BRINGING_REGISTERS>();
        if (threadIdx.x == THREADS) {
            bring<K>(of, stages, &weight, &x);
        }
        return;
    }
    cuda_ask_for<MULTIPLYING_REGISTERS>();
    multiplier<K> self = {
        in, of, stages, {in, of}
    };
    gpu_wait_for_inputs();
    self.kind.keep_rows(in.all, of_rows);
    wait_for_all();
    self.run();
}

// ---- the host's side ----------------------------------------------------------------------------

// As many as run at once; a few less where every tile then has its own, or each the same number:
// what blocks exchange costs more than a sixth of the multiprocessors, which cannot use the memory
// any faster.
int blocks_for(int tiles, int steps, int most) {
    const int each = tiles < most ? std::min(most / tiles, steps) : 1;
    const int whole = tiles * each;
    return whole <= most && whole * 6 >= most * 5 ? whole : std::min(tiles * steps, most);
}

template <typename K>
berth_status launch(const gpu_op *op, const cuda_coded &all, const cuda_batch_room &room) {
    constexpr uint32_t BYTES = STAGES<K> * STAGE_BYTES<K>;
    const auto kernel = batch_kernel<K>;
    const int blocks = blocks_for(cuda_batch_tiles(all.outputs),
                                  static_cast<int>(gpu_ceil(all.bytes, K::UNIT_BYTES)),
                                  op->gpu->multiprocessors[op->device]);
    CUtensorMap weight = {};
    CUtensorMap x = {};
    const int64_t x_bytes = int64_t{all.bytes} * K::X_PANELS * 128 / K::UNIT_BYTES;
    const cuda_boxed of_weight = {all.weight,
                                  all.outputs,
                                  all.bytes,
                                  all.bytes,
                                  CUDA_BATCH_TILE,
                                  K::UNIT_BYTES,
                                  CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                  K::WEIGHT_ORDER};
    const cuda_boxed of_x = {all.x,   all.rows,         x_bytes,   all.x_gap,
                             K::ROWS, K::PANEL_COLUMNS, K::X_TYPE, CU_TENSOR_MAP_SWIZZLE_128B};
    if (!cuda_describe_boxes(of_weight, &weight) || !cuda_describe_boxes(of_x, &x)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe a product's tiles");
    }
    const berth_status has_room = cuda_allow_shared(op, kernel, BYTES);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(blocks)), dim3(THREADS + 128), BYTES};
    return gpu_run(op, "a product of codes", grid, kernel, batch_call{all, room}, weight, x);
}

} // namespace

#endif
