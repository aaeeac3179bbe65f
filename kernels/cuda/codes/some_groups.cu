// SPDX-License-Identifier: Apache-2.0
// Some rows of e4m3 by codes of e4m3 whose columns have scales of their own, in blocks.
#include <cuda/product/some_kernel.h>

berth_status cuda_some_groups(const gpu_op *op, const cuda_some &all, const cuda_some_plan &plan,
                              berth_dtype y) {
    return y == BERTH_DTYPE_BF16 ? start<grouped_f8, gpu_bf16>(op, all, plan)
                                 : start<grouped_f8, gpu_f16>(op, all, plan);
}
