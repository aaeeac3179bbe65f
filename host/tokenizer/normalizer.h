// SPDX-License-Identifier: Apache-2.0
// The normalizer: what becomes of a text before it is cut into words.
#ifndef BERTH_TOKENIZER_NORMALIZER_H
#define BERTH_TOKENIZER_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/pattern.h"
#include "base/text.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/stretch.h"
#include "tokenizer/unicode.h"

#define BERTH_NORMALIZER_STEPS 16
// A text grows by this factor at most: three times what the worst normal form takes.
#define BERTH_NORMALIZER_GROWTH 36

typedef enum berth_normalize_kind {
    BERTH_NORMALIZE_NFC, // these four in the order of berth_unicode_form
    BERTH_NORMALIZE_NFD,
    BERTH_NORMALIZE_NFKC,
    BERTH_NORMALIZE_NFKD,
    BERTH_NORMALIZE_PREPEND,
    BERTH_NORMALIZE_REPLACE,
    BERTH_NORMALIZE_LOWERCASE,
    BERTH_NORMALIZE_STRIP,
    BERTH_NORMALIZE_SPELL, // bytes as the alphabet spells them
    BERTH_NORMALIZE_GRAPHEMES,
    BERTH_NORMALIZE_LONGEST, // these two by a table of characters
    // Character by character: some fall away, some become others.
    BERTH_NORMALIZE_DROP_MARKS,
    BERTH_NORMALIZE_NMT,
    BERTH_NORMALIZE_DROP_FLAT_MARKS, // the last three are parts of BERT's
    BERTH_NORMALIZE_CLEAN,
    BERTH_NORMALIZE_SPACE_HAN,
} berth_normalize_kind;

typedef struct berth_normalize_step {
    berth_normalize_kind kind;
    berth_pattern *pattern; // owned; of a replacement
    berth_str content;      // of the arena; what is prepended or put in the pattern's place
    bool strips_left, strips_right;
    berth_charsmap charsmap;
} berth_normalize_step;

typedef struct berth_normalizer {
    berth_normalize_step steps[BERTH_NORMALIZER_STEPS];
    size_t count;
    bool changes_characters; // one may become several
    bool loses_first;        // whether a stretch is the first cannot be told afterwards
} berth_normalizer;

// What one thread needs to normalize; zeroed is ready.
typedef struct berth_normalizer_scratch {
    berth_text texts[2];
    berth_unicode_scratch unicode;
    berth_matcher *matcher;
} berth_normalizer_scratch;

// From the normalizer of a tokenizer.json, which may be NULL. A component that is not supported is
// UNSUPPORTED.
BERTH_MUST_CHECK berth_status berth_normalizer_read(berth_normalizer *normalizer,
                                                    berth_arena *arena, const berth_json *json);
void berth_normalizer_deinit(berth_normalizer *normalizer);

// Normalizes a stretch in place: its text is then borrowed from the scratch, until the next run,
// unless nothing had to be done. It is no longer the first where its first character was stripped.
BERTH_MUST_CHECK berth_status berth_normalizer_run(const berth_normalizer *normalizer,
                                                   berth_normalizer_scratch *scratch,
                                                   berth_stretch *stretch);
void berth_normalizer_scratch_deinit(berth_normalizer_scratch *scratch);

#endif
