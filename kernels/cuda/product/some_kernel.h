// SPDX-License-Identifier: Apache-2.0
// The kernel of products of some rows: some_numbers.cu and codes/some_scaled.cu make theirs of it.
// A block has a tile of outputs and all rows; two groups of four warps have half of the tile each.
// Where tiles are fewer than multiprocessors, the blocks of a cluster share their depth. Rows are
// the tensor core's first operand, so that a tile may have any multiple of 16 outputs: as many as
// leave no multiprocessor idle.
//   X  type of x and weight: gpu_f8, or T
//   T  type of results
//   N  outputs of a group
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_KERNEL_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_KERNEL_H

#include <cuda/product/some_results.h>
#include <cuda/product/some_wgmma.h>
#include <cuda/shared.h>

#include <algorithm>
#include <limits.h>

namespace {

// Steps behind which the tensor core's sums of codes go to others in f32, as its own keep 14 bits
// of the largest: as often as can be, since memory is waited for. Those of numbers stay.
template <typename X> constexpr int PROMOTED = sizeof(X) == 1 ? 1 : INT_MAX / 2;
// Of a block: what a small kernel's blocks need is left, as they are there before they can run.
constexpr uint32_t SHARED_BYTES = 216 << 10;

// ---- groups that multiply -----------------------------------------------------------------------

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
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
        totals[i] = 0;
    }
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

template <typename X, typename T, int N>
__device__ void make(const some_call &in, const some_part &part, const some_rings &rings,
                     uint32_t room, some_ends<N> *ends) {
    float totals[N / 2];
    const bool is_shared = gridDim.y > 1;
    ends->keep_outputs(in.all, part.output);
    if (is_shared) {
        cuda_cluster_wait(); // all blocks have begun
    }
    gpu_wait_for_inputs();
    ends->keep_rows(in.all);
    multiply<X, N>(rings, in.stages, part.count(), totals);
    // Why only now: blocks of the next kernel would come to lie on the few multiprocessors that
    // have none of this one's, several on each.
    gpu_let_next_begin();
    if (is_shared) {
        hand_over<N>(room, totals);
        cuda_cluster_arrive();
        cuda_cluster_wait();
        finish<T, N>(in.all, *ends, part.output, room);
        return;
    }
    wait_for_all(); // with x, whose room results lie in
    lay_out<T, N>(*ends, totals, rings.x.memory);
    wait_for_all();
    write_out<T, N>(in.all, part.output, rings.x.memory);
}

template <typename X, typename T, int N>
__global__ void __launch_bounds__(THREADS + 64, 1)
    some_kernel(some_call in, const __grid_constant__ CUtensorMap weight,
                const __grid_constant__ CUtensorMap x) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * (MOST_STAGES + X_STAGES<N>)];
    __shared__ __align__(16) some_ends<N> ends;
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const uint32_t memory = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t weights = memory + X_STAGES<N> * X_BYTES;
    const uint32_t of_x = signal + 16 * MOST_STAGES;
    const some_rings rings = {
        {weights, signal, signal + 8 * MOST_STAGES},
        {memory,  of_x,   of_x + 8 * X_STAGES<N>  }
    };
    const some_part part(in, GROUPS * N);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == THREADS) {
        for (int stage = 0; stage < MOST_STAGES + X_STAGES<N>; ++stage) {
            const cuda_ring &ring = stage < MOST_STAGES ? rings.weights : rings.x;
            const int own = stage < MOST_STAGES ? stage : stage - MOST_STAGES;
            cuda_barrier_init(ring.full + 8 * own, 1);
            cuda_barrier_init(ring.empty + 8 * own, THREADS / 32);
        }
        cuda_barrier_publish();
    }
    __syncthreads();
    if (gridDim.y > 1) {
        cuda_cluster_arrive();
    }
    if (warp < THREADS / 32) {
        const uint32_t room = weights + static_cast<uint32_t>(in.stages) * WEIGHT_BYTES<N>;
        make<X, T, N>(in, part, rings, room, &ends);
        return;
    }
    if (threadIdx.x == THREADS) {
        bring_weights<N>(in, part, rings.weights, &weight);
    } else if (threadIdx.x == THREADS + 32) {
        bring_x<N>(part, rings.x, &x);
    }
    __syncwarp();
    if (gridDim.y > 1) {
        cuda_cluster_wait();
        cuda_cluster_arrive();
    }
}

// ---- the host's side ----------------------------------------------------------------------------

struct some_launch {
    gpu_grid grid;
    int stages;
};

template <int N> some_launch launch_of(int outputs, int split) {
    const uint32_t room =
        split > 1 ? static_cast<uint32_t>(split * quads_each<N>(split) * THREADS) * 16 : 0;
    const uint32_t left = SHARED_BYTES - X_STAGES<N> * X_BYTES - room;
    some_launch out;
    out.stages = std::min(MOST_STAGES, static_cast<int>(left / WEIGHT_BYTES<N>));
    out.grid = {dim3(gpu_ceil(outputs, GROUPS * N), static_cast<unsigned>(split)),
                dim3(THREADS + 64),
                X_STAGES<N> * X_BYTES + static_cast<uint32_t>(out.stages) * WEIGHT_BYTES<N> + room};
    return out;
}

template <typename X, typename T, int N>
berth_status launch(const gpu_op *op, const cuda_some &all, int split) {
    constexpr CUtensorMapDataType BYTES = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    constexpr CUtensorMapSwizzle ORDER = CU_TENSOR_MAP_SWIZZLE_128B;
    const auto kernel = some_kernel<X, T, N>;
    static_assert(ROWS * OUT_GAP<N> <= X_STAGES<N> * X_BYTES, "results lie where x was");
    const some_launch how = launch_of<N>(all.outputs, split);
    CUtensorMap weight;
    CUtensorMap x;
    if (!cuda_describe_boxes(
            {all.weight, all.outputs, all.bytes, all.bytes, GROUPS * N, STEP, BYTES, ORDER},
            &weight) ||
        !cuda_describe_boxes({all.x, all.rows, all.bytes, all.x_gap, ROWS, STEP, BYTES, ORDER},
                             &x)) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE,
                                 "the driver does not describe a product's tiles");
    }
    // Why not what this one takes: it is the kernel's, of which a recording may hold larger ones.
    const berth_status has_room = cuda_allow_shared(op, kernel, SHARED_BYTES);
    if (has_room != BERTH_OK) {
        return has_room;
    }
    const some_call call = {all, static_cast<int>(gpu_ceil(all.bytes, STEP)), how.stages};
    const char *name = "a product of some rows";
    return split > 1 ? cuda_run_clusters(op, name, how.grid, split, kernel, call, weight, x)
                     : gpu_run(op, name, how.grid, kernel, call, weight, x);
}

template <typename X, typename T>
berth_status start(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan) {
    switch (plan.tile / GROUPS) {
    case 32:
        return launch<X, T, 32>(op, all, plan.split);
    case 48:
        return launch<X, T, 48>(op, all, plan.split);
    case 64:
        return launch<X, T, 64>(op, all, plan.split);
    case 96:
        return launch<X, T, 96>(op, all, plan.split);
    default:
        return launch<X, T, 112>(op, all, plan.split);
    }
}

} // namespace

#endif
