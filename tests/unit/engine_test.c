// SPDX-License-Identifier: Apache-2.0
// The engine over a fake worker whose "cache" holds token ids: the next token is a function of
// every token that the block table leads to, so a wrong slot, block, position or order changes the
// text.
#include "support/test.h"

#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "engine/engine.h"

#define VOCAB      97
#define BLOCK_SIZE 4
#define MAX_BLOCKS 64
#define MAX_OUTPUT 64

typedef struct fake_model {
    int32_t cache[MAX_BLOCKS * BLOCK_SIZE];
    int32_t token_ids[64];
    float logits[64 * VOCAB];
    int64_t num_blocks;
    int64_t steps;
    int64_t largest_step;
    bool is_pending; // answers execute_model with BERTH_OUTPUT_PENDING
} fake_model;

static fake_model *model_of(berth_worker *worker) {
    return worker->platform;
}

static uint32_t mix(uint32_t hash, int32_t token) {
    return (hash ^ (uint32_t)token) * 16777619u + 1;
}

static berth_status accept_all(berth_worker *worker) {
    (void)worker;
    return BERTH_OK;
}

static berth_status get_model(berth_worker *worker, berth_model_info *out) {
    (void)worker;
    out->vocab_size = VOCAB;
    out->max_model_len = 40;
    return BERTH_OK;
}

static berth_status get_spec(berth_worker *worker, berth_kv_cache_spec *const *specs,
                             uint64_t capacity, uint64_t *out_count) {
    (void)worker;
    if (capacity > 0) {
        specs[0]->block_size = BLOCK_SIZE;
        specs[0]->page_bytes = BLOCK_SIZE * sizeof(int32_t);
    }
    *out_count = 1;
    return BERTH_OK;
}

static berth_status available_memory(berth_worker *worker, uint64_t *out_bytes) {
    (void)worker;
    *out_bytes = MAX_BLOCKS * BLOCK_SIZE * sizeof(int32_t);
    return BERTH_OK;
}

static berth_status set_cache(berth_worker *worker, const berth_kv_cache_config *config) {
    model_of(worker)->num_blocks = config->num_blocks;
    return BERTH_OK;
}

static berth_status set_blocks(berth_worker *worker, int64_t device_blocks, int64_t host_blocks) {
    return device_blocks == model_of(worker)->num_blocks && host_blocks == 0
               ? BERTH_OK
               : BERTH_INVALID_ARGUMENT;
}

static const void *data_of(const berth_tensor *tensor) {
    return tensor->data;
}

static int64_t sequence_of(const berth_batch *batch, int32_t row) {
    const int32_t *start = data_of(batch->host->query_start_loc);
    int64_t sequence = 0;
    while (start[sequence + 1] <= row) {
        ++sequence;
    }
    return sequence;
}

// The token after a row: a hash over the cache from position 0 to the row's own.
static int32_t next_token(const fake_model *model, const berth_batch *batch, int32_t row) {
    const berth_tensor *table = batch->host->block_tables[0];
    const int32_t *blocks = data_of(table);
    blocks += sequence_of(batch, row) * table->strides[0];
    const int32_t position = ((const int32_t *)data_of(batch->host->positions))[row];
    uint32_t hash = 2166136261u;
    for (int32_t i = 0; i <= position; ++i) {
        const int32_t block = blocks[i / BLOCK_SIZE];
        CHECK(block > 0 && block < model->num_blocks);
        hash = mix(hash, model->cache[block * BLOCK_SIZE + i % BLOCK_SIZE]);
    }
    return (int32_t)(hash % VOCAB);
}

static void compute(fake_model *model, const berth_scheduler_output *input,
                    berth_model_output *out) {
    const berth_batch *batch = input->batch;
    const int32_t *rows = data_of(batch->host->logits_rows);
    out->row_count = (uint64_t)batch->logits_row_count;
    out->vocab_size = VOCAB;
    for (int64_t row = 0; row < batch->logits_row_count; ++row) {
        const int32_t token = next_token(model, batch, rows[row]);
        const bool is_sampled = input->sampling && input->sampling[row];
        model->token_ids[row] = is_sampled ? token : -1;
        memset(&model->logits[row * VOCAB], 0, VOCAB * sizeof(float));
        model->logits[row * VOCAB + token] = 1.0F;
    }
    out->token_ids = input->sampling ? model->token_ids : NULL;
    out->logits = input->want_logits ? model->logits : NULL;
}

static berth_status execute(berth_worker *worker, const berth_scheduler_output *input,
                            berth_model_output *out) {
    fake_model *model = model_of(worker);
    const berth_batch *batch = input->batch;
    const int32_t *ids = data_of(batch->host->token_ids);
    const int64_t *slots = data_of(batch->host->slot_mappings[0]);
    for (int64_t i = 0; i < batch->token_count; ++i) {
        CHECK(slots[i] >= BLOCK_SIZE && slots[i] < model->num_blocks * BLOCK_SIZE);
        model->cache[slots[i]] = ids[i];
    }
    ++model->steps;
    if (batch->token_count > model->largest_step) {
        model->largest_step = batch->token_count;
    }
    if (model->is_pending && input->sampling) {
        out->state = BERTH_OUTPUT_PENDING;
        return BERTH_OK;
    }
    compute(model, input, out);
    return BERTH_OK;
}

