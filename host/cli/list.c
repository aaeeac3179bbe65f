// SPDX-License-Identifier: Apache-2.0
// `berth plugins list`: every plugin with its state and the reason for it. With --static from the
// manifests alone; else every eligible library is opened and registers.
#include "cli/cli_private.h"

static const char *importance_name(berth_importance importance) {
    static const char *const names[] = {
        [BERTH_IMPORTANCE_OPTIONAL] = "optional",
        [BERTH_IMPORTANCE_REQUIRED] = "required",
        [BERTH_IMPORTANCE_QUIET] = "quiet",
    };
    return names[importance];
}

static const char *origin(const berth_candidate *candidate) {
    return candidate->manifest ? candidate->manifest : candidate->library;
}

static void put_abi(berth_json_writer *json, const char *key, uint64_t abi) {
    char text[32];
    snprintf(text, sizeof text, "%u.%u", BERTH_ABI_MAJOR(abi), BERTH_ABI_MINOR(abi));
    berth_cli_put(json, key, abi ? text : NULL);
}

static void put_entries(berth_json_writer *json, const berth_candidate *candidate) {
    berth_json_put_key(json, "entry_points");
    berth_json_begin_array(json);
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        const berth_entry *entry = &candidate->entries[i];
        berth_json_begin_object(json);
        berth_cli_put(json, "group", entry->group);
        berth_cli_put(json, "name", entry->name);
        berth_cli_put(json, "state", berth_plugin_state_name(entry->state));
        berth_cli_put(json, "reason", entry->reason);
        berth_json_end_object(json);
    }
    berth_json_end_array(json);
}

const berth_op_library_entry *berth_candidate_library(const berth_session *session,
                                                      const berth_candidate *candidate,
                                                      size_t *index) {
    const berth_registry *registry = session->registry;
    const size_t count = registry ? berth_registry_library_count(registry) : 0;
    while (*index < count) {
        berth_op_library_entry *library = berth_registry_library_at(registry, (*index)++);
        if (library->owner->candidate == candidate) {
            berth_op_library_open(registry, library);
            return library;
        }
    }
    return NULL;
}

static void put_libraries(berth_json_writer *json, const berth_session *session,
                          const berth_candidate *candidate) {
    const berth_op_library_entry *library = NULL;
    berth_json_put_key(json, "op_libraries");
    berth_json_begin_array(json);
    for (size_t i = 0; (library = berth_candidate_library(session, candidate, &i));) {
        berth_json_begin_object(json);
        berth_cli_put(json, "file", library->file);
        berth_cli_put(json, "path", library->path);
        berth_cli_put(json, "state", berth_library_state_name(library->state));
        berth_cli_put(json, "reason", library->reason);
        berth_json_end_object(json);
    }
    berth_json_end_array(json);
}

void berth_candidate_put_json(berth_json_writer *json, const berth_session *session,
                              const berth_candidate *candidate) {
    berth_cli_put(json, "id", candidate->id);
    berth_cli_put(json, "version", candidate->version);
    berth_cli_put(json, "vendor", candidate->vendor);
    berth_cli_put(json, "state", berth_plugin_state_name(candidate->state));
    berth_cli_put(json, "reason", candidate->reason);
    berth_cli_put(json, "manifest", candidate->manifest);
    berth_cli_put(json, "library", candidate->library);
    berth_cli_put(json, "source", candidate->source);
    put_abi(json, "abi_min", candidate->abi_min);
    put_abi(json, "abi_max", candidate->abi_max);
    berth_cli_put(json, "importance", importance_name(candidate->importance));
    berth_cli_put(json, "activation", candidate->is_named ? "named" : "auto");
    berth_cli_put_bool(json, "is_builtin", candidate->is_builtin);
    berth_cli_put(json, "variant_of", candidate->variant_of);
    berth_json_put_key(json, "score");
    berth_json_put_i64(json, candidate->score);
    put_entries(json, candidate);
    put_libraries(json, session, candidate);
}

