// SPDX-License-Identifier: Apache-2.0
// A plan that sleeps: what it gives back, that it is the same plan after it, and what goes wrong.
#include <stdlib.h>

#include "base/array.h"
#include "support/test.h"
#include "support/test_plan.h"

static const char *const graph =
    "graph \"sleeper\" {\n"
    "  %1 = input token_ids : i32[s0]\n"
    "  %2 = parameter \"embed\" : f32[16, 8]\n"
    "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
    "  %4 = reshape %3 : f32[s0, 2, 4]\n"
    "  %5 = state \"attn\" 0 : f32[4, 2, 4]\n"
    "  %6 = state \"attn\" 1 : f32[4, 2, 4]\n"
    "  %7, %8', %9' = paged_attention(%4, %4, %4; %5, %6) {scale = 0.5} @\"attn\" : f32[s0, 2, "
    "4]\n"
    "  %10 = reshape %7 : f32[s0, 8]\n"
    "  %11 = state \"sum\" 0 : f32[8]\n"
    "  %12, %13' = accumulate(%10; %11) @\"sum\" : f32[s0, 8]\n"
    "  %14 = input logits_rows : i32[s1]\n"
    "  %15 = select_rows(%12, %14) : f32[s1, 8]\n"
    "  %16 = linear(%15, %2) : f32[s1, 16]\n"
    "  output logits = %16\n"
    "}\n";

#define WEIGHT_BYTES ((uint64_t)16 * 8 * sizeof(float))
#define STATE_BYTES  ((uint64_t)8 * sizeof(float))

// Where a plan runs: natively, in host memory of a platform, on a device wholly, on one on which
// everything but some ops bounces.
typedef struct place {
    const char *platform;
    size_t impl_count;
} place;

static const place places[] = {
    {NULL,             0                },
    {"fake-host",      0                },
    {"fake-device",    TEST_DEVICE_IMPLS},
    {"fake-recording", TEST_DEVICE_IMPLS},
    {"fake-device",    3                },
};

static void open_plan_of(test_plan *it, const char *platform, const test_content *content) {
    test_plan_open(it, content, platform);
    test_plan_parse(it, graph);
    test_plan_cache(it, "attn", 2, 4);
    it->config.allow_fallback = true;
    CHECK_OK(test_plan_create(it));
    test_plan_load(it);
}

static void open_plan(test_plan *it, const place *where) {
    const test_content content = {.impls = test_device_impls, .impl_count = where->impl_count};
    open_plan_of(it, where->platform, &content);
}

static uint64_t held(const test_plan *it) {
    return berth_runtime_counted(it->runtime)->held;
}

// A prompt and some tokens after it, of two sequences, which nobody has to have seen before.
static void check_runs(test_plan *it) {
    test_batch batch;
    test_batch_fill(&batch, (const int[]){3, 2}, (const int[]){3, 2}, 2, 2);
    test_plan_check(it, &batch);
    for (int length = 4; length < 7; ++length) {
        const int lengths[] = {length, length - 1};
        test_batch_fill(&batch, (const int[]){1, 1}, lengths, 2, 2);
        test_plan_check(it, &batch);
    }
}

TEST(executor_computes_the_same_after_sleeping) {
    for (size_t i = 0; i < BERTH_COUNT(places); ++i) {
        for (int level = BERTH_SLEEP_KEEP; level <= BERTH_SLEEP_DISCARD; ++level) {
            test_plan it;
            open_plan(&it, &places[i]);
            check_runs(&it);
            const uint64_t awake = held(&it);
            const uint64_t weights = berth_plan_parameter_bytes(it.plan);
            CHECK_OK(berth_plan_sleep(it.plan, (berth_sleep_level)level));
            CHECK(held(&it) < awake);
            if (level == BERTH_SLEEP_DISCARD) {
                CHECK_UINT(berth_plan_parameter_bytes(it.plan), 0);
                test_plan_set_weights(&it);
            }
            CHECK_OK(berth_plan_wake_up(it.plan));
            CHECK_OK(berth_plan_wake_caches(it.plan));
            CHECK_UINT(held(&it), awake);
            CHECK_UINT(berth_plan_parameter_bytes(it.plan), weights);
            check_runs(&it); // the sum goes on where it was
            test_plan_close(&it);
        }
    }
}

// All that stays is where a step's arrays go.
TEST(executor_gives_all_memory_but_the_batch_back) {
    for (int level = BERTH_SLEEP_KEEP; level <= BERTH_SLEEP_DISCARD; ++level) {
        test_plan it;
        open_plan(&it, &places[2]);
        const size_t live = test_devices_live();
        const uint64_t awake = held(&it);
        const uint64_t caches = (uint64_t)2 * TEST_MAX_BLOCKS * TEST_BLOCK_SIZE * 8 * sizeof(float);
        CHECK_OK(berth_plan_sleep(it.plan, (berth_sleep_level)level));
        CHECK_UINT(test_devices_live(), 1);
        CHECK(awake - held(&it) > WEIGHT_BYTES + STATE_BYTES + caches);
        if (level == BERTH_SLEEP_DISCARD) {
            test_plan_set_weights(&it);
        }
        CHECK_OK(berth_plan_wake_caches(it.plan)); // in either order
        CHECK_OK(berth_plan_wake_up(it.plan));
        CHECK_UINT(test_devices_live(), live);
        check_runs(&it);
        test_plan_close(&it);
    }
}

