// SPDX-License-Identifier: Apache-2.0
// `berth plugins explain`: which platform would run, by which rule, and why no other.
#include "cli/cli_private.h"

static void put_verdict(berth_json_writer *json, const berth_verdict *verdict) {
    berth_json_begin_object(json);
    berth_cli_put(json, "platform", verdict->entry);
    berth_cli_put(json, "plugin", verdict->plugin);
    berth_cli_put(json, "state", berth_plugin_state_name(verdict->state));
    berth_cli_put_bool(json, "is_builtin", verdict->is_builtin);
    berth_cli_put(json, "reason", verdict->reason);
    berth_json_end_object(json);
}

static void print_json(berth_session *session) {
    const berth_decision *decision = &session->decision;
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_object(&json);
    berth_cli_put(&json, "platform", decision->platform ? decision->platform->platform.name : NULL);
    berth_cli_put(&json, "rule", decision->rule);
    berth_json_put_key(&json, "candidates");
    berth_json_begin_array(&json);
    for (size_t i = 0; i < decision->verdict_count; ++i) {
        put_verdict(&json, &decision->verdicts[i]);
    }
    berth_json_end_array(&json);
    berth_json_end_object(&json);
    berth_session_json_end(session);
}

static berth_status print_table(berth_session *session) {
    static const char *const headings[] = {"platform", "plugin", "built-in", "state", "reason"};
    const berth_decision *decision = &session->decision;
    berth_listing table;
    berth_text_add_format(&session->out, "platform: %s\nrule: %s\n\n",
                          decision->platform ? decision->platform->platform.name : "none",
                          decision->rule);
    berth_listing_begin(&table, session, headings, BERTH_COUNT(headings));
    for (size_t i = 0; i < decision->verdict_count; ++i) {
        const berth_verdict *verdict = &decision->verdicts[i];
        berth_listing_add(&table, verdict->entry);
        berth_listing_add(&table, verdict->plugin);
        berth_listing_add(&table, verdict->is_builtin ? "yes" : "no");
        berth_listing_add(&table, berth_plugin_state_name(verdict->state));
        berth_listing_add(&table, verdict->reason);
    }
    return berth_listing_end(&table);
}

// The record first, then what stands in the way of running.
static berth_status run(berth_session *session) {
    if (session->config.is_json) {
        print_json(session);
    } else {
        BERTH_TRY(print_table(session));
    }
    BERTH_TRY(berth_session_print(session));
    return berth_session_failure(session);
}

const berth_command berth_command_explain = {
    .name = "plugins explain",
    .arguments = "",
    .help = "show which platform would run, by which rule, and why no other",
    .details =
        "--json prints {platform, rule, candidates}, the last an array of {platform, plugin,\n"
        "state, is_builtin, reason}. The exit status is that of a run.",
    .bit = BERTH_COMMAND_PLUGINS,
    .needs = BERTH_STAGE_TABLES,
    .flags = BERTH_CLI_ANY_PLUGIN | BERTH_CLI_ANY_PLATFORM,
    .run = run,
};
