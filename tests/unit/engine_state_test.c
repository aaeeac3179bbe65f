// SPDX-License-Identifier: Apache-2.0
// The engine over a model that keeps a state of every sequence, beside a cache of its tokens or
// alone: slots are handed out once and come back once, whatever happens to a sequence; a text is
// the same alone, in company, in pieces, after it had to give way and after a step that failed.
#include "support/test.h"

#include "engine/engine_private.h"
#include "support/fake_model.h"

#define COMPANY 9

static void open_states(engine_bench *b, bool has_no_cache) {
    bench_open(b);
    b->model.keeps_states = true;
    b->model.has_no_cache = has_no_cache;
    b->config.enable_prefix_caching = true; // which such a model cannot have
}

// Every slot is free or somebody's, once.
static void check_slots(const engine_bench *b) {
    const berth_slot_pool *slots = &b->engine->slots;
    int holders[FAKE_MAX_SLOTS] = {0};
    for (int64_t i = 0; i < slots->free_count; ++i) {
        ++holders[slots->free[i]];
    }
    for (size_t i = 0; i < b->engine->sequences.count; ++i) {
        const int32_t slot = b->engine->sequences.data[i].slot;
        CHECK((slot != 0) == (i < b->engine->running));
        ++holders[slot];
    }
    for (int64_t slot = 1; slot < slots->num_slots; ++slot) {
        CHECK_INT(holders[slot], 1);
    }
}

// ---- company ------------------------------------------------------------------------------------

static uint32_t next_number(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

// Requests come, go on, end, and some are forgotten in the middle.
static void run_schedule(engine_bench *b, client *clients, uint32_t seed) {
    size_t added = 0;
    for (int step = 0; step < 2000 && (added < COMPANY || !berth_engine_is_idle(b->engine));
         ++step) {
        if (added < COMPANY && (berth_engine_is_idle(b->engine) || next_number(&seed) % 3 == 0)) {
            client_add(&clients[added++], b);
        }
        if (added > 0 && next_number(&seed) % 16 == 0) {
            client *c = &clients[next_number(&seed) % added];
            berth_engine_abort(b->engine, c->id, NULL);
            if (c->finish == BERTH_FINISH_NOT_YET) {
                c->finish = BERTH_FINISH_ABORTED;
            }
            check_slots(b);
        }
        clients_step(clients, COMPANY, b);
        check_slots(b);
    }
    CHECK(berth_engine_is_idle(b->engine));
}

TEST(engine_hands_out_every_slot_once_and_gets_it_back_once) {
    uint64_t preemptions = 0;
    for (uint32_t round = 0; round < 96; ++round) {
        engine_bench b;
        client clients[COMPANY];
        open_states(&b, round % 3 == 2);
        b.config.kv_cache_blocks = 11 + round % 8; // often too few: sequences are preempted
        b.config.max_num_seqs = 2 + round % 3;
        b.config.chunk = round % 2 == 0 ? 0 : 7;
        bench_start(&b);
        for (uint32_t i = 0; i < COMPANY; ++i) {
            const uint32_t seed = i % 3 == 0 ? round : round * 31 + i;
            client_init(&clients[i], seed, 1 + (round * 7 + i * 5) % 20, 2 + (i * 3) % 16);
        }
        run_schedule(&b, clients, round);
        for (size_t i = 0; i < COMPANY; ++i) {
            if (clients[i].finish != BERTH_FINISH_ABORTED) {
                client_check(&clients[i]);
            }
        }
        CHECK_INT(b.engine->slots.free_count, b.config.max_num_seqs);
        CHECK_INT(b.engine->groups.all[0].pool.free_count, b.model.num_blocks - 1);
        const berth_engine_stats stats = berth_engine_get_stats(b.engine);
        CHECK_UINT(stats.cached_tokens, 0);
        CHECK(!b.model.has_no_cache || stats.preemptions == 0);
        preemptions += stats.preemptions;
        bench_close(&b);
    }
    CHECK(preemptions > 64);
}

TEST(engine_begins_again_what_a_failed_step_has_left_in_a_state) {
    for (int64_t failing = 1; failing < 8; ++failing) {
        engine_bench b;
        client clients[3];
        open_states(&b, failing % 2 == 0);
        b.config.chunk = 7;
        b.model.failing_step = failing;
        bench_start(&b);
        for (uint32_t i = 0; i < 3; ++i) {
            client_init(&clients[i], 40 + i, 5 + 6 * i, 6);
            client_add(&clients[i], &b);
        }
        const berth_output *outputs = NULL;
        size_t count = 0;
        for (int64_t step = 1; step < failing; ++step) {
            clients_step(clients, 3, &b);
        }
        CHECK_STATUS(berth_engine_step(b.engine, &outputs, &count), BERTH_UNAVAILABLE);
        check_slots(&b);
        clients_run(clients, 3, &b);
        for (size_t i = 0; i < 3; ++i) {
            client_check(&clients[i]);
        }
        bench_close(&b);
    }
}

// ---- memory -------------------------------------------------------------------------------------

TEST(engine_lets_requests_wait_for_slots) {
    engine_bench b;
    client clients[COMPANY];
    open_states(&b, true);
    b.config.max_num_seqs = 4;
    b.model.memory = 3 * (int64_t)sizeof(uint32_t); // the null slot and two more
    bench_start(&b);
    CHECK_INT(b.model.num_slots, 3);
    for (uint32_t i = 0; i < COMPANY; ++i) {
        client_init(&clients[i], 70 + i, 3, 5);
        client_add(&clients[i], &b);
    }
    clients_step(clients, COMPANY, &b);
    CHECK_UINT(b.engine->running, 2);
    clients_run(clients, COMPANY, &b);
    for (size_t i = 0; i < COMPANY; ++i) {
        client_check(&clients[i]);
    }
    bench_close(&b);
}

TEST(engine_refuses_memory_that_no_state_fits_into) {
    engine_bench b;
    open_states(&b, true);
    b.model.memory = (int64_t)sizeof(uint32_t);
    bench_load(&b);
    CHECK_STATUS(berth_engine_create(&b.config, b.worker, &b.engine), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "states of one sequence need 2 slots of 4 bytes");
    bench_close(&b);
}
