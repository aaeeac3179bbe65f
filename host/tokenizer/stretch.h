// SPDX-License-Identifier: Apache-2.0
// A piece of the text that is being tokenized, on its way from the text to words.
#ifndef BERTH_TOKENIZER_STRETCH_H
#define BERTH_TOKENIZER_STRETCH_H

#include <stdbool.h>

#include "base/str.h"

typedef struct berth_stretch {
    berth_str text; // valid UTF-8, borrowed
    bool is_first;  // it begins with what became of the whole text's first character
} berth_stretch;

#endif
