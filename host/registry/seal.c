// SPDX-License-Identifier: Apache-2.0
// Input: additions that stand, with their chains. Output: the tables as others read them, each
// sorted by name, an op's implementations in the order in which they are asked.
#include <stdlib.h>
#include <string.h>

#include "registry/registry_private.h"

static int compare_listed(const void *a, const void *b) {
    return strcmp(((const berth_listed *)a)->name, ((const berth_listed *)b)->name);
}

// Higher priority first, then plugin id, name, key.
static int compare_impls(const void *a, const void *b) {
    const berth_impl_entry *left = *(const berth_impl_entry *const *)a;
    const berth_impl_entry *right = *(const berth_impl_entry *const *)b;
    if (left->impl.priority != right->impl.priority) {
        return left->impl.priority > right->impl.priority ? -1 : 1;
    }
    const int by_plugin =
        left->owner == right->owner ? 0 : strcmp(left->owner->id, right->owner->id);
    if (by_plugin != 0) {
        return by_plugin;
    }
    const int by_name = strcmp(left->impl.name, right->impl.name);
    if (by_name != 0 || left->is_override) {
        return by_name;
    }
    return strcmp(left->impl.dispatch_key, right->impl.dispatch_key);
}

static berth_status gather_impls(berth_registry *registry, const berth_addition *op) {
    const berth_addition *additions = registry->additions.data;
    size_t count = 0;
    for (uint32_t next = op->first_impl; next != 0; next = additions[next - 1].next_impl) {
        count += !additions[next - 1].is_replaced;
    }
    const berth_impl_entry **impls =
        BERTH_ARENA_ARRAY(registry->arena, const berth_impl_entry *, count);
    if (impls == NULL) {
        return berth_arena_exhausted(registry->arena, "implementations");
    }
    size_t i = 0;
    for (uint32_t next = op->first_impl; next != 0; next = additions[next - 1].next_impl) {
        berth_addition *added = &registry->additions.data[next - 1];
        if (!added->is_replaced) {
            added->is_live = true;
            impls[i++] = added->entry;
        }
    }
    qsort(impls, count, sizeof(impls[0]), compare_impls);
    berth_op_entry *entry = op->entry;
    entry->impls = impls;
    entry->impl_count = count;
    return BERTH_OK;
}

// An override that another one replaced on some device types keeps the others.
static berth_status gather_overrides(berth_registry *registry, const berth_addition *op) {
    size_t most = 0;
    for (uint32_t next = op->first_claim; next != 0; next = registry->claims.data[next - 1].next) {
        ++most;
    }
    const berth_impl_entry **overrides =
        BERTH_ARENA_ARRAY(registry->arena, const berth_impl_entry *, most);
    if (overrides == NULL) {
        return berth_arena_exhausted(registry->arena, "overrides");
    }
    size_t count = 0;
    for (uint32_t next = op->first_claim; next != 0; next = registry->claims.data[next - 1].next) {
        const berth_claim *claim = &registry->claims.data[next - 1];
        berth_addition *added = &registry->additions.data[claim->override];
        berth_op_impl *impl = &((berth_impl_entry *)added->entry)->impl;
        if (!added->is_live) {
            added->is_live = true;
            impl->device_type_count = 0;
            overrides[count++] = added->entry;
        }
        // Why the cast: the array is the registry's own copy, made by berth_copy_impl.
        ((const char **)(uintptr_t)impl->device_types)[impl->device_type_count++] =
            claim->device_type;
    }
    qsort(overrides, count, sizeof(overrides[0]), compare_impls);
    berth_op_entry *entry = op->entry;
    entry->overrides = overrides;
    entry->override_count = count;
    return BERTH_OK;
}

// A replacement has every slot of the table that it left NULL from the one whose place it took.
static void inherit(const berth_registry *registry, const berth_addition *added) {
    const berth_table *table = &berth_tables[BERTH_TABLE_QUANT];
    berth_quant_entry *entry = added->entry;
    entry->replaced = registry->additions.data[added->replaces - 1].entry;
    char *own = (char *)&entry->config;
    const char *other = (const char *)&entry->replaced->config;
    for (size_t at = sizeof(uint64_t); at < table->size; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, own + at, sizeof word);
        if (word == 0) {
            memcpy(own + at, other + at, sizeof word);
        }
    }
}

static berth_status list(berth_registry *registry, berth_kind kind) {
    const berth_map *map = &registry->names[kind];
    berth_listing *listing = &registry->listings[kind];
    listing->items = BERTH_ARENA_ARRAY(registry->arena, berth_listed, map->count);
    if (listing->items == NULL) {
        return berth_arena_exhausted(registry->arena, "the frozen tables");
    }
    for (uint32_t i = 0; i < map->count; ++i) {
        berth_addition *added = &registry->additions.data[map->entries[i].value];
        if (!berth_str_equal_cstr(map->entries[i].key, added->name)) {
            continue; // an op's class name
        }
        added->is_live = true;
        listing->items[listing->count++] =
            (berth_listed){.name = added->name, .entry = added->entry};
        if (kind == BERTH_KIND_QUANT && added->replaces > 0) {
            inherit(registry, added);
        }
        if (kind == BERTH_KIND_OP) {
            BERTH_TRY(gather_impls(registry, added));
            BERTH_TRY(gather_overrides(registry, added));
        }
    }
    qsort(listing->items, listing->count, sizeof(listing->items[0]), compare_listed);
    return BERTH_OK;
}

berth_status berth_seal(berth_registry *registry) {
    for (size_t kind = 0; kind < BERTH_NAMED_KINDS; ++kind) {
        BERTH_TRY(list(registry, (berth_kind)kind));
    }
    const berth_listing *ops = &registry->listings[BERTH_KIND_OP];
    for (size_t i = 0; i < ops->count; ++i) {
        ((berth_op_entry *)ops->items[i].entry)->index = (uint32_t)i;
    }
    for (size_t i = 0; i < registry->additions.count; ++i) {
        berth_addition *added = &registry->additions.data[i];
        added->is_live = added->is_live ||
                         (added->kind == BERTH_KIND_PLATFORM && !added->transaction->is_dropped);
    }
    return berth_op_libraries_list(registry);
}
