// SPDX-License-Identifier: Apache-2.0
// The benches from the outside: what they print, what they refuse, and that a wrong kernel is never
// timed. How fast anything is, no test says.
#include "support/test.h"

#include <math.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "support/program.h"

#define MODEL "tests/data/models/shakespeare"
#define WRONG TEST_BUILD "/tests/plugins/wrong-op/wrong-op.plugin.yaml"
#define CPU   PROGRAM_ENV("BERTH_LOG=error")
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

// ---- model --------------------------------------------------------------------------------------

TEST(bench_model_prints_a_case_beside_its_ceiling) {
    program p;
    double value = 0;
    double ceiling = 0;
    double share = 0;
    need_cpu();
    PROGRAM_MUST(&p, CPU, BENCH, "decode", "--threads", "1", "--json");
    CHECK_STR(p.err, "");
    berth_json *root = program_json(&p);
    CHECK_UINT(berth_json_size(root), 1);
    check_row(berth_json_at(root, 0), "decode", 1);
    CHECK_OK(berth_json_get_f64(root, "0.value", &value));
    CHECK_OK(berth_json_get_f64(root, "0.ceiling", &ceiling));
    CHECK_OK(berth_json_get_f64(root, "0.share", &share));
    CHECK(fabs(share - value / ceiling) < 1e-9);
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
