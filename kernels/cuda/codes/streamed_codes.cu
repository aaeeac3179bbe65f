// SPDX-License-Identifier: Apache-2.0
// Up to 16 rows by codes of weights on compute capability 9, bound by the codes' bytes: the way of
// product/streamed_rows.cu, which says why it is so. Two blocks a multiprocessor go through tiles
// of 16 outputs; one warp has bytes of their rows brought into a ring in shared memory, the others
// share the bytes of each stage and multiply. Weights are the tensor core's first operand, of which
// a product has 16 rows: an instruction has twice as many of them as in the second one's place, and
// most of the work is to make them numbers. What the bytes are is a kind's business: codes of 8
// bits are multiplied as they are, codes of 4 become numbers of x's type in registers, exactly, and
// the sums of a group get its scale; one row by codes of 4 bits is multiplied in whole numbers.
//
// Where x is small beside the ring every block has a copy of its own in shared memory, and scales
// of 4-bit codes lie beside them in the ring: then a step waits for nothing from beyond its
// multiprocessor, and no step has an end that is short.
#include <cuda/codes/streamed_launch.h>

namespace {

// Up to 8 rows: with a copy of x where it leaves the ring enough stages.
template <typename T, typename NEAR, typename FAR>
berth_status start_near(const gpu_op *op, const cuda_coded &all) {
    const layout places = lay_out<NEAR, 1>(all);
    return places.stages >= LEAST_STAGES && has_whole_stages(all)
               ? launch<T, NEAR, 1>(op, all, places, stored_inputs{})
               : launch<T, FAR, 1>(op, all, lay_out<FAR, 1>(all), stored_inputs{});
}

template <typename T, typename S> berth_status start(const gpu_op *op, const cuda_coded &all) {
    using far = scaled_kind<S, false>;
    return all.rows <= 8 ? start_near<T, scaled_kind<S, true>, far>(op, all)
                         : launch<T, far, 2>(op, all, lay_out<far, 2>(all), stored_inputs{});
}

template <typename T> berth_status start_packed(const gpu_op *op, const cuda_coded &all) {
    using digits = digits_kind<T>;
    return cuda_coded_takes_digits(all)
               ? launch<T, digits, 1>(op, all, lay_out<digits, 1>(all), stored_inputs{})
               : start_near<T, packed_kind<T, true>, packed_kind<T, false>>(op, all);
}

template <typename T> berth_status start_digits(const gpu_op *op, const cuda_coded &all) {
    using digits = digits_kind<T>;
    return launch<T, digits, 1>(op, all, lay_out<digits, 1>(all), stored_digits{});
}

template <typename T>
berth_status start_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype x) {
    return x == BERTH_DTYPE_I8 ? start<T, int32_t>(op, all) : start<T, float>(op, all);
}

} // namespace

berth_status cuda_coded_scaled(const gpu_op *op, const cuda_coded &all, berth_dtype x,
                               berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? start_scaled<gpu_bf16>(op, all, x)
                                 : start_scaled<gpu_f16>(op, all, x);
}

berth_status cuda_coded_packed(const gpu_op *op, const cuda_coded &all, berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? start_packed<gpu_bf16>(op, all) : start_packed<gpu_f16>(op, all);
}

bool cuda_coded_takes_digits(const cuda_coded &all) {
    return all.rows == 1 && has_whole_stages(all) &&
           lay_out<digits_kind<gpu_bf16>, 1>(all).stages >= LEAST_STAGES;
}

berth_status cuda_coded_digits(const gpu_op *op, const cuda_coded &all, berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? start_digits<gpu_bf16>(op, all) : start_digits<gpu_f16>(op, all);
}
