// SPDX-License-Identifier: Apache-2.0
// Runs a program as an operator would, with an environment of its own, and keeps what it says.
//
//     program p;
//     PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_PLUGINS="), BERTH, "plugins", "list");
//     CHECK_INT(p.status, 0);
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include "base/json.h"

#define BERTH_FILE TEST_BUILD "/berth"
#define BERTH      (BERTH_FILE) // Why the parentheses: a list shows that no comma is missing

typedef struct program {
    int status;       // exit status; 128 + n when signal n ended it
    size_t peak;      // bytes of memory that it held at most
    char out[131072]; // standard output, cut off at this size, NUL-terminated
    char err[16384];
} program;

// Both lists end with NULL; the first argument is the program, looked up in PATH when it has no
// slash. Of the caller's environment it sees PATH, HOME as a place where nothing is, and the
// options of sanitizers, unless `environment` (NAME=value) says otherwise. PROGRAM_OWN_ENV instead
// of a list gives it the caller's whole environment. Standard input is empty.
void program_run(program *result, const char *const *environment, const char *const *arguments);

extern const char *const program_own_env[];
#define PROGRAM_OWN_ENV  program_own_env
#define PROGRAM_ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define PROGRAM_RUN(result, environment, ...)                                                      \
    program_run((result), (environment), (const char *const[]){__VA_ARGS__, NULL})

// The same, where another exit status than 0 ends the test and prints what the program said.
void program_must(program *result, const char *const *environment, const char *const *arguments);
#define PROGRAM_MUST(result, environment, ...)                                                     \
    program_must((result), (environment), (const char *const[]){__VA_ARGS__, NULL})

// Its standard output as JSON, to be destroyed by the caller.
berth_json *program_json(const program *p);

#endif
