// SPDX-License-Identifier: Apache-2.0
// Added tokens: spellings that are found in a text before it is cut into words.
#ifndef BERTH_TOKENIZER_ADDED_H
#define BERTH_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/json.h"
#include "base/str.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/vocabulary.h"

typedef struct berth_added_token {
    berth_str content;  // borrowed from the vocabulary
    berth_str spelling; // what is searched for: the content, normalized where the search is
    int32_t id;
    bool is_special;
    bool is_normalized; // found in the normalized text, after the others
    bool is_whole_word; // only where no letter, digit or mark touches it
    bool takes_left;    // swallows the white space before it
    bool takes_right;   // and behind it
} berth_added_token;

#define BERTH_ADDED_WRITTEN    0 // searched for in this order: in the text as it is written,
#define BERTH_ADDED_NORMALIZED 1 // and in the normalized text
#define BERTH_ADDED_LISTS      2

typedef struct berth_added {
    berth_array(berth_added_token) tokens;       // in the order of the file
    berth_added_token *lists[BERTH_ADDED_LISTS]; // sorted by spelling; of the arena
    size_t counts[BERTH_ADDED_LISTS];
    bool starts[BERTH_ADDED_LISTS][256]; // the bytes that a spelling begins with
} berth_added;

// Adds an entry of added_tokens, and to the vocabulary what that lacks. A later entry of the same
// content replaces the earlier one.
BERTH_MUST_CHECK berth_status berth_added_read(berth_added *added, berth_vocabulary *vocabulary,
                                               berth_arena *arena, int64_t id,
                                               const berth_json *entry);
// Makes a token of the vocabulary an added special one; what it was added as stays.
BERTH_MUST_CHECK berth_status berth_added_name(berth_added *added, berth_vocabulary *vocabulary,
                                               int32_t id);
// Makes the lists: after the last of these two calls, before the first search. A token that the
// normalizer changes is decoded from what it makes of it, too, so that the decoder can undo it; the
// vocabulary has that in `bytes` then.
BERTH_MUST_CHECK berth_status berth_added_finish(berth_added *added, berth_vocabulary *vocabulary,
                                                 berth_arena *arena,
                                                 const berth_normalizer *normalizer);
void berth_added_deinit(berth_added *added);

// One search through one text. Zeroed but for the first four members is its start.
typedef struct berth_added_search {
    const berth_added *added;
    size_t list;
    bool skips_special; // special tokens are plain text
    berth_str text;     // valid UTF-8
    size_t at;          // where it goes on
    size_t end;         // of the last token found, swallowed white space included
} berth_added_search;

// Finds the next token, the longest of those that begin first: NULL when there is none. `out_start`
// is where it begins with what it swallows, search->end where it ends.
const berth_added_token *berth_added_next(berth_added_search *search, size_t *out_start);

#endif
