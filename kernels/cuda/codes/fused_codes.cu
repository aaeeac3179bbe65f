// SPDX-License-Identifier: Apache-2.0
// The kernel of streamed_codes.cu for one row, or two, that its blocks make for themselves out of
// what a norm or a quantiser would have been given: they wait for their first weights meanwhile,
// and one kernel fewer has to begin and to end.
//
// Why not an activation: its row is three times as long and takes an exponential of every element,
// 264 times over; by codes of 4 bits not even two rows of a norm are made in time. Why not its
// parts by the eight blocks of a cluster each: down took 18 us so, not 9 with the kernel before it.
// Why not one block a multiprocessor, which makes the row half as often: 59.8 us for the products
// of a layer of Llama-3-8B in fp8 on an H200, not 61.2, but between the other kernels of a step its
// blocks come to lie unevenly, and the step takes 2.95 ms, not 2.51.
#include <cuda/codes/fused_codes.h>
#include <cuda/codes/streamed_before.h>
#include <cuda/codes/streamed_launch.h>

namespace {

constexpr int WIDE = 4096; // elements of a row of which codes of 8 bits are made, at most
constexpr int SCALED_ROWS = 2;
constexpr int SCALED_STEPS = CUDA_NORM | CUDA_AS_IS;

template <typename K> bool has_room(const cuda_coded &all) {
    return has_whole_stages(all) && lay_out<K, 1>(all).stages >= LEAST_STAGES;
}

template <typename T, typename K, int WIDTH, int STEPS>
berth_status start(const gpu_op *op, const cuda_before &before, const cuda_coded &all) {
    constexpr int HELD = WIDTH / 8 / 32 / K::WARPS;
    return launch<T, K, 1>(op, all, lay_out<K, 1>(all), made_inputs<T, HELD, STEPS>{before});
}

template <typename T>
berth_status start_scaled(const gpu_op *op, const cuda_before &before, const cuda_coded &all) {
    return before.codes == BERTH_DTYPE_I8
               ? start<T, scaled_kind<int32_t, true>, WIDE, SCALED_STEPS>(op, before, all)
               : start<T, scaled_kind<float, true>, WIDE, SCALED_STEPS>(op, before, all);
}

template <typename T>
berth_status start_packed(const gpu_op *op, const cuda_before &before, const cuda_coded &all) {
    using kind = digits_kind<T>;
    return before.width <= WIDE ? start<T, kind, WIDE, CUDA_NORM>(op, before, all)
                                : start<T, kind, 2 * WIDE, CUDA_NORM>(op, before, all);
}

} // namespace

bool cuda_fuses_scaled(const cuda_before &before, const cuda_coded &all) {
    return before.rows <= SCALED_ROWS && (before.step & SCALED_STEPS) && before.width <= WIDE &&
           has_room<scaled_kind<float, true>>(all);
}

bool cuda_fuses_packed(const cuda_before &before, const cuda_coded &all) {
    return before.rows == 1 && before.step == CUDA_NORM && before.width <= 2 * WIDE &&
           has_room<digits_kind<gpu_bf16>>(all);
}

berth_status cuda_fused_scaled(const gpu_op *op, const cuda_before &before, const cuda_coded &all,
                               berth_dtype x) {
    return x == BERTH_DTYPE_BF16 ? start_scaled<gpu_bf16>(op, before, all)
                                 : start_scaled<gpu_f16>(op, before, all);
}

berth_status cuda_fused_packed(const gpu_op *op, const cuda_before &before, const cuda_coded &all,
                               berth_dtype x) {
    return x == BERTH_DTYPE_BF16 ? start_packed<gpu_bf16>(op, before, all)
                                 : start_packed<gpu_f16>(op, before, all);
}
