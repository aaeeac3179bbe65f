// SPDX-License-Identifier: Apache-2.0
// platform-cuda and platform-hip: where there is no GPU of theirs they are loaded and decline with
// a reason, and nothing else changes; where there is one, they compute what the reference computed.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "support/dummy_model.h"
#include "support/program.h"
#include "support/test.h"

#define MODELS "tests/data/models/"

typedef struct fate {
    char state[32];
    char reason[256];
} fate;

typedef struct vendor {
    const char *id;
    const char *library;
    const char *missing;  // why it is skipped when it was not built
    const char *declines; // how its reason begins
} vendor;

static const vendor cuda = {
    .id = "cuda",
    .library = TEST_BUILD "/plugins/libberth-platform-cuda.so",
    .missing = "platform-cuda was not built: nvcc is missing",
    .declines = "no NVIDIA ",
};
static const vendor hip = {
    .id = "hip",
    .library = TEST_BUILD "/plugins/libberth-platform-hip.so",
    .missing = "platform-hip was not built: it wants hipcc and HIP=1",
    .declines = "no AMD GPU: ",
};

// What became of the plugin; skips the test when it was not built.
static fate find_fate(const vendor *its) {
    fate out = {.state = ""};
    program p;
    if (access(its->library, F_OK) != 0) {
        SKIP(its->missing);
    }
    PROGRAM_MUST(&p, NULL, BERTH, "plugins", "list", "--json");
    berth_json *root = program_json(&p);
    for (size_t i = 0; i < berth_json_size(root); ++i) {
        const berth_json *plugin = berth_json_at(root, i);
        berth_str id = {0};
        berth_str state = {0};
        berth_str reason = {0};
        CHECK_OK(berth_json_get_str(plugin, "id", &id));
        CHECK_OK(berth_json_get_str(plugin, "state", &state));
        CHECK_OK(berth_json_get_str(plugin, "reason", &reason));
        if (strcmp(id.data, its->id) == 0) {
            (void)snprintf(out.state, sizeof(out.state), "%s", state.data);
            (void)snprintf(out.reason, sizeof(out.reason), "%s", reason.data);
        }
    }
    berth_json_destroy(root);
    return out;
}

static void check_declining(const vendor *its) {
    const fate found = find_fate(its);
    if (strcmp(found.state, "declined") != 0) {
        CHECK_STR(found.state, "active");
        SKIP("there is a GPU");
    }
    CHECK_CONTAINS(found.reason, its->declines);
    CHECK(strlen(found.reason) > strlen(its->declines));
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", LLAMA, "--prompt", "ROMEO:", "--platform",
                its->id, "--allow-fallback");
    CHECK_INT(p.status, 6);
    CHECK_CONTAINS(p.err, found.reason);
}

static void check_computing(const vendor *its) {
    static const char *const models[] = {MODELS "llama", MODELS "qwen3", MODELS "shakespeare"};
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    if (strcmp(find_fate(its).state, "declined") == 0) {
        SKIP("there is no GPU");
    }
    for (size_t i = 0; i < BERTH_COUNT(models) * BERTH_COUNT(dtypes); ++i) {
        const char *model = models[i / BERTH_COUNT(dtypes)];
        program p;
        char golden[256];
        (void)snprintf(golden, sizeof(golden), "%s/golden.json", model);
        PROGRAM_MUST(&p, NULL, BERTH, "eval", "--model", model, "--golden", golden, "--platform",
                     its->id, "--dtype", dtypes[i % BERTH_COUNT(dtypes)]);
        CHECK_CONTAINS(p.out, "passed");
    }
}

TEST(cuda_declines_with_a_reason_where_there_is_no_gpu) {
    check_declining(&cuda);
}

TEST(cuda_computes_what_the_reference_computed) {
    check_computing(&cuda);
}

TEST(hip_declines_with_a_reason_where_there_is_no_gpu) {
    check_declining(&hip);
}

TEST(hip_computes_what_the_reference_computed) {
    check_computing(&hip);
}
