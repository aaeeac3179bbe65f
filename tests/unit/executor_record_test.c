// SPDX-License-Identifier: Apache-2.0
// Recorded decode steps: the second step of its kind is recorded, later ones are replayed, and the
// results are those of a step that is not; or some are recorded beforehand, and steps in between
// are filled up, which nobody sees.
#include <stdio.h>

#include "base/array.h"
#include "support/test.h"
#include "support/test_plan.h"

static const char *const graph =
    "graph \"steps\" {\n"
    "  %1 = input token_ids : i32[s0]\n"
    "  %2 = parameter \"embed\" : f32[16, 8]\n"
    "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
    "  %4 = reshape %3 : f32[s0, 2, 4]\n"
    "  %5 = state \"attn\" 0 : f32[4, 2, 4]\n"
    "  %6 = state \"attn\" 1 : f32[4, 2, 4]\n"
    "  %7, %8', %9' = paged_attention(%4, %4, %4; %5, %6) {scale = 0.5} @\"attn\" : f32[s0, 2, "
    "4]\n"
    "  %10 = reshape %7 : f32[s0, 8]\n"
    "  %11 = input logits_rows : i32[s1]\n"
    "  %12 = select_rows(%10, %11) : f32[s1, 8]\n"
    "  %13 = linear(%12, %2) : f32[s1, 16]\n"
    "  output logits = %13\n"
    "}\n";

#define MOST 5 // sequences with blocks of their own

static void open_graph(test_plan *it, const char *text, const test_content *content) {
    test_plan_open(it, content, "fake-recording");
    test_plan_parse(it, text);
    test_plan_cache(it, "attn", 2, 4);
    it->config.allow_fallback = true;
    it->config.max_num_seqs = MOST;
}

static void open_plan(test_plan *it, size_t impl_count, bool is_eager) {
    const test_content content = {.impls = test_device_impls, .impl_count = impl_count};
    open_graph(it, graph, &content);
    it->config.enforce_eager = is_eager;
    CHECK_OK(test_plan_create(it));
    test_plan_load(it);
}

// With the sizes "2,4", or NULL: the usual ones.
static void open_recorded(test_plan *it, const char *sizes) {
    const test_content content = {.impls = test_device_impls, .impl_count = TEST_DEVICE_IMPLS};
    open_graph(it, graph, &content);
    if (sizes != NULL) {
        test_plan_list(it, &it->config.capture_sizes, sizes);
    }
    CHECK_OK(test_plan_create(it));
    test_plan_load(it);
    CHECK_OK(berth_plan_record(it->plan));
}

static uint64_t replays(const test_plan *it) {
    return berth_runtime_counted(it->runtime)->replays;
}

// One token of each of so many sequences, which have `length` with it.
static void decode(test_plan *it, int sequences, int length) {
    const int fresh[MOST] = {1, 1, 1, 1, 1};
    const int lengths[MOST] = {length, length, length, length, length};
    test_batch batch;
    test_batch_fill(&batch, fresh, lengths, sequences, sequences);
    test_plan_check(it, &batch);
}

static void prefill(test_plan *it, int length) {
    const int lengths[] = {length, length, length};
    test_batch batch;
    test_batch_fill(&batch, lengths, lengths, 3, 3);
    test_plan_check(it, &batch);
}

TEST(executor_records_a_decode_step_at_its_second_time) {
    test_plan it;
    open_plan(&it, TEST_DEVICE_IMPLS, false);
    prefill(&it, 3);
    prefill(&it, 3);
    CHECK_UINT(replays(&it), 0); // several new tokens of a sequence
    decode(&it, 3, 4);
    CHECK_UINT(replays(&it), 0); // the first of its kind
    decode(&it, 3, 5);
    decode(&it, 3, 6);
    CHECK_UINT(replays(&it), 2);
    decode(&it, 2, 7); // another number of sequences is another step
    CHECK_UINT(replays(&it), 2);
    decode(&it, 2, 8);
    decode(&it, 3, 7);
    CHECK_UINT(replays(&it), 4);
    test_plan_close(&it);
}

TEST(executor_sends_one_copy_and_waits_once_in_a_recorded_step) {
    test_plan it;
    open_plan(&it, TEST_DEVICE_IMPLS, false);
    decode(&it, 2, 1);
    decode(&it, 2, 2);
    const berth_runtime_counters before = *berth_runtime_counted(it.runtime);
    const uint64_t waited = berth_runtime_waited(it.runtime);
    decode(&it, 2, 3);
    const berth_runtime_counters *after = berth_runtime_counted(it.runtime);
    CHECK_UINT(after->replays - before.replays, 1);
    CHECK_UINT(after->to_device - before.to_device, 1);
    CHECK_UINT(after->to_host - before.to_host, 1);
    CHECK_UINT(berth_runtime_waited(it.runtime) - waited, 1); // that of the download
    test_plan_close(&it);
}

