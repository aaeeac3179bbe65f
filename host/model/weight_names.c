// SPDX-License-Identifier: Apache-2.0
// Input: tensor names such as "model.layers.0.self_attn.q_proj.weight" and rules such as
// ".q_proj." → ".qkv_proj.", shard "q". Output: for every parameter the tensors that belong to it,
// and the way back for messages.
#include "model/weight_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define NAME_BYTES 320 // of a parameter's name, and of one a little longer

// Where a rule's `from` occurs in a name.
typedef struct occurrence {
    const char *at; // NULL: nowhere
    size_t size;
    int64_t slice; // the number that stands for its "*", −1 without one
} occurrence;

#define SLICE_DIGITS 9

// Digits at `at`, and the text that must follow them.
static bool read_slice(const char *at, const char *tail, occurrence *out) {
    const size_t digits = strspn(at, "0123456789");
    if (digits == 0 || digits > SLICE_DIGITS || strncmp(at + digits, tail, strlen(tail)) != 0) {
        return false;
    }
    out->slice = strtoll(at, NULL, 10);
    out->size = (size_t)(at - out->at) + digits + strlen(tail);
    return true;
}

static occurrence find_from(const char *name, const char *from) {
    occurrence out = {.size = strlen(from), .slice = -1};
    const char *star = strchr(from, '*');
    if (star == NULL) {
        out.at = strstr(name, from);
        return out;
    }
    const size_t head = (size_t)(star - from);
    for (out.at = name; *out.at != '\0'; ++out.at) {
        if (strncmp(out.at, from, head) == 0 && read_slice(out.at + head, star + 1, &out)) {
            return out;
        }
    }
    return (occurrence){.slice = -1};
}

// `name` with `to` in the occurrence's place; NULL when the arena is exhausted.
static const char *replace(berth_arena *arena, const char *name, occurrence found, const char *to) {
    return berth_arena_printf(arena, "%.*s%s%s", (int)(found.at - name), name, to,
                              found.at + found.size);
}

