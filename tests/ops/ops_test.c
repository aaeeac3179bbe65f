// SPDX-License-Identifier: Apache-2.0
// Every op on every case of tests/ops/<op>.txt: the reference against itself on other layouts and
// wider types, each kernel of platform-cpu against the reference, refusals by their text.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cpu/cpu.h>
#include <tensor.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

#define MAX_EXTREME 20000 // elements of an input or state; more is more of the same

extern const berth_op *const berth_native_ops[]; // ends with NULL

// ---- what is checked of a case ------------------------------------------------------------------

static bool is_16_bit(const op_case *self) {
    for (uint64_t i = 0; i < self->op->input_count; ++i) {
        const berth_dtype dtype = self->inputs[i].type.dtype;
        if (dtype == BERTH_DTYPE_F16 || dtype == BERTH_DTYPE_BF16) {
            return true;
        }
    }
    return false;
}

// Strides and offsets must not change a bit, wider types only the rounding.
static void check_reference(const op_case *self, const op_results *wanted) {
    for (int is_widened = 0; is_widened < 1 + is_16_bit(self); ++is_widened) {
        op_case copy;
        op_results got;
        op_case_copy(&copy, self, is_widened == 1);
        op_case_reference(&copy, &got);
        if (is_widened == 1) {
            for (size_t i = 0; i < wanted->count; ++i) {
                op_tensor_compare(&wanted->outputs[i], &got.outputs[i], self->atol, self->rtol);
            }
        } else {
            op_results_compare(&got, wanted, 0, 0);
        }
        op_results_free(&got);
        op_case_free(&copy);
    }
}

// Of what an op computes row by row, a row alone is the same to the bit.
static void check_row(const op_case *self, const op_results *wanted) {
    const int64_t row = self->tokens / 2;
    op_case alone;
    op_results got;
    if (!op_case_is_rowwise(self)) {
        return;
    }
    op_case_take_row(&alone, self, row);
    op_case_reference(&alone, &got);
    CHECK_UINT(got.count, wanted->count);
    for (size_t i = 0; i < got.count; ++i) {
        const op_tensor *all = &wanted->outputs[i];
        op_tensor one;
        if (all->type.dims[0].symbol != BERTH_SYMBOL_TOKENS) {
            op_tensor_compare(&got.outputs[i], all, 0, 0);
            continue;
        }
        op_tensor_take_row(&one, all, row);
        op_tensor_compare(&got.outputs[i], &one, 0, 0);
        op_tensor_free(&one);
    }
    op_results_free(&got);
    op_case_free(&alone);
}

static void check_kernel(const op_case *self, const berth_op_impl *impl, const op_results *wanted) {
    op_results got;
    op_case_run(self, impl, &got);
    op_results_compare(&got, wanted, self->atol, self->rtol);
    op_results_free(&got);
    if ((impl->flags & BERTH_IMPL_IN_PLACE) != 0) {
        op_case_run_in_place(self, impl, &got);
        op_results_compare(&got, wanted, self->atol, self->rtol);
        op_results_free(&got);
    }
}

// The number of threads must not change a bit.
static void check_threads(const op_case *self, const berth_op_impl *impl) {
    op_results alone;
    op_results shared;
    op_case_run(self, impl, &alone);
    op_kernel_threads(3);
    op_case_run(self, impl, &shared);
    op_kernel_threads(1);
    op_results_compare(&shared, &alone, 0, 0);
    op_results_free(&shared);
    op_results_free(&alone);
}

static void check_kernels(const op_line *line, const op_case *self, const op_results *wanted) {
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        const berth_op_impl *impl = op_kernel_find(line->op->name);
        if (line->kind == OP_LINE_NATIVE) {
            CHECK(impl == NULL || op_case_supports(self, impl) == BERTH_UNSUPPORTED);
        } else {
            CHECK(impl != NULL && op_case_supports(self, impl) == BERTH_OK);
            check_kernel(self, impl, wanted);
            check_threads(self, impl);
        }
    }
}

