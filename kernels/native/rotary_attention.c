// SPDX-License-Identifier: Apache-2.0
// rotary_attention: paged_attention of what rotary_embedding makes of query and key, bit by bit:
// both are rounded to their dtype after they turned, and the turned key is what the cache gets.
//
//   positions      [tokens] or [3, tokens]  i32 or i64
//   query          [tokens, heads, d]       f32, f16 or bf16
//   key            [tokens, kv_heads, d]    query's dtype; absent: the cache is read only
//   cos_sin_cache, cos_coef, sin_coef       optional, of rotary_embedding
//   value          [tokens, kv_heads, d]    like key, does not turn
//   sinks, alibi_slopes, sink_key, sink_value, key_scale, value_scale
//                                           optional, of paged_attention; sink_key does not turn
//   out            like query
//   states key_cache, value_cache           paged_attention's
//
// The inputs are rotary_embedding's, then those that paged_attention has besides; attributes are
// those of both, which share no name. What each means is said there.
#include <berth/op.h>

#include "fused_parts.h"
#include "rope/attributes.h"

extern const berth_op berth_op_paged_attention;
extern const berth_op berth_op_rotary_embedding;

enum { QUERY = 1, KEY, ROPE_INPUTS = 6 };

#define ALIGNMENT 16 // of what lies in the workspace

// ---- the parts ----------------------------------------------------------------------------------

static void hand_on_attributes(fused_part *part) {
    for (uint64_t i = 0; i < part->of->attribute_count; ++i) {
        fused_hand_on(part, part->of->attributes[i]->name);
    }
}

static void begin_rope(fused_part *part, const berth_op_site *site) {
    fused_begin(part, site, &berth_op_rotary_embedding);
    for (uint64_t i = 0; i < ROPE_INPUTS; ++i) {
        fused_give_own(part, i);
    }
    hand_on_attributes(part);
}

// Turned query and key have the types that they had before.
static void begin_attention(fused_part *part, const berth_op_site *site) {
    fused_begin(part, site, &berth_op_paged_attention);
    for (uint64_t i = QUERY; i < site->input_count; ++i) {
        if (i <= KEY || i >= ROPE_INPUTS) {
            fused_give_own(part, i);
        }
    }
    hand_on_attributes(part);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    fused_part part;
    berth_value_type query;
    berth_value_type y;
    begin_rope(&part, site);
    BERTH_RULE_TRY(fused_infer(&part, &query, NULL));
    begin_attention(&part, site);
    BERTH_RULE_TRY(fused_infer(&part, &y, NULL));
    berth_rule_give(out, &y);
    return BERTH_OK;
}

// ---- reference ----------------------------------------------------------------------------------

// A dense [tokens, heads, d] in the workspace; it points into itself.
typedef struct turned {
    berth_tensor tensor;
    int64_t strides[3];
} turned;

static uint64_t bytes_of(berth_dtype dtype, int64_t tokens, const int64_t *heads_and_width) {
    const int64_t bits = tokens * heads_and_width[0] * heads_and_width[1] * BERTH_DTYPE_BITS(dtype);
    return ((uint64_t)bits / 8 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// Room for one like `x`; NULL stays NULL.
static const berth_tensor *lay(turned *self, const berth_tensor *x, char **room) {
    if (!x) {
        return NULL;
    }
    self->tensor = *x;
    self->tensor.data = *room;
    self->tensor.byte_offset = 0;
    self->tensor.strides = self->strides;
    self->strides[2] = 1;
    self->strides[1] = x->shape[2];
    self->strides[0] = x->shape[1] * x->shape[2];
    *room += bytes_of(x->dtype, x->shape[0], x->shape + 1);
    return &self->tensor;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    char *room = berth_data(args->workspace);
    fused_part part;
    turned query;
    turned key;
    const berth_tensor *turned_query = lay(&query, args->inputs[QUERY], &room);
    const berth_tensor *turned_key = lay(&key, args->inputs[KEY], &room);
    begin_rope(&part, site);
    for (uint64_t i = 0; i < ROPE_INPUTS; ++i) {
        fused_pass_own(&part, args, i);
    }
    BERTH_RULE_TRY(fused_run(&part, turned_query, turned_key, (float *)(void *)room));
    begin_attention(&part, site);
    part.call = args;
    fused_pass(&part, "query", turned_query);
    fused_pass(&part, "key", turned_key);
    for (uint64_t i = ROPE_INPUTS; i < site->input_count; ++i) {
        fused_pass_own(&part, args, i);
    }
    return fused_run(&part, args->outputs[0], NULL, (float *)(void *)room);
}

static uint64_t turned_bytes(const berth_value_type *type, uint64_t tokens) {
    const int64_t sizes[] = {type ? type->dims[1].b : 0, type ? type->dims[2].b : 0};
    return type ? bytes_of(type->dtype, (int64_t)tokens, sizes) : 0;
}

// Why `tokens`: attention wants all keys of a step stored before its first query, so both turn
// first, all of them.
static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    fused_part part;
    begin_rope(&part, site);
    const uint64_t rope = part.of->reference_workspace(&part.site, tokens);
    begin_attention(&part, site);
    const uint64_t attention = part.of->reference_workspace(&part.site, tokens);
    return turned_bytes(site->inputs[QUERY], tokens) + turned_bytes(site->inputs[KEY], tokens) +
           (rope > attention ? rope : attention);
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("positions"),
    BERTH_STRIDED_INPUT("query"),
    BERTH_OPTIONAL_STRIDED_INPUT("key"),
    BERTH_OPTIONAL_INPUT("cos_sin_cache"),
    BERTH_OPTIONAL_INPUT("cos_coef"),
    BERTH_OPTIONAL_INPUT("sin_coef"),
    BERTH_OPTIONAL_STRIDED_INPUT("value"),
    BERTH_OPTIONAL_INPUT("sinks"),
    BERTH_OPTIONAL_INPUT("alibi_slopes"),
    BERTH_OPTIONAL_INPUT("sink_key"),
    BERTH_OPTIONAL_INPUT("sink_value"),
    BERTH_OPTIONAL_INPUT("key_scale"),
    BERTH_OPTIONAL_INPUT("value_scale"),
};
static const berth_op_argument *const states[] = {
    BERTH_INPUT("key_cache"),
    BERTH_INPUT("value_cache"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_ROPE_ATTRIBUTES,
    BERTH_REQUIRED_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64),
    BERTH_OPTIONAL_ATTRIBUTE("sliding_window", BERTH_ATTRIBUTE_I64, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("logits_soft_cap", BERTH_ATTRIBUTE_F64, .f64 = 0.0),
    BERTH_ABSENT_ATTRIBUTE("causal_per_sequence", BERTH_ATTRIBUTE_I64S),
    BERTH_ABSENT_ATTRIBUTE("chunk_size", BERTH_ATTRIBUTE_I64),
};
const berth_op berth_op_rotary_attention = {
    .size = sizeof(berth_op),
    .name = "rotary_attention",
    .class_name = "RotaryAttention",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .states = states,
    .state_count = sizeof states / sizeof states[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = reference_workspace,
};
