// SPDX-License-Identifier: Apache-2.0
// The pool of KV blocks and the prefix cache on it: vLLM's known answers, a random life of the pool
// against a record of what each block holds, and what the engine makes of it.
#include "support/test.h"

#include <string.h>

#include "base/array.h"
#include "engine/engine_private.h"
#include "support/fake_model.h"

#define BLOCK  16
#define USABLE 10
#define MOST   (USABLE * BLOCK)

typedef struct pool_rig {
    berth_arena *arena;
    berth_token_groups groups; // one, which keeps all tokens
    berth_block_pool *pool;
} pool_rig;

static void open_rig(pool_rig *rig, int64_t num_blocks, int64_t block_size) {
    memset(rig, 0, sizeof *rig);
    CHECK_OK(berth_arena_create(1 << 14, 1 << 22, &rig->arena));
    rig->groups.count = 1;
    rig->groups.all[0].most = num_blocks;
    rig->pool = &rig->groups.all[0].pool;
    CHECK_OK(berth_pool_init(rig->pool, num_blocks, block_size, rig->arena));
    CHECK_OK(berth_prefix_init(&rig->groups, rig->arena));
}

static void close_rig(pool_rig *rig) {
    berth_arena_destroy(rig->arena);
}

typedef struct holder {
    berth_sequence sequence;
    berth_block_list list;
    int32_t tokens[MOST];
    int32_t blocks[MOST];
} holder;

// Tokens from, from + 1, …
static void fill(holder *h, int32_t from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        h->tokens[h->sequence.token_count++] = from + (int32_t)i;
    }
}

static void init_holder(holder *h) {
    memset(h, 0, sizeof *h);
    h->sequence.tokens = h->tokens;
    h->sequence.blocks = &h->list;
    h->list.ids = h->blocks;
}

// Admits, computes and stores all of it.
static void run(pool_rig *rig, holder *h) {
    CHECK(berth_prefix_admit(&rig->groups, &h->sequence));
    CHECK(berth_pool_cover(rig->pool, &h->list, h->sequence.token_count));
    h->sequence.computed = h->sequence.token_count;
    berth_prefix_store(&rig->groups, &h->sequence);
}

static void check_blocks(const holder *h, const int32_t *expected, int64_t count) {
    CHECK_INT(h->list.count, count);
    CHECK_BYTES(h->blocks, expected, (size_t)count * sizeof *expected);
}

static void check_free(const pool_rig *rig, const int32_t *expected, int64_t count) {
    CHECK_INT(rig->pool->free_count, count);
    int32_t id = 0;
    for (int64_t i = 0; i < count; ++i) {
        id = rig->pool->blocks[id].after;
        CHECK_INT(id, expected[i]);
    }
    CHECK_INT(rig->pool->blocks[id].after, 0);
}

// ---- known answers ------------------------------------------------------------------------------

static void share_48_tokens(pool_rig *rig) {
    static const int32_t first[] = {1, 2, 3, 4};
    static const int32_t second[] = {1, 2, 3, 5};
    static const int32_t order[] = {5, 4, 6, 7, 8, 9, 10, 3, 2, 1};
    holder a, b;
    init_holder(&a);
    fill(&a, 0, 55);
    init_holder(&b);
    fill(&b, 0, 48);
    fill(&b, 900, 7);
    run(rig, &a);
    run(rig, &b);
    check_blocks(&a, first, 4);
    check_blocks(&b, second, 4);
    CHECK_INT(rig->pool->blocks[1].users, 2);
    berth_pool_return(rig->pool, &a.list);
    berth_pool_return(rig->pool, &b.list);
    check_free(rig, order, USABLE);
}

TEST(prefix_is_found_again_and_its_end_is_taken_first) {
    static const int32_t expected[] = {1, 2, 3, 5};
    pool_rig rig;
    holder c;
    open_rig(&rig, USABLE + 1, BLOCK);
    share_48_tokens(&rig);
    init_holder(&c);
    fill(&c, 0, 48);
    fill(&c, 700, 3);
    CHECK(berth_prefix_admit(&rig.groups, &c.sequence));
    CHECK_INT(c.sequence.computed, 48);
    CHECK(berth_pool_cover(rig.pool, &c.list, 51));
    check_blocks(&c, expected, 4);
    close_rig(&rig);
}

