// SPDX-License-Identifier: Apache-2.0
// Private to cli/: what oneDNN takes for the same shapes as a case of `berth bench op`.
#ifndef BERTH_CLI_BENCH_OP_RIVAL_H
#define BERTH_CLI_BENCH_OP_RIVAL_H

#include "cli/bench_onednn.h"
#include "cli/bench_op.h"

#define BERTH_RIVAL_TASKS 2

// Zeroed is none.
typedef struct berth_op_rival {
    berth_onednn *onednn; // borrowed
    berth_onednn_task *tasks[BERTH_RIVAL_TASKS];
    int64_t calls[BERTH_RIVAL_TASKS];
    size_t task_count;
    bool is_choice;   // one of the tasks, the fastest, not all of them
    const char *type; // "f32", "bf16" or "int8"
} berth_op_rival;

// Whether the case's op is one that oneDNN has something for.
bool berth_op_has_rival(const berth_op_case *one);
// A linear as its product, a convolution as one, a mixture of experts as the products of all of
// its experts without what stands between them; with activations and weights of one type, bf16 when
// the activations are, else f32. Codes of i8 by codes of i8 as the faster of s8 and u8 by s8, other
// codes in that one type. No task where oneDNN has no such thing. `memory` is for weights.
BERTH_MUST_CHECK berth_status berth_op_rival_open(const berth_op_case *one,
                                                  const berth_graph *graph, char *memory,
                                                  size_t bytes, berth_op_rival *rival);
// Seconds of all of it; INFINITY where there is none.
BERTH_MUST_CHECK berth_status berth_op_rival_time(const berth_op_rival *rival, double *out_seconds);
void berth_op_rival_close(berth_op_rival *rival);

#endif
