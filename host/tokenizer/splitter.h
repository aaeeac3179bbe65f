// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer: cuts a text into the words that the model sees one by one. Stages follow the
// file. Behind ByteLevel a word is a sequence of bytes, or what the alphabet spells them with.
// Without stages a text is one word.
#ifndef BERTH_TOKENIZER_SPLITTER_H
#define BERTH_TOKENIZER_SPLITTER_H

#include "base/array.h"
#include "base/json.h"
#include "base/pattern.h"
#include "base/str.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/stretch.h"

#define BERTH_SPLITTER_STAGES 16

typedef enum berth_split_rule { // what becomes of a match, as tokenizer.json names it
    BERTH_SPLIT_ISOLATED,
    BERTH_SPLIT_REMOVED,
    BERTH_SPLIT_CONTIGUOUS,
    BERTH_SPLIT_MERGED_WITH_PREVIOUS,
    BERTH_SPLIT_MERGED_WITH_NEXT,
} berth_split_rule;

typedef enum berth_split_kind {
    BERTH_SPLIT_PATTERN,
    BERTH_SPLIT_SCRIPTS, // where another script begins
    BERTH_SPLIT_PREFIX,  // puts a blank before words that begin with none
    BERTH_SPLIT_METASPACE,
    BERTH_SPLIT_SPELL, // spells bytes in the alphabet
} berth_split_kind;

typedef struct berth_split_stage {
    berth_split_kind kind;
    berth_pattern *pattern; // owned
    berth_split_rule rule;
    bool is_inverted; // what lies between the matches counts as matches
    berth_metaspace metaspace;
} berth_split_stage;

typedef struct berth_splitter {
    berth_split_stage stages[BERTH_SPLITTER_STAGES + 1]; // the last is for spelling
    size_t count;
    bool is_byte_level; // words are bytes, not characters
    bool marks_first;   // the first word of a text is not like others
} berth_splitter;

typedef berth_array(berth_stretch) berth_words;

// What one thread needs to cut; zeroed is ready.
typedef struct berth_splitter_scratch {
    berth_words words; // the result: borrowed from the text or from `changed`, until the next cut
    berth_words previous;
    berth_array(char) changed[2]; // by turns, of the stages that change what they cut
    size_t turn;
    berth_matcher *matcher;
} berth_splitter_scratch;

// From the pre_tokenizer of a tokenizer.json, which may be NULL. A component that is not supported
// is UNSUPPORTED.
BERTH_MUST_CHECK berth_status berth_splitter_read(berth_splitter *splitter,
                                                  const berth_json *pre_tokenizer);
// Ends a ByteLevel by spelling: from here on words are characters. There is always room for it.
void berth_splitter_spell(berth_splitter *splitter);
void berth_splitter_deinit(berth_splitter *splitter);

// Cuts a stretch into scratch->words, none of them empty.
BERTH_MUST_CHECK berth_status berth_splitter_cut(const berth_splitter *splitter,
                                                 berth_stretch stretch,
                                                 berth_splitter_scratch *scratch);
void berth_splitter_scratch_deinit(berth_splitter_scratch *scratch);

#endif
