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

// The chain as one op, where the fused op can be it: BERTH_NOT_FOUND where it cannot.
berth_status berth_fuse_product(const berth_pass_match *match, berth_builder *builder);

#endif