static berth_status sample(berth_worker *worker, const berth_scheduler_output *input,
                           berth_model_output *out) {
    compute(model_of(worker), input, out);
    return BERTH_OK;
}

static void shut_down(berth_worker *worker) {
    (void)worker;
}

static const berth_worker_api fake_worker = {
    .size = sizeof(berth_worker_api),
    .init_device = accept_all,
    .load_model = accept_all,
    .get_model = get_model,
    .get_kv_cache_spec = get_spec,
    .determine_available_memory = available_memory,
    .initialize_from_config = set_cache,
    .initialize_cache = set_blocks,
    .compile_or_warm_up_model = accept_all,
    .execute_model = execute,
    .sample_tokens = sample,
    .shutdown = shut_down,
};

// ---- the bench that the tests stand on
// ------------------------------------------------------------

typedef struct bench {
    berth_arena *arena;
    berth_config config;
    berth_registry *registry;
    berth_platform_entry platform;
    berth_owner owner;
    fake_model model;
    berth_worker *worker;
    berth_engine *engine;
} bench;

static void open_bench(bench *b) {
    memset(b, 0, sizeof *b);
    CHECK_OK(berth_arena_create(1 << 16, 1 << 24, &b->arena));
    CHECK_OK(berth_config_init(&b->config, b->arena));
    CHECK_OK(berth_registry_create(&b->config, &berth_worker_default, &b->registry));
    b->owner = (berth_owner){.id = "fake", .version = "1", .entry = "fake", .group = "test"};
    b->platform.platform.name = "fake";
    b->platform.worker = fake_worker;
    b->platform.self = &b->model;
    b->platform.owner = &b->owner;
    b->config.max_num_seqs = 4;
    b->config.max_num_batched_tokens = 16;
    b->config.kv_cache_blocks = MAX_BLOCKS;
}

static void start_worker(bench *b) {
    CHECK_OK(berth_worker_create(&b->config, b->registry, &b->platform, &b->worker));
    CHECK_OK(berth_worker_init_device(b->worker));
    CHECK_OK(berth_worker_load_model(b->worker));
}

static void start_bench(bench *b) {
    start_worker(b);
    CHECK_OK(berth_engine_create(&b->config, b->worker, &b->engine));
}

static void close_bench(bench *b) {
    berth_engine_destroy(b->engine);
    berth_worker_destroy(b->worker);
    berth_registry_destroy(b->registry);
    berth_arena_destroy(b->arena);
}

// What the fake says without any engine.
static size_t expected_text(const int32_t *prompt, size_t count, size_t wanted, int32_t *out) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < count; ++i) {
        hash = mix(hash, prompt[i]);
    }
    for (size_t i = 0; i < wanted; ++i) {
        out[i] = (int32_t)(hash % VOCAB);
        hash = mix(hash, out[i]);
    }
    return wanted;
}

typedef struct client {
    uint64_t id;
    int32_t prompt[32];
    size_t prompt_count;
    size_t wanted;
    int32_t tokens[MAX_OUTPUT];
    size_t token_count;
    berth_finish finish;
} client;

static void make_client(client *c, uint32_t seed, size_t prompt_count, size_t wanted) {
    memset(c, 0, sizeof *c);
    c->prompt_count = prompt_count;
    c->wanted = wanted;
    for (size_t i = 0; i < prompt_count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        c->prompt[i] = (int32_t)(seed >> 8) % VOCAB;
        c->prompt[i] = c->prompt[i] < 0 ? -c->prompt[i] : c->prompt[i];
    }
}

static void add_client(bench *b, client *c) {
    const berth_request request = {
        .prompt = c->prompt,
        .prompt_count = c->prompt_count,
        .max_tokens = (int64_t)c->wanted,
    };
    CHECK_OK(berth_engine_add(b->engine, &request, &c->id));
}

static void deliver(client *clients, size_t count, const berth_output *output) {
    for (size_t i = 0; i < count; ++i) {
        if (clients[i].id == output->request) {
            CHECK(clients[i].token_count < MAX_OUTPUT);
            clients[i].tokens[clients[i].token_count++] = output->token;
            clients[i].finish = output->finish;
        }
    }
}

static void run_all(bench *b, client *clients, size_t count) {
    for (int step = 0; step < 2000 && !berth_engine_is_idle(b->engine); ++step) {
        const berth_output *outputs = NULL;
        size_t output_count = 0;
        CHECK_OK(berth_engine_step(b->engine, &outputs, &output_count));
        for (size_t i = 0; i < output_count; ++i) {
            deliver(clients, count, &outputs[i]);
        }
    }
    CHECK(berth_engine_is_idle(b->engine));
}

static void check_client(const client *c) {
    int32_t expected[MAX_OUTPUT];
    CHECK_UINT(c->token_count, expected_text(c->prompt, c->prompt_count, c->wanted, expected));
    CHECK_BYTES(c->tokens, expected, c->wanted * sizeof(int32_t));
    CHECK_INT(c->finish, BERTH_FINISH_LENGTH);
}