// Whether two shard ids mean the same; NULL is the whole parameter.
static bool is_same_shard(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool applies(const berth_weight_rule *rule, const berth_json *config) {
    const berth_json *value = rule->when == NULL ? NULL : berth_json_find(config, rule->when);
    return rule->when == NULL || (value != NULL && berth_json_kind_of(value) != BERTH_JSON_NULL);
}

static berth_status apply_rules(const berth_weight_names *names, berth_weight_source *source) {
    source->parameter = source->tensor->name;
    source->slice = -1;
    for (uint64_t i = 0; i < names->model->weight_rule_count; ++i) {
        const berth_weight_rule *rule = names->model->weight_rules[i];
        const occurrence found = find_from(source->tensor->name, rule->from);
        if (found.at == NULL || !applies(rule, names->config)) {
            continue;
        }
        if (rule->to == NULL) {
            source->is_ignored = true;
            return BERTH_OK;
        }
        source->shard = rule->shard;
        source->slice = found.slice;
        source->is_transposed = rule->is_transposed != 0;
        source->is_log_decay = rule->is_log_decay != 0;
        source->parameter = replace(names->arena, source->tensor->name, found, rule->to);
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
        .config = berth_checkpoint_config(checkpoint),
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

static uint32_t find_first(const berth_weight_names *names, const char *parameter) {
    const uint32_t *found =
        parameter == NULL ? NULL : berth_map_find(&names->by_parameter, berth_str_from(parameter));
    return found == NULL ? BERTH_NO_SOURCE : *found;
}

enum { BARE, BESIDE_OTHERS, INSIDE_OTHERS, FORM_COUNT };

// The name as other files of the same model have it; "" where it has no such form.
static void vary(const char *parameter, int form, char *out, size_t room) {
    const char *dot = strchr(parameter, '.');
    const bool has_base = dot != NULL && strchr(dot + 1, '.') != NULL;
    out[0] = '\0';
    if (form == BESIDE_OTHERS) {
        (void)snprintf(out, room, "language_model.%s", parameter);
    } else if (has_base && form == BARE) {
        (void)snprintf(out, room, "%s", dot + 1);
    } else if (has_base) {
        (void)snprintf(out, room, "%.*s.language_model%s", (int)(dot - parameter), parameter, dot);
    }
}

uint32_t berth_weight_names_first(const berth_weight_names *names, const char *parameter) {
    char name[NAME_BYTES];
    uint32_t found = find_first(names, parameter);
    for (int form = BARE; form < FORM_COUNT && found == BERTH_NO_SOURCE && parameter != NULL;
         ++form) {
        vary(parameter, form, name, sizeof name);
        found = find_first(names, name);
    }
    return found;
}

void berth_weight_names_ignore(berth_weight_names *names, const char *text) {
    for (size_t i = 0; i < names->count; ++i) {
        berth_weight_source *source = &names->sources[i];
        source->is_ignored = source->is_ignored || strstr(source->tensor->name, text) != NULL;
    }
    for (uint32_t i = berth_weight_names_first(names, text); i != BERTH_NO_SOURCE;
         i = names->sources[i].next) {
        names->sources[i].is_ignored = true;
    }
}

berth_status berth_weight_names_same(const berth_weight_names *names, uint32_t one,
                                     uint32_t other) {
    const berth_stored_tensor *tensor = names->sources[other].tensor;
    return BERTH_FAIL(CORRUPT, "%s: the tensors '%s' and '%s' are the same weight",
                      berth_safetensors_path(tensor->file), names->sources[one].tensor->name,
                      tensor->name);
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
            return berth_weight_names_same(names, *out_index, i);
        }
        *out_index = i;
    }
    return BERTH_OK;
}

// `from` with the number in place of its "*".
static const char *with_slice(berth_arena *arena, const char *from, int64_t slice) {
    const char *star = strchr(from, '*');
    return star == NULL || slice < 0
               ? from
               : berth_arena_printf(arena, "%.*s%" PRId64 "%s", (int)(star - from), from, slice,
                                    star + 1);
}

// What the rules put in the place of a part of the parameter; NULL when none of them does.
static const char *stored_by_rule(const berth_weight_names *names, const char *parameter,
                                  const char *shard, int64_t slice) {
    for (uint64_t i = 0; i < names->model->weight_rule_count; ++i) {
        const berth_weight_rule *rule = names->model->weight_rules[i];
        const bool has_star = strchr(rule->from, '*') != NULL;
        if (rule->to == NULL || !is_same_shard(rule->shard, shard) || has_star != (slice >= 0)) {
            continue;
        }
        occurrence found = {.at = strstr(parameter, rule->to), .size = strlen(rule->to)};
        if (found.at != NULL) {
            const char *from = with_slice(names->arena, rule->from, slice);
            return from == NULL ? NULL : replace(names->arena, parameter, found, from);
        }
    }
    return NULL;
}

// "a.experts.3.up_proj" of the tensor "a.experts.3.up_proj.LEAF"; empty where its name has another
// form.
static berth_str module_of(const char *tensor, const char *leaf) {
    const berth_str name = berth_str_from(tensor);
    const size_t behind = strlen(leaf) + 1;
    const bool is_module = berth_str_ends_with(name, berth_str_from(leaf)) && name.size > behind &&
                           tensor[name.size - behind] == '.';
    return (berth_str){.data = tensor, .size = is_module ? name.size - behind : 0};
}

// The module whose tensors fill the shard (NULL: the whole) of the layer; NULL: there is none.
static const char *stored_module(const berth_weight_names *names, const char *prefix,
                                 const char *shard) {
    static const char *const leaves[] = {"weight", "qweight", "weight_packed"};
    char parameter[NAME_BYTES];
    for (size_t leaf = 0; leaf < BERTH_COUNT(leaves); ++leaf) {
        (void)snprintf(parameter, sizeof parameter, "%s.%s", prefix, leaves[leaf]);
        for (uint32_t i = berth_weight_names_first(names, parameter); i != BERTH_NO_SOURCE;
             i = names->sources[i].next) {
            const berth_weight_source *source = &names->sources[i];
            const berth_str module = module_of(source->tensor->name, leaves[leaf]);
            if (module.size > 0 && is_same_shard(source->shard, shard)) {
                return berth_arena_copy(names->arena, module);
            }
        }
    }
    return NULL;
}

bool berth_weight_names_has(const berth_weight_names *names, const char *prefix) {
    return stored_module(names, prefix, NULL) != NULL;
}

const char *berth_weight_names_module(const berth_weight_names *names, const char *prefix,
                                      const char *shard) {
    static const char leaf[] = ".weight";
    char parameter[NAME_BYTES];
    const char *found = stored_module(names, prefix, shard);
    if (found != NULL || berth_weight_names_has(names, prefix)) {
        return found; // shards of what is stored as one have no modules
    }
    (void)snprintf(parameter, sizeof parameter, "%s%s", prefix, leaf);
    const char *stored = stored_by_rule(names, parameter, shard, -1);
    const berth_str name = berth_str_from(stored == NULL ? "" : stored);
    return berth_str_ends_with(name, BERTH_STR(".weight"))
               ? berth_arena_copy(names->arena,
                                  (berth_str){.data = name.data, .size = name.size - strlen(leaf)})
               : NULL;
}

static berth_status add_modules(const berth_weight_names *names, const char *prefix,
                                berth_map *modules) {
    const size_t length = strlen(prefix);
    for (size_t i = 0; i < names->count; ++i) {
        const berth_weight_source *source = &names->sources[i];
        if (source->is_ignored || strncmp(source->parameter, prefix, length) != 0 ||
            source->parameter[length] != '_') {
            continue;
        }
        const berth_str module = module_of(source->tensor->name, source->parameter + length + 1);
        if (module.size == 0 || berth_map_find(modules, module) != NULL) {
            continue;
        }
        const char *copy = berth_arena_copy(names->arena, module);
        if (copy == NULL) {
            return berth_arena_exhausted(names->arena, "weight names");
        }
        BERTH_TRY(berth_map_add(modules, berth_str_from(copy), 0));
    }
    return BERTH_OK;
}

berth_status berth_weight_names_modules(const berth_weight_names *names, const char *prefix,
                                        berth_map *modules) {
    char name[NAME_BYTES];
    const uint32_t before = modules->count;
    berth_status status = add_modules(names, prefix, modules);
    for (int form = BARE; form < FORM_COUNT && modules->count == before && status == BERTH_OK;
         ++form) {
        vary(prefix, form, name, sizeof name);
        status = name[0] == '\0' ? BERTH_OK : add_modules(names, name, modules);
    }
    return status;
}

const char *berth_weight_names_stored(const berth_weight_names *names, const char *parameter,
                                      const char *shard, int64_t slice) {
    const char *stored = stored_by_rule(names, parameter, shard, slice);
    return stored != NULL  ? stored
           : shard == NULL ? parameter
                           : berth_arena_printf(names->arena, "%s (shard %s)", parameter, shard);
}
