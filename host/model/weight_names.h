// SPDX-License-Identifier: Apache-2.0
// The tensors of a checkpoint under the names of the parameters that they fill. Private to this
// module.
#ifndef BERTH_MODEL_WEIGHT_NAMES_H
#define BERTH_MODEL_WEIGHT_NAMES_H

#include "base/map.h"
#include "model/model.h"

#define BERTH_NO_SOURCE UINT32_MAX

// A tensor after the weight rules.
typedef struct berth_weight_source {
    const berth_stored_tensor *tensor;
    const char *parameter;
    const char *shard; // NULL: the whole parameter
    int64_t slice;     // of the parameter's first dimension; −1: of all of them
    uint32_t next;     // of the same parameter, BERTH_NO_SOURCE: the last
    bool is_transposed;
    bool is_log_decay; // see berth_weight_rule
    bool is_used;
    bool is_ignored; // by a rule
} berth_weight_source;

typedef struct berth_weight_names {
    const berth_model *model; // whose rules
    const berth_json *config; // what they may ask
    berth_arena *arena;       // borrowed
    berth_weight_source *sources;
    size_t count;
    berth_map by_parameter; // name → its first source
} berth_weight_names;

// Applies the rules of the model to all tensors.
BERTH_MUST_CHECK berth_status berth_weight_names_init(berth_weight_names *names,
                                                      const berth_checkpoint *checkpoint,
                                                      const berth_model *model, berth_arena *arena);
void berth_weight_names_deinit(berth_weight_names *names);

// Sources in whose tensors' names the text occurs need not be used.
void berth_weight_names_ignore(berth_weight_names *names, const char *text);

// The first source of a parameter; BERTH_NO_SOURCE when there is none or the name is NULL. Files of
// a bare model leave out the first word of the name ("model."), those of a model that also sees or
// hears put its language model under a name of its own.
uint32_t berth_weight_names_first(const berth_weight_names *names, const char *parameter);
// The source of a shard (NULL: of the whole) among those from `first` on, BERTH_NO_SOURCE when
// there is none. CORRUPT when there are two.
BERTH_MUST_CHECK berth_status berth_weight_names_find(const berth_weight_names *names,
                                                      uint32_t first, const char *shard,
                                                      uint32_t *out_index);
// CORRUPT: two sources are the same weight.
BERTH_MUST_CHECK berth_status berth_weight_names_same(const berth_weight_names *names, uint32_t one,
                                                      uint32_t other);
// The module "a.q_proj" that holds the shard (NULL: the whole) of the layer "a.qkv_proj", by the
// tensors that are there, else by the rules; NULL when neither say so, the layer is stored as one,
// or the arena is exhausted.
const char *berth_weight_names_module(const berth_weight_names *names, const char *prefix,
                                      const char *shard);
// Whether the layer is stored as one module.
bool berth_weight_names_has(const berth_weight_names *names, const char *prefix);
// The modules of a stack, in whose parameters' names the prefix stands before a "_": of every layer
// and shard one, added to `modules`, whose keys are then in the arena.
BERTH_MUST_CHECK berth_status berth_weight_names_modules(const berth_weight_names *names,
                                                         const char *prefix, berth_map *modules);
// The name under which a checkpoint would hold a part of a parameter. NULL when the arena is
// exhausted.
const char *berth_weight_names_stored(const berth_weight_names *names, const char *parameter,
                                      const char *shard, int64_t slice);

#endif
