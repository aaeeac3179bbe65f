// SPDX-License-Identifier: Apache-2.0
// Input: linked-in plugins and candidates. Output: every entry point that may run has run once, in
// the order platforms, then the rest, and each candidate says what became of it. A library is
// opened only when one of its entry points may run.
#include <string.h>

#include "registry/registry_private.h"

#define ARENA_BLOCK_BYTES (64 * 1024)
#define ARENA_LIMIT_BYTES (64 * 1024 * 1024)

// One candidate on its way through berth_registry_load.
typedef struct passage {
    berth_candidate *candidate;
    berth_opened *opened; // NULL: not yet, or never
    bool is_out;          // failed, or another variant was taken
} passage;

typedef struct passages {
    passage *items;
    size_t count;
} passages;

// ---- what may run -------------------------------------------------------------------------------

static bool is_one_of(const char *group, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(group, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_served(const char *group) {
    static const char *const names[] = {BERTH_GROUP_PLATFORM, BERTH_GROUP_GENERAL};
    return is_one_of(group, names, BERTH_COUNT(names));
}

// Groups of the contract that this host has no use for yet.
static bool is_known(const char *group) {
    static const char *const names[] = {
        "berth.io_processor_plugins",
        "berth.stat_logger_plugins",
        "berth.endpoint_plugins",
        "berth.logits_processors",
    };
    return is_one_of(group, names, BERTH_COUNT(names));
}

static bool may_run(const berth_entry *entry) {
    return entry->state == BERTH_PLUGIN_FOUND && *entry->reason == '\0' && is_served(entry->group);
}

static bool has_runnable(const berth_candidate *candidate) {
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        if (may_run(&candidate->entries[i])) {
            return true;
        }
    }
    // What --plugin FILE names has no manifest: only opening it tells.
    return candidate->entry_count == 0 && candidate->manifest == NULL;
}

// What is clear without the library: groups, and platforms that wait to be asked for.
static void judge_entries(berth_registry *registry, berth_candidate *candidate) {
    const char *wanted = registry->config->platform;
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        berth_entry *entry = &candidate->entries[i];
        if (entry->state != BERTH_PLUGIN_FOUND || *entry->reason != '\0') {
            continue;
        }
        if (is_known(entry->group)) {
            entry->reason = berth_reason(registry, "this host does not serve %s yet", entry->group);
        } else if (!is_served(entry->group)) {
            berth_entry_set(entry, BERTH_PLUGIN_LOAD_FAILED,
                            berth_reason(registry,
                                         "the group '%s' is unknown; platforms belong "
                                         "in " BERTH_GROUP_PLATFORM ", all else "
                                         "in " BERTH_GROUP_GENERAL,
                                         entry->group));
        } else if (candidate->is_named && strcmp(entry->group, BERTH_GROUP_PLATFORM) == 0 &&
                   (wanted == NULL || strcmp(wanted, entry->name) != 0)) {
            berth_entry_set(
                entry, BERTH_PLUGIN_DECLINED,
                berth_reason(registry, "named: choose it with --platform %s", entry->name));
        }
    }
}

// ---- opening ------------------------------------------------------------------------------------

static void take_out(passage *item, berth_plugin_state state, const char *reason) {
    berth_candidate *candidate = item->candidate;
    item->is_out = true;
    candidate->state = state;
    candidate->reason = reason;
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        if (may_run(&candidate->entries[i])) {
            berth_entry_set(&candidate->entries[i], state, reason);
        }
    }
}

static void open_library(berth_registry *registry, passage *item) {
    const berth_status status = berth_library_open(registry, item->candidate, &item->opened);
    if (status == BERTH_OK) {
        judge_entries(registry, item->candidate);
        return;
    }
    take_out(item, BERTH_PLUGIN_LOAD_FAILED, berth_reason(registry, "%s", berth_status_message()));
    berth_status_clear();
}

