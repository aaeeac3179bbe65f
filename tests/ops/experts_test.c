// SPDX-License-Identifier: Apache-2.0
// What the experts of a mixture promise beyond the cases: the three steps of modular_fused_moe are
// the whole, a token's result depends on no other token and on no thread, both products of bf16
// agree with the reference, and a choice that is not there fails the step.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_fused_moe;
extern const berth_op berth_op_moe_prepare;
extern const berth_op berth_op_moe_experts;
extern const berth_op berth_op_moe_finalize;

static void build(op_case *self, const berth_op *op, const char *body) {
    op_line line = {.op = op, .name = "experts", .atol = 5, .rtol = 2e-2};
    (void)snprintf(line.body, sizeof line.body, "%s", body);
    op_line_build(&line, self);
}

// Gives an operand a copy of another tensor.
static void give(op_case *self, const char *name, const op_tensor *from) {
    op_tensor *to = op_case_operand(self, name);
    const bool is_parameter = to->is_parameter;
    op_tensor_free(to);
    op_tensor_copy(to, from, false);
    to->is_parameter = is_parameter;
}

static void check_same(const op_tensor *got, const op_tensor *wanted) {
    CHECK_INT(op_tensor_count(got), op_tensor_count(wanted));
    for (int64_t i = 0; i < op_tensor_count(wanted); ++i) {
        CHECK(op_tensor_get(got, i) == op_tensor_get(wanted, i));
    }
}

// The same operands, as far as the ops share them.
static void share(op_case *self, op_case *whole) {
    for (uint64_t i = 0; i < self->op->input_count; ++i) {
        const char *name = self->op->inputs[i]->name;
        const op_tensor *from = op_case_operand(whole, name);
        if (from != NULL && op_tensor_is_present(from)) {
            give(self, name, from);
        }
    }
}

static void check_steps(const char *body, const char *prepare_body, const char *experts_body,
                        const char *finalize_body) {
    op_case whole, prepare, experts, finalize;
    op_results wanted, rows, made, got;
    build(&whole, &berth_op_fused_moe, body);
    op_case_reference(&whole, &wanted);
    build(&prepare, &berth_op_moe_prepare, prepare_body);
    share(&prepare, &whole);
    op_case_reference(&prepare, &rows);
    build(&experts, &berth_op_moe_experts, experts_body);
    share(&experts, &whole);
    give(&experts, "expert_x", &rows.outputs[0]);
    give(&experts, "expert_first", &rows.outputs[1]);
    op_case_reference(&experts, &made);
    build(&finalize, &berth_op_moe_finalize, finalize_body);
    share(&finalize, &whole);
    give(&finalize, "expert_y", &made.outputs[0]);
    give(&finalize, "slots", &rows.outputs[2]);
    op_case_reference(&finalize, &got);
    check_same(&got.outputs[0], &wanted.outputs[0]);
    op_results *const results[] = {&wanted, &rows, &made, &got};
    op_case *const cases[] = {&whole, &prepare, &experts, &finalize};
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        op_results_free(results[i]);
        op_case_free(cases[i]);
    }
}

#define WEIGHTS(dtype) "w13_weight=" dtype "[4,48,32]! w2_weight=" dtype "[4,32,24]! "
#define CHOICE         "topk_weights=f32[7,2] topk_ids=i32[7,2]<4 "

TEST(prepare_experts_and_finalize_are_the_whole) {
    check_steps("x=f32[7,32] " WEIGHTS("f32") CHOICE, "x=f32[7,32] " CHOICE "num_local_experts=4",
                "expert_x=f32[14,32] expert_first=i32[5]<14 " WEIGHTS("f32"),
                "expert_y=f32[14,32] slots=i32[7,2]<14 topk_weights=f32[7,2]");
    check_steps(
        "x=bf16[7,32] " WEIGHTS("bf16") CHOICE "activation=swigluoai",
        "x=bf16[7,32] " CHOICE "num_local_experts=4",
        "expert_x=bf16[14,32] expert_first=i32[5]<14 " WEIGHTS("bf16") "activation=swigluoai",
        "expert_y=bf16[14,32] slots=i32[7,2]<14 topk_weights=f32[7,2]");
}

