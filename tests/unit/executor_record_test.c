// SPDX-License-Identifier: Apache-2.0
// Recorded decode steps: the second step of its kind is recorded, later ones are replayed, and the
// results are those of a step that is not.
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

static void open_plan(test_plan *it, size_t impl_count, bool is_eager) {
    const test_content content = {.impls = test_device_impls, .impl_count = impl_count};
    test_plan_open(it, &content, "fake-recording");
    test_plan_parse(it, graph);
    test_plan_cache(it, "attn", 2, 4);
    it->config.allow_fallback = true;
    it->config.enforce_eager = is_eager;
    CHECK_OK(test_plan_create(it));
    test_plan_load(it);
}

static uint64_t replays(const test_plan *it) {
    return berth_runtime_counted(it->runtime)->replays;
}

// One token of each of so many sequences, which have `length` with it.
static void decode(test_plan *it, int sequences, int length) {
    const int fresh[] = {1, 1, 1};
    const int lengths[] = {length, length, length};
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
    decode(&it, 2, 3);
    const berth_runtime_counters *after = berth_runtime_counted(it.runtime);
    CHECK_UINT(after->replays - before.replays, 1);
    CHECK_UINT(after->to_device - before.to_device, 1);
    CHECK_UINT(after->to_host - before.to_host, 1);
    CHECK_UINT(after->waits - before.waits, 0); // beside that of the download
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