// The best of the variants that are still in; the first of equal ones.
static passage *best_variant(const passages *all, const char *variant_of) {
    passage *best = NULL;
    for (size_t i = 0; i < all->count; ++i) {
        passage *item = &all->items[i];
        const char *of = item->candidate->variant_of;
        if (of == NULL || item->is_out || strcmp(of, variant_of) != 0 ||
            !has_runnable(item->candidate)) {
            continue;
        }
        best = best == NULL || item->candidate->score > best->candidate->score ? item : best;
    }
    return best;
}

// Opens variants, best first, until one loads; the others stay closed.
static void open_variant(berth_registry *registry, const passages *all, const char *variant_of) {
    passage *best = best_variant(all, variant_of);
    while (best != NULL && best->opened == NULL) {
        open_library(registry, best);
        best = best->is_out ? best_variant(all, variant_of) : best;
    }
    for (size_t i = 0; best != NULL && i < all->count; ++i) {
        passage *item = &all->items[i];
        const char *of = item->candidate->variant_of;
        if (item != best && of != NULL && !item->is_out && strcmp(of, variant_of) == 0) {
            take_out(item, BERTH_PLUGIN_FOUND,
                     berth_reason(registry, "variant of '%s': '%s' of score %lld is taken",
                                  variant_of, best->candidate->id,
                                  (long long)best->candidate->score));
        }
    }
}

static void open_all(berth_registry *registry, const passages *all) {
    for (size_t i = 0; i < all->count; ++i) {
        passage *item = &all->items[i];
        const berth_candidate *candidate = item->candidate;
        if (item->is_out || item->opened != NULL || !has_runnable(candidate)) {
            continue;
        }
        if (candidate->variant_of != NULL) {
            open_variant(registry, all, candidate->variant_of);
        } else {
            open_library(registry, item);
        }
    }
}

// ---- running ------------------------------------------------------------------------------------

static void run_group(berth_registry *registry, const passages *all, const char *group) {
    for (size_t i = 0; i < all->count; ++i) {
        const passage *item = &all->items[i];
        berth_candidate *candidate = item->candidate;
        for (size_t k = 0; item->opened != NULL && k < candidate->entry_count; ++k) {
            berth_entry *entry = &candidate->entries[k];
            if (may_run(entry) && strcmp(entry->group, group) == 0) {
                berth_entry_run(registry, item->opened, entry);
            }
        }
    }
}

static berth_status run_all(berth_registry *registry, const passages *all) {
    run_group(registry, all, BERTH_GROUP_PLATFORM);
    BERTH_TRY(berth_platforms_list(registry));
    run_group(registry, all, BERTH_GROUP_GENERAL);
    for (size_t i = 0; i < all->count; ++i) {
        berth_candidate_settle(registry, all->items[i].candidate);
    }
    return BERTH_OK;
}

berth_status berth_registry_load(berth_registry *registry, berth_candidates *candidates) {
    if (registry->is_frozen) {
        return BERTH_FAIL(SEALED, "plugins cannot be loaded after the freeze");
    }
    passages all = {.items = BERTH_ARENA_ARRAY(registry->arena, passage, candidates->count)};
    if (all.items == NULL) {
        return berth_arena_exhausted(registry->arena, "candidates");
    }
    for (size_t i = 0; i < candidates->count; ++i) {
        berth_candidate *candidate = &candidates->items[i];
        if (candidate->state == BERTH_PLUGIN_FOUND) {
            all.items[all.count++].candidate = candidate;
            judge_entries(registry, candidate);
        }
    }
    registry->candidates = candidates;
    open_all(registry, &all);
    BERTH_TRY(run_all(registry, &all));
    return berth_candidates_require(candidates);
}

static berth_status check_core(const berth_registry *registry) {
    for (size_t i = 0; i < registry->core.count; ++i) {
        const berth_candidate *one = &registry->core.items[i];
        for (size_t k = 0; k < one->entry_count; ++k) {
            if (one->entries[k].state != BERTH_PLUGIN_ACTIVE) {
                return BERTH_FAIL(INTERNAL, "core plugin '%s': entry point '%s': %s", one->id,
                                  one->entries[k].name, one->entries[k].reason);
            }
        }
    }
    return BERTH_OK;
}

