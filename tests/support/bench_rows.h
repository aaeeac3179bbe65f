// SPDX-License-Identifier: Apache-2.0
// What tests of `berth bench` share: how it is called, and what its rows as JSON must have.
#ifndef BERTH_TESTS_BENCH_ROWS_H
#define BERTH_TESTS_BENCH_ROWS_H

#include <stdint.h>

#include "base/json.h"
#include "support/program.h"

#define BENCH_WRONG TEST_BUILD "/tests/plugins/wrong-op/wrong-op.plugin.yaml"
#define BENCH_CPU   PROGRAM_ENV("BERTH_LOG=error")

// Ends the test as skipped where platform-cpu is not built.
void bench_need_cpu(void);

// Every member that the help names, of the kind that it promises.
void bench_check_row(const berth_json *row, const char *name, int64_t threads);

// Of a row with a ceiling.
void bench_check_share(const berth_json *row);

#endif
