// SPDX-License-Identifier: Apache-2.0
// One pass over one graph, private to passes. In the order of the work: match.c finds a pattern,
// attempt.c has it rewritten into a trial and judges that, place.c finds where it may stand,
// rebuild.c makes the new graph.
//
// The trial is a copy of the graph that grows behind its end: values and nodes of the graph have
// the same numbers there, and whatever a rewrite emits comes after them. What is not accepted stays
// there and is never copied.
#ifndef BERTH_PASSES_REWRITING_H
#define BERTH_PASSES_REWRITING_H

#include "base/arena.h"
#include "base/array.h"
#include "passes/passes.h"

// A pattern found: the nodes of the graph, in the order of the pattern's.
typedef struct berth_found {
    const berth_pass_pattern *pattern;
    uint32_t nodes[BERTH_PASS_NODES];
} berth_found;

// What has taken the place of matched nodes.
typedef struct berth_fusion {
    uint32_t position; // before which node of the graph it is emitted
    uint32_t first;    // its nodes in the trial
    uint32_t end;
} berth_fusion;

typedef struct berth_rewriting {
    const berth_plan_request *request;
    berth_dispatcher *dispatcher;
    const berth_pass_entry *pass;
    const berth_graph *graph;
    berth_graph_builder *trial;
    berth_arena *arena;                // for the pass
    berth_arena *scratch;              // for one attempt
    uint32_t *taken_by;                // [node_count] index of a fusion + 1, 0: the node stays
    berth_value *instead;              // [value_count] what stands for the value, 0: itself
    berth_array(berth_fusion) fusions; // in the order of the scan, from the last node on
} berth_rewriting;

#define BERTH_ATTEMPT_VALUES 32

// A match on trial.
typedef struct berth_attempt {
    berth_rewriting *in;
    const berth_found *found;
    uint32_t first; // its nodes in the trial
    uint32_t end;
    size_t count;
    berth_value old[BERTH_ATTEMPT_VALUES];
    berth_value by[BERTH_ATTEMPT_VALUES];
    berth_fusion fusion;
} berth_attempt;

static inline bool berth_found_has(const berth_found *found, uint32_t node) {
    for (uint64_t i = 0; i < found->pattern->node_count; ++i) {
        if (found->nodes[i] == node) {
            return true;
        }
    }
    return false;
}

// match.c: whether the pattern ends with this node, by ops and by who makes what.
bool berth_pass_find(const berth_rewriting *in, const berth_pass_pattern *pattern, uint32_t root,
                     berth_found *out);

// writer.c: the builder that a rewrite gets, over the trial.
void berth_writer_open(berth_builder *face, const berth_rewriting *in);

// attempt.c: rewrites what was found, and takes it if nothing speaks against it.
BERTH_MUST_CHECK berth_status berth_attempt_make(berth_rewriting *in, const berth_found *found,
                                                 bool *out_taken);

// place.c: whether there is a place where all that was emitted has its inputs, nobody has used its
// outputs yet, and no state changes before or after another one that it came after or before.
bool berth_attempt_place(berth_attempt *attempt);

// rebuild.c: a builder with all of the graph; the graph with its fusions.
BERTH_MUST_CHECK berth_status berth_trial_begin(const berth_registry *registry,
                                                const berth_graph *graph,
                                                berth_graph_builder **out_builder);
BERTH_MUST_CHECK berth_status berth_rewriting_finish(const berth_rewriting *in,
                                                     berth_graph **out_graph);

#endif
