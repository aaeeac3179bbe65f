// SPDX-License-Identifier: Apache-2.0
// What linear, packed_linear and scaled_linear of platform-cpu promise beyond the cases: a row's
// result depends on nothing but the row, and all products of bf16 and bytes agree with the
// reference, whichever this machine would choose.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cpu/cpu.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_linear;
extern const berth_op berth_op_packed_linear;
extern const berth_op berth_op_scaled_linear;

#define ROWS 130

// x of the first rows of another case, and its weight and bias.
static void build_rows(op_case *self, const berth_op *op, const char *dtypes, int rows,
                       const op_case *of) {
    op_line line = {.op = op, .name = "rows", .atol = 2e-3, .rtol = 1.6e-2};
    (void)snprintf(line.body, sizeof line.body, dtypes, rows);
    op_line_build(&line, self);
    for (uint64_t i = 0; of != NULL && i < self->op->input_count; ++i) {
        const bool is_there = op_tensor_is_present(&self->inputs[i]);
        for (int64_t j = 0; is_there && j < op_tensor_count(&self->inputs[i]); ++j) {
            op_tensor_set(&self->inputs[i], j, op_tensor_get(&of->inputs[i], j));
        }
    }
}

static void check_rows(const op_case *all, const op_results *wanted, const char *dtypes, int rows) {
    op_case some;
    op_results got;
    build_rows(&some, all->op, dtypes, rows, all);
    op_case_run(&some, op_kernel_find(all->op->name), &got);
    int64_t different = 0;
    for (int64_t i = 0; i < op_tensor_count(&got.outputs[0]); ++i) {
        different += op_tensor_get(&got.outputs[0], i) != op_tensor_get(&wanted->outputs[0], i);
    }
    CHECK_INT(different, 0);
    op_results_free(&got);
    op_case_free(&some);
}

static void check_case(const berth_op *op, const char *dtypes) {
    static const int counts[] = {1, 2, 3, 4, 7, 12, 13, 16, 17, 32, 33, 65};
    op_case all;
    op_results wanted;
    op_results got;
    build_rows(&all, op, dtypes, ROWS, NULL);
    op_case_run(&all, op_kernel_find(op->name), &wanted);
    for (size_t i = 0; i < BERTH_COUNT(counts); ++i) {
        check_rows(&all, &wanted, dtypes, counts[i]);
    }
    op_kernel_threads(3);
    op_case_run(&all, op_kernel_find(op->name), &got);
    op_results_compare(&got, &wanted, 0, 0);
    check_rows(&all, &wanted, dtypes, 1);
    op_kernel_threads(1);
    op_results_free(&got);
    op_case_reference(&all, &got);
    op_results_compare(&wanted, &got, all.atol, all.rtol);
    op_results_free(&got);
    op_results_free(&wanted);
    op_case_free(&all);
}

TEST(a_row_depends_on_no_other_row_and_on_no_thread) {
    static const char *const dtypes[] = {
        "T=%d x=f32[T,1031] weight=bf16[1035,1031]! bias=f32[1035] max=130",
        "T=%d x=bf16[T,1031] weight=bf16[1035,1031]! bias=bf16[1035] max=130",
        "T=%d x=f16[T,1031] weight=f16[1035,1031]! bias=f16[1035] max=130",
        "T=%d x=f32[T,1031] weight=f32[1035,1031]! bias=f32[1035] max=130",
    };
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        for (size_t i = 0; i < BERTH_COUNT(dtypes); ++i) {
            check_case(&berth_op_linear, dtypes[i]);
        }
    }
}

static void check_every_set(const berth_op *op, const char *const *cases, size_t count) {
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        for (size_t i = 0; i < count; ++i) {
            check_case(op, cases[i]);
        }
    }
}

