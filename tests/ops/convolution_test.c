// SPDX-License-Identifier: Apache-2.0
// What convolutions of platform-cpu promise beyond the cases: every product of bf16 agrees with the
// reference, whichever this machine would choose, and no result depends on the threads.
#include <stdio.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_conv2d;
extern const berth_op berth_op_conv3d;

static void check_case(const berth_op *op, const char *body) {
    op_line line = {.op = op, .name = "product", .atol = 5e-2, .rtol = 1.6e-2};
    op_case self;
    op_results wanted;
    op_results got;
    op_results shared;
    (void)snprintf(line.body, sizeof line.body, "%s", body);
    op_line_build(&line, &self);
    op_case_reference(&self, &wanted);
    op_case_run(&self, op_kernel_find(op->name), &got);
    op_results_compare(&got, &wanted, self.atol, self.rtol);
    op_kernel_threads(3);
    op_case_run(&self, op_kernel_find(op->name), &shared);
    op_kernel_threads(1);
    op_results_compare(&shared, &got, 0, 0);
    op_results_free(&shared);
    op_results_free(&got);
    op_results_free(&wanted);
    op_case_free(&self);
}

// Lines of several lots and of one; channels that are whole lines of words and that are not; taps
// outside of x on every side; positions of one line that are too many for a stripe.
static void check_cases(void) {
    static const char *const planes[] = {
        "x=bf16[2,64,20,40] weight=bf16[68,64,3,3]! bias=bf16[68] padding=1",
        "x=bf16[1,37,9,13] weight=bf16[33,37,3,3]! stride=2 padding=2",
        "x=bf16[1,40,23,41] weight=bf16[33,40,4,5]! stride=2,3 padding=1,2",
        "x=bf16[1,44,9,9] weight=bf16[66,22,2,3]! bias=bf16[66] groups=2 dilation=2",
        "x=bf16[2,100,20,30] weight=bf16[40,100,1,1]! bias=bf16[40]",
        "x=bf16[2,66,18,18] weight=bf16[580,33,1,1]! bias=f32[580] groups=2",
        "x=bf16[1,70,9,9] weight=bf16[40,70,1,1]! stride=2",
        "x=bf16[1,16,5,300] weight=bf16[33,16,3,3]! padding=1",
        "x=bf16[1,16,5,5] weight=bf16[4,16,3,3]! padding=6 dilation=6",
        "x=bf16[3,3,28,28] weight=bf16[33,3,14,14]! bias=bf16[33] stride=14",
        "x=bf16[1,3,9,9] weight=bf16[5,3,3,3]! stride=3",
    };
    static const char *const spaces[] = {
        "x=bf16[1,34,5,6,7] weight=bf16[33,34,3,3,3]! bias=bf16[33] padding=1",
        "x=bf16[2,34,5,6,7] weight=bf16[33,34,1,1,1]!",
        "x=bf16[2,64,4,16,16] weight=bf16[32,64,3,3,3]! padding=1 stride=1,2,1",
        "x=bf16[5,3,2,14,14] weight=bf16[129,3,2,14,14]! stride=2,14,14",
    };
    for (size_t i = 0; i < BERTH_COUNT(planes); ++i) {
        check_case(&berth_op_conv2d, planes[i]);
    }
    for (size_t i = 0; i < BERTH_COUNT(spaces); ++i) {
        check_case(&berth_op_conv3d, spaces[i]);
    }
}

TEST(every_product_agrees_with_the_reference) {
    op_kernel_products(check_cases);
}
