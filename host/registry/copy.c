// SPDX-License-Identifier: Apache-2.0
// Input: an entry whose own table is copied already. Output: copies of the tables behind it, in the
// registry's arena and of the host's size, so that whoever reads a frozen table never meets an
// older plugin's shorter struct. Strings and lists of numbers stay the plugin's.
#include <string.h>

#include "registry/registry_private.h"

#define MAX_ATTRIBUTES   64
#define MAX_DEVICE_TYPES 16
#define MAX_RULES        1024
#define MAX_PATTERNS     64

// An array of pointers to tables of one kind, as it crosses the boundary.
typedef struct list {
    const char *what; // "inputs of op rms_norm"
    const void *const *items;
    uint64_t count;
    uint64_t limit;
    berth_table_id id;
} list;

static berth_status check_list(const char *what, const void *items, uint64_t count,
                               uint64_t limit) {
    if (count > limit) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: there are %llu, more than %llu", what,
                          (unsigned long long)count, (unsigned long long)limit);
    }
    if (count > 0 && items == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: there are %llu, but no array of them", what,
                          (unsigned long long)count);
    }
    return BERTH_OK;
}

// Copies of the host's size one after another, and the array of pointers to them.
static berth_status copy_list(berth_registry *registry, const list *from, void *const **out) {
    BERTH_TRY(check_list(from->what, from->items, from->count, from->limit));
    const size_t bytes = berth_tables[from->id].size;
    void **pointers = BERTH_ARENA_ARRAY(registry->arena, void *, from->count);
    char *copies = berth_arena_array(registry->arena, from->count, bytes);
    if (pointers == NULL || copies == NULL) {
        return berth_arena_exhausted(registry->arena, "registered tables");
    }
    for (uint64_t i = 0; i < from->count; ++i) {
        BERTH_TRY_NOTE(berth_table_check(from->id, from->items[i], 0), "reading %s", from->what);
        pointers[i] = copies + i * bytes;
        berth_table_copy(from->id, pointers[i], from->items[i]);
    }
    *out = pointers;
    return BERTH_OK;
}

// ---- ops ----------------------------------------------------------------------------------------

static bool is_id(const char *name) {
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static berth_status copy_arguments(berth_registry *registry, const char *what,
                                   const berth_op_argument *const **items, uint64_t count) {
    const list from = {
        .what = what,
        .items = (const void *const *)*items,
        .count = count,
        .limit = BERTH_MAX_INPUTS,
        .id = BERTH_TABLE_ARGUMENT,
    };
    void *const *copies = NULL;
    BERTH_TRY(copy_list(registry, &from, &copies));
    *items = (const berth_op_argument *const *)copies;
    for (uint64_t i = 0; i < count; ++i) {
        if ((*items)[i]->layout > BERTH_LAYOUT_ANY) {
            return BERTH_FAIL(INVALID_ARGUMENT, "%s: '%s' has the layout %llu, which is unknown",
                              what, (*items)[i]->name, (unsigned long long)(*items)[i]->layout);
        }
    }
    return BERTH_OK;
}

static berth_status copy_default(berth_registry *registry, const char *op,
                                 berth_op_attribute *attribute) {
    if (attribute->kind < BERTH_ATTRIBUTE_I64 || attribute->kind > BERTH_ATTRIBUTE_F64S) {
        return BERTH_FAIL(INVALID_ARGUMENT, "op %s: attribute '%s' is of the kind %llu, not 1 to 6",
                          op, attribute->name, (unsigned long long)attribute->kind);
    }
    if (attribute->default_value == NULL) {
        return BERTH_OK;
    }
    BERTH_TRY_NOTE(berth_table_check(BERTH_TABLE_VALUE, attribute->default_value, 0),
                   "reading the default of attribute '%s' of op %s", attribute->name, op);
    berth_attribute *copy = BERTH_ARENA_NEW(registry->arena, berth_attribute);
    if (copy == NULL) {
        return berth_arena_exhausted(registry->arena, "registered tables");
    }
    berth_table_copy(BERTH_TABLE_VALUE, copy, attribute->default_value);
    if (copy->kind != attribute->kind) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "op %s: the default of attribute '%s' is of another kind than the "
                          "attribute",
                          op, attribute->name);
    }
    attribute->default_value = copy;
    return BERTH_OK;
}

static berth_status copy_attributes(berth_registry *registry, berth_op *op) {
    const list from = {
        .what = "attributes",
        .items = (const void *const *)op->attributes,
        .count = op->attribute_count,
        .limit = MAX_ATTRIBUTES,
        .id = BERTH_TABLE_ATTRIBUTE,
    };
    void *const *copies = NULL;
    BERTH_TRY(copy_list(registry, &from, &copies));
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        BERTH_TRY(copy_default(registry, op->name, copies[i]));
    }
    op->attributes = (const berth_op_attribute *const *)copies;
    return BERTH_OK;
}

