// SPDX-License-Identifier: Apache-2.0
// Input: an attempt that has been rewritten. Output: before which node of the graph its nodes may
// stand. They stand as late as the last matched node, unless somebody wants an output before that.
//
// Matches are taken from the end of the graph on, so a fusion that uses another's output was taken
// before it; both know each other by their positions, which then must differ.
#include "passes/rewriting.h"

// The first position at which the value is there.
static int64_t after(const berth_rewriting *in, berth_value value) {
    const uint32_t node =
        value < in->graph->value_count ? in->graph->values[value].node : BERTH_NO_NODE;
    if (value == BERTH_VALUE_NONE || node == BERTH_NO_NODE) {
        return 0; // one of its own, or a root
    }
    const uint32_t fusion = in->taken_by[node];
    return fusion > 0 ? (int64_t)in->fusions.data[fusion - 1].position + 1 : (int64_t)node + 1;
}

static int64_t earliest(const berth_attempt *attempt) {
    const berth_graph *trial = berth_graph_peek(attempt->in->trial);
    int64_t position = 0;
    for (uint32_t i = attempt->first; i < attempt->end; ++i) {
        const berth_graph_node *node = &trial->nodes[i];
        for (size_t k = 0; k < node->input_count; ++k) {
            const int64_t at = after(attempt->in, node->inputs[k]);
            position = at > position ? at : position;
        }
    }
    for (size_t i = 0; i < attempt->count; ++i) {
        const int64_t at = after(attempt->in, attempt->by[i]);
        position = at > position ? at : position;
    }
    return position;
}

static bool is_made_by(const berth_attempt *attempt, berth_value value) {
    return value != BERTH_VALUE_NONE && attempt->in->graph->values[value].node != BERTH_NO_NODE &&
           berth_found_has(attempt->found, attempt->in->graph->values[value].node);
}

// The last position at which no output has been used.
static int64_t latest(const berth_attempt *attempt) {
    const berth_rewriting *in = attempt->in;
    const uint64_t root = attempt->found->pattern->node_count - 1;
    int64_t position = attempt->found->nodes[root];
    for (uint32_t i = 0; i < in->graph->node_count; ++i) {
        const berth_graph_node *node = &in->graph->nodes[i];
        bool is_user = false;
        for (size_t k = 0; k < node->input_count && !is_user; ++k) {
            is_user = is_made_by(attempt, node->inputs[k]);
        }
        if (!is_user || berth_found_has(attempt->found, i)) {
            continue;
        }
        const uint32_t fusion = in->taken_by[i];
        const int64_t at =
            fusion > 0 ? (int64_t)in->fusions.data[fusion - 1].position - 1 : (int64_t)i;
        position = at < position ? at : position;
    }
    return position;
}

// The matched node that changes states, if there is one; two could not both stay where they are.
static bool find_state(const berth_attempt *attempt, int64_t *out_node) {
    *out_node = -1;
    for (uint64_t i = 0; i < attempt->found->pattern->node_count; ++i) {
        const uint32_t node = attempt->found->nodes[i];
        if (attempt->in->graph->nodes[node].state_count == 0) {
            continue;
        }
        if (*out_node >= 0) {
            return false;
        }
        *out_node = node;
    }
    return true;
}

bool berth_attempt_place(berth_attempt *attempt) {
    const int64_t first = earliest(attempt);
    const int64_t last = latest(attempt);
    int64_t state = -1;
    if (!find_state(attempt, &state)) {
        return false;
    }
    const int64_t position = state >= 0 ? state : last;
    attempt->fusion = (berth_fusion){
        .position = (uint32_t)position,
        .first = attempt->first,
        .end = attempt->end,
    };
    return first <= position && position <= last;
}
