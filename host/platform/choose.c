// SPDX-License-Identifier: Apache-2.0
// Input: every platform entry point with the state that registration left it in. Output: one
// platform, or none with the reason, and a verdict for each. The rules are the first lines of
// `rules`, tried from the top.
#include "platform/platform.h"

#include <string.h>

#include <berth/plugin.h>

#include "base/array.h"
#include "base/file.h"

#define TEXT_BYTES 3000 // of a failure: fits a report

// A platform entry point on trial, beside its verdict of the same index.
typedef struct contender {
    berth_candidate *candidate;
    berth_entry *entry;                   // NULL: the entry points are not known
    const berth_platform_entry *platform; // NULL: not active
} contender;

typedef struct trial {
    const berth_config *config;
    berth_arena *arena;
    berth_decision *out;
    contender *contenders; // [count]
    berth_verdict *verdicts;
    size_t count;
} trial;

// ---- the contenders -----------------------------------------------------------------------------

static bool is_failure(berth_plugin_state state) {
    return state == BERTH_PLUGIN_REFUSED || state == BERTH_PLUGIN_QUARANTINED ||
           state == BERTH_PLUGIN_LOAD_FAILED || state == BERTH_PLUGIN_REGISTER_FAILED;
}

static bool is_platform(const berth_entry *entry) {
    return strcmp(entry->group, BERTH_GROUP_PLATFORM) == 0;
}

static const berth_platform_entry *find_active(const berth_registry *registry,
                                               const berth_candidate *candidate, const char *name) {
    for (size_t i = 0; i < berth_registry_platform_count(registry); ++i) {
        const berth_platform_entry *platform = berth_registry_platform_at(registry, i);
        if (platform->owner->candidate == candidate && strcmp(platform->owner->entry, name) == 0) {
            return platform;
        }
    }
    return NULL;
}

static const char *name_of(const berth_candidate *candidate) {
    if (candidate->id[0] != '\0') {
        return candidate->id;
    }
    return candidate->manifest != NULL  ? candidate->manifest
           : candidate->library != NULL ? candidate->library
                                        : "?";
}

// Whether what became of the plugin says more than the entry's own record: it never came so far.
static bool is_of_whole(const berth_candidate *candidate, const berth_entry *entry) {
    return entry == NULL || (entry->state == BERTH_PLUGIN_FOUND && entry->reason[0] == '\0' &&
                             candidate->state < BERTH_PLUGIN_ACTIVE);
}

static void add_contender(trial *in, const berth_registry *registry, berth_candidate *candidate,
                          berth_entry *entry) {
    const bool is_whole = is_of_whole(candidate, entry);
    const char *name = entry == NULL ? "" : entry->name;
    in->contenders[in->count] = (contender){
        .candidate = candidate,
        .entry = entry,
        .platform = entry == NULL ? NULL : find_active(registry, candidate, name),
    };
    in->verdicts[in->count++] = (berth_verdict){
        .entry = name,
        .plugin = name_of(candidate),
        .state = is_whole ? candidate->state : entry->state,
        .is_builtin = candidate->is_builtin,
        .reason = is_whole ? candidate->reason : entry->reason,
    };
}

static berth_status collect(trial *in, const berth_registry *registry,
                            berth_candidates *candidates) {
    size_t most = 0;
    for (size_t i = 0; i < candidates->count; ++i) {
        most += candidates->items[i].entry_count + 1;
    }
    in->contenders = BERTH_ARENA_ARRAY(in->arena, contender, most);
    in->verdicts = BERTH_ARENA_ARRAY(in->arena, berth_verdict, most);
    if (in->contenders == NULL || in->verdicts == NULL) {
        return berth_arena_exhausted(in->arena, "the decision record");
    }
    for (size_t i = 0; i < candidates->count; ++i) {
        berth_candidate *candidate = &candidates->items[i];
        for (size_t k = 0; k < candidate->entry_count; ++k) {
            if (is_platform(&candidate->entries[k])) {
                add_contender(in, registry, candidate, &candidate->entries[k]);
            }
        }
        // Why a plugin without entry points counts: what its unreadable manifest meant is unknown.
        if (candidate->entry_count == 0 && is_failure(candidate->state)) {
            add_contender(in, registry, candidate, NULL);
        }
    }
    in->out->verdicts = in->verdicts;
    in->out->verdict_count = in->count;
    return BERTH_OK;
}

// ---- the four classes of the selection table ----------------------------------------------------

typedef bool (*class_fn)(const contender *contender);

static bool is_out_of_tree(const contender *one) {
    return one->platform != NULL && !one->candidate->is_builtin;
}

