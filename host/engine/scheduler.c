// SPDX-License-Identifier: Apache-2.0
// What the next step computes. There are no phases: every sequence's computed count catches up with
// its token count, first come first served, as far as the budgets of tokens and logits rows and the
// pools of blocks and slots allow.
#include <assert.h>

#include "engine/engine_private.h"

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Gives up the youngest running sequence: it will be computed again from its tokens.
static void preempt_last(berth_engine *engine) {
    berth_sequence *last = &engine->sequences.data[--engine->running];
    berth_groups_return(&engine->groups, last);
    berth_slots_return(&engine->slots, last);
    last->computed = 0;
    last->scheduled = 0;
    ++engine->stats.preemptions;
}

// Rows of the step whose logits the sequence wants when it computes `tokens` more.
static int64_t rows_of(const berth_sequence *sequence, int64_t tokens) {
    if (sequence->wants_logits) {
        return tokens;
    }
    return sequence->computed + tokens == sequence->token_count ? 1 : 0;
}

// What is left of the step.
typedef struct budget {
    int64_t tokens;
    int64_t rows;
} budget;

static int64_t count_tokens(const berth_engine *engine, const berth_sequence *sequence,
                            const budget *left) {
    int64_t tokens = smaller(sequence->token_count - sequence->computed, left->tokens);
    tokens = smaller(tokens, engine->chunk);
    return sequence->wants_logits ? smaller(tokens, left->rows) : tokens;
}

static void take(berth_sequence *sequence, int64_t tokens, budget *left) {
    sequence->scheduled = tokens;
    sequence->row_count = rows_of(sequence, tokens);
    left->tokens -= tokens;
    left->rows -= sequence->row_count;
}

// Sequences that hold blocks go on; one that needs a further block takes it from younger ones.
// Returns whether nobody had to give way.
static bool continue_running(berth_engine *engine, budget *left) {
    const size_t running = engine->running;
    for (size_t i = 0; i < engine->running && left->tokens > 0 && left->rows > 0; ++i) {
        berth_sequence *sequence = &engine->sequences.data[i];
        const int64_t tokens = count_tokens(engine, sequence, left);
        while (!berth_groups_cover(&engine->groups, sequence, sequence->computed + tokens)) {
            preempt_last(engine);
            if (i == engine->running) {
                return false; // it was the youngest itself
            }
        }
        take(sequence, tokens, left);
    }
    return engine->running == running;
}

// Takes the next one in, with what the step has left for it.
static void admit(berth_engine *engine, berth_sequence *sequence, budget *left) {
    const int64_t tokens = count_tokens(engine, sequence, left);
    const bool is_covered =
        berth_groups_cover(&engine->groups, sequence, sequence->computed + tokens);
    assert(is_covered); // all of it fits
    (void)is_covered;
    berth_slots_take(&engine->slots, sequence);
    engine->stats.cached_tokens += (uint64_t)sequence->computed;
    ++engine->running;
    take(sequence, tokens, left);
}

// Those that wait come in as long as the whole of the next one fits into the free blocks. Why the
// whole of it: half a prompt would hold blocks that the others need to end.
static void admit_waiting(berth_engine *engine, budget *left) {
    for (size_t i = 0; i < engine->groups.count; ++i) {
        engine->groups.all[i].promised = 0;
    }
    for (size_t i = 0; i < engine->running; ++i) {
        berth_groups_promise(&engine->groups, &engine->sequences.data[i]);
    }
    while (engine->running < engine->sequences.count &&
           engine->running < (size_t)engine->max_sequences && left->tokens > 0 && left->rows > 0) {
        berth_sequence *sequence = &engine->sequences.data[engine->running];
        if (!berth_slots_have(&engine->slots) || !berth_prefix_admit(&engine->groups, sequence)) {
            return;
        }
        admit(engine, sequence, left);
        berth_groups_promise(&engine->groups, sequence);
    }
}

int64_t berth_engine_schedule(berth_engine *engine) {
    budget left = {.tokens = engine->max_tokens, .rows = engine->max_rows};
    for (size_t i = 0; i < engine->sequences.count; ++i) {
        engine->sequences.data[i].scheduled = 0;
    }
    // Why nobody comes in beside one that had to go: it would be that one.
    if (continue_running(engine, &left)) {
        admit_waiting(engine, &left);
    }
    return engine->max_tokens - left.tokens;
}
