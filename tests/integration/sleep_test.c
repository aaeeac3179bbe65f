// SPDX-License-Identifier: Apache-2.0
// Sleep levels on real platforms: device memory goes down, the tokens after it are those before it,
// and discarded weights are what the checkpoint has by then.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "support/changed_checkpoint.h"
#include "support/flow.h"
#include "support/test.h"

#define LLAMA  "tests/data/models/llama"
#define MAMBA  "tests/data/models/falcon-h1" // keeps states of sequences, too
#define TOKENS 12

static const char *const files[] = {"config.json", "model.safetensors", NULL};

static void start(flow *f, const char *platform, const char *model) {
    flow_init(f);
    f->config.model = model;
    f->config.platform = platform;
    f->config.max_model_len = 64;
    f->config.kv_cache_blocks = 16;
    f->config.max_num_seqs = 4;
    flow_start(f);
}

static const berth_runtime_counters *counted(const flow *f) {
    return berth_runtime_counted(berth_worker_runtime(f->worker));
}

static void generate(flow *f, int32_t *out_tokens) {
    static const int32_t prompt[] = {1, 20, 33, 7, 5, 21, 2, 9};
    const berth_request request = {
        .prompt = prompt,
        .prompt_count = BERTH_COUNT(prompt),
        .max_tokens = TOKENS,
    };
    uint64_t id = 0;
    size_t count = 0;
    CHECK_OK(berth_engine_add(f->engine, &request, &id));
    while (!berth_engine_is_idle(f->engine)) {
        const berth_output *outputs = NULL;
        size_t output_count = 0;
        CHECK_OK(berth_engine_step(f->engine, &outputs, &output_count));
        for (size_t i = 0; i < output_count; ++i) {
            out_tokens[count++] = outputs[i].token;
        }
    }
    CHECK_UINT(count, TOKENS);
}

static void check_same(flow *f, const int32_t *before) {
    int32_t after[TOKENS] = {0};
    generate(f, after);
    for (size_t i = 0; i < TOKENS; ++i) {
        CHECK_INT(after[i], before[i]);
    }
}

enum { DUMMY, CPU };

// On the CPU weights are in host memory already, so at level 1 they stay where they are.
TEST(sleep_gives_memory_back_and_keeps_the_tokens) {
    const char *const platforms[] = {[DUMMY] = "dummy", [CPU] = "cpu"};
    const char *const models[] = {LLAMA, MAMBA};
    for (size_t i = 0; i < 4; ++i) {
        flow f;
        int32_t before[TOKENS] = {0};
        start(&f, platforms[i % 2], models[i / 2]);
        generate(&f, before);
        const uint64_t awake = counted(&f)->held;
        const uint64_t peak = counted(&f)->peak;
        const uint64_t weights = berth_plan_parameter_bytes(berth_worker_plan(f.worker));
        for (uint64_t level = 1; level <= 2; ++level) {
            CHECK_OK(berth_engine_sleep(f.engine, level));
            const uint64_t asleep = counted(&f)->held;
            CHECK(asleep < awake);
            if (i % 2 == CPU) {
                CHECK(level == 1 ? asleep >= weights : awake - asleep > weights);
            }
            CHECK_OK(berth_engine_wake_up(f.engine, 0));
            CHECK_UINT(counted(&f)->held, awake);
            CHECK_UINT(counted(&f)->peak, peak); // never two of anything
            check_same(&f, before);
        }
        flow_deinit(&f);
    }
}

// The weights of level 2 come from the checkpoint, so this is how a model gets new ones.
TEST(sleep_at_level_2_reads_the_checkpoint_again) {
    static const char zeros[256];
    const tensor_change change = {
        .tensor = "model.norm.weight",
        .data = zeros,
        .data_bytes = 16,
    };
    sandbox box;
    flow f;
    int32_t before[TOKENS] = {0};
    int32_t other[TOKENS] = {0};
    char moved[600];
    sandbox_make(&box);
    changed_checkpoint_write(&box, LLAMA, files, &(text_change){0}, &(tensor_change){0});
    start(&f, "dummy", box.dir);
    generate(&f, before);
    CHECK_OK(berth_engine_sleep(f.engine, 2));
    const uint64_t asleep = counted(&f)->held;

    (void)snprintf(moved, sizeof moved, "%s.moved", box.dir);
    CHECK_INT(rename(box.dir, moved), 0);
    CHECK(berth_engine_wake_up(f.engine, 0) != BERTH_OK);
    CHECK_CONTAINS(berth_status_message(), box.dir);
    CHECK_UINT(counted(&f)->held, asleep);
    CHECK_INT(rename(moved, box.dir), 0);
    CHECK_OK(berth_engine_wake_up(f.engine, 0));
    check_same(&f, before);

    CHECK_OK(berth_engine_sleep(f.engine, 2));
    CHECK_INT(unlink(sandbox_path(&box, "model.safetensors")), 0);
    changed_checkpoint_write(&box, LLAMA, files, &(text_change){0}, &change);
    CHECK_OK(berth_engine_wake_up(f.engine, 0));
    generate(&f, other);
    CHECK(memcmp(before, other, sizeof before) != 0);

    flow_deinit(&f);
    sandbox_remove(&box);
}

TEST(sleep_takes_no_weights_of_another_form) {
    sandbox box;
    flow f;
    int32_t before[TOKENS] = {0};
    sandbox_make(&box);
    changed_checkpoint_write(&box, LLAMA, files, &(text_change){0}, &(tensor_change){0});
    start(&f, "dummy", box.dir);
    generate(&f, before);
    CHECK_OK(berth_engine_sleep(f.engine, 2));
    const uint64_t asleep = counted(&f)->held;
    CHECK_INT(unlink(sandbox_path(&box, "model.safetensors")), 0);
    CHECK_INT(unlink(sandbox_path(&box, "config.json")), 0);
    changed_checkpoint_write(&box, "tests/data/models/qwen3", files, &(text_change){0},
                             &(tensor_change){0});
    CHECK_STATUS(berth_engine_wake_up(f.engine, 0), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "of another form than when it was loaded first");
    CHECK_UINT(counted(&f)->held, asleep);
    changed_checkpoint_write(&box, LLAMA, files, &(text_change){0}, &(tensor_change){0});
    CHECK_OK(berth_engine_wake_up(f.engine, 0));
    check_same(&f, before);
    flow_deinit(&f);
    sandbox_remove(&box);
}
