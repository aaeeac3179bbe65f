// SPDX-License-Identifier: Apache-2.0
// Input: what a plugin hands to the registrar. Output: one checked and copied addition of the open
// transaction. A failed add makes the whole transaction fail, even if the plugin ignores it.
#include <string.h>

#include "base/hash.h"
#include "registry/registry_private.h"

// How a kind is copied: the table stands first in the entry, the owner somewhere behind it.
typedef struct kind_row {
    const char *slot; // of the registrar
    berth_table_id id;
    size_t entry_bytes;
    size_t owner_offset;
    size_t name_offset;
    size_t except;      // required slot that this kind may leave NULL, 0: none
    berth_copy_fn copy; // NULL: nothing behind the table but its name
} kind_row;

// KIND(slot, index of berth_tables, entry, table, its name, what else is set)
#define KIND(slot_name, table_id, entry_type, table_type, name_member, ...)                        \
    {                                                                                              \
        .slot = #slot_name, .id = BERTH_TABLE_##table_id, .entry_bytes = sizeof(entry_type),       \
        .owner_offset = offsetof(entry_type, owner),                                               \
        .name_offset = offsetof(table_type, name_member), __VA_ARGS__                              \
    }

static const kind_row kinds[] = {
    [BERTH_KIND_OP] = KIND(add_op, OP, berth_op_entry, berth_op, name, .copy = berth_copy_op),
    [BERTH_KIND_LAYER] = KIND(add_layer, LAYER, berth_layer_entry, berth_layer, name, .copy = NULL),
    [BERTH_KIND_QUANT] =
        KIND(add_quant_config, QUANT, berth_quant_entry, berth_quant_config, name, .copy = NULL),
    [BERTH_KIND_MODEL] = KIND(add_model, MODEL, berth_model_entry, berth_model, architecture,
                              .copy = berth_copy_model),
    [BERTH_KIND_ATTENTION] = KIND(add_attention_backend, ATTENTION, berth_attention_entry,
                                  berth_attention_backend, name, .copy = berth_copy_attention),
    [BERTH_KIND_PASS] =
        KIND(add_pass, PASS, berth_pass_entry, berth_pass, name, .copy = berth_copy_pass),
    [BERTH_KIND_PLATFORM] = KIND(add_platform, PLATFORM, berth_platform_entry, berth_platform, name,
                                 .copy = berth_copy_platform),
    [BERTH_KIND_IMPL] =
        KIND(add_op_impl, IMPL, berth_impl_entry, berth_op_impl, name, .copy = berth_copy_impl),
    [BERTH_KIND_OVERRIDE] =
        KIND(add_op_override, IMPL, berth_impl_entry, berth_op_impl, name, .copy = berth_copy_impl,
             .except = offsetof(berth_op_impl, dispatch_key)),
};

// What the entry point that runs may add: a platform's gives its descriptor, its register_ops and
// all others give everything else. Why: an unselected platform must leave nothing in the tables.
static berth_status check_place(const berth_transaction *open, berth_kind kind) {
    const bool is_platform =
        strcmp(open->owner->group, BERTH_GROUP_PLATFORM) == 0 && !open->is_late;
    const char *slot = kinds[kind].slot;
    if (kind == BERTH_KIND_PLATFORM && !is_platform) {
        return BERTH_FAIL(WRONG_STATE, "%s belongs in an entry point of " BERTH_GROUP_PLATFORM,
                          slot);
    }
    if (kind == BERTH_KIND_PLATFORM && open->has_platform) {
        return BERTH_FAIL(WRONG_STATE, "%s is called twice; an entry point gives one platform",
                          slot);
    }
    if (kind != BERTH_KIND_PLATFORM && is_platform) {
        return BERTH_FAIL(WRONG_STATE,
                          "%s belongs in the platform's register_ops or in an entry point "
                          "of " BERTH_GROUP_GENERAL,
                          slot);
    }
    return BERTH_OK;
}

