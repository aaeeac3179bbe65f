// SPDX-License-Identifier: Apache-2.0
// The engine over layers that see a window or a chunk of the tokens: what is behind is given back,
// once, and nobody's text changes, whoever comes, goes, waits, gives way or shares a beginning.
#include "support/test.h"

#include <string.h>

#include "base/array.h"
#include "engine/engine_private.h"
#include "support/fake_model.h"

#define COMPANY 9

static const struct {
    fake_sight windows[FAKE_WINDOWS];
    bool is_alone; // no layer sees all tokens
} models[] = {
    {{{.window = 6}},               false},
    {{{.chunk = 8}},                false},
    {{{.window = 5}, {.chunk = 6}}, false},
    {{{.window = 7}},               true },
    {{{.chunk = 8}},                true },
};

static void open_model(engine_bench *b, size_t which) {
    bench_open(b);
    memcpy(b->model.windows, models[which].windows, sizeof b->model.windows);
    b->model.has_windows_only = models[which].is_alone;
}

static fake_sight sight_of(size_t which) {
    return models[which].is_alone ? models[which].windows[0] : (fake_sight){0};
}

// ---- counting -----------------------------------------------------------------------------------

// Every block of the group is free or has as many users as there are lists that name it; a list
// names the null block before the window, and there alone.
static void check_group(const engine_bench *b, size_t index) {
    const berth_token_group *group = &b->engine->groups.all[index];
    const berth_block_pool *pool = &group->pool;
    int32_t users[20 * FAKE_MAX_BLOCKS] = {0};
    int64_t free_count = 0;
    CHECK(pool->num_blocks <= (int64_t)BERTH_COUNT(users));
    for (size_t i = 0; i < b->engine->sequences.count; ++i) {
        const berth_block_list *list = &b->engine->sequences.data[i].blocks[index];
        CHECK(i < b->engine->running || list->count == 0);
        CHECK(list->count - list->dropped <= group->most);
        for (int64_t k = 0; k < list->count; ++k) {
            CHECK((list->ids[k] == 0) == (k < list->dropped));
            ++users[list->ids[k]];
        }
    }
    for (int32_t id = pool->blocks[0].after; id != 0; id = pool->blocks[id].after) {
        CHECK_INT(users[id], 0);
        CHECK(++free_count < pool->num_blocks);
    }
    CHECK_INT(pool->free_count, free_count);
    for (int32_t id = 1; id < pool->num_blocks; ++id) {
        CHECK_INT(pool->blocks[id].users, users[id]);
        free_count += users[id] > 0;
    }
    CHECK_INT(free_count, pool->num_blocks - 1);
}

static void check_blocks(const engine_bench *b) {
    for (size_t i = 0; i < b->engine->groups.count; ++i) {
        check_group(b, i);
    }
}

// ---- random schedules ---------------------------------------------------------------------------

static uint32_t next_number(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void arrange(engine_bench *b, uint32_t round) {
    b->config.max_num_batched_tokens = 5 + round % 12;
    b->config.kv_cache_blocks = 11 + round % 9; // often too few: sequences are preempted
    b->config.chunk = round % 3 == 0 ? 7 : round % 3;
    b->config.enable_prefix_caching = round % 4 != 3;
    b->config.max_num_seqs = 2 + round % 5;
    b->model.failing_step = round % 5 == 0 ? 9 : 0;
}

static void invite(client *clients, uint32_t round, size_t which) {
    for (uint32_t i = 0; i < COMPANY; ++i) {
        const uint32_t seed = i % 3 != 0 ? round : round * 31 + i; // many begin alike
        client_init(&clients[i], seed, 1 + (round * 7 + i * 5) % 30, 2 + (i * 3) % 16);
        clients[i].sight = sight_of(which);
    }
}

// A step that fails is tried again.
static void step(engine_bench *b, client *clients) {
    if (b->model.steps + 1 == b->model.failing_step) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        const berth_status status = berth_engine_step(b->engine, &outputs, &count);
        CHECK(status == BERTH_UNAVAILABLE || berth_engine_is_idle(b->engine));
        check_blocks(b);
    }
    clients_step(clients, COMPANY, b);
    check_blocks(b);
}

