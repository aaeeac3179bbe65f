// SPDX-License-Identifier: Apache-2.0
// What the passes of this folder share: a chain that ends in a linear layer becomes one fused op.
//
//   [rms_norm | silu_and_mul] → [quant_fp8 | quant_int8] → linear | packed_linear | scaled_linear
//
// A pass lists the chains that begin with its op; berth_fuse_product rewrites any of them.
#ifndef BERTH_CORE_PASSES_PRODUCT_H
#define BERTH_CORE_PASSES_PRODUCT_H

#include <berth/pass.h>

// Links of chains, by their place in one.
#define BERTH_CHAIN_PRODUCT(op) BERTH_PASS_NODE(op, BERTH_PASS_INPUT("x", 0, 0))
#define BERTH_CHAIN_QUANT(op)   BERTH_PASS_NODE(op, BERTH_PASS_INPUT("x", 0, 0))
#define BERTH_CHAIN_SCALED(quant)                                                                  \
    BERTH_PASS_NODE("scaled_linear", BERTH_PASS_INPUT("x", quant, 0),                              \
                    BERTH_PASS_INPUT("x_scale", quant, 1))

// The patterns of a pass whose chains begin with the op that nothing precedes, at file scope.
#define BERTH_CHAINS_BEHIND(op)                                                                    \
    static const berth_pass_node *const linear[] = {                                               \
        BERTH_PASS_FIRST(op),                                                                      \
        BERTH_CHAIN_PRODUCT("linear"),                                                             \
    };                                                                                             \
    static const berth_pass_node *const packed[] = {                                               \
        BERTH_PASS_FIRST(op),                                                                      \
        BERTH_CHAIN_PRODUCT("packed_linear"),                                                      \
    };                                                                                             \
    static const berth_pass_node *const fp8[] = {                                                  \
        BERTH_PASS_FIRST(op),                                                                      \
        BERTH_CHAIN_QUANT("quant_fp8"),                                                            \
        BERTH_CHAIN_SCALED(1),                                                                     \
    };                                                                                             \
    static const berth_pass_node *const int8[] = {                                                 \
        BERTH_PASS_FIRST(op),                                                                      \
        BERTH_CHAIN_QUANT("quant_int8"),                                                           \
        BERTH_CHAIN_SCALED(1),                                                                     \
    };                                                                                             \
    static const berth_pass_pattern *const patterns[] = {                                          \
        BERTH_PASS_PATTERN(linear, berth_fuse_product),                                            \
        BERTH_PASS_PATTERN(packed, berth_fuse_product),                                            \
        BERTH_PASS_PATTERN(fp8, berth_fuse_product),                                               \
        BERTH_PASS_PATTERN(int8, berth_fuse_product),                                              \
    }

// The chain as one op, where the fused op can be it: BERTH_NOT_FOUND where it cannot.
berth_status berth_fuse_product(const berth_pass_match *match, berth_builder *builder);

#endif
