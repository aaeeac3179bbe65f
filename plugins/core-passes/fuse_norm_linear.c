// SPDX-License-Identifier: Apache-2.0
// fuse_norm_linear: a norm, the quantizer behind it if there is one, and the linear layer
// that alone uses them, as one op. The running sum, a norm's second output, may have other users.
//
//   rms_norm → [quant_fp8 | quant_int8] → linear | packed_linear | scaled_linear
#include "product/product.h"

BERTH_CHAINS_BEHIND("rms_norm");

const berth_pass berth_pass_fuse_norm_linear = {
    .size = sizeof(berth_pass),
    .name = "fuse_norm_linear",
    .revision = 1,
    .flag = "fuse_norm_linear",
    .priority = 20,
    .patterns = patterns,
    .pattern_count = sizeof patterns / sizeof patterns[0],
};
