// SPDX-License-Identifier: Apache-2.0
// What a call through a bound op costs beside a plain indirect call, counted in instructions by
// callgrind inside `berth bench host bound_call`; and that a run of a plan reaches no allocator and
// no lock.
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/program.h"
#include "support/sandbox.h"

#define OP "count_call" // the op that both loops call

// What callgrind saw inside one function and below it.
typedef struct profile {
    uint64_t instructions;
    uint64_t calls; // of the op
    bool has_allocator;
    bool has_lock;
} profile;

static bool has_valgrind(void) {
    program p;
    PROGRAM_RUN(&p, NULL, "sh", "-c", "command -v valgrind");
    return p.status == 0;
}

// The name behind "fn=(12) name" or "cfn=(12) name", "" where only the number stands; the number.
static const char *name_in(const char *line, long *out_id) {
    char *end = NULL;
    *out_id = strtol(strchr(line, '(') + 1, &end, 10);
    return end[0] == ')' && end[1] == ' ' ? end + 2 : "";
}

static void look_at_name(profile *seen, const char *name) {
    static const char *const allocators[] = {"malloc", "calloc",        "realloc",
                                             "free",   "aligned_alloc", "posix_memalign"};
    for (size_t i = 0; i < sizeof allocators / sizeof allocators[0]; ++i) {
        seen->has_allocator = seen->has_allocator || strcmp(name, allocators[i]) == 0;
    }
    seen->has_lock = seen->has_lock || strstr(name, "mutex") || strstr(name, "lock_wait") ||
                     strstr(name, "rwlock");
}

// Callgrind's format: names are written out once and then go by their number; "calls=" follows the
// "cfn=" that it is about.
static void read_profile(const char *path, profile *out) {
    char line[4096];
    long op = -1;
    long called = -2;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    memset(out, 0, sizeof *out);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "fn=(", 4) == 0 || strncmp(line, "cfn=(", 5) == 0) {
            long id = -1;
            const char *name = name_in(line, &id);
            op = strcmp(name, OP) == 0 ? id : op;
            called = line[0] == 'c' ? id : -2;
            look_at_name(out, name);
        } else if (strncmp(line, "calls=", 6) == 0 && called == op) {
            out->calls += strtoull(line + 6, NULL, 10);
        } else if (strncmp(line, "summary: ", 9) == 0) {
            out->instructions = strtoull(line + 9, NULL, 10);
        }
    }
    CHECK_INT(fclose(file), 0);
}

static void count(const sandbox *box, const char *function, profile *out) {
    char file[1024];
    char toggle[128];
    program p;
    const char *path = sandbox_path(box, function);
    (void)snprintf(file, sizeof file, "--callgrind-out-file=%s", path);
    (void)snprintf(toggle, sizeof toggle, "--toggle-collect=%s*", function);
    PROGRAM_MUST(&p, NULL, "valgrind", "--tool=callgrind", file, toggle, BERTH, "bench", "host",
                 "bound_call", "--json");
    read_profile(path, out);
    CHECK(out->calls > 100000);
    CHECK(out->instructions > out->calls);
}

TEST(bound_call_costs_at_most_three_instructions_more_than_a_plain_one) {
    sandbox box;
    profile bound;
    profile plain;
    if (strcmp(TEST_MODE, "release") != 0) {
        SKIP("instructions are counted in the release build only");
    }
    if (!has_valgrind()) {
        SKIP("valgrind is not installed");
    }
    sandbox_make(&box);
    count(&box, "bench_bound", &bound);
    count(&box, "bench_plain", &plain);
    const double more = (double)bound.instructions / (double)bound.calls -
                        (double)plain.instructions / (double)plain.calls;
    print_message("a bound call costs %.2f instructions more than a plain one\n", more);
    CHECK(more <= 3.0);
    CHECK(more >= 0.0);
    CHECK(!bound.has_allocator);
    CHECK(!bound.has_lock);
    sandbox_remove(&box);
}
