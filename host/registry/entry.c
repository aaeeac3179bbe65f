// SPDX-License-Identifier: Apache-2.0
// Input: an entry point that may run. Output: its additions kept or gone, and a state with a reason
// in the candidate's record. One plugin's failure stays in its record.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "registry/registry_private.h"

#define REASON_BYTES 1024

const char *berth_reason(const berth_registry *registry, const char *format, ...) {
    char text[REASON_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    // Why the arena of the configuration: the records that point here outlive the registry.
    const char *copy = berth_arena_strdup(registry->config->arena, text);
    return copy != NULL ? copy : "the reason is lost: out of memory";
}

void berth_entry_set(berth_entry *entry, berth_plugin_state state, const char *reason) {
    entry->state = state;
    entry->reason = reason;
}

static bool has_failed(berth_plugin_state state) {
    return state == BERTH_PLUGIN_INELIGIBLE || state == BERTH_PLUGIN_REFUSED ||
           state == BERTH_PLUGIN_QUARANTINED || state == BERTH_PLUGIN_LOAD_FAILED ||
           state == BERTH_PLUGIN_REGISTER_FAILED;
}

void berth_candidate_settle(berth_registry *registry, berth_candidate *candidate) {
    const berth_entry *furthest = NULL;
    const berth_entry *failed = NULL;
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        const berth_entry *entry = &candidate->entries[i];
        const bool is_better = furthest == NULL || entry->state > furthest->state;
        const bool has_more = !is_better && entry->state == furthest->state &&
                              *furthest->reason == '\0' && *entry->reason != '\0';
        furthest = is_better || has_more ? entry : furthest;
        failed = failed == NULL && has_failed(entry->state) ? entry : failed;
    }
    if (furthest == NULL) {
        return;
    }
    candidate->state = furthest->state;
    candidate->reason = furthest->reason;
    if (failed != NULL && failed->state != furthest->state) {
        candidate->reason = berth_reason(registry, "entry point '%s': %s: %s", failed->name,
                                         berth_plugin_state_name(failed->state), failed->reason);
    }
}

static berth_status require_one(const berth_candidate *candidate) {
    const char *name = *candidate->id != '\0' ? candidate->id : candidate->manifest;
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        const berth_entry *entry = &candidate->entries[i];
        if (has_failed(entry->state)) {
            return BERTH_FAIL(UNAVAILABLE, "plugin '%s' is required; its entry point '%s': %s: %s",
                              name, entry->name, berth_plugin_state_name(entry->state),
                              entry->reason);
        }
    }
    if (has_failed(candidate->state)) {
        return BERTH_FAIL(UNAVAILABLE, "plugin '%s' is required: %s: %s", name,
                          berth_plugin_state_name(candidate->state), candidate->reason);
    }
    return BERTH_OK;
}

berth_status berth_candidates_require(const berth_candidates *candidates) {
    for (size_t i = 0; candidates != NULL && i < candidates->count; ++i) {
        if (candidates->items[i].importance == BERTH_IMPORTANCE_REQUIRED) {
            BERTH_TRY(require_one(&candidates->items[i]));
        }
    }
    return BERTH_OK;
}

static const berth_owner *make_owner(berth_registry *registry, const berth_opened *opened,
                                     const berth_entry *entry) {
    berth_owner *owner = BERTH_ARENA_NEW(registry->arena, berth_owner);
    if (owner != NULL) {
        *owner = (berth_owner){
            .id = opened->plugin.id,
            .version = opened->plugin.version,
            .entry = entry->name,
            .group = entry->group,
            .is_builtin = opened->candidate->is_builtin,
            .candidate = opened->candidate,
        };
    }
    return owner;
}

static const berth_entry_point *find_entry_point(const berth_opened *opened,
                                                 const berth_entry *entry) {
    for (size_t i = 0; i < opened->entry_count; ++i) {
        if (strcmp(opened->entries[i].group, entry->group) == 0 &&
            strcmp(opened->entries[i].name, entry->name) == 0) {
            return &opened->entries[i];
        }
    }
    return NULL;
}

static berth_status call_entry_point(berth_registry *registry, const berth_entry_point *point,
                                     const berth_owner *owner, berth_transaction *transaction) {
    berth_plugin_enter(owner, "register_plugin");
    const berth_status status =
        berth_plugin_leave(point->register_plugin(&registry->host, &registry->registrar));
    if (status != BERTH_OK || transaction->failed != BERTH_OK) {
        return status;
    }
    if (strcmp(owner->group, BERTH_GROUP_PLATFORM) == 0 && !transaction->has_platform) {
        return BERTH_FAIL(INTERNAL,
                          "the entry point returned OK without a platform; call add_platform, or "
                          "return BERTH_DECLINED with a reason");
    }
    return BERTH_OK;
}

static berth_status run(berth_registry *registry, berth_opened *opened, berth_entry *entry) {
    const berth_entry_point *point = find_entry_point(opened, entry);
    const berth_owner *owner = make_owner(registry, opened, entry);
    berth_transaction *transaction = NULL;
    if (owner == NULL) {
        return berth_arena_exhausted(registry->arena, "owners");
    }
    BERTH_TRY(berth_transaction_begin(registry, owner, &transaction));
    transaction->candidate = opened->candidate;
    transaction->entry = entry;
    transaction->is_core = opened->candidate->library == NULL;
    opened->has_run = true;
    return berth_transaction_end(registry, call_entry_point(registry, point, owner, transaction));
}

void berth_entry_run(berth_registry *registry, berth_opened *opened, berth_entry *entry) {
    const berth_status status = run(registry, opened, entry);
    if (status == BERTH_OK) {
        berth_entry_set(entry, BERTH_PLUGIN_ACTIVE, "");
        return;
    }
    // Why only the first frame: that plugin and slot are meant is what the record is about.
    berth_status_report report;
    berth_status_take(&report);
    const char *text = report.frame_count > 0 ? report.text + report.frames[0].text_offset : "";
    berth_entry_set(entry,
                    status == BERTH_DECLINED ? BERTH_PLUGIN_DECLINED : BERTH_PLUGIN_REGISTER_FAILED,
                    berth_reason(registry, "%s", text));
}
