// SPDX-License-Identifier: Apache-2.0
// A request's tokens are the same whether it runs alone or among others: 40 random schedules per
// checkpoint and setup, with prompts in pieces of 7, KV blocks that run out, arrivals and
// departures at any step.
// And none is lost: who does not leave gets all tokens, however long it has to wait.
//
// Sums come out in another order when more tokens share a step, so tokens are compared up to the
// first step at which the best two logits lie closer than 0.01. Half of the requests sample: for
// them it is the first step at which logits that move by 0.01 could give another token.
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "support/flow.h"
#include "worker/sampler.h"

#define MODELS      "tests/data/models"
#define SCHEDULES   40
#define POOL        24 // requests that schedules draw from
#define MAX_PROMPT  96
#define MAX_OUTPUT  40
#define MAX_AT_ONCE 8
#define MARGIN      0.01F
#define MODEL_LEN   136

enum { FLOAT32 = 1 }; // of berth_config_dtypes
enum { FP8 = 1 };     // of berth_config_kv_dtypes

// A request, and what it gave when it was alone.
typedef struct solo {
    double temperature;
    uint64_t seed;
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

// How a machine is set up. The last members say what must have happened there.
typedef struct setup {
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    int64_t chunk;
    int64_t block_size;
    int64_t spare_blocks; // beyond one sequence of MODEL_LEN and the null block
    bool preempts;        // requests give up their blocks and are computed again
    bool waits;           // requests wait for those that run
} setup;

#define SETUP(...)                                                                                 \
    { __VA_ARGS__ }

static const setup setups[] = {
    SETUP(.max_num_seqs = 8, .max_num_batched_tokens = 512, .block_size = 16, .spare_blocks = 200),
    SETUP(.max_num_seqs = 8, .max_num_batched_tokens = 16, .block_size = 1, .preempts = true,
          .waits = true),
    SETUP(.max_num_seqs = 3, .max_num_batched_tokens = 33, .block_size = 16, .spare_blocks = 2,
          .waits = true),
    SETUP(.max_num_seqs = 8, .max_num_batched_tokens = 64, .chunk = 7, .block_size = 3,
          .preempts = true, .waits = true),
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

// A checkpoint, and what it has beside a cache of tokens, or in its place.
typedef struct subject {
    const char *name;
    char label[64];
    char path[64];
    bool keeps_states; // of every sequence, which no other one can go on from
    bool has_no_cache; // so no sequence ever has to give way
    bool has_codes;    // in its cache, --kv-cache-dtype fp8
} subject;

static void start(flow *f, const subject *about, const setup *how) {
    flow_init(f);
    f->config.model = about->path;
    f->config.kv_cache_dtype = about->has_codes ? FP8 : 0;
    f->config.dtype = FLOAT32;
    f->config.max_model_len = MODEL_LEN;
    f->config.max_num_seqs = how->max_num_seqs;
    f->config.max_num_batched_tokens = how->max_num_batched_tokens;
    f->config.max_logits_rows = how->max_num_batched_tokens;
    f->config.chunk = how->chunk;
    f->config.block_size = how->block_size;
    f->config.kv_cache_blocks =
        (MODEL_LEN + how->block_size - 1) / how->block_size + 1 + how->spare_blocks;
    flow_start(f);
}

// ---- alone --------------------------------------------------------------------------------------

static float greedy_margin(const float *logits, size_t count) {
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

// How far the logits would have to move to give another token: past the chosen one's, or so far
// that the random number leaves its share. Moving all logits by x moves no bound of a share by more
// than x / (2 · temperature).
static float sampled_margin(const solo *one, const float *logits, size_t count, int32_t token) {
    const double u = (double)berth_philox(one->seed, one->token_count) * 0x1p-32;
    double before = 0;
    double sum = 0;
    double gap = INFINITY;
    for (size_t i = 0; i < count; ++i) {
        const double above = (double)logits[i] - (double)logits[token];
        const double weight = exp(above / one->temperature); // of the chosen token: 1
        sum += weight;
        before += above > 0 ? weight : 0;
        gap = i == (size_t)token ? gap : fmin(gap, fabs(above));
    }
    const double distance = fmin(u - before / sum, (before + 1) / sum - u);
    return (float)fmin(gap, 2 * one->temperature * distance);
}

static float margin_of(const solo *one, const float *logits, size_t count, int32_t token) {
    return one->temperature > 0 ? sampled_margin(one, logits, count, token)
                                : greedy_margin(logits, count);
}

static void run_alone(flow *f, solo *one) {
    berth_model_info model = {.size = sizeof model};
    uint64_t id = 0;
    CHECK_OK(berth_worker_get_model(f->worker, &model));
    const berth_request request = {
        .prompt = one->prompt,
        .prompt_count = one->prompt_count,
        .max_tokens = MAX_OUTPUT,
        .temperature = one->temperature,
        .seed = one->seed,
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
            one->margins[one->token_count] = margin_of(one, row, vocab, outputs[0].token);
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
        pool[i].temperature = i % 2 == 0 ? 0 : 0.5;
        pool[i].seed = i;
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
                .temperature = one->solo->temperature,
                .seed = one->solo->seed,
            };
            CHECK_OK(berth_engine_add(f->engine, &request, &one->request));
        }
        if (one->leave == step && one->request != 0) {
            berth_engine_abort(f->engine, one->request, NULL);
        }
        waiting += one->arrival > step;
    }
    return waiting;
}

// What happened in all schedules of a checkpoint, so that none of it is left out unnoticed.
typedef struct tally {
    size_t greedy;  // tokens that were compared
    size_t sampled; // the same of requests that sample
    size_t shared;  // steps with more than one output
    size_t waits;   // steps after which a request still waited
    uint64_t cached_tokens;
} tally;

static void accept(part *one, int32_t token, tally *sum) {
    const size_t at = one->token_count++;
    one->has_parted = one->has_parted || one->solo->margins[at] < MARGIN;
    if (one->has_parted) {
        return;
    }
    CHECK_INT(token, one->solo->tokens[at]);
    ++*(one->solo->temperature > 0 ? &sum->sampled : &sum->greedy);
}

static void run_schedule(flow *f, const solo *pool, uint64_t seed, tally *sum) {
    part parts[MAX_AT_ONCE];
    uint64_t random = seed * 0xd1342543de82ef95u + 1;
    const size_t part_count = draw(pool, &random, parts);
    size_t waiting = part_count;
    for (size_t step = 0; waiting > 0 || !berth_engine_is_idle(f->engine); ++step) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        waiting = arrive(f, parts, part_count, step);
        CHECK_OK(berth_engine_step(f->engine, &outputs, &count));
        sum->shared += count > 1;
        sum->waits += berth_engine_get_stats(f->engine).waiting > 0;
        for (size_t i = 0; i < count; ++i) {
            part *one = parts;
            while (one->request != outputs[i].request) {
                CHECK(++one < parts + part_count);
            }
            accept(one, outputs[i].token, sum);
        }
    }
    for (size_t i = 0; i < part_count; ++i) {
        const int64_t seen = (int64_t)parts[i].token_count;
        CHECK(parts[i].leave != SIZE_MAX ? seen <= parts[i].max_tokens
                                         : seen == parts[i].max_tokens);
    }
}

