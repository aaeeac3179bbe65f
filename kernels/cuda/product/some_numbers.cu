// SPDX-License-Identifier: Apache-2.0
// Some rows of 16 bits, and how products of some rows are divided.
#include <cuda/product/some_kernel.h>

#include <math.h>

namespace {

// What a product takes, in microseconds of an H200: the weights' way from memory, or all blocks'
// from the second cache, x among it, or a block's into its shared memory; then the exchange. Only
// to choose between plans: those of Llama-3-8B's products that were measured it puts in their
// order.
template <int N> double microseconds(const cuda_some &all, int split, int at_once) {
    constexpr double FROM_MEMORY = 4.2e6; // bytes a microsecond
    constexpr double FROM_CACHE = 7.0e6;
    constexpr double INTO_BLOCK = 0.066e6;
    const double steps = ceil(static_cast<double>(all.bytes) / STEP);
    const double own_steps = ceil(steps / split);
    const double weights = steps * STEP * all.outputs;
    const unsigned row_tiles = gpu_ceil(all.rows, ROWS);
    const unsigned blocks =
        gpu_ceil(all.outputs, GROUPS * N) * static_cast<unsigned>(split) * row_tiles;
    const double waves = gpu_ceil(blocks, at_once);
    const double exchange = split > 1 ? 0.8 + 0.14 * (N / 8) : 0;
    return std::max({weights / FROM_MEMORY,
                     (weights * row_tiles + blocks * own_steps * X_BYTES) / FROM_CACHE,
                     waves * own_steps * (WEIGHT_BYTES<N> + X_BYTES) / INTO_BLOCK}) +
           exchange;
}

// Clusters lie within a part of the device, and parts have different numbers of multiprocessors, so
// how many fit is asked: an H200 ran 43 clusters of 3 in two rounds. Blocks that share no depth may
// take turns where rows have several tiles.
template <int N> bool fits(const gpu_op *op, const some_launch &how) {
    const auto kernel = some_kernel<gpu_bf16, gpu_bf16, N>;
    const dim3 &blocks = how.grid.blocks;
    const int clusters = static_cast<int>(blocks.x * blocks.z);
    const int split = static_cast<int>(blocks.y);
    const bool has_places = clusters * split <= op->gpu->multiprocessors[op->device];
    if (split == 1 || !has_places) {
        return has_places || (split == 1 && blocks.x > 1);
    }
    // Where that is refused, none fits.
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    return cuda_clusters_at_once(op, how.grid, split, kernel) >= clusters;
}

template <int N> void choose(const gpu_op *op, const cuda_some &all, cuda_some_plan *best) {
    const int steps = static_cast<int>(gpu_ceil(all.bytes, STEP));
    for (int split = 1; split <= std::min(CUDA_PORTABLE_CLUSTER, steps); ++split) {
        const double time = microseconds<N>(all, split, op->gpu->multiprocessors[op->device]);
        if (time < best->microseconds && fits<N>(op, launch_of<N>(all, split))) {
            *best = {all.rows, GROUPS * N, split, time};
        }
    }
}

} // namespace

cuda_some_plan cuda_some_plan_for(const gpu_op *op, const cuda_some &all) {
    cuda_some_plan best = {0, 0, 0, 1e30};
    choose<32>(op, all, &best);
    choose<48>(op, all, &best);
    choose<64>(op, all, &best);
    choose<96>(op, all, &best);
    choose<112>(op, all, &best);
    return best;
}

bool cuda_some_takes(const cuda_some &all, const cuda_some_plan &plan) {
    return all.rows <= plan.rows && gpu_is_aligned(all.x, all.x_gap) &&
           gpu_is_aligned(all.weight, all.bytes) && gpu_is_aligned(all.y, all.y_gap * 2);
}

berth_status cuda_some_numbers(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan,
                               berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16, gpu_bf16>(op, all, plan)
                                     : start<gpu_f16, gpu_f16>(op, all, plan);
}