// ---- the kernel ---------------------------------------------------------------------------------

#define TOKENS 130
#define BODY                                                                                       \
    "T=%d x=%s[T,70] w13_weight=%s[6,90,70]! w2_weight=%s[6,70,45]! topk_weights=f32[T,3] "        \
    "topk_ids=i32[T,3]<6 w13_bias=f32[6,90]! w2_bias=f32[6,70]! max=130"

static void build_tokens(op_case *self, const char *dtype, int tokens, op_case *of) {
    char body[512];
    (void)snprintf(body, sizeof body, BODY, tokens, dtype, dtype, dtype);
    build(self, &berth_op_fused_moe, body);
    for (uint64_t i = 0; of != NULL && i < self->op->input_count; ++i) {
        const bool is_there = op_tensor_is_present(&self->inputs[i]);
        for (int64_t k = 0; is_there && k < op_tensor_count(&self->inputs[i]); ++k) {
            op_tensor_set(&self->inputs[i], k, op_tensor_get(&of->inputs[i], k));
        }
    }
}

static void check_some(op_case *all, const op_results *wanted, const char *dtype, int tokens) {
    op_case some;
    op_results got;
    build_tokens(&some, dtype, tokens, all);
    op_case_run(&some, op_kernel_find("fused_moe"), &got);
    for (int64_t i = 0; i < op_tensor_count(&got.outputs[0]); ++i) {
        CHECK(op_tensor_get(&got.outputs[0], i) == op_tensor_get(&wanted->outputs[0], i));
    }
    op_results_free(&got);
    op_case_free(&some);
}

static void check_dtype(const char *dtype) {
    op_case all;
    op_results wanted;
    op_results reference;
    build_tokens(&all, dtype, TOKENS, NULL);
    op_case_run(&all, op_kernel_find("fused_moe"), &wanted);
    op_case_reference(&all, &reference);
    // Values of an expert reach some thousands, of which the reference rounds each.
    op_results_compare(&wanted, &reference, strcmp(dtype, "f32") == 0 ? 1e-2 : 40, 2e-2);
    check_some(&all, &wanted, dtype, 1);
    check_some(&all, &wanted, dtype, 13);
    op_kernel_threads(3);
    check_some(&all, &wanted, dtype, TOKENS);
    op_kernel_threads(1);
    op_results_free(&reference);
    op_results_free(&wanted);
    op_case_free(&all);
}

TEST(a_token_depends_on_no_other_token_and_on_no_thread) {
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        for (size_t i = 0; i < BERTH_COUNT(dtypes); ++i) {
            check_dtype(dtypes[i]);
        }
    }
}

// ---- against sums in double precision -----------------------------------------------------------

#define UNIT   0x1p-24 // of a rounding to f32
#define HIDDEN 32
#define INNER  24
#define EXACT                                                                                      \
    "T=40 expert_x=f32[T,32] expert_first=i32[5]:0,3,3,21,33 w13_weight=f32[4,48,32]! "            \
    "w2_weight=f32[4,32,24]!"

// A value, and how far a sum in f32 may be from it: each of its roundings by a unit of the terms'
// absolute sum, and what its terms are off already.
typedef struct exact {
    double value;
    double error;
} exact;

static exact exact_sum(const op_tensor *weight, int64_t first, const exact *x, int64_t count) {
    exact out = {0};
    double terms = 0;
    for (int64_t i = 0; i < count; ++i) {
        const double by = op_tensor_get(weight, first + i);
        out.value += by * x[i].value;
        out.error += fabs(by) * x[i].error;
        terms += fabs(by * x[i].value);
    }
    out.error += (double)count * UNIT * terms;
    return out;
}

