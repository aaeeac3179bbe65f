// SPDX-License-Identifier: Apache-2.0
// States as somebody outside a step sees them: written before a run, read after it, in either
// space.
#include <string.h>

#include "support/test.h"
#include "support/test_plan.h"

static const char *const text = "graph \"g\" {\n"
                                "  %1 = input token_ids : i32[s0]\n"
                                "  %2 = parameter \"embed\" : f32[16, 4]\n"
                                "  %3 = embedding(%1, %2) : f32[s0, 4]\n"
                                "  %4 = state \"sum\" 0 : f32[4]\n"
                                "  %5, %6' = accumulate(%3; %4) @\"sum\" : f32[s0, 4]\n"
                                "  output y = %5\n"
                                "}\n";

static void open_plan(test_plan *it, const char *platform, size_t impl_count) {
    const test_content content = {.impls = test_device_impls, .impl_count = impl_count};
    test_plan_open(it, &content, platform);
    it->config.allow_fallback = true;
    test_plan_parse(it, text);
    CHECK_OK(test_plan_create(it));
}

TEST(executor_state_that_is_written_is_what_a_run_begins_with) {
    const char *const platforms[] = {NULL, "fake-device", "fake-device"};
    for (size_t i = 0; i < 3; ++i) {
        const float before[4] = {1, -2, 3, 0.5F};
        float after[4] = {0};
        test_plan it;
        test_batch batch;
        const berth_tensor *y = NULL;
        open_plan(&it, platforms[i], i == 2 ? TEST_DEVICE_IMPLS : 0);
        test_plan_load(&it);
        CHECK_OK(berth_plan_write_state(it.plan, "sum", 0, before, sizeof before));
        CHECK_OK(berth_plan_read_state(it.plan, "sum", 0, after, sizeof after));
        CHECK_BYTES(after, before, sizeof after);
        test_batch_fill(&batch, (const int[]){3}, (const int[]){3}, 1, 0);
        CHECK_OK(berth_plan_run(it.plan, &batch.batch));
        CHECK_OK(berth_plan_output(it.plan, "y", &y));
        CHECK_OK(berth_plan_read_state(it.plan, "sum", 0, after, sizeof after));
        // The last row of y is the state after it, which is not what it was.
        const float *rows = (const void *)((const char *)y->data + y->byte_offset);
        CHECK_BYTES(after, rows + 8, sizeof after);
        CHECK(before[0] != after[0]);
        test_plan_close(&it);
    }
}

TEST(executor_state_refuses_what_is_not_there) {
    float values[4] = {0};
    test_plan it;
    open_plan(&it, NULL, 0);
    CHECK_STATUS(berth_plan_write_state(it.plan, "sum", 0, values, sizeof values),
                 BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "the states of layer 'sum' have no memory yet");
    test_plan_load(&it);
    CHECK_STATUS(berth_plan_write_state(it.plan, "sums", 0, values, sizeof values),
                 BERTH_NOT_FOUND);
    CHECK_STATUS(berth_plan_read_state(it.plan, "sum", 1, values, sizeof values), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "the plan has no state 1 of layer 'sum'");
    CHECK_STATUS(berth_plan_read_state(it.plan, "sum", 0, values, 8), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "state 0 of layer 'sum' has 16 bytes, not 8");
    test_plan_close(&it);
}

// ---- slots --------------------------------------------------------------------------------------

#define SLOTS 3

static void open_slots(test_plan *it, const char *platform, size_t impl_count) {
    const test_content content = {.impls = test_device_impls, .impl_count = impl_count};
    test_plan_open(it, &content, platform);
    it->config.allow_fallback = true;
    test_plan_parse(it, text);
    it->caches[it->cache_count++] = (berth_kv_cache_spec){
        .size = sizeof(berth_kv_cache_spec),
        .layer = "sum",
        .dtype = BERTH_DTYPE_F32,
        .group = 1,
        .is_state = 1,
    };
    CHECK_OK(test_plan_create(it));
    float weight[64];
    for (size_t i = 1; i < it->graph->value_count; ++i) {
        if (it->graph->values[i].kind == BERTH_VALUE_PARAMETER) {
            test_plan_weight(&it->graph->values[i], weight);
            CHECK_OK(berth_plan_set_parameter(it->plan, (berth_value)i, weight, sizeof weight));
        }
    }
    CHECK_OK(berth_plan_ready(it->plan));
}

// The op of the tests knows no slots and adds to the first.
TEST(executor_state_of_a_sequence_has_as_many_slots_as_the_engine_says) {
    const char *const platforms[] = {NULL, "fake-device", "fake-device"};
    const berth_kv_cache_config config = {
        .size = sizeof config,
        .num_blocks = 2,
        .group_count = 2,
        .state_slots = SLOTS,
    };
    for (size_t i = 0; i < 3; ++i) {
        const float before[SLOTS * 4] = {0, 0, 0, 0, 1, -2, 3, 0.5F, 4, 5, 6, 7};
        float after[SLOTS * 4] = {0};
        test_plan it;
        test_batch batch;
        open_slots(&it, platforms[i], i == 2 ? TEST_DEVICE_IMPLS : 0);
        CHECK_OK(berth_plan_set_cache(it.plan, &config));
        CHECK_OK(berth_plan_write_state(it.plan, "sum", 0, before, sizeof before));
        test_batch_fill(&batch, (const int[]){3}, (const int[]){3}, 1, 0);
        CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(berth_status_message(), "a step of 1 cache groups: the model has 2");
        const int64_t one[] = {1, 1};
        berth_tensor table = *batch.table;
        table.shape = one;
        const berth_tensor *tables[] = {&table, &table};
        const berth_tensor *mappings[] = {batch.mapping, batch.mapping};
        batch.view.block_tables = tables;
        batch.view.slot_mappings = mappings;
        batch.batch.group_count = 2;
        CHECK_OK(berth_plan_run(it.plan, &batch.batch));
        CHECK_OK(berth_plan_read_state(it.plan, "sum", 0, after, sizeof after));
        CHECK(after[0] != before[0]);
        CHECK_BYTES(after + 4, before + 4, sizeof before - 4 * sizeof(float));
        test_plan_close(&it);
    }
}

TEST(executor_state_without_slots_is_refused) {
    const berth_kv_cache_config config = {.size = sizeof config, .num_blocks = 2};
    test_plan it;
    open_slots(&it, NULL, 0);
    CHECK_STATUS(berth_plan_set_cache(it.plan, &config), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "layer 'sum': a cache of 0 slots, at least 1 is needed");
    test_plan_close(&it);
}
