// SPDX-License-Identifier: Apache-2.0
// The post-processor: the ids that stand before and behind a text.
#ifndef BERTH_TOKENIZER_TEMPLATE_H
#define BERTH_TOKENIZER_TEMPLATE_H

#include <stdint.h>

#include "base/array.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

typedef struct berth_template {
    berth_token_ids before, behind;
} berth_template;

// From the post_processor of a tokenizer.json, which may be NULL.
BERTH_MUST_CHECK berth_status berth_template_read(berth_template *template,
                                                  const berth_vocabulary *vocabulary,
                                                  const berth_json *post_processor);
// Makes it one id before and one behind, or none where an id is -1.
BERTH_MUST_CHECK berth_status berth_template_replace(berth_template *template, int32_t before_id,
                                                     int32_t behind_id);
void berth_template_deinit(berth_template *template);

#endif
