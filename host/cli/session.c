// SPDX-License-Identifier: Apache-2.0
// What commands share: checked configuration, kept failures, warnings, output, progress.
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cli_private.h"

// ---- before the flow ----------------------------------------------------------------------------

berth_status berth_command_check(berth_session *session) {
    const berth_command *command = session->command;
    berth_config scratch;
    if (!command->bit) {
        return BERTH_OK; // it looks at its arguments itself
    }
    BERTH_TRY(berth_config_init(&scratch, session->arena));
    BERTH_TRY(
        berth_options_apply_argv(&scratch.options, command->bit, session->argc, session->argv));
    const size_t count = scratch.options.positional_count;
    if (count < command->min_arguments) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: needs %s, try `berth help %s`", command->name,
                          command->arguments, command->name);
    }
    if (count > command->max_arguments) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "%s: '%s' is one argument too many, try `berth help %s`", command->name,
                          scratch.options.positional[command->max_arguments], command->name);
    }
    return BERTH_OK;
}

berth_status berth_session_prepare(berth_session *session) {
    const berth_command *command = session->command;
    const char *model = session->config.model;
    berth_custom_ops ops;
    if (model && !berth_path_is_dir(model)) {
        return BERTH_FAIL(NOT_FOUND,
                          "--model %s: there is no such directory, name the folder of a checkpoint",
                          model);
    }
    BERTH_TRY(berth_custom_ops_parse(&session->config, NULL, &ops));
    session->stage = BERTH_STAGE_USAGE;
    if (command->flags & BERTH_CLI_MODEL && !model) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: no model given, use --model DIR", command->name);
    }
    return command->prepare ? command->prepare(session) : BERTH_OK;
}

const char *berth_session_argument(const berth_session *session, size_t index) {
    const berth_options *options = &session->config.options;
    return index < options->positional_count ? options->positional[index] : NULL;
}

// ---- failures that a command can do without -----------------------------------------------------

// Why the test of config.platform: who names a platform wants that one and nothing else.
static bool survives(const berth_session *session) {
    if (session->command->flags & BERTH_CLI_ANY_PLUGIN) {
        return true;
    }
    return session->stage == BERTH_STAGE_PLATFORM && !session->config.platform &&
           session->command->flags & BERTH_CLI_ANY_PLATFORM;
}

berth_status berth_session_keep(berth_session *session, berth_status status) {
    if (status == BERTH_OK || !survives(session)) {
        return status;
    }
    if (session->failure.code == BERTH_OK) {
        berth_status_take(&session->failure);
        session->failed_stage = session->stage;
    }
    berth_status_clear();
    return BERTH_OK;
}

berth_status berth_session_failure(berth_session *session) {
    if (session->failure.code == BERTH_OK) {
        return BERTH_OK;
    }
    session->stage = session->failed_stage;
    return berth_status_restore(&session->failure);
}

bool berth_plugin_has_failed(berth_plugin_state state) {
    return state == BERTH_PLUGIN_REFUSED || state == BERTH_PLUGIN_QUARANTINED ||
           state == BERTH_PLUGIN_LOAD_FAILED || state == BERTH_PLUGIN_REGISTER_FAILED;
}

const char *berth_candidate_failure(const berth_candidate *candidate,
                                    berth_plugin_state *out_state) {
    if (berth_plugin_has_failed(candidate->state)) {
        *out_state = candidate->state;
        return candidate->reason;
    }
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        if (berth_plugin_has_failed(candidate->entries[i].state)) {
            *out_state = candidate->entries[i].state;
            return candidate->entries[i].reason;
        }
    }
    return NULL;
}

void berth_session_warn(const berth_session *session) {
    if (session->command->flags & BERTH_CLI_ANY_PLUGIN) {
        return; // it shows them
    }
    for (size_t i = 0; i < session->candidates.count; ++i) {
        const berth_candidate *candidate = &session->candidates.items[i];
        berth_plugin_state state;
        const char *reason = berth_candidate_failure(candidate, &state);
        if (reason && candidate->importance != BERTH_IMPORTANCE_QUIET) {
            BERTH_WARN("plugins", "%s is not used: %s: %s", berth_candidate_label(candidate),
                       berth_plugin_state_name(state), reason);
        }
    }
}

void berth_session_note(const berth_session *session) {
    const berth_plan *plan = berth_worker_plan(session->worker);
    if (!plan || session->command->flags & BERTH_CLI_NOTES) {
        return;
    }
    for (size_t i = 0; i < berth_plan_note_count(plan); ++i) {
        if (berth_plan_note_is_users(plan, i)) {
            BERTH_WARN("ops", "%s", berth_plan_note(plan, i));
        } else {
            BERTH_INFO("ops", "%s", berth_plan_note(plan, i));
        }
    }
}

const char *berth_candidate_label(const berth_candidate *candidate) {
    if (candidate->id && candidate->id[0]) {
        return candidate->id;
    }
    const char *path = candidate->manifest ? candidate->manifest : candidate->library;
    return path ? path : "?";
}

// ---- standard output and the terminal -----------------------------------------------------------

static berth_status write_all(berth_str text) {
    while (text.size > 0) {
        const ssize_t written = write(STDOUT_FILENO, text.data, text.size);
        if (written < 0 && errno != EINTR) {
            return BERTH_FAIL(IO, "standard output: cannot be written: %s", strerror(errno));
        }
        text = berth_str_slice(text, written < 0 ? 0 : (size_t)written, text.size);
    }
    return BERTH_OK;
}

berth_status berth_session_print(berth_session *session) {
    const berth_stage stage = session->stage;
    session->stage = BERTH_STAGE_OUTPUT;
    BERTH_TRY(berth_text_finish(&session->out, NULL));
    BERTH_TRY(write_all(berth_text_str(&session->out)));
    berth_text_clear(&session->out);
    session->stage = stage;
    return BERTH_OK;
}

#define ERASE "\r\033[K"

static void write_progress(const char *text, size_t size) {
    const ssize_t written = write(STDERR_FILENO, text, size);
    (void)written; // nobody waits for progress
}

void berth_progress_show(berth_session *session, const char *format, ...) {
    char line[256];
    if (session->has_progress) {
        write_progress(ERASE, sizeof ERASE - 1);
    }
    session->has_progress = format && isatty(STDERR_FILENO);
    if (session->has_progress) {
        va_list arguments;
        va_start(arguments, format);
        const int size = vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        write_progress(line, size < 0                     ? 0
                             : (size_t)size < sizeof line ? (size_t)size
                                                          : sizeof line - 1);
    }
}
