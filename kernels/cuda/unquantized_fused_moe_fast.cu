// SPDX-License-Identifier: Apache-2.0
// unquantized_fused_moe on compute capability 9.0 in 16 bits (fused_moe_fast.cu).
#include <cuda/experts/mixture.h>

extern "C" {
extern const berth_op_impl berth_kernel_unquantized_fused_moe_fast;
const berth_op_impl berth_kernel_unquantized_fused_moe_fast = CUDA_MIXTURE("unquantized_fused_moe");
}
