// SPDX-License-Identifier: Apache-2.0
// Metaspace: a visible character in the place of blanks, put before a text as well. What a file
// says of it, for the pre-tokenizer that does so and the decoder that undoes it.
#ifndef BERTH_TOKENIZER_METASPACE_H
#define BERTH_TOKENIZER_METASPACE_H

#include <stdbool.h>

#include "base/json.h"
#include "base/str.h"

typedef enum berth_metaspace_prepend { // before which words, as tokenizer.json names it
    BERTH_METASPACE_ALWAYS,
    BERTH_METASPACE_FIRST,
    BERTH_METASPACE_NEVER,
} berth_metaspace_prepend;

#define BERTH_METASPACE_BYTES 4 // of the longest character

typedef struct berth_metaspace {
    char mark_bytes[BERTH_METASPACE_BYTES];
    size_t mark_size; // bytes of the character
    berth_metaspace_prepend prepend;
    bool is_split; // every mark begins a word
} berth_metaspace;

// From a component of type Metaspace.
BERTH_MUST_CHECK berth_status berth_metaspace_read(berth_metaspace *metaspace,
                                                   const berth_json *json);
// The character, borrowed.
berth_str berth_metaspace_mark(const berth_metaspace *metaspace);

#endif
