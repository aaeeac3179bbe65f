// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as a checkpoint's tokenizer.json says: BPE of bytes or of characters,
// Unigram, WordPiece and WordLevel, with the normalizer, pre-tokenizer, added tokens, template and
// decoder that stand in the file. The engine and the command line call it; it knows neither models
// nor devices.
//
// What a file asks for and this module lacks is UNSUPPORTED and names the component; it is never
// approximated. A file that contradicts itself is CORRUPT and names the place.
#ifndef BERTH_TOKENIZER_H
#define BERTH_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/str.h"
#include "base/text.h"

// Immutable: any number of threads may use one.
typedef struct berth_tokenizer berth_tokenizer;
// The text of one stream of ids; one thread at a time.
typedef struct berth_detokenizer berth_detokenizer;

typedef berth_array(int32_t) berth_token_ids;

// Flags of encode.
#define BERTH_ENCODE_ADD_SPECIAL   1u // put around the text what the post-processor says (bos, …)
#define BERTH_ENCODE_PARSE_SPECIAL 2u // special tokens spelt out in the text become their ids
// Flags of decode.
#define BERTH_DECODE_SKIP_SPECIAL 1u // special tokens give no text

#define BERTH_TOKENIZER_TEXT_BYTES ((size_t)1 << 28) // the longest text that encode takes

// Reads tokenizer.json of a checkpoint directory or, where there is none, the tokenizer.model of
// SentencePiece or vocab.json and merges.txt as the tokenizer_class of tokenizer_config.json does;
// that file may say more in either case.
BERTH_MUST_CHECK berth_status berth_tokenizer_open(const char *directory,
                                                   berth_tokenizer **out_tokenizer);
// The same from memory. An empty `config_json` stands for no tokenizer_config.json.
BERTH_MUST_CHECK berth_status berth_tokenizer_parse(berth_str tokenizer_json, berth_str config_json,
                                                    berth_tokenizer **out_tokenizer);

// The same from the bytes of a tokenizer.model.
BERTH_MUST_CHECK berth_status berth_tokenizer_parse_model(berth_str model,
                                                          berth_tokenizer **out_tokenizer);

// Appends the ids of `text`. INVALID_ARGUMENT names the offset of a byte that is not UTF-8. On
// failure the ids are as they were.
BERTH_MUST_CHECK berth_status berth_tokenizer_encode(const berth_tokenizer *tokenizer,
                                                     berth_str text, uint32_t flags,
                                                     berth_token_ids *ids);
// Appends the text of `count` ids, which is always UTF-8: bytes that form no character become
// U+FFFD, one for each maximal piece of a broken one with ByteLevel and one for each byte with
// ByteFallback. INVALID_ARGUMENT names an id without a token; the text of those before it is there
// then.
BERTH_MUST_CHECK berth_status berth_tokenizer_decode(const berth_tokenizer *tokenizer,
                                                     const int32_t *ids, size_t count,
                                                     uint32_t flags, berth_text *text);

// Ids lie below this; a file may leave some of them without a token.
size_t berth_tokenizer_size(const berth_tokenizer *tokenizer);
// A token as tokenizer.json spells it ("Ġthe"), borrowed; empty with NULL data where there is none.
berth_str berth_tokenizer_token(const berth_tokenizer *tokenizer, int32_t id);
// The id of a token spelt as in tokenizer.json, or -1.
int32_t berth_tokenizer_find(const berth_tokenizer *tokenizer, berth_str content);
bool berth_tokenizer_is_special(const berth_tokenizer *tokenizer, int32_t id);
// What tokenizer_config.json names as bos_token and eos_token, or -1.
int32_t berth_tokenizer_bos(const berth_tokenizer *tokenizer);
int32_t berth_tokenizer_eos(const berth_tokenizer *tokenizer);

void berth_tokenizer_close(berth_tokenizer *tokenizer);

// What its calls give, joined, is what berth_tokenizer_decode gives for the same ids. The tokenizer
// is borrowed for the detokenizer's life. push and finish allocate nothing.
BERTH_MUST_CHECK berth_status berth_detokenizer_create(const berth_tokenizer *tokenizer,
                                                       uint32_t flags,
                                                       berth_detokenizer **out_detokenizer);
// The text that this id completes, borrowed until the next call; empty while a character is still
// missing bytes. INVALID_ARGUMENT for an id without a token leaves the stream as it was.
BERTH_MUST_CHECK berth_status berth_detokenizer_push(berth_detokenizer *detokenizer, int32_t id,
                                                     berth_str *out_text);
// No text that push or finish gives is longer.
size_t berth_detokenizer_limit(const berth_detokenizer *detokenizer);
// What was held back, as U+FFFD, borrowed until the next call. Afterwards a new stream may begin.
berth_str berth_detokenizer_finish(berth_detokenizer *detokenizer);
void berth_detokenizer_destroy(berth_detokenizer *detokenizer);

#endif
