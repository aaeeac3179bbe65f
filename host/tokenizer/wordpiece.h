// SPDX-License-Identifier: Apache-2.0
// WordLevel and WordPiece: a word is one token, or is cut from the left into the longest ones.
#ifndef BERTH_TOKENIZER_WORDPIECE_H
#define BERTH_TOKENIZER_WORDPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

typedef struct berth_wordpiece {
    const berth_vocabulary *vocabulary; // borrowed
    int32_t unknown_id;                 // of a word that cannot be cut; -1: it is refused
    bool is_cut;                        // WordPiece
    berth_str prefix;                   // of pieces behind the first; of the arena
    size_t longest;                     // characters of a word that is cut at all
} berth_wordpiece;

// What one thread needs to encode; zeroed is ready.
typedef struct berth_wordpiece_scratch {
    berth_text piece;
} berth_wordpiece_scratch;

// From the model of a tokenizer.json, WordPiece where `is_cut`. `wordpiece` has its vocabulary,
// which was read before.
BERTH_MUST_CHECK berth_status berth_wordpiece_read(berth_wordpiece *wordpiece, berth_arena *arena,
                                                   const berth_json *model, bool is_cut);
// Appends the ids of a word, which is not empty.
BERTH_MUST_CHECK berth_status berth_wordpiece_encode(const berth_wordpiece *wordpiece,
                                                     berth_str word,
                                                     berth_wordpiece_scratch *scratch,
                                                     berth_token_ids *ids);
void berth_wordpiece_scratch_deinit(berth_wordpiece_scratch *scratch);

#endif
