// SPDX-License-Identifier: Apache-2.0
// The sampler against berth_sampling's definition computed the long way, by sorting everything, and
// the generator under it.
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/memory.h"
#include "worker/sampler.h"

#define VOCAB     5
#define MAX_VOCAB 600

typedef struct bench {
    berth_arena *arena;
    berth_sampler sampler;
} bench;

static void open_bench(bench *b, size_t vocab_size, size_t rows) {
    CHECK_OK(berth_arena_create(1 << 16, 1 << 24, &b->arena));
    CHECK_OK(berth_sampler_init(&b->sampler, vocab_size, rows, b->arena));
}

static void close_bench(bench *b) {
    berth_arena_destroy(b->arena);
}

static int32_t sample_as(const float *logits, size_t vocab_size, const berth_sampling *sampling) {
    bench b;
    int32_t token = -1;
    open_bench(&b, vocab_size, 1);
    CHECK_OK(berth_sample_token(&b.sampler, logits, sampling, &token));
    close_bench(&b);
    return token;
}

static int32_t sample(const float *logits, double temperature, uint64_t seed, uint64_t index) {
    const berth_sampling sampling = {
        .size = sizeof sampling,
        .temperature = temperature,
        .seed = seed,
        .index = index,
    };
    return sample_as(logits, VOCAB, &sampling);
}

// ---- the generator ------------------------------------------------------------------------------

// The known answer of the generator's authors for a zero key and a zero counter.
TEST(sampler_philox_gives_the_published_word) {
    CHECK_UINT(berth_philox(0, 0), 0x6627e8d5u);
}

TEST(sampler_philox_depends_on_every_half_of_key_and_counter) {
    const uint32_t base = berth_philox(0, 0);
    CHECK(berth_philox(1, 0) != base);
    CHECK(berth_philox(UINT64_C(1) << 32, 0) != base);
    CHECK(berth_philox(0, 1) != base);
    CHECK(berth_philox(0, UINT64_C(1) << 32) != base);
}

// ---- single rules -------------------------------------------------------------------------------

TEST(sampler_greedy_takes_the_maximum_and_the_lowest_id_of_a_tie) {
    const float logits[VOCAB] = {0.5F, 3.0F, -1.0F, 3.0F, 2.0F};
    CHECK_INT(sample(logits, 0, 0, 0), 1);
}

TEST(sampler_passes_over_nan_and_minus_infinity) {
    const float logits[VOCAB] = {NAN, -INFINITY, 1.0F, -INFINITY, NAN};
    CHECK_INT(sample(logits, 0, 0, 0), 2);
    for (uint64_t index = 0; index < 32; ++index) {
        CHECK_INT(sample(logits, 1.0, 7, index), 2);
    }
}

TEST(sampler_refuses_logits_without_a_finite_maximum) {
    const float rows[][VOCAB] = {
        {NAN,  NAN,  -INFINITY, NAN,  NAN },
        {1.0F, 2.0F, INFINITY,  3.0F, 4.0F},
    };
    bench b;
    open_bench(&b, VOCAB, 1);
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        const berth_sampling sampling = {.size = sizeof sampling};
        int32_t token = 0;
        CHECK_STATUS(berth_sample_token(&b.sampler, rows[i], &sampling, &token), BERTH_INTERNAL);
    }
    close_bench(&b);
}

TEST(sampler_never_chooses_a_banned_id) {
    const float logits[VOCAB] = {9.0F, 8.0F, 7.0F, -3.0F, 9.0F};
    const int32_t banned[] = {0, 4, 1, -1, 77}; // two of them are no ids at all
    berth_sampling sampling = {
        .size = sizeof sampling,
        .banned_ids = banned,
        .banned_count = BERTH_COUNT(banned),
    };
    CHECK_INT(sample_as(logits, VOCAB, &sampling), 2);
    sampling.temperature = 100;
    for (sampling.index = 0; sampling.index < 64; ++sampling.index) {
        const int32_t token = sample_as(logits, VOCAB, &sampling);
        CHECK(token == 2 || token == 3);
    }
}

