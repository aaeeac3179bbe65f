// SPDX-License-Identifier: Apache-2.0
// What a tokenizer is made of, for the files of this folder that build it and use it.
#ifndef BERTH_TOKENIZER_PARTS_H
#define BERTH_TOKENIZER_PARTS_H

#include "base/arena.h"
#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoding.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/source.h"
#include "tokenizer/splitter.h"
#include "tokenizer/template.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/wordpiece.h"

typedef enum berth_tokenizer_kind { // of the model
    BERTH_TOKENIZER_BPE,
    BERTH_TOKENIZER_UNIGRAM,
    BERTH_TOKENIZER_WORD_LEVEL,
    BERTH_TOKENIZER_WORDPIECE,
} berth_tokenizer_kind;

struct berth_tokenizer {
    berth_arena *arena; // owns this struct too
    berth_vocabulary vocabulary;
    berth_added added;
    berth_normalizer normalizer;
    berth_splitter splitter;
    berth_bpe bpe;
    berth_unigram unigram;
    berth_wordpiece wordpiece;
    berth_tokenizer_kind kind; // which of the three counts
    berth_decoding decoding;
    berth_template template;
    int32_t bos_id, eos_id; // -1: none
};

// Fills a zeroed tokenizer that has its arena.
BERTH_MUST_CHECK berth_status berth_tokenizer_read(berth_tokenizer *tokenizer,
                                                   const berth_source *source);

#endif
