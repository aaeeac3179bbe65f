// SPDX-License-Identifier: Apache-2.0
// Input: batches. Output: tokens, and checks that the batches are what a worker may rely on.
#include "support/fake_model.h"

#include <string.h>

#include "base/array.h"
#include "support/test.h"

// ---- the model ----------------------------------------------------------------------------------

#define HASH_START 2166136261u

static uint32_t mix(uint32_t hash, int32_t token) {
    hash = (hash ^ (uint32_t)token) * 16777619u + 1;
    return hash ^ hash >> 15;
}

// The logits after a text.
static void fill_logits(uint32_t hash, float *logits) {
    for (int32_t id = 0; id < FAKE_VOCAB; ++id) {
        const uint32_t noise = mix(hash * 2654435761u, id) * 2246822519u;
        logits[id] = (float)(noise >> 20) / 512.0F; // 0 … 8, with ties
    }
}

static fake_model *model_of(berth_worker *worker) {
    return worker->platform;
}

static berth_status accept_all(berth_worker *worker) {
    (void)worker;
    return BERTH_OK;
}

static berth_status get_model(berth_worker *worker, berth_model_info *out) {
    (void)worker;
    out->vocab_size = FAKE_VOCAB;
    out->max_model_len = FAKE_MODEL_LEN;
    return BERTH_OK;
}

static uint64_t window_count(const fake_model *model) {
    uint64_t count = 0;
    while (count < FAKE_WINDOWS && (model->windows[count].window || model->windows[count].chunk)) {
        ++count;
    }
    return count;
}

// Groups 2 and 3, or 0 and 2 where nothing else is in the first.
static uint32_t group_of(const fake_model *model, uint64_t window) {
    return model->has_windows_only ? (uint32_t)window * 2 : (uint32_t)window + 2;
}

static int64_t first_seen(fake_sight sight, int64_t position) {
    if (sight.chunk > 0) {
        return position / sight.chunk * sight.chunk;
    }
    return sight.window > 0 && position >= sight.window ? position - sight.window + 1 : 0;
}

static berth_status get_spec(berth_worker *worker, berth_kv_cache_spec *const *specs,
                             uint64_t capacity, uint64_t *out_count) {
    const fake_model *model = model_of(worker);
    uint64_t caches = model->has_no_cache || model->has_windows_only ? 0 : 1;
    if (capacity > 0 && caches > 0) {
        specs[0]->block_size = FAKE_BLOCK_SIZE;
        specs[0]->page_bytes = FAKE_BLOCK_SIZE * sizeof(int32_t);
    }
    for (uint64_t i = 0; i < window_count(model); ++i, ++caches) {
        if (capacity > caches) {
            specs[caches]->block_size = FAKE_BLOCK_SIZE;
            specs[caches]->page_bytes = FAKE_BLOCK_SIZE * sizeof(int32_t);
            specs[caches]->sliding_window = model->windows[i].window;
            specs[caches]->chunk_size = model->windows[i].chunk;
            specs[caches]->group = group_of(model, i);
        }
    }
    if (capacity > caches && model->keeps_states) {
        specs[caches]->is_state = 1;
        specs[caches]->group = 1;
        specs[caches]->page_bytes = sizeof(uint32_t);
    }
    *out_count = model->spec_count != 0 ? model->spec_count : caches + model->keeps_states;
    return BERTH_OK;
}

static berth_status available_memory(berth_worker *worker, uint64_t *out_bytes) {
    const int64_t memory = model_of(worker)->memory;
    *out_bytes =
        memory > 0 ? (uint64_t)memory : FAKE_MAX_BLOCKS * FAKE_BLOCK_SIZE * sizeof(int32_t);
    return BERTH_OK;
}

static berth_status set_cache(berth_worker *worker, const berth_kv_cache_config *config) {
    fake_model *model = model_of(worker);
    model->num_blocks = config->num_blocks;
    model->num_slots = config->state_slots;
    for (uint64_t i = 0; i < window_count(model); ++i) {
        model->window_blocks[i] = config->group_blocks[group_of(model, i)];
        CHECK(model->window_blocks[i] <= FAKE_MAX_BLOCKS);
    }
    CHECK(config->state_slots <= FAKE_MAX_SLOTS);
    return BERTH_OK;
}

static berth_status set_blocks(berth_worker *worker, int64_t device_blocks, int64_t host_blocks) {
    return device_blocks == model_of(worker)->num_blocks && host_blocks == 0
               ? BERTH_OK
               : BERTH_INVALID_ARGUMENT;
}

static int64_t sequence_of(const berth_batch *batch, int32_t row) {
    const int32_t *start = batch->host->query_start_loc->data;
    int64_t sequence = 0;
    while (start[sequence + 1] <= row) {
        ++sequence;
    }
    return sequence;
}