static const berth_candidates *core_of(const berth_session *session) {
    static const berth_candidates none = {0};
    return session->registry ? berth_registry_core(session->registry) : &none;
}

static void print_json(berth_session *session) {
    const berth_candidates *lists[] = {&session->candidates, core_of(session)};
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_array(&json);
    for (size_t list = 0; list < BERTH_COUNT(lists); ++list) {
        for (size_t i = 0; i < lists[list]->count; ++i) {
            berth_json_begin_object(&json);
            berth_candidate_put_json(&json, session, &lists[list]->items[i]);
            berth_json_end_object(&json);
        }
    }
    berth_json_end_array(&json);
    berth_session_json_end(session);
}

// The reason of the plugin, else of its first entry that has one, else of an op library that fails.
static const char *reason_of(const berth_session *session, const berth_candidate *candidate) {
    const berth_op_library_entry *library = NULL;
    for (size_t i = 0; !candidate->reason[0] && i < candidate->entry_count; ++i) {
        if (candidate->entries[i].reason[0]) {
            return candidate->entries[i].reason;
        }
    }
    for (size_t i = 0;
         !candidate->reason[0] && (library = berth_candidate_library(session, candidate, &i));) {
        if (library->state == BERTH_LIBRARY_FAILED) {
            return berth_arena_printf(session->arena, "degraded: op library %s: %s", library->file,
                                      library->reason);
        }
    }
    return candidate->reason;
}

static berth_status print_table(berth_session *session) {
    static const char *const headings[] = {"plugin", "version", "state", "from", "reason"};
    const berth_candidates *lists[] = {&session->candidates, core_of(session)};
    berth_listing table;
    berth_listing_begin(&table, session, headings, BERTH_COUNT(headings));
    for (size_t list = 0; list < BERTH_COUNT(lists); ++list) {
        for (size_t i = 0; i < lists[list]->count; ++i) {
            const berth_candidate *candidate = &lists[list]->items[i];
            const char *from = origin(candidate);
            berth_listing_add(&table, candidate->id);
            berth_listing_add(&table, candidate->version);
            berth_listing_add(&table, berth_plugin_state_name(candidate->state));
            berth_listing_add(&table, from ? from : candidate->source);
            berth_listing_add(&table, reason_of(session, candidate));
        }
    }
    return berth_listing_end(&table);
}

// The list is the answer; what a required plugin's failure adds is the exit status.
static berth_status run(berth_session *session) {
    if (session->config.is_json) {
        print_json(session);
    } else {
        BERTH_TRY(print_table(session));
    }
    if (session->failure.code != BERTH_OK && session->failed_stage == BERTH_STAGE_REGISTRY) {
        BERTH_TRY(berth_session_print(session));
        return berth_session_failure(session);
    }
    return BERTH_OK;
}

static berth_status prepare(berth_session *session) {
    if (session->config.is_static) {
        session->needs = BERTH_STAGE_DISCOVERY;
    }
    return BERTH_OK;
}

const berth_command berth_command_list = {
    .name = "plugins list",
    .arguments = "",
    .help = "list all plugins, each with its state and why",
    .details =
        "--json prints an array of {id, version, vendor, state, reason, manifest, library, "
        "source,\n"
        "abi_min, abi_max, importance, activation, is_builtin, variant_of, score, entry_points,\n"
        "op_libraries}; of the last two the one is an array of {group, name, state, reason}, the\n"
        "other of {file, path, state, reason}. States: found, filtered, ineligible, refused,\n"
        "quarantined, load failed, declined, register failed, active, selected; of an op library,\n"
        "which is opened to know: loaded, failed (then the plugin runs without it, slower).",
    .bit = BERTH_COMMAND_PLUGINS,
    .needs = BERTH_STAGE_TABLES,
    .flags = BERTH_CLI_ANY_PLUGIN | BERTH_CLI_ANY_PLATFORM,
    .prepare = prepare,
    .run = run,
};