TEST(prefix_gives_way_to_a_request_that_needs_every_block) {
    static const int32_t expected[] = {5, 4, 6, 7, 8, 9, 10, 3, 2, 1};
    pool_rig rig;
    holder c;
    open_rig(&rig, USABLE + 1, BLOCK);
    share_48_tokens(&rig);
    init_holder(&c);
    fill(&c, 5000, MOST);
    run(&rig, &c);
    check_blocks(&c, expected, USABLE);
    berth_pool_return(rig.pool, &c.list);
    holder a; // what was there before is gone
    init_holder(&a);
    fill(&a, 0, 55);
    CHECK(berth_prefix_admit(&rig.groups, &a.sequence));
    CHECK_INT(a.sequence.computed, 0);
    close_rig(&rig);
}

TEST(prefix_blocks_are_evicted_in_the_order_of_their_last_use) {
    static const int32_t order[] = {6, 10, 5, 4, 3, 2, 1, 9, 8, 7};
    static const int32_t expected[] = {1, 2, 6};
    pool_rig rig;
    holder a, b, c;
    open_rig(&rig, USABLE + 1, BLOCK);
    init_holder(&a);
    fill(&a, 0, 5 * BLOCK + 7);
    init_holder(&b);
    fill(&b, 5 * BLOCK + 7, 3 * BLOCK);
    run(&rig, &a);
    run(&rig, &b);
    berth_pool_return(rig.pool, &a.list);
    berth_pool_return(rig.pool, &b.list);
    check_free(&rig, order, USABLE);
    init_holder(&c);
    fill(&c, 0, 2 * BLOCK + 3);
    run(&rig, &c);
    check_blocks(&c, expected, 3);
    CHECK_INT(rig.pool->free_count, 7);
    close_rig(&rig);
}

TEST(prefix_leaves_the_last_token_to_be_computed) {
    pool_rig rig;
    holder a, b;
    open_rig(&rig, USABLE + 1, BLOCK);
    init_holder(&a);
    fill(&a, 0, 3 * BLOCK);
    b = a;
    b.sequence.tokens = b.tokens;
    b.sequence.blocks = &b.list;
    b.list.ids = b.blocks;
    run(&rig, &a);
    CHECK(berth_prefix_admit(&rig.groups, &b.sequence));
    CHECK_INT(b.sequence.computed, 2 * BLOCK);
    close_rig(&rig);
}

TEST(prefix_does_not_find_a_block_behind_another_beginning) {
    pool_rig rig;
    holder a, b;
    open_rig(&rig, USABLE + 1, BLOCK);
    init_holder(&a);
    fill(&a, 0, BLOCK);
    fill(&a, 100, BLOCK + 1);
    init_holder(&b);
    fill(&b, 1, BLOCK);
    fill(&b, 100, BLOCK + 1);
    run(&rig, &a);
    CHECK(berth_prefix_admit(&rig.groups, &b.sequence));
    CHECK_INT(b.sequence.computed, 0);
    close_rig(&rig);
}

// Free blocks that hold the prefix are needed for it and cannot be counted a second time.
TEST(prefix_admits_nothing_when_the_rest_does_not_fit) {
    pool_rig rig;
    holder a, b, c;
    open_rig(&rig, 5, BLOCK);
    init_holder(&a);
    fill(&a, 0, 2 * BLOCK);
    run(&rig, &a);
    berth_pool_return(rig.pool, &a.list);
    init_holder(&b);
    fill(&b, 500, BLOCK);
    run(&rig, &b); // 3 of 4 are free, 2 of them with the prefix
    init_holder(&c);
    fill(&c, 0, 4 * BLOCK);
    CHECK(!berth_prefix_admit(&rig.groups, &c.sequence));
    CHECK_INT(c.list.count, 0);
    CHECK_INT(c.sequence.computed, 0);
    CHECK_INT(rig.pool->free_count, 3);
    c.sequence.token_count = 3 * BLOCK;
    rig.groups.all[0].promised = 1;
    CHECK(!berth_prefix_admit(&rig.groups, &c.sequence));
    rig.groups.all[0].promised = 0;
    CHECK(berth_prefix_admit(&rig.groups, &c.sequence));
    CHECK_INT(c.sequence.computed, 2 * BLOCK);
    close_rig(&rig);
}

