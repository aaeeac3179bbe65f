// SPDX-License-Identifier: Apache-2.0
// minimax_text01_rmsnorm_tp on a GPU: an rms norm with one rounding.
#include "norm.h"

namespace {

enum { WEIGHT };

struct formula : gpu_norm_formula {
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        return normal * row.of_column(WEIGHT, i, 1.0f);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_minimax_text01_rmsnorm_tp;
const berth_op_impl berth_kernel_minimax_text01_rmsnorm_tp = {
    BERTH_GPU_KERNEL("minimax_text01_rmsnorm_tp"),
    .revision = 1,
    GPU_NORM_SLOTS(formula),
};
}
