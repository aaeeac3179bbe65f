// SPDX-License-Identifier: Apache-2.0
// Input: a command line. Output: its exit status and what it wrote, by way of two unnamed files, so
// that no pipe can fill up.
#include "support/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/test.h"

#define MAX_VARIABLES 32

extern char **environ;

const char *const program_own_env[] = {NULL};

static const char *const kept_variables[] = {
    "PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "LD_LIBRARY_PATH",
};

// Fills `list` with NAME=value texts that live until the next call; ends it with NULL.
static void gather(const char *const *added, const char **list) {
    static char texts[MAX_VARIABLES][4096];
    size_t count = 0;
    for (; added != NULL && *added != NULL; ++added) { // first: the first of a name counts
        CHECK(count < MAX_VARIABLES / 2);
        list[count++] = *added;
    }
    list[count++] = "HOME=/nonexistent";
    for (size_t i = 0; i < sizeof(kept_variables) / sizeof(kept_variables[0]); ++i) {
        const char *value = getenv(kept_variables[i]);
        if (value != NULL) {
            (void)snprintf(texts[i], sizeof(texts[i]), "%s=%s", kept_variables[i], value);
            list[count++] = texts[i];
        }
    }
    list[count] = NULL;
}

static void keep(FILE *file, char *text, size_t size) {
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    (void)fclose(file);
}

void program_run(program *result, const char *const *environment, const char *const *arguments) {
    const char *variables[MAX_VARIABLES];
    posix_spawn_file_actions_t actions;
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    pid_t child = 0;
    int status = 0;
    gather(environment, variables);
    CHECK(out != NULL && err != NULL);
    CHECK_INT(posix_spawn_file_actions_init(&actions), 0);
    CHECK_INT(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0), 0);
    CHECK_INT(posix_spawn_file_actions_adddup2(&actions, fileno(out), 1), 0);
    CHECK_INT(posix_spawn_file_actions_adddup2(&actions, fileno(err), 2), 0);
    CHECK_INT(posix_spawnp(&child, arguments[0], &actions, NULL, (char *const *)arguments,
                           environment == program_own_env ? environ : (char *const *)variables),
              0);
    CHECK_INT(posix_spawn_file_actions_destroy(&actions), 0);
    struct rusage usage;
    CHECK_INT(wait4(child, &status, 0, &usage), child);
    result->peak = (size_t)usage.ru_maxrss * 1024;
    result->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    keep(out, result->out, sizeof(result->out));
    keep(err, result->err, sizeof(result->err));
}

void program_must(program *result, const char *const *environment, const char *const *arguments) {
    program_run(result, environment, arguments);
    if (result->status != 0) {
        print_error("%s %s ended with %d and said\n%s%s", arguments[0],
                    arguments[1] != NULL ? arguments[1] : "", result->status, result->out,
                    result->err);
    }
    CHECK_INT(result->status, 0);
}

berth_json *program_json(const program *p) {
    berth_json *root = NULL;
    CHECK_OK(berth_json_parse(berth_str_from(p->out), "standard output", NULL, &root));
    return root;
}
