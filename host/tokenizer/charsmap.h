// SPDX-License-Identifier: Apache-2.0
// The table of characters that SentencePiece compiles its normalization rules to: sequences of
// bytes and what becomes of them, as a double array.
#ifndef BERTH_TOKENIZER_CHARSMAP_H
#define BERTH_TOKENIZER_CHARSMAP_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"

typedef struct berth_charsmap {
    const uint32_t *units; // of the double array, of the arena
    size_t unit_count;
    berth_str results; // texts that end with NUL, one behind the other
} berth_charsmap;

typedef enum berth_charsmap_way {
    // As SentencePiece: everywhere the longest sequence that the table knows.
    BERTH_CHARSMAP_LONGEST,
    // As the normalizer Precompiled: a whole grapheme, or else each of its characters, becomes what
    // the table says of the shortest sequence that it begins with.
    BERTH_CHARSMAP_GRAPHEMES,
} berth_charsmap_way;

// From the precompiled_charsmap of a component, base64.
BERTH_MUST_CHECK berth_status berth_charsmap_read(berth_charsmap *map, berth_arena *arena,
                                                  const berth_json *json);
// Appends what becomes of valid UTF-8.
void berth_charsmap_run(const berth_charsmap *map, berth_charsmap_way way, berth_str text,
                        berth_text *out);

#endif