TEST(sampler_penalties_change_which_logit_is_largest) {
    const float logits[VOCAB] = {2.0F, 1.9F, 1.5F, -1.0F, 1.0F};
    const int32_t prompt[] = {0};
    const int32_t output[] = {1, 1, 2};
    berth_sampling sampling = {
        .size = sizeof sampling,
        .prompt_ids = prompt,
        .prompt_count = BERTH_COUNT(prompt),
        .output_ids = output,
        .output_count = BERTH_COUNT(output),
    };
    CHECK_INT(sample_as(logits, VOCAB, &sampling), 0);
    sampling.presence_penalty = -0.2; // an id of the prompt alone is not touched by it
    CHECK_INT(sample_as(logits, VOCAB, &sampling), 1);
    sampling.presence_penalty = 0;
    sampling.repetition_penalty = 2.5; // 0.8, 0.76, 0.6, -1, 1
    CHECK_INT(sample_as(logits, VOCAB, &sampling), 4);
    sampling.frequency_penalty = -0.15; // 0.8, 1.06, 0.75, -1, 1
    CHECK_INT(sample_as(logits, VOCAB, &sampling), 1);
}

TEST(sampler_repetition_lowers_a_negative_logit) {
    const float logits[VOCAB] = {-1.0F, -1.5F, -9.0F, -9.0F, -9.0F};
    const int32_t seen[] = {0};
    const berth_sampling sampling = {
        .size = sizeof sampling,
        .repetition_penalty = 2,
        .output_ids = seen,
        .output_count = 1,
    };
    CHECK_INT(sample_as(logits, VOCAB, &sampling), 1);
}

TEST(sampler_top_k_keeps_the_lower_ids_of_a_tie) {
    const float logits[VOCAB] = {1.0F, 2.0F, 2.0F, 2.0F, 0.0F};
    berth_sampling sampling = {.size = sizeof sampling, .temperature = 1, .top_k = 2};
    bool is_seen[VOCAB] = {false};
    for (sampling.index = 0; sampling.index < 64; ++sampling.index) {
        is_seen[sample_as(logits, VOCAB, &sampling)] = true;
    }
    CHECK(is_seen[1] && is_seen[2]);
    CHECK(!is_seen[0] && !is_seen[3] && !is_seen[4]);
}

TEST(sampler_top_p_is_satisfied_by_a_share_that_is_reached_exactly) {
    const float logits[VOCAB] = {0.0F, 0.0F, 0.0F, 0.0F, -INFINITY};
    berth_sampling sampling = {.size = sizeof sampling, .temperature = 1, .top_p = 0.5};
    bool is_seen[VOCAB] = {false};
    for (sampling.index = 0; sampling.index < 64; ++sampling.index) {
        is_seen[sample_as(logits, VOCAB, &sampling)] = true;
    }
    CHECK(is_seen[0] && is_seen[1] && !is_seen[2] && !is_seen[3] && !is_seen[4]);
}

TEST(sampler_smallest_filters_leave_the_likeliest) {
    const float logits[VOCAB] = {0.1F, 0.4F, 0.2F, 0.4F, 0.0F};
    const berth_sampling filters[] = {
        {.temperature = 1, .top_k = 1},
        {                .temperature = 1,   .top_p = 1e-9          },
        { .temperature = 1,      .min_p = 1,                .top_k = 1},
    };
    for (size_t i = 0; i < BERTH_COUNT(filters); ++i) {
        berth_sampling sampling = filters[i];
        for (sampling.index = 0; sampling.index < 16; ++sampling.index) {
            CHECK_INT(sample_as(logits, VOCAB, &sampling), 1);
        }
    }
}

TEST(sampler_weights_are_powers_of_e) {
    static const float logits[] = {3, 2.5F, -1, -40.25F, -500, -900, NAN, -INFINITY, 2.9999F};
    double weights[BERTH_COUNT(logits)];
    berth_weigh(logits, BERTH_COUNT(logits), 3, 0.7, weights);
    for (size_t i = 0; i < BERTH_COUNT(logits); ++i) {
        const double power = exp(((double)logits[i] - 3) / 0.7);
        const double wanted = power > 1e-304 ? power : 0; // NaN and what is below e^-700
        CHECK(fabs(weights[i] - wanted) <= 1e-12 * wanted);
    }
    berth_weigh(logits, 2, 3, 1e-310, weights);
    CHECK(weights[0] == 1 && weights[1] == 0);
}

