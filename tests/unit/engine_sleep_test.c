// SPDX-License-Identifier: Apache-2.0
// An engine and its worker fall asleep and wake up: in which order, with what refusals, and that
// nobody finds a prefix in a cache that has been discarded.
#include <string.h>

#include "base/array.h"
#include "support/fake_model.h"
#include "support/test.h"

#define WEIGHTS BERTH_SLEEP_WEIGHTS
#define CACHE   BERTH_SLEEP_KV_CACHE

// What the worker's slots were asked for, and which of the next calls fails.
static uint64_t last_level;
static uint64_t woken[4];
static size_t woken_count;
static uint64_t failing_tag;

static berth_status fall_asleep(berth_worker *worker, uint64_t level) {
    fake_model *model = worker->platform;
    memset(model->cache, 0x7f, sizeof model->cache);
    last_level = level;
    return BERTH_OK;
}

static berth_status wake_up(berth_worker *worker, uint64_t tags) {
    if (tags == failing_tag) {
        failing_tag = 0;
        return BERTH_PLUGIN_FAIL(worker->host, BERTH_OUT_OF_MEMORY, "somebody else has it");
    }
    woken[woken_count++] = tags;
    return BERTH_OK;
}

static void open_sleeper(engine_bench *b) {
    last_level = 0;
    woken_count = 0;
    failing_tag = 0;
    bench_open(b);
    b->platform.worker.features |= BERTH_WORKER_SLEEP;
    b->platform.worker.sleep = fall_asleep;
    b->platform.worker.wake_up = wake_up;
    bench_start(b);
}

static void run_one(engine_bench *b, uint32_t seed) {
    client c;
    client_init(&c, seed, 13, 6);
    client_add(&c, b);
    clients_run(&c, 1, b);
    client_check(&c);
}

TEST(engine_finds_no_prefix_in_a_discarded_cache) {
    for (uint64_t level = 1; level <= 2; ++level) {
        engine_bench b;
        open_sleeper(&b);
        run_one(&b, 5);
        run_one(&b, 5);
        const uint64_t cached = berth_engine_get_stats(b.engine).cached_tokens;
        CHECK(cached > 0);
        CHECK_OK(berth_engine_sleep(b.engine, level));
        CHECK_UINT(last_level, level);
        CHECK_OK(berth_engine_wake_up(b.engine, 0));
        run_one(&b, 5); // computed again, and right
        CHECK_UINT(berth_engine_get_stats(b.engine).cached_tokens, cached);
        run_one(&b, 5);
        CHECK(berth_engine_get_stats(b.engine).cached_tokens > cached);
        bench_close(&b);
    }
}

TEST(engine_does_not_sleep_while_requests_run) {
    engine_bench b;
    client c;
    open_sleeper(&b);
    client_init(&c, 1, 7, 12);
    client_add(&c, &b);
    CHECK_STATUS(berth_engine_sleep(b.engine, 1), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "sleep while 1 requests have not ended");
    clients_step(&c, 1, &b);
    CHECK_STATUS(berth_engine_sleep(b.engine, 1), BERTH_WRONG_STATE);
    CHECK_UINT(last_level, 0);
    clients_run(&c, 1, &b);
    client_check(&c);
    CHECK_OK(berth_engine_sleep(b.engine, 1));
    bench_close(&b); // asleep
}

TEST(engine_makes_no_step_asleep) {
    const berth_output *outputs = NULL;
    size_t count = 0;
    engine_bench b;
    client c;
    open_sleeper(&b);
    CHECK_OK(berth_engine_sleep(b.engine, 2));
    client_init(&c, 1, 7, 12);
    client_add(&c, &b); // it may wait
    for (uint64_t tags = WEIGHTS; tags <= CACHE; ++tags) {
        CHECK_STATUS(berth_engine_step(b.engine, &outputs, &count), BERTH_WRONG_STATE);
        CHECK_CONTAINS(berth_status_message(), "a step while the engine sleeps");
        CHECK_OK(berth_engine_wake_up(b.engine, tags));
    }
    clients_run(&c, 1, &b);
    client_check(&c);
    bench_close(&b);
}

TEST(worker_wakes_up_in_parts) {
    engine_bench b;
    open_sleeper(&b);
    CHECK_STATUS(berth_worker_wake_up(b.worker, 0), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "the worker is awake already");
    CHECK_STATUS(berth_worker_sleep(b.worker, 3), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "sleep level 3: 1 keeps the weights");
    CHECK_OK(berth_worker_sleep(b.worker, 1));
    CHECK_UINT(berth_worker_asleep(b.worker), WEIGHTS | CACHE);
    CHECK_STATUS(berth_worker_sleep(b.worker, 1), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "sleep while it sleeps: wake_up comes before it");
    CHECK_STATUS(berth_worker_execute_dummy(b.worker), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "execute_dummy_batch while it sleeps");
    CHECK_STATUS(berth_worker_wake_up(b.worker, 4), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "wake_up of 4");
    CHECK_OK(berth_worker_wake_up(b.worker, CACHE));
    CHECK_STATUS(berth_worker_wake_up(b.worker, CACHE), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "the KV cache is awake already");
    CHECK_UINT(berth_worker_asleep(b.worker), WEIGHTS);
    CHECK_OK(berth_worker_wake_up(b.worker, WEIGHTS | CACHE)); // what is left of it
    CHECK_UINT(berth_worker_asleep(b.worker), 0);
    CHECK_UINT(woken_count, 2);
    CHECK_UINT(woken[0], CACHE);
    CHECK_UINT(woken[1], WEIGHTS);
    bench_close(&b);
}

TEST(worker_sleeps_on_after_a_wake_up_that_failed) {
    engine_bench b;
    open_sleeper(&b);
    CHECK_OK(berth_engine_sleep(b.engine, 1));
    failing_tag = CACHE;
    CHECK_STATUS(berth_engine_wake_up(b.engine, 0), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "somebody else has it");
    CHECK_UINT(berth_worker_asleep(b.worker), CACHE);
    CHECK_OK(berth_engine_wake_up(b.engine, 0));
    CHECK_UINT(woken_count, 2);
    CHECK_UINT(woken[0], WEIGHTS);
    CHECK_UINT(woken[1], CACHE);
    run_one(&b, 5);
    bench_close(&b);
}
