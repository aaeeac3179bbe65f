// SPDX-License-Identifier: Apache-2.0
// Filters, tests, methods and functions: one kind of row for all of them, and how they are called.
#ifndef BERTH_CHAT_BUILTIN_H
#define BERTH_CHAT_BUILTIN_H

#include "chat/value.h"

#define BERTH_JINJA_PARAMETERS 6

// What stands in the brackets of a call.
typedef struct berth_jinja_call {
    berth_jinja_value *items;
    size_t count;
    berth_str *names; // of the named ones
    berth_jinja_value *named;
    size_t named_count;
} berth_jinja_call;

typedef struct berth_jinja_args {
    berth_jinja_value self;                           // what is filtered or tested; the object
    berth_jinja_value values[BERTH_JINJA_PARAMETERS]; // by parameter; ABSENT: not given
    const berth_jinja_call *call;
} berth_jinja_args;

typedef berth_status (*berth_jinja_fn)(berth_jinja *j, const berth_jinja_args *args,
                                       berth_jinja_value *out);

typedef struct berth_jinja_builtin {
    const char *name; // NULL ends a table
    berth_jinja_fn run;
    uint32_t least; // parameters that must be given
    bool is_free;   // takes the call as it is: no parameters are bound
    const char *parameters[BERTH_JINJA_PARAMETERS];
} berth_jinja_builtin;

struct berth_jinja_bound {
    const berth_jinja_builtin *builtin;
    berth_jinja_value self;
};

// Every table ends with a row without a name.
extern const berth_jinja_builtin berth_jinja_value_filters[];
extern const berth_jinja_builtin berth_jinja_list_filters[];
extern const berth_jinja_builtin berth_jinja_text_filters[];
extern const berth_jinja_builtin berth_jinja_pick_filters[];
extern const berth_jinja_builtin berth_jinja_markup_filters[];
extern const berth_jinja_builtin berth_jinja_wrap_filters[];
extern const berth_jinja_builtin berth_jinja_pretty_filters[];
extern const berth_jinja_builtin berth_jinja_tests[];
extern const berth_jinja_builtin berth_jinja_functions[];
extern const berth_jinja_builtin berth_jinja_str_methods[];
extern const berth_jinja_builtin berth_jinja_class_methods[]; // of strings, too
extern const berth_jinja_builtin berth_jinja_list_methods[];
extern const berth_jinja_builtin berth_jinja_dict_methods[];
extern const berth_jinja_builtin berth_jinja_loop_methods[];
extern const berth_jinja_builtin berth_jinja_cycler_methods[];

// NULL: there is none of this name.
const berth_jinja_builtin *berth_jinja_filter(berth_str name);
const berth_jinja_builtin *berth_jinja_test(berth_str name);
const berth_jinja_builtin *berth_jinja_function(berth_str name);
const berth_jinja_builtin *berth_jinja_method(berth_jinja_kind kind, berth_str name);

// Binds the arguments and runs. `what` is "filter" or so, for failures.
BERTH_MUST_CHECK berth_status berth_jinja_run(berth_jinja *j, const berth_jinja_builtin *builtin,
                                              const berth_jinja_value *self,
                                              const berth_jinja_call *call, berth_jinja_value *out);
// Calls a filter or a test by its name, UNSUPPORTED where there is none.
BERTH_MUST_CHECK berth_status berth_jinja_run_named(berth_jinja *j,
                                                    const berth_jinja_builtin *builtin,
                                                    berth_str name, const berth_jinja_args *args,
                                                    berth_jinja_value *out);

// ---- arguments as a builtin wants them; each refuses what is of another type ----

// An argument that was not given leaves `out` as it was.
BERTH_MUST_CHECK berth_status berth_jinja_want_str(berth_jinja *j, const berth_jinja_value *value,
                                                   berth_str *out);
BERTH_MUST_CHECK berth_status berth_jinja_want_integer(berth_jinja *j,
                                                       const berth_jinja_value *value,
                                                       int64_t *out);
BERTH_MUST_CHECK berth_status berth_jinja_want_real(berth_jinja *j, const berth_jinja_value *value,
                                                    double *out);
bool berth_jinja_truth_or(const berth_jinja_value *value, bool fallback);

// ---- what several builtins use ----

// "%-5s of %d" with the values of a tuple or a single one; "{:>5} of {n}" with those of a call.
BERTH_MUST_CHECK berth_status berth_jinja_percent(berth_jinja *j, berth_str format,
                                                  const berth_jinja_value *values,
                                                  berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_format(berth_jinja *j, berth_str format,
                                                 const berth_jinja_call *call,
                                                 berth_jinja_value *out);

#endif