// Sanitizers are ten times as slow.
static size_t schedule_count(void) {
    return strcmp(TEST_MODE, "release") == 0 ? SCHEDULES : SCHEDULES / 8;
}

// Whether a setup has shown what it is there for.
static bool has_happened(const subject *about, const setup *how, const flow *f, const tally *here) {
    const bool has_preempted = berth_engine_get_stats(f->engine).preemptions > 0;
    return about->has_no_cache
               ? !has_preempted
               : (has_preempted || !how->preempts) && (here->waits > 0 || !how->waits);
}

// All schedules of one setup, and where they are few, as many more as it takes.
static void run_schedules(const subject *about, const setup *how, const solo *pool, uint64_t seed,
                          tally *sum) {
    flow f;
    tally here = {0};
    start(&f, about, how);
    size_t count = 0;
    while (count < schedule_count() ||
           (count < SCHEDULES && !has_happened(about, how, &f, &here))) {
        run_schedule(&f, pool, seed + ++count, &here);
    }
    CHECK(has_happened(about, how, &f, &here));
    const berth_engine_stats stats = berth_engine_get_stats(f.engine);
    flow_deinit(&f);
    sum->greedy += here.greedy;
    sum->sampled += here.sampled;
    sum->shared += here.shared;
    sum->cached_tokens += stats.cached_tokens;
}

static void check_schedules(void **state) {
    static solo pool[POOL];
    const subject *about = *state;
    tally sum = {0};
    flow f;
    memset(pool, 0, sizeof pool);
    make_pool(about->path, pool);
    start(&f, about, &setups[0]);
    for (size_t i = 0; i < POOL; ++i) {
        run_alone(&f, &pool[i]);
    }
    flow_deinit(&f);
    for (size_t i = 0; i < BERTH_COUNT(setups); ++i) {
        run_schedules(about, &setups[i], pool, i * SCHEDULES, &sum);
    }
    const size_t schedules = schedule_count() * BERTH_COUNT(setups);
    CHECK(sum.greedy > schedules * MAX_OUTPUT / 4);
    CHECK(sum.sampled > 2 * schedules);
    CHECK(sum.shared > schedules);
    CHECK(about->keeps_states ? sum.cached_tokens == 0 : sum.cached_tokens > schedules);
}

TEST_CASES(schedules_do_not_change_the_tokens_of) {
    static subject subjects[] = {
        {.name = "llama",        .keeps_states = false,                      .has_no_cache = false},
        {.name = "llama-rope3",                      .keeps_states = false,                                            .has_no_cache = false},
        {.name = "llama-yarn", .keeps_states = false,.has_no_cache = false},
        {.name = "llama-linear", .keeps_states = false,                       .has_no_cache = false},
        {.name = "llama-dynamic", .keeps_states = false,                      .has_no_cache = false},
        {.name = "mistral-swa",                      .keeps_states = false,                                          .has_no_cache = false},
        {.name = "gemma2", .keeps_states = false,                      .has_no_cache = false},
        {.name = "qwen2",.keeps_states = false,.has_no_cache = false},
        {.name = "qwen3",       .keeps_states = false,                            .has_no_cache = false},
        {.name = "shakespeare",                      .keeps_states = false,                                                  .has_no_cache = false},
        {.name = "lfm2", .keeps_states = true,                                                                                    .has_no_cache = false},
        {.name = "falcon-h1",.keeps_states = true,.has_no_cache = false},
        {.name = "mamba",  .keeps_states = true,  .has_no_cache = true},
        {.name = "llama",                      .has_codes = true                                                  },
        {.name = "mistral-swa", .has_codes = true},
    };
    for (size_t i = 0; i < BERTH_COUNT(subjects); ++i) {
        subject *about = &subjects[i];
        (void)snprintf(about->path, sizeof about->path, MODELS "/%s", about->name);
        (void)snprintf(about->label, sizeof about->label, "%s%s", about->name,
                       about->has_codes ? ", codes in its cache" : "");
        test_add(cases, about->label, check_schedules, about);
    }
}