TEST(sampler_frequencies_follow_the_softmax) {
    const float logits[VOCAB] = {0.0F, 1.0F, 2.0F, -1.0F, 0.5F};
    const int draws = 20000;
    int counts[VOCAB] = {0};
    double sum = 0;
    for (int i = 0; i < draws; ++i) {
        ++counts[sample(logits, 1.0, 42, (uint64_t)i)];
    }
    for (int i = 0; i < VOCAB; ++i) {
        sum += exp((double)logits[i]);
    }
    for (int i = 0; i < VOCAB; ++i) {
        CHECK_NEAR((double)counts[i] / draws, exp((double)logits[i]) / sum, 0.015);
    }
}

// ---- the definition, computed the long way ------------------------------------------------------

typedef struct entry {
    float logit;
    int32_t id;
    double probability;
} entry;

static int by_likelihood(const void *a, const void *b) {
    const entry *x = a;
    const entry *y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->id < y->id ? -1 : 1;
}

static uint32_t times_in(const int32_t *ids, uint64_t count, int32_t id) {
    uint32_t times = 0;
    for (uint64_t i = 0; i < count; ++i) {
        times += ids[i] == id;
    }
    return times;
}

static float penalized(float logit, int32_t id, const berth_sampling *s) {
    const uint32_t in_prompt = times_in(s->prompt_ids, s->prompt_count, id);
    const uint32_t in_output = times_in(s->output_ids, s->output_count, id);
    if (times_in(s->banned_ids, s->banned_count, id) > 0 || isnan(logit)) {
        return -INFINITY;
    }
    if (s->repetition_penalty != 0 && in_prompt + in_output > 0) {
        const float penalty = (float)s->repetition_penalty;
        logit = logit > 0 ? logit / penalty : logit * penalty;
    }
    logit -= (float)s->frequency_penalty * (float)in_output;
    return in_output > 0 ? logit - (float)s->presence_penalty : logit;
}

static size_t cut_min_p(const entry *all, size_t count, double min_p) {
    size_t kept = 0;
    while (kept < count && all[kept].probability >= min_p * all[0].probability) {
        ++kept;
    }
    return kept;
}

static size_t cut_top_p(const entry *all, size_t count, double top_p) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        sum += all[i].probability;
    }
    double passed = 0;
    size_t kept = 0;
    while (kept < count && passed < top_p * sum) {
        passed += all[kept++].probability;
    }
    return kept;
}

static int32_t draw(const entry *all, size_t count, const berth_sampling *s) {
    const double u = (double)berth_philox(s->seed, s->index) / 4294967296.0;
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        sum += all[i].probability;
    }
    double passed = 0;
    for (size_t i = 0; i < count; ++i) {
        passed += all[i].probability;
        if (passed > u * sum) {
            return all[i].id;
        }
    }
    return all[count - 1].id;
}

static int32_t expected_token(const float *logits, size_t vocab_size, const berth_sampling *s) {
    entry all[MAX_VOCAB];
    size_t count = vocab_size;
    for (size_t i = 0; i < count; ++i) {
        all[i] = (entry){.id = (int32_t)i, .logit = penalized(logits[i], (int32_t)i, s)};
    }
    qsort(all, count, sizeof *all, by_likelihood);
    if (s->temperature == 0) {
        return all[0].id;
    }
    for (size_t i = 0; i < count; ++i) {
        all[i].probability = exp(((double)all[i].logit - (double)all[0].logit) / s->temperature);
    }
    count = s->min_p > 0 ? cut_min_p(all, count, s->min_p) : count;
    count = s->top_k > 0 && s->top_k < count ? s->top_k : count;
    count = s->top_p > 0 ? cut_top_p(all, count, s->top_p) : count;
    return draw(all, count, s);
}

typedef struct generator {
    uint64_t seed;
    uint64_t index;
} generator;

static uint32_t below(generator *g, uint32_t limit) {
    return (uint32_t)((uint64_t)berth_philox(g->seed, g->index++) * limit >> 32);
}

// A number of this order, or 0 in half of the cases.
static double maybe(generator *g, double lowest, double highest) {
    const double share = (double)below(g, 1000) / 999.0;
    return below(g, 2) ? lowest + share * (highest - lowest) : 0;
}

