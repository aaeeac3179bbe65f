// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated on a GPU: an rms norm over groups of the columns and an activated gate, which
// comes before or after it.
#include "norm.h"

namespace {

enum { WEIGHT, Z };

struct formula {
    static constexpr bool IS_CENTRED = false;
    static constexpr int OPERANDS = 2;
    static constexpr int RESIDUAL = -1;
    float eps;
    int is_sigmoid;
    int is_norm_first;

    // The columns of one mean, 0: all.
    int64_t read(const berth_op_site *site) {
        const berth_attribute *group = berth_site_attribute(site, "group_size");
        is_sigmoid = gpu_norm_gate_is_sigmoid(site);
        is_norm_first = berth_site_attribute(site, "norm_before_gate")->i64 != 0;
        return group->kind == BERTH_ATTRIBUTE_NONE ? 0 : group->i64;
    }
    // 1 without one.
    template <typename T> __device__ float gate(const gpu_norm_row<T> &row, int64_t i) const {
        const float z = row.like[Z] ? row.of_row(Z, i) : 0.0f;
        const float active = is_sigmoid ? gpu_sigmoid<float>(z) : gpu_silu<float>(z);
        return row.like[Z] ? active : 1.0f;
    }
    template <typename T> __device__ float value(const gpu_norm_row<T> &row, int64_t i) const {
        return gpu_float(row.x[i]) * (is_norm_first ? 1.0f : gate(row, i));
    }
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        return normal * row.of_column(WEIGHT, i, 1.0f) * (is_norm_first ? gate(row, i) : 1.0f);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_rms_norm_gated;
const berth_op_impl berth_kernel_rms_norm_gated = {
    BERTH_GPU_KERNEL("rms_norm_gated"),
    .revision = 1,
    GPU_NORM_SLOTS(formula),
};
}
