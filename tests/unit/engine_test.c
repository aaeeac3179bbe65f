// SPDX-License-Identifier: Apache-2.0
// The engine over a fake worker whose answer depends on every token that a batch leads to: what a
// request gets is the same alone and in any company, with blocks that run out and blocks that are
// used again; how an output ends; what is refused.
#include "support/test.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/memory.h"
#include "engine/engine_private.h"
#include "support/fake_model.h"

// ---- one request --------------------------------------------------------------------------------

TEST(engine_gives_one_request_its_text) {
    engine_bench b;
    client c;
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 1, 7, 12);
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    CHECK_UINT(c.token_count, 12);
    bench_close(&b);
}

TEST(engine_samples_a_pending_step) {
    engine_bench b;
    client c;
    bench_open(&b);
    b.model.is_pending = true;
    bench_start(&b);
    client_init(&c, 2, 5, 6);
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    bench_close(&b);
}

TEST(engine_computes_a_prompt_in_pieces) {
    engine_bench b;
    client c;
    bench_open(&b);
    b.config.chunk = 7;
    bench_start(&b);
    client_init(&c, 3, 30, 5);
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    CHECK_INT(b.model.largest_step, 7);
    CHECK_INT(b.model.steps, 5 + 4); // 7 7 7 7 2, then one token each
    bench_close(&b);
}

TEST(engine_ends_at_the_model_length) {
    engine_bench b;
    client c;
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 4, 30, 63);
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    CHECK_UINT(c.token_count, FAKE_MODEL_LEN - 30);
    CHECK_INT(c.finish, BERTH_FINISH_LENGTH);
    bench_close(&b);
}

TEST(engine_ends_at_a_stop_id_and_keeps_it) {
    engine_bench b;
    client c;
    int32_t expected[FAKE_MODEL_LEN];
    berth_finish finish;
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 3, 4, 8);
    (void)client_expect(&c, expected, &finish);
    c.request.stop_ids = &expected[2];
    c.request.stop_count = 1;
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    CHECK_INT(c.finish, BERTH_FINISH_STOP);
    CHECK(c.token_count <= 3);
    CHECK_INT(c.tokens[c.token_count - 1], expected[2]);
    bench_close(&b);
}

TEST(engine_does_not_stop_before_min_tokens) {
    engine_bench b;
    client c;
    int32_t all[FAKE_VOCAB - 1]; // but for one id, every token would end it
    for (int32_t i = 0; i < FAKE_VOCAB - 1; ++i) {
        all[i] = i;
    }
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 3, 4, 20);
    c.request.stop_ids = all;
    c.request.stop_count = FAKE_VOCAB - 1;
    c.request.min_tokens = 6;
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    CHECK(c.token_count > 6);
    for (size_t i = 0; i < 6; ++i) {
        CHECK_INT(c.tokens[i], FAKE_VOCAB - 1);
    }
    CHECK_INT(c.finish, BERTH_FINISH_STOP);
    bench_close(&b);
}

TEST(engine_hands_out_the_logits_of_every_row_it_is_asked_for) {
    engine_bench b;
    client c;
    size_t rows = 0;
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 9, 11, 3);
    c.request.wants_logits = true;
    client_add(&c, &b);
    while (!berth_engine_is_idle(b.engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        CHECK_OK(berth_engine_step(b.engine, &outputs, &count));
        for (size_t i = 0; i < count; ++i) {
            CHECK_UINT(outputs[i].first_position, rows);
            rows += outputs[i].logits_rows;
        }
    }
    CHECK_UINT(rows, 11 + 3 - 1);
    bench_close(&b);
}

TEST(engine_hands_each_request_its_own_logprobs) {
    engine_bench b;
    client clients[3];
    bench_open(&b);
    bench_start(&b);
    for (uint32_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_init(&clients[i], 60 + i, 3, 4);
        clients[i].request.logprobs = i == 0 ? 0 : 2 + i;
        client_add(&clients[i], &b);
    }
    const berth_output *outputs = NULL;
    size_t count = 0;
    CHECK_OK(berth_engine_step(b.engine, &outputs, &count));
    CHECK_UINT(count, 3);
    CHECK_UINT(outputs[0].logprob_count, 0);
    CHECK_NULL(outputs[0].logprobs);
    for (size_t i = 1; i < count; ++i) {
        const berth_output *output = &outputs[i];
        CHECK_UINT(output->logprob_count, 2 + i);
        CHECK_INT(output->logprob_ids[0], output->token); // greedy: the chosen one is the likeliest
        CHECK_INT(output->logprob_ids[1], output->token);
        CHECK(output->logprobs[0] == output->logprobs[1]);
        CHECK(output->logprobs[2] <= output->logprobs[1]);
        CHECK(output->rank >= 1);
    }
    bench_close(&b);
}