TEST(prefix_computed_twice_is_kept_once) {
    pool_rig rig;
    holder a, b;
    open_rig(&rig, USABLE + 1, BLOCK);
    init_holder(&a);
    fill(&a, 0, 2 * BLOCK + 1);
    init_holder(&b);
    fill(&b, 0, 2 * BLOCK + 5);
    CHECK(berth_prefix_admit(&rig.groups, &a.sequence));
    CHECK(berth_prefix_admit(&rig.groups, &b.sequence)); // nothing is stored yet
    CHECK(berth_pool_cover(rig.pool, &a.list, a.sequence.token_count));
    CHECK(berth_pool_cover(rig.pool, &b.list, b.sequence.token_count));
    CHECK_INT(rig.pool->free_count, 4);
    a.sequence.computed = a.sequence.token_count;
    b.sequence.computed = b.sequence.token_count;
    berth_prefix_store(&rig.groups, &a.sequence);
    berth_prefix_store(&rig.groups, &b.sequence);
    CHECK_INT(rig.pool->free_count, 6);
    CHECK_BYTES(a.blocks, b.blocks, 2 * sizeof(int32_t));
    CHECK(a.blocks[2] != b.blocks[2]);
    berth_pool_return(rig.pool, &a.list);
    CHECK_INT(rig.pool->blocks[b.blocks[0]].users, 1);
    close_rig(&rig);
}

// ---- a random life ------------------------------------------------------------------------------

#define HOLDERS     6
#define SHORT_BLOCK 2
#define LIFE_BLOCKS 14

// What each block holds: the tokens from the beginning of the sequence to its end.
typedef struct record {
    int32_t tokens[MOST];
    int64_t count;
} record;

static uint32_t below(uint32_t *state, uint32_t limit) {
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 4) * limit >> 28);
}

static void enter(pool_rig *rig, holder *h, const record *records, uint32_t *random) {
    init_holder(h);
    const int64_t count = 1 + below(random, 12);
    for (int64_t i = 0; i < count; ++i) {
        fill(h, (int32_t)below(random, 2), 1); // two tokens: prefixes meet all the time
    }
    if (!berth_prefix_admit(&rig->groups, &h->sequence)) {
        h->sequence.token_count = 0;
        return;
    }
    for (int64_t i = 0; i < h->list.count; ++i) {
        const record *held = &records[h->blocks[i]];
        CHECK_INT(held->count, (i + 1) * SHORT_BLOCK);
        CHECK_BYTES(held->tokens, h->tokens, (size_t)held->count * sizeof(int32_t));
    }
}

static void compute(pool_rig *rig, holder *h, record *records) {
    berth_sequence *sequence = &h->sequence;
    if (!berth_pool_cover(rig->pool, &h->list, sequence->token_count)) {
        return;
    }
    for (int64_t i = sequence->computed; i < sequence->token_count; ++i) {
        record *held = &records[h->blocks[i / SHORT_BLOCK]];
        held->count = i + 1;
        memcpy(held->tokens, h->tokens, (size_t)held->count * sizeof(int32_t));
    }
    sequence->computed = sequence->token_count;
    berth_prefix_store(&rig->groups, sequence);
}

// Every block is free or has as many users as there are holders of it.
static void check_pool(const pool_rig *rig, const holder *holders) {
    int32_t users[LIFE_BLOCKS] = {0};
    int64_t free_count = 0;
    for (size_t h = 0; h < HOLDERS; ++h) {
        for (int64_t i = 0; i < holders[h].list.count; ++i) {
            ++users[holders[h].blocks[i]];
        }
    }
    for (int32_t id = 1; id < LIFE_BLOCKS; ++id) {
        CHECK_INT(rig->pool->blocks[id].users, users[id]);
        free_count += users[id] == 0;
    }
    CHECK_INT(rig->pool->free_count, free_count);
}

