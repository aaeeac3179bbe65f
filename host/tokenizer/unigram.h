// SPDX-License-Identifier: Apache-2.0
// Unigram: of all ways to cut a word into tokens, the one whose scores add up to the most.
#ifndef BERTH_TOKENIZER_UNIGRAM_H
#define BERTH_TOKENIZER_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/json.h"
#include "base/str.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

typedef struct berth_unigram_edge {
    uint32_t node;  // of the tree of tokens, from 1; 0: a free place of the table
    uint32_t child; // behind this byte
    uint8_t byte;
} berth_unigram_edge;

typedef struct berth_unigram {
    const berth_vocabulary *vocabulary; // borrowed
    const double *scores;               // by id
    berth_unigram_edge *edges;          // a hash table by (node, byte); of the arena
    uint32_t edge_bits;                 // it has 2^edge_bits places
    int32_t *ids;                       // by node: the token that ends there, or -1
    int32_t byte_ids[256];              // of "<0x00>" and so on; -1: there is none
    int32_t unknown_id;                 // -1: there is none
    double unknown_score;
} berth_unigram;

// The best way to a place in the word.
typedef struct berth_unigram_best {
    double score;
    size_t from; // where its last token begins; SIZE_MAX: no way leads here
    int32_t id;  // of that token
} berth_unigram_best;

// What one thread needs to encode; zeroed is ready.
typedef struct berth_unigram_scratch {
    berth_array(berth_unigram_best) best; // by byte of the word, and its end
    berth_array(size_t) ends;             // of the pieces, the last first
} berth_unigram_scratch;

// Fills the vocabulary from model.vocab, a list of [token, score]: the place is the id.
BERTH_MUST_CHECK berth_status berth_unigram_vocabulary(berth_vocabulary *vocabulary,
                                                       berth_arena *arena, const berth_json *vocab);
// From the model of a tokenizer.json. `unigram` has its vocabulary, which was read before.
BERTH_MUST_CHECK berth_status berth_unigram_read(berth_unigram *unigram, berth_arena *arena,
                                                 const berth_json *model);
// Appends the ids of a word, which is not empty.
BERTH_MUST_CHECK berth_status berth_unigram_encode(const berth_unigram *unigram, berth_str word,
                                                   berth_unigram_scratch *scratch,
                                                   berth_token_ids *ids);
void berth_unigram_scratch_deinit(berth_unigram_scratch *scratch);

#endif
