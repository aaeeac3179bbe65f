// SPDX-License-Identifier: Apache-2.0
// The benches from the outside, but for those of ops (bench_op_test.c): what they print, what they
// refuse, and that a wrong kernel is never timed. How fast anything is, no test says.
#include "base/array.h"
#include "support/bench_rows.h"
#include "support/sandbox.h"
#include "support/test.h"

#include <stdio.h>
#include <sys/stat.h>

#define MODEL "tests/data/models/shakespeare"
#define BENCH BERTH, "bench", "model", "--platform", "cpu", "--model", MODEL

// ---- model --------------------------------------------------------------------------------------

TEST(bench_model_prints_a_case_beside_its_ceiling) {
    program p;
    bench_need_cpu();
    PROGRAM_MUST(&p, BENCH_CPU, BENCH, "decode", "--threads", "1", "--json");
    CHECK_STR(p.err, "");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), 1);
    bench_check_row(berth_json_at(root, 0), "decode", 1);
    bench_check_share(berth_json_at(root, 0));
    berth_json_destroy(root);
}

TEST(bench_model_sets_several_requests_beside_one) {
    program p;
    double times = 0;
    bench_need_cpu();
    PROGRAM_MUST(&p, BENCH_CPU, BENCH, "batch-4", "--threads", "2", "--json");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), 1);
    bench_check_row(berth_json_at(root, 0), "decode-batch-4", 2);
    CHECK_OK(berth_json_get_f64(root, "0.times_one", &times));
    CHECK(times > 0);
    berth_json_destroy(root);
}

TEST(bench_model_takes_a_case_that_the_model_is_too_short_for_only_by_name) {
    program p;
    bench_need_cpu();
    PROGRAM_RUN(&p, BENCH_CPU, BENCH, "prefill-512", "--threads", "1");
    CHECK_INT(p.status, 2);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, "prefill-512: takes 513 tokens, the model has room for 512");
    PROGRAM_RUN(&p, BENCH_CPU, BENCH, "--max-model-len", "40", "--threads", "1", "--log", "warn");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.out, "decode-batch-16");
    CHECK_CONTAINS(p.err, "decode is left out: it takes 81 tokens, the model has room for 40");
}

TEST(bench_model_never_times_a_wrong_kernel) {
    program p;
    bench_need_cpu();
    PROGRAM_RUN(&p, BENCH_CPU, BENCH, "decode", "--threads", "1", "--plugin", BENCH_WRONG);
    CHECK_INT(p.status, 7);
    CHECK_STR(p.out, "");
    CHECK_CONTAINS(p.err, " rows of logits is ");
    CHECK_CONTAINS(p.err, "are allowed; nothing is timed");
}

TEST(bench_model_refuses_what_it_cannot_do) {
    program p;
    PROGRAM_RUN(&p, BENCH_CPU, BERTH, "bench", "model");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no model given");
    PROGRAM_RUN(&p, BENCH_CPU, BERTH, "bench", "model", "--model", MODEL "/absent");
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "there is no such directory");
    bench_need_cpu();
    PROGRAM_RUN(&p, BENCH_CPU, BENCH, "speed");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no case is called 'speed'; there are decode, decode-batch-4, ");
    PROGRAM_RUN(&p, BENCH_CPU, BENCH, "--max-num-seqs", "8");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "--max-num-seqs 8 or --max-num-batched-tokens 512 is too little");
}

// ---- load ---------------------------------------------------------------------------------------

TEST(bench_load_stands_beside_reading_the_files) {
    program p;
    bench_need_cpu();
    PROGRAM_MUST(&p, BENCH_CPU, BERTH, "bench", "load", "--platform", "cpu", "--model", MODEL,
                 "--threads", "2", "--json");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), 1);
    bench_check_row(berth_json_at(root, 0), "load", 2);
    bench_check_share(berth_json_at(root, 0));
    berth_json_destroy(root);
}

TEST(bench_load_refuses_what_is_not_there) {
    program p;
    PROGRAM_RUN(&p, BENCH_CPU, BERTH, "bench", "load");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "no model given");
    PROGRAM_RUN(&p, BENCH_CPU, BERTH, "bench", "load", "--model", MODEL "/absent");
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "there is no such directory");
}

// ---- sleep --------------------------------------------------------------------------------------

TEST(bench_sleep_gives_memory_back_and_the_same_tokens) {
    static const char *const names[] = {"sleep_1", "wake_up_1", "sleep_2", "wake_up_2"};
    program p;
    bench_need_cpu();
    PROGRAM_MUST(&p, BENCH_CPU, BERTH, "bench", "sleep", "--platform", "cpu", "--model", MODEL,
                 "--json");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), BERTH_COUNT(names));
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        berth_str name = {0};
        CHECK_OK(berth_json_get_str(berth_json_at(root, i), "case", &name));
        CHECK_STR(name.data, names[i]);
    }
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
