// SPDX-License-Identifier: Apache-2.0
// gemma_rms_norm on a GPU: an rms norm with weights that are stored without the 1, of x + residual
// when there is one.
#include "norm.h"

namespace {

enum { WEIGHT, ADDED };

struct formula : gpu_norm_formula {
    static constexpr int OPERANDS = 2;
    static constexpr int RESIDUAL = ADDED;

    template <typename T> __device__ float value(const gpu_norm_row<T> &row, int64_t i) const {
        return gpu_float(row.x[i]) + (row.like[ADDED] ? row.of_row(ADDED, i) : 0.0f);
    }
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        return normal * (1.0f + row.of_column(WEIGHT, i, 0.0f));
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gemma_rms_norm;
const berth_op_impl berth_kernel_gemma_rms_norm = {
    BERTH_GPU_KERNEL("gemma_rms_norm"),
    .revision = 1,
    GPU_NORM_SLOTS(formula),
};
}
