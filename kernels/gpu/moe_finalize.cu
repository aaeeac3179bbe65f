// SPDX-License-Identifier: Apache-2.0
// moe_finalize on a GPU: every token's share of its experts' rows, in the order of its choices.
#include "each.h"

namespace {

enum { EXPERT_Y, TOPK_WEIGHTS, SLOTS };

struct formula {
    gpu_rows rows;
    int64_t count; // of rows
    const float *weights;
    const void *slots; // [tokens, k]
    berth_dtype dtype;
    int64_t per_token;
    int is_weighted; // already

    // A slot that is not there makes NaN, so that the step fails where a token is chosen.
    template <typename T> __device__ float at(int64_t token, int64_t i) const {
        float sum = 0;
        for (int64_t c = token * per_token; c < (token + 1) * per_token; ++c) {
            const int64_t slot = gpu_integer(slots, dtype, c);
            const float weight = is_weighted ? 1.0f : weights[c];
            if (slot < -1 || slot >= count) {
                return NAN;
            }
            sum += slot >= 0 ? gpu_float(gpu_row<const T>(rows, slot)[i]) * weight : 0.0f;
        }
        return sum;
    }
};

struct finisher : gpu_op {
    int is_weighted;
};

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<finisher>(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<finisher *>(*out_self)->is_weighted =
            berth_site_attribute(site, "apply_router_weight_on_input")->i64 != 0;
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const finisher *op = static_cast<const finisher *>(self);
    const berth_tensor *rows = args->inputs[EXPERT_Y];
    const berth_tensor *slots = args->inputs[SLOTS];
    const formula share = {gpu_rows_of(rows),
                           rows->shape[0],
                           static_cast<const float *>(berth_gpu_data(args->inputs[TOPK_WEIGHTS])),
                           berth_gpu_data(slots),
                           slots->dtype,
                           slots->shape[1],
                           op->is_weighted};
    return gpu_with_type(rows->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return gpu_each<T, T>(op, share, args->outputs[0]);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_moe_finalize;
const berth_op_impl berth_kernel_moe_finalize = {
    BERTH_GPU_KERNEL("moe_finalize"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
