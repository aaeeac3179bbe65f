// SPDX-License-Identifier: Apache-2.0
// fused_rms_norm_gated on a GPU: an rms norm times an activated gate.
#include "norm.h"

namespace {

enum { G, WEIGHT };

struct formula {
    static constexpr bool IS_CENTRED = false;
    static constexpr int OPERANDS = 2;
    static constexpr int RESIDUAL = -1;
    float eps;
    int is_sigmoid;

    // The columns of one mean, 0: all.
    int64_t read(const berth_op_site *site) {
        is_sigmoid = gpu_norm_gate_is_sigmoid(site);
        return 0;
    }
    template <typename T> __device__ float value(const gpu_norm_row<T> &row, int64_t i) const {
        return gpu_float(row.x[i]);
    }
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        const float g = row.of_row(G, i);
        const float gate = is_sigmoid ? gpu_sigmoid<float>(g) : gpu_silu<float>(g);
        return normal * row.of_column(WEIGHT, i, 1.0f) * gate;
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