// ---- company ------------------------------------------------------------------------------------

#define COMPANY 9

// What each of the company asks for, beside a prompt and a length: half of them sample, with
// everything that sampling has, and one stops early.
// Why a macro: clang-format 14 crashes on rows in braces that differ in the number of members.
static const int32_t stops[] = {11, 47, 83};
#define WISH(...)                                                                                  \
    { __VA_ARGS__ }
static const berth_request wishes[COMPANY] = {
    [0] = WISH(.temperature = 0.3, .top_p = 0.95, .presence_penalty = 0.5),
    [2] = WISH(.temperature = 0.7, .top_k = 20, .repetition_penalty = 1.1),
    [4] = WISH(.temperature = 1.1, .min_p = 0.02, .stop_ids = stops, .stop_count = 3,
               .min_tokens = 2),
    [6] = WISH(.temperature = 1.5, .frequency_penalty = 0.3, .skips_prefix_cache = true),
    [8] = WISH(.temperature = 1.9, .top_k = 7, .top_p = 0.9, .min_p = 0.01, .presence_penalty = -1),
};
#undef WISH

// A third of the prompts begin like others.
static void invite(client *clients, uint32_t round) {
    for (uint32_t i = 0; i < COMPANY; ++i) {
        client *c = &clients[i];
        const uint32_t seed = i % 3 == 0 ? round : round * 31 + i;
        client_init(c, seed, 1 + (round * 7 + i * 5) % 20, 2 + (i * 3) % 16);
        const berth_request basis = c->request;
        c->request = wishes[i];
        c->request.prompt_count = basis.prompt_count;
        c->request.max_tokens = basis.max_tokens;
        c->request.seed = round + i;
    }
}

static void arrange(engine_bench *b, uint32_t round) {
    b->config.max_num_batched_tokens = 5 + round % 12;
    b->config.kv_cache_blocks = 11 + round % 8; // often too few: sequences are preempted
    b->config.chunk = round % 3 == 0 ? 7 : 0;
    b->config.enable_prefix_caching = round % 4 != 3;
    b->config.max_num_seqs = 2 + round % 6;
}

// Every client comes at a step of its own, some at the same one.
static void run_schedule(engine_bench *b, client *clients, uint32_t round) {
    size_t waiting = COMPANY;
    for (uint32_t step = 0; waiting > 0 || !berth_engine_is_idle(b->engine); ++step) {
        CHECK(step < 2000);
        for (uint32_t i = 0; i < COMPANY; ++i) {
            if ((i * i * 7 + round * i) % 13 == step) {
                client_add(&clients[i], b);
                --waiting;
            }
        }
        clients_step(clients, COMPANY, b);
    }
}

TEST(engine_gives_the_same_text_in_any_company) {
    berth_engine_stats sum = {0};
    for (uint32_t round = 0; round < 64; ++round) {
        engine_bench b;
        client clients[COMPANY];
        bench_open(&b);
        arrange(&b, round);
        bench_start(&b);
        invite(clients, round);
        run_schedule(&b, clients, round);
        for (size_t i = 0; i < COMPANY; ++i) {
            client_check(&clients[i]);
        }
        const berth_engine_stats stats = berth_engine_get_stats(b.engine);
        CHECK_INT(stats.computed_tokens, b.model.computed_tokens);
        CHECK(b.model.largest_step <= b.config.max_num_batched_tokens);
        CHECK(b.config.enable_prefix_caching || stats.cached_tokens == 0);
        CHECK_INT(b.engine->groups.all[0].pool.free_count,
                  b.config.kv_cache_blocks - 1); // all came back
        sum.preemptions += stats.preemptions;
        sum.cached_tokens += stats.cached_tokens;
        bench_close(&b);
    }
    CHECK(sum.preemptions > 64);
    CHECK(sum.cached_tokens > 64);
}