// Why T is as wide for any count: texts of attributes stay where they are when rows are built anew.
TEST(a_row_of_packed_linear_depends_on_no_other_row_and_on_no_thread) {
    static const char *const cases[] = {
        "T=%-3d x=f32[T,518] weight=u8[333,259]<256! weight_scale=f32[333,5]! code=u4 "
        "group_shape=1,128 max=130",
        "T=%-3d x=bf16[T,518] weight=u8[333,259]<256! weight_scale=f32[333,5]! code=u4 "
        "group_shape=1,128 max=130",
        "T=%-3d x=f32[T,517] weight=u8[333,517]<256! weight_scale=f32[333,1]! code=u8 "
        "group_shape=1,-1 max=130",
        "T=%-3d x=bf16[T,517] weight=u8[333,517]<256! weight_scale=f32[333,1]! code=u8 "
        "group_shape=1,-1 max=130",
        "T=%-3d x=f32[T,518] weight=u8[333,259]<256! weight_scale=f32[333,33]! code=e2m1 "
        "group_shape=1,16 max=130",
        "T=%-3d x=bf16[T,518] weight=u8[333,259]<256! weight_scale=f32[333,17]! code=e2m1 "
        "group_shape=1,32 max=130",
        "T=%-3d x=f32[T,517] weight=f8[333,517]! weight_scale=f32[3,5]! code=e4m3 "
        "group_shape=128,128 max=130",
    };
    check_every_set(&berth_op_packed_linear, cases, BERTH_COUNT(cases));
}

TEST(a_row_of_scaled_linear_depends_on_no_other_row_and_on_no_thread) {
    static const char *const cases[] = {
        "T=%-3d x=i8[T,1031]<127 x_scale=f32[T,1] weight=i8[333,1031]<127! "
        "weight_scale=f32[333,1]! group_shape=1,-1 dtype=f32 max=130",
        "T=%-3d x=f8[T,517] x_scale=f32[T,5] weight=f8[333,517]! weight_scale=f32[3,5]! "
        "group_shape=128,128 dtype=f32 max=130",
    };
    check_every_set(&berth_op_scaled_linear, cases, BERTH_COUNT(cases));
}

enum { NAN_COLUMNS = 66, NAN_OUTPUTS = 70, NAN_AT = 37 };

// Outputs with a code that is no number are none, in every row, and no others.
static void check_nan(int rows) {
    op_case some;
    op_results before;
    op_results after;
    build_rows(&some, &berth_op_scaled_linear,
               "T=%-3d x=f8[T,66] x_scale=f32[T,1] weight=f8[70,66]! weight_scale=f32[70,1]! "
               "group_shape=1,-1 dtype=f32 max=130",
               rows, NULL);
    op_case_run(&some, op_kernel_find("scaled_linear"), &before);
    op_tensor_set(op_case_operand(&some, "weight"), NAN_AT * NAN_COLUMNS + 1, -NAN);
    op_case_run(&some, op_kernel_find("scaled_linear"), &after);
    for (int i = 0; i < rows * NAN_OUTPUTS; ++i) {
        const double was = op_tensor_get(&before.outputs[0], i);
        const double is = op_tensor_get(&after.outputs[0], i);
        CHECK(i % NAN_OUTPUTS == NAN_AT ? isnan(is) : is == was);
    }
    op_results_free(&before);
    op_results_free(&after);
    op_case_free(&some);
}

// Both ways that make codes of e4m3 floats, whichever this machine would choose.
TEST(codes_of_e4m3_are_moved_to_f16_and_to_floats) {
    static const char *const cases[] = {
        "T=%-3d x=f8[T,517] x_scale=f32[T,5] weight=f8[333,517]! weight_scale=f32[3,5]! "
        "group_shape=128,128 dtype=f32 max=130",
    };
    op_kernel_use(0);
    if (op_kernel_find("scaled_linear") == NULL) {
        SKIP("platform-cpu is not built");
    }
    berth_cpu *cpu = op_kernel_device()->self;
    const int measured = cpu->e4m3_shifts_win;
    for (int wins = -1; wins <= 1; wins += 2) {
        cpu->e4m3_shifts_win = wins;
        check_every_set(&berth_op_scaled_linear, cases, BERTH_COUNT(cases));
        for (size_t set = 0; set < op_kernel_sets(); ++set) {
            op_kernel_use(set);
            for (int rows = 1; rows <= 6; ++rows) {
                check_nan(rows);
            }
        }
    }
    cpu->e4m3_shifts_win = measured;
}

