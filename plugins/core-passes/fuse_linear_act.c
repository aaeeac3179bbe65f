// SPDX-License-Identifier: Apache-2.0
// fuse_linear_act: the first linear layer of a gated MLP and the activation that alone uses it, as
// one op. What it gives is half as wide as the product, which is never stored then.
//
//   linear → silu_and_mul
#include <berth/pass.h>

enum { LINEAR, ACTIVATION };

static berth_status rewrite(const berth_pass_match *match, berth_builder *builder) {
    const berth_value inputs[] = {
        berth_pass_value(match, LINEAR, "x"),
        berth_pass_value(match, LINEAR, "weight"),
        berth_pass_value(match, LINEAR, "bias"),
    };
    berth_value out = BERTH_VALUE_NONE;
    (void)builder->op(builder, &(const berth_call){
                                   .size = sizeof(berth_call),
                                   .name = "linear_silu_and_mul",
                                   .prefix = match->sites[LINEAR]->layer, // which has the weight
                                   .inputs = inputs,
                                   .input_count = sizeof inputs / sizeof inputs[0],
                                   .outputs = &out,
                                   .output_count = 1,
                               });
    match->replace(match, match->outputs[ACTIVATION][0], out);
    return BERTH_OK;
}

static const berth_pass_node *const nodes[] = {
    BERTH_PASS_FIRST("linear"),
    BERTH_PASS_NODE("silu_and_mul", BERTH_PASS_INPUT("x", LINEAR, 0)),
};
static const berth_pass_pattern *const patterns[] = {BERTH_PASS_PATTERN(nodes, rewrite)};

const berth_pass berth_pass_fuse_linear_act = {
    .size = sizeof(berth_pass),
    .name = "fuse_linear_act",
    .revision = 1,
    .priority = 10, // behind those that take the norm before it or the layer after it
    .patterns = patterns,
    .pattern_count = sizeof patterns / sizeof patterns[0],
};