static void run_line(const op_line *line, op_case *at_hand, op_results *wanted) {
    op_line_build(line, at_hand);
    if (line->kind == OP_LINE_REFUSE) {
        CHECK_STATUS(op_case_infer(at_hand), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(op_host_text(), line->op->name);
        CHECK_CONTAINS(op_host_text(), line->refusal);
        return;
    }
    op_case_reference(at_hand, wanted);
    check_reference(at_hand, wanted);
    check_row(at_hand, wanted);
    check_kernels(line, at_hand, wanted);
}

static void run_case(void **state) {
    op_case at_hand = {0};
    op_results wanted = {0};
    run_line(*state, &at_hand, &wanted);
    op_results_free(&wanted);
    op_case_free(&at_hand);
}

// ---- what is not finite -------------------------------------------------------------------------

// An input that is computed with: floats, and no parameter.
static bool is_computed_with(const op_case *self, size_t input) {
    const op_tensor *x = &self->inputs[input];
    return op_tensor_is_present(x) && !x->is_parameter && berth_is_float(x->type.dtype);
}

// Ops that add up products: near the ends of the range they overflow in one order and not in
// another, so theirs are subnormals and what is not finite.
static const char *const sums[] = {
    "conv2d",
    "conv3d",
    "fused_moe",
    "gated_delta_rule",
    "gelu_and_mul_sparse",
    "lightning_attention",
    "linear",
    "mla",
    "mla_decode",
    "mm_encoder_attn",
    "modular_fused_moe",
    "moe_experts",
    "packed_linear",
    "paged_attention",
    "rotary_attention",
    "transformers_fused_moe",
    "unquantized_fused_moe",
    "varlen_encoder_attention",
};

static bool is_listed(const char *name, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(name, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

// Every 19th element, so that most rows have one and some have none.
static void make_extreme(op_tensor *x, bool is_of_sums) {
    static const double extremes[] = {-0.0, 1e-40, -1e-40, INFINITY, -INFINITY, NAN,
                                      3e38, -3e38, -103.5, -89.25,   88.8,      1e-20};
    const int64_t count = is_of_sums ? 6 : sizeof extremes / sizeof extremes[0];
    for (int64_t i = 0; i * 19 < op_tensor_count(x); ++i) {
        op_tensor_set(x, i * 19, extremes[i % count]);
    }
}

// Input by input.
static void run_extremes(void **state) {
    const op_line *line = *state;
    for (size_t input = 0; input < line->op->input_count; ++input) {
        op_case at_hand;
        op_results wanted;
        op_line_build(line, &at_hand);
        if (is_computed_with(&at_hand, input)) {
            make_extreme(&at_hand.inputs[input],
                         is_listed(line->op->name, sums, BERTH_COUNT(sums)));
            at_hand.atol *= 2; // the line's is for its own numbers
            at_hand.rtol *= 2;
            op_case_reference(&at_hand, &wanted);
            check_kernels(line, &at_hand, &wanted);
            op_results_free(&wanted);
        }
        op_case_free(&at_hand);
    }
}

static bool has_extremes(const op_line *line) {
    op_case at_hand;
    int64_t most = 0;
    if (line->kind != OP_LINE_CASE) {
        return false;
    }
    op_line_build(line, &at_hand);
    for (size_t input = 0; input < line->op->input_count; ++input) {
        const int64_t count =
            is_computed_with(&at_hand, input) ? op_tensor_count(&at_hand.inputs[input]) : 0;
        most = count > most ? count : most;
    }
    for (uint64_t i = 0; i < line->op->state_count; ++i) { // a long context is no other arithmetic
        const int64_t count = op_tensor_count(&at_hand.states[i]);
        most = most > 0 && count > most ? count : most;
    }
    op_case_free(&at_hand);
    return most > 0 && most < MAX_EXTREME;
}

// ---- the list of tests --------------------------------------------------------------------------

// The lines live as long as the executable, those that the filter left out too.
typedef struct kept_line {
    op_line line;
    struct kept_line *next;
} kept_line;

static kept_line *kept_lines;

static void add_line(const op_line *line, void *context) {
    char name[160];
    kept_line *kept = malloc(sizeof *kept);
    if (kept == NULL) {
        abort();
    }
    *kept = (kept_line){.line = *line, .next = kept_lines};
    kept_lines = kept;
    (void)snprintf(name, sizeof name, "%s %s", line->op->name, line->name);
    test_add(context, name, run_case, &kept->line);
    if (has_extremes(line)) {
        (void)snprintf(name, sizeof name, "%s %s not-finite", line->op->name, line->name);
        test_add(context, name, run_extremes, &kept->line);
    }
}

TEST_CASES(ops) {
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        char path[128];
        (void)snprintf(path, sizeof path, "tests/ops/%s.txt", (*op)->name);
        op_lines_read(*op, path, add_line, cases);
    }
}

// ---- what all cases of an op say together -------------------------------------------------------

static void look_for_rows(const op_line *line, void *context) {
    bool *has_rows = context;
    op_case at_hand;
    if (*has_rows || line->kind == OP_LINE_REFUSE) {
        return;
    }
    op_line_build(line, &at_hand);
    *has_rows = op_case_is_rowwise(&at_hand);
    op_case_free(&at_hand);
}

TEST(an_op_that_computes_row_by_row_has_a_case_of_several_rows) {
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        bool has_rows = (*op)->is_rowwise == NULL;
        char path[128];
        (void)snprintf(path, sizeof path, "tests/ops/%s.txt", (*op)->name);
        op_lines_read(*op, path, look_for_rows, &has_rows);
        if (!has_rows) {
            print_error("%s: no case has several rows of which each is by itself\n", (*op)->name);
        }
        CHECK(has_rows);
    }
}

// ---- what no case can say -----------------------------------------------------------------------

TEST(every_kernel_belongs_to_an_op_of_its_revision) {
    if (!op_kernels_are_built()) {
        SKIP("platform-cpu is not built");
    }
    for (const berth_op *const *op = berth_native_ops; *op != NULL; ++op) {
        const berth_op_impl *impl = op_kernel_find((*op)->name);
        if (impl != NULL) { // what no decoder runs per token has none
            CHECK_UINT(impl->revision, (*op)->revision);
            CHECK_STR(impl->dispatch_key, BERTH_DISPATCH_CPU);
        }
    }
}

TEST(conversions_to_16_bits_round_to_nearest_even_and_come_back) {
    for (uint32_t half = 0; half < 65536; ++half) {
        const float from_f16 = berth_from_f16((uint16_t)half);
        const float from_bf16 = berth_from_bf16((uint16_t)half);
        CHECK(from_f16 != from_f16 || berth_to_f16(from_f16) == half);
        CHECK(from_bf16 != from_bf16 || berth_to_bf16(from_bf16) == half);
    }
    CHECK_INT(berth_to_f16(65519.0F), 0x7bff);
    CHECK_INT(berth_to_f16(65520.0F), 0x7c00);
    CHECK_INT(berth_to_f16(0x1p-25F), 0x0000); // a tie, to even
    CHECK_INT(berth_to_f16(0x1.8p-24F), 0x0002);
    CHECK_INT(berth_to_f16(-0x1.004p0F), 0xbc01);
    CHECK_INT(berth_to_bf16(0x1.01p0F), 0x3f80); // a tie, to even
    CHECK_INT(berth_to_bf16(0x1.03p0F), 0x3f82);
    CHECK_INT(berth_to_bf16(berth_float_of_bits(0x7f7fffff)), 0x7f80);
    CHECK_INT(berth_to_bf16(berth_float_of_bits(0x7f800001)), 0x7fc0);
    CHECK_INT(berth_to_f16(berth_float_of_bits(0xffc00000)), 0xfe00);
}

static void check_step_fails(const berth_op *op, const char *body, const char *operand,
                             double value, const char *text) {
    for (int is_kernel = 0; is_kernel < 1 + op_kernels_are_built(); ++is_kernel) {
        op_case at_hand;
        op_line line = {.op = op, .name = "out-of-range"};
        (void)snprintf(line.body, sizeof line.body, "%s", body);
        op_line_build(&line, &at_hand);
        op_tensor_set(op_case_operand(&at_hand, operand), 1, value);
        CHECK_STATUS(op_case_forward(&at_hand, is_kernel ? op_kernel_find(op->name) : NULL),
                     BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(op_host_text(), text);
        op_case_free(&at_hand);
    }
}

TEST(an_index_out_of_range_fails_the_step_and_is_named) {
    check_step_fails(op_find("embedding"), "T=3 token_ids=i32[T]<9 weight=f32[9,4]!", "token_ids",
                     9, "token id 9 is not in the vocabulary of 9");
    check_step_fails(op_find("embedding"), "T=3 token_ids=i64[T]<9 weight=f32[9,4]!", "token_ids",
                     -1, "token id -1");
    check_step_fails(op_find("select_rows"), "T=3 S=2 x=f32[T,4] rows=i32[S]<3", "rows", 3,
                     "row 3 of 3");
    check_step_fails(op_find("rotary_embedding"),
                     "T=3 positions=i32[T]<8 query=f32[T,1,4] rotary_dim=4 max_position=8",
                     "positions", 8, "position 8 is not below 8");
}
