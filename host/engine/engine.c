// SPDX-License-Identifier: Apache-2.0
// The engine's turn: schedule, execute, sample, give every sequence its token, let finished ones
// go.
#include "engine/engine_private.h"

#include <string.h>

#define ENGINE_BLOCK_BYTES (1u << 20)
#define ENGINE_LIMIT_BYTES (1u << 30)

// ---- life ---------------------------------------------------------------------------------------

static berth_status prepare(berth_engine *engine, const berth_config *config) {
    engine->max_tokens = config->max_num_batched_tokens;
    engine->max_sequences = config->max_num_seqs;
    engine->max_rows = config->max_logits_rows > config->max_num_seqs ? config->max_logits_rows
                                                                      : config->max_num_seqs;
    engine->chunk = config->chunk > 0 ? config->chunk : config->max_num_batched_tokens;
    BERTH_TRY(berth_engine_start(engine, config));
    engine->outputs = BERTH_ARENA_ARRAY(engine->arena, berth_output, (size_t)engine->max_sequences);
    engine->ended = BERTH_ARENA_ARRAY(engine->arena, berth_arena *, (size_t)engine->max_sequences);
    if (!engine->outputs || !engine->ended) {
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

// What the last step's outputs point to.
static void free_ended(berth_engine *engine) {
    while (engine->ended_count > 0) {
        berth_arena_destroy(engine->ended[--engine->ended_count]);
    }
}

void berth_engine_destroy(berth_engine *engine) {
    if (!engine) {
        return;
    }
    for (size_t i = 0; i < engine->sequences.count; ++i) {
        berth_sequence_destroy(&engine->sequences.data[i]);
    }
    berth_array_free(&engine->sequences);
    free_ended(engine);
    berth_arena_destroy(engine->arena);
}

int64_t berth_engine_max_model_len(const berth_engine *engine) {
    return engine->max_model_len;
}

berth_engine_stats berth_engine_get_stats(const berth_engine *engine) {
    berth_engine_stats stats = engine->stats;
    stats.running = engine->running;
    stats.waiting = engine->sequences.count - engine->running;
    return stats;
}

// ---- requests -----------------------------------------------------------------------------------

berth_status berth_engine_add(berth_engine *engine, const berth_request *request,
                              uint64_t *out_id) {
    BERTH_TRY(berth_array_reserve(&engine->sequences, engine->sequences.count + 1));
    berth_sequence sequence = {0};
    BERTH_TRY(berth_sequence_create(engine, request, &sequence));
    sequence.id = ++engine->next_id;
    engine->sequences.data[engine->sequences.count++] = sequence;
    *out_id = sequence.id;
    return BERTH_OK;
}

static berth_sequence *find_sequence(berth_engine *engine, uint64_t id) {
    for (size_t i = 0; i < engine->sequences.count; ++i) {
        if (engine->sequences.data[i].id == id) {
            return &engine->sequences.data[i];
        }
    }
    return NULL;
}

// Takes a sequence out of its place. Returns its memory, which the caller frees.
static berth_arena *remove_sequence(berth_engine *engine, berth_sequence *sequence) {
    const size_t index = (size_t)(sequence - engine->sequences.data);
    berth_arena *arena = berth_sequence_end(sequence);
    berth_groups_return(&engine->groups, sequence);
    berth_slots_return(&engine->slots, sequence);
    --engine->sequences.count;
    memmove(sequence, sequence + 1, (engine->sequences.count - index) * sizeof *sequence);
    if (index < engine->running) {
        --engine->running;
    }
    return arena;
}

void berth_engine_abort(berth_engine *engine, uint64_t id, berth_text *rest) {
    berth_sequence *sequence = find_sequence(engine, id);
    if (!sequence) {
        return;
    }
    if (rest) {
        berth_reply_next(&sequence->reply);
        berth_reply_finish(&sequence->reply);
        berth_text_add(rest, berth_reply_text(&sequence->reply));
    }
    berth_arena_destroy(remove_sequence(engine, sequence));
}

bool berth_engine_is_idle(const berth_engine *engine) {
    return engine->sequences.count == 0;
}

// ---- sleep --------------------------------------------------------------------------------------

berth_status berth_engine_sleep(berth_engine *engine, uint64_t level) {
    if (!berth_engine_is_idle(engine)) {
        return BERTH_FAIL(WRONG_STATE,
                          "sleep while %zu requests have not ended: let them end or abort them "
                          "before",
                          engine->sequences.count);
    }
    BERTH_TRY(berth_worker_sleep(engine->worker, level));
    berth_prefix_reset(&engine->groups);
    return BERTH_OK;
}

berth_status berth_engine_wake_up(berth_engine *engine, uint64_t tags) {
    return berth_worker_wake_up(engine->worker, tags);
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

static berth_finish finish_of(const berth_sequence *sequence, int32_t token) {
    const int64_t output_count = sequence->token_count - sequence->prompt_count;
    if (output_count > sequence->min_tokens && is_stop(sequence, token)) {
        return BERTH_FINISH_STOP;
    }
    return sequence->token_count >= sequence->token_limit ? BERTH_FINISH_LENGTH
                                                          : BERTH_FINISH_NOT_YET;
}

// The text of the new token; a stop string in it ends the output. A stop id is no part of the text.
static void add_text(berth_sequence *sequence, berth_output *output) {
    berth_reply *reply = &sequence->reply;
    berth_reply_next(reply);
    const berth_stop *stop =
        output->finish == BERTH_FINISH_STOP ? NULL : berth_reply_push(reply, output->token);
    if (stop) {
        output->finish = BERTH_FINISH_STOP;
        output->stop = stop->text;
    } else if (output->finish != BERTH_FINISH_NOT_YET) {
        berth_reply_finish(reply);
    }
    output->text = berth_reply_text(reply);
}

static void accept(berth_sequence *sequence, berth_output *output) {
    berth_sampling *sampling = &sequence->sampling;
    sequence->tokens[sequence->token_count++] = output->token;
    ++sampling->index;
    ++sampling->output_count;
    if ((int64_t)sampling->output_count >= sequence->min_tokens) {
        sampling->banned_count = 0;
    }
    output->finish = finish_of(sequence, output->token);
    add_text(sequence, output);
}

static void add_logprobs(const berth_sequence *sequence, const berth_model_output *result,
                         int64_t row, berth_output *output) {
    const uint64_t first = (uint64_t)row * result->logprob_stride;
    output->logprobs = result->logprobs + first;
    output->logprob_ids = result->logprob_ids + first;
    output->logprob_count = sequence->sampling.logprobs;
    output->rank = result->chosen_ranks[row];
    // Fewer where the vocabulary has fewer.
    while (output->logprob_count > 0 && output->logprob_ids[output->logprob_count - 1] < 0) {
        --output->logprob_count;
    }
}

// What the step gave one sequence; nothing for a piece of a prompt whose logits nobody wants.
static void report(berth_engine *engine, berth_sequence *sequence,
                   const berth_model_output *result) {
    if (sequence->row_count == 0) {
        return;
    }
    const int64_t last = sequence->first_row + sequence->row_count - 1;
    berth_output output = {
        .request = sequence->id,
        .token = result->token_ids ? result->token_ids[last] : -1,
        .first_position = (size_t)(sequence->computed - sequence->row_count),
    };
    if (sequence->wants_logits) {
        output.logits = result->logits + (uint64_t)sequence->first_row * result->vocab_size;
        output.logits_rows = (size_t)sequence->row_count;
    }
    if (output.token >= 0) {
        if (sequence->sampling.logprobs > 0) {
            add_logprobs(sequence, result, last, &output);
        }
        accept(sequence, &output);
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

// Whether the rows that were to be sampled have what was asked for. A worker may be anybody's.
static berth_status check_result(const berth_engine *engine, const berth_model_output *result) {
    const berth_batch_arrays *arrays = &engine->arrays;
    for (int64_t row = 0; row < arrays->batch.logits_row_count; ++row) {
        const berth_sampling *sampling = arrays->sampling[row];
        if (!sampling) {
            continue;
        }
        const int64_t token = result->token_ids ? result->token_ids[row] : -1;
        if (token < 0 || token >= engine->vocab_size) {
            return BERTH_FAIL(
                INTERNAL, "the worker's token for row %lld is %lld, the vocabulary ends at %lld",
                (long long)row, (long long)token, (long long)engine->vocab_size - 1);
        }
        if (sampling->logprobs > 0 &&
            (!result->logprobs || !result->logprob_ids || !result->chosen_ranks ||
             result->logprob_stride < sampling->logprobs)) {
            return BERTH_FAIL(UNSUPPORTED, "logprobs are asked for and the worker gives none");
        }
    }
    return BERTH_OK;
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
    if (out->state == BERTH_OUTPUT_ASYNC) {
        BERTH_TRY(berth_worker_wait(engine->worker, out));
    }
    return check_result(engine, out);
}

static void end_finished(berth_engine *engine) {
    for (size_t i = 0; i < engine->output_count; ++i) {
        if (engine->outputs[i].finish != BERTH_FINISH_NOT_YET) {
            berth_sequence *sequence = find_sequence(engine, engine->outputs[i].request);
            engine->ended[engine->ended_count++] = remove_sequence(engine, sequence);
        }
    }
}

static void collect(berth_engine *engine, const berth_model_output *result) {
    ++engine->stats.steps;
    for (size_t i = 0; i < engine->running; ++i) {
        berth_sequence *sequence = &engine->sequences.data[i];
        if (sequence->scheduled > 0) {
            sequence->computed += sequence->scheduled;
            engine->stats.computed_tokens += (uint64_t)sequence->scheduled;
            berth_prefix_store(&engine->groups, sequence);
            report(engine, sequence, result);
        }
    }
    end_finished(engine);
}

// After a failure nobody knows which layers have taken the step in, and a state cannot take it in
// twice: such sequences begin again. Keys and values are only written once more.
static void forget_states(berth_engine *engine) {
    for (size_t i = 0; i < engine->running; ++i) {
        berth_sequence *sequence = &engine->sequences.data[i];
        if (sequence->slot != 0 && sequence->scheduled > 0) {
            berth_groups_return(&engine->groups, sequence); // windows lack their first blocks
            sequence->computed = 0;
        }
    }
}

berth_status berth_engine_step(berth_engine *engine, const berth_output **out_outputs,
                               size_t *out_count) {
    *out_outputs = engine->outputs;
    *out_count = 0;
    engine->output_count = 0;
    free_ended(engine);
    if (berth_engine_is_idle(engine)) {
        return BERTH_OK;
    }
    if (berth_worker_asleep(engine->worker)) {
        return BERTH_FAIL(WRONG_STATE, "a step while the engine sleeps: wake_up comes before it");
    }
    if (berth_engine_schedule(engine) == 0) {
        return BERTH_FAIL(INTERNAL, "the scheduler found nothing to compute for %zu requests",
                          engine->sequences.count);
    }
    berth_batch_fill(engine);
    berth_model_output result = {.size = sizeof result};
    const berth_status status = execute(engine, &result);
    if (status != BERTH_OK) {
        forget_states(engine);
        return status;
    }
    collect(engine, &result);
    *out_count = engine->output_count;
    return BERTH_OK;
}