// Token `position` in the cache of a window. What is behind the window is never looked at.
static int32_t window_token(const fake_model *model, const berth_batch *batch, uint64_t window,
                            int64_t sequence, int32_t position) {
    const berth_tensor *table = batch->host->block_tables[group_of(model, window)];
    const int32_t *blocks = (const int32_t *)table->data + sequence * table->strides[0];
    const int32_t block = blocks[position / FAKE_BLOCK_SIZE];
    CHECK(block > 0 && block < model->window_blocks[window]);
    return model->window_caches[window][block * FAKE_BLOCK_SIZE + position % FAKE_BLOCK_SIZE];
}

static uint32_t hash_of_window(const fake_model *model, const berth_batch *batch, int32_t row) {
    const int64_t sequence = sequence_of(batch, row);
    const int32_t position = ((const int32_t *)batch->host->positions->data)[row];
    uint32_t hash = HASH_START;
    for (int64_t i = first_seen(model->windows[0], position); i <= position; ++i) {
        hash = mix(hash, window_token(model, batch, 0, sequence, (int32_t)i));
    }
    return hash;
}

// Every window shows the tokens that the cache of all has.
static void check_windows(const fake_model *model, const berth_batch *batch, int32_t row,
                          const int32_t *blocks) {
    const int64_t sequence = sequence_of(batch, row);
    const int32_t position = ((const int32_t *)batch->host->positions->data)[row];
    for (uint64_t w = 0; w < window_count(model); ++w) {
        for (int64_t i = first_seen(model->windows[w], position); i <= position; ++i) {
            const int32_t block = blocks[i / FAKE_BLOCK_SIZE];
            CHECK_INT(window_token(model, batch, w, sequence, (int32_t)i),
                      model->cache[block * FAKE_BLOCK_SIZE + i % FAKE_BLOCK_SIZE]);
        }
    }
}

// A hash over the cache from position 0 to the row's own.
static uint32_t hash_of_row(const fake_model *model, const berth_batch *batch, int32_t row) {
    const berth_tensor *table = batch->host->block_tables[0];
    const int32_t *blocks = table->data;
    blocks += sequence_of(batch, row) * table->strides[0];
    const int32_t position = ((const int32_t *)batch->host->positions->data)[row];
    uint32_t hash = HASH_START;
    for (int32_t i = 0; i <= position; ++i) {
        const int32_t block = blocks[i / FAKE_BLOCK_SIZE];
        CHECK(block > 0 && block < model->num_blocks);
        hash = mix(hash, model->cache[block * FAKE_BLOCK_SIZE + i % FAKE_BLOCK_SIZE]);
    }
    check_windows(model, batch, row, blocks);
    return hash;
}

// Moves the state of each sequence on; a new one begins whatever its slot holds.
static void step_states(fake_model *model, const berth_batch *batch) {
    const berth_tensor *table = batch->host->block_tables[1];
    const int32_t *slots = table->data;
    const int32_t *start = batch->host->query_start_loc->data;
    const int32_t *lengths = batch->host->seq_lens->data;
    const int32_t *ids = batch->host->token_ids->data;
    CHECK_INT(batch->group_count, 2);
    CHECK_INT(table->shape[0], batch->sequence_count);
    CHECK(batch->token_count <= FAKE_MAX_TOKENS);
    for (int64_t i = 0; i < batch->sequence_count; ++i) {
        const int32_t slot = slots[i * table->strides[0]];
        const bool is_new = lengths[i] == start[i + 1] - start[i];
        CHECK(slot > 0 && slot < model->num_slots);
        for (int64_t j = 0; j < i; ++j) {
            CHECK(slots[j * table->strides[0]] != slot);
        }
        uint32_t hash = is_new ? HASH_START : model->states[slot];
        for (int32_t row = start[i]; row < start[i + 1]; ++row) {
            hash = mix(hash, ids[row]);
            model->hashes[row] = hash;
        }
        model->states[slot] = hash;
    }
}

static uint32_t hash_after(const fake_model *model, const berth_batch *batch, int32_t row) {
    if (model->has_windows_only) {
        return hash_of_window(model, batch, row);
    }
    if (!model->keeps_states) {
        return hash_of_row(model, batch, row);
    }
    if (!model->has_no_cache) {
        CHECK_UINT(model->hashes[row], hash_of_row(model, batch, row));
    }
    return model->hashes[row];
}

