// SPDX-License-Identifier: Apache-2.0
// The engine's turn: schedule, execute, sample, give every sequence its token, let finished ones
// go.
#include "engine/engine_private.h"

#include <string.h>

#define ENGINE_BLOCK_BYTES   (1u << 20)
#define ENGINE_LIMIT_BYTES   (1u << 30)
#define SEQUENCE_BLOCK_BYTES (16u << 10)
#define SEQUENCE_LIMIT_BYTES (256u << 20)

// ---- life ---------------------------------------------------------------------------------------

static berth_status prepare(berth_engine *engine, const berth_config *config) {
    engine->max_tokens = config->max_num_batched_tokens;
    engine->max_sequences = config->max_num_seqs;
    engine->max_rows = config->max_logits_rows > config->max_num_seqs ? config->max_logits_rows
                                                                      : config->max_num_seqs;
    engine->chunk = config->chunk > 0 ? config->chunk : config->max_num_batched_tokens;
    BERTH_TRY(berth_engine_start(engine, config));
    engine->outputs = BERTH_ARENA_ARRAY(engine->arena, berth_output, (size_t)engine->max_sequences);
    if (!engine->outputs) {
        return berth_arena_exhausted(engine->arena, "a step's outputs");
    }
    return berth_batch_init(engine);
}

berth_status berth_engine_create(const berth_config *config, berth_worker *worker,
                                 berth_engine **out_engine) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(ENGINE_BLOCK_BYTES, ENGINE_LIMIT_BYTES, &arena));
    berth_engine *engine = BERTH_ARENA_NEW(arena, berth_engine);
    if (!engine) {
        const berth_status status = berth_arena_exhausted(arena, "an engine");
        berth_arena_destroy(arena);
        return status;
    }
    engine->arena = arena;
    engine->worker = worker;
    const berth_status status = prepare(engine, config);
    if (status != BERTH_OK) {
        berth_engine_destroy(engine);
        return status;
    }
    *out_engine = engine;
    return BERTH_OK;
}

void berth_engine_destroy(berth_engine *engine) {
    if (!engine) {
        return;
    }
    for (size_t i = 0; i < engine->sequences.count; ++i) {
        berth_arena_destroy(engine->sequences.data[i].arena);
    }
    berth_array_free(&engine->sequences);
    berth_arena_destroy(engine->arena);
}

int64_t berth_engine_max_model_len(const berth_engine *engine) {
    return engine->max_model_len;
}

// ---- requests -----------------------------------------------------------------------------------

static berth_status check_request(const berth_engine *engine, const berth_request *request) {
    if (request->prompt_count == 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "the prompt is empty: give at least one token");
    }
    if (request->max_tokens < 1) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%lld output tokens asked for, at least 1 is needed",
                          (long long)request->max_tokens);
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

// Everything the sequence can ever hold, in its own arena.
static berth_status reserve(const berth_engine *engine, const berth_request *request,
                            berth_sequence *sequence) {
    const int64_t wanted = (int64_t)request->prompt_count <= INT64_MAX - request->max_tokens
                               ? (int64_t)request->prompt_count + request->max_tokens
                               : INT64_MAX;
    const int64_t limit = wanted < engine->max_model_len ? wanted : engine->max_model_len;
    const int64_t block = engine->pool.block_size;
    BERTH_TRY(berth_arena_create(SEQUENCE_BLOCK_BYTES, SEQUENCE_LIMIT_BYTES, &sequence->arena));
    sequence->token_limit = limit;
    sequence->tokens = BERTH_ARENA_ARRAY(sequence->arena, int32_t, (size_t)limit);
    sequence->blocks =
        BERTH_ARENA_ARRAY(sequence->arena, int32_t, (size_t)((limit + block - 1) / block));
    sequence->stop_ids = BERTH_ARENA_ARRAY(sequence->arena, int32_t, request->stop_count);
    return sequence->tokens && sequence->blocks && sequence->stop_ids
               ? BERTH_OK
               : berth_arena_exhausted(sequence->arena, "a request");
}

static void fill(const berth_request *request, berth_sequence *sequence) {
    memcpy(sequence->tokens, request->prompt, request->prompt_count * sizeof(int32_t));
    if (request->stop_count > 0) {
        memcpy(sequence->stop_ids, request->stop_ids, request->stop_count * sizeof(int32_t));
    }
    sequence->prompt_count = (int64_t)request->prompt_count;
    sequence->token_count = sequence->prompt_count;
    sequence->stop_count = request->stop_count;
    sequence->wants_logits = request->wants_logits;
    sequence->sampling = (berth_sampling){
        .size = sizeof(berth_sampling),
        .temperature = request->temperature,
        .seed = request->seed,
    };
}

berth_status berth_engine_add(berth_engine *engine, const berth_request *request,
                              uint64_t *out_id) {
    BERTH_TRY(check_request(engine, request));
    BERTH_TRY(berth_array_reserve(&engine->sequences, engine->sequences.count + 1));
    berth_sequence sequence = {.id = ++engine->next_id};
    const berth_status status = reserve(engine, request, &sequence);
    if (status != BERTH_OK) {
        berth_arena_destroy(sequence.arena);
        return status;
    }
    fill(request, &sequence);
    engine->sequences.data[engine->sequences.count++] = sequence;
    *out_id = sequence.id;
    return BERTH_OK;
}

