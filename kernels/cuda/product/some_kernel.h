// SPDX-License-Identifier: Apache-2.0
// The kernel of products of some rows: some_numbers.cu and codes/some_scaled.cu make theirs of it.
// A block has a tile of outputs and of 64 rows; two groups of four warps have half of the tile
// each. Where tiles are fewer than multiprocessors, the blocks of a cluster share their depth. Rows
// are the tensor core's first operand, so that a tile may have any multiple of 16 outputs: as many
// as leave no multiprocessor idle.
//   X  type of x and weight: gpu_f8, grouped_f8, or T
//   T  type of results
//   N  outputs of a group
#ifndef BERTH_KERNELS_CUDA_PRODUCT_SOME_KERNEL_H
#define BERTH_KERNELS_CUDA_PRODUCT_SOME_KERNEL_H

#include <cuda/product/some_multiply.h>
#include <cuda/product/some_results.h>
#include <cuda/shared.h>

#include <algorithm>

namespace {

// Of a block: what a small kernel's blocks need is left, as they are there before they can run.
constexpr uint32_t SHARED_BYTES = 216 << 10;

// A warp brings weights, one x, and one scales.
template <typename X> constexpr int ALL_THREADS = THREADS + (IS_GROUPED<X> ? 96 : 64);

// ---- groups that multiply -----------------------------------------------------------------------

template <typename X, typename T, int N>
__device__ void make(const some_call &in, const some_part &part, const some_rings &rings,
                     uint32_t room, some_ends<N> *ends) {
    float totals[N / 2] = {};
    const bool is_shared = gridDim.y > 1;
    ends->keep_outputs(in.all, part.output);
    if (is_shared) {
        cuda_cluster_wait(); // all blocks have begun
    }
    gpu_wait_for_inputs();
    ends->keep_rows(in.all, part.row);
    if constexpr (IS_GROUPED<X>) {
        multiply_groups<X, N>(rings, in.stages, part.count(), totals);
    } else {
        multiply<X, N>(rings, in.stages, part.count(), totals);
    }
    // Why only now: blocks of the next kernel would come to lie on the few multiprocessors that
    // have none of this one's, several on each.
    gpu_let_next_begin();
    if (is_shared) {
        hand_over<N>(room, totals);
        cuda_cluster_arrive();
        cuda_cluster_wait();
        finish<T, N>(in.all, *ends, part, room);
        return;
    }
    wait_for_all(); // with x, whose room results lie in
    lay_out<T, N>(*ends, totals, rings.x.memory);
    wait_for_all();
    write_out<T, N>(in.all, part, rings.x.memory);
}

template <typename X, typename T, int N>
__global__ void __launch_bounds__(ALL_THREADS<X>, 1)
    some_kernel(some_call in, const __grid_constant__ CUtensorMap weight,
                const __grid_constant__ CUtensorMap x) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ __align__(8) uint64_t signals[2 * (MOST_STAGES + X_STAGES<N>)];
    __shared__ __align__(16) some_ends<N> ends;
    __shared__ some_scales<N> scales[IS_GROUPED<X> ? X_STAGES<N> : 1];
    const uint32_t signal = static_cast<uint32_t>(__cvta_generic_to_shared(signals));
    const uint32_t memory = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t weights = memory + X_STAGES<N> * X_BYTES;
    const uint32_t of_x = signal + 16 * MOST_STAGES;
    const some_rings rings = {
        {weights, signal, signal + 8 * MOST_STAGES},
        {memory,  of_x,   of_x + 8 * X_STAGES<N>  },
        scales
    };
    const some_part part(in, GROUPS * N);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == THREADS) {
        for (int stage = 0; stage < MOST_STAGES + X_STAGES<N>; ++stage) {
            const cuda_ring &ring = stage < MOST_STAGES ? rings.weights : rings.x;
            const int own = stage < MOST_STAGES ? stage : stage - MOST_STAGES;
            const bool is_grouped = IS_GROUPED<X> && stage >= MOST_STAGES;
            cuda_barrier_init(ring.full + 8 * own, is_grouped ? 2 : 1);
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
    } else if (IS_GROUPED<X> && warp == THREADS / 32 + 2) {
        bring_scales<N>(in.all, part, rings.x, scales);
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

template <int N> some_launch launch_of(const cuda_some &all, int split) {
    const uint32_t room =
        split > 1 ? static_cast<uint32_t>(split * quads_each<N>(split) * THREADS) * 16 : 0;
    const uint32_t left = SHARED_BYTES - X_STAGES<N> * X_BYTES - room;
    some_launch out;
    out.stages = std::min(MOST_STAGES, static_cast<int>(left / WEIGHT_BYTES<N>));
    out.grid = {dim3(gpu_ceil(all.rows, ROWS), static_cast<unsigned>(split),
                     gpu_ceil(all.outputs, GROUPS * N)),
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
    some_launch how = launch_of<N>(all, split);
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
    how.grid.threads = dim3(ALL_THREADS<X>);
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
