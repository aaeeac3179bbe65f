// SPDX-License-Identifier: Apache-2.0
// main of every test executable: collects the generated list and the run-time cases, keeps those
// whose "<executable>.<test>" contains the filter (first argument, else TEST_FILTER), runs them.
// Ends with 0 when nothing failed; `tools/run-tests` reads cmocka's counts from the output.
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_cases {
    struct CMUnitTest *rows;
    size_t count;
    size_t capacity;
    const char *executable; // borrowed from argv
    const char *filter;     // NULL keeps all
    const char *group;      // name of the TEST_CASES at work
};

static void append(test_cases *cases, const char *name, void (*run)(void **), void *context) {
    char full[512];
    (void)snprintf(full, sizeof(full), "%s.%s", cases->executable, name);
    if (cases->filter != NULL && strstr(full, cases->filter) == NULL) {
        return;
    }
    if (cases->count == cases->capacity) {
        cases->capacity = cases->capacity == 0 ? 64 : 2 * cases->capacity;
        cases->rows = realloc(cases->rows, cases->capacity * sizeof(cases->rows[0]));
        if (cases->rows == NULL) {
            abort();
        }
    }
    cases->rows[cases->count++] = (struct CMUnitTest){
        .name = name,
        .test_func = run,
        .initial_state = context,
    };
}

void test_add(test_cases *cases, const char *case_name, void (*run)(void **), void *context) {
    size_t size = strlen(cases->group) + strlen(case_name) + sizeof(": ");
    char *name = malloc(size); // lives as long as the executable
    if (name == NULL) {
        abort();
    }
    (void)snprintf(name, size, "%s: %s", cases->group, case_name);
    size_t before = cases->count;
    append(cases, name, run, context);
    if (cases->count == before) {
        free(name);
    }
}

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    const char *filter = argc > 1 ? argv[1] : getenv("TEST_FILTER");
    static test_cases cases; // static: what it points to is reachable at exit, so no leak
    cases.executable = slash == NULL ? argv[0] : slash + 1;
    cases.filter = filter != NULL && filter[0] != '\0' ? filter : NULL;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (const test_entry *entry = test_entries; entry->name != NULL; ++entry) {
        if (entry->cases == NULL) {
            append(&cases, entry->name, entry->run, NULL);
        } else {
            cases.group = entry->name;
            entry->cases(&cases);
        }
    }
    if (cases.count == 0) {
        return 0;
    }
    return _cmocka_run_group_tests(cases.executable, cases.rows, cases.count, NULL, NULL) != 0;
}
