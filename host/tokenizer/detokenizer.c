// SPDX-License-Identifier: Apache-2.0
// Ids to text. Bytes wait until they are a character, or can no longer become one.
//
// Why complete characters never wait for the end of a run of bytes, though the reference makes
// every byte of a run U+FFFD when one of them is broken: a stream would have to hold back all of a
// run.
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/parts.h"

#define TAIL_BYTES  3 // the most that can wait
#define REPLACEMENT "\xEF\xBF\xBD"
#define BLOCK_BYTES 256

struct berth_detokenizer {
    berth_arena *arena; // owns this struct too
    const berth_tokenizer *tokenizer;
    uint32_t flags;
    bool has_begun;     // a token was decoded
    int32_t previous;   // it, once there is one
    berth_str more;     // how it goes on when another follows,
    berth_str end;      // and how when it was the last
    size_t strip_count; // how often the text may still begin with what is left out
    char *bytes;        // those that wait, then those of the token at hand
    size_t waiting;
    char *text; // the result: at most one U+FFFD for each byte
};

// A token, what waits, and the end of the token before where only this one decides about it.
static size_t token_bytes(const berth_tokenizer *tokenizer) {
    const berth_decoding *decoding = &tokenizer->decoding;
    return decoding->longest * (decoding->lasts ? 2 : 1) + TAIL_BYTES;
}

static size_t text_bytes(const berth_tokenizer *tokenizer) {
    return token_bytes(tokenizer) * strlen(REPLACEMENT);
}

berth_status berth_detokenizer_create(const berth_tokenizer *tokenizer, uint32_t flags,
                                      berth_detokenizer **out_detokenizer) {
    const size_t room = token_bytes(tokenizer);
    const size_t text_room = text_bytes(tokenizer);
    const size_t block = BLOCK_BYTES + sizeof(berth_detokenizer) + room + text_room;
    berth_arena *arena;
    *out_detokenizer = NULL;
    BERTH_TRY(berth_arena_create(block, 2 * block, &arena));
    berth_detokenizer *d = BERTH_ARENA_NEW(arena, berth_detokenizer);
    char *bytes = berth_arena_alloc(arena, room, 1);
    char *text = berth_arena_alloc(arena, text_room, 1);
    if (!d || !bytes || !text) {
        const berth_status status = berth_arena_exhausted(arena, "a detokenizer");
        berth_arena_destroy(arena);
        return status;
    }
    *d = (berth_detokenizer){
        .arena = arena,
        .tokenizer = tokenizer,
        .flags = flags,
        .strip_count = tokenizer->decoding.strip_count,
        .more = BERTH_STR(""),
        .end = BERTH_STR(""),
        .bytes = bytes,
        .text = text,
    };
    *out_detokenizer = d;
    return BERTH_OK;
}

size_t berth_detokenizer_limit(const berth_detokenizer *d) {
    return text_bytes(d->tokenizer);
}

static berth_str strip_start(berth_detokenizer *d, berth_str text) {
    const berth_str stripped = d->tokenizer->decoding.stripped;
    while (d->strip_count > 0 && berth_str_starts_with(text, stripped)) {
        text = berth_str_slice(text, stripped.size, SIZE_MAX);
        --d->strip_count;
    }
    if (text.size > 0) {
        d->strip_count = 0;
    }
    return text;
}

// The first `size` bytes as text, with U+FFFD for what is broken.
static berth_str take_text(berth_detokenizer *d, size_t size) {
    const berth_str bytes = {.data = d->bytes, .size = size};
    size_t written = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        const size_t step = berth_utf8_next(berth_str_slice(bytes, at, SIZE_MAX), &code);
        const bool is_bad = code == BERTH_UTF8_BAD;
        const berth_str piece = is_bad ? BERTH_STR(REPLACEMENT) : berth_str_slice(bytes, at, step);
        const size_t times = is_bad && d->tokenizer->decoding.marks_every_byte ? step : 1;
        for (size_t i = 0; i < times; ++i) {
            memcpy(d->text + written, piece.data, piece.size);
            written += piece.size;
        }
        at += step;
    }
    return strip_start(d, (berth_str){.data = d->text, .size = written});
}

