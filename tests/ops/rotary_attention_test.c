// SPDX-License-Identifier: Apache-2.0
// rotary_attention's reference is rotary_embedding's and then paged_attention's: the same bits, in
// the cache, too.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_paged_attention;
extern const berth_op berth_op_rotary_attention;
extern const berth_op berth_op_rotary_embedding;

static const char *const bodies[] = {
    "positions=i32[T]<48 query=f32[T,4,16] key=f32[T,2,16] value=f32[T,2,16] "
    "key_cache=f32[14,8,2,16] value_cache=f32[14,8,2,16] batch=1:20,6:6,4:31,1:1 rotary_dim=16 "
    "max_position=48 scale=0.25",
    "positions=i64[T]<48 query=bf16[T,4,16]+3@1 key=bf16[T,2,16]+5@1 value=bf16[T,2,16]+1@1 "
    "sinks=f32[4] key_cache=bf16[14,8,2,16] value_cache=bf16[14,8,2,16] batch=9:20,1:30 "
    "rotary_dim=8 max_position=48 is_neox_style=0 scale=0.25 sliding_window=6 logits_soft_cap=10",
    "positions=i32[T]<128 query=f16[T,4,16] key=f16[T,2,16] value=f16[T,2,16] "
    "key_scale=f32[1]!:0.031 value_scale=f32[1]!:0.0057 key_cache=f8[14,8,2,16] "
    "value_cache=f8[14,8,2,16] batch=1:20,6:6 skip=2 rotary_dim=16 max_position=32 rope_type=yarn "
    "factor=4 original_max_position_embeddings=32 scale=0.25",
    "positions=i32[3,T]<48 query=bf16[T,4,32] key=bf16[T,2,32] cos_sin_cache=f32[128,32] "
    "value=bf16[T,2,32] sink_key=bf16[3,2,32] sink_value=bf16[3,2,32] key_cache=bf16[12,8,2,32] "
    "value_cache=bf16[12,8,2,32] batch=2:5,1:17 rotary_dim=32 max_position=32 mrope_section=8,4,4 "
    "scale=0.2",
    "positions=i32[T]<48 query=bf16[T,4,16] key_cache=bf16[12,8,2,16] value_cache=bf16[12,8,2,16] "
    "batch=2:5,1:17 rotary_dim=16 max_position=48 scale=0.25",
};

// As it is. Why not op_case_attribute: that one is for setting it.
static berth_attribute attribute_of(const op_case *whole, const char *name) {
    size_t i = 0;
    while (strcmp(whole->op->attributes[i]->name, name) != 0) {
        ++i;
    }
    return whole->attributes[i];
}

// What the whole has under the names that the part knows; the memory stays the whole's.
static void borrow(op_case *part, const berth_op *op, op_case *whole) {
    *part = *whole;
    part->op = op;
    for (uint64_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        part->inputs[i] = (op_tensor){0};
    }
    for (uint64_t i = 0; i < op->input_count; ++i) {
        part->inputs[i] = *op_case_operand(whole, op->inputs[i]->name);
    }
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        part->attributes[i] = attribute_of(whole, op->attributes[i]->name);
    }
}

static void put(op_case *part, const char *name, const op_tensor *turned) {
    op_tensor *input = op_case_operand(part, name);
    const berth_value_type type = input->type;
    *input = *turned;
    input->type = type;
}

static void check_chain(op_case *whole) {
    op_case rope;
    op_case attention;
    op_results turned;
    op_results wanted;
    op_results got;
    borrow(&rope, &berth_op_rotary_embedding, whole);
    for (uint64_t i = 0; i < OP_MAX_STATES; ++i) {
        rope.states[i] = (op_tensor){0};
    }
    op_case_reference(&rope, &turned);
    borrow(&attention, &berth_op_paged_attention, whole);
    put(&attention, "query", &turned.outputs[0]);
    if (turned.count > 1) {
        put(&attention, "key", &turned.outputs[1]);
    }
    op_case_reference(&attention, &wanted);
    op_case_reference(whole, &got);
    wanted.state_atol = wanted.state_rtol = 0;
    op_results_compare(&got, &wanted, 0, 0);
    op_results_free(&got);
    op_results_free(&wanted);
    op_results_free(&turned);
}

TEST(rotary_attention_is_the_chain_of_its_parts) {
    for (size_t i = 0; i < BERTH_COUNT(bodies); ++i) {
        op_line line = {.op = &berth_op_rotary_attention, .name = "chain"};
        op_case whole = {0};
        (void)snprintf(line.body, sizeof line.body, "%s", bodies[i]);
        op_line_build(&line, &whole);
        check_chain(&whole);
        op_case_free(&whole);
    }
}
