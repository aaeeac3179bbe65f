// SPDX-License-Identifier: Apache-2.0
// `berth plugins inspect ID|FILE`: all that is known of one plugin, and what it has registered.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli_private.h"

typedef void (*contribution_fn)(void *context, const char *kind, const char *name,
                                const char *detail);

// ---- what the plugin has put into the tables ----------------------------------------------------

static bool is_of(const berth_owner *owner, const berth_candidate *candidate) {
    return owner && owner->candidate == candidate;
}

static void visit_impls(const berth_op_entry *op, const berth_candidate *candidate,
                        contribution_fn visit, void *context) {
    for (size_t i = 0; i < op->override_count; ++i) {
        if (is_of(op->overrides[i]->owner, candidate)) {
            visit(context, "override", op->op.name, op->overrides[i]->impl.name);
        }
    }
    for (size_t i = 0; i < op->impl_count; ++i) {
        if (is_of(op->impls[i]->owner, candidate)) {
            visit(context, "implementation", op->op.name, op->impls[i]->impl.name);
        }
    }
}

static void visit_contributions(const berth_registry *registry, const berth_candidate *candidate,
                                contribution_fn visit, void *context) {
    for (size_t i = 0; i < berth_registry_platform_count(registry); ++i) {
        const berth_platform_entry *entry = berth_registry_platform_at(registry, i);
        if (is_of(entry->owner, candidate)) {
            visit(context, "platform", entry->platform.name, entry->platform.device_name);
        }
    }
    for (size_t i = 0; i < berth_registry_op_count(registry); ++i) {
        const berth_op_entry *entry = berth_registry_op_at(registry, i);
        if (is_of(entry->owner, candidate)) {
            visit(context, "op", entry->op.name, entry->op.class_name);
        }
        visit_impls(entry, candidate, visit, context);
    }
    for (size_t i = 0; i < berth_registry_model_count(registry); ++i) {
        const berth_model_entry *entry = berth_registry_model_at(registry, i);
        if (is_of(entry->owner, candidate)) {
            visit(context, "model", entry->model.architecture, NULL);
        }
    }
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        const berth_quant_entry *entry = berth_registry_quant_at(registry, i);
        if (is_of(entry->owner, candidate)) {
            visit(context, "quantization", entry->config.name, NULL);
        }
    }
    for (size_t i = 0; i < berth_registry_pass_count(registry); ++i) {
        const berth_pass_entry *entry = berth_registry_pass_at(registry, i);
        if (is_of(entry->owner, candidate)) {
            visit(context, "pass", entry->pass.name, entry->pass.flag);
        }
    }
}

// ---- output -------------------------------------------------------------------------------------

static void put_contribution(void *context, const char *kind, const char *name,
                             const char *detail) {
    berth_json_writer *json = context;
    berth_json_begin_object(json);
    berth_cli_put(json, "kind", kind);
    berth_cli_put(json, "name", name);
    berth_cli_put(json, "detail", detail);
    berth_json_end_object(json);
}

static void print_json(berth_session *session, const berth_candidate *candidate) {
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_object(&json);
    berth_candidate_put_json(&json, session, candidate);
    berth_json_put_key(&json, "registered");
    berth_json_begin_array(&json);
    visit_contributions(session->registry, candidate, put_contribution, &json);
    berth_json_end_array(&json);
    berth_json_end_object(&json);
    berth_session_json_end(session);
}

static void add_contribution(void *context, const char *kind, const char *name,
                             const char *detail) {
    berth_text_add_format(context, "  %-15s %s%s%s\n", kind, name, detail ? "  " : "",
                          detail ? detail : "");
}

static void add_line(berth_text *out, const char *what, const char *value) {
    if (value && value[0]) {
        berth_text_add_format(out, "%-11s %s\n", what, value);
    }
}

