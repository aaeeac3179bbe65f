// SPDX-License-Identifier: Apache-2.0
// layer_norm on a GPU: the mean taken away, scaled to variance 1, then weight and bias.
#include "norm.h"

namespace {

enum { WEIGHT, BIAS };

struct formula : gpu_norm_formula {
    static constexpr bool IS_CENTRED = true;
    static constexpr int OPERANDS = 2;
    static constexpr int COLUMNS = 3;
    int64_t hidden;
    int weight_rows; // of the weight, which rows of x take in turns

    int64_t read(const berth_op_site *site) {
        const berth_value_type *x = site->inputs[0];
        const berth_attribute *rows = berth_site_attribute(site, "weight_rows");
        hidden = x->dims[x->ndim - 1].b;
        weight_rows = rows->kind == BERTH_ATTRIBUTE_NONE ? 1 : static_cast<int>(rows->i64);
        return 0;
    }
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        const int64_t first = weight_rows > 1 ? blockIdx.x % weight_rows * hidden : 0;
        return normal * row.of_column(WEIGHT, first + i, 1.0f) + row.of_column(BIAS, i, 0.0f);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_layer_norm;
const berth_op_impl berth_kernel_layer_norm = {
    BERTH_GPU_KERNEL("layer_norm"),
    .revision = 2,
    GPU_NORM_SLOTS(formula),
};
}
