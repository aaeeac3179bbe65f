// SPDX-License-Identifier: Apache-2.0
// kernels/cpu/reads.h: how rows that come later are asked for changes no bit of a result, whatever
// stands in a row or in the next one, which some kernels look at meanwhile.
#include <math.h>
#include <stdio.h>

#include <cpu/cpu.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

// As many elements as are stored past the caches, in bytes of codes, too.
#define ROWS  516
#define WIDTH 2080

// Rows of nothing but zeros, and with what has no scale.
static void fill(op_tensor *x) {
    for (int64_t i = 0; i < WIDTH; ++i) {
        op_tensor_set(x, 5 * WIDTH + i, 0);
    }
    op_tensor_set(x, 7 * WIDTH + 3, (double)NAN);
    op_tensor_set(x, 8 * WIDTH + WIDTH - 1, (double)INFINITY);
    op_tensor_set(x, (ROWS - 1) * WIDTH, (double)-INFINITY);
}

static void run_asked(const op_case *all, int far_wins, op_results *out) {
    berth_cpu *cpu = op_kernel_device()->self;
    const int measured = cpu->far_wins;
    cpu->far_wins = far_wins;
    op_case_run(all, op_kernel_find(all->op->name), out);
    cpu->far_wins = measured;
}

static void check_case(const char *op, const char *body) {
    op_line line = {.op = op_find(op), .name = "reads"};
    op_case all;
    op_results near;
    op_results far;
    (void)snprintf(line.body, sizeof line.body, "%s", body);
    op_line_build(&line, &all);
    fill(op_case_operand(&all, "x"));
    run_asked(&all, -1, &near);
    run_asked(&all, 1, &far);
    op_results_compare(&far, &near, 0, 0);
    op_results_free(&far);
    op_results_free(&near);
    op_case_free(&all);
}

TEST(rows_asked_for_near_and_far_are_the_same) {
    static const struct {
        const char *op;
        const char *body;
    } cases[] = {
        {"quant_int8",          "x=f32[516,2080]"                                             },
        {"quant_int8",          "x=bf16[516,2080]"                                            },
        {"quant_fp8",           "x=f32[516,2080] static=0 group_shape=1,-1"                   },
        {"quant_fp8",           "x=bf16[516,2080] static=0 group_shape=1,-1"                  },
        {"quant_fp8",           "x=f32[516,2080] static=0 group_shape=-1,-1"                  },
        {"quant_fp8",           "x=f32[516,2080] static=0 group_shape=1,32"                   },
        {"quant_fp8",           "x=f32[516,2080] scale=f32[1]:0.01 static=1 group_shape=-1,-1"},
        {"quant_nvfp4",         "x=f32[516,2080] global_scale=f32[1]!:30"                     },
        {"rms_norm",            "x=f32[516,2080] weight=f32[2080]"                            },
        {"rms_norm",            "x=bf16[516,2080] weight=bf16[2080]"                          },
        {"rms_norm",            "x=f32[516,2080] weight=f32[2080] residual=f32[516,2080]"     },
        {"layer_norm",          "x=f32[516,2080] weight=f32[2080] bias=f32[2080]"             },
        {"gelu_and_mul_sparse", "x=f32[516,2080] activation_sparsity=0.95"                    },
    };
    if (!op_kernels_are_built()) {
        SKIP("platform-cpu is not built");
    }
    for (size_t i = 0; i < op_kernel_sets() * BERTH_COUNT(cases); ++i) {
        op_kernel_use(i / BERTH_COUNT(cases));
        check_case(cases[i % BERTH_COUNT(cases)].op, cases[i % BERTH_COUNT(cases)].body);
    }
}
