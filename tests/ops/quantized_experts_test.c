// SPDX-License-Identifier: Apache-2.0
// What quantized_experts promises beyond the cases: an expert alone is its two products, each with
// its input quantized before, and where inputs are floats it is fused_moe of the weights that the
// codes mean.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_fused_moe;
extern const berth_op berth_op_quant_fp8;
extern const berth_op berth_op_quant_int8;
extern const berth_op berth_op_quantized_experts;
extern const berth_op berth_op_scaled_linear;
extern const berth_op berth_op_silu_and_mul;

enum { TOKENS = 6, HIDDEN = 40, INNER = 16 };

static void build(op_case *self, const berth_op *op, const char *body) {
    op_line line = {.op = op, .name = "experts", .atol = 1e-3, .rtol = 1e-5};
    (void)snprintf(line.body, sizeof line.body, "%s", body);
    op_line_build(&line, self);
}

// Elements [first, …) of a tensor to an operand.
static void give(op_case *self, const char *name, const op_tensor *from, int64_t first) {
    op_tensor *to = op_case_operand(self, name);
    for (int64_t i = 0; i < op_tensor_count(to); ++i) {
        op_tensor_set(to, i, op_tensor_get(from, first + i));
    }
}

// ---- an expert alone ----------------------------------------------------------------------------

// How both inputs become codes, and the bodies of the ops that do so one by one.
typedef struct chain {
    const char *experts; // what comes behind x
    const berth_op *quantise;
    const char *attributes; // of quantise
    const char *code;
    const char *scale[2]; // shapes of the scales of the two inputs
    const char *weight_scale[2];
    const char *groups;
} chain;

static const chain chains[] = {
    {
     "w13_weight=f8[1,32,40]! w13_scale=f32[1,32,1]! w2_weight=f8[1,40,16]! "
        "w2_scale=f32[1,40,1]! code=e4m3 group_shape=1,-1 input=token", &berth_op_quant_fp8,
     "static=0 group_shape=1,-1",                                       "f8",
     {"1", "1"},
     {"32,1", "40,1"},
     "1,-1", },
    {
     "w13_weight=f8[1,32,40]! w13_scale=f32[1,2,3]! w2_weight=f8[1,40,16]! "
        "w2_scale=f32[1,3,1]! code=e4m3 group_shape=16,16 input=group",                                                                &berth_op_quant_fp8,
     "static=0 group_shape=1,16", "f8",
     {"3", "1"},
     {"2,3", "3,1"},
     "16,16", },
    {
     "w13_weight=i8[1,32,40]<100! w13_scale=f32[1,32,1]! w2_weight=i8[1,40,16]<100! "
        "w2_scale=f32[1,40,1]! code=i8 group_shape=1,-1 input=token",                                                    &berth_op_quant_int8,
     "",                                                       "i8",
     {"1", "1"},
     {"32,1", "40,1"},
     "1,-1", },
};

// One of the two products of the expert, its input quantized before.
static void multiply(const chain *of, int which, op_case *experts, const op_tensor *x,
                     op_results *out) {
    static const char *const weights[] = {"w13_weight", "w2_weight"};
    static const char *const scales[] = {"w13_scale", "w2_scale"};
    const int n = which == 0 ? 2 * INNER : HIDDEN;
    const int k = which == 0 ? HIDDEN : INNER;
    char body[512];
    op_case quantise, product;
    op_results codes;
    (void)snprintf(body, sizeof body, "x=f32[%d,%d] %s", TOKENS, k, of->attributes);
    build(&quantise, of->quantise, body);
    give(&quantise, "x", x, 0);
    op_case_reference(&quantise, &codes);
    (void)snprintf(body, sizeof body,
                   "x=%s[%d,%d] x_scale=f32[%d,%s] weight=%s[%d,%d]! weight_scale=f32[%s]! "
                   "group_shape=%s dtype=f32",
                   of->code, TOKENS, k, TOKENS, of->scale[which], of->code, n, k,
                   of->weight_scale[which], of->groups);
    build(&product, &berth_op_scaled_linear, body);
    give(&product, "x", &codes.outputs[0], 0);
    give(&product, "x_scale", &codes.outputs[1], 0);
    give(&product, "weight", op_case_operand(experts, weights[which]), 0);
    give(&product, "weight_scale", op_case_operand(experts, scales[which]), 0);
    op_case_reference(&product, out);
    op_results_free(&codes);
    op_case_free(&quantise);
    op_case_free(&product);
}

static void check_chain(const chain *of) {
    char body[512];
    op_case experts, activate;
    op_results got, inner, activated, wanted;
    (void)snprintf(body, sizeof body,
                   "x=f32[%d,%d] topk_weights=f32[%d,1]:1,1,1,1,1,1 topk_ids=i32[%d,1]<1 %s",
                   TOKENS, HIDDEN, TOKENS, TOKENS, of->experts);
    build(&experts, &berth_op_quantized_experts, body);
    op_case_reference(&experts, &got);
    multiply(of, 0, &experts, op_case_operand(&experts, "x"), &inner);
    (void)snprintf(body, sizeof body, "x=f32[%d,%d]", TOKENS, 2 * INNER);
    build(&activate, &berth_op_silu_and_mul, body);
    give(&activate, "x", &inner.outputs[0], 0);
    op_case_reference(&activate, &activated);
    multiply(of, 1, &experts, &activated.outputs[0], &wanted);
    op_tensor_compare(&got.outputs[0], &wanted.outputs[0], 1e-6, 1e-6);
    op_results *const results[] = {&got, &inner, &activated, &wanted};
    for (size_t i = 0; i < BERTH_COUNT(results); ++i) {
        op_results_free(results[i]);
    }
    op_case_free(&experts);
    op_case_free(&activate);
}

