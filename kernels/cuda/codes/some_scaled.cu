// SPDX-License-Identifier: Apache-2.0
// Some rows of e4m3 by codes of e4m3. Scales of rows and outputs come at the end.
#include <cuda/product/some_kernel.h>

berth_status cuda_some_scaled(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan,
                              berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? start<gpu_f8, gpu_bf16>(op, all, plan)
                                 : start<gpu_f8, gpu_f16>(op, all, plan);
}