berth_status berth_copy_op(berth_registry *registry, void *entry) {
    berth_op *op = &((berth_op_entry *)entry)->op;
    BERTH_TRY(berth_name_check("berth_op.name", op->name));
    BERTH_TRY(berth_name_check("berth_op.class_name", op->class_name));
    if (!is_id(op->name)) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "op '%s': an id has lower-case letters, digits and _ only", op->name);
    }
    BERTH_TRY_NOTE(copy_arguments(registry, "inputs", &op->inputs, op->input_count),
                   "adding op '%s'", op->name);
    BERTH_TRY_NOTE(copy_arguments(registry, "states", &op->states, op->state_count),
                   "adding op '%s'", op->name);
    BERTH_TRY_NOTE(copy_attributes(registry, op), "adding op '%s'", op->name);
    return BERTH_OK;
}

// ---- the others ---------------------------------------------------------------------------------

berth_status berth_copy_impl(berth_registry *registry, void *entry) {
    berth_impl_entry *added = entry;
    berth_op_impl *impl = &added->impl;
    BERTH_TRY(berth_impl_check(impl, added->is_override ? BERTH_KIND_OVERRIDE : BERTH_KIND_IMPL));
    if (impl->library != NULL && added->owner->candidate->library == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "implementation '%s' of op '%s' names the library '%s', but plugin '%s' "
                          "is linked into the host and has no folder",
                          impl->name, impl->op, impl->library, added->owner->id);
    }
    const uint64_t count = impl->device_type_count;
    BERTH_TRY_NOTE(check_list("device_types", impl->device_types, count, MAX_DEVICE_TYPES),
                   "adding implementation '%s' of op '%s'", impl->name, impl->op);
    const char **copies = BERTH_ARENA_ARRAY(registry->arena, const char *, count);
    if (copies == NULL) {
        return berth_arena_exhausted(registry->arena, "registered tables");
    }
    for (uint64_t i = 0; i < count; ++i) {
        copies[i] = impl->device_types[i] == NULL ? "" : impl->device_types[i];
        BERTH_TRY_NOTE(berth_name_check("device type", copies[i]),
                       "adding implementation '%s' of op '%s'", impl->name, impl->op);
    }
    impl->device_types = copies;
    return BERTH_OK;
}

berth_status berth_copy_model(berth_registry *registry, void *entry) {
    berth_model *model = &((berth_model_entry *)entry)->model;
    BERTH_TRY(berth_name_check("berth_model.architecture", model->architecture));
    const list from = {
        .what = "weight_rules",
        .items = (const void *const *)model->weight_rules,
        .count = model->weight_rule_count,
        .limit = MAX_RULES,
        .id = BERTH_TABLE_RULE,
    };
    void *const *copies = NULL;
    BERTH_TRY_NOTE(copy_list(registry, &from, &copies), "adding model '%s'", model->architecture);
    model->weight_rules = (const berth_weight_rule *const *)copies;
    return BERTH_OK;
}

berth_status berth_copy_attention(berth_registry *registry, void *entry) {
    (void)registry;
    berth_attention_entry *added = entry;
    BERTH_TRY(berth_name_check("berth_attention_backend.name", added->backend.name));
    BERTH_TRY_NOTE(berth_table_check(BERTH_TABLE_IMPL, added->backend.impl,
                                     offsetof(berth_op_impl, dispatch_key)),
                   "adding attention backend '%s'", added->backend.name);
    berth_table_copy(BERTH_TABLE_IMPL, &added->impl, added->backend.impl);
    added->backend.impl = &added->impl;
    BERTH_TRY_NOTE(berth_impl_check_bare(&added->impl), "adding attention backend '%s'",
                   added->backend.name);
    return BERTH_OK;
}

// ---- passes -------------------------------------------------------------------------------------

static berth_status copy_pattern_node(berth_registry *registry, berth_pass_node *node,
                                      uint64_t index, bool *is_used) {
    const list from = {
        .what = "inputs of a pattern's node",
        .items = (const void *const *)node->inputs,
        .count = node->input_count,
        .limit = BERTH_MAX_INPUTS,
        .id = BERTH_TABLE_PATTERN_INPUT,
    };
    void *const *copies = NULL;
    BERTH_TRY(copy_list(registry, &from, &copies));
    node->inputs = (const berth_pass_input *const *)copies;
    for (uint64_t i = 0; i < node->input_count; ++i) {
        if (node->inputs[i]->node >= index) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "node %llu (%s) takes '%s' from node %llu, which must come before it",
                              (unsigned long long)index, node->op, node->inputs[i]->name,
                              (unsigned long long)node->inputs[i]->node);
        }
        is_used[node->inputs[i]->node] = true;
    }
    return BERTH_OK;
}

