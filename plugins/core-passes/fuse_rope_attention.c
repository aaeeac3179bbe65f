// SPDX-License-Identifier: Apache-2.0
// fuse_rope_attention: query and key turn in the attention that alone uses them, which stores the
// turned key in the cache, as one op.
//
//   rotary_embedding → paged_attention
//
// Why no view between them: both ops have heads as a dimension of their own.
#include <berth/pass.h>

enum { ROPE, ATTENTION };

#define MAX_ATTRIBUTES 64

// In the order of the fused op: what turns, then what attention has besides.
static uint64_t list_inputs(const berth_pass_match *match, berth_value *out) {
    static const char *const of_rope[] = {"positions",     "query",    "key",
                                          "cos_sin_cache", "cos_coef", "sin_coef"};
    static const char *const of_attention[] = {
        "value", "sinks", "alibi_slopes", "sink_key", "sink_value", "key_scale", "value_scale"};
    uint64_t count = 0;
    for (uint64_t i = 0; i < sizeof of_rope / sizeof of_rope[0]; ++i) {
        out[count++] = berth_pass_value(match, ROPE, of_rope[i]);
    }
    for (uint64_t i = 0; i < sizeof of_attention / sizeof of_attention[0]; ++i) {
        out[count++] = berth_pass_value(match, ATTENTION, of_attention[i]);
    }
    return count;
}

static berth_status rewrite(const berth_pass_match *match, berth_builder *builder) {
    const berth_attribute *attributes[MAX_ATTRIBUTES];
    berth_value inputs[BERTH_MAX_INPUTS];
    berth_value out = BERTH_VALUE_NONE;
    const uint64_t input_count = list_inputs(match, inputs);
    uint64_t count = berth_pass_attributes(match, ROPE, attributes, MAX_ATTRIBUTES);
    count += berth_pass_attributes(match, ATTENTION, attributes + count, MAX_ATTRIBUTES - count);
    (void)builder->op(builder, &(const berth_call){
                                   .size = sizeof(berth_call),
                                   .name = "rotary_attention",
                                   .prefix = match->sites[ATTENTION]->layer, // which has the cache
                                   .inputs = inputs,
                                   .input_count = input_count,
                                   .attributes = attributes,
                                   .attribute_count = count,
                                   .outputs = &out,
                                   .output_count = 1,
                               });
    match->replace(match, match->outputs[ATTENTION][0], out);
    return BERTH_OK;
}

static const berth_pass_node *const nodes[] = {
    BERTH_PASS_FIRST("rotary_embedding"),
    BERTH_PASS_NODE("paged_attention", BERTH_PASS_INPUT("query", ROPE, 0),
                    BERTH_PASS_INPUT("key", ROPE, 1)),
};
static const berth_pass_pattern *const patterns[] = {BERTH_PASS_PATTERN(nodes, rewrite)};

const berth_pass berth_pass_fuse_rope_attention = {
    .size = sizeof(berth_pass),
    .name = "fuse_rope_attention",
    .revision = 1,
    .flag = "fuse_rope_kvcache",
    .priority = 20,
    .patterns = patterns,
    .pattern_count = sizeof patterns / sizeof patterns[0],
};
