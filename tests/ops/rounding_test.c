// SPDX-License-Identifier: Apache-2.0
// Where vLLM's own forms of an op round at different places, the reference takes the one that is
// stated at the op: tests/data/rounding.txt has operands for which they differ. Kernels may take
// either, so long as they stay within the op's tolerance.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/op_case.h"
#include "support/test.h"

#define PATH       "tests/data/rounding.txt"
#define LINE_BYTES 400

// Kept as long as the executable lives.
typedef struct choice {
    char op[LINE_BYTES];
    char body[LINE_BYTES];
    long output;
    double is;
    double other;
    struct choice *next;
} choice;

static choice *choices;

// ---- one choice ---------------------------------------------------------------------------------

static void run_choice(void **state) {
    const choice *self = *state;
    op_line line = {.op = op_find(self->op), .name = "choice"};
    op_case at;
    op_results got;
    CHECK(line.op != NULL);
    (void)snprintf(line.body, sizeof line.body, "%s", self->body);
    op_line_build(&line, &at);
    op_case_reference(&at, &got);
    const double value = op_tensor_get(&got.outputs[self->output], 0);
    CHECK(value != self->other);
    CHECK(value == self->is);
    op_results_free(&got);
    op_case_free(&at);
}

// ---- the list of tests --------------------------------------------------------------------------

// A line without its end; false at the end of the file.
static bool read_line(FILE *file, char line[LINE_BYTES]) {
    if (fgets(line, LINE_BYTES, file) == NULL) {
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    return true;
}

// The lines behind the one that names the op.
static bool read_rest(FILE *file, choice *self) {
    char numbers[LINE_BYTES];
    char *end = numbers;
    if (!read_line(file, self->body) || !read_line(file, numbers)) {
        return false;
    }
    self->output = strtol(end, &end, 10);
    self->is = strtod(end, &end);
    self->other = strtod(end, &end);
    return *end == '\0' && self->output < BERTH_MAX_OUTPUTS;
}

static void add_choice(test_cases *cases, FILE *file, const char *first) {
    choice *self = calloc(1, sizeof *self);
    if (self == NULL) {
        abort();
    }
    self->next = choices;
    choices = self;
    (void)snprintf(self->op, sizeof self->op, "%s", first);
    self->op[strcspn(self->op, ":")] = '\0';
    if (!read_rest(file, self)) {
        (void)fprintf(stderr, PATH ": '%s' has not its three lines\n", first);
        abort();
    }
    test_add(cases, first, run_choice, self);
}

TEST_CASES(rounding) {
    char line[LINE_BYTES];
    FILE *file = fopen(PATH, "r");
    if (file == NULL) {
        perror(PATH);
        abort();
    }
    while (read_line(file, line)) {
        if (line[0] != '#' && line[0] != '\0') {
            add_choice(cases, file, line);
        }
    }
    (void)fclose(file);
}