TEST(engine_lets_requests_wait_and_loses_none_when_blocks_are_short) {
    engine_bench b;
    client clients[20];
    bench_open(&b);
    b.config.kv_cache_blocks = FAKE_MODEL_LEN / FAKE_BLOCK_SIZE + 1; // one sequence at its longest
    b.config.max_num_seqs = 8;
    b.config.max_num_batched_tokens = 64;
    bench_start(&b);
    for (uint32_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_init(&clients[i], 100 + i, 3, 30); // 3 at the start, 9 blocks at the end
        client_add(&clients[i], &b);
    }
    clients_run(clients, BERTH_COUNT(clients), &b);
    for (size_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_check(&clients[i]);
    }
    CHECK(berth_engine_get_stats(b.engine).preemptions > 0);
    bench_close(&b);
}

// Half a prompt would only keep others from ending.
TEST(engine_admits_a_prompt_when_all_of_it_fits) {
    engine_bench b;
    client clients[2];
    bench_open(&b);
    b.config.kv_cache_blocks = 12 + 1;
    b.config.chunk = 4;
    bench_start(&b);
    client_init(&clients[0], 1, 28, 4); // 7 blocks, then 8
    client_init(&clients[1], 2, 30, 4); // 8 blocks
    client_add(&clients[0], &b);
    client_add(&clients[1], &b);
    clients_step(clients, 2, &b);
    CHECK_UINT(b.engine->running, 1);
    clients_run(clients, 2, &b);
    client_check(&clients[0]);
    client_check(&clients[1]);
    CHECK_UINT(berth_engine_get_stats(b.engine).preemptions, 0);
    bench_close(&b);
}

TEST(engine_forgets_an_aborted_request) {
    engine_bench b;
    client clients[6];
    bench_open(&b);
    bench_start(&b);
    for (uint32_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_init(&clients[i], 50 + i, 3, 10);
        client_add(&clients[i], &b);
    }
    clients_step(clients, BERTH_COUNT(clients), &b);
    CHECK_UINT(b.engine->running, 4);
    berth_engine_abort(b.engine, clients[0].id, NULL); // it runs
    berth_engine_abort(b.engine, clients[5].id, NULL); // it waits
    berth_engine_abort(b.engine, clients[5].id, NULL);
    berth_engine_abort(b.engine, 77, NULL);
    clients_run(&clients[1], 4, &b); // an output for another one would fail
    for (size_t i = 1; i < 5; ++i) {
        client_check(&clients[i]);
    }
    CHECK_INT(b.engine->groups.all[0].pool.free_count, FAKE_MAX_BLOCKS - 1);
    bench_close(&b);
}

TEST(engine_goes_on_after_a_step_that_failed) {
    engine_bench b;
    client clients[3];
    bench_open(&b);
    b.config.kv_cache_blocks = 12;
    b.model.failing_step = 4;
    bench_start(&b);
    for (uint32_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_init(&clients[i], 9, 6 + i, 16);
        client_add(&clients[i], &b);
    }
    for (int step = 1; step < 4; ++step) {
        clients_step(clients, 3, &b);
    }
    const berth_output *outputs = NULL;
    size_t count = 1;
    CHECK_STATUS(berth_engine_step(b.engine, &outputs, &count), BERTH_UNAVAILABLE);
    CHECK_UINT(count, 0);
    clients_run(clients, 3, &b);
    for (size_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_check(&clients[i]);
    }
    bench_close(&b);
}

TEST(engine_allocates_nothing_in_a_step) {
    engine_bench b;
    client clients[COMPANY];
    berth_tokenizer *tokenizer = NULL;
    const berth_str stop = BERTH_STR("xyz");
    CHECK_OK(berth_tokenizer_open("tests/data/models/shakespeare", &tokenizer));
    bench_open(&b);
    b.config.kv_cache_blocks = 14;
    b.config.max_num_seqs = 6;
    bench_start(&b);
    invite(clients, 5);
    for (uint32_t i = 0; i < COMPANY; ++i) {
        clients[i].request.tokenizer = tokenizer;
        clients[i].request.stop_strings = &stop;
        clients[i].request.stop_string_count = 1;
        clients[i].request.logprobs = 3;
        client_add(&clients[i], &b);
    }
    const uint64_t before = berth_memory_allocations();
    clients_run(clients, COMPANY, &b);
    CHECK_UINT(berth_memory_allocations(), before);
    CHECK(berth_engine_get_stats(b.engine).preemptions > 0);
    CHECK(berth_engine_get_stats(b.engine).cached_tokens > 0);
    bench_close(&b);
    berth_tokenizer_close(tokenizer);
}

