// SPDX-License-Identifier: Apache-2.0
// fuse_quant_linear: a quantizer and the linear layer that alone uses it as one op, where nothing
// before them could be fused: behind attention, or behind a norm that others use too. Hence the low
// priority.
//
//   quant_fp8 | quant_int8 → scaled_linear
#include "product/product.h"

static const berth_pass_node *const fp8[] = {
    BERTH_PASS_FIRST("quant_fp8"),
    BERTH_CHAIN_SCALED(0),
};
static const berth_pass_node *const int8[] = {
    BERTH_PASS_FIRST("quant_int8"),
    BERTH_CHAIN_SCALED(0),
};

static const berth_pass_pattern *const patterns[] = {
    BERTH_PASS_PATTERN(fp8, berth_fuse_product),
    BERTH_PASS_PATTERN(int8, berth_fuse_product),
};

const berth_pass berth_pass_fuse_quant_linear = {
    .size = sizeof(berth_pass),
    .name = "fuse_quant_linear",
    .revision = 1,
    .flag = "fuse_quant_linear",
    .priority = 10,
    .patterns = patterns,
    .pattern_count = sizeof patterns / sizeof patterns[0],
};
