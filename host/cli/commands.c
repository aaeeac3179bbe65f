// SPDX-License-Identifier: Apache-2.0
// Which command argv asks for, and the help about all of them.
#include <stdio.h>
#include <string.h>

#include "cli/cli_private.h"

// How many words of argv spell the name: 0 when they do not.
static int words_of(const char *name, int argc, char *const *argv) {
    int words = 0;
    berth_str rest = berth_str_from(name);
    for (berth_str word; berth_str_split_first(&rest, ' ', &word); ++words) {
        if (words >= argc || !berth_str_equal_cstr(word, argv[words])) {
            return 0;
        }
    }
    return words;
}

static bool wants_help(int argc, char *const *argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; ++i) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static void choose(berth_session *session, const berth_command *command, int argc,
                   char *const *argv) {
    session->command = command;
    session->needs = command->needs;
    session->argc = argc;
    session->argv = argv;
}

// "plugins" alone, or a word that is no command.
static berth_status unknown(const char *word) {
    const char *names[32];
    char firsts[32][16];
    size_t count = 0;
    for (size_t i = 0; i < berth_command_count; ++i) {
        const char *name = berth_commands[i]->name;
        const size_t size = strlen(word);
        if (strncmp(name, word, size) == 0 && name[size] == ' ') {
            return BERTH_FAIL(INVALID_ARGUMENT, "%s: what about it? `berth help %s` tells", word,
                              word);
        }
        snprintf(firsts[i], sizeof firsts[i], "%.*s", (int)strcspn(name, " "), name);
        names[count++] = firsts[i];
    }
    const char *nearest = berth_str_nearest(berth_str_from(word), names, count);
    return BERTH_FAIL(INVALID_ARGUMENT, "there is no command '%s'%s%s%s, `berth help` lists them",
                      word, nearest ? ", did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'" : "");
}

berth_status berth_command_find(berth_session *session, int argc, char *const *argv) {
    --argc;
    ++argv;
    if (argc < 1) {
        return BERTH_FAIL(INVALID_ARGUMENT, "no command given, `berth help` lists them");
    }
    if (strcmp(argv[0], "--version") == 0) {
        choose(session, &berth_command_version, argc - 1, argv + 1);
        return BERTH_OK;
    }
    if (wants_help(argc, argv)) {
        choose(session, &berth_command_help, argc, argv);
        return BERTH_OK;
    }
    for (size_t i = 0; i < berth_command_count; ++i) {
        const int words = words_of(berth_commands[i]->name, argc, argv);
        if (words > 0) {
            choose(session, berth_commands[i], argc - words, argv + words);
            return BERTH_OK;
        }
    }
    return unknown(argv[0]);
}

const berth_command *const berth_commands[] = {
    &berth_command_run,        &berth_command_eval,        &berth_command_tokenize,
    &berth_command_list,       &berth_command_inspect,     &berth_command_explain,
    &berth_command_ops_list,   &berth_command_ops_explain, &berth_command_ops_check,
    &berth_command_graph,      &berth_command_bench_model, &berth_command_bench_op,
    &berth_command_bench_load, &berth_command_bench_host,  &berth_command_bench_sleep,
    &berth_command_config,     &berth_command_help,        &berth_command_version,
};
const size_t berth_command_count = BERTH_COUNT(berth_commands);