static bool is_left_out(const berth_detokenizer *d, int32_t id, const berth_token *token) {
    const bool is_repeated =
        d->tokenizer->decoding.drops_repeats && d->has_begun && d->previous == id;
    return is_repeated || (token->is_special && d->flags & BERTH_DECODE_SKIP_SPECIAL);
}

// Behind the bytes that wait.
static void add_bytes(berth_detokenizer *d, berth_str bytes) {
    memcpy(d->bytes + d->waiting, bytes.data, bytes.size);
    d->waiting += bytes.size;
}

// Keeps of a token's bytes the end that it would not have as the last. Returns what is before it.
static berth_str keep_end(berth_detokenizer *d, berth_str bytes, berth_str as_last) {
    size_t same = 0;
    while (same < bytes.size && same < as_last.size && bytes.data[same] == as_last.data[same]) {
        ++same;
    }
    d->more = berth_str_slice(bytes, same, SIZE_MAX);
    d->end = berth_str_slice(as_last, same, SIZE_MAX);
    return berth_str_slice(bytes, 0, same);
}

berth_status berth_detokenizer_push(berth_detokenizer *d, int32_t id, berth_str *out_text) {
    const berth_decoding *decoding = &d->tokenizer->decoding;
    const berth_token *token = berth_vocabulary_get(&d->tokenizer->vocabulary, id);
    if (!token) {
        return BERTH_FAIL(INVALID_ARGUMENT, "id %d has no token: ids are below %zu", id,
                          berth_tokenizer_size(d->tokenizer));
    }
    *out_text = (berth_str){.data = d->text, .size = 0};
    if (is_left_out(d, id, token)) {
        return BERTH_OK;
    }
    berth_str bytes = decoding->firsts && !d->has_begun ? decoding->firsts[id] : token->bytes;
    if (decoding->lasts) {
        add_bytes(d, d->more);
        bytes = keep_end(d, bytes, decoding->lasts[id]);
    }
    add_bytes(d, bytes);
    d->has_begun = true;
    d->previous = id;
    const size_t size = d->waiting;
    d->waiting = berth_utf8_tail_bytes((berth_str){.data = d->bytes, .size = size});
    *out_text = take_text(d, size - d->waiting);
    memmove(d->bytes, d->bytes + size - d->waiting, d->waiting);
    return BERTH_OK;
}

berth_str berth_detokenizer_finish(berth_detokenizer *d) {
    add_bytes(d, d->end);
    const size_t size = d->waiting;
    d->waiting = 0;
    d->more = d->end = BERTH_STR("");
    const berth_str text = take_text(d, size);
    d->has_begun = false;
    d->strip_count = d->tokenizer->decoding.strip_count;
    return text;
}

void berth_detokenizer_destroy(berth_detokenizer *d) {
    if (d) {
        berth_arena_destroy(d->arena);
    }
}

static berth_status decode(berth_detokenizer *d, const int32_t *ids, size_t count,
                           berth_text *text) {
    for (size_t i = 0; i < count; ++i) {
        berth_str piece;
        BERTH_TRY(berth_detokenizer_push(d, ids[i], &piece));
        berth_text_add(text, piece);
    }
    berth_text_add(text, berth_detokenizer_finish(d));
    return berth_text_finish(text, NULL);
}

berth_status berth_tokenizer_decode(const berth_tokenizer *tokenizer, const int32_t *ids,
                                    size_t count, uint32_t flags, berth_text *text) {
    berth_detokenizer *d;
    BERTH_TRY(berth_detokenizer_create(tokenizer, flags, &d));
    const berth_status status = decode(d, ids, count, text);
    berth_detokenizer_destroy(d);
    return status;
}
