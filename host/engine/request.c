// SPDX-License-Identifier: Apache-2.0
// What a client asks for, checked, and a sequence with room for all that it can become.
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/engine_private.h"

#define SEQUENCE_BLOCK_BYTES (16u << 10)
#define SEQUENCE_LIMIT_BYTES (256u << 20)

// ---- checks -------------------------------------------------------------------------------------

static berth_status check_prompt(const berth_engine *engine, const berth_request *request) {
    if (request->prompt_count == 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "the prompt is empty: give at least one token");
    }
    if ((int64_t)request->prompt_count >= engine->max_model_len) {
        return BERTH_FAIL(
            INVALID_ARGUMENT,
            "the prompt has %zu tokens, the model's context holds %lld and the output "
            "needs at least 1: shorten the prompt",
            request->prompt_count, (long long)engine->max_model_len);
    }
    for (size_t i = 0; i < request->prompt_count; ++i) {
        if (request->prompt[i] < 0 || request->prompt[i] >= engine->vocab_size) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "token %zu of the prompt is %d, the vocabulary ends at %lld", i,
                              (int)request->prompt[i], (long long)engine->vocab_size - 1);
        }
    }
    return BERTH_OK;
}

static berth_status check_length(const berth_request *request) {
    if (request->max_tokens < 1) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%lld output tokens asked for, at least 1 is needed",
                          (long long)request->max_tokens);
    }
    if (request->min_tokens < 0 || request->min_tokens > request->max_tokens) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "min_tokens is %lld, it must lie between 0 and max_tokens, %lld",
                          (long long)request->min_tokens, (long long)request->max_tokens);
    }
    return BERTH_OK;
}

// The ranges are vLLM's, and 0 besides, which is off.
static berth_status check_sampling(const berth_request *request) {
    const struct {
        const char *name;
        double value, lowest, highest;
    } rows[] = {
        {"temperature",        request->temperature,        0,  INFINITY},
        {"top_k",              (double)request->top_k,      0,  INFINITY},
        {"top_p",              request->top_p,              0,  1       },
        {"min_p",              request->min_p,              0,  1       },
        {"presence_penalty",   request->presence_penalty,   -2, 2       },
        {"frequency_penalty",  request->frequency_penalty,  -2, 2       },
        {"repetition_penalty", request->repetition_penalty, 0,  INFINITY},
        {"logprobs",           (double)request->logprobs,   0,  20 + 1  },
    };
    _Static_assert(BERTH_LOGPROBS_MAX == 20 + 1, "the last row");
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        const double value = rows[i].value;
        if (!isfinite(value) || value < rows[i].lowest || value > rows[i].highest) {
            return BERTH_FAIL(INVALID_ARGUMENT, "%s is %g, it must be finite and from %g to %g",
                              rows[i].name, value, rows[i].lowest, rows[i].highest);
        }
    }
    return BERTH_OK;
}

static berth_status check_stops(const berth_request *request) {
    if (request->stop_string_count > 0 && !request->tokenizer) {
        return BERTH_FAIL(INVALID_ARGUMENT, "stop strings need text: give the request a tokenizer");
    }
    for (size_t i = 0; i < request->stop_string_count; ++i) {
        if (request->stop_strings[i].size == 0) {
            return BERTH_FAIL(INVALID_ARGUMENT, "stop string %zu is empty: leave it out", i);
        }
        BERTH_TRY(berth_utf8_check(request->stop_strings[i], "a stop string"));
    }
    return BERTH_OK;
}

// ---- the sequence -------------------------------------------------------------------------------

// Entries for every block that it can ever have, in each group.
static berth_status reserve_blocks(const berth_engine *engine, berth_sequence *sequence) {
    const berth_token_groups *groups = &engine->groups;
    sequence->blocks = BERTH_ARENA_ARRAY(sequence->arena, berth_block_list, groups->count);
    for (size_t i = 0; sequence->blocks && i < groups->count; ++i) {
        const int64_t blocks = berth_pool_blocks(&groups->all[i].pool, sequence->token_limit);
        sequence->blocks[i].ids = BERTH_ARENA_ARRAY(sequence->arena, int32_t, (size_t)blocks);
        if (!sequence->blocks[i].ids) {
            return berth_arena_exhausted(sequence->arena, "a request");
        }
    }
    return sequence->blocks ? BERTH_OK : berth_arena_exhausted(sequence->arena, "a request");
}

