// SPDX-License-Identifier: Apache-2.0
// The benches from the outside: what they print, what they refuse, and that a wrong kernel is never
// timed. How fast anything is, no test says.
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "support/program.h"
#include "support/sandbox.h"

#define MODEL "tests/data/models/shakespeare"
#define WRONG TEST_BUILD "/tests/plugins/wrong-op/wrong-op.plugin.yaml"
#define CPU   PROGRAM_ENV("BERTH_LOG=error")
// oneDNN's OpenMP workers outlive main; gcc 12's leak check at exit reads their stacks and dies.
#define RIVAL PROGRAM_ENV("BERTH_LOG=error", "LSAN_OPTIONS=detect_leaks=0")
#define BENCH BERTH, "bench", "model", "--platform", "cpu", "--model", MODEL

static void need_cpu(void) {
    if (!berth_path_exists(TEST_BUILD "/plugins/cpu.plugin.yaml")) {
        SKIP("platform-cpu is not built here");
    }
}

// Every member that the help names, of the kind that it promises.
static void check_row(const berth_json *row, const char *name, int64_t threads) {
    static const char *const texts[] = {"unit", "note"};
    static const char *const members[] = {"ceiling", "share", "times_one"};
    berth_str text;
    int64_t count = 0;
    double value = 0;
    double p10 = 0;
    double p90 = 0;
    CHECK_OK(berth_json_get_str(row, "case", &text));
    CHECK_STR(text.data, name);
    CHECK_OK(berth_json_get_i64(row, "threads", &count));
    CHECK_INT(count, threads);
    CHECK_OK(berth_json_get_f64(row, "value", &value));
    CHECK_OK(berth_json_get_f64(row, "p10", &p10));
    CHECK_OK(berth_json_get_f64(row, "p90", &p90));
    CHECK(p10 > 0 && p10 <= value && value <= p90);
    for (size_t i = 0; i < BERTH_COUNT(texts); ++i) {
        CHECK_OK(berth_json_get_str(row, texts[i], &text));
    }
    for (size_t i = 0; i < BERTH_COUNT(members); ++i) {
        CHECK(berth_json_find(row, members[i]) != NULL);
    }
}

// Of a row with a ceiling.
static void check_share(const berth_json *row) {
    double value = 0;
    double ceiling = 0;
    double share = 0;
    CHECK_OK(berth_json_get_f64(row, "value", &value));
    CHECK_OK(berth_json_get_f64(row, "ceiling", &ceiling));
    CHECK_OK(berth_json_get_f64(row, "share", &share));
    CHECK(fabs(share - value / ceiling) < 1e-9);
}

// ---- model --------------------------------------------------------------------------------------

TEST(bench_model_prints_a_case_beside_its_ceiling) {
    program p;
    need_cpu();
    PROGRAM_MUST(&p, CPU, BENCH, "decode", "--threads", "1", "--json");
    CHECK_STR(p.err, "");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), 1);
    check_row(berth_json_at(root, 0), "decode", 1);
    check_share(berth_json_at(root, 0));
    berth_json_destroy(root);
}

TEST(bench_model_sets_several_requests_beside_one) {
    program p;
    double times = 0;
    need_cpu();
    PROGRAM_MUST(&p, CPU, BENCH, "batch-4", "--threads", "2", "--json");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), 1);
    check_row(berth_json_at(root, 0), "decode-batch-4", 2);
    CHECK_OK(berth_json_get_f64(root, "0.times_one", &times));
    CHECK(times > 0);
    berth_json_destroy(root);
}

TEST(bench_model_takes_a_case_that_the_model_is_too_short_for_only_by_name) {
    program p;
    need_cpu();
    PROGRAM_RUN(&p, CPU, BENCH, "prefill-512", "--threads", "1");
    CHECK_INT(p.status, 2);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, "prefill-512: takes 513 tokens, the model has room for 512");
    PROGRAM_RUN(&p, CPU, BENCH, "--max-model-len", "40", "--threads", "1", "--log", "warn");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.out, "decode-batch-16");
    CHECK_CONTAINS(p.err, "decode is left out: it takes 81 tokens, the model has room for 40");
}

TEST(bench_model_never_times_a_wrong_kernel) {
    program p;
    need_cpu();
    PROGRAM_RUN(&p, CPU, BENCH, "decode", "--threads", "1", "--plugin", WRONG);
    CHECK_INT(p.status, 7);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, " rows of logits is ");
    CHECK_CONTAINS(p.err, "are allowed; nothing is timed");
}