static berth_status sample(berth_worker *worker, const berth_scheduler_output *input,
                           berth_model_output *out) {
    fake_model *model = model_of(worker);
    const berth_batch *batch = input->batch;
    const int32_t *rows = batch->host->logits_rows->data;
    CHECK(batch->logits_row_count <= FAKE_MAX_ROWS);
    out->row_count = (uint64_t)batch->logits_row_count;
    out->vocab_size = FAKE_VOCAB;
    out->logits = model->logits;
    for (int64_t row = 0; row < batch->logits_row_count; ++row) {
        fill_logits(hash_after(model, batch, rows[row]), &model->logits[row * FAKE_VOCAB]);
    }
    if (input->sampling) {
        BERTH_TRY(berth_sampler_run(&model->sampler, input->sampling, out));
    }
    for (int64_t row = 0; row < batch->logits_row_count && model->wrong_token != 0; ++row) {
        model->sampler.token_ids[row] = model->wrong_token;
    }
    if (model->has_no_logprobs) {
        out->logprobs = NULL;
    }
    return BERTH_OK;
}

static void store_windows(fake_model *model, const berth_batch *batch) {
    const int32_t *ids = batch->host->token_ids->data;
    for (uint64_t w = 0; w < window_count(model); ++w) {
        const int64_t *slots = batch->host->slot_mappings[group_of(model, w)]->data;
        for (int64_t i = 0; i < batch->token_count; ++i) {
            CHECK(slots[i] >= FAKE_BLOCK_SIZE &&
                  slots[i] < model->window_blocks[w] * FAKE_BLOCK_SIZE);
            model->window_caches[w][slots[i]] = ids[i];
        }
    }
}

