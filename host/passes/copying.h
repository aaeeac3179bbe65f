// SPDX-License-Identifier: Apache-2.0
// A graph on its way into another one that is being built, private to passes.
#ifndef BERTH_PASSES_COPYING_H
#define BERTH_PASSES_COPYING_H

#include "graph/graph.h"

typedef struct berth_copying {
    const berth_graph *from;
    berth_graph_builder *to;
    const berth_value *instead; // of values of the graph; NULL: nothing is replaced
    size_t instead_count;
    berth_value *map; // [from->value_count] values of `to`, BERTH_VALUE_NONE: not there yet
} berth_copying;

// An input, a parameter or a state, once.
void berth_copy_root(const berth_copying *in, berth_value value);
// What stands for the value in the new graph. A fused node may stand before the line of a parameter
// that it uses.
berth_value berth_moved(const berth_copying *in, berth_value value);
// The node, behind all that was added before, with its inputs as they were moved.
void berth_copy_node(const berth_copying *in, const berth_graph_node *node, const char *made_by);
// The outputs of another graph whose values have the same numbers.
void berth_copy_outputs(const berth_copying *in, const berth_graph *graph);

#endif
