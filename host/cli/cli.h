// SPDX-License-Identifier: Apache-2.0
// The command line: which commands there are, how far each needs the flow to go, and what it does
// with it.
//
// main.c opens the stages of the flow that a command needs, runs the command and closes everything.
// A command writes to session->out; main prints it, and the one line of a failure.
#ifndef BERTH_CLI_CLI_H
#define BERTH_CLI_CLI_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"
#include "chat/chat.h"
#include "config/config.h"
#include "discovery/discovery.h"
#include "engine/engine.h"
#include "platform/platform.h"
#include "registry/registry.h"
#include "tokenizer/tokenizer.h"
#include "worker/worker.h"

// What is under way; the stage in which something fails decides the exit status. The first ones are
// the flow, in order; a command names the last of them that it needs. The others are set by
// commands while they do such things.
typedef enum berth_stage {
    BERTH_STAGE_USAGE, // the command line itself
    BERTH_STAGE_CONFIG,
    BERTH_STAGE_DISCOVERY,
    BERTH_STAGE_REGISTRY, // plugins opened, entry points run
    BERTH_STAGE_PLATFORM, // one chosen
    BERTH_STAGE_TABLES,   // config hooks and register_ops run, tables frozen
    BERTH_STAGE_WORKER,   // device bound
    BERTH_STAGE_MODEL,    // checkpoint → graph → plan, weights resident
    BERTH_STAGE_ENGINE,   // caches allocated, warmed up

    BERTH_STAGE_INPUT,      // files that the command line names
    BERTH_STAGE_CHECKPOINT, // files of the checkpoint, tokenizer included
    BERTH_STAGE_REQUEST,    // a prompt
    BERTH_STAGE_STEP,       // the model runs
    BERTH_STAGE_OUTPUT,     // standard output
    BERTH_STAGE_COUNT,
} berth_stage;

// What a command can do without: a failure there is kept in the session and the flow goes on. And
// what it cannot.
#define BERTH_CLI_ANY_PLATFORM 1u // a platform, unless --platform names one
#define BERTH_CLI_ANY_PLUGIN   2u // plugins and platforms in order: it shows in what state they are
#define BERTH_CLI_MODEL        4u // needs --model
#define BERTH_CLI_NOTES        8u // prints the plan's notes: they are not logged
// An interrupt ends it in order: where it comes before the command's `run`, that one is called with
// the stages as far as they were opened.
#define BERTH_CLI_ENDS_EARLY 16u

typedef struct berth_session berth_session;

typedef struct berth_command {
    const char *name;      // "run", "plugins list"
    const char *arguments; // for the usage line: "ID|FILE", "" when there are none
    const char *help;      // one line
    const char *details;   // more lines for `help NAME`, or NULL
    uint64_t bit;          // BERTH_COMMAND_*, 0: takes no options
    size_t min_arguments;
    size_t max_arguments;
    berth_stage needs; // CONFIG or later
    uint32_t flags;    // BERTH_CLI_*
    // Checks and completes the configuration before anything is opened; may be NULL.
    berth_status (*prepare)(berth_session *session);
    berth_status (*run)(berth_session *session);
} berth_command;

// The one run of the program. Zeroed until its stages are opened; closed by main in reverse.
struct berth_session {
    const berth_command *command;
    int argc; // arguments after the command's name
    char *const *argv;
    berth_stage needs; // the command's, unless its prepare asks for less
    berth_stage stage; // under way
    berth_stage next;  // the first one of the flow that is not open
    berth_arena *arena;
    berth_config config;
    berth_tokenizer *tokenizer; // of commands that need one, opened by their prepare
    berth_chat *chat;           // the same
    berth_candidates candidates;
    berth_registry *registry;
    berth_decision decision;
    berth_worker *worker;
    berth_engine *engine;
    berth_text out;           // for standard output
    bool answer_is_no;        // exit status 1
    bool has_progress;        // a line of progress stands on the terminal
    bool is_interrupted;      // the answer is not all of it: exit status 128 + the signal
    berth_stage failed_stage; // of what a command could do without, while `failure` is not empty
    berth_status_report failure;
    // The flow, from main, for a command that goes through it more than once: opens what is not
    // open yet, the stage given included; closes everything and forgets the configuration.
    berth_status (*open_until)(berth_session *session, berth_stage last);
    berth_status (*begin_again)(berth_session *session);
};

// The command that argv asks for; sets session->command, argc and argv. INVALID_ARGUMENT for an
// unknown one, with the nearest.
BERTH_MUST_CHECK berth_status berth_command_find(berth_session *session, int argc,
                                                 char *const *argv);
// Applies argv alone to a configuration that is thrown away, so that a mistake there is told apart
// from one in the environment or a file; checks the number of arguments.
BERTH_MUST_CHECK berth_status berth_command_check(berth_session *session);

// The checks of the configuration that every command shares, then the command's own.
BERTH_MUST_CHECK berth_status berth_session_prepare(berth_session *session);
// One warning for every plugin that failed and is not `quiet`, for commands that go on without it.
void berth_session_warn(const berth_session *session);
// The notes of the plan that was built: names of the user's that match nothing as warnings,
// overrides that are never used at level info.
void berth_session_note(const berth_session *session);
// Writes session->out to standard output and empties it. IO when it cannot be written.
BERTH_MUST_CHECK berth_status berth_session_print(berth_session *session);
// What a stage gave when the command can do without it: keeps the failure and yields BERTH_OK.
BERTH_MUST_CHECK berth_status berth_session_keep(berth_session *session, berth_status status);
// The kept failure again, as a failure of its own stage; BERTH_OK when there is none.
BERTH_MUST_CHECK berth_status berth_session_failure(berth_session *session);
// A line in place of the last such line, when standard error is a terminal; NULL takes it away.
void berth_progress_show(berth_session *session, const char *format, ...) BERTH_PRINTF(2, 3);
// The argument after the command's name, or NULL.
const char *berth_session_argument(const berth_session *session, size_t index);

#endif
