// SPDX-License-Identifier: Apache-2.0
// Private to cli/: what `berth bench host` measures the host with. Content that no plugin brings:
// manifests, ops, platforms, and a graph of one op many times.
#ifndef BERTH_CLI_BENCH_H
#define BERTH_CLI_BENCH_H

#include "base/arena.h"
#include "base/status.h"
#include "cli/cli.h"
#include "executor/executor.h"
#include "graph/graph.h"

#define BERTH_BENCH_MANIFESTS 16
#define BERTH_BENCH_OPS       64
#define BERTH_BENCH_IMPLS     936 // with the ops 1,000 entries
#define BERTH_BENCH_PLATFORMS 14
#define BERTH_BENCH_SITES     1000

// A call through a pointer, without a plan.
typedef struct berth_bench_call {
    berth_op_forward_fn forward;
    void *self;
    const berth_op_args *args;
} berth_bench_call;

// A batch of one token and what it points to.
typedef struct berth_bench_batch {
    berth_batch batch;
    berth_batch_view view;
    berth_tensor token_ids;
    berth_tensor zeros;
    berth_tensor lengths;
    berth_tensor starts;
    int32_t counter; // the token's id
    int32_t zero;
    int32_t length;
    int32_t bounds[2];
} berth_bench_batch;

// What the cases are made of. Zeroed until opened.
typedef struct berth_bench {
    berth_session *session;
    berth_arena *arena;    // owned: what outlives a sample
    berth_config config;   // defaults and nothing else
    berth_owner owner;     // of what is registered
    const char *directory; // of the manifests; NULL: not there
    berth_op *ops;         // [BERTH_BENCH_OPS]
    berth_op_impl *impls;  // [BERTH_BENCH_IMPLS]
    berth_registry *registry;
    berth_candidates candidates;
    berth_graph *graph;
    berth_runtime *runtime;
    berth_plan *plan;
    berth_bench_call *calls; // [BERTH_BENCH_SITES]
    berth_bench_batch *batch;
} berth_bench;

BERTH_MUST_CHECK berth_status berth_bench_open(berth_session *session, berth_bench *bench);
void berth_bench_close(berth_bench *bench);

// The manifests, in a new directory under $TMPDIR.
BERTH_MUST_CHECK berth_status berth_bench_write_manifests(berth_bench *bench);

// An empty registry in place of the last one.
BERTH_MUST_CHECK berth_status berth_bench_renew_registry(berth_bench *bench);
// Adds the ops, and as many implementations of them as asked, in one transaction.
BERTH_MUST_CHECK berth_status berth_bench_add_ops(berth_bench *bench, size_t impl_count);
// Adds the platforms; bench->candidates are their plugins.
BERTH_MUST_CHECK berth_status berth_bench_add_platforms(berth_bench *bench);

// A frozen registry, and a graph of BERTH_BENCH_SITES sites. Their op counts its calls.
BERTH_MUST_CHECK berth_status berth_bench_build_graph(berth_bench *bench);
// Its plan on the host itself, in place of the last one.
BERTH_MUST_CHECK berth_status berth_bench_renew_plan(berth_bench *bench);
// The plan can run, and the plain calls, too.
BERTH_MUST_CHECK berth_status berth_bench_ready_plan(berth_bench *bench);

// Runs of the plan on a batch of one token, and the same number of calls of the same function
// through a table of pointers. INTERNAL when not all were made.
BERTH_MUST_CHECK berth_status berth_bench_bound_calls(berth_bench *bench, uint64_t runs);
BERTH_MUST_CHECK berth_status berth_bench_plain_calls(berth_bench *bench, uint64_t runs);

#endif
