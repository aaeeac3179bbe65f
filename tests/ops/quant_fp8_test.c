// SPDX-License-Identifier: Apache-2.0
// Codes that kernels/cpu/fp8_table.h looks up: groups with every mantissa of bf16 as the largest
// magnitude, and in each all numbers of the 31 powers of two below it, are the reference's bits.
#include <stdio.h>

#include <tensor.h>

#include "support/op_case.h"
#include "support/test.h"

#define ROWS      512 // as many codes as are stored past the caches
#define GROUP     128
#define GROUPS    16 // of a row
#define MANTISSAS 128

static float float_of(uint32_t upper_half) {
    return berth_float_of_bits(upper_half << 16);
}

// Group by group the numbers from the largest one down, each with both signs.
static void fill(op_tensor *x, uint32_t exponent) {
    for (int64_t group = 0; group < (int64_t)ROWS * GROUPS; ++group) {
        const uint32_t largest = (exponent << 7) + (uint32_t)(group % MANTISSAS);
        const int64_t before = group / MANTISSAS * (GROUP - 1);
        op_tensor_set(x, group * GROUP, (double)float_of(largest));
        for (int64_t i = 1; i < GROUP; ++i) {
            const uint32_t down = (uint32_t)(before + i - 1);
            const uint32_t size = down / 2 < largest ? largest - down / 2 : 0;
            const float value = float_of(size);
            op_tensor_set(x, group * GROUP + i, (double)(down % 2 == 0 ? value : -value));
        }
    }
}

static void check_numbers(uint32_t exponent, int is_power) {
    op_line line = {.op = op_find("quant_fp8"), .name = "all numbers"};
    op_case at_hand;
    op_results got;
    op_results wanted;
    (void)snprintf(line.body, sizeof line.body,
                   "x=bf16[%d,%d] static=0 group_shape=1,%d use_ue8m0=%d", ROWS, GROUP * GROUPS,
                   GROUP, is_power);
    op_line_build(&line, &at_hand);
    fill(op_case_operand(&at_hand, "x"), exponent);
    op_case_reference(&at_hand, &wanted);
    op_case_run(&at_hand, op_kernel_find("quant_fp8"), &got);
    op_results_compare(&got, &wanted, 0, 0);
    op_results_free(&got);
    op_results_free(&wanted);
    op_case_free(&at_hand);
}

// Beside 1, where all scales are what is divided; the largest and the smallest numbers, of which
// some scales are the least one.
TEST(groups_of_every_number_have_the_codes_of_the_reference) {
    if (!op_kernels_are_built()) {
        SKIP("platform-cpu is not built");
    }
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        check_numbers(127, 0);
        check_numbers(127, 1);
        check_numbers(254, 0);
        check_numbers(117, 0);
        check_numbers(12, 0);
    }
}
