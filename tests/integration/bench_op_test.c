// SPDX-License-Identifier: Apache-2.0
// `berth bench op` from the outside: what it prints, what it refuses, and that a wrong kernel is
// never timed. How fast anything is, no test says.
#include "base/array.h"
#include "support/bench_rows.h"
#include "support/test.h"

#include <string.h>

// oneDNN's OpenMP workers outlive main; gcc 12's leak check at exit reads their stacks and dies.
#define RIVAL PROGRAM_ENV("BERTH_LOG=error", "LSAN_OPTIONS=detect_leaks=0")

TEST(bench_op_prints_a_case_of_each_kind) {
    static const char *const cases[] = {"contiguous-4096", "linear-2048x2048-1",
                                        "paged_attention-decode"};
    program p;
    bench_need_cpu();
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        PROGRAM_MUST(&p, RIVAL, BERTH, "bench", "op", cases[i], "--platform", "cpu", "--threads",
                     "2", "--json");
        CHECK_STR(p.err, "");
        berth_json *root = program_json(&p);
        CHECK_UINT(berth_json_size(root), 1);
        bench_check_row(berth_json_at(root, 0), cases[i], 2);
        berth_json_destroy(root);
    }
}

TEST(bench_op_takes_part_of_a_name_for_several_cases) {
    program p;
    bench_need_cpu();
    PROGRAM_MUST(&p, BENCH_CPU, BERTH, "bench", "op", "rms_norm", "--platform", "cpu", "--threads",
                 "1");
    CHECK_CONTAINS(p.out, "rms_norm-2048 ");
    CHECK_CONTAINS(p.out, "rms_norm-4096 ");
    CHECK(strstr(p.out, "embedding") == NULL);
}

TEST(bench_op_never_times_a_wrong_kernel) {
    program p;
    bench_need_cpu();
    PROGRAM_RUN(&p, BENCH_CPU, BERTH, "bench", "op", "silu", "--platform", "cpu", "--threads", "1",
                "--plugin", BENCH_WRONG);
    CHECK_INT(p.status, 7);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, "the largest error beside the op's reference is ");
    CHECK_CONTAINS(p.err, "(while silu_and_mul-14336 on 1 threads)");
}

TEST(bench_op_keeps_what_was_timed_before_a_wrong_kernel) {
    program p;
    bench_need_cpu();
    PROGRAM_RUN(&p, BENCH_CPU, BERTH, "bench", "op", "lu", "--platform", "cpu", "--threads", "1",
                "--plugin", BENCH_WRONG);
    CHECK_INT(p.status, 7);
    CHECK_CONTAINS(p.out, "xielu-4096 ");
    CHECK(strstr(p.out, "silu_and_mul-14336") == NULL);
    CHECK_CONTAINS(p.err, "(while silu_and_mul-14336 on 1 threads)");
}

// Rows of its options differ from each other, so the check has to run all of them.
TEST(bench_op_times_the_op_that_draws) {
    program p;
    bench_need_cpu();
    PROGRAM_MUST(&p, BENCH_CPU, BERTH, "bench", "op", "sample", "--platform", "cpu", "--threads",
                 "1");
    CHECK_CONTAINS(p.out, "sample-128256 ");
}

TEST(bench_op_refuses_an_unknown_case_with_the_nearest) {
    program p;
    PROGRAM_RUN(&p, BENCH_CPU, BERTH, "bench", "op", "contigous-4096");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no case is called 'contigous-4096', did you mean 'contiguous-4096'");
}

// A device with memory of its own has no roof here.
TEST(bench_op_has_no_ceiling_on_another_device) {
    program p;
    double value = 0;
    PROGRAM_MUST(&p, BENCH_CPU, BERTH, "bench", "op", "rms_norm-2048", "--platform", "dummy",
                 "--threads", "1", "--json", "--allow-fallback");
    berth_json *root = program_json(&p);
    bench_check_row(berth_json_at(root, 0), "rms_norm-2048", 1);
    CHECK(berth_json_get_f64(root, "0.ceiling", &value) != BERTH_OK);
    berth_status_clear();
    berth_json_destroy(root);
}
