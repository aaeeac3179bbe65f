// SPDX-License-Identifier: Apache-2.0
// Input: the transactions that were kept. Output: the same less those that cannot stand, so that
// every name resolves and none is taken twice.
//
// One thing found wrong drops the whole transaction it is in, and the judging begins again without
// it, because what was dropped may have been what others built on. It ends, since each turn drops
// one, and it is deterministic: transactions are in canonical order, and of several findings the
// gravest first one counts. Names that are unknown go before names taken twice, so that nobody is
// refused in favour of an entry that does not survive itself.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "registry/registry_private.h"

#define FINDING_BYTES 512

typedef enum rank {
    RANK_UNKNOWN,
    RANK_DUPLICATE,
    RANK_MISMATCH,
    RANK_NONE,
} rank;

typedef struct judge {
    berth_registry *registry;
    rank found;
    berth_transaction *transaction;
    char text[FINDING_BYTES];
} judge;

typedef enum pass {
    PASS_NEW,     // additions that claim a free name
    PASS_REPLACE, // those that take the place of another
} pass;

static const char *const kind_words[] = {
    [BERTH_KIND_OP] = "op",
    [BERTH_KIND_LAYER] = "layer",
    [BERTH_KIND_QUANT] = "quantization config",
    [BERTH_KIND_MODEL] = "model",
    [BERTH_KIND_ATTENTION] = "attention backend",
    [BERTH_KIND_PASS] = "pass",
    [BERTH_KIND_PLATFORM] = "platform",
    [BERTH_KIND_IMPL] = "implementation",
    [BERTH_KIND_OVERRIDE] = "override",
};

// ---- findings -----------------------------------------------------------------------------------

BERTH_PRINTF(4, 5)
static void find(judge *self, rank found, const berth_addition *added, const char *format, ...) {
    if (found >= self->found) {
        return;
    }
    self->found = found;
    self->transaction = added->transaction;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(self->text, sizeof(self->text), format, arguments);
    va_end(arguments);
}

static void find_duplicate(judge *self, const berth_addition *added, const berth_addition *other,
                           const char *what) {
    const berth_owner *first = other->transaction->owner;
    const berth_owner *second = added->transaction->owner;
    const bool is_replacement = (added->flags & BERTH_REGISTER_REPLACE) != 0;
    find(self, RANK_DUPLICATE, added,
         "%s %s is %s by plugin '%s' %s (entry point '%s') and by plugin '%s' %s (entry point "
         "'%s'); %s",
         kind_words[added->kind], what, is_replacement ? "replaced" : "added", first->id,
         first->version, first->entry, second->id, second->version, second->entry,
         is_replacement ? "remove one"
                        : "remove one, or let the second register with BERTH_REGISTER_REPLACE");
}

// "; did you mean 'rms_norm'?", or nothing.
static const char *suggest(const berth_registry *registry, berth_kind kind, const char *name,
                           char buffer[FINDING_BYTES]) {
    const berth_map *map = &registry->names[kind];
    const char **names = BERTH_ARENA_ARRAY(registry->arena, const char *, map->count);
    for (uint32_t i = 0; names != NULL && i < map->count; ++i) {
        names[i] = map->entries[i].key.data;
    }
    const char *nearest =
        names == NULL ? NULL : berth_str_nearest(berth_str_from(name), names, map->count);
    (void)snprintf(buffer, FINDING_BYTES, nearest == NULL ? "" : "; did you mean '%s'?", nearest);
    return buffer;
}

// ---- names --------------------------------------------------------------------------------------

static berth_status claim_name(judge *self, uint32_t index, const char *key) {
    berth_registry *registry = self->registry;
    const berth_addition *added = &registry->additions.data[index];
    berth_map *map = &registry->names[added->kind];
    const uint32_t *taken = berth_map_find(map, berth_str_from(key));
    if (taken == NULL) {
        return berth_map_add(map, berth_str_from(key), index);
    }
    if (*taken != index) {
        char what[160];
        (void)snprintf(what, sizeof(what), "'%s'", key);
        find_duplicate(self, added, &registry->additions.data[*taken], what);
    }
    return BERTH_OK;
}

static const char *class_of(const berth_addition *added) {
    return ((const berth_op_entry *)added->entry)->op.class_name;
}

