// SPDX-License-Identifier: Apache-2.0
// The passes over a model's graph, between the model and its plan: graph in, better graph out.
//
// It is the only module that calls passes. A graph is never changed: each pass that finds something
// gets a copy to write to, and the graph is made anew, types inferred and verified again. What a
// fused op may replace is asked of dispatch, so the graph depends on the platform and on
// custom_ops; it never depends on weights.
#ifndef BERTH_PASSES_PASSES_H
#define BERTH_PASSES_PASSES_H

#include "base/status.h"
#include "executor/executor.h"
#include "graph/graph.h"

// Runs every registered pass that is on, the highest priority first, over the request's graph;
// NULL where none has found anything. The request is the plan's to be, its graph aside. Parameters,
// states, layers and outputs keep their names, values get other numbers. What a pass does wrongly
// is INTERNAL, naming pass and node.
BERTH_MUST_CHECK berth_status berth_passes_run(const berth_plan_request *request,
                                               berth_graph **out_graph);

#endif
