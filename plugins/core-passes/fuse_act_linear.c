// SPDX-License-Identifier: Apache-2.0
// fuse_act_linear: the activation of a gated MLP, the quantizer behind it if there is one,
// and the linear layer that alone uses them, as one op.
//
//   silu_and_mul → [quant_fp8 | quant_int8] → linear | packed_linear | scaled_linear
#include "product/product.h"

BERTH_CHAINS_BEHIND("silu_and_mul");

const berth_pass berth_pass_fuse_act_linear = {
    .size = sizeof(berth_pass),
    .name = "fuse_act_linear",
    .revision = 1,
    .flag = "fuse_act_linear",
    .priority = 20,
    .patterns = patterns,
    .pattern_count = sizeof patterns / sizeof patterns[0],
};
