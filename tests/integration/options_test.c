// SPDX-License-Identifier: Apache-2.0
// The options of config.json that the checkpoints of tests/golden leave as they are usually: biases
// where most models have none, windows and experts in some layers, soft caps, ropes, and keys that
// files may lack. Every folder of tests/data/options is a model of a few thousand random weights
// and the logits that the reference gives for it.
#include <stdio.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "support/program.h"
#include "support/test.h"

#define FOLDER "tests/data/options"
#define CPU    TEST_BUILD "/plugins/cpu.plugin.yaml"
#define ROWS   45 // of the two prompts of every golden file

// The gate itself is the program's; that it looked at everything is checked here.
static void check_options(const char *name, const char *platform, const char *custom_ops) {
    program p;
    char model[256];
    char golden[280];
    int64_t rows = 0;
    double error = 0;
    (void)snprintf(model, sizeof model, FOLDER "/%s", name);
    (void)snprintf(golden, sizeof golden, "%s/golden.json", model);
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", model, "--golden", golden, "--platform",
                platform, "--allow-fallback", "--custom-ops", custom_ops, "--dtype", "float32",
                "--threads", "2", "--json");
    if (p.status != 0) {
        print_error("%s: %s%s", name, p.out, p.err);
    }
    CHECK_INT(p.status, 0);
    berth_json *report = program_json(&p);
    CHECK_OK(berth_json_get_i64(report, "rows", &rows));
    CHECK_OK(berth_json_get_f64(report, "logit_error", &error));
    CHECK_INT(rows, ROWS);
    CHECK(error > 0); // a program that compares a thing with itself gives 0
    berth_json_destroy(report);
}

static void check_all(const char *platform, const char *custom_ops) {
    berth_dir_listing listing;
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(1 << 12, 1 << 20, &arena));
    CHECK_OK(berth_dir_list(FOLDER, arena, &listing));
    CHECK(listing.count > 20);
    for (size_t i = 0; i < listing.count; ++i) {
        check_options(listing.names[i], platform, custom_ops);
    }
    berth_arena_destroy(arena);
}

TEST(options_of_config_json_give_what_the_reference_gives) {
    check_all("dummy", "none");
}

TEST(options_of_config_json_give_it_on_platform_cpu) {
    if (!berth_path_exists(CPU)) {
        SKIP("platform-cpu is not built here");
    }
    check_all("cpu", "all");
}
