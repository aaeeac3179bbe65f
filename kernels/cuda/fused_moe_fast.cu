// SPDX-License-Identifier: Apache-2.0
// fused_moe on compute capability 9.0 in 16 bits, and what the other whole mixtures of experts
// share with it: products of many rows are experts/numbers.cu's, all else is gpu.fused_moe's.
#include <cuda/experts/mixture.h>
#include <cuda/experts/numbers.h>

berth_status cuda_mixture_supports(const berth_op_site *site, const berth_device *device) {
    constexpr cuda_experts_inputs INPUTS = {0, 1, 2}; // x, w13_weight, w2_weight
    const char *why = cuda_experts_why_not(site, device, INPUTS);
    return why ? BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why)
               : gpu_mixture_supports(site, device);
}

berth_status cuda_mixture_create(const berth_op_site *site, const berth_device *device,
                                 void **out_self) {
    const berth_status status = gpu_mixture_create(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<gpu_mixture *>(*out_self)->faster = cuda_experts_numbers;
    }
    return status;
}

extern "C" {
extern const berth_op_impl berth_kernel_fused_moe_fast;
const berth_op_impl berth_kernel_fused_moe_fast = CUDA_MIXTURE("fused_moe");
}