static void run_schedule(engine_bench *b, client *clients, uint32_t seed) {
    size_t added = 0;
    for (int turn = 0; turn < 2000 && (added < COMPANY || !berth_engine_is_idle(b->engine));
         ++turn) {
        if (added < COMPANY && (berth_engine_is_idle(b->engine) || next_number(&seed) % 3 == 0)) {
            client_add(&clients[added++], b);
        }
        if (next_number(&seed) % 16 == 0) {
            client *c = &clients[next_number(&seed) % added];
            berth_engine_abort(b->engine, c->id, NULL);
            c->finish = c->finish == BERTH_FINISH_NOT_YET ? BERTH_FINISH_ABORTED : c->finish;
            check_blocks(b);
        }
        step(b, clients);
    }
    CHECK(berth_engine_is_idle(b->engine));
}

static void check_round(size_t which, uint32_t round, berth_engine_stats *sum) {
    engine_bench b;
    client clients[COMPANY];
    open_model(&b, which);
    arrange(&b, round);
    bench_start(&b);
    invite(clients, round, which);
    run_schedule(&b, clients, round);
    for (size_t i = 0; i < COMPANY; ++i) {
        if (clients[i].finish != BERTH_FINISH_ABORTED) {
            client_check(&clients[i]);
        }
    }
    for (size_t i = 0; i < b.engine->groups.count; ++i) {
        const berth_block_pool *pool = &b.engine->groups.all[i].pool;
        CHECK_INT(pool->free_count, pool->num_blocks - 1); // all came back
    }
    const berth_engine_stats stats = berth_engine_get_stats(b.engine);
    CHECK(b.config.enable_prefix_caching || stats.cached_tokens == 0);
    sum->preemptions += stats.preemptions;
    sum->cached_tokens += stats.cached_tokens;
    bench_close(&b);
}

TEST(windows_give_the_same_text_and_every_block_back_in_any_company) {
    for (size_t which = 0; which < BERTH_COUNT(models); ++which) {
        berth_engine_stats sum = {0};
        for (uint32_t round = 0; round < 64; ++round) {
            check_round(which, round, &sum);
        }
        CHECK(models[which].is_alone || sum.preemptions > 16);
        CHECK(sum.cached_tokens > 64);
    }
}

// ---- known answers ------------------------------------------------------------------------------

TEST(windows_skip_what_no_query_to_come_sees) {
    const berth_token_group window = {.window = 4, .pool.block_size = 1};
    const berth_token_group chunk = {.chunk = 8, .pool.block_size = 1};
    const berth_token_group blocks = {.window = 4, .pool.block_size = 3};
    const berth_token_group all = {.pool.block_size = 1};
    CHECK_INT(berth_group_skips(&window, 3), 0);
    CHECK_INT(berth_group_skips(&window, 4), 1);
    CHECK_INT(berth_group_skips(&window, 13), 10);
    CHECK_INT(berth_group_skips(&chunk, 7), 0); // vLLM's
    CHECK_INT(berth_group_skips(&chunk, 8), 8);
    CHECK_INT(berth_group_skips(&chunk, 13), 8);
    CHECK_INT(berth_group_skips(&blocks, 5), 0);
    CHECK_INT(berth_group_skips(&blocks, 6), 1);
    CHECK_INT(berth_group_skips(&all, 100), 0);
}

// A first request leaves its tokens behind in both groups.
static void start_with_prefix(engine_bench *b, client clients[2]) {
    open_model(b, 0);
    bench_start(b);
    client_init(&clients[0], 5, 26, 1);
    client_add(&clients[0], b);
    clients_run(clients, 1, b);
}

