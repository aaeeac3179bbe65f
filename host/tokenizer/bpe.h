// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: a word begins as its bytes or its characters, and the pair of neighbours that
// the file merges first is joined until no pair is left.
#ifndef BERTH_TOKENIZER_BPE_H
#define BERTH_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

typedef struct berth_merge {
    int32_t left, right, joined; // ids
    uint32_t rank;               // from 1, the lowest first; 0: a free place of the table
} berth_merge;

typedef struct berth_bpe {
    const berth_vocabulary *vocabulary; // borrowed
    berth_merge *merges;                // a hash table by (left, right); of the arena
    uint32_t merge_bits;                // it has 2^merge_bits places
    bool is_byte_level;                 // words are bytes that the alphabet spells
    int32_t byte_ids[256];              // of the bytes, or of "<0x00>" and so on; -1: there is none
    int32_t unknown_id;                 // of what has no token; -1: it is left out
    bool fuses_unknown;                 // several in a row are one
    bool takes_whole_words;             // ignore_merges: a word that is a token is not merged up
    berth_str prefix, suffix; // of what does not begin a word, and of what ends it; of the arena
} berth_bpe;

typedef struct berth_symbol {
    int32_t id;             // -1: joined into one on its left
    int32_t previous, next; // -1 at the ends
} berth_symbol;

typedef struct berth_candidate {
    uint32_t rank;
    int32_t left; // index of a symbol
    const berth_merge *merge;
} berth_candidate;

// What one thread needs to encode; zeroed is ready.
typedef struct berth_bpe_scratch {
    berth_array(berth_symbol) symbols;
    berth_array(berth_candidate) queue; // a heap: the lowest rank first, then the leftmost
    berth_array(char) spelling;
    berth_text affixed;
} berth_bpe_scratch;

// From the model of a tokenizer.json and a list of merges. `bpe` has its vocabulary, which was read
// before, and is_byte_level, which it loses where some byte has no token: words have to be spelt
// then.
BERTH_MUST_CHECK berth_status berth_bpe_read(berth_bpe *bpe, berth_arena *arena,
                                             const berth_json *model, const berth_json *merges);
// Appends the ids of a word, which is not empty, in O(n log n).
BERTH_MUST_CHECK berth_status berth_bpe_encode(const berth_bpe *bpe, berth_str word,
                                               berth_bpe_scratch *scratch, berth_token_ids *ids);
void berth_bpe_scratch_deinit(berth_bpe_scratch *scratch);

#endif
