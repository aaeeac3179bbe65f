// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated on a GPU: an rms norm over groups of the columns and an activated gate, which
// comes before or after it.
#include "norm.h"

namespace {

enum { WEIGHT, Z };

struct formula : gpu_norm_gate {
    int is_norm_first;

    int64_t read(const berth_op_site *site) {
        const berth_attribute *group = berth_site_attribute(site, "group_size");
        is_norm_first = berth_site_attribute(site, "norm_before_gate")->i64 != 0;
        (void)gpu_norm_gate::read(site);
        return group->kind == BERTH_ATTRIBUTE_NONE ? 0 : group->i64;
    }
    // 1 without a gate.
    template <typename T> __device__ float factor(const gpu_norm_row<T> &row, int64_t i) const {
        return row.like[Z] ? gate(row.of_row(Z, i)) : 1.0f;
    }
    template <typename T> __device__ float value(const gpu_norm_row<T> &row, int64_t i) const {
        return gpu_float(row.x[i]) * (is_norm_first ? 1.0f : factor(row, i));
    }
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        return normal * row.of_column(WEIGHT, i, 1.0f) * (is_norm_first ? factor(row, i) : 1.0f);
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