// ---- the tests ----------------------------------------------------------------------------------

TEST(engine_gives_one_request_its_text) {
    bench b;
    client c;
    open_bench(&b);
    start_bench(&b);
    make_client(&c, 1, 7, 12);
    add_client(&b, &c);
    run_all(&b, &c, 1);
    check_client(&c);
    close_bench(&b);
}

TEST(engine_samples_a_pending_step) {
    bench b;
    client c;
    open_bench(&b);
    b.model.is_pending = true;
    start_bench(&b);
    make_client(&c, 2, 5, 6);
    add_client(&b, &c);
    run_all(&b, &c, 1);
    check_client(&c);
    close_bench(&b);
}

TEST(engine_gives_the_same_text_in_any_company) {
    for (uint32_t round = 0; round < 64; ++round) {
        bench b;
        client clients[9];
        open_bench(&b);
        b.config.max_num_batched_tokens = 5 + round % 12;
        b.config.kv_cache_blocks = 12 + round % 20; // often too few: sequences are preempted
        b.config.chunk = round % 3 == 0 ? 3 : 0;
        start_bench(&b);
        for (uint32_t i = 0; i < BERTH_COUNT(clients); ++i) {
            make_client(&clients[i], round * 31 + i, 1 + (round * 7 + i * 5) % 20,
                        1 + (i * 3) % 16);
            add_client(&b, &clients[i]);
        }
        run_all(&b, clients, BERTH_COUNT(clients));
        for (size_t i = 0; i < BERTH_COUNT(clients); ++i) {
            check_client(&clients[i]);
        }
        CHECK(b.model.largest_step <= b.config.max_num_batched_tokens);
        close_bench(&b);
    }
}

TEST(engine_ends_at_a_stop_id_and_keeps_it) {
    bench b;
    client c;
    int32_t text[8];
    open_bench(&b);
    start_bench(&b);
    make_client(&c, 3, 4, 8);
    (void)expected_text(c.prompt, c.prompt_count, 8, text);
    const berth_request request = {
        .prompt = c.prompt,
        .prompt_count = c.prompt_count,
        .max_tokens = 8,
        .stop_ids = &text[2],
        .stop_count = 1,
    };
    CHECK_OK(berth_engine_add(b.engine, &request, &c.id));
    run_all(&b, &c, 1);
    CHECK_INT(c.finish, BERTH_FINISH_STOP);
    CHECK(c.token_count >= 1 && c.token_count <= 3);
    CHECK_INT(c.tokens[c.token_count - 1], text[2]);
    close_bench(&b);
}

TEST(engine_ends_at_the_model_length) {
    bench b;
    client c;
    open_bench(&b);
    start_bench(&b);
    make_client(&c, 4, 30, 63);
    add_client(&b, &c);
    c.wanted = 10; // 40 - 30
    run_all(&b, &c, 1);
    check_client(&c);
    close_bench(&b);
}

TEST(engine_refuses_what_cannot_run) {
    bench b;
    uint64_t id = 0;
    const int32_t prompt[41] = {0};
    const int32_t wrong[1] = {VOCAB};
    open_bench(&b);
    start_bench(&b);
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
    close_bench(&b);
}

TEST(engine_refuses_a_cache_too_small_for_one_sequence) {
    bench b;
    open_bench(&b);
    b.config.kv_cache_blocks = 5;
    start_worker(&b);
    CHECK_STATUS(berth_engine_create(&b.config, b.worker, &b.engine), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "--max-model-len");
    b.engine = NULL;
    close_bench(&b);
}

TEST(engine_forgets_an_aborted_request) {
    bench b;
    client clients[2];
    open_bench(&b);
    start_bench(&b);
    for (uint32_t i = 0; i < 2; ++i) {
        make_client(&clients[i], 50 + i, 6, 10);
        add_client(&b, &clients[i]);
    }
    const berth_output *outputs = NULL;
    size_t count = 0;
    CHECK_OK(berth_engine_step(b.engine, &outputs, &count));
    for (size_t i = 0; i < count; ++i) {
        deliver(clients, 2, &outputs[i]);
    }
    berth_engine_abort(b.engine, clients[0].id);
    run_all(&b, clients, 2);
    CHECK(clients[0].token_count <= 1);
    check_client(&clients[1]);
    close_bench(&b);
}

TEST(engine_hands_out_the_logits_of_every_row_it_is_asked_for) {
    bench b;
    client c;
    uint64_t id = 0;
    size_t rows = 0;
    open_bench(&b);
    start_bench(&b);
    make_client(&c, 9, 11, 3);
    const berth_request request = {
        .prompt = c.prompt,
        .prompt_count = c.prompt_count,
        .max_tokens = 3,
        .wants_logits = true,
    };
    CHECK_OK(berth_engine_add(b.engine, &request, &id));
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
    close_bench(&b);
}

// ---- the worker's order
// ---------------------------------------------------------------------------

TEST(worker_refuses_another_order) {
    bench b;
    open_bench(&b);
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
    close_bench(&b);
}