static berth_status copy_pattern(berth_registry *registry, berth_pass_pattern *pattern) {
    const list from = {
        .what = "nodes of a pattern",
        .items = (const void *const *)pattern->nodes,
        .count = pattern->node_count,
        .limit = BERTH_PASS_NODES,
        .id = BERTH_TABLE_PATTERN_NODE,
    };
    void *const *copies = NULL;
    bool is_used[BERTH_PASS_NODES] = {false};
    BERTH_TRY(copy_list(registry, &from, &copies));
    for (uint64_t i = 0; i < pattern->node_count; ++i) {
        BERTH_TRY(copy_pattern_node(registry, copies[i], i, is_used));
    }
    pattern->nodes = (const berth_pass_node *const *)copies;
    for (uint64_t i = 0; i + 1 < pattern->node_count; ++i) {
        if (!is_used[i]) {
            return BERTH_FAIL(INVALID_ARGUMENT, "node %llu (%s) is no input of a later one",
                              (unsigned long long)i, pattern->nodes[i]->op);
        }
    }
    return pattern->node_count > 0 ? BERTH_OK
                                   : BERTH_FAIL(INVALID_ARGUMENT, "a pattern has no nodes");
}

// A flag is a switch that the user has.
static berth_status check_flag(const berth_registry *registry, const berth_pass *pass) {
    const char *key = berth_arena_printf(registry->arena, BERTH_CONFIG_PASS_KEYS "%s", pass->flag);
    int64_t is_on = 0;
    if (key == NULL) {
        return berth_arena_exhausted(registry->arena, "registered tables");
    }
    return berth_config_get_i64(registry->config, key, &is_on) == BERTH_OK
               ? BERTH_OK
               : BERTH_FAIL(INVALID_ARGUMENT,
                            "pass '%s' has the flag '%s', but there is no key '%s'; leave it NULL "
                            "for a pass that only its own name switches off",
                            pass->name, pass->flag, key);
}

berth_status berth_copy_pass(berth_registry *registry, void *entry) {
    berth_pass *pass = &((berth_pass_entry *)entry)->pass;
    BERTH_TRY(berth_name_check("berth_pass.name", pass->name));
    const list from = {
        .what = "patterns",
        .items = (const void *const *)pass->patterns,
        .count = pass->pattern_count,
        .limit = MAX_PATTERNS,
        .id = BERTH_TABLE_PATTERN,
    };
    void *const *copies = NULL;
    BERTH_TRY_NOTE(copy_list(registry, &from, &copies), "adding pass '%s'", pass->name);
    for (uint64_t i = 0; i < pass->pattern_count; ++i) {
        BERTH_TRY_NOTE(copy_pattern(registry, copies[i]), "pattern %llu of pass '%s'",
                       (unsigned long long)i, pass->name);
    }
    pass->patterns = (const berth_pass_pattern *const *)copies;
    if (pass->pattern_count == 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "pass '%s' has no patterns", pass->name);
    }
    return pass->flag != NULL ? check_flag(registry, pass) : BERTH_OK;
}

// ---- platforms ----------------------------------------------------------------------------------

static berth_status copy_behind(berth_table_id id, void *out, const void *given) {
    BERTH_TRY(berth_table_check(id, given, 0));
    berth_table_copy(id, out, given);
    return BERTH_OK;
}

berth_status berth_copy_platform(berth_registry *registry, void *entry) {
    (void)registry;
    berth_platform_entry *added = entry;
    berth_platform *platform = &added->platform;
    BERTH_TRY_NOTE(copy_behind(BERTH_TABLE_DEVICE, &added->device, platform->device),
                   "adding platform '%s'", platform->name);
    BERTH_TRY_NOTE(
        copy_behind(BERTH_TABLE_CAPABILITIES, &added->capabilities, platform->capabilities),
        "adding platform '%s'", platform->name);
    added->worker.size = sizeof(added->worker);
    if (platform->worker != NULL) {
        BERTH_TRY_NOTE(copy_behind(BERTH_TABLE_WORKER, &added->worker, platform->worker),
                       "adding platform '%s'", platform->name);
        platform->worker = &added->worker;
    }
    platform->device = &added->device;
    platform->capabilities = &added->capabilities;
    return berth_platform_check(added);
}
