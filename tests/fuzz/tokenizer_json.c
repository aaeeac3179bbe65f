// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json: refused, or a tokenizer that works.
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

#define TEXT_BYTES ((size_t)1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The text need not come back (a pre-tokenizer may drop some of it), but every id must have one.
static void use(const berth_tokenizer *tokenizer, berth_str text) {
    berth_token_ids ids = {0};
    berth_text decoded;
    berth_text_init(&decoded, TEXT_BYTES);
    const uint32_t flags = BERTH_ENCODE_ADD_SPECIAL | BERTH_ENCODE_PARSE_SPECIAL;
    if (berth_tokenizer_encode(tokenizer, text, flags, &ids) == BERTH_OK &&
        berth_tokenizer_decode(tokenizer, ids.data, ids.count, 0, &decoded) != BERTH_OK &&
        berth_status_code() != BERTH_OUT_OF_MEMORY) {
        abort();
    }
    berth_text_deinit(&decoded);
    berth_array_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    berth_tokenizer *tokenizer;
    const berth_str json = {.data = (const char *)data, .size = size};
    if (berth_tokenizer_parse(json, (berth_str){0}, &tokenizer) == BERTH_OK) {
        use(tokenizer,
            BERTH_STR("It's  the east,\n\n and Juliet 123 \xE6\x97\xA5\xE6\x9C\xAC <s>"));
        berth_tokenizer_close(tokenizer);
    }
    return 0;
}
