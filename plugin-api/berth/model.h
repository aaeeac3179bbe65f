// SPDX-License-Identifier: Apache-2.0
// Models: an architecture of Hugging Face's config.json and how its graph is built from layers.
#ifndef BERTH_MODEL_H
#define BERTH_MODEL_H

#include <berth/builder.h>

// How checkpoint names map to parameters: the first rule whose `from` occurs in a tensor's name
// applies.
typedef struct berth_weight_rule {
    uint64_t size;
    const char *from; // text inside the checkpoint's name, ".q_proj."
    const char
        *to; // what stands there in the parameter's name, ".qkv_proj."; NULL: the tensor is ignored
    const char *shard; // id of the shard that the tensor fills, or NULL for the whole parameter
} berth_weight_rule;

typedef struct berth_model {
    uint64_t size;
    const char *architecture; // [required] as in config.json's `architectures`
    // [required][startup] Builds the whole graph; reads hyperparameters from builder->config. Knows
    // no device.
    void (*build)(berth_builder *builder);
    const berth_weight_rule *const *weight_rules;
    uint64_t weight_rule_count;
} berth_model;

#endif
