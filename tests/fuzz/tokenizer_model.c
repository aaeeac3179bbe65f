// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.model: refused, or a tokenizer whose every id has a text.
#include <stdlib.h>

#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer.h"

#define TEXT_BYTES ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "It's  the east,\n and <s>Juliet</s> \u2581\u65E5e\u0301 \U0001F999";

static void use(const berth_tokenizer *tokenizer) {
    berth_token_ids ids = {0};
    berth_text decoded;
    berth_text_init(&decoded, TEXT_BYTES);
    const berth_str input = {.data = text, .size = sizeof(text) - 1};
    if (berth_tokenizer_encode(tokenizer, input, BERTH_ENCODE_PARSE_SPECIAL, &ids) == BERTH_OK &&
        berth_tokenizer_decode(tokenizer, ids.data, ids.count, 0, &decoded) != BERTH_OK &&
        berth_status_code() != BERTH_OUT_OF_MEMORY) {
        abort();
    }
    berth_text_deinit(&decoded);
    berth_array_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    berth_tokenizer *tokenizer;
    const berth_str model = {.data = (const char *)data, .size = size};
    if (berth_tokenizer_parse_model(model, &tokenizer) == BERTH_OK) {
        use(tokenizer);
        berth_tokenizer_close(tokenizer);
    }
    return 0;
}
