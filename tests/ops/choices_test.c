// SPDX-License-Identifier: Apache-2.0
// Where vLLM's own forms of an op disagree, which one ours follow: reference and kernels alike.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_quant_fp8;
extern const berth_op berth_op_conv2d;
extern const berth_op berth_op_topk_softmax;
extern const berth_op berth_op_grouped_topk;

typedef struct choice {
    op_case at_hand;
    op_results got[4]; // of the reference, then of every set
    size_t count;
} choice;

static void build(choice *self, const berth_op *op, const char *body) {
    op_line line = {.op = op, .name = "choice"};
    (void)snprintf(line.body, sizeof line.body, "%s", body);
    *self = (choice){0};
    op_line_build(&line, &self->at_hand);
}

static void set(choice *self, const char *name, const double *values, size_t count) {
    op_tensor *operand = op_case_operand(&self->at_hand, name);
    for (size_t i = 0; i < count; ++i) {
        op_tensor_set(operand, (int64_t)i, values[i]);
    }
}

static void run(choice *self) {
    op_case_reference(&self->at_hand, &self->got[self->count++]);
    for (size_t i = 0; i < op_kernel_sets(); ++i) {
        op_kernel_use(i);
        op_case_run(&self->at_hand, op_kernel_find(self->at_hand.op->name),
                    &self->got[self->count++]);
    }
}

// Everybody's output is this; a NaN is one.
static void check(const choice *self, size_t output, const double *wanted, size_t count) {
    for (size_t i = 0; i < self->count; ++i) {
        for (size_t k = 0; k < count; ++k) {
            const double got = op_tensor_get(&self->got[i].outputs[output], (int64_t)k);
            CHECK(got == wanted[k] || (isnan(got) && isnan(wanted[k])));
        }
    }
}

static void end(choice *self) {
    for (size_t i = 0; i < self->count; ++i) {
        op_results_free(&self->got[i]);
    }
    op_case_free(&self->at_hand);
}

// vLLM's device kernels: scale 0 and the largest codes, and a finite code for a NaN.
TEST(quant_fp8_of_zeros_has_the_least_scale_and_a_nan_stays_one) {
    static const double zeros[4] = {0};
    static const double codes[] = {0, 0, 0, 0};
    static const double mixed[] = {448, -1, NAN, 0};
    static const double scale[] = {(double)(float)(1.0 / (448.0 * 512.0))};
    static const double nans[] = {NAN, NAN, NAN, NAN};
    choice self;
    build(&self, &berth_op_quant_fp8, "x=f32[1,4] static=0 group_shape=-1,-1");
    set(&self, "x", zeros, BERTH_COUNT(zeros));
    run(&self);
    check(&self, 0, codes, BERTH_COUNT(codes));
    check(&self, 1, scale, BERTH_COUNT(scale));
    end(&self);
    build(&self, &berth_op_quant_fp8, "x=f32[1,4] static=0 group_shape=1,-1");
    set(&self, "x", mixed, BERTH_COUNT(mixed));
    run(&self);
    check(&self, 0, nans, BERTH_COUNT(nans));
    check(&self, 1, nans, 1);
    end(&self);
}

// vLLM's device kernels honour it.
TEST(a_convolution_of_patches_leaves_the_dilation_out) {
    static const double x[] = {1, 2, 3, 4};
    static const double weight[] = {1, 10, 100, 1000};
    static const double y[] = {4321};
    choice self;
    build(&self, &berth_op_conv2d, "x=f32[1,1,2,2] weight=f32[1,1,2,2]! stride=2 dilation=3");
    set(&self, "x", x, BERTH_COUNT(x));
    set(&self, "weight", weight, BERTH_COUNT(weight));
    run(&self);
    check(&self, 0, y, BERTH_COUNT(y));
    end(&self);
}

// vLLM leaves it open, or breaks ties by what its sort does.
TEST(of_equal_scores_the_lowest_id_is_chosen) {
    static const double logits[] = {0, 1, 1, 1, 0, 1};
    static const double ids[] = {1, 2, 3};
    const berth_op *const ops[] = {&berth_op_topk_softmax, &berth_op_grouped_topk};
    for (size_t i = 0; i < BERTH_COUNT(ops); ++i) {
        choice self;
        build(&self, ops[i], "gating_output=f32[1,6] topk=3 renormalize=1");
        set(&self, "gating_output", logits, BERTH_COUNT(logits));
        run(&self);
        check(&self, 1, ids, BERTH_COUNT(ids));
        end(&self);
    }
}

// Native makes NaN of a sum of zero; vLLM's fused kernels add 1e-20, or leave the division out.
TEST(a_sum_of_zero_divides_in_grouped_topk_alone) {
    static const double logits[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    static const double nans[] = {NAN, NAN};
    static const double zeros[] = {0, 0};
    static const char body[] = "gating_output=f32[1,4] topk=2 renormalize=1 scoring_func=sigmoid";
    choice self;
    build(&self, &berth_op_grouped_topk, body);
    set(&self, "gating_output", logits, BERTH_COUNT(logits));
    run(&self);
    check(&self, 0, nans, BERTH_COUNT(nans));
    end(&self);
    build(&self, &berth_op_topk_softmax, body);
    set(&self, "gating_output", logits, BERTH_COUNT(logits));
    run(&self);
    check(&self, 0, zeros, BERTH_COUNT(zeros));
    end(&self);
}