static void claim_place(judge *self, uint32_t index) {
    berth_registry *registry = self->registry;
    const berth_addition *added = &registry->additions.data[index];
    berth_map *map = &registry->names[added->kind];
    uint32_t *taken = berth_map_find(map, berth_str_from(added->name));
    if (taken == NULL) {
        char buffer[FINDING_BYTES];
        find(self, RANK_UNKNOWN, added, "no %s '%s' to replace%s", kind_words[added->kind],
             added->name, suggest(registry, added->kind, added->name, buffer));
        return;
    }
    const berth_addition *other = &registry->additions.data[*taken];
    if ((other->flags & BERTH_REGISTER_REPLACE) != 0) {
        char what[160];
        (void)snprintf(what, sizeof(what), "'%s'", added->name);
        find_duplicate(self, added, other, what);
        return;
    }
    if (added->kind == BERTH_KIND_OP) {
        if (strcmp(other->name, added->name) != 0 ||
            strcmp(class_of(other), class_of(added)) != 0) {
            find(self, RANK_MISMATCH, added,
                 "op '%s' of class '%s' is replaced by '%s' of class '%s'; both names must stay",
                 other->name, class_of(other), added->name, class_of(added));
            return;
        }
        *berth_map_find(map, berth_str_from(class_of(added))) = index;
    }
    registry->additions.data[index].replaces = *taken + 1;
    *taken = index;
}

static berth_status judge_name(judge *self, uint32_t index) {
    const berth_addition *added = &self->registry->additions.data[index];
    if ((added->flags & BERTH_REGISTER_REPLACE) != 0) {
        claim_place(self, index);
        return BERTH_OK;
    }
    BERTH_TRY(claim_name(self, index, added->name));
    return added->kind == BERTH_KIND_OP ? claim_name(self, index, class_of(added)) : BERTH_OK;
}

// ---- implementations ----------------------------------------------------------------------------

static berth_op_impl *impl_of(const berth_addition *added) {
    return added->kind == BERTH_KIND_ATTENTION ? &((berth_attention_entry *)added->entry)->impl
                                               : &((berth_impl_entry *)added->entry)->impl;
}

bool berth_op_accepts(const berth_op *op, uint64_t revision) {
    const uint64_t oldest = op->compatible_revision > 0 ? op->compatible_revision : op->revision;
    return revision >= oldest && revision <= op->revision;
}

// The op that an implementation names, NULL (and found) when there is none for its revision.
static berth_addition *resolve_op(judge *self, const berth_addition *added) {
    berth_registry *registry = self->registry;
    const berth_op_impl *impl = impl_of(added);
    const uint32_t *found =
        berth_map_find(&registry->names[BERTH_KIND_OP], berth_str_from(impl->op));
    if (found == NULL) {
        char buffer[FINDING_BYTES];
        find(self, RANK_UNKNOWN, added, "no op '%s'%s", impl->op,
             suggest(registry, BERTH_KIND_OP, impl->op, buffer));
        return NULL;
    }
    berth_addition *op = &registry->additions.data[*found];
    const berth_op *schema = &((const berth_op_entry *)op->entry)->op;
    if (!berth_op_accepts(schema, impl->revision)) {
        find(
            self, RANK_MISMATCH, added,
            "%s '%s' is written for revision %llu of op '%s', plugin '%s' has revision %llu; build "
            "it for that",
            kind_words[added->kind], impl->name, (unsigned long long)impl->revision, op->name,
            op->transaction->owner->id, (unsigned long long)schema->revision);
        return NULL;
    }
    return op;
}

// The implementation of the op that has the same plugin, key and name.
static berth_addition *find_same(const berth_registry *registry, const berth_addition *op,
                                 const berth_addition *added) {
    const char *plugin = added->transaction->owner->id;
    for (uint32_t next = op->first_impl; next != 0;) {
        berth_addition *other = &registry->additions.data[next - 1];
        next = other->next_impl;
        if (other->name_hash == added->name_hash && !other->is_replaced &&
            strcmp(other->transaction->owner->id, plugin) == 0 &&
            strcmp(other->name, added->name) == 0 &&
            strcmp(impl_of(other)->dispatch_key, impl_of(added)->dispatch_key) == 0) {
            return other;
        }
    }
    return NULL;
}

