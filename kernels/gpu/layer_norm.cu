// SPDX-License-Identifier: Apache-2.0
// layer_norm on a GPU: the mean taken away, scaled to variance 1, then weight and bias.
#include "norm.h"

namespace {

enum { WEIGHT, BIAS };

struct formula : gpu_norm_formula {
    static constexpr bool IS_CENTRED = true;
    static constexpr int OPERANDS = 2;
    static constexpr int COLUMNS = 3;

    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        return normal * row.of_column(WEIGHT, i, 1.0f) + row.of_column(BIAS, i, 0.0f);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_layer_norm;
const berth_op_impl berth_kernel_layer_norm = {
    BERTH_GPU_KERNEL("layer_norm"),
    .revision = 1,
    GPU_NORM_SLOTS(formula),
};
}
