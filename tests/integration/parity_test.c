// SPDX-License-Identifier: Apache-2.0
// Two checkpoints and their logits from elsewhere (../shared/data/parity): every case of their
// golden.json, all its sequences at once, on the host itself and on platform-cpu.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "support/flow.h"
#include "support/test.h"

#define FOLDER    "../shared/data/parity"
#define CPU       TEST_BUILD "/plugins/cpu.plugin.yaml"
#define MAX_BATCH 8
#define MAX_IDS   64
#define GATE      1e-4

enum { FLOAT32 = 1 }; // of berth_config_dtypes

static const char *const models[] = {"llama", "qwen3"};

// One case: the sequences, and the logits of all of them.
typedef struct parity_case {
    const berth_json *logits; // [batch][tokens][vocab], flat
    size_t batch;
    size_t tokens;
    size_t vocab;
    int32_t ids[MAX_BATCH][MAX_IDS];
    uint64_t requests[MAX_BATCH];
    size_t rows; // that were compared
} parity_case;

static size_t size_at(const berth_json *node, const char *path) {
    int64_t value = 0;
    CHECK_OK(berth_json_get_i64(node, path, &value));
    CHECK(value > 0);
    return (size_t)value;
}

static void read_case(const berth_json *node, parity_case *out) {
    *out = (parity_case){
        .batch = size_at(node, "shape.0"),
        .tokens = size_at(node, "shape.1"),
        .vocab = size_at(node, "shape.2"),
    };
    CHECK(out->batch <= MAX_BATCH && out->tokens <= MAX_IDS);
    CHECK_OK(berth_json_get_array(node, "logits", &out->logits));
    CHECK_UINT(berth_json_size(out->logits), out->batch * out->tokens * out->vocab);
    for (size_t i = 0; i < out->batch; ++i) {
        for (size_t k = 0; k < out->tokens; ++k) {
            char path[64];
            int64_t id = -1;
            (void)snprintf(path, sizeof path, "input_ids.%zu.%zu", i, k);
            CHECK_OK(berth_json_get_i64(node, path, &id));
            out->ids[i][k] = (int32_t)id;
        }
    }
}

static void compare(parity_case *at, size_t sequence, const berth_output *output) {
    for (size_t row = 0; row < output->logits_rows; ++row) {
        const size_t position = output->first_position + row;
        if (position >= at->tokens) {
            continue; // after the generated token
        }
        ++at->rows;
        for (size_t i = 0; i < at->vocab; ++i) {
            const size_t place = (sequence * at->tokens + position) * at->vocab + i;
            double wanted = NAN;
            CHECK(berth_json_as_f64(berth_json_at(at->logits, place), &wanted));
            CHECK(fabs((double)output->logits[row * at->vocab + i] - wanted) <= GATE);
        }
    }
}

static void take(parity_case *at, const berth_output *output) {
    for (size_t i = 0; i < at->batch; ++i) {
        if (at->requests[i] == output->request) {
            compare(at, i, output);
        }
    }
}

static void run_case(flow *f, parity_case *at) {
    for (size_t i = 0; i < at->batch; ++i) {
        const berth_request request = {
            .prompt = at->ids[i],
            .prompt_count = at->tokens,
            .max_tokens = 1,
            .wants_logits = true,
        };
        CHECK_OK(berth_engine_add(f->engine, &request, &at->requests[i]));
    }
    while (!berth_engine_is_idle(f->engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        CHECK_OK(berth_engine_step(f->engine, &outputs, &count));
        for (size_t i = 0; i < count; ++i) {
            take(at, &outputs[i]);
        }
    }
    CHECK_UINT(at->rows, at->batch * at->tokens);
}

// `platform` NULL: the host's own ops.
static void run_model(const char *model, const char *platform) {
    char path[256];
    flow f;
    berth_json *golden = NULL;
    const berth_json *cases = NULL;
    flow_init(&f);
    (void)snprintf(path, sizeof path, FOLDER "/%s/golden.json", model);
    CHECK_OK(berth_json_load(path, NULL, &golden));
    CHECK_OK(berth_json_get_object(golden, "cases", &cases));
    CHECK(berth_json_size(cases) > 0);
    f.config.model = berth_arena_printf(f.arena, FOLDER "/%s", model);
    f.config.platform = platform;
    f.config.plugins = platform == NULL ? "" : NULL;
    f.config.dtype = FLOAT32;
    f.config.max_logits_rows = f.config.max_num_batched_tokens;
    f.config.kv_cache_blocks = 64;
    flow_start(&f);
    for (size_t i = 0; i < berth_json_size(cases); ++i) {
        parity_case at;
        read_case(berth_json_at(cases, i), &at);
        run_case(&f, &at);
    }
    flow_deinit(&f);
    berth_json_destroy(golden);
}

TEST(parity_with_logits_from_elsewhere) {
    if (!berth_path_exists(FOLDER)) {
        SKIP(FOLDER " is not here");
    }
    for (size_t i = 0; i < BERTH_COUNT(models); ++i) {
        run_model(models[i], NULL);
        if (berth_path_exists(CPU)) {
            run_model(models[i], "cpu");
        }
    }
}