TEST(prefix_blocks_hold_what_they_are_found_for_whatever_happens) {
    pool_rig rig;
    static holder holders[HOLDERS];
    static record records[LIFE_BLOCKS];
    uint32_t random = 7;
    int64_t found = 0;
    open_rig(&rig, LIFE_BLOCKS, SHORT_BLOCK);
    for (int turn = 0; turn < 20000; ++turn) {
        holder *h = &holders[below(&random, HOLDERS)];
        if (h->sequence.token_count == 0) {
            enter(&rig, h, records, &random);
            found += h->list.count;
        } else if (below(&random, 3) == 0) {
            berth_pool_return(rig.pool, &h->list);
            h->sequence.token_count = 0;
        } else {
            compute(&rig, h, records);
            fill(h, (int32_t)below(&random, 2), h->sequence.token_count < 20);
        }
        check_pool(&rig, holders);
    }
    CHECK(found > 1000);
    close_rig(&rig);
}

// ---- the engine ---------------------------------------------------------------------------------

TEST(engine_computes_a_common_beginning_once) {
    engine_bench b;
    client clients[2];
    bench_open(&b);
    bench_start(&b);
    for (size_t i = 0; i < 2; ++i) {
        client_init(&clients[i], 5, 14 + i, 3);
        client_add(&clients[i], &b);
        clients_run(clients, 2, &b);
        client_check(&clients[i]);
    }
    CHECK_UINT(berth_engine_get_stats(b.engine).cached_tokens, 12);
    CHECK_INT(b.model.computed_tokens, (14 + 2) + (15 + 2) - 12);
    bench_close(&b);
}

// The blocks that the first step computes are the first one's and the other one's at once.
TEST(engine_shares_blocks_of_prompts_that_come_together) {
    engine_bench b;
    client clients[2];
    bench_open(&b);
    b.config.max_num_batched_tokens = 64;
    bench_start(&b);
    for (size_t i = 0; i < 2; ++i) {
        client_init(&clients[i], 5, 14, 3);
        clients[i].request.temperature = 1;
        clients[i].request.seed = i;
        client_add(&clients[i], &b);
    }
    clients_step(clients, 2, &b);
    CHECK_INT(b.engine->groups.all[0].pool.free_count,
              FAKE_MAX_BLOCKS - 1 - 3 - 2); // 3 together, 1 each
    clients_run(clients, 2, &b);
    client_check(&clients[0]);
    client_check(&clients[1]);
    bench_close(&b);
}

TEST(engine_keeps_out_of_the_prefix_cache_what_asks_for_it) {
    engine_bench b;
    client clients[3];
    bench_open(&b);
    bench_start(&b);
    for (size_t i = 0; i < 3; ++i) {
        client_init(&clients[i], 5, 14, 3);
        clients[i].request.skips_prefix_cache = i != 1;
        client_add(&clients[i], &b);
        clients_run(clients, 3, &b);
        client_check(&clients[i]);
        CHECK_UINT(berth_engine_get_stats(b.engine).cached_tokens, 0);
    }
    bench_close(&b);
}

TEST(engine_has_no_prefix_cache_where_the_configuration_says_so) {
    engine_bench b;
    client clients[2];
    bench_open(&b);
    b.config.enable_prefix_caching = false;
    bench_start(&b);
    for (size_t i = 0; i < 2; ++i) {
        client_init(&clients[i], 5, 14, 3);
        client_add(&clients[i], &b);
        clients_run(clients, 2, &b);
        client_check(&clients[i]);
    }
    CHECK_UINT(berth_engine_get_stats(b.engine).cached_tokens, 0);
    CHECK_NULL(b.engine->groups.all[0].pool.buckets);
    bench_close(&b);
}

// What it computed before it had to go is still there when nobody took it meanwhile.
TEST(engine_finds_a_preempted_request_in_the_prefix_cache) {
    engine_bench b;
    client clients[2];
    bench_open(&b);
    b.config.kv_cache_blocks = 11 + 1;
    b.config.max_num_batched_tokens = 64;
    bench_start(&b);
    client_init(&clients[0], 1, 19, 12); // 5 blocks, at the end 8
    client_init(&clients[1], 2, 20, 12); // 5 blocks, then 6
    client_add(&clients[0], &b);
    client_add(&clients[1], &b);
    clients_run(clients, 2, &b);
    client_check(&clients[0]);
    client_check(&clients[1]);
    CHECK(berth_engine_get_stats(b.engine).preemptions > 0);
    CHECK(berth_engine_get_stats(b.engine).cached_tokens > 0);
    bench_close(&b);
}
