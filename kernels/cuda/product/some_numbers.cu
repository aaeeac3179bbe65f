// SPDX-License-Identifier: Apache-2.0
// Some rows of 16 bits, and how products of some rows are divided.
#include <cuda/product/some_kernel.h>

namespace {

// What a product takes, in microseconds of an H200: the weights' way from memory, or all blocks'
// from the second cache, x among it, or a block's into its shared memory; then the exchange. Only
// to choose between plans: those of Llama-3-8B's products that were measured it puts in their
// order.
template <int N> double microseconds(int outputs, int steps, int split) {
    constexpr double FROM_MEMORY = 4.2e6; // bytes a microsecond
    constexpr double FROM_CACHE = 7.0e6;
    constexpr double INTO_BLOCK = 0.066e6;
    const double weights = static_cast<double>(outputs) * steps * STEP;
    const double blocks = static_cast<double>(gpu_ceil(outputs, GROUPS * N)) * split;
    const double own_steps = static_cast<double>(gpu_ceil(steps, split));
    const double exchange = split > 1 ? 0.8 + 0.14 * (N / 8) : 0;
    return std::max({weights / FROM_MEMORY, (weights + blocks * own_steps * X_BYTES) / FROM_CACHE,
                     own_steps * (WEIGHT_BYTES<N> + X_BYTES) / INTO_BLOCK}) +
           exchange;
}

// Clusters lie within a part of the device, and parts have different numbers of multiprocessors, so
// how many fit is asked: an H200 ran 43 clusters of 3 in two rounds.
template <int N> bool runs_at_once(const gpu_op *op, const some_launch &how) {
    const auto kernel = some_kernel<gpu_bf16, gpu_bf16, N>;
    const int tiles = static_cast<int>(how.grid.blocks.x);
    const int split = static_cast<int>(how.grid.blocks.y);
    const bool has_places = tiles * split <= op->gpu->multiprocessors[op->device];
    if (split == 1 || !has_places) {
        return has_places;
    }
    // Where that is refused, none fits.
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    return cuda_clusters_at_once(op, how.grid, split, kernel) >= tiles;
}

struct some_choice {
    cuda_some_plan plan;
    double time;
};

template <int N> void choose(const gpu_op *op, int outputs, int steps, some_choice *best) {
    for (int split = 1; split <= std::min(CUDA_PORTABLE_CLUSTER, steps); ++split) {
        const double time = microseconds<N>(outputs, steps, split);
        if (time < best->time && runs_at_once<N>(op, launch_of<N>(outputs, split))) {
            *best = {
                {GROUPS * N, split},
                time
            };
        }
    }
}

} // namespace

cuda_some_plan cuda_some_plan_for(const gpu_op *op, int outputs, int bytes) {
    const int steps = static_cast<int>(gpu_ceil(bytes, STEP));
    some_choice best = {
        {0, 0},
        1e30
    };
    choose<32>(op, outputs, steps, &best);
    choose<48>(op, outputs, steps, &best);
    choose<64>(op, outputs, steps, &best);
    choose<96>(op, outputs, steps, &best);
    choose<112>(op, outputs, steps, &best);
    return best.plan;
}

bool cuda_some_takes(const cuda_some &all, const cuda_some_plan &plan) {
    return plan.tile > 0 && all.rows <= CUDA_SOME_ROWS && gpu_is_aligned(all.x, all.x_gap) &&
           gpu_is_aligned(all.weight, all.bytes) && gpu_is_aligned(all.y, all.y_gap * 2);
}

berth_status cuda_some_numbers(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan,
                               berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16, gpu_bf16>(op, all, plan)
                                     : start<gpu_f16, gpu_f16>(op, all, plan);
}
