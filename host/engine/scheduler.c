// SPDX-License-Identifier: Apache-2.0
// What the next step computes. There are no phases: every sequence's computed count catches up with
// its token count, first come first served, as far as the budgets of tokens and logits rows and the
// pool of blocks allow.
#include "engine/engine_private.h"

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Gives up the youngest running sequence: it will be computed again from its tokens.
static void preempt_last(berth_engine *engine) {
    berth_sequence *last = &engine->sequences.data[--engine->running];
    berth_pool_return(&engine->pool, last);
    last->computed = 0;
    last->scheduled = 0;
}

// Blocks for sequence `index`, taken from younger ones if need be. False: it has to wait itself.
static bool make_room(berth_engine *engine, size_t index, int64_t tokens) {
    berth_sequence *sequence = &engine->sequences.data[index];
    while (!berth_pool_cover(&engine->pool, sequence, tokens)) {
        if (index >= engine->running) {
            return false; // not admitted yet: nobody gives way to a newcomer
        }
        preempt_last(engine);
        if (index >= engine->running) {
            return false;
        }
    }
    return true;
}

// Rows of the step whose logits the sequence wants when it computes `tokens` more.
static int64_t rows_of(const berth_sequence *sequence, int64_t tokens) {
    if (sequence->wants_logits) {
        return tokens;
    }
    return sequence->computed + tokens == sequence->token_count ? 1 : 0;
}

int64_t berth_engine_schedule(berth_engine *engine) {
    int64_t budget = engine->max_tokens;
    int64_t rows = engine->max_rows;
    for (size_t i = 0; i < engine->sequences.count; ++i) {
        engine->sequences.data[i].scheduled = 0;
    }
    for (size_t i = 0; i < engine->sequences.count && budget > 0 && rows > 0; ++i) {
        berth_sequence *sequence = &engine->sequences.data[i];
        if (i >= engine->running && i >= (size_t)engine->max_sequences) {
            break;
        }
        int64_t tokens = smaller(sequence->token_count - sequence->computed, budget);
        tokens = smaller(tokens, engine->chunk);
        tokens = sequence->wants_logits ? smaller(tokens, rows) : tokens;
        if (!make_room(engine, i, sequence->computed + tokens)) {
            break;
        }
        engine->running = i >= engine->running ? i + 1 : engine->running;
        sequence->scheduled = tokens;
        sequence->row_count = rows_of(sequence, tokens);
        budget -= tokens;
        rows -= sequence->row_count;
    }
    return engine->max_tokens - budget;
}
