// SPDX-License-Identifier: Apache-2.0
// A worker for tests of the engine. Its "cache" holds token ids, and the logits after a token are a
// function of every token that the block table leads to, so a wrong slot, block, position or order
// changes the text. It samples as the default worker does. With `keeps_states` a running hash of
// each sequence lies in its slot, too, and a state that is not what the tokens give fails the test;
// such a model may have no cache of tokens. Layers with windows or chunks have caches of their own,
// in which a query must find what it sees; a model of such layers alone knows nothing else.
//
// Beside it stands a client, who knows without any engine what the text must be.
#ifndef FAKE_MODEL_H
#define FAKE_MODEL_H

#include "base/arena.h"
#include "engine/engine.h"
#include "worker/sampler.h"

#define FAKE_VOCAB      97 // the ids are those of printable characters in the tokenizer of the tests
#define FAKE_BLOCK_SIZE 4
#define FAKE_MAX_BLOCKS 64
#define FAKE_MODEL_LEN  40
#define FAKE_MAX_ROWS   64
#define FAKE_MAX_SLOTS  16
#define FAKE_MAX_TOKENS 64 // of a step
#define FAKE_WINDOWS    2

// What a query sees of the tokens up to its own; both 0: all of them.
typedef struct fake_sight {
    int64_t window;
    int64_t chunk;
} fake_sight;

typedef struct fake_model {
    int32_t cache[FAKE_MAX_BLOCKS * FAKE_BLOCK_SIZE];
    fake_sight windows[FAKE_WINDOWS]; // the first without either ends them
    int32_t window_caches[FAKE_WINDOWS][FAKE_MAX_BLOCKS * FAKE_BLOCK_SIZE];
    int64_t window_blocks[FAKE_WINDOWS];
    bool has_windows_only; // then the first one's cache is in group 0, and the text follows from it
    uint32_t states[FAKE_MAX_SLOTS];
    uint32_t hashes[FAKE_MAX_TOKENS]; // after each token of the step
    float logits[FAKE_MAX_ROWS * FAKE_VOCAB];
    berth_sampler sampler;
    int64_t num_blocks;
    int64_t steps;
    int64_t largest_step;
    int64_t computed_tokens;
    int64_t failing_step; // the step with this number fails once; 0: none
    uint64_t spec_count;  // caches that get_kv_cache_spec counts, 0: 1; it fills in the first only
    int32_t wrong_token;  // given for every row when not 0
    bool keeps_states;
    bool has_no_cache; // and states alone
    int64_t num_slots;
    int64_t memory;       // that is free, 0: as much as the blocks take
    bool is_pending;      // answers execute_model with BERTH_OUTPUT_PENDING
    bool has_no_logprobs; // as a worker that was built before there were any
} fake_model;

typedef struct engine_bench {
    berth_arena *arena;
    berth_config config; // to be changed between open and start
    berth_registry *registry;
    berth_platform_entry platform;
    berth_owner owner;
    fake_model model;
    berth_worker *worker;
    berth_engine *engine;
} engine_bench;

void bench_open(engine_bench *b);
void bench_load(engine_bench *b);  // a worker with its model
void bench_start(engine_bench *b); // and an engine
void bench_close(engine_bench *b);

typedef struct client {
    berth_request request; // what it asks for; the prompt is set when it is added
    size_t token_count;
    size_t text_size;
    uint64_t id;
    fake_sight sight; // of the model that it asks
    int32_t prompt[FAKE_MODEL_LEN];
    int32_t tokens[FAKE_MODEL_LEN];
    berth_finish finish;
    char text[4 * FAKE_MODEL_LEN];
} client;

// A pseudo-random prompt. The same seed gives prompts with the same beginning.
void client_init(client *c, uint32_t seed, size_t prompt_count, int64_t max_tokens);
void client_add(client *c, engine_bench *b);
// One step, whose outputs go to their clients. An output that names none of them fails the test.
void clients_step(client *clients, size_t count, engine_bench *b);
// Steps until the engine is idle.
void clients_run(client *clients, size_t count, engine_bench *b);

// What the model says to the client's request, without any engine; returns how many tokens.
size_t client_expect(const client *c, int32_t *tokens, berth_finish *out_finish);
// That the client got exactly this.
void client_check(const client *c);

#endif