static void remove_at(berth_engine *engine, size_t index) {
    berth_sequence *sequence = &engine->sequences.data[index];
    berth_pool_return(&engine->pool, sequence);
    berth_arena_destroy(sequence->arena);
    --engine->sequences.count;
    memmove(sequence, sequence + 1, (engine->sequences.count - index) * sizeof *sequence);
    if (index < engine->running) {
        --engine->running;
    }
}

void berth_engine_abort(berth_engine *engine, uint64_t id) {
    for (size_t i = 0; i < engine->sequences.count; ++i) {
        if (engine->sequences.data[i].id == id) {
            remove_at(engine, i);
            return;
        }
    }
}

bool berth_engine_is_idle(const berth_engine *engine) {
    return engine->sequences.count == 0;
}

// ---- a step -------------------------------------------------------------------------------------

static bool is_stop(const berth_sequence *sequence, int32_t token) {
    for (size_t i = 0; i < sequence->stop_count; ++i) {
        if (sequence->stop_ids[i] == token) {
            return true;
        }
    }
    return false;
}

static berth_finish accept(berth_sequence *sequence, int32_t token) {
    sequence->tokens[sequence->token_count++] = token;
    ++sequence->sampling.index;
    if (is_stop(sequence, token)) {
        return BERTH_FINISH_STOP;
    }
    return sequence->token_count >= sequence->token_limit ? BERTH_FINISH_LENGTH
                                                          : BERTH_FINISH_NOT_YET;
}

// What the step gave one sequence; nothing for a piece of a prompt whose logits nobody wants.
static void report(berth_engine *engine, berth_sequence *sequence,
                   const berth_model_output *result) {
    if (sequence->row_count == 0) {
        return;
    }
    const int64_t last = sequence->first_row + sequence->row_count - 1;
    const int32_t token = result->token_ids ? result->token_ids[last] : -1;
    berth_output output = {
        .request = sequence->id,
        .token = token,
        .first_position = (size_t)(sequence->computed - sequence->row_count),
    };
    if (sequence->wants_logits) {
        output.logits = result->logits + (uint64_t)sequence->first_row * result->vocab_size;
        output.logits_rows = (size_t)sequence->row_count;
    }
    if (token >= 0) {
        output.finish = accept(sequence, token);
    }
    engine->outputs[engine->output_count++] = output;
}

static bool anybody_wants_logits(const berth_engine *engine) {
    for (size_t i = 0; i < engine->running; ++i) {
        const berth_sequence *sequence = &engine->sequences.data[i];
        if (sequence->scheduled > 0 && sequence->wants_logits) {
            return true;
        }
    }
    return false;
}

static bool anything_is_sampled(const berth_batch_arrays *arrays) {
    for (int64_t row = 0; row < arrays->batch.logits_row_count; ++row) {
        if (arrays->sampling[row]) {
            return true;
        }
    }
    return false;
}

// execute_model in its three manners: ready, asynchronous, pending.
static berth_status execute(berth_engine *engine, berth_model_output *out) {
    const berth_batch_arrays *arrays = &engine->arrays;
    const berth_scheduler_output input = {
        .size = sizeof input,
        .batch = &arrays->batch,
        .sampling = anything_is_sampled(arrays) ? arrays->sampling : NULL,
        .want_logits = anybody_wants_logits(engine),
    };
    BERTH_TRY(berth_worker_execute(engine->worker, &input, out));
    if (out->state == BERTH_OUTPUT_PENDING) {
        BERTH_TRY(berth_worker_sample(engine->worker, &input, out));
    }
    return out->state == BERTH_OUTPUT_ASYNC ? berth_worker_wait(engine->worker, out) : BERTH_OK;
}

static void collect(berth_engine *engine, const berth_model_output *result) {
    for (size_t i = 0; i < engine->running; ++i) {
        berth_sequence *sequence = &engine->sequences.data[i];
        if (sequence->scheduled > 0) {
            sequence->computed += sequence->scheduled;
            report(engine, sequence, result);
        }
    }
    for (size_t i = 0; i < engine->output_count; ++i) {
        if (engine->outputs[i].finish != BERTH_FINISH_NOT_YET) {
            berth_engine_abort(engine, engine->outputs[i].request);
        }
    }
}

berth_status berth_engine_step(berth_engine *engine, const berth_output **out_outputs,
                               size_t *out_count) {
    *out_outputs = engine->outputs;
    *out_count = 0;
    engine->output_count = 0;
    if (berth_engine_is_idle(engine)) {
        return BERTH_OK;
    }
    if (berth_engine_schedule(engine) == 0) {
        return BERTH_FAIL(INTERNAL, "the scheduler found nothing to compute for %zu requests",
                          engine->sequences.count);
    }
    berth_batch_fill(engine);
    berth_model_output result = {.size = sizeof result};
    BERTH_TRY(execute(engine, &result));
    collect(engine, &result);
    *out_count = engine->output_count;
    return BERTH_OK;
}
