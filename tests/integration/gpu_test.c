// SPDX-License-Identifier: Apache-2.0
// platform-cuda: where there is no GPU it is loaded and declines with a reason, and nothing else
// changes; where there is one, it computes what the reference computed.
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

// What became of the plugin; skips the test when it was not built.
static fate find_fate(void) {
    fate out = {.state = ""};
    program p;
    if (access(TEST_BUILD "/plugins/libberth-platform-cuda.so", F_OK) != 0) {
        SKIP("platform-cuda was not built: nvcc is missing");
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
        if (strcmp(id.data, "cuda") == 0) {
            (void)snprintf(out.state, sizeof(out.state), "%s", state.data);
            (void)snprintf(out.reason, sizeof(out.reason), "%s", reason.data);
        }
    }
    berth_json_destroy(root);
    return out;
}

TEST(cuda_declines_with_a_reason_where_there_is_no_gpu) {
    const fate cuda = find_fate();
    if (strcmp(cuda.state, "declined") != 0) {
        CHECK_STR(cuda.state, "active");
        SKIP("there is a GPU");
    }
    CHECK_CONTAINS(cuda.reason, "no NVIDIA ");
    CHECK(strlen(cuda.reason) > strlen("no NVIDIA "));
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", LLAMA, "--prompt", "ROMEO:", "--platform",
                "cuda", "--allow-fallback");
    CHECK_INT(p.status, 6);
    CHECK_CONTAINS(p.err, cuda.reason);
}

TEST(cuda_computes_what_the_reference_computed) {
    static const char *const models[] = {MODELS "llama", MODELS "qwen3", MODELS "shakespeare"};
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    if (strcmp(find_fate().state, "declined") == 0) {
        SKIP("there is no GPU");
    }
    for (size_t i = 0; i < BERTH_COUNT(models) * BERTH_COUNT(dtypes); ++i) {
        const char *model = models[i / BERTH_COUNT(dtypes)];
        program p;
        char golden[256];
        (void)snprintf(golden, sizeof(golden), "%s/golden.json", model);
        PROGRAM_MUST(&p, NULL, BERTH, "eval", "--model", model, "--golden", golden, "--platform",
                     "cuda", "--dtype", dtypes[i % BERTH_COUNT(dtypes)]);
        CHECK_CONTAINS(p.out, "passed");
    }
}