static bool is_accelerator(const contender *one) {
    return one->platform != NULL && one->candidate->is_builtin &&
           one->platform->platform.kind != BERTH_PLATFORM_CPU;
}

static bool is_cpu(const contender *one) {
    return one->platform != NULL && one->candidate->is_builtin &&
           one->platform->platform.kind == BERTH_PLATFORM_CPU;
}

typedef struct rule {
    class_fn has;
    const char *one;     // what is said of the winner
    const char *several; // of two
    bool is_last_resort; // a plugin that failed stops it
} rule;

static const rule rules[] = {
    {is_out_of_tree, "one out-of-tree platform is active",
     "several out-of-tree platforms are active",                                                        false},
    {is_accelerator, "one built-in accelerator is active",
     "several built-in accelerators are active",                                                        false},
    {is_cpu,         "only the built-in cpu is active",    "several built-in cpu platforms are active", true },
};

static size_t count_of(const trial *in, class_fn has, size_t *out_first) {
    size_t count = 0;
    for (size_t i = in->count; i-- > 0;) {
        if (has(&in->contenders[i])) {
            *out_first = i;
            ++count;
        }
    }
    return count;
}

// ---- outcomes -----------------------------------------------------------------------------------

// Writes the reason of those that could run and were not taken.
static void explain_losers(trial *in, const char *reason) {
    for (size_t i = 0; i < in->count; ++i) {
        if (in->contenders[i].platform != NULL && in->verdicts[i].state != BERTH_PLUGIN_SELECTED) {
            in->verdicts[i].reason = reason;
        }
    }
}

static berth_status select_one(trial *in, size_t winner, const char *because) {
    contender *one = &in->contenders[winner];
    one->entry->state = BERTH_PLUGIN_SELECTED;
    one->candidate->state = BERTH_PLUGIN_SELECTED;
    in->verdicts[winner].state = BERTH_PLUGIN_SELECTED;
    in->verdicts[winner].reason = because;
    in->out->platform = one->platform;
    in->out->rule = because;
    const char *reason = berth_arena_printf(in->arena, "passed over for '%s': %s",
                                            in->verdicts[winner].entry, because);
    if (reason == NULL) {
        return berth_arena_exhausted(in->arena, "the decision record");
    }
    explain_losers(in, reason);
    return BERTH_OK;
}

// "a of plugin p, b of plugin q; choose with --platform a or --platform b"
static berth_status fail_several(trial *in, class_fn has, const char *because) {
    berth_text text;
    berth_text_init(&text, TEXT_BYTES);
    in->out->rule = because;
    explain_losers(in, because);
    size_t told = 0;
    for (size_t i = 0; i < in->count; ++i) {
        if (has(&in->contenders[i])) {
            berth_text_add_format(&text, "%s'%s' of plugin %s", told++ == 0 ? ": " : ", ",
                                  in->verdicts[i].entry, in->verdicts[i].plugin);
        }
    }
    told = 0;
    for (size_t i = 0; i < in->count; ++i) {
        if (has(&in->contenders[i])) {
            berth_text_add_format(&text, "%s--platform %s", told++ == 0 ? "; choose with " : " or ",
                                  in->verdicts[i].entry);
        }
    }
    const char *list = NULL;
    berth_status status = berth_text_finish(&text, &list);
    if (status == BERTH_OK) {
        status = BERTH_FAIL(UNAVAILABLE, "%s%s", because, list);
    }
    berth_text_deinit(&text);
    return status;
}

// The plugin whose failure must not end as "you got the CPU".
static const berth_verdict *find_culprit(const trial *in) {
    for (size_t i = 0; i < in->count; ++i) {
        const berth_candidate *candidate = in->contenders[i].candidate;
        if (is_failure(in->verdicts[i].state) && !candidate->is_named &&
            candidate->importance != BERTH_IMPORTANCE_QUIET) {
            return &in->verdicts[i];
        }
    }
    return NULL;
}

static berth_status fail_culprit(trial *in, const berth_verdict *culprit, const char *instead) {
    in->out->culprit = culprit;
    in->out->rule = "a plugin that may be the wanted platform failed";
    explain_losers(in, in->out->rule);
    return BERTH_FAIL(UNAVAILABLE,
                      "platform '%s' of plugin %s: %s: %s; mend or remove the plugin, or say "
                      "which platform is wanted with --platform%s",
                      culprit->entry[0] == '\0' ? "?" : culprit->entry, culprit->plugin,
                      berth_plugin_state_name(culprit->state), culprit->reason, instead);
}

// ---- --platform X -------------------------------------------------------------------------------