TEST(executor_records_nothing_that_the_user_or_a_fallback_forbids) {
    for (int is_eager = 0; is_eager < 2; ++is_eager) {
        test_plan it;
        open_plan(&it, is_eager != 0 ? TEST_DEVICE_IMPLS : 2, is_eager != 0);
        for (int length = 1; length < 5; ++length) {
            decode(&it, 2, length);
        }
        CHECK_UINT(replays(&it), 0);
        test_plan_close(&it);
    }
}

TEST(executor_forgets_recordings_with_the_cache_that_they_use) {
    const berth_kv_cache_config caches = {
        .size = sizeof(caches),
        .num_blocks = TEST_MAX_BLOCKS,
        .group_count = 1,
    };
    test_plan it;
    open_plan(&it, TEST_DEVICE_IMPLS, false);
    decode(&it, 1, 1);
    decode(&it, 1, 1);
    CHECK_UINT(replays(&it), 1);
    CHECK_OK(berth_plan_set_cache(it.plan, &caches));
    decode(&it, 1, 1);
    CHECK_UINT(replays(&it), 1);
    decode(&it, 1, 1);
    CHECK_UINT(replays(&it), 2);
    test_plan_close(&it);
}

// ---- filled up ----------------------------------------------------------------------------------

static uint64_t captures(const test_plan *it) {
    return berth_runtime_counted(it->runtime)->captures;
}

TEST(executor_records_sizes_beforehand_and_fills_steps_up_to_them) {
    test_plan it;
    open_recorded(&it, NULL);
    CHECK_UINT(captures(&it), 4); // 1, 2, 4, and 8, of which 5 may run
    CHECK_UINT(berth_plan_captures(it.plan), 4);
    CHECK_UINT(replays(&it), 0);
    for (int length = 1; length < 10; ++length) {
        for (int sequences = MOST; sequences > 0; --sequences) {
            const berth_tensor *logits = NULL;
            const uint64_t before = replays(&it);
            decode(&it, sequences, length);
            CHECK_UINT(replays(&it), before + 1);
            CHECK_OK(berth_plan_output(it.plan, "logits", &logits));
            CHECK_INT(logits->shape[0], sequences);
        }
    }
    prefill(&it, 3);
    decode(&it, 3, 4);
    CHECK_UINT(captures(&it), 4);
    test_plan_close(&it);
}

TEST(executor_leaves_the_null_block_alone_when_it_fills_up) {
    enum { CACHE = TEST_MAX_BLOCKS * TEST_BLOCK_SIZE * 8, BLOCK = TEST_BLOCK_SIZE * 8 };
    float before[CACHE];
    float after[CACHE];
    test_plan it;
    open_recorded(&it, "5");
    for (uint64_t which = 0; which < 2; ++which) {
        CHECK_OK(berth_plan_read_state(it.plan, "attn", which, before, sizeof before));
        decode(&it, 1, 1); // beside four of nobody's
        CHECK_OK(berth_plan_read_state(it.plan, "attn", which, after, sizeof after));
        CHECK_BYTES(after, before, BLOCK * sizeof(float));
        CHECK(before[0] == 0 && before[BLOCK - 1] == 0); // which is cleared
        // One position of the sequence's first block is written, and nothing behind it.
        CHECK_BYTES(after + BLOCK + 8, before + BLOCK + 8, (CACHE - BLOCK - 8) * sizeof(float));
    }
    CHECK_UINT(replays(&it), 2);
    test_plan_close(&it);
}

TEST(executor_does_not_fill_up_beyond_the_largest_size) {
    test_plan it;
    open_recorded(&it, "2,4");
    CHECK_UINT(captures(&it), 2);
    for (int sequences = 1; sequences < MOST; ++sequences) {
        decode(&it, sequences, 1);
        CHECK_UINT(replays(&it), (uint64_t)sequences);
    }
    for (int length = 1; length < 4; ++length) {
        decode(&it, MOST, length);
    }
    CHECK_UINT(replays(&it), MOST - 1);
    CHECK_UINT(captures(&it), 2);
    test_plan_close(&it);
}

// What stands behind a batch is no reason to look at it less.
TEST(executor_checks_a_batch_that_it_fills_up) {
    const int fresh[3] = {1, 1, 1};
    test_plan it;
    test_batch batch;
    open_recorded(&it, "2,4");
    test_batch_fill(&batch, fresh, fresh, 3, 3);
    batch.batch.group_count = 0;
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "a step of 0 cache groups: the model has ");
    CHECK_UINT(replays(&it), 0);
    decode(&it, 3, 1);
    CHECK_UINT(replays(&it), 1);
    test_plan_close(&it);
}