TEST(an_expert_alone_is_two_products_with_their_inputs_quantized_before) {
    for (size_t i = 0; i < BERTH_COUNT(chains); ++i) {
        check_chain(&chains[i]);
    }
}

// ---- inputs in floats ---------------------------------------------------------------------------

static int nibble(const op_tensor *codes, int64_t i) {
    const int byte = (int)op_tensor_get(codes, i / 2);
    return i % 2 == 0 ? byte & 15 : byte >> 4;
}

// What the codes of four bits mean, by groups of 8 columns, where their inputs are.
static void decode(op_case *from, op_case *to, const char *projection) {
    static const double e2m1[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    char name[32];
    (void)snprintf(name, sizeof name, "%s_weight", projection);
    const op_tensor *codes = op_case_operand(from, name);
    op_tensor *weight = op_case_operand(to, name);
    (void)snprintf(name, sizeof name, "%s_scale", projection);
    const op_tensor *scale = op_case_operand(from, name);
    (void)snprintf(name, sizeof name, "%s_zero_points", projection);
    const op_tensor *zeros = op_case_operand(from, name);
    const bool is_u4 = strcmp(op_case_attribute(from, "code")->str, "u4") == 0;
    (void)snprintf(name, sizeof name, "%s_permutation", projection);
    const op_tensor *order = op_case_operand(from, name);
    const int64_t width = weight->shape[2];
    const int64_t rows = weight->shape[1];
    for (int64_t i = 0; i < op_tensor_count(weight); ++i) {
        const int64_t row = i / width;
        const int64_t column = i % width;
        const int64_t input = op_tensor_is_present(order)
                                  ? (int64_t)op_tensor_get(order, row / rows * width + column)
                                  : column;
        const int code = nibble(codes, i);
        const double zero = op_tensor_is_present(zeros) ? op_tensor_get(zeros, i / 8) : 8;
        const double number = is_u4 ? code - zero : e2m1[code & 7] * ((code & 8) != 0 ? -1 : 1);
        op_tensor_set(weight, row * width + input, number * op_tensor_get(scale, i / 8));
    }
}

// Of every expert another order of all inputs; `step` divides none of their numbers.
static void turn(op_case *self, const char *name, int64_t step) {
    op_tensor *order = op_case_operand(self, name);
    for (int64_t i = 0; op_tensor_is_present(order) && i < op_tensor_count(order); ++i) {
        const int64_t width = order->shape[1];
        op_tensor_set(order, i, (double)((i % width * step + i / width) % width));
    }
}

static void check_floats(const char *body) {
    static const char *const shared[] = {"x", "topk_weights", "topk_ids", "w13_bias", "w2_bias"};
    op_case experts, plain;
    op_results got, wanted;
    build(&experts, &berth_op_quantized_experts, body);
    turn(&experts, "w13_permutation", 5);
    turn(&experts, "w2_permutation", 3);
    build(&plain, &berth_op_fused_moe,
          "x=f32[7,24] w13_weight=f32[4,32,24]! w2_weight=f32[4,24,16]! topk_weights=f32[7,2] "
          "topk_ids=i32[7,2]<4 w13_bias=f32[4,32]! w2_bias=f32[4,24]!");
    op_case_attribute(&plain, "activation")->str = op_case_attribute(&experts, "activation")->str;
    for (size_t i = 0; i < BERTH_COUNT(shared); ++i) {
        give(&plain, shared[i], op_case_operand(&experts, shared[i]), 0);
    }
    decode(&experts, &plain, "w13");
    decode(&experts, &plain, "w2");
    op_case_reference(&experts, &got);
    op_case_reference(&plain, &wanted);
    op_tensor_compare(&got.outputs[0], &wanted.outputs[0], 2e-2, 1e-5);
    op_results_free(&got);
    op_results_free(&wanted);
    op_case_free(&experts);
    op_case_free(&plain);
}

#define HALVES                                                                                     \
    "x=f32[7,24] w13_weight=u8[4,32,12]<256! w13_scale=f32[4,32,3]! w2_weight=u8[4,24,8]<256! "    \
    "w2_scale=f32[4,24,2]! topk_weights=f32[7,2] topk_ids=i32[7,2]<4 w13_bias=f32[4,32]! "         \
    "w2_bias=f32[4,24]! group_shape=1,8 input=float "

TEST(experts_whose_inputs_are_floats_are_those_of_the_weights_that_codes_mean) {
    check_floats(HALVES "code=u4");
    check_floats(HALVES "code=u4 w13_zero_points=u8[4,32,3]<16! w2_zero_points=u8[4,24,2]<16!");
    check_floats(HALVES "code=e2m1 activation=swigluoai");
    check_floats(HALVES "code=u4 w13_permutation=i32[4,24]<24! w2_permutation=i32[4,16]<16!");
    check_floats(HALVES "code=u4 w2_permutation=i32[4,16]<16!");
}
