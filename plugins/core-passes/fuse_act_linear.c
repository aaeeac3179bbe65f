// SPDX-License-Identifier: Apache-2.0
// fuse_act_linear: the activation of a gated MLP, the quantizer behind it if there is one,
// and the linear layer that alone uses them, as one op.
//
//   silu_and_mul → [quant_fp8 | quant_int8] → linear | packed_linear | scaled_linear
#include "product/product.h"

static const berth_pass_node *const linear[] = {
    BERTH_PASS_FIRST("silu_and_mul"),
    BERTH_CHAIN_PRODUCT("linear"),
};
static const berth_pass_node *const packed[] = {
    BERTH_PASS_FIRST("silu_and_mul"),
    BERTH_CHAIN_PRODUCT("packed_linear"),
};
static const berth_pass_node *const fp8[] = {
    BERTH_PASS_FIRST("silu_and_mul"),
    BERTH_CHAIN_QUANT("quant_fp8"),
    BERTH_CHAIN_SCALED(1),
};
static const berth_pass_node *const int8[] = {
    BERTH_PASS_FIRST("silu_and_mul"),
    BERTH_CHAIN_QUANT("quant_int8"),
    BERTH_CHAIN_SCALED(1),
};

static const berth_pass_pattern *const patterns[] = {
    BERTH_PASS_PATTERN(linear, berth_fuse_product),
    BERTH_PASS_PATTERN(packed, berth_fuse_product),
    BERTH_PASS_PATTERN(fp8, berth_fuse_product),
    BERTH_PASS_PATTERN(int8, berth_fuse_product),
};

const berth_pass berth_pass_fuse_act_linear = {
    .size = sizeof(berth_pass),
    .name = "fuse_act_linear",
    .revision = 1,
    .flag = "fuse_act_linear",
    .priority = 20,
    .patterns = patterns,
    .pattern_count = sizeof patterns / sizeof patterns[0],
};
