// SPDX-License-Identifier: Apache-2.0
// fused_rms_norm_gated on a GPU: an rms norm times an activated gate.
#include "norm.h"

namespace {

enum { G, WEIGHT };

struct formula : gpu_norm_gate {
    static constexpr int COLUMNS = 1 << WEIGHT;

    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        return normal * row.of_column(WEIGHT, i, 1.0f) * gate(row.of_row(G, i));
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_fused_rms_norm_gated;
const berth_op_impl berth_kernel_fused_rms_norm_gated = {
    BERTH_GPU_KERNEL("fused_rms_norm_gated"),
    .revision = 1,
    GPU_NORM_SLOTS(formula),
};
}
