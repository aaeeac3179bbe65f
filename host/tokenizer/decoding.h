// SPDX-License-Identifier: Apache-2.0
// The decoder: what text a token stands for. All of it that looks at one token alone is done while
// the file is read, and the tokens keep the result.
#ifndef BERTH_TOKENIZER_DECODING_H
#define BERTH_TOKENIZER_DECODING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "tokenizer/vocabulary.h"

typedef struct berth_decoding {
    size_t longest;          // bytes of the token that decodes to the most
    const berth_str *firsts; // by id: what a token is at the start of a text; NULL: as elsewhere
    const berth_str *lasts;  // by id: what a token is at the end of a text; NULL: as elsewhere
    bool drops_repeats;      // of equal tokens in a row only the first counts
    berth_str stripped;      // a character that is left out where a text begins with it,
    size_t strip_count;      // this many times at most
    bool marks_every_byte;   // U+FFFD stands for each byte of a broken piece, not for the piece
} berth_decoding;

// From the decoder of a tokenizer.json, which may be NULL. Fills in the bytes of every token of the
// vocabulary, which is complete. A component that is not supported, or not where it stands, is
// UNSUPPORTED.
BERTH_MUST_CHECK berth_status berth_decoding_read(berth_decoding *decoding, berth_arena *arena,
                                                  berth_vocabulary *vocabulary,
                                                  const berth_json *json);

#endif
