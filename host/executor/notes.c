// SPDX-License-Identifier: Apache-2.0
// Input: the finished dispatch. Output: lines about what had no effect, so that nothing is silently
// ignored: overrides that no site took, op libraries that sites go without, and names in custom_ops
// and fallback_ops that mean nothing here.
#include "executor/stages.h"

#include <stdlib.h>
#include <string.h>

static berth_status add_note(berth_plan *plan, bool is_users, const char *text) {
    const berth_plan_remark remark = {.text = text, .is_users = is_users};
    return text != NULL ? berth_array_push(&plan->notes, remark)
                        : berth_arena_exhausted(plan->arena, "dispatch notes");
}

static size_t sites_of(const berth_plan *plan, const berth_op_entry *op,
                       const berth_binding **out_first) {
    size_t count = 0;
    for (size_t i = plan->bindings.count; i-- > 0;) {
        if (plan->bindings.data[i]->op == op) {
            *out_first = plan->bindings.data[i];
            ++count;
        }
    }
    return count;
}

// ---- overrides ----------------------------------------------------------------------------------

static bool is_used(const berth_plan *plan, const berth_impl_entry *entry) {
    for (size_t i = 0; i < plan->bindings.count; ++i) {
        const berth_op_impl *impl = plan->bindings.data[i]->impl;
        if (impl == &entry->impl || impl == &entry->form) {
            return true;
        }
    }
    return false;
}

static bool is_for_device(const berth_plan *plan, const berth_op_impl *impl) {
    const char *type = berth_runtime_device(plan->runtime)->device_type;
    for (uint64_t i = 0; i < impl->device_type_count; ++i) {
        if (strcmp(impl->device_types[i], type) == 0) {
            return true;
        }
    }
    return false;
}

static berth_status note_override(berth_plan *plan, const berth_impl_entry *entry) {
    const berth_binding *first = NULL;
    const size_t sites = sites_of(plan, entry->op, &first);
    const char *why = sites == 0 ? "the model has no such op"
                      : !is_for_device(plan, &entry->impl)
                          ? "it is for other device types than the platform's"
                      : !first->record.is_enabled ? "the op is switched off"
                                                  : "it supports none of the model's sites";
    return add_note(
        plan, false,
        berth_arena_printf(plan->arena, "override '%s' of plugin %s for op '%s' is never used: %s",
                           entry->impl.name, entry->owner->id, entry->op->op.name, why));
}

static berth_status note_overrides(berth_plan *plan) {
    const berth_registry *registry = plan->request.registry;
    for (size_t i = 0; i < berth_registry_op_count(registry); ++i) {
        const berth_op_entry *op = berth_registry_op_at(registry, i);
        for (size_t j = 0; j < op->override_count; ++j) {
            if (!is_used(plan, op->overrides[j])) {
                BERTH_TRY(note_override(plan, op->overrides[j]));
            }
        }
    }
    return BERTH_OK;
}

// ---- op libraries -------------------------------------------------------------------------------

static berth_status note_libraries(berth_plan *plan) {
    const berth_registry *registry = plan->request.registry;
    for (size_t i = 0; i < berth_registry_library_count(registry); ++i) {
        const berth_op_library_entry *library = berth_registry_library_at(registry, i);
        size_t sites = 0;
        for (size_t k = 0; k < plan->bindings.count; ++k) {
            sites += plan->bindings.data[k]->missed == library;
        }
        if (sites > 0) {
            BERTH_TRY(add_note(
                plan, false,
                berth_arena_printf(plan->arena,
                                   "%zu sites go without op library %s of plugin %s: %s", sites,
                                   library->file, library->owner->id, library->reason)));
        }
    }
    return BERTH_OK;
}

// ---- names --------------------------------------------------------------------------------------

static berth_status nearest_op(berth_plan *plan, const char *name, const char **out_nearest) {
    const size_t count = berth_registry_op_count(plan->request.registry);
    const char **names = BERTH_ARENA_ARRAY(plan->arena, const char *, 2 * count);
    if (names == NULL) {
        return berth_arena_exhausted(plan->arena, "op names");
    }
    for (size_t i = 0; i < count; ++i) {
        const berth_op *op = &berth_registry_op_at(plan->request.registry, i)->op;
        names[2 * i] = op->name;
        names[2 * i + 1] = op->class_name;
    }
    *out_nearest = berth_str_nearest(berth_str_from(name), names, 2 * count);
    return BERTH_OK;
}

// `sign` is "+", "-" or "".
static berth_status note_name(berth_plan *plan, const char *key, const char *sign,
                              const char *name) {
    const berth_op_entry *op = berth_registry_find_op(plan->request.registry, name);
    const berth_binding *first = NULL;
    if (op != NULL && sites_of(plan, op, &first) > 0) {
        return BERTH_OK;
    }
    if (op != NULL) {
        return add_note(plan, true,
                        berth_arena_printf(plan->arena,
                                           "%s: '%s%s' matches nothing: the op '%s' is not "
                                           "in this model",
                                           key, sign, name, op->op.name));
    }
    const char *nearest = NULL;
    BERTH_TRY(nearest_op(plan, name, &nearest));
    return add_note(
        plan, true,
        berth_arena_printf(plan->arena, "%s: '%s%s' matches nothing: there is no such op%s%s%s",
                           key, sign, name, nearest != NULL ? ", did you mean '" : "",
                           nearest != NULL ? nearest : "", nearest != NULL ? "'?" : ""));
}

static berth_status note_names(berth_plan *plan) {
    const berth_custom_ops *ops = &plan->custom_ops;
    for (size_t i = 0; i < ops->plus_count; ++i) {
        BERTH_TRY(note_name(plan, "custom_ops", "+", ops->plus[i]));
    }
    for (size_t i = 0; i < ops->minus_count; ++i) {
        BERTH_TRY(note_name(plan, "custom_ops", "-", ops->minus[i]));
    }
    const berth_option_list *fallback = &plan->request.config->fallback_ops;
    for (size_t i = 0; i < fallback->count; ++i) {
        BERTH_TRY(note_name(plan, "fallback_ops", "", fallback->items[i]));
    }
    return BERTH_OK;
}

static int compare_notes(const void *a, const void *b) {
    return strcmp(((const berth_plan_remark *)a)->text, ((const berth_plan_remark *)b)->text);
}

berth_status berth_plan_write_notes(berth_plan *plan) {
    BERTH_TRY(note_overrides(plan));
    BERTH_TRY(note_libraries(plan));
    BERTH_TRY(note_names(plan));
    if (plan->notes.count > 0) {
        qsort(plan->notes.data, plan->notes.count, sizeof(*plan->notes.data), compare_notes);
    }
    return BERTH_OK;
}