TEST(engine_survives_a_request_that_memory_is_short_for) {
    engine_bench b;
    client c;
    berth_tokenizer *tokenizer = NULL;
    const berth_str stop = BERTH_STR("xyz");
    CHECK_OK(berth_tokenizer_open("tests/data/models/shakespeare", &tokenizer));
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 8, 5, 6);
    c.request.prompt = c.prompt;
    c.request.tokenizer = tokenizer;
    c.request.stop_strings = &stop;
    c.request.stop_string_count = 1;
    client_add(&c, &b); // from now on there is room for one
    berth_engine_abort(b.engine, c.id, NULL);
    uint64_t failures = 0;
    for (bool has_failed = true; has_failed; failures += has_failed) {
        (void)berth_memory_fail_after(failures + 1);
        const berth_status status = berth_engine_add(b.engine, &c.request, &c.id);
        has_failed = berth_memory_fail_after(0) == 0;
        CHECK_STATUS(status, has_failed ? BERTH_OUT_OF_MEMORY : BERTH_OK);
        CHECK(berth_engine_is_idle(b.engine) == has_failed);
    }
    CHECK(failures >= 2); // of the request and of its text
    clients_run(&c, 1, &b);
    client_check(&c);
    bench_close(&b);
    berth_tokenizer_close(tokenizer);
}

// ---- refusals -----------------------------------------------------------------------------------

TEST(engine_refuses_what_cannot_run) {
    engine_bench b;
    uint64_t id = 0;
    const int32_t prompt[41] = {0};
    const int32_t wrong[1] = {FAKE_VOCAB};
    bench_open(&b);
    bench_start(&b);
    berth_request request = {.prompt = prompt, .prompt_count = 0, .max_tokens = 1};
    CHECK_STATUS(berth_engine_add(b.engine, &request, &id), BERTH_INVALID_ARGUMENT);
    request.prompt_count = 40;
    CHECK_STATUS(berth_engine_add(b.engine, &request, &id), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "40 tokens");
    request.prompt_count = 1;
    request.max_tokens = 0;
    CHECK_STATUS(berth_engine_add(b.engine, &request, &id), BERTH_INVALID_ARGUMENT);
    request.max_tokens = 1;
    request.prompt = wrong;
    CHECK_STATUS(berth_engine_add(b.engine, &request, &id), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "vocabulary");
    CHECK(berth_engine_is_idle(b.engine));
    bench_close(&b);
}

TEST(engine_refuses_parameters_out_of_range) {
    static const berth_str empty = {.data = "", .size = 0};
    static const berth_str broken = {.data = "\xC3(", .size = 2};
    static const struct {
        berth_request request;
        const char *message;
    } cases[] = {
        {{.temperature = -0.1},                            "temperature"       },
        {{.temperature = NAN},                             "temperature"       },
        {{.temperature = INFINITY},                        "temperature"       },
        {{.top_k = -1},                                    "top_k"             },
        {{.top_p = 1.01},                                  "top_p"             },
        {{.min_p = -0.01},                                 "min_p"             },
        {{.presence_penalty = 2.1},                        "presence_penalty"  },
        {{.frequency_penalty = -2.1},                      "frequency_penalty" },
        {{.repetition_penalty = -1},                       "repetition_penalty"},
        {{.logprobs = BERTH_LOGPROBS_MAX + 1},             "logprobs"          },
        {{.min_tokens = 5},                                "min_tokens"        },
        {{.min_tokens = -1},                               "min_tokens"        },
        {{.stop_strings = &empty, .stop_string_count = 1}, "tokenizer"         },
    };
    berth_tokenizer *tokenizer = NULL;
    const int32_t prompt[1] = {1};
    uint64_t id = 0;
    engine_bench b;
    CHECK_OK(berth_tokenizer_open("tests/data/models/shakespeare", &tokenizer));
    bench_open(&b);
    bench_start(&b);
    berth_request request;
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        request = cases[i].request;
        request.prompt = prompt;
        request.prompt_count = 1;
        request.max_tokens = 4;
        CHECK_STATUS(berth_engine_add(b.engine, &request, &id), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(berth_status_message(), cases[i].message);
    }
    request.tokenizer = tokenizer;
    CHECK_STATUS(berth_engine_add(b.engine, &request, &id), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "empty");
    request.stop_strings = &broken;
    CHECK_STATUS(berth_engine_add(b.engine, &request, &id), BERTH_INVALID_ARGUMENT);
    CHECK(berth_engine_is_idle(b.engine));
    bench_close(&b);
    berth_tokenizer_close(tokenizer);
}