static void check_products(void) {
    check_case(&berth_op_linear, "T=%d x=bf16[T,1030] weight=bf16[101,1030]! max=130");
    check_case(&berth_op_packed_linear,
               "T=%-3d x=bf16[T,516] weight=u8[101,258]<256! weight_scale=f32[101,5]! code=u4 "
               "group_shape=1,128 max=130");
    check_case(&berth_op_packed_linear,
               "T=%-3d x=bf16[T,516] weight=u8[101,258]<256! weight_scale=f32[101,22]! code=u4 "
               "group_shape=1,24 max=130");
    check_case(&berth_op_packed_linear,
               "T=%-3d x=f16[T,518] weight=u8[101,259]<256! weight_scale=bf16[101,5]! "
               "zero_points=u8[101,5]<16! code=u4 group_shape=1,128 max=130");
    check_case(&berth_op_packed_linear,
               "T=%-3d x=bf16[T,516] weight=u8[101,258]<256! weight_scale=bf16[101,17]! "
               "code=e2m1 group_shape=1,32 max=130");
    check_case(&berth_op_packed_linear,
               "T=%-3d x=f16[T,518] weight=u8[101,259]<256! weight_scale=f32[101,1]! code=e2m1 "
               "group_shape=1,-1 max=130");
    check_case(&berth_op_packed_linear,
               "T=%-3d x=bf16[T,517] weight=u8[333,517]<256! weight_scale=f32[333,1]! code=u8 "
               "group_shape=1,-1 max=130");
    check_case(&berth_op_scaled_linear,
               "T=%-3d x=f8[T,517] x_scale=f32[T,5] weight=f8[333,517]! weight_scale=f32[3,5]! "
               "group_shape=128,128 dtype=f32 max=130");
    check_case(&berth_op_scaled_linear,
               "T=%-3d x=i8[T,1031]<127 x_scale=f32[T,17] weight=i8[333,1031]<127! "
               "weight_scale=f32[333,17]! group_shape=1,64 dtype=f32 max=130");
    check_case(&berth_op_scaled_linear,
               "T=%-3d x=i8[T,1031]<127 x_scale=f32[T,33] weight=i8[333,1031]<127! "
               "weight_scale=f32[333,33]! group_shape=1,32 dtype=f32 max=130");
}

TEST(every_product_agrees_with_the_reference) {
    op_kernel_products(check_products);
}

enum { LONG_COLUMNS = 17000, LONG_FEW = 2, LONG_MANY = 9 };

// Codes of four bits, two of which are a byte that is as much as it can be.
typedef struct long_codes {
    const char *body;
    double byte;
    double number; // of either
} long_codes;

static const long_codes longest[] = {
    {"T=%-3d x=bf16[T,17000] weight=u8[65,8500]<256! weight_scale=f32[65,1]! "
     "zero_points=u8[65,1]<16! code=u4 group_shape=1,-1 max=130", 255,  15},
    {"T=%-3d x=bf16[T,17000] weight=u8[65,8500]<256! weight_scale=f32[65,1]! code=e2m1 "
     "group_shape=1,-1 max=130",                                  0x77, 6 },
};