// Some logits are equal to others and some are not there at all.
static void make_logits(generator *g, float *logits, size_t count) {
    const uint32_t steps = below(g, 2) ? 7 : 100000;
    const float width = below(g, 2) ? 1.0F : 30.0F;
    for (size_t i = 0; i < count; ++i) {
        logits[i] = ((float)below(g, steps) / (float)steps - 0.5F) * width;
        if (below(g, 50) == 0) {
            logits[i] = below(g, 2) ? NAN : -INFINITY;
        }
    }
    logits[below(g, (uint32_t)count)] = 0; // one is finite
}

static void make_sampling(generator *g, berth_sampling *s) {
    *s = (berth_sampling){
        .size = sizeof *s,
        .temperature = maybe(g, 0.01, 3),
        .seed = below(g, 1000),
        .index = below(g, 1000),
        .top_k = (uint64_t)maybe(g, 1, 60),
        .top_p = maybe(g, 0.01, 1),
        .min_p = maybe(g, 0.001, 0.7),
        .presence_penalty = maybe(g, -2, 2),
        .frequency_penalty = maybe(g, -2, 2),
        .repetition_penalty = maybe(g, 0.2, 3),
    };
}

TEST(sampler_agrees_with_the_definition_computed_the_long_way) {
    generator g = {.seed = 11};
    int32_t prompt[40];
    int32_t output[40];
    float logits[MAX_VOCAB];
    bench b;
    open_bench(&b, MAX_VOCAB, 1);
    for (int round = 0; round < 4000; ++round) {
        const size_t vocab_size = 1 + below(&g, MAX_VOCAB);
        berth_sampling s;
        make_logits(&g, logits, vocab_size);
        make_sampling(&g, &s);
        for (size_t i = 0; i < BERTH_COUNT(prompt); ++i) {
            prompt[i] = (int32_t)below(&g, (uint32_t)vocab_size);
            output[i] = (int32_t)below(&g, (uint32_t)vocab_size);
        }
        s.prompt_ids = prompt;
        s.prompt_count = below(&g, 40);
        s.output_ids = output;
        s.output_count = below(&g, 40);
        int32_t token = -1;
        b.sampler.vocab_size = vocab_size;
        CHECK_OK(berth_sample_token(&b.sampler, logits, &s, &token));
        CHECK_INT(token, expected_token(logits, vocab_size, &s));
    }
    close_bench(&b);
}

// ---- a step -------------------------------------------------------------------------------------

TEST(sampler_gives_the_chosen_id_first_and_then_the_likeliest_as_the_model_had_them) {
    const float logits[2 * VOCAB] = {0,    0,    0, 0,    0, // not sampled
                                     1.0F, 3.0F, 2, 3.0F, NAN};
    const int32_t banned[] = {1, 3};
    const berth_sampling sampling = {
        .size = sizeof sampling,
        .logprobs = 4,
        .banned_ids = banned,
        .banned_count = BERTH_COUNT(banned),
    };
    const berth_sampling *rows[] = {NULL, &sampling};
    berth_model_output out = {.row_count = 2, .logits = logits};
    bench b;
    open_bench(&b, VOCAB, 2);
    CHECK_OK(berth_sampler_run(&b.sampler, rows, &out));
    const int32_t *ids = out.logprob_ids + out.logprob_stride;
    const float *values = out.logprobs + out.logprob_stride;
    const int32_t expected[] = {2, 1, 3, 2, -1};
    const double total = log(exp(1) + 2 * exp(3) + exp(2));
    CHECK_INT(out.token_ids[0], -1);
    CHECK_INT(out.token_ids[1], 2);
    CHECK_INT(out.logprob_ids[0], -1);
    CHECK_BYTES(ids, expected, sizeof expected);
    CHECK_INT(out.chosen_ranks[1], 3);
    CHECK_NEAR(values[0], 2 - total, 1e-6);
    CHECK_NEAR(values[1], 3 - total, 1e-6);
    close_bench(&b);
}

