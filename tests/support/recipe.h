// SPDX-License-Identifier: Apache-2.0
// A small tokenizer.json for a test: BPE with nothing but what the test is about.
#ifndef TEST_RECIPE_H
#define TEST_RECIPE_H

#include "tokenizer/tokenizer.h"

// Members of a tokenizer.json as JSON text; NULL takes a plain one. Ids 0 to 255 are the bytes.
typedef struct recipe {
    bool is_of_characters; // words are characters, and <0x00> to <0xFF> their bytes
    const char *vocab;     // members after the bytes: ",\"ab\":256"
    const char *merges;    // "[\"a b\"]"
    const char *options;   // members of the model: ",\"ignore_merges\":true"
    const char *added_tokens;
    const char *normalizer;
    const char *pre_tokenizer;
    const char *post_processor;
    const char *decoder;
    const char *config; // tokenizer_config.json
} recipe;

// Two special tokens for `added_tokens`, and a `post_processor` that frames a text with them.
#define SPECIALS                                                                                   \
    "[{\"id\":256,\"content\":\"<s>\",\"special\":true},"                                          \
    "{\"id\":257,\"content\":\"</s>\",\"special\":true}]"
#define FRAME                                                                                      \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"            \
    "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}],"                         \
    "\"special_tokens\":{\"<s>\":{\"ids\":[256]},\"</s>\":{\"ids\":[257,256]}}}"

BERTH_MUST_CHECK berth_status parse_recipe(const recipe *r, berth_tokenizer **out_tokenizer);
// The same where the test stops on a failure.
berth_tokenizer *open_recipe(const recipe *r);

// The ids of `text` are those in `expected`, a list with a blank before each but the first.
void check_ids(const berth_tokenizer *tokenizer, berth_str text, uint32_t flags,
               const char *expected);
// The text of the ids is `expected`.
void check_text(const berth_tokenizer *tokenizer, const int32_t *ids, size_t count,
                berth_str expected);

#endif