static berth_status reserve(const berth_engine *engine, const berth_request *request,
                            berth_sequence *sequence) {
    berth_arena *arena = sequence->arena;
    const int64_t prompt = (int64_t)request->prompt_count;
    const int64_t wanted =
        prompt <= INT64_MAX - request->max_tokens ? prompt + request->max_tokens : INT64_MAX;
    const int64_t limit = wanted < engine->max_model_len ? wanted : engine->max_model_len;
    sequence->token_limit = limit;
    sequence->tokens = BERTH_ARENA_ARRAY(arena, int32_t, (size_t)limit);
    sequence->stop_ids = BERTH_ARENA_ARRAY(arena, int32_t, request->stop_count);
    if (!sequence->tokens || !sequence->stop_ids) {
        return berth_arena_exhausted(arena, "a request");
    }
    BERTH_TRY(reserve_blocks(engine, sequence));
    return berth_reply_init(request, arena, &sequence->reply);
}

// What does nothing is written as 0, so that the sampler has nothing to do.
static berth_sampling sampling_of(const berth_request *request, const berth_sequence *sequence) {
    return (berth_sampling){
        .size = sizeof(berth_sampling),
        .temperature = request->temperature,
        .seed = request->seed,
        .top_k = (uint64_t)request->top_k,
        .top_p = request->top_p < 1 ? request->top_p : 0,
        .min_p = request->min_p,
        .presence_penalty = request->presence_penalty,
        .frequency_penalty = request->frequency_penalty,
        .repetition_penalty = request->repetition_penalty != 1 ? request->repetition_penalty : 0,
        .logprobs = request->logprobs,
        .prompt_ids = sequence->tokens,
        .prompt_count = request->prompt_count,
        .output_ids = sequence->tokens + request->prompt_count,
        .banned_ids = sequence->stop_ids,
        .banned_count = request->min_tokens > 0 ? request->stop_count : 0,
    };
}

static void fill(const berth_request *request, berth_sequence *sequence) {
    memcpy(sequence->tokens, request->prompt, request->prompt_count * sizeof(int32_t));
    if (request->stop_count > 0) {
        memcpy(sequence->stop_ids, request->stop_ids, request->stop_count * sizeof(int32_t));
    }
    sequence->prompt_count = (int64_t)request->prompt_count;
    sequence->token_count = sequence->prompt_count;
    sequence->min_tokens = request->min_tokens;
    sequence->stop_count = request->stop_count;
    sequence->wants_logits = request->wants_logits;
    // Logits of the whole prompt have to be computed, all of them.
    sequence->skips_prefix_cache = request->skips_prefix_cache || request->wants_logits;
    sequence->sampling = sampling_of(request, sequence);
}

berth_status berth_sequence_create(const berth_engine *engine, const berth_request *request,
                                   berth_sequence *sequence) {
    BERTH_TRY(check_prompt(engine, request));
    BERTH_TRY(check_length(request));
    BERTH_TRY(check_sampling(request));
    BERTH_TRY(check_stops(request));
    BERTH_TRY(berth_arena_create(SEQUENCE_BLOCK_BYTES, SEQUENCE_LIMIT_BYTES, &sequence->arena));
    const berth_status status = reserve(engine, request, sequence);
    if (status != BERTH_OK) {
        berth_sequence_destroy(sequence);
        return status;
    }
    fill(request, sequence);
    return BERTH_OK;
}

berth_arena *berth_sequence_end(berth_sequence *sequence) {
    berth_reply_deinit(&sequence->reply);
    return sequence->arena;
}

void berth_sequence_destroy(berth_sequence *sequence) {
    berth_arena_destroy(berth_sequence_end(sequence));
}