// The slope of silu is below 1.1; its e^x, quotient and product are within 8 units.
static exact exact_silu(exact gate, exact up) {
    const double silu = gate.value / (1 + exp(-gate.value));
    return (exact){
        .value = silu * up.value,
        .error = 1.1 * gate.error * fabs(up.value) + fabs(silu) * up.error +
                 8 * UNIT * fabs(silu * up.value),
    };
}

static void check_exact_row(const op_case *of, const op_tensor *got, int64_t row, int64_t expert) {
    enum { EXPERT_X, EXPERT_FIRST, W13, W2 };
    exact x[HIDDEN];
    exact activated[INNER];
    for (int64_t i = 0; i < HIDDEN; ++i) {
        x[i] = (exact){.value = op_tensor_get(&of->inputs[EXPERT_X], row * HIDDEN + i)};
    }
    for (int64_t i = 0; i < INNER; ++i) {
        const int64_t gate = (expert * 2 * INNER + i) * HIDDEN;
        activated[i] = exact_silu(exact_sum(&of->inputs[W13], gate, x, HIDDEN),
                                  exact_sum(&of->inputs[W13], gate + INNER * HIDDEN, x, HIDDEN));
    }
    for (int64_t i = 0; i < HIDDEN; ++i) {
        const exact wanted =
            exact_sum(&of->inputs[W2], (expert * HIDDEN + i) * INNER, activated, INNER);
        const double value = op_tensor_get(got, row * HIDDEN + i);
        CHECK(fabs(value - wanted.value) <= wanted.error);
    }
}

static void check_exact(const op_case *of, const op_results *got) {
    static const int64_t first[] = {0, 3, 3, 21, 33};
    for (int64_t expert = 0; expert < 4; ++expert) {
        for (int64_t row = first[expert]; row < first[expert + 1]; ++row) {
            check_exact_row(of, &got->outputs[0], row, expert);
        }
    }
}

TEST(an_expert_errs_by_no_more_than_the_roundings_of_its_terms) {
    op_case one;
    op_results got;
    build(&one, &berth_op_moe_experts, EXACT);
    op_case_reference(&one, &got);
    check_exact(&one, &got);
    op_results_free(&got);
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        op_case_run(&one, op_kernel_find("moe_experts"), &got);
        check_exact(&one, &got);
        op_results_free(&got);
    }
    op_case_free(&one);
}

static void check_bf16(void) {
    check_dtype("bf16");
}

TEST(every_product_of_bf16_agrees_with_the_reference) {
    op_kernel_products(check_bf16);
}

TEST(a_choice_that_is_not_there_fails_the_step) {
    for (int is_kernel = 0; is_kernel < 1 + op_kernels_are_built(); ++is_kernel) {
        op_case at_hand;
        op_kernel_use(0);
        build_tokens(&at_hand, "f32", 3, NULL);
        op_tensor_set(op_case_operand(&at_hand, "topk_ids"), 4, 6);
        CHECK_STATUS(op_case_forward(&at_hand, is_kernel ? op_kernel_find("fused_moe") : NULL),
                     BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(op_host_text(), "fused_moe: token 1 chooses an expert that is not there");
        op_case_free(&at_hand);
    }
}

TEST(no_choice_adds_nothing) {
    for (int is_kernel = 0; is_kernel < 1 + op_kernels_are_built(); ++is_kernel) {
        op_case at_hand;
        op_results got;
        op_kernel_use(0);
        build_tokens(&at_hand, "f32", 1, NULL);
        for (int64_t i = 0; i < 3; ++i) {
            op_tensor_set(op_case_operand(&at_hand, "topk_ids"), i, -1);
        }
        if (is_kernel) {
            op_case_run(&at_hand, op_kernel_find("fused_moe"), &got);
        } else {
            op_case_reference(&at_hand, &got);
        }
        for (int64_t i = 0; i < op_tensor_count(&got.outputs[0]); ++i) {
            CHECK(op_tensor_get(&got.outputs[0], i) == 0);
        }
        op_results_free(&got);
        op_case_free(&at_hand);
    }
}