// All x and codes as large as they can be: the sum of a group comes as near to the end of integers
// as it can where x is in fixed point.
static void check_long_group(const long_codes *of, int rows, double x) {
    const double reference = x * of->number * LONG_COLUMNS;
    op_case some;
    op_results got;
    build_rows(&some, &berth_op_packed_linear, of->body, rows, NULL);
    const double all[] = {x, of->byte, 1, 0};
    for (size_t i = 0; i < BERTH_COUNT(all) && op_tensor_is_present(&some.inputs[i]); ++i) {
        for (int64_t j = 0; j < op_tensor_count(&some.inputs[i]); ++j) {
            op_tensor_set(&some.inputs[i], j, all[i]);
        }
    }
    op_case_run(&some, op_kernel_find("packed_linear"), &got);
    for (int64_t i = 0; i < op_tensor_count(&got.outputs[0]); ++i) {
        CHECK_NEAR(op_tensor_get(&got.outputs[0], i), reference, fabs(reference) / 256);
    }
    op_results_free(&got);
    op_case_free(&some);
}

// A row that begins with NaN, of columns in another order, and one that does not.
static void check_permuted_nan(void) {
    op_case some;
    op_results got;
    build_rows(&some, &berth_op_packed_linear,
               "T=%-3d x=bf16[T,512] weight=u8[65,256]<256! weight_scale=f32[65,1]! "
               "permutation=i32[512]<512! code=u4 group_shape=1,-1 max=130",
               2, NULL);
    op_tensor *permutation = op_case_operand(&some, "permutation");
    for (int64_t i = 0; i < op_tensor_count(permutation); ++i) {
        op_tensor_set(permutation, i, (double)i);
    }
    op_tensor_set(op_case_operand(&some, "x"), 0, NAN);
    op_case_run(&some, op_kernel_find("packed_linear"), &got);
    const int64_t outputs = op_tensor_count(&got.outputs[0]) / 2;
    for (int64_t i = 0; i < 2 * outputs; ++i) {
        CHECK(isnan(op_tensor_get(&got.outputs[0], i)) == (i < outputs));
    }
    op_results_free(&got);
    op_case_free(&some);
}

TEST(nan_of_a_row_in_another_order_stays_in_a_long_group) {
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        check_permuted_nan();
    }
}

TEST(sums_of_a_long_group_do_not_overflow) {
    for (size_t i = 0; i < op_kernel_sets() * BERTH_COUNT(longest); ++i) {
        const long_codes *of = &longest[i % BERTH_COUNT(longest)];
        op_kernel_use(i / BERTH_COUNT(longest));
        for (int sign = -1; sign <= 1; sign += 2) {
            const double x = sign * 255.0; // eight bits, the most that bf16 has
            check_long_group(of, LONG_FEW, x);
            check_long_group(of, LONG_MANY, x);
        }
    }
}

// What is asked for ahead changes no bit, and may lie anywhere: odd widths end inside a block.
TEST(a_weight_is_read_in_one_place_in_four_and_unasked) {
    op_kernel_use(0);
    if (op_kernel_find("linear") == NULL) {
        SKIP("platform-cpu is not built");
    }
    berth_cpu *cpu = op_kernel_device()->self;
    const berth_cpu measured = *cpu;
    for (int way = 0; way < 3; ++way) {
        cpu->places_from = way == 0 ? 1 : INT64_MAX;
        cpu->reads_alone = way == 2;
        check_case(&berth_op_linear, "T=%-3d x=f32[T,1031] weight=bf16[101,1031]! max=130");
        check_case(&berth_op_linear, "T=%-3d x=f32[T,517] weight=f32[101,517]! max=130");
        check_case(
            &berth_op_packed_linear,
            "T=%-3d x=f32[T,518] weight=u8[333,259]<256! weight_scale=f32[333,33]! code=e2m1 "
            "group_shape=1,16 max=130");
        check_case(&berth_op_scaled_linear,
                   "T=%-3d x=i8[T,1031]<127 x_scale=f32[T,1] weight=i8[333,1031]<127! "
                   "weight_scale=f32[333,1]! group_shape=1,-1 dtype=f32 max=130");
        check_case(&berth_op_scaled_linear,
                   "T=%-3d x=f8[T,517] x_scale=f32[T,5] weight=f8[333,517]! weight_scale=f32[3,5]! "
                   "group_shape=128,128 dtype=f32 max=130");
    }
    *cpu = measured;
}