// Whether the manifest lets the entry run: one that only the library has keeps the state `found`.
static bool is_offered(const trial *in, size_t index) {
    const berth_verdict *verdict = &in->verdicts[index];
    if (verdict->entry[0] == '\0' || verdict->state == BERTH_PLUGIN_FOUND) {
        return false;
    }
    for (size_t i = 0; i < index; ++i) {
        if (strcmp(in->verdicts[i].entry, verdict->entry) == 0 && is_offered(in, i)) {
            return false; // told already
        }
    }
    return true;
}

// "; known are a, b", and the manifest that could not be read: it may have had the name.
static void tell_known(trial *in, const char **names, berth_text *text) {
    for (size_t i = 0; i < in->count; ++i) {
        names[i] = is_offered(in, i) ? in->verdicts[i].entry : NULL;
        if (names[i] != NULL) {
            berth_text_add_format(text, "%s%s", text->size == 0 ? "; known are " : ", ", names[i]);
        }
        if (in->verdicts[i].entry[0] == '\0' && in->out->culprit == NULL) {
            in->out->culprit = &in->verdicts[i];
        }
    }
    if (text->size == 0) {
        berth_text_add_cstr(text, "; no plugin has one");
    }
    const berth_verdict *culprit = in->out->culprit;
    if (culprit != NULL) {
        berth_text_add_format(text, "; %s could not be read: %s", culprit->plugin, culprit->reason);
    }
}

static berth_status fail_unknown(trial *in, const char *wanted) {
    const char **names = BERTH_ARENA_ARRAY(in->arena, const char *, in->count);
    if (names == NULL) {
        return berth_arena_exhausted(in->arena, "the decision record");
    }
    berth_text text;
    berth_text_init(&text, TEXT_BYTES);
    tell_known(in, names, &text);
    const char *known = NULL;
    berth_status status = berth_text_finish(&text, &known);
    if (status == BERTH_OK) {
        const char *nearest = berth_str_nearest(berth_str_from(wanted), names, in->count);
        status = BERTH_FAIL(UNAVAILABLE, "there is no platform '%s'%s%s%s%s", wanted,
                            nearest == NULL ? "" : ", did you mean '",
                            nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?", known);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status choose_named(trial *in, const char *wanted) {
    const berth_verdict *found = NULL;
    in->out->rule = "--platform names it";
    for (size_t i = 0; i < in->count; ++i) {
        if (strcmp(in->verdicts[i].entry, wanted) != 0) {
            continue;
        }
        if (in->contenders[i].platform != NULL) {
            return select_one(in, i, in->out->rule);
        }
        found = found == NULL || found->state == BERTH_PLUGIN_FOUND ? &in->verdicts[i] : found;
    }
    explain_losers(in, "another platform is asked for");
    if (found == NULL) {
        return fail_unknown(in, wanted);
    }
    in->out->culprit = is_failure(found->state) ? found : NULL;
    return BERTH_FAIL(UNAVAILABLE, "platform '%s' of plugin %s is not available: %s%s%s", wanted,
                      found->plugin, berth_plugin_state_name(found->state),
                      found->reason[0] == '\0' ? "" : ": ", found->reason);
}

// ---- the table ----------------------------------------------------------------------------------

static berth_status choose_nothing(trial *in) {
    in->out->rule = "no platform is active: native host execution";
    if (in->config->allow_fallback) {
        return BERTH_OK;
    }
    return BERTH_FAIL(
        UNAVAILABLE,
        "no platform is active: install a platform plugin, see why with `berth plugins "
        "explain`, or run natively on the host with --allow-fallback");
}

static berth_status choose_best(trial *in) {
    const berth_verdict *culprit = find_culprit(in);
    for (size_t i = 0; i < BERTH_COUNT(rules); ++i) {
        size_t first = 0;
        const size_t count = count_of(in, rules[i].has, &first);
        if (count > 0 && rules[i].is_last_resort && culprit != NULL) {
            return fail_culprit(in, culprit, ", for instance --platform cpu");
        }
        if (count > 1) {
            return fail_several(in, rules[i].has, rules[i].several);
        }
        if (count == 1) {
            return select_one(in, first, rules[i].one);
        }
    }
    return culprit != NULL ? fail_culprit(in, culprit, "") : choose_nothing(in);
}

berth_status berth_platform_choose(const berth_config *config, berth_registry *registry,
                                   berth_candidates *candidates, berth_arena *arena,
                                   berth_decision *out) {
    *out = (berth_decision){.rule = ""};
    trial in = {.config = config, .arena = arena, .out = out};
    BERTH_TRY(collect(&in, registry, candidates));
    return config->platform != NULL ? choose_named(&in, config->platform) : choose_best(&in);
}