// A second one begins with the same tokens.
static void finish_with_cached(engine_bench *b, client clients[2], uint64_t cached) {
    client_init(&clients[1], 5, 27, 3);
    client_add(&clients[1], b);
    clients_run(clients, 2, b);
    client_check(&clients[1]);
    CHECK_UINT(berth_engine_get_stats(b->engine).cached_tokens, cached);
    bench_close(b);
}

// 24 tokens are stored; the window's first blocks go to another request. What is left, the last
// two, is all that the tokens behind the prefix see.
TEST(windows_need_no_block_of_a_prefix_that_lies_before_them) {
    engine_bench b;
    client clients[2];
    start_with_prefix(&b, clients);
    berth_token_group *window = &b.engine->groups.all[1];
    CHECK_INT(window->window, 6);
    for (int32_t id = 1; id < window->pool.num_blocks; ++id) {
        const int32_t *tokens = &b.model.window_caches[0][id * FAKE_BLOCK_SIZE];
        for (int first = 0; first < 16; first += FAKE_BLOCK_SIZE) {
            if (memcmp(tokens, clients[0].prompt + first, FAKE_BLOCK_SIZE * sizeof *tokens) == 0) {
                berth_prefix_forget(&window->pool, id);
            }
        }
    }
    finish_with_cached(&b, clients, 24);
}

TEST(windows_make_a_prefix_as_long_as_their_blocks_are_there) {
    engine_bench b;
    client clients[2];
    start_with_prefix(&b, clients);
    berth_token_group *window = &b.engine->groups.all[1];
    for (int32_t id = 1; id < window->pool.num_blocks; ++id) {
        const int32_t *tokens = &b.model.window_caches[0][id * FAKE_BLOCK_SIZE];
        if (memcmp(tokens, clients[0].prompt + 20, FAKE_BLOCK_SIZE * sizeof *tokens) == 0) {
            berth_prefix_forget(&window->pool, id); // the last of the six
        }
    }
    finish_with_cached(&b, clients, 20);
}

// ---- memory -------------------------------------------------------------------------------------

// A window's pool is never larger than what windows hold, and memory counts every group's blocks.
TEST(windows_take_no_more_memory_than_they_can_use) {
    const int64_t page = FAKE_BLOCK_SIZE * (int64_t)sizeof(int32_t);
    engine_bench b;
    open_model(&b, 0);
    b.config.kv_cache_blocks = 0;
    b.config.max_num_seqs = 2;
    b.config.max_num_batched_tokens = 4;
    // A sequence of 40 tokens: 10 blocks; of a window of 6 in steps of 4: 5 and 4 tokens, 4 blocks.
    b.model.memory = (2 * 10 + 1 + 2 * 4 + 1) * page;
    bench_start(&b);
    CHECK_INT(b.engine->groups.all[0].pool.num_blocks, 21);
    CHECK_INT(b.engine->groups.all[1].pool.num_blocks, 9);
    bench_close(&b);
    for (int64_t short_by = 1; short_by <= 14; ++short_by) {
        open_model(&b, 0);
        b.config.kv_cache_blocks = 0;
        b.config.max_num_seqs = 2;
        b.config.max_num_batched_tokens = 4;
        b.model.memory = (30 - short_by) * page;
        bench_start(&b);
        const berth_token_group *all = b.engine->groups.all;
        CHECK_INT(all[0].pool.num_blocks + all[1].pool.num_blocks, 30 - short_by);
        CHECK(all[0].pool.num_blocks >= 11 && all[1].pool.num_blocks >= 5);
        bench_close(&b);
    }
    open_model(&b, 0);
    b.config.kv_cache_blocks = 0;
    b.config.max_num_seqs = 2;
    b.config.max_num_batched_tokens = 4;
    b.model.memory = 15 * page; // 11 and 5 are the least
    bench_load(&b);
    CHECK_STATUS(berth_engine_create(&b.config, b.worker, &b.engine), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "256 bytes over all layers");
    bench_close(&b);
}
