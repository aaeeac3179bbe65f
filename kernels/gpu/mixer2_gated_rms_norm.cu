// SPDX-License-Identifier: Apache-2.0
// mixer2_gated_rms_norm on a GPU: an rms norm over groups of x · silu(gate), or that product alone.
// Of one group that spans several ranks the sum of the squares is an operand.
#include "norm.h"

namespace {

enum { GATE, WEIGHT, SUM_OF_SQUARES };

struct formula : gpu_norm_formula {
    static constexpr int OPERANDS = 3;
    static constexpr int COLUMNS = 1 << WEIGHT;
    int is_norm;
    float shared; // columns of the one group of all ranks, 0: groups are this rank's own

    int64_t read(const berth_op_site *site) {
        const berth_value_type *x = site->inputs[0];
        const int64_t whole = berth_site_attribute(site, "full_hidden_size")->i64;
        const int64_t group = whole / berth_site_attribute(site, "full_n_groups")->i64;
        const int64_t own = x->dims[x->ndim - 1].b;
        is_norm = berth_site_attribute(site, "use_rms_norm")->i64 != 0;
        shared = group > own ? static_cast<float>(whole) : 0.0f;
        return group > own ? own : group;
    }
    template <typename T>
    __device__ float mean(const gpu_norm_row<T> &row, float squares, float count) const {
        const gpu_norm_operand *sums = &row.operands[SUM_OF_SQUARES];
        const int64_t gap = sums->rows.outer_gap; // bytes
        return shared > 0 && sums->rows.data
                   ? gpu_load_any(sums->rows.data + blockIdx.x * gap, sums->dtype, 0) / shared
                   : squares / count;
    }
    template <typename T> __device__ float value(const gpu_norm_row<T> &row, int64_t i) const {
        return gpu_float(row.x[i]) * gpu_silu<float>(row.of_row(GATE, i));
    }
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &row, int64_t i, float normal) const {
        return is_norm ? gpu_rounded<T>(normal) * row.of_column(WEIGHT, i, 1.0f) : value(row, i);
    }
};

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mixer2_gated_rms_norm;
const berth_op_impl berth_kernel_mixer2_gated_rms_norm = {
    BERTH_GPU_KERNEL("mixer2_gated_rms_norm"),
    .revision = 1,
    GPU_NORM_SLOTS(formula),
};
}