TEST(executor_leaves_weights_in_host_memory_where_they_are) {
    test_plan it;
    open_plan(&it, &places[1]);
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP));
    CHECK_UINT(held(&it), WEIGHT_BYTES + STATE_BYTES);
    CHECK_OK(berth_plan_wake_up(it.plan));
    CHECK_OK(berth_plan_wake_caches(it.plan));
    check_runs(&it);
    test_plan_close(&it);
}

TEST(executor_forgets_recordings_when_it_falls_asleep) {
    test_plan it;
    open_plan(&it, &places[3]);
    check_runs(&it);
    CHECK_UINT(berth_runtime_counted(it.runtime)->replays, 2);
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP));
    CHECK_UINT(test_devices_live(), 1); // graphs count
    CHECK_OK(berth_plan_wake_up(it.plan));
    CHECK_OK(berth_plan_wake_caches(it.plan));
    check_runs(&it);
    CHECK_UINT(berth_runtime_counted(it.runtime)->replays, 4);
    test_plan_close(&it);
}

TEST(executor_refuses_steps_of_a_sleeping_plan) {
    test_plan it;
    test_batch batch;
    open_plan(&it, &places[2]);
    test_batch_fill(&batch, (const int[]){1}, (const int[]){1}, 1, 1);
    CHECK_STATUS(berth_plan_wake_up(it.plan), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "the plan is not asleep");
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_DISCARD));
    CHECK_STATUS(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP), BERTH_WRONG_STATE);
    CHECK_STATUS(berth_plan_ready(it.plan), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "the plan is asleep already");
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "a plan runs after berth_plan_wake_up");
    CHECK_STATUS(berth_plan_wake_up(it.plan), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "parameter 'embed' has not been set");
    test_plan_set_weights(&it);
    berth_plan_discard_weights(it.plan); // and all over again
    test_plan_set_weights(&it);
    CHECK_OK(berth_plan_wake_up(it.plan));
    CHECK_STATUS(berth_plan_run(it.plan, &batch.batch), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "a plan runs after berth_plan_set_cache");
    test_plan_close(&it);
}

// Every allocation of waking up fails once; the plan goes on sleeping and wakes up after all.
TEST(executor_sleeps_on_when_the_device_is_full) {
    test_plan it;
    open_plan(&it, &places[2]);
    check_runs(&it);
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP));
    const uint64_t asleep = held(&it);
    size_t refused = 0;
    berth_status status = BERTH_OUT_OF_MEMORY;
    for (; status != BERTH_OK; ++refused) {
        test_devices_allow(refused);
        status = berth_plan_wake_up(it.plan);
        CHECK(status == BERTH_OK || status == BERTH_OUT_OF_MEMORY);
        CHECK(status == BERTH_OK || held(&it) == asleep);
    }
    CHECK(refused > 2);
    test_devices_allow(1);
    CHECK_STATUS(berth_plan_wake_caches(it.plan), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "cache of layer 'attn'");
    test_devices_allow(SIZE_MAX);
    CHECK_OK(berth_plan_wake_caches(it.plan));
    check_runs(&it);
    test_plan_close(&it);
}

// ---- implementations ----------------------------------------------------------------------------

static size_t created;
static size_t destroyed;
static uint64_t workspace_bytes;

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    const berth_op_site **self = malloc(sizeof(const berth_op_site *));
    *self = site;
    *out_self = self;
    ++created;
    return BERTH_OK;
}

static void destroy(void *self) {
    free(self);
    ++destroyed;
}

static uint64_t workspace(void *self, uint64_t tokens) {
    (void)self;
    return workspace_bytes * tokens;
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_op_site *site = *(const berth_op_site **)self;
    return test_device_forward((void *)(uintptr_t)site, args);
}

static const berth_op_impl demanding = {
    .size = sizeof(demanding),
    .op = "linear",
    .name = "demanding",
    .dispatch_key = BERTH_DISPATCH_OOT,
    .revision = 1,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
};

TEST(executor_creates_implementations_again_after_sleeping) {
    const test_content content = {.impls = &demanding, .impl_count = 1};
    test_plan it;
    created = destroyed = 0;
    workspace_bytes = 64;
    open_plan_of(&it, "fake-device", &content);
    CHECK_UINT(created, 1);
    CHECK_OK(berth_plan_sleep(it.plan, BERTH_SLEEP_KEEP));
    CHECK_UINT(destroyed, 1);
    workspace_bytes = 65; // which nothing was planned for
    CHECK_STATUS(berth_plan_wake_up(it.plan), BERTH_INTERNAL);
    CHECK_CONTAINS(berth_status_message(), "'demanding' of op 'linear'");
    CHECK_CONTAINS(berth_status_message(), "780 bytes after sleeping, it wanted 768 before");
    CHECK_UINT(destroyed, created);
    workspace_bytes = 64;
    CHECK_OK(berth_plan_wake_up(it.plan));
    CHECK_OK(berth_plan_wake_caches(it.plan));
    CHECK_UINT(created, 3);
    check_runs(&it);
    test_plan_close(&it);
    CHECK_UINT(destroyed, 3);
}
