// SPDX-License-Identifier: Apache-2.0
// moe_experts on compute capability 9.0 in 16 bits: products are experts/numbers.cu's.
#include <cuda/experts/numbers.h>
#include <gpu/mixture.h>

namespace {

berth_status supports(const berth_op_site *site, const berth_device *device) {
    constexpr cuda_experts_inputs INPUTS = {0, 2, 3}; // expert_x, w13_weight, w2_weight
    const char *why = cuda_experts_why_not(site, device, INPUTS);
    return why ? BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why) : BERTH_OK;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_expert_rows_create(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<gpu_expert_rows *>(*out_self)->faster = cuda_experts_numbers;
    }
    return status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_moe_experts_fast;
const berth_op_impl berth_kernel_moe_experts_fast = {
    .size = sizeof(berth_op_impl),
    .op = "moe_experts",
    .name = "cuda.moe_experts",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = gpu_expert_rows_workspace,
    .forward = gpu_expert_rows_forward,
    .destroy = gpu_destroy,
};
}