TEST(bench_model_refuses_what_it_cannot_do) {
    program p;
    PROGRAM_RUN(&p, CPU, BERTH, "bench", "model");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no model given");
    PROGRAM_RUN(&p, CPU, BERTH, "bench", "model", "--model", MODEL "/absent");
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "there is no such directory");
    need_cpu();
    PROGRAM_RUN(&p, CPU, BENCH, "speed");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no case is called 'speed'; there are decode, decode-batch-4, ");
    PROGRAM_RUN(&p, CPU, BENCH, "--max-num-seqs", "8");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "--max-num-seqs 8 or --max-num-batched-tokens 512 is too little");
}

// ---- load ---------------------------------------------------------------------------------------

TEST(bench_load_stands_beside_reading_the_files) {
    program p;
    need_cpu();
    PROGRAM_MUST(&p, CPU, BERTH, "bench", "load", "--platform", "cpu", "--model", MODEL,
                 "--threads", "2", "--json");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), 1);
    check_row(berth_json_at(root, 0), "load", 2);
    check_share(berth_json_at(root, 0));
    berth_json_destroy(root);
}

TEST(bench_load_refuses_what_is_not_there) {
    program p;
    PROGRAM_RUN(&p, CPU, BERTH, "bench", "load");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no model given");
    PROGRAM_RUN(&p, CPU, BERTH, "bench", "load", "--model", MODEL "/absent");
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "there is no such directory");
}

// ---- sleep --------------------------------------------------------------------------------------

TEST(bench_sleep_gives_memory_back_and_the_same_tokens) {
    static const char *const names[] = {"sleep_1", "wake_up_1", "sleep_2", "wake_up_2"};
    program p;
    need_cpu();
    PROGRAM_MUST(&p, CPU, BERTH, "bench", "sleep", "--platform", "cpu", "--model", MODEL, "--json");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), BERTH_COUNT(names));
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        berth_str name = {0};
        CHECK_OK(berth_json_get_str(berth_json_at(root, i), "case", &name));
        CHECK_STR(name.data, names[i]);
    }
    berth_json_destroy(root);
}

// ---- op -----------------------------------------------------------------------------------------

TEST(bench_op_prints_a_case_of_each_kind) {
    static const char *const cases[] = {"contiguous-4096", "linear-2048x2048-1",
                                        "paged_attention-decode"};
    program p;
    need_cpu();
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        PROGRAM_MUST(&p, RIVAL, BERTH, "bench", "op", cases[i], "--platform", "cpu", "--threads",
                     "2", "--json");
        CHECK_STR(p.err, "");
        berth_json *root = program_json(&p);
        CHECK_UINT(berth_json_size(root), 1);
        check_row(berth_json_at(root, 0), cases[i], 2);
        berth_json_destroy(root);
    }
}

TEST(bench_op_takes_part_of_a_name_for_several_cases) {
    program p;
    need_cpu();
    PROGRAM_MUST(&p, CPU, BERTH, "bench", "op", "rms_norm", "--platform", "cpu", "--threads", "1");
    CHECK_CONTAINS(p.out, "rms_norm-2048 ");
    CHECK_CONTAINS(p.out, "rms_norm-4096 ");
    CHECK(strstr(p.out, "embedding") == NULL);
}

TEST(bench_op_never_times_a_wrong_kernel) {
    program p;
    need_cpu();
    PROGRAM_RUN(&p, CPU, BERTH, "bench", "op", "silu", "--platform", "cpu", "--threads", "1",
                "--plugin", WRONG);
    CHECK_INT(p.status, 7);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, "the largest error beside the op's reference is ");
    CHECK_CONTAINS(p.err, "(while silu_and_mul-14336 on 1 threads)");
}

TEST(bench_op_keeps_what_was_timed_before_a_wrong_kernel) {
    program p;
    need_cpu();
    PROGRAM_RUN(&p, CPU, BERTH, "bench", "op", "lu", "--platform", "cpu", "--threads", "1",
                "--plugin", WRONG);
    CHECK_INT(p.status, 7);
    CHECK_CONTAINS(p.out, "xielu-4096 ");
    CHECK(strstr(p.out, "silu_and_mul-14336") == NULL);
    CHECK_CONTAINS(p.err, "(while silu_and_mul-14336 on 1 threads)");
}

// Rows of its options differ from each other, so the check has to run all of them.
TEST(bench_op_times_the_op_that_draws) {
    program p;
    need_cpu();
    PROGRAM_MUST(&p, CPU, BERTH, "bench", "op", "sample", "--platform", "cpu", "--threads", "1");
    CHECK_CONTAINS(p.out, "sample-128256 ");
}