static berth_status execute(berth_worker *worker, const berth_scheduler_output *input,
                            berth_model_output *out) {
    fake_model *model = model_of(worker);
    const berth_batch *batch = input->batch;
    const int32_t *ids = batch->host->token_ids->data;
    const int64_t *slots = batch->host->slot_mappings[0]->data;
    if (model->keeps_states) {
        step_states(model, batch);
    }
    if (++model->steps == model->failing_step) {
        return BERTH_UNAVAILABLE; // a failure may well come after the states have moved on
    }
    store_windows(model, batch);
    const bool has_cache = !model->has_no_cache && !model->has_windows_only;
    for (int64_t i = 0; i < batch->token_count && has_cache; ++i) {
        CHECK(slots[i] >= FAKE_BLOCK_SIZE && slots[i] < model->num_blocks * FAKE_BLOCK_SIZE);
        model->cache[slots[i]] = ids[i];
    }
    model->computed_tokens += batch->token_count;
    if (batch->token_count > model->largest_step) {
        model->largest_step = batch->token_count;
    }
    if (model->is_pending && input->sampling) {
        out->state = BERTH_OUTPUT_PENDING;
        return BERTH_OK;
    }
    return sample(worker, input, out);
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

// ---- the bench ----------------------------------------------------------------------------------

void bench_open(engine_bench *b) {
    memset(b, 0, sizeof *b);
    CHECK_OK(berth_arena_create(1 << 16, 1 << 24, &b->arena));
    CHECK_OK(berth_config_init(&b->config, b->arena));
    CHECK_OK(berth_registry_create(&b->config, &berth_worker_default, &b->registry));
    CHECK_OK(berth_sampler_init(&b->model.sampler, FAKE_VOCAB, FAKE_MAX_ROWS, b->arena));
    b->owner = (berth_owner){.id = "fake", .version = "1", .entry = "fake", .group = "test"};
    b->platform.platform.name = "fake";
    b->platform.worker = fake_worker;
    b->platform.self = &b->model;
    b->platform.owner = &b->owner;
    b->config.max_num_seqs = 4;
    b->config.max_num_batched_tokens = 16;
    b->config.kv_cache_blocks = FAKE_MAX_BLOCKS;
}

void bench_load(engine_bench *b) {
    CHECK_OK(berth_worker_create(&b->config, b->registry, &b->platform, &b->worker));
    CHECK_OK(berth_worker_init_device(b->worker));
    CHECK_OK(berth_worker_load_model(b->worker));
}

void bench_start(engine_bench *b) {
    bench_load(b);
    CHECK_OK(berth_engine_create(&b->config, b->worker, &b->engine));
}

void bench_close(engine_bench *b) {
    berth_engine_destroy(b->engine);
    berth_worker_destroy(b->worker);
    berth_registry_destroy(b->registry);
    berth_arena_destroy(b->arena);
}

// ---- clients ------------------------------------------------------------------------------------

void client_init(client *c, uint32_t seed, size_t prompt_count, int64_t max_tokens) {
    memset(c, 0, sizeof *c);
    CHECK(prompt_count <= BERTH_COUNT(c->prompt));
    c->request.prompt_count = prompt_count;
    c->request.max_tokens = max_tokens;
    for (size_t i = 0; i < prompt_count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        c->prompt[i] = (int32_t)((seed >> 8) % FAKE_VOCAB);
    }
}

void client_add(client *c, engine_bench *b) {
    c->request.prompt = c->prompt;
    CHECK_OK(berth_engine_add(b->engine, &c->request, &c->id));
}

static void deliver(client *clients, size_t count, const berth_output *output) {
    client *c = clients;
    while (c < clients + count && c->id != output->request) {
        ++c;
    }
    CHECK(c < clients + count);
    CHECK_INT(c->finish, BERTH_FINISH_NOT_YET);
    c->finish = output->finish;
    if (output->token >= 0) {
        CHECK(c->token_count < BERTH_COUNT(c->tokens));
        c->tokens[c->token_count++] = output->token;
    }
    CHECK(c->text_size + output->text.size < sizeof c->text);
    if (output->text.size > 0) {
        memcpy(c->text + c->text_size, output->text.data, output->text.size);
        c->text_size += output->text.size;
    }
}

void clients_step(client *clients, size_t count, engine_bench *b) {
    const berth_output *outputs = NULL;
    size_t output_count = 0;
    CHECK_OK(berth_engine_step(b->engine, &outputs, &output_count));
    for (size_t i = 0; i < output_count; ++i) {
        deliver(clients, count, &outputs[i]);
    }
}

void clients_run(client *clients, size_t count, engine_bench *b) {
    for (int step = 0; step < 2000 && !berth_engine_is_idle(b->engine); ++step) {
        clients_step(clients, count, b);
    }
    CHECK(berth_engine_is_idle(b->engine));
}

static bool is_among(const int32_t *ids, size_t count, int32_t id) {
    for (size_t i = 0; i < count; ++i) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

static int32_t choose(const client *c, uint32_t hash, const int32_t *output, size_t count) {
    berth_arena *arena = NULL;
    berth_sampler sampler;
    float logits[FAKE_VOCAB];
    int32_t token = -1;
    const berth_request *asked = &c->request;
    const berth_sampling sampling = {
        .size = sizeof sampling,
        .temperature = asked->temperature,
        .seed = asked->seed,
        .index = count,
        .top_k = (uint64_t)asked->top_k,
        .top_p = asked->top_p,
        .min_p = asked->min_p,
        .presence_penalty = asked->presence_penalty,
        .frequency_penalty = asked->frequency_penalty,
        .repetition_penalty = asked->repetition_penalty,
        .prompt_ids = c->prompt,
        .prompt_count = asked->prompt_count,
        .output_ids = output,
        .output_count = count,
        .banned_ids = asked->stop_ids,
        .banned_count = (int64_t)count < asked->min_tokens ? asked->stop_count : 0,
    };
    fill_logits(hash, logits);
    CHECK_OK(berth_arena_create(1 << 14, 1 << 20, &arena));
    CHECK_OK(berth_sampler_init(&sampler, FAKE_VOCAB, 1, arena));
    CHECK_OK(berth_sample_token(&sampler, logits, &sampling, &token));
    berth_arena_destroy(arena);
    return token;
}

// What the model knows of the first `count` tokens of prompt and output.
static uint32_t hash_of(const client *c, const int32_t *output, size_t count) {
    uint32_t hash = HASH_START;
    for (size_t i = (size_t)first_seen(c->sight, (int64_t)count - 1); i < count; ++i) {
        const size_t prompt = c->request.prompt_count;
        hash = mix(hash, i < prompt ? c->prompt[i] : output[i - prompt]);
    }
    return hash;
}

size_t client_expect(const client *c, int32_t *tokens, berth_finish *out_finish) {
    const berth_request *asked = &c->request;
    size_t count = 0;
    *out_finish = BERTH_FINISH_LENGTH;
    while ((int64_t)count < asked->max_tokens && asked->prompt_count + count < FAKE_MODEL_LEN) {
        const uint32_t hash = hash_of(c, tokens, asked->prompt_count + count);
        tokens[count] = choose(c, hash, tokens, count);
        ++count;
        if (is_among(asked->stop_ids, asked->stop_count, tokens[count - 1])) {
            *out_finish = BERTH_FINISH_STOP;
            break;
        }
    }
    return count;
}

void client_check(const client *c) {
    int32_t expected[FAKE_MODEL_LEN];
    berth_finish finish = BERTH_FINISH_NOT_YET;
    const size_t count = client_expect(c, expected, &finish);
    CHECK_UINT(c->token_count, count);
    CHECK_BYTES(c->tokens, expected, count * sizeof(int32_t));
    CHECK_INT(c->finish, finish);
}
