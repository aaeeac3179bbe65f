// SPDX-License-Identifier: Apache-2.0
// The tokens of a tokenizer by id and by spelling. Filled while the file is read, then immutable.
#ifndef BERTH_TOKENIZER_VOCABULARY_H
#define BERTH_TOKENIZER_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/json.h"
#include "base/map.h"
#include "base/str.h"

#define BERTH_VOCABULARY_LIMIT 2097152 // ids lie below: eight times the largest known vocabulary

typedef struct berth_token {
    berth_str content; // as the file spells it; NULL data: this id has no token
    berth_str bytes;   // what it decodes to; the decoder fills it in
    uint32_t added;    // its number among the added tokens, from 1; 0: it is none
    bool is_of_model;  // BPE can give it; an added token may be unknown to the model
    bool is_special;
} berth_token;

typedef struct berth_vocabulary {
    berth_array(berth_token) tokens; // by id
    berth_map ids;                   // content → id
    size_t longest;                  // bytes of the longest content
} berth_vocabulary;

// Adds every member of `vocab`, an object of spelling: id. Strings are copied into the arena.
BERTH_MUST_CHECK berth_status berth_vocabulary_read(berth_vocabulary *vocabulary,
                                                    berth_arena *arena, const berth_json *vocab);
// Makes sure that `content` has this id, adding it where neither is taken yet. CORRUPT, at the
// place of `where`, when the id is another token's or the content has another id.
BERTH_MUST_CHECK berth_status berth_vocabulary_add(berth_vocabulary *vocabulary, berth_arena *arena,
                                                   berth_str content, int64_t id,
                                                   const berth_json *where);
// The id of a spelling, or -1; the second knows the model's tokens alone.
int32_t berth_vocabulary_find(const berth_vocabulary *vocabulary, berth_str content);
int32_t berth_vocabulary_find_model(const berth_vocabulary *vocabulary, berth_str content);
// The token of an id, or NULL when it has none.
const berth_token *berth_vocabulary_get(const berth_vocabulary *vocabulary, int32_t id);
void berth_vocabulary_deinit(berth_vocabulary *vocabulary);

#endif
