// SPDX-License-Identifier: Apache-2.0
// Private to cli/: the commands, one a file, and what several of them use.
#ifndef BERTH_CLI_CLI_PRIVATE_H
#define BERTH_CLI_CLI_PRIVATE_H

#include <stdint.h>

#include "base/array.h"
#include "base/json_writer.h"
#include "cli/cli.h"

extern const berth_command berth_command_run;
extern const berth_command berth_command_eval;
extern const berth_command berth_command_bench_host;
extern const berth_command berth_command_bench_load;
extern const berth_command berth_command_bench_sleep;
extern const berth_command berth_command_bench_model;
extern const berth_command berth_command_bench_op;
extern const berth_command berth_command_list;
extern const berth_command berth_command_inspect;
extern const berth_command berth_command_explain;
extern const berth_command berth_command_ops_list;
extern const berth_command berth_command_ops_explain;
extern const berth_command berth_command_ops_check;
extern const berth_command berth_command_graph;
extern const berth_command berth_command_tokenize;
extern const berth_command berth_command_config;
extern const berth_command berth_command_help;
extern const berth_command berth_command_version;

extern const berth_command *const berth_commands[]; // in the order of the help
extern const size_t berth_command_count;

// ---- plugins as people see them -----------------------------------------------------------------

bool berth_plugin_has_failed(berth_plugin_state state);
// Why a plugin or one of its entries failed, or NULL; the state it failed in.
const char *berth_candidate_failure(const berth_candidate *candidate,
                                    berth_plugin_state *out_state);
// Its id, or the path of its file when the manifest could not be read.
const char *berth_candidate_label(const berth_candidate *candidate);

// All that discovery and registration know of one, as members of the object under way.
void berth_candidate_put_json(berth_json_writer *json, const berth_session *session,
                              const berth_candidate *candidate);
// Its op libraries from `index` on: the next one, opened if it was not, and its index + 1; NULL
// behind the last. Whoever lists plugins wants to know whether they are there.
const berth_op_library_entry *berth_candidate_library(const berth_session *session,
                                                      const berth_candidate *candidate,
                                                      size_t *index);

// ---- tables for people --------------------------------------------------------------------------

#define BERTH_LISTING_COLUMNS 11

// Cells row by row, the headings first; columns as wide as their widest cell. Sticky: a failure
// shows when the text is finished.
typedef struct berth_listing {
    berth_text *text;   // borrowed, for what is printed
    berth_arena *arena; // borrowed, for copies of cells
    size_t column_count;
    berth_array(const char *) cells;
    bool has_failed;
} berth_listing;

void berth_listing_begin(berth_listing *table, berth_session *session, const char *const *headings,
                         size_t count);
void berth_listing_add(berth_listing *table, const char *cell); // copied; NULL and "" show as "-"
void berth_listing_add_format(berth_listing *table, const char *format, ...) BERTH_PRINTF(2, 3);
// Prints and frees.
BERTH_MUST_CHECK berth_status berth_listing_end(berth_listing *table);

// ---- JSON for programs --------------------------------------------------------------------------

// `writer` over session->out, indented for people who look at it all the same.
void berth_session_json(berth_session *session, berth_json_writer *writer);
// The end of a JSON output: a newline, which an indented one has.
void berth_session_json_end(berth_session *session);
// A member of the object under way; NULL writes null.
void berth_cli_put(berth_json_writer *json, const char *key, const char *value);
void berth_cli_put_bool(berth_json_writer *json, const char *key, bool value);
void berth_cli_put_u64(berth_json_writer *json, const char *key, uint64_t value);
void berth_cli_put_f64(berth_json_writer *json, const char *key, double value);

#endif
