// SPDX-License-Identifier: Apache-2.0
// The smallest Llama checkpoint: one layer, width 8, 2 heads over 1 key head of 4, 10 tokens, all
// weights zero. Tests change its config.json and its list of tensors.
#ifndef TEST_TOY_LLAMA_H
#define TEST_TOY_LLAMA_H

#include "support/sandbox.h"

#define TOY_UNTIED    1u  // stores lm_head.weight too
#define TOY_HEAD_ONLY 2u  // stores the table as lm_head.weight alone
#define TOY_BIASES    4u  // stores every bias that a Llama can have
#define TOY_QK_NORM   8u  // stores Qwen3's norms of heads
#define TOY_NO_NORM   16u // leaves model.norm.weight out
#define TOY_EXTRA     32u // stores one tensor that no model knows
#define TOY_PART      64u // stores all under "language_model.", beside a tensor of what sees

// A config.json key and its JSON value; a NULL value takes the key away.
typedef struct toy_key {
    const char *key;
    const char *value;
} toy_key;

// Writes model.safetensors; `flags` of TOY_*.
void toy_llama_weights(const sandbox *box, unsigned flags);
// Writes config.json (transformers 5, tied), changed by `keys`, which end with a NULL key.
void toy_llama_config(const sandbox *box, const toy_key *keys);

#endif
