// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json: refused, or a tokenizer that works.
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

#define TEXT_BYTES ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Blanks and added tokens, white space at both ends, marks to order and to compose, a character of
// each size, and what normal forms take apart.
static const char *const texts[] = {
    "It's  the east,\n\n and Juliet 123 \u65E5\u672C <s>East</s>",
    "\u3000 \u2581e\u0315\u0301\u0958 \uD55C\u1112\u1161\u11AB\uFB01\u0130 \U0001F999x\t ",
    "\u0301",
};

static void must_hold(bool holds) {
    if (!holds) {
        abort();
    }
}

// A stream gives valid text, and all of it is what the whole gives.
static void stream(const berth_tokenizer *tokenizer, const berth_token_ids *ids, uint32_t flags,
                   berth_str whole) {
    berth_detokenizer *detokenizer;
    berth_text streamed;
    if (berth_detokenizer_create(tokenizer, flags, &detokenizer) != BERTH_OK) {
        return;
    }
    berth_text_init(&streamed, TEXT_BYTES);
    for (size_t i = 0; i < ids->count; ++i) {
        berth_str piece;
        must_hold(berth_detokenizer_push(detokenizer, ids->data[i], &piece) == BERTH_OK);
        must_hold(berth_utf8_valid_bytes(piece) == piece.size);
        berth_text_add(&streamed, piece);
    }
    berth_text_add(&streamed, berth_detokenizer_finish(detokenizer));
    must_hold(berth_str_equal(berth_text_str(&streamed), whole));
    berth_text_deinit(&streamed);
    berth_detokenizer_destroy(detokenizer);
}

static void decode(const berth_tokenizer *tokenizer, const berth_token_ids *ids, uint32_t flags) {
    berth_text decoded;
    berth_text_init(&decoded, TEXT_BYTES);
    const berth_status status =
        berth_tokenizer_decode(tokenizer, ids->data, ids->count, flags, &decoded);
    must_hold(status == BERTH_OK || berth_status_code() == BERTH_OUT_OF_MEMORY);
    if (status == BERTH_OK) {
        stream(tokenizer, ids, flags, berth_text_str(&decoded));
    }
    berth_text_deinit(&decoded);
}

// The text need not come back (a pre-tokenizer may drop some of it), but every id must have one.
static void use(const berth_tokenizer *tokenizer, berth_str text) {
    berth_token_ids ids = {0};
    const uint32_t flags = BERTH_ENCODE_ADD_SPECIAL | BERTH_ENCODE_PARSE_SPECIAL;
    if (berth_tokenizer_encode(tokenizer, text, flags, &ids) == BERTH_OK) {
        decode(tokenizer, &ids, 0);
        decode(tokenizer, &ids, BERTH_DECODE_SKIP_SPECIAL);
    }
    berth_array_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    berth_tokenizer *tokenizer;
    const berth_str json = {.data = (const char *)data, .size = size};
    if (berth_tokenizer_parse(json, (berth_str){0}, &tokenizer) == BERTH_OK) {
        for (size_t i = 0; i < BERTH_COUNT(texts); ++i) {
            use(tokenizer, berth_str_from(texts[i]));
        }
        berth_tokenizer_close(tokenizer);
    }
    return 0;
}