// Why only when it is needed: formatting every implementation would cost more than all the rest.
static void find_impl(judge *self, const berth_addition *added, const berth_addition *op,
                      const berth_addition *same) {
    char what[FINDING_BYTES / 2];
    (void)snprintf(what, sizeof(what), "'%s' of op '%s' for key '%s'", added->name, op->name,
                   impl_of(added)->dispatch_key);
    if (same != NULL) {
        find_duplicate(self, added, same, what);
    } else {
        find(self, RANK_UNKNOWN, added, "no implementation %s to replace", what);
    }
}

static void judge_impl(judge *self, uint32_t index, berth_addition *op) {
    berth_registry *registry = self->registry;
    berth_addition *added = &registry->additions.data[index];
    berth_addition *same = find_same(registry, op, added);
    const bool is_replacement = (added->flags & BERTH_REGISTER_REPLACE) != 0;
    const bool can_replace = same != NULL && (same->flags & BERTH_REGISTER_REPLACE) == 0;
    if (is_replacement ? !can_replace : same != NULL) {
        find_impl(self, added, op, same);
        return;
    }
    if (is_replacement) {
        same->is_replaced = true;
    }
    added->next_impl = op->first_impl;
    op->first_impl = index + 1;
}

static berth_claim *find_claim(const berth_registry *registry, const berth_addition *op,
                               const char *device_type) {
    for (uint32_t next = op->first_claim; next != 0;) {
        berth_claim *claim = &registry->claims.data[next - 1];
        if (strcmp(claim->device_type, device_type) == 0) {
            return claim;
        }
        next = claim->next;
    }
    return NULL;
}

static berth_status judge_claim(judge *self, uint32_t index, berth_addition *op,
                                const char *device_type) {
    berth_registry *registry = self->registry;
    const berth_addition *added = &registry->additions.data[index];
    const bool is_replacement = (added->flags & BERTH_REGISTER_REPLACE) != 0;
    berth_claim *claim = find_claim(registry, op, device_type);
    if (claim != NULL && claim->override == index) {
        return BERTH_OK; // the plugin names the device type twice
    }
    char what[FINDING_BYTES / 2];
    (void)snprintf(what, sizeof(what), "of op '%s' for device type '%s'", op->name, device_type);
    if (claim == NULL) {
        if (is_replacement) {
            find(self, RANK_UNKNOWN, added, "no override %s to replace", what);
            return BERTH_OK;
        }
        BERTH_TRY(berth_array_push(&registry->claims, (berth_claim){
                                                          .device_type = device_type,
                                                          .override = index,
                                                          .next = op->first_claim,
                                                      }));
        op->first_claim = (uint32_t)registry->claims.count;
        return BERTH_OK;
    }
    const berth_addition *other = &registry->additions.data[claim->override];
    if (!is_replacement || (other->flags & BERTH_REGISTER_REPLACE) != 0) {
        find_duplicate(self, added, other, what);
        return BERTH_OK;
    }
    claim->override = index;
    return BERTH_OK;
}