berth_status berth_registry_add_core(berth_registry *registry, const berth_plugin *const *plugins,
                                     size_t count) {
    if (registry->core.items != NULL) {
        return BERTH_FAIL(WRONG_STATE, "the core plugins are added twice");
    }
    passages all = {.items = BERTH_ARENA_ARRAY(registry->arena, passage, count), .count = count};
    registry->core.items = BERTH_ARENA_ARRAY(registry->arena, berth_candidate, count);
    if (all.items == NULL || registry->core.items == NULL) {
        return berth_arena_exhausted(registry->arena, "core plugins");
    }
    registry->core.count = count;
    for (size_t i = 0; i < count; ++i) {
        berth_candidate *candidate = &registry->core.items[i];
        *candidate = (berth_candidate){.id = "",
                                       .version = "",
                                       .vendor = "",
                                       .source = "core",
                                       .is_builtin = true,
                                       .reason = ""};
        all.items[i].candidate = candidate;
        const berth_status status =
            berth_library_adopt(registry, plugins[i], candidate, &all.items[i].opened);
        if (status != BERTH_OK) {
            return BERTH_FAIL(INTERNAL, "core plugin %zu: %s", i, berth_status_message());
        }
    }
    BERTH_TRY(run_all(registry, &all));
    return check_core(registry);
}

// ---- life ---------------------------------------------------------------------------------------

berth_status berth_registry_create(berth_config *config, const berth_worker_api *worker_base,
                                   berth_registry **out_registry) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(ARENA_BLOCK_BYTES, ARENA_LIMIT_BYTES, &arena));
    berth_registry *registry = BERTH_ARENA_NEW(arena, berth_registry);
    if (registry == NULL) {
        const berth_status status = berth_arena_exhausted(arena, "the registry");
        berth_arena_destroy(arena);
        return status;
    }
    registry->config = config;
    registry->arena = arena;
    berth_host_fill(&registry->host, registry, worker_base);
    berth_registrar_fill(&registry->registrar, registry);
    *out_registry = registry;
    return BERTH_OK;
}

static void end_call(void) {
    const berth_status ignored = berth_plugin_leave(BERTH_OK);
    (void)ignored;
}

// Additions are in the order in which they came, platforms among them.
static void destroy_platforms(const berth_registry *registry) {
    for (size_t i = registry->additions.count; i-- > 0;) {
        const berth_addition *added = &registry->additions.data[i];
        const berth_platform_entry *entry = added->entry;
        if (added->kind == BERTH_KIND_PLATFORM && !added->transaction->is_dropped &&
            entry->platform.destroy != NULL) {
            berth_plugin_enter(entry->owner, "destroy");
            entry->platform.destroy(entry->self);
            end_call();
        }
    }
}

static void shut_down(const berth_registry *registry) {
    for (size_t i = registry->opened.count; i-- > 0;) {
        const berth_opened *opened = registry->opened.data[i];
        if (opened->has_run && opened->plugin.shutdown != NULL) {
            const berth_owner owner = {.id = opened->plugin.id, .version = opened->plugin.version};
            berth_plugin_enter(&owner, "shutdown");
            opened->plugin.shutdown();
            end_call();
        }
    }
}

void berth_registry_destroy(berth_registry *registry) {
    if (registry == NULL) {
        return;
    }
    destroy_platforms(registry);
    shut_down(registry);
    for (size_t i = 0; i < BERTH_NAMED_KINDS; ++i) {
        berth_map_deinit(&registry->names[i]);
    }
    berth_array_free(&registry->claims);
    berth_array_free(&registry->libraries);
    berth_array_free(&registry->platforms);
    berth_array_free(&registry->opened);
    berth_array_free(&registry->transactions);
    berth_array_free(&registry->additions);
    berth_arena_destroy(registry->arena);
}
