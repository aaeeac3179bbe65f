// SPDX-License-Identifier: Apache-2.0
// Input: a graph and its fusions. Output: a new graph, built like any other, so that types are
// inferred, states threaded and everything verified anew. Lines stay in their order; a fusion
// stands before the node that it was placed at.
#include "passes/copying.h"
#include "passes/rewriting.h"

#include <string.h>

// ---- a copy -------------------------------------------------------------------------------------

static void copy_all(const berth_copying *in) {
    uint32_t copied = 0;
    for (berth_value i = 1; i < in->from->value_count && !berth_graph_has_failed(in->to); ++i) {
        const uint32_t node = in->from->values[i].node;
        if (node == BERTH_NO_NODE) {
            berth_copy_root(in, i);
        } else if (node == copied) {
            const berth_graph_node *next = &in->from->nodes[copied++];
            berth_copy_node(in, next, next->made_by);
        }
    }
}

// Values must keep their numbers, since a trial is read with those of the graph.
static berth_status check_copy(const berth_graph *graph, const berth_graph *copy) {
    if (copy->value_count != graph->value_count || copy->node_count != graph->node_count) {
        return BERTH_FAIL(INTERNAL, "graph '%s' cannot be copied: %zu values became %zu",
                          graph->name, graph->value_count, copy->value_count);
    }
    return BERTH_OK;
}

berth_status berth_trial_begin(const berth_registry *registry, const berth_graph *graph,
                               berth_graph_builder **out_builder) {
    berth_copying in = {.from = graph};
    berth_graph *none = NULL;
    BERTH_TRY(berth_graph_begin(registry, graph->name, &in.to));
    in.map = BERTH_ARENA_ARRAY(berth_graph_peek(in.to)->arena, berth_value, graph->value_count);
    if (in.map == NULL) {
        berth_graph_fail(in.to, BERTH_OUT_OF_MEMORY, berth_status_message());
        return berth_graph_finish(in.to, &none);
    }
    copy_all(&in);
    if (berth_graph_has_failed(in.to)) {
        return berth_graph_finish(in.to, &none);
    }
    *out_builder = in.to;
    return check_copy(graph, berth_graph_peek(in.to));
}

// ---- with fusions -------------------------------------------------------------------------------

// Those that stand before the node, the first one of the graph first.
static void emit(const berth_rewriting *in, const berth_copying *of, uint32_t position) {
    for (size_t i = in->fusions.count; i-- > 0;) {
        const berth_fusion *fusion = &in->fusions.data[i];
        for (uint32_t k = fusion->first; fusion->position == position && k < fusion->end; ++k) {
            berth_copy_node(of, &of->from->nodes[k], in->pass->pass.name);
        }
    }
}

static void build(const berth_rewriting *in, const berth_copying *of) {
    uint32_t next = 0;
    for (berth_value i = 1; i < in->graph->value_count && !berth_graph_has_failed(of->to); ++i) {
        const uint32_t node = in->graph->values[i].node;
        if (node == BERTH_NO_NODE) {
            berth_copy_root(of, i);
        } else if (node == next) {
            emit(in, of, node);
            if (in->taken_by[node] == 0) {
                berth_copy_node(of, &in->graph->nodes[node], in->graph->nodes[node].made_by);
            }
            ++next;
        }
    }
    berth_copy_outputs(of, in->graph);
}

// The next node that changes states, from `at` on.
static const berth_graph_node *next_change(const berth_graph *graph, size_t *at) {
    while (*at < graph->node_count) {
        const berth_graph_node *node = &graph->nodes[(*at)++];
        for (size_t i = 0; i < node->state_count; ++i) {
            if (node->states_after[i] != BERTH_VALUE_NONE) {
                return node;
            }
        }
    }
    return NULL;
}

// Layers change their states in the order in which they did before.
static berth_status check_states(const berth_graph *before, const berth_graph *after) {
    size_t of_before = 0;
    size_t of_after = 0;
    for (;;) {
        const berth_graph_node *one = next_change(before, &of_before);
        const berth_graph_node *other = next_change(after, &of_after);
        if (one == NULL && other == NULL) {
            return BERTH_OK;
        }
        if (one == NULL || other == NULL || strcmp(one->layer, other->layer) != 0) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "the states of layer '%s' are changed where those of '%s' were",
                              other == NULL ? "" : other->layer, one == NULL ? "" : one->layer);
        }
    }
}

berth_status berth_rewriting_finish(const berth_rewriting *in, berth_graph **out_graph) {
    const berth_graph *trial = berth_graph_peek(in->trial);
    berth_copying of = {
        .from = trial,
        .instead = in->instead,
        .instead_count = in->graph->value_count,
        .map = BERTH_ARENA_ARRAY(in->arena, berth_value, trial->value_count),
    };
    if (of.map == NULL) {
        return berth_arena_exhausted(in->arena, "a graph's values");
    }
    berth_graph *graph = NULL;
    BERTH_TRY(berth_graph_begin(in->request->registry, in->graph->name, &of.to));
    build(in, &of);
    BERTH_TRY(berth_graph_finish(of.to, &graph));
    const berth_status status = check_states(in->graph, graph);
    if (status != BERTH_OK) {
        berth_graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    return BERTH_OK;
}