TEST(bench_op_refuses_an_unknown_case_with_the_nearest) {
    program p;
    PROGRAM_RUN(&p, CPU, BERTH, "bench", "op", "contigous-4096");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no case is called 'contigous-4096', did you mean 'contiguous-4096'");
}

// A device with memory of its own has no roof here.
TEST(bench_op_has_no_ceiling_on_another_device) {
    program p;
    double value = 0;
    PROGRAM_MUST(&p, CPU, BERTH, "bench", "op", "rms_norm-2048", "--platform", "dummy", "--threads",
                 "1", "--json", "--allow-fallback");
    berth_json *root = program_json(&p);
    check_row(berth_json_at(root, 0), "rms_norm-2048", 1);
    CHECK(berth_json_get_f64(root, "0.ceiling", &value) != BERTH_OK);
    berth_status_clear();
    berth_json_destroy(root);
}

// ---- two builds ---------------------------------------------------------------------------------

#define COMPARE "tools/bench-compare"
#define TABLE   "case  threads  value  unit  ceiling  share  p10  p90  times one  gate  note\n"

TEST(bench_compare_says_which_cases_are_slower) {
    static const struct {
        const char *before;
        const char *after;
        const char *text;
        int status;
    } cases[] = {
        {"a  1  100  GB/s  -  -  98  102  -  -", "a  1  99  GB/s  -  -  97  101  -  -", "as before",
         0                                                                                            },
        {"a  1  100  GB/s  -  -  98  102  -  -", "a  1  80  GB/s  -  -  79  81  -  -",  "0.800",     1},
        {"a  1  100  us  -  -  98  102  -  -",   "a  1  80  us  -  -  79  81  -  -",    "faster",    0},
        {"a  1  100  us  -  -  98  102  -  -",   "a  1  120  us  -  -  119  121  -  -", "slower",    1},
        {"a  1  100  us  -  -  98  102  -  -",   "a  2  100  us  -  -  98  102  -  -",  "",          2},
    };
    sandbox box;
    sandbox_make(&box);
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        char text[512];
        program p;
        (void)snprintf(text, sizeof text, TABLE "%s\n", cases[i].before);
        const char *before = sandbox_write(&box, "before.tsv", text);
        (void)snprintf(text, sizeof text, TABLE "%s\n", cases[i].after);
        PROGRAM_RUN(&p, NULL, COMPARE, before, sandbox_write(&box, "after.tsv", text));
        CHECK_INT(p.status, cases[i].status);
        CHECK_CONTAINS(p.out, cases[i].text);
    }
    sandbox_remove(&box);
}

// A program that prints the next of its figures each time, and that it was asked for a bench.
static const char *write_build(const sandbox *box, const char *name, const char *figures) {
    char text[1024];
    (void)snprintf(
        text, sizeof text,
        "#!/bin/sh\n[ \"$*\" = 'bench model decode --json' ] || exit 2\n"
        "n=$(cat \"$0.count\" 2>/dev/null || echo 0)\nn=$((n + 1))\necho $n >\"$0.count\"\n"
        "set -- %s\nshift $((n - 1))\n"
        "printf '[\\n  {\\n    \"case\": \"decode\",\\n    \"threads\": 1,\\n    \"value\": %%s,"
        "\\n    \"unit\": \"tokens/s\",\\n    \"p10\": 1,\\n    \"p90\": 9\\n  }\\n]\\n' $1\n",
        figures);
    const char *path = sandbox_write(box, name, text);
    CHECK_INT(chmod(path, 0755), 0);
    return path;
}

TEST(bench_compare_runs_two_builds_in_turns) {
    program p;
    sandbox box;
    sandbox_make(&box);
    const char *before = write_build(&box, "before", "10 11 12");
    PROGRAM_RUN(&p, PROGRAM_ENV("ROUNDS=3"), COMPARE, before,
                write_build(&box, "same", "11.5 9 10.5"), "model", "decode", "--json");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.out, "11.000       10.500 tokens/s    0.955");
    CHECK_CONTAINS(p.out, "as before");
    sandbox_remove(&box);
    sandbox_make(&box);
    before = write_build(&box, "before", "10 11 12");
    PROGRAM_RUN(&p, PROGRAM_ENV("ROUNDS=3"), COMPARE, before,
                write_build(&box, "slower", "9 8 9.5"), "model", "decode", "--json");
    CHECK_INT(p.status, 1);
    CHECK_CONTAINS(p.out, "slower");
    PROGRAM_RUN(&p, NULL, COMPARE, sandbox_path(&box, "absent"), before);
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "is neither a program nor a file of results");
    sandbox_remove(&box);
}
