// SPDX-License-Identifier: Apache-2.0
// What a tokenizer is read from: the JSON of a checkpoint's files, or what the class of a tokenizer
// without tokenizer.json would have written there.
#ifndef BERTH_TOKENIZER_SOURCE_H
#define BERTH_TOKENIZER_SOURCE_H

#include "base/json.h"

// Zeroed is empty; the members are owned.
typedef struct berth_source {
    berth_json *file;   // tokenizer.json; of a class, without vocabulary and merges
    berth_json *config; // tokenizer_config.json; NULL: there is none
    berth_json *vocab;  // vocab.json of a class; NULL: the file has them
    berth_json *merges; // the lines of its merges.txt, as an array
    bool is_made;       // the file was not there: a class or a tokenizer.model stands behind it
} berth_source;

// tokenizer.json counts where there is one, then tokenizer.model, then vocab.json with merges.txt.
// UNSUPPORTED names a class whose files are not enough.
BERTH_MUST_CHECK berth_status berth_source_load(berth_source *source, const char *directory);
void berth_source_deinit(berth_source *source);

#endif