static berth_status push_addition(berth_registry *registry, berth_kind kind, const void *table,
                                  uint64_t flags, void **out_entry) {
    const kind_row *row = &kinds[kind];
    BERTH_TRY(check_place(registry->open, kind));
    BERTH_TRY(berth_table_check(row->id, table, row->except));
    if ((flags & ~(uint64_t)BERTH_REGISTER_REPLACE) != 0) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: the flags 0x%llx are unknown to this host",
                          row->slot, (unsigned long long)flags);
    }
    char *entry = berth_arena_array(registry->arena, 1, row->entry_bytes);
    if (entry == NULL) {
        return berth_arena_exhausted(registry->arena, "registered tables");
    }
    berth_table_copy(row->id, entry, table);
    memcpy(entry + row->owner_offset, &registry->open->owner, sizeof(registry->open->owner));
    if (kind == BERTH_KIND_OVERRIDE) {
        ((berth_impl_entry *)(void *)entry)->is_override = true;
    }
    const char *name = NULL;
    memcpy(&name, entry + row->name_offset, sizeof(name));
    BERTH_TRY(row->copy != NULL ? row->copy(registry, entry)
                                : berth_name_check(berth_tables[row->id].name, name));
    *out_entry = entry;
    return berth_array_push(&registry->additions,
                            (berth_addition){
                                .transaction = registry->open,
                                .entry = entry,
                                .name = name,
                                .flags = flags,
                                .name_hash = berth_hash_bytes(BERTH_HASH_START, name, strlen(name)),
                                .kind = kind,
                            });
}

// Keeps the first failure for the record, whatever the plugin makes of the status.
static berth_status add(berth_registrar *registrar, berth_kind kind, const void *table,
                        uint64_t flags, void **out_entry) {
    berth_registry *registry = registrar->context;
    if (registry->is_frozen) {
        return BERTH_FAIL(SEALED, "%s comes too late: the tables are frozen", kinds[kind].slot);
    }
    if (registry->open == NULL) {
        return BERTH_FAIL(WRONG_STATE, "%s is called outside of an entry point", kinds[kind].slot);
    }
    const berth_status status = push_addition(registry, kind, table, flags, out_entry);
    berth_transaction *open = registry->open;
    if (status == BERTH_OK) {
        open->count += 1;
    } else if (open->failed == BERTH_OK) {
        open->failed = status;
        open->reason = berth_reason(registry, "%s", berth_status_message());
    }
    return status;
}

static berth_status add_platform(berth_registrar *registrar, const berth_platform *platform,
                                 void *self) {
    void *entry = NULL;
    BERTH_TRY(add(registrar, BERTH_KIND_PLATFORM, platform, 0, &entry));
    ((berth_platform_entry *)entry)->self = self;
    ((berth_registry *)registrar->context)->open->has_platform = true;
    return BERTH_OK;
}

static berth_status add_op(berth_registrar *registrar, const berth_op *op, uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_OP, op, flags, &entry);
}

static berth_status add_op_impl(berth_registrar *registrar, const berth_op_impl *impl,
                                uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_IMPL, impl, flags, &entry);
}

static berth_status add_op_override(berth_registrar *registrar, const berth_op_impl *impl,
                                    uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_OVERRIDE, impl, flags, &entry);
}

static berth_status add_layer(berth_registrar *registrar, const berth_layer *layer,
                              uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_LAYER, layer, flags, &entry);
}

static berth_status add_quant_config(berth_registrar *registrar, const berth_quant_config *config,
                                     uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_QUANT, config, flags, &entry);
}

static berth_status add_model(berth_registrar *registrar, const berth_model *model,
                              uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_MODEL, model, flags, &entry);
}

static berth_status add_attention_backend(berth_registrar *registrar,
                                          const berth_attention_backend *backend, uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_ATTENTION, backend, flags, &entry);
}

static berth_status add_pass(berth_registrar *registrar, const berth_pass *pass, uint64_t flags) {
    void *entry = NULL;
    return add(registrar, BERTH_KIND_PASS, pass, flags, &entry);
}

void berth_registrar_fill(berth_registrar *registrar, berth_registry *registry) {
    *registrar = (berth_registrar){
        .size = sizeof(berth_registrar),
        .context = registry,
        .add_platform = add_platform,
        .add_op = add_op,
        .add_op_impl = add_op_impl,
        .add_op_override = add_op_override,
        .add_layer = add_layer,
        .add_quant_config = add_quant_config,
        .add_model = add_model,
        .add_attention_backend = add_attention_backend,
        .add_pass = add_pass,
    };
}