TEST(sampler_gives_no_more_logprobs_than_there_are_ids) {
    const float logits[VOCAB] = {1, 2, 3, 4, 5};
    const berth_sampling sampling = {.size = sizeof sampling, .logprobs = BERTH_LOGPROBS_MAX};
    const berth_sampling *rows[] = {&sampling};
    berth_model_output out = {.row_count = 1, .logits = logits};
    bench b;
    open_bench(&b, VOCAB, 1);
    CHECK_OK(berth_sampler_run(&b.sampler, rows, &out));
    const int32_t expected[] = {4, 4, 3, 2, 1, 0, -1};
    CHECK_BYTES(out.logprob_ids, expected, sizeof expected);
    CHECK_INT(out.logprob_ids[BERTH_LOGPROBS_MAX - 1], -1);
    CHECK_INT(out.chosen_ranks[0], 1);
    close_bench(&b);
}

TEST(sampler_tells_that_nobody_asked_for_logprobs) {
    const float logits[VOCAB] = {1, 2, 3, 4, 5};
    const berth_sampling sampling = {.size = sizeof sampling};
    const berth_sampling *rows[] = {&sampling};
    berth_model_output out = {.row_count = 1, .logits = logits};
    bench b;
    open_bench(&b, VOCAB, 1);
    CHECK_OK(berth_sampler_run(&b.sampler, rows, &out));
    CHECK_NULL(out.logprobs);
    CHECK_NULL(out.logprob_ids);
    CHECK_NULL(out.chosen_ranks);
    close_bench(&b);
}

TEST(sampler_logprobs_are_those_of_the_definition) {
    generator g = {.seed = 5};
    float logits[MAX_VOCAB];
    for (int round = 0; round < 300; ++round) {
        const size_t vocab_size = 22 + below(&g, MAX_VOCAB - 22);
        entry all[MAX_VOCAB];
        double sum = 0;
        make_logits(&g, logits, vocab_size);
        for (size_t i = 0; i < vocab_size; ++i) {
            all[i] = (entry){.id = (int32_t)i, .logit = isnan(logits[i]) ? -INFINITY : logits[i]};
            sum += exp((double)all[i].logit);
        }
        qsort(all, vocab_size, sizeof *all, by_likelihood);
        const size_t chosen = below(&g, 20);
        int32_t ids[BERTH_LOGPROBS_MAX];
        float values[BERTH_LOGPROBS_MAX];
        berth_logprob_row row = {.ids = ids, .values = values, .entries = BERTH_LOGPROBS_MAX};
        berth_logprobs_fill(logits, vocab_size, all[chosen].id, &row);
        CHECK_INT(ids[0], all[chosen].id);
        CHECK_NEAR(values[0], (double)all[chosen].logit - log(sum), 1e-5);
        for (size_t i = 1; i < BERTH_LOGPROBS_MAX; ++i) {
            CHECK_INT(ids[i], all[i - 1].id);
            CHECK_NEAR(values[i], (double)all[i - 1].logit - log(sum), 1e-5);
        }
        CHECK(row.rank >= (int32_t)chosen + 1);
    }
}

// The worst case for a sort: nothing is likelier than anything else.
TEST(sampler_takes_a_flat_vocabulary_of_real_size_without_allocating) {
    enum { SIZE = 152064 };
    bench b;
    open_bench(&b, SIZE, 1);
    berth_arena *arena;
    CHECK_OK(berth_arena_create(1 << 16, 1 << 24, &arena));
    float *logits = BERTH_ARENA_ARRAY(arena, float, SIZE);
    CHECK(logits != NULL);
    const berth_sampling sampling = {
        .size = sizeof sampling,
        .temperature = 1,
        .top_p = 0.9,
        .seed = 3,
        .logprobs = 21,
        .presence_penalty = 1,
    };
    const berth_sampling *rows[] = {&sampling};
    berth_model_output out = {.row_count = 1, .logits = logits};
    const uint64_t before = berth_memory_allocations();
    CHECK_OK(berth_sampler_run(&b.sampler, rows, &out));
    CHECK_UINT(berth_memory_allocations(), before);
    // Of equal ones the lower ids come first: the share of ids that u passes is u itself.
    const double u = (double)berth_philox(3, 0) * 0x1p-32;
    CHECK_NEAR(out.token_ids[0], u * 0.9 * SIZE, 1.5);
    CHECK_INT(out.chosen_ranks[0], SIZE);
    berth_arena_destroy(arena);
    close_bench(&b);
}