TEST(engine_takes_parameters_at_their_limits) {
    engine_bench b;
    client c;
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 3, 2, 4);
    c.request.temperature = 0.5;
    c.request.top_p = 1;
    c.request.min_p = 1;
    c.request.presence_penalty = -2;
    c.request.frequency_penalty = 2;
    c.request.repetition_penalty = 1;
    c.request.logprobs = BERTH_LOGPROBS_MAX;
    c.request.min_tokens = 4;
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    bench_close(&b);
}

TEST(engine_refuses_a_cache_too_small_for_one_sequence) {
    engine_bench b;
    bench_open(&b);
    b.config.kv_cache_blocks = 5;
    bench_load(&b);
    CHECK_STATUS(berth_engine_create(&b.config, b.worker, &b.engine), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "--max-model-len");
    b.engine = NULL;
    bench_close(&b);
}

TEST(engine_refuses_caches_that_the_worker_counts_and_does_not_describe) {
    static const uint64_t counts[] = {2, UINT64_MAX};
    for (size_t i = 0; i < BERTH_COUNT(counts); ++i) {
        engine_bench b;
        bench_open(&b);
        b.model.spec_count = counts[i];
        bench_load(&b);
        CHECK_STATUS(berth_engine_create(&b.config, b.worker, &b.engine), BERTH_INTERNAL);
        b.engine = NULL;
        bench_close(&b);
    }
}

TEST(engine_refuses_a_token_that_no_vocabulary_has) {
    engine_bench b;
    client c;
    bench_open(&b);
    b.model.wrong_token = FAKE_VOCAB;
    bench_start(&b);
    client_init(&c, 2, 5, 6);
    client_add(&c, &b);
    const berth_output *outputs = NULL;
    size_t count = 0;
    CHECK_STATUS(berth_engine_step(b.engine, &outputs, &count), BERTH_INTERNAL);
    CHECK_CONTAINS(berth_status_message(), "97");
    bench_close(&b);
}

TEST(engine_says_when_a_worker_has_no_logprobs) {
    engine_bench b;
    client c;
    bench_open(&b);
    b.model.has_no_logprobs = true;
    bench_start(&b);
    client_init(&c, 2, 5, 6);
    c.request.logprobs = 1;
    client_add(&c, &b);
    const berth_output *outputs = NULL;
    size_t count = 0;
    CHECK_STATUS(berth_engine_step(b.engine, &outputs, &count), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "logprobs");
    bench_close(&b);
}

// ---- the worker's order -------------------------------------------------------------------------

TEST(worker_refuses_another_order) {
    engine_bench b;
    bench_open(&b);
    CHECK_OK(berth_worker_create(&b.config, b.registry, &b.platform, &b.worker));
    CHECK_STATUS(berth_worker_load_model(b.worker), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "init_device");
    CHECK_OK(berth_worker_init_device(b.worker));
    CHECK_STATUS(berth_worker_init_device(b.worker), BERTH_WRONG_STATE);
    CHECK_STATUS(berth_worker_warm_up(b.worker), BERTH_WRONG_STATE);
    CHECK_OK(berth_worker_load_model(b.worker));
    berth_scheduler_output input = {.size = sizeof input};
    berth_model_output output = {.size = sizeof output};
    CHECK_STATUS(berth_worker_execute(b.worker, &input, &output), BERTH_WRONG_STATE);
    CHECK_STATUS(berth_worker_sample(b.worker, &input, &output), BERTH_WRONG_STATE);
    const berth_kv_cache_config cache = {.size = sizeof cache, .num_blocks = 3, .group_count = 1};
    CHECK_OK(berth_worker_initialize_cache(b.worker, &cache));
    CHECK_OK(berth_worker_warm_up(b.worker));
    CHECK_STATUS(berth_worker_wake_up(b.worker, 0), BERTH_WRONG_STATE);
    CHECK_STATUS(berth_worker_sleep(b.worker, 1), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "'sleep'");
    bench_close(&b);
}
