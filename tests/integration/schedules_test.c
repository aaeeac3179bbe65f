// SPDX-License-Identifier: Apache-2.0
// A request's tokens are the same whether it runs alone or among others: 64 random schedules per
// checkpoint, with prompts in pieces, KV blocks that run out, arrivals and departures at any step.
//
// Sums come out in another order when more tokens share a step, so tokens are compared up to the
// first step at which the best two logits lie closer than 0.01.
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "support/flow.h"

#define MODELS      "tests/data/models"
#define SCHEDULES   64
#define POOL        24 // requests that schedules draw from
#define MAX_PROMPT  96
#define MAX_OUTPUT  24
#define MAX_AT_ONCE 8
#define MARGIN      0.01F
#define MODEL_LEN   160

// A request, and what it gave when it was alone.
typedef struct solo {
    int32_t prompt[MAX_PROMPT];
    size_t prompt_count;
    int32_t tokens[MAX_OUTPUT];
    float margins[MAX_OUTPUT];
    size_t token_count;
} solo;

// One request of a schedule.
typedef struct part {
    const solo *solo;
    uint64_t request;
    int64_t max_tokens;
    size_t arrival; // step
    size_t leave;   // step at which it is aborted, SIZE_MAX: never
    size_t token_count;
    bool has_parted;
} part;

// How a machine is set up; schedules of one checkpoint are spread over these.
typedef struct setup {
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    int64_t block_size;
    int64_t spare_blocks; // beyond one sequence of MODEL_LEN and the null block
} setup;

static const setup setups[] = {
    {.max_num_seqs = 8, .max_num_batched_tokens = 512, .block_size = 16, .spare_blocks = 200},
    {.max_num_seqs = 3, .max_num_batched_tokens = 16,  .block_size = 1,  .spare_blocks = 40 },
    {.max_num_seqs = 8, .max_num_batched_tokens = 33,  .block_size = 16, .spare_blocks = 2  },
    {.max_num_seqs = 5, .max_num_batched_tokens = 7,   .block_size = 7,  .spare_blocks = 0  },
};

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static size_t pick(uint64_t *state, size_t count) {
    return (size_t)(next_random(state) % count);
}

static void start(flow *f, const char *model, const setup *how) {
    flow_init(f);
    f->config.model = model;
    f->config.max_model_len = MODEL_LEN;
    f->config.max_num_seqs = how->max_num_seqs;
    f->config.max_num_batched_tokens = how->max_num_batched_tokens;
    f->config.max_logits_rows = how->max_num_batched_tokens;
    f->config.block_size = how->block_size;
    f->config.kv_cache_blocks =
        (MODEL_LEN + how->block_size - 1) / how->block_size + 1 + how->spare_blocks;
    flow_start(f);
}

// ---- alone --------------------------------------------------------------------------------------

