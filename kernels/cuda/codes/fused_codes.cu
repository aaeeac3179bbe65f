// SPDX-License-Identifier: Apache-2.0
// The kernel of streamed_codes.cu for one row by codes of 4 bits that its blocks make for
// themselves out of what a norm would have been given: they wait for their first weights meanwhile,
// and one kernel fewer has to begin and to end.
//
// Why not codes of 8 bits, and no activation: alone, products whose blocks make codes of a norm's
// or an activation's row are sooner done than with a kernel before them (59.8 us for those of a
// layer of Llama-3-8B, not 67.8, on an H200), but between the other kernels of a step they are not
// (2.9 ms a step, not 2.7); with an activation of 14,336 elements they never are for codes of 4
// bits.
#include <cuda/codes/fused_codes.h>
#include <cuda/codes/streamed_before.h>
#include <cuda/codes/streamed_launch.h>

namespace {

constexpr int WIDE = 8192; // elements of a row, at most

template <typename T>
berth_status start(const gpu_op *op, const cuda_before &before, const cuda_coded &all) {
    using kind = packed_kind<T, true>;
    constexpr int HELD = WIDE / 8 / 32 / kind::WARPS;
    const layout places = lay_out<kind, 1>(all);
    return before.width <= WIDE / 2
               ? launch<T, kind, 1>(op, all, places, made_inputs<T, HELD / 2>{before})
               : launch<T, kind, 1>(op, all, places, made_inputs<T, HELD>{before});
}

} // namespace

bool cuda_fuses_packed(const cuda_before &before, const cuda_coded &all) {
    return before.rows == 1 && before.step == CUDA_NORM && before.width <= WIDE &&
           has_whole_stages(all) &&
           lay_out<packed_kind<gpu_bf16, true>, 1>(all).stages >= LEAST_STAGES;
}

berth_status cuda_fused_packed(const gpu_op *op, const cuda_before &before, const cuda_coded &all,
                               berth_dtype x) {
    return x == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, before, all)
                                 : start<gpu_f16>(op, before, all);
}
