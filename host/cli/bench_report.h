// SPDX-License-Identifier: Apache-2.0
// Private to cli/: what every bench prints, as a table or as JSON, and what its figures are made
// of.
#ifndef BERTH_CLI_BENCH_REPORT_H
#define BERTH_CLI_BENCH_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"

// One case on so many threads. Figures that do not exist are NAN.
typedef struct berth_bench_row {
    const char *name;
    int64_t threads;
    double value;
    const char *unit;
    double ceiling; // in the unit
    double share;   // how much of the ceiling is reached, larger is better
    double p10;     // of samples of the value
    double p90;
    double times_one; // of several requests together: how many times one alone
    const char *gate; // "pass" or "below" what is asked for; NULL: nothing is
    const char *note; // what the ceiling is; "" or NULL: nothing to say
} berth_bench_row;

#define BERTH_BENCH_JSON_HELP                                                                      \
    "--json prints an array of {case, threads, value, unit, ceiling, share, p10, p90,\n"           \
    "times_one, gate, note}; what does not exist is null, ceilings on other platforms than the "   \
    "CPU\n"                                                                                        \
    "too."

BERTH_MUST_CHECK berth_status berth_bench_print(berth_session *session, const berth_bench_row *rows,
                                                size_t count);

// A bench is run on one thread and on all, or on as many as the user says.
#define BERTH_BENCH_THREADS 2
size_t berth_bench_threads(const berth_config *config, int64_t *out_threads);

// Whether the case is meant by what the user wrote (NULL: all are): its name, where there is one of
// just that name, else a part of it.
bool berth_bench_is_wanted(const char *wanted, const char *name, bool is_exact);

// Sorts the samples. `share` of 0.5 is the median.
double berth_bench_quantile(double *samples, size_t count, double share);

#endif
