// SPDX-License-Identifier: Apache-2.0
// Input: tensor names such as "model.layers.0.self_attn.q_proj.weight" and rules such as
// ".q_proj." → ".qkv_proj.", shard "q". Output: for every parameter the tensors that belong to it,
// and the way back for messages.
#include "model/weight_names.h"

#include <string.h>

// `name` with the first `from` replaced; NULL when the arena is exhausted.
static const char *replace(berth_arena *arena, const char *name, const char *from, const char *to) {
    const char *at = strstr(name, from);
    return berth_arena_printf(arena, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
}

// Whether two shard ids mean the same; NULL is the whole parameter.
static bool is_same_shard(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static berth_status apply_rules(const berth_weight_names *names, berth_weight_source *source) {
    source->parameter = source->tensor->name;
    for (uint64_t i = 0; i < names->model->weight_rule_count; ++i) {
        const berth_weight_rule *rule = names->model->weight_rules[i];
        if (strstr(source->tensor->name, rule->from) == NULL) {
            continue;
        }
        if (rule->to == NULL) {
            source->is_ignored = true;
            return BERTH_OK;
        }
        source->shard = rule->shard;
        source->parameter = replace(names->arena, source->tensor->name, rule->from, rule->to);
        return source->parameter != NULL ? BERTH_OK
                                         : berth_arena_exhausted(names->arena, "weight names");
    }
    return BERTH_OK;
}

static berth_status add_source(berth_weight_names *names, const berth_stored_tensor *tensor,
                               uint32_t index) {
    berth_weight_source *source = &names->sources[index];
    *source = (berth_weight_source){.tensor = tensor, .next = BERTH_NO_SOURCE};
    BERTH_TRY(apply_rules(names, source));
    if (source->is_ignored) {
        return BERTH_OK;
    }
    const berth_str key = berth_str_from(source->parameter);
    uint32_t *first = berth_map_find(&names->by_parameter, key);
    if (first == NULL) {
        return berth_map_add(&names->by_parameter, key, index);
    }
    source->next = *first;
    *first = index;
    return BERTH_OK;
}

static berth_status check_rules(const berth_model *model) {
    for (uint64_t i = 0; i < model->weight_rule_count; ++i) {
        const berth_weight_rule *rule = model->weight_rules[i];
        if (rule == NULL || rule->from == NULL || rule->from[0] == '\0') {
            return BERTH_FAIL(INTERNAL, "model '%s': weight rule %llu has no text to look for",
                              model->architecture, (unsigned long long)i);
        }
    }
    return BERTH_OK;
}

static berth_status add_sources(berth_weight_names *names, const berth_checkpoint *checkpoint) {
    BERTH_TRY(check_rules(names->model));
    names->sources = BERTH_ARENA_ARRAY(names->arena, berth_weight_source, names->count);
    if (names->sources == NULL) {
        return berth_arena_exhausted(names->arena, "weight names");
    }
    for (uint32_t i = 0; i < names->count; ++i) {
        BERTH_TRY(add_source(names, berth_checkpoint_at(checkpoint, i), i));
    }
    return BERTH_OK;
}

berth_status berth_weight_names_init(berth_weight_names *names, const berth_checkpoint *checkpoint,
                                     const berth_model *model, berth_arena *arena) {
    *names = (berth_weight_names){
        .model = model,
        .arena = arena,
        .count = berth_checkpoint_count(checkpoint),
    };
    berth_map_init(&names->by_parameter);
    const berth_status status = add_sources(names, checkpoint);
    if (status != BERTH_OK) {
        berth_weight_names_deinit(names);
    }
    return status;
}

void berth_weight_names_deinit(berth_weight_names *names) {
    berth_map_deinit(&names->by_parameter);
}

uint32_t berth_weight_names_first(const berth_weight_names *names, const char *parameter) {
    const uint32_t *found =
        parameter == NULL ? NULL : berth_map_find(&names->by_parameter, berth_str_from(parameter));
    return found == NULL ? BERTH_NO_SOURCE : *found;
}

berth_status berth_weight_names_find(const berth_weight_names *names, uint32_t first,
                                     const char *shard, uint32_t *out_index) {
    *out_index = BERTH_NO_SOURCE;
    for (uint32_t i = first; i != BERTH_NO_SOURCE; i = names->sources[i].next) {
        const berth_weight_source *source = &names->sources[i];
        if (!is_same_shard(source->shard, shard)) {
            continue;
        }
        if (*out_index != BERTH_NO_SOURCE) {
            return BERTH_FAIL(CORRUPT, "%s: the tensors '%s' and '%s' are the same weight",
                              berth_safetensors_path(source->tensor->file),
                              names->sources[*out_index].tensor->name, source->tensor->name);
        }
        *out_index = i;
    }
    return BERTH_OK;
}

const char *berth_weight_names_stored(const berth_weight_names *names, const char *parameter,
                                      const char *shard) {
    for (uint64_t i = 0; i < names->model->weight_rule_count; ++i) {
        const berth_weight_rule *rule = names->model->weight_rules[i];
        if (rule->to != NULL && is_same_shard(rule->shard, shard) &&
            strstr(parameter, rule->to) != NULL) {
            return replace(names->arena, parameter, rule->to, rule->from);
        }
    }
    return shard == NULL ? parameter
                         : berth_arena_printf(names->arena, "%s (shard %s)", parameter, shard);
}
