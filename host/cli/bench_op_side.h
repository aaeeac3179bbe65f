// SPDX-License-Identifier: Apache-2.0
// Private to cli/: a case of `berth bench op` as it runs, on the platform or on the references.
#ifndef BERTH_CLI_BENCH_OP_SIDE_H
#define BERTH_CLI_BENCH_OP_SIDE_H

#include "cli/bench_op.h"
#include "cli/cli.h"

// `session`, `of`, `size` and `config` are the caller's, the rest is NULL before it is opened.
typedef struct berth_op_side {
    const berth_session *session;
    const berth_op_case *of;
    berth_op_size size;
    berth_config config; // custom_ops
    berth_graph *graph;  // owned
    berth_plan *plan;    // owned
    berth_op_batch *batch;
} berth_op_side;

// Builds, plans and loads it; the same numbers in every copy.
BERTH_MUST_CHECK berth_status berth_op_side_open(berth_op_side *side, berth_arena *arena,
                                                 berth_runtime *runtime);
// One step, of all copies.
BERTH_MUST_CHECK berth_status berth_op_side_run(const berth_op_side *side);
// Runs a step: the first rows of every copy, as it is timed, beside the op's reference. INTERNAL
// with the error where it is too large.
BERTH_MUST_CHECK berth_status berth_op_side_check(const berth_op_side *side, berth_arena *arena,
                                                  berth_runtime *runtime);
void berth_op_side_close(berth_op_side *side); // takes one that is half open

#endif
