// SPDX-License-Identifier: Apache-2.0
// `berth help`: every command in a line, or one command with its options.
#include <string.h>

#include "cli/cli_private.h"

// Options of help itself are words that name a command, "--help" and what else stood there; the
// command line is looked at, not parsed.
static bool is_meant(const berth_command *command, const berth_session *session) {
    berth_str rest = berth_str_from(command->name);
    int at = 0;
    for (berth_str word; berth_str_split_first(&rest, ' ', &word);) {
        if (at >= session->argc || session->argv[at][0] == '-') {
            return at > 0; // "help plugins" means all of its commands
        }
        if (!berth_str_equal_cstr(word, session->argv[at++])) {
            return false;
        }
    }
    return true;
}

static void print_usage(berth_session *session, const berth_command *command) {
    berth_text_add_format(&session->out, "berth %s%s%s%s\n  %s\n", command->name,
                          command->bit ? " [options]" : "", command->arguments[0] ? " " : "",
                          command->arguments, command->help);
    if (command->details) {
        berth_text_add_format(&session->out, "\n%s\n", command->details);
    }
    if (command->bit) {
        berth_text_add_cstr(&session->out, "\noptions:\n");
        berth_options_print_help(&session->config.options, command->bit, &session->out);
    }
}

static void print_all(berth_session *session) {
    berth_text_add_cstr(&session->out, "berth runs language models on whatever devices its plugins "
                                       "bring.\n\nusage: berth COMMAND [options]\n\n");
    for (size_t i = 0; i < berth_command_count; ++i) {
        berth_text_add_format(&session->out, "  %-15s %s\n", berth_commands[i]->name,
                              berth_commands[i]->help);
    }
    berth_text_add_cstr(
        &session->out,
        "\n`berth help COMMAND` shows its options.\n\n"
        "exit status: 0 ok, 1 the answer is no, 2 usage or prompt, 3 configuration,\n"
        "4 manifest, ABI or plugin, 5 checkpoint or tokenizer, 6 platform or device,\n"
        "7 internal error or output that could not be written, 128 + n ended by signal n with "
        "what\n"
        "was produced until then (`run`: 130 after an interrupt)\n");
}

static berth_status run(berth_session *session) {
    size_t shown = 0;
    const bool has_topic = session->argc > 0 && session->argv[0][0] != '-';
    for (size_t i = 0; has_topic && i < berth_command_count; ++i) {
        if (is_meant(berth_commands[i], session)) {
            berth_text_add_cstr(&session->out, shown++ > 0 ? "\n" : "");
            print_usage(session, berth_commands[i]);
        }
    }
    if (has_topic && shown == 0) {
        session->stage = BERTH_STAGE_USAGE;
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "help: there is no command '%s', `berth help` lists them",
                          session->argv[0]);
    }
    if (!has_topic) {
        print_all(session);
    }
    return BERTH_OK;
}

static berth_status print_version(berth_session *session) {
    berth_text_add_format(&session->out, "berth %s, plugin ABI %u.%u\n", BERTH_VERSION,
                          BERTH_ABI_MAJOR(BERTH_ABI_CURRENT), BERTH_ABI_MINOR(BERTH_ABI_CURRENT));
    return BERTH_OK;
}

const berth_command berth_command_help = {
    .name = "help",
    .arguments = "[COMMAND]",
    .help = "list the commands, or show the options of one",
    .run = run,
};

const berth_command berth_command_version = {
    .name = "version",
    .arguments = "",
    .help = "print the version of berth and of the plugin ABI",
    .run = print_version,
};
