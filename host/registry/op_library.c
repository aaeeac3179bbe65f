// SPDX-License-Identifier: Apache-2.0
// Input: the implementations of the frozen tables that name an op library of their plugin. Output:
// a record for each file; when it is first used, the forms that it has stand beside those
// implementations, or the record says why there are none.
#include <string.h>

#include "base/file.h"
#include "registry/registry_private.h"

#define MAX_FORMS 4096

// ---- records ------------------------------------------------------------------------------------

static berth_op_library_entry *find_record(const berth_registry *registry, const char *plugin,
                                           const char *file) {
    for (size_t i = 0; i < registry->libraries.count; ++i) {
        berth_op_library_entry *library = registry->libraries.data[i];
        if (strcmp(library->owner->id, plugin) == 0 && strcmp(library->file, file) == 0) {
            return library;
        }
    }
    return NULL;
}

static berth_status add_record(berth_registry *registry, const berth_impl_entry *entry,
                               berth_op_library_entry **out) {
    const berth_str dir = berth_path_dir(entry->owner->candidate->library);
    const char *folder = berth_arena_copy(registry->arena, dir);
    berth_op_library_entry *library = BERTH_ARENA_NEW(registry->arena, berth_op_library_entry);
    const char *path =
        folder == NULL ? NULL : berth_path_join(registry->arena, folder, entry->impl.library);
    if (library == NULL || path == NULL) {
        return berth_arena_exhausted(registry->arena, "op libraries");
    }
    *library = (berth_op_library_entry){
        .file = entry->impl.library,
        .path = path,
        .owner = entry->owner,
        .reason = "",
    };
    *out = library;
    return berth_array_push(&registry->libraries, library);
}

// The implementation of a live addition, NULL when it is none.
static berth_impl_entry *impl_entry_of(const berth_addition *added) {
    const bool is_impl = added->kind == BERTH_KIND_IMPL || added->kind == BERTH_KIND_OVERRIDE;
    return added->is_live && is_impl ? added->entry : NULL;
}

berth_status berth_op_libraries_list(berth_registry *registry) {
    for (size_t i = 0; i < registry->additions.count; ++i) {
        berth_impl_entry *entry = impl_entry_of(&registry->additions.data[i]);
        if (entry == NULL || entry->impl.library == NULL) {
            continue;
        }
        entry->library = find_record(registry, entry->owner->id, entry->impl.library);
        if (entry->library == NULL) {
            BERTH_TRY(add_record(registry, entry, &entry->library));
        }
    }
    return BERTH_OK;
}

size_t berth_registry_library_count(const berth_registry *registry) {
    return registry->libraries.count;
}

berth_op_library_entry *berth_registry_library_at(const berth_registry *registry, size_t index) {
    return registry->libraries.data[index];
}

const char *berth_library_state_name(berth_library_state state) {
    static const char *const names[] = {
        [BERTH_LIBRARY_NOT_TRIED] = "not tried",
        [BERTH_LIBRARY_LOADED] = "loaded",
        [BERTH_LIBRARY_FAILED] = "failed",
    };
    return names[state];
}

// ---- what a library exports ---------------------------------------------------------------------

static berth_status check_library(const berth_registry *registry,
                                  const berth_op_library_entry *library,
                                  const berth_op_library *given) {
    const berth_owner *owner = library->owner;
    BERTH_TRY(berth_library_negotiate(registry, owner->candidate, BERTH_TABLE_OP_LIBRARY, given));
    BERTH_TRY(berth_table_check(BERTH_TABLE_OP_LIBRARY, given, 0));
    if (strcmp(given->id, owner->id) != 0 || strcmp(given->version, owner->version) != 0) {
        return BERTH_FAIL(INCOMPATIBLE,
                          "it belongs to plugin '%s' %s, and this is '%s' %s; install both of one "
                          "build",
                          given->id, given->version, owner->id, owner->version);
    }
    return BERTH_OK;
}

