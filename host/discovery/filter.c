// SPDX-License-Identifier: Apache-2.0
// Input: the text of BERTH_PLUGINS and candidates. Output: entries in state `filtered`, and a
// warning for every name that is no entry's. One filter serves all groups.
#include "discovery/search.h"

#include <string.h>

// Names in the filter; an empty piece is none, so "a,,b" and "a, b" are "a,b".
static bool next_name(berth_str *rest, berth_str *out_name) {
    while (berth_str_split_first(rest, ',', out_name)) {
        *out_name = berth_str_trim(*out_name);
        if (out_name->size > 0) {
            return true;
        }
    }
    return false;
}

bool berth_filter_accepts(const char *filter, const char *entry_name) {
    if (filter == NULL) {
        return true;
    }
    berth_str rest = berth_str_from(filter);
    for (berth_str name; next_name(&rest, &name);) {
        if (berth_str_equal_cstr(name, entry_name)) {
            return true;
        }
    }
    return false;
}

static bool is_anywhere(const berth_candidates *candidates, berth_str name) {
    for (size_t i = 0; i < candidates->count; ++i) {
        const berth_candidate *candidate = &candidates->items[i];
        if (candidate->manifest == NULL) {
            return true; // a library without a manifest: its entries are not known yet
        }
        for (size_t k = 0; k < candidate->entry_count; ++k) {
            if (berth_str_equal_cstr(name, candidate->entries[k].name)) {
                return true;
            }
        }
    }
    return false;
}

static void filter_entries(const char *filter, berth_candidate *candidate) {
    size_t left = 0;
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        berth_entry *entry = &candidate->entries[i];
        if (entry->state == BERTH_PLUGIN_FOUND && !berth_filter_accepts(filter, entry->name)) {
            entry->state = BERTH_PLUGIN_FILTERED;
            entry->reason = "not named in BERTH_PLUGINS";
        }
        left += entry->state != BERTH_PLUGIN_FILTERED;
    }
    if (left == 0 && candidate->entry_count > 0 && candidate->state == BERTH_PLUGIN_FOUND) {
        candidate->state = BERTH_PLUGIN_FILTERED;
        candidate->reason = "none of its entry points is named in BERTH_PLUGINS";
    }
}

berth_status berth_filter_apply(const char *filter, berth_candidates *candidates,
                                berth_arena *arena) {
    if (filter == NULL) {
        return BERTH_OK;
    }
    for (size_t i = 0; i < candidates->count; ++i) {
        if (!candidates->items[i].is_builtin) {
            filter_entries(filter, &candidates->items[i]);
        }
    }
    berth_str rest = berth_str_from(filter);
    for (berth_str name; next_name(&rest, &name);) {
        if (is_anywhere(candidates, name)) {
            continue;
        }
        const char *line = berth_arena_printf(
            arena, "BERTH_PLUGINS names '" BERTH_STR_FMT "', but no plugin has that entry point",
            BERTH_STR_ARG(name));
        BERTH_TRY(
            berth_warnings_add(&candidates->warnings, &candidates->warning_count, arena, line));
    }
    return BERTH_OK;
}