TEST(executor_sends_one_copy_and_waits_once_in_a_step_that_is_filled_up) {
    test_plan it;
    open_recorded(&it, NULL);
    decode(&it, 3, 1);
    decode(&it, 3, 2);
    const berth_runtime_counters before = *berth_runtime_counted(it.runtime);
    const uint64_t waited = berth_runtime_waited(it.runtime);
    decode(&it, 3, 3);
    const berth_runtime_counters *after = berth_runtime_counted(it.runtime);
    CHECK_UINT(after->replays - before.replays, 1);
    CHECK_UINT(after->to_device - before.to_device, 1);
    CHECK_UINT(after->to_host - before.to_host, 1);
    CHECK_UINT(berth_runtime_waited(it.runtime) - waited, 1);
    test_plan_close(&it);
}

TEST(executor_records_again_for_another_cache_and_after_sleeping) {
    const berth_kv_cache_config caches = {
        .size = sizeof(caches),
        .num_blocks = TEST_MAX_BLOCKS,
        .group_count = 1,
    };
    const berth_tensor *logits = NULL;
    test_plan it;
    open_recorded(&it, NULL);
    decode(&it, 3, 1);
    CHECK_OK(berth_plan_set_cache(it.plan, &caches));
    CHECK_UINT(berth_plan_captures(it.plan), 0);
    CHECK_OK(berth_plan_record(it.plan));
    CHECK_STATUS(berth_plan_output(it.plan, "logits", &logits), BERTH_WRONG_STATE);
    decode(&it, 3, 1);
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP));
    CHECK_OK(berth_plan_record(it.plan)); // nothing yet
    CHECK_UINT(berth_plan_captures(it.plan), 0);
    CHECK_OK(berth_plan_wake_up(it.plan));
    CHECK_OK(berth_plan_wake_caches(it.plan));
    CHECK_OK(berth_plan_record(it.plan));
    CHECK_UINT(berth_plan_captures(it.plan), 4);
    decode(&it, 3, 1);
    CHECK_UINT(replays(&it), 3);
    test_plan_close(&it);
}

// A row that is made of two, or of all, would be made of nobody's, too; and a state that is no
// cache has no place for them.
TEST(executor_fills_nothing_up_where_others_would_see_it) {
    static const char *const parts[] = {
        "  %4 = pool(%3) @\"p\" : f32[ceil(s0/2), 8]\n"
        "  output y = %4\n",
        "  %4 = column_sum(%3) @\"c\" : f32[1, 8]\n"
        "  output y = %4\n",
        "  %4 = state \"sum\" 0 : f32[8]\n"
        "  %5, %6' = accumulate(%3; %4) @\"sum\" : f32[s0, 8]\n"
        "  output y = %5\n",
    };
    const test_content content = {.impls = test_device_impls, .impl_count = TEST_DEVICE_IMPLS};
    for (size_t i = 0; i < BERTH_COUNT(parts); ++i) {
        char text[1024];
        test_plan it;
        (void)snprintf(text, sizeof text,
                       "graph \"mixed\" {\n"
                       "  %%1 = input token_ids : i32[s0]\n"
                       "  %%2 = parameter \"embed\" : f32[16, 8]\n"
                       "  %%3 = embedding(%%1, %%2) @\"embed\" : f32[s0, 8]\n"
                       "%s}\n",
                       parts[i]);
        open_graph(&it, text, &content);
        it.cache_count = 0;
        CHECK_OK(test_plan_create(&it));
        test_plan_load(&it);
        CHECK_OK(berth_plan_record(it.plan));
        CHECK_UINT(captures(&it), 0);
        decode(&it, 3, 1);
        decode(&it, 3, 2);
        decode(&it, 3, 3);
        CHECK_UINT(captures(&it), 1); // as it is, the second time
        CHECK_UINT(replays(&it), 2);
        test_plan_close(&it);
    }
}

// ---- failures -----------------------------------------------------------------------------------

static int calls_left;

static berth_status fail_later(void *self, const berth_op_args *args) {
    return calls_left-- > 0 ? test_device_forward(self, args) : BERTH_UNAVAILABLE;
}

TEST(executor_keeps_no_recording_when_one_fails) {
    berth_op_impl impls[TEST_DEVICE_IMPLS];
    test_plan it;
    for (size_t i = 0; i < TEST_DEVICE_IMPLS; ++i) {
        impls[i] = test_device_impls[i];
        impls[i].forward = fail_later;
    }
    const test_content content = {.impls = impls, .impl_count = TEST_DEVICE_IMPLS};
    open_graph(&it, graph, &content);
    CHECK_OK(test_plan_create(&it));
    test_plan_load(&it);
    for (int calls = 9; calls < 17; calls += 4) { // the second size, run and recorded
        calls_left = calls;
        CHECK_STATUS(berth_plan_record(it.plan), BERTH_UNAVAILABLE);
        CHECK_CONTAINS(berth_status_message(), "recording a step of 4 sequences; --enforce-eager");
        CHECK_UINT(berth_plan_captures(it.plan), 0);
    }
    calls_left = 1000;
    CHECK_OK(berth_plan_record(it.plan));
    decode(&it, 3, 1);
    CHECK_UINT(replays(&it), 1);
    test_plan_close(&it);
}