static void print_text(berth_session *session, const berth_candidate *candidate) {
    berth_text *out = &session->out;
    add_line(out, "plugin", candidate->id);
    add_line(out, "version", candidate->version);
    add_line(out, "vendor", candidate->vendor);
    add_line(out, "state", berth_plugin_state_name(candidate->state));
    add_line(out, "reason", candidate->reason);
    add_line(out, "manifest", candidate->manifest);
    add_line(out, "library", candidate->library);
    add_line(out, "found by", candidate->source);
    add_line(out, "activation", candidate->is_named ? "named: only when --platform asks" : "auto");
    if (candidate->abi_max) {
        berth_text_add_format(
            out, "%-11s %u.%u-%u.%u\n", "ABI", BERTH_ABI_MAJOR(candidate->abi_min),
            BERTH_ABI_MINOR(candidate->abi_min), BERTH_ABI_MAJOR(candidate->abi_max),
            BERTH_ABI_MINOR(candidate->abi_max));
    }
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        const berth_entry *entry = &candidate->entries[i];
        berth_text_add_format(out, "%-11s %s: %s, %s%s%s\n", "entry point", entry->group,
                              entry->name, berth_plugin_state_name(entry->state),
                              entry->reason[0] ? ": " : "", entry->reason);
    }
    const berth_op_library_entry *library = NULL;
    for (size_t i = 0; (library = berth_candidate_library(session, candidate, &i));) {
        berth_text_add_format(out, "%-11s %s: %s%s%s\n", "op library", library->file,
                              berth_library_state_name(library->state),
                              library->reason[0] ? ": " : "", library->reason);
    }
    berth_text_add_cstr(out, "registered\n");
    visit_contributions(session->registry, candidate, add_contribution, out);
}

// ---- the command --------------------------------------------------------------------------------

static bool is_same_file(const char *path, const char *wanted) {
    return path && strcmp(path, wanted) == 0;
}

static const berth_candidate *find(const berth_session *session, const char *wanted) {
    const berth_candidates *lists[] = {&session->candidates,
                                       berth_registry_core(session->registry)};
    char resolved[PATH_MAX];
    const bool is_file = strchr(wanted, '/') && realpath(wanted, resolved);
    for (size_t list = 0; list < BERTH_COUNT(lists); ++list) {
        for (size_t i = 0; i < lists[list]->count; ++i) {
            const berth_candidate *candidate = &lists[list]->items[i];
            if (is_file ? is_same_file(candidate->manifest, resolved) ||
                              is_same_file(candidate->library, resolved)
                        : strcmp(candidate->id, wanted) == 0) {
                return candidate;
            }
        }
    }
    return NULL;
}

static berth_status run(berth_session *session) {
    const char *wanted = berth_session_argument(session, 0);
    const berth_candidate *candidate = find(session, wanted);
    if (!candidate) {
        session->stage = BERTH_STAGE_USAGE;
        return BERTH_FAIL(NOT_FOUND,
                          "there is no plugin '%s', `berth plugins list` shows what there is; a "
                          "file is named with a slash in it",
                          wanted);
    }
    if (session->config.is_json) {
        print_json(session, candidate);
    } else {
        print_text(session, candidate);
    }
    berth_plugin_state state;
    const char *reason = berth_candidate_failure(candidate, &state);
    if (!reason) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_session_print(session));
    session->stage = BERTH_STAGE_REGISTRY;
    return BERTH_FAIL(UNAVAILABLE, "plugin %s: %s: %s", berth_candidate_label(candidate),
                      berth_plugin_state_name(state), reason);
}

// A file is found as if --plugin had named it, before all others.
static berth_status prepare(berth_session *session) {
    const char *wanted = berth_session_argument(session, 0);
    if (!strchr(wanted, '/')) {
        return BERTH_OK;
    }
    berth_option_list *files = &session->config.plugin_files;
    const char **longer = BERTH_ARENA_ARRAY(session->arena, const char *, files->count + 1);
    if (!longer) {
        return berth_arena_exhausted(session->arena, "plugin files");
    }
    longer[0] = wanted;
    for (size_t i = 0; i < files->count; ++i) {
        longer[i + 1] = files->items[i];
    }
    *files = (berth_option_list){.items = longer, .count = files->count + 1};
    return BERTH_OK;
}

const berth_command berth_command_inspect = {
    .name = "plugins inspect",
    .arguments = "ID|FILE",
    .help = "show all about one plugin; a file is a manifest or a library",
    .details = "--json prints the object of `plugins list` with `registered` added, an array of\n"
               "{kind, name, detail}. Exit status 4 when the plugin has failed.",
    .bit = BERTH_COMMAND_PLUGINS,
    .min_arguments = 1,
    .max_arguments = 1,
    .needs = BERTH_STAGE_TABLES,
    .flags = BERTH_CLI_ANY_PLUGIN | BERTH_CLI_ANY_PLATFORM,
    .prepare = prepare,
    .run = run,
};