static float margin_of(const float *logits, size_t count) {
    float best = logits[0];
    float second = -1e30F;
    for (size_t i = 1; i < count; ++i) {
        if (logits[i] > best) {
            second = best;
            best = logits[i];
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    return best - second;
}

static void run_alone(flow *f, solo *one) {
    berth_model_info model = {.size = sizeof model};
    uint64_t id = 0;
    CHECK_OK(berth_worker_get_model(f->worker, &model));
    const berth_request request = {
        .prompt = one->prompt,
        .prompt_count = one->prompt_count,
        .max_tokens = MAX_OUTPUT,
        .wants_logits = true,
    };
    CHECK_OK(berth_engine_add(f->engine, &request, &id));
    while (!berth_engine_is_idle(f->engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        CHECK_OK(berth_engine_step(f->engine, &outputs, &count));
        if (count == 1 && outputs[0].token >= 0) {
            const size_t vocab = (size_t)model.vocab_size;
            const float *row = outputs[0].logits + (outputs[0].logits_rows - 1) * vocab;
            one->margins[one->token_count] = margin_of(row, vocab);
            one->tokens[one->token_count++] = outputs[0].token;
        }
    }
    CHECK_UINT(one->token_count, MAX_OUTPUT);
}

// Prompts are beginnings of those in the golden file.
static void make_pool(const char *model, solo *pool) {
    char path[256];
    uint64_t random = 0x9e3779b97f4a7c15u;
    berth_json *golden = NULL;
    const berth_json *prompts = NULL;
    (void)snprintf(path, sizeof path, "%s/golden.json", model);
    CHECK_OK(berth_json_load(path, NULL, &golden));
    CHECK_OK(berth_json_get_array(golden, "prompts", &prompts));
    for (size_t i = 0; i < POOL; ++i) {
        const berth_json *ids = NULL;
        const berth_json *prompt = berth_json_at(prompts, i % berth_json_size(prompts));
        CHECK_OK(berth_json_get_array(prompt, "prompt_ids", &ids));
        const size_t most = berth_json_size(ids) < MAX_PROMPT ? berth_json_size(ids) : MAX_PROMPT;
        pool[i].prompt_count = 1 + pick(&random, most);
        for (size_t k = 0; k < pool[i].prompt_count; ++k) {
            int64_t id = 0;
            CHECK(berth_json_as_i64(berth_json_at(ids, k), &id));
            pool[i].prompt[k] = (int32_t)id;
        }
    }
    berth_json_destroy(golden);
}

// ---- among others -------------------------------------------------------------------------------

static size_t draw(const solo *pool, uint64_t *random, part *parts) {
    const size_t count = 2 + pick(random, MAX_AT_ONCE - 1);
    for (size_t i = 0; i < count; ++i) {
        parts[i] = (part){
            .solo = &pool[pick(random, POOL)],
            .max_tokens = 1 + (int64_t)pick(random, MAX_OUTPUT),
            .arrival = pick(random, 3) == 0 ? 0 : pick(random, 20),
            .leave = pick(random, 8) == 0 ? 5 + pick(random, 20) : SIZE_MAX,
        };
    }
    return count;
}

// Requests whose step has come are added and aborted; returns how many are still to come.
static size_t arrive(flow *f, part *parts, size_t count, size_t step) {
    size_t waiting = 0;
    for (size_t i = 0; i < count; ++i) {
        part *one = &parts[i];
        if (one->arrival == step) {
            const berth_request request = {
                .prompt = one->solo->prompt,
                .prompt_count = one->solo->prompt_count,
                .max_tokens = one->max_tokens,
            };
            CHECK_OK(berth_engine_add(f->engine, &request, &one->request));
        }
        if (one->leave == step && one->request != 0) {
            berth_engine_abort(f->engine, one->request);
        }
        waiting += one->arrival > step;
    }
    return waiting;
}

// Returns 1 for a token that was compared.
static size_t accept(part *one, int32_t token) {
    const size_t at = one->token_count++;
    one->has_parted = one->has_parted || one->solo->margins[at] < MARGIN;
    if (one->has_parted) {
        return 0;
    }
    CHECK_INT(token, one->solo->tokens[at]);
    return 1;
}

static size_t run_schedule(flow *f, const solo *pool, uint64_t seed, size_t *out_shared) {
    part parts[MAX_AT_ONCE];
    uint64_t random = seed * 0xd1342543de82ef95u + 1;
    const size_t part_count = draw(pool, &random, parts);
    size_t compared = 0;
    size_t waiting = part_count;
    for (size_t step = 0; waiting > 0 || !berth_engine_is_idle(f->engine); ++step) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        waiting = arrive(f, parts, part_count, step);
        CHECK_OK(berth_engine_step(f->engine, &outputs, &count));
        *out_shared += count > 1;
        for (size_t i = 0; i < count; ++i) {
            part *one = parts;
            while (one->request != outputs[i].request) {
                CHECK(++one < parts + part_count);
            }
            compared += accept(one, outputs[i].token);
        }
    }
    for (size_t i = 0; i < part_count; ++i) {
        const int64_t seen = (int64_t)parts[i].token_count;
        CHECK(parts[i].leave != SIZE_MAX ? seen <= parts[i].max_tokens
                                         : seen == parts[i].max_tokens);
    }
    return compared;
}

static void check_schedules(const char *model) {
    static solo pool[POOL];
    size_t compared = 0;
    size_t shared = 0;
    flow f;
    memset(pool, 0, sizeof pool);
    make_pool(model, pool);
    start(&f, model, &setups[0]);
    for (size_t i = 0; i < POOL; ++i) {
        run_alone(&f, &pool[i]);
    }
    flow_deinit(&f);
    for (size_t i = 0; i < BERTH_COUNT(setups); ++i) {
        start(&f, model, &setups[i]);
        for (size_t k = 0; k < SCHEDULES / BERTH_COUNT(setups); ++k) {
            compared += run_schedule(&f, pool, i * SCHEDULES + k + 1, &shared);
        }
        flow_deinit(&f);
    }
    CHECK(compared > SCHEDULES * MAX_OUTPUT / 2);
    CHECK(shared > SCHEDULES);
}

TEST(schedules_do_not_change_the_tokens_of_llama) {
    check_schedules(MODELS "/llama");
}

TEST(schedules_do_not_change_the_tokens_of_qwen3) {
    check_schedules(MODELS "/qwen3");
}

TEST(schedules_do_not_change_the_tokens_of_shakespeare) {
    check_schedules(MODELS "/shakespeare");
}