static berth_status check_forms(const berth_op_library *given) {
    if (given->impl_count > MAX_FORMS || (given->impl_count > 0 && given->impls == NULL)) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "the library has %llu implementations%s; at most %d are allowed",
                          (unsigned long long)given->impl_count,
                          given->impls == NULL ? ", but no array of them" : "", MAX_FORMS);
    }
    for (uint64_t i = 0; i < given->impl_count; ++i) {
        // A form of an override has no dispatch key.
        BERTH_TRY(berth_table_check(BERTH_TABLE_IMPL, given->impls[i],
                                    offsetof(berth_op_impl, dispatch_key)));
    }
    return BERTH_OK;
}

static bool is_form_of(const berth_op_impl *form, const berth_impl_entry *entry) {
    const char *key = entry->impl.dispatch_key;
    const bool has_key = key == NULL
                             ? form->dispatch_key == NULL
                             : form->dispatch_key != NULL && strcmp(form->dispatch_key, key) == 0;
    return has_key && strcmp(form->name, entry->impl.name) == 0 &&
           (strcmp(form->op, entry->op->op.name) == 0 ||
            strcmp(form->op, entry->op->op.class_name) == 0);
}

// Where it stands among the others is the registered one's, what it does its own.
static berth_status take_form(const berth_op_library *given, berth_impl_entry *entry) {
    const berth_op *op = &entry->op->op;
    const berth_op_impl *found = NULL;
    for (uint64_t i = 0; i < given->impl_count && found == NULL; ++i) {
        found = is_form_of(given->impls[i], entry) ? given->impls[i] : NULL;
    }
    if (found == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "the library has no '%s' of op '%s', which the plugin says it has",
                          entry->impl.name, op->name);
    }
    berth_op_impl *form = &entry->form;
    *form = (berth_op_impl){0};
    berth_table_copy(BERTH_TABLE_IMPL, form, found);
    BERTH_TRY(berth_impl_check_bare(form));
    if (!berth_op_accepts(op, form->revision)) {
        return BERTH_FAIL(INCOMPATIBLE,
                          "'%s' is written for revision %llu of op '%s', plugin '%s' has revision "
                          "%llu; build it for that",
                          form->name, (unsigned long long)form->revision, op->name,
                          entry->op->owner->id, (unsigned long long)op->revision);
    }
    form->priority = entry->impl.priority;
    form->device_types = entry->impl.device_types;
    form->device_type_count = entry->impl.device_type_count;
    return BERTH_OK;
}

berth_status berth_op_library_adopt(const berth_registry *registry,
                                    const berth_op_library_entry *library,
                                    const berth_op_library *given) {
    BERTH_TRY(check_library(registry, library, given));
    berth_op_library copy = {0};
    berth_table_copy(BERTH_TABLE_OP_LIBRARY, &copy, given);
    BERTH_TRY(check_forms(&copy));
    for (size_t i = 0; i < registry->additions.count; ++i) {
        berth_impl_entry *entry = impl_entry_of(&registry->additions.data[i]);
        if (entry != NULL && entry->library == library) {
            BERTH_TRY(take_form(&copy, entry));
        }
    }
    return BERTH_OK;
}

bool berth_op_library_open(const berth_registry *registry, berth_op_library_entry *library) {
    if (library->state != BERTH_LIBRARY_NOT_TRIED) {
        return library->state == BERTH_LIBRARY_LOADED;
    }
    const void *given = NULL;
    berth_status status = berth_library_map(library->path, BERTH_TABLE_OP_LIBRARY, &given);
    if (status == BERTH_OK) {
        status = berth_op_library_adopt(registry, library, given);
    }
    if (status == BERTH_OK) {
        library->state = BERTH_LIBRARY_LOADED;
        return true;
    }
    library->state = BERTH_LIBRARY_FAILED;
    library->reason = berth_reason(registry, "%s", berth_status_message());
    berth_status_clear();
    return false;
}
