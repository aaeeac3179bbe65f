// SPDX-License-Identifier: Apache-2.0
// The graph while it grows, private to graph: builder.c owns it, node.c appends to it.
#ifndef BERTH_GRAPH_BUILDER_H
#define BERTH_GRAPH_BUILDER_H

#include "base/array.h"
#include "base/map.h"
#include "graph/rules.h"

struct berth_graph_builder {
    const berth_registry *registry;
    berth_graph graph; // a view of the arrays below while it grows; its arena is owned
    berth_array(berth_graph_value) values;
    berth_array(berth_graph_node) nodes;
    berth_array(berth_graph_output) outputs;
    berth_map inputs;     // name → value
    berth_map parameters; // name → value
    berth_map states;     // "index layer" → latest version
    const char *made_by;  // pass whose nodes are being added, NULL: none
    berth_status failed;
    berth_status_report report; // of the first failure
};

extern const berth_value_type berth_no_type; // of rank 0

// Keeps the first failure of this thread; yields whether there is one.
bool berth_builder_keep(berth_graph_builder *builder, berth_status status);
berth_status berth_builder_add_value(berth_graph_builder *builder, berth_graph_value value,
                                     berth_value *out_value);
berth_status berth_builder_copy_name(berth_graph_builder *builder, const char *name,
                                     const char **out);
// The key of a state in `states`.
berth_status berth_builder_state_key(berth_graph_builder *builder, const char *layer,
                                     uint64_t index, berth_str *out_key);
// That a node may take the value as an input.
berth_status berth_builder_check_value(const berth_graph_builder *builder, berth_value value);

#endif
