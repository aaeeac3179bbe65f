// SPDX-License-Identifier: Apache-2.0
// The rules that a node must keep, private to graph: the builder asks them when a node is added,
// the verifier when a graph is handed over, so that there is one answer.
#ifndef BERTH_GRAPH_RULES_H
#define BERTH_GRAPH_RULES_H

#include "graph/graph.h"

#define BERTH_TYPE_TEXT_BYTES 256

// berth_type_print for error texts: cut when too long. Returns the buffer.
const char *berth_type_text(const berth_value_type *type, char buffer[BERTH_TYPE_TEXT_BYTES]);
// The type with every dim normalised; what the dtype, the rank or a dim violates.
berth_status berth_type_normalise(const berth_value_type *type, berth_value_type *out_type);

// The type of an array of the batch; NOT_FOUND lists the names.
berth_status berth_input_type(const char *name, berth_value_type *out_type);

// The attributes of a call in the op's order, defaults filled in, copied into the arena.
berth_status berth_attributes_complete(const berth_op *op, const berth_call *call,
                                       berth_arena *arena,
                                       const berth_attribute *const **out_attributes);

// What slicing one dimension of a type gives.
berth_status berth_slice_type(const berth_value_type *source, const berth_graph_node *node,
                              berth_value_type *out_type);
// Whether both types have the same dtype and number of elements.
berth_status berth_reshape_check(const berth_value_type *source, const berth_value_type *target);

typedef struct berth_inferred {
    berth_value_type types[BERTH_MAX_OUTPUTS]; // normalised
    size_t count;
} berth_inferred;

// The types that the op gives a node whose inputs, states and attributes are set: the only call of
// berth_op.infer. The op's text explains a refusal, INTERNAL what it wrote wrongly.
berth_status berth_node_infer(const berth_graph *graph, const berth_graph_node *node,
                              const berth_host *host, berth_arena *arena, berth_inferred *out);

#endif
