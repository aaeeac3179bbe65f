// SPDX-License-Identifier: Apache-2.0
// Tokens to the text of an output, which ends before the first stop string.
//
// Text that may be the start of a stop string waits until it is known not to be one, and no longer:
// each stop string counts how much of it stands at the end of the text so far.
#include <string.h>

#include "engine/engine_private.h"

// fallback[i]: the longest true start of text[0 .. i] that is also its end.
static void fill_fallback(const berth_stop *stop) {
    uint32_t matched = 0;
    for (size_t i = 1; i < stop->text.size; ++i) {
        while (matched > 0 && stop->text.data[i] != stop->text.data[matched]) {
            matched = stop->fallback[matched - 1];
        }
        matched += stop->text.data[i] == stop->text.data[matched];
        stop->fallback[i] = matched;
    }
}

static berth_status copy_stops(const berth_request *request, berth_arena *arena,
                               berth_reply *reply) {
    reply->stop_count = request->stop_string_count;
    reply->stops = BERTH_ARENA_ARRAY(arena, berth_stop, reply->stop_count);
    for (size_t i = 0; i < reply->stop_count && reply->stops; ++i) {
        const berth_str text = request->stop_strings[i];
        berth_stop *stop = &reply->stops[i];
        stop->text = (berth_str){.data = berth_arena_copy(arena, text), .size = text.size};
        stop->fallback = BERTH_ARENA_ARRAY(arena, uint32_t, text.size);
        if (!stop->text.data || !stop->fallback) {
            return berth_arena_exhausted(arena, "a request's stop strings");
        }
        fill_fallback(stop);
    }
    return reply->stops ? BERTH_OK : berth_arena_exhausted(arena, "a request's stop strings");
}

// The text of one token; empty for an id that the tokenizer lacks, which models have whose
// vocabulary was rounded up.
static berth_str text_of(const berth_reply *reply, int32_t token) {
    berth_str text = {0};
    if (berth_detokenizer_push(reply->detokenizer, token, &text) != BERTH_OK) {
        berth_status_clear();
        return (berth_str){0};
    }
    return text;
}

berth_status berth_reply_init(const berth_request *request, berth_arena *arena,
                              berth_reply *reply) {
    if (!request->tokenizer) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_detokenizer_create(request->tokenizer, BERTH_DECODE_SKIP_SPECIAL,
                                       &reply->detokenizer));
    BERTH_TRY(copy_stops(request, arena, reply));
    reply->unstoppable = request->min_tokens;
    size_t longest = 0;
    for (size_t i = 0; i < reply->stop_count; ++i) {
        longest = reply->stops[i].text.size > longest ? reply->stops[i].text.size : longest;
    }
    // What waits, what a token adds and what the end adds.
    const size_t room = longest + 2 * berth_detokenizer_limit(reply->detokenizer);
    reply->buffer = berth_arena_alloc(arena, room, 1);
    // The output goes on where the prompt ends, in the middle of a character if need be.
    for (size_t i = 0; i < request->prompt_count; ++i) {
        (void)text_of(reply, request->prompt[i]);
    }
    return reply->buffer ? BERTH_OK : berth_arena_exhausted(arena, "a request's text");
}

static void add(berth_reply *reply, berth_str text) {
    if (text.size > 0) {
        memcpy(reply->buffer + reply->size, text.data, text.size);
        reply->size += text.size;
    }
}

// Whether `byte` completes the stop string.
static bool advance(berth_stop *stop, char byte) {
    while (stop->matched > 0 && stop->text.data[stop->matched] != byte) {
        stop->matched = stop->fallback[stop->matched - 1];
    }
    stop->matched += stop->text.data[stop->matched] == byte;
    if (stop->matched < stop->text.size) {
        return false;
    }
    stop->matched = stop->fallback[stop->matched - 1];
    return true;
}

static const berth_stop *advance_all(berth_reply *reply, char byte) {
    const berth_stop *found = NULL;
    for (size_t i = 0; i < reply->stop_count; ++i) {
        if (advance(&reply->stops[i], byte) && !found) {
            found = &reply->stops[i];
        }
    }
    return found;
}

static size_t count_waiting(const berth_reply *reply) {
    size_t waiting = 0;
    for (size_t i = 0; i < reply->stop_count; ++i) {
        waiting = reply->stops[i].matched > waiting ? reply->stops[i].matched : waiting;
    }
    return waiting;
}

void berth_reply_next(berth_reply *reply) {
    reply->size -= reply->certain;
    if (reply->size > 0) {
        memmove(reply->buffer, reply->buffer + reply->certain, reply->size);
    }
    reply->certain = 0;
}

const berth_stop *berth_reply_push(berth_reply *reply, int32_t token) {
    if (!reply->detokenizer) {
        return NULL;
    }
    const bool can_stop = reply->unstoppable == 0;
    reply->unstoppable -= can_stop ? 0 : 1;
    const size_t old = reply->size;
    add(reply, text_of(reply, token));
    for (size_t i = old; i < reply->size; ++i) {
        const berth_stop *found = advance_all(reply, reply->buffer[i]);
        if (found && can_stop) {
            reply->size = i + 1 - found->text.size;
            reply->certain = reply->size;
            return found;
        }
    }
    reply->certain = reply->size - count_waiting(reply);
    return NULL;
}

void berth_reply_finish(berth_reply *reply) {
    if (reply->detokenizer) {
        add(reply, berth_detokenizer_finish(reply->detokenizer));
        reply->certain = reply->size;
    }
}

berth_str berth_reply_text(const berth_reply *reply) {
    return (berth_str){.data = reply->buffer, .size = reply->certain};
}

void berth_reply_deinit(berth_reply *reply) {
    berth_detokenizer_destroy(reply->detokenizer);
    reply->detokenizer = NULL;
}