static bool has_input(const berth_op *op, const char *name) {
    for (uint64_t i = 0; i < op->input_count; ++i) {
        if (strcmp(op->inputs[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

// The op that a pattern looks for, and the inputs that it names.
static void judge_node(judge *self, const berth_addition *added, const berth_pass_node *node) {
    const berth_registry *registry = self->registry;
    const uint32_t *found =
        berth_map_find(&registry->names[BERTH_KIND_OP], berth_str_from(node->op));
    if (found == NULL) {
        char buffer[FINDING_BYTES];
        find(self, RANK_UNKNOWN, added, "pass '%s' looks for the op '%s', which is not there%s",
             added->name, node->op, suggest(registry, BERTH_KIND_OP, node->op, buffer));
        return;
    }
    const berth_op *op = &((const berth_op_entry *)registry->additions.data[*found].entry)->op;
    for (uint64_t i = 0; i < node->input_count; ++i) {
        if (!has_input(op, node->inputs[i]->name)) {
            find(self, RANK_MISMATCH, added,
                 "pass '%s' looks for the input '%s' of op '%s', which has none of the name",
                 added->name, node->inputs[i]->name, op->name);
        }
    }
}

static void judge_pass(judge *self, const berth_addition *added) {
    const berth_pass *it = &((const berth_pass_entry *)added->entry)->pass;
    for (uint64_t i = 0; i < it->pattern_count; ++i) {
        for (uint64_t k = 0; k < it->patterns[i]->node_count; ++k) {
            const berth_pass_node *node = it->patterns[i]->nodes[k];
            if (strcmp(node->op, "reshape") != 0 && strcmp(node->op, "slice") != 0) {
                judge_node(self, added, node);
            }
        }
    }
}

static berth_status judge_use(judge *self, uint32_t index) {
    berth_addition *added = &self->registry->additions.data[index];
    if (added->kind == BERTH_KIND_PASS) {
        judge_pass(self, added);
        return BERTH_OK;
    }
    berth_addition *op = resolve_op(self, added);
    if (op == NULL || added->kind == BERTH_KIND_ATTENTION) {
        return BERTH_OK;
    }
    added->op = (uint32_t)(op - self->registry->additions.data);
    ((berth_impl_entry *)added->entry)->op = op->entry;
    if (added->kind == BERTH_KIND_IMPL) {
        judge_impl(self, index, op);
        return BERTH_OK;
    }
    const berth_op_impl *impl = impl_of(added);
    for (uint64_t i = 0; i < impl->device_type_count; ++i) {
        BERTH_TRY(judge_claim(self, index, op, impl->device_types[i]));
    }
    return BERTH_OK;
}

// ---- turns --------------------------------------------------------------------------------------

typedef berth_status (*judge_fn)(judge *self, uint32_t index);

static bool is_judged_by(judge_fn step, berth_kind kind) {
    const bool has_name = kind < BERTH_NAMED_KINDS;
    const bool has_op =
        kind >= BERTH_KIND_IMPL || kind == BERTH_KIND_ATTENTION || kind == BERTH_KIND_PASS;
    return step == judge_name ? has_name : has_op;
}

static berth_status judge_all(judge *self, judge_fn step, pass which) {
    const berth_registry *registry = self->registry;
    const uint64_t wanted = which == PASS_REPLACE ? BERTH_REGISTER_REPLACE : 0;
    for (size_t i = 0; i < registry->transactions.count; ++i) {
        const berth_transaction *one = registry->transactions.data[i];
        const uint32_t end = one->is_dropped ? one->first : one->first + one->count;
        for (uint32_t index = one->first; index < end; ++index) {
            const berth_addition *added = &registry->additions.data[index];
            if (added->flags == wanted && is_judged_by(step, added->kind)) {
                BERTH_TRY(step(self, index));
            }
        }
    }
    return BERTH_OK;
}

static void forget(berth_registry *registry) {
    for (size_t i = 0; i < BERTH_NAMED_KINDS; ++i) {
        berth_map_deinit(&registry->names[i]);
    }
    berth_array_clear(&registry->claims);
    for (size_t i = 0; i < registry->additions.count; ++i) {
        berth_addition *added = &registry->additions.data[i];
        added->first_impl = 0;
        added->first_claim = 0;
        added->next_impl = 0;
        added->replaces = 0;
        added->is_replaced = false;
    }
}

static berth_status take_turn(judge *self) {
    self->found = RANK_NONE;
    forget(self->registry);
    BERTH_TRY(judge_all(self, judge_name, PASS_NEW));
    BERTH_TRY(judge_all(self, judge_name, PASS_REPLACE));
    BERTH_TRY(judge_all(self, judge_use, PASS_NEW));
    return judge_all(self, judge_use, PASS_REPLACE);
}

berth_status berth_judge(berth_registry *registry) {
    judge self = {.registry = registry};
    BERTH_TRY(take_turn(&self));
    while (self.found != RANK_NONE) {
        if (self.transaction->is_core) {
            return BERTH_FAIL(INTERNAL, "core plugin '%s': %s", self.transaction->owner->id,
                              self.text);
        }
        berth_transaction_drop(registry, self.transaction, berth_reason(registry, "%s", self.text));
        BERTH_TRY(take_turn(&self));
    }
    return BERTH_OK;
}
