// SPDX-License-Identifier: Apache-2.0
// The graph of a model: typed values with symbolic shapes, op nodes, views, states. Built once,
// then immutable.
//
// Values and nodes are ids into arrays, in topological order. A view (slice, reshape) and the new
// version of a mutated state are values that alias another value's storage; nothing in a graph
// depends on data. The text form prints and parses exactly:
//
//   graph "LlamaForCausalLM" {
//     %1 = input token_ids : i32[s0]
//     %2 = parameter "model.embed_tokens.weight" : bf16[512, 64]
//     %3 = state "model.layers.0.self_attn.attn" 0 : f32[9, 16, 2, 16]
//     %4 = embedding(%1, %2) @"model.embed_tokens" : f32[s0, 64]
//     %5 = slice %4 dim 1 from 0 length 32 : f32[s0, 32]
//     %6, %7' = attend(%5, _, %4; %3) {scale = 0.25} @"model.layers.0.self_attn.attn" : f32[s0, 32]
//     output logits = %6
//   }
//
// `_` is an absent input, a primed result the next version of a state. The exact grammar is in
// print.c, whose inverse is parse.c.
#ifndef BERTH_GRAPH_GRAPH_H
#define BERTH_GRAPH_GRAPH_H

#include <berth/builder.h>
#include <berth/op.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"
#include "base/text.h"
#include "registry/registry.h"

#define BERTH_NO_NODE UINT32_MAX

typedef enum berth_value_kind {
    BERTH_VALUE_INPUT,     // an array of the batch, by name
    BERTH_VALUE_PARAMETER, // by name
    BERTH_VALUE_STATE,     // first version of a layer's state
    BERTH_VALUE_RESULT,    // of an op node
    BERTH_VALUE_VIEW,      // of a slice or reshape node
    BERTH_VALUE_MUTATED,   // the state after a node changed it: same storage, later in order
} berth_value_kind;

typedef struct berth_graph_value {
    berth_value_kind kind;
    const char *name; // of an input or parameter; of a state its layer
    uint64_t state;   // index among the layer's states
    berth_value_type type;
    uint32_t node; // producer, BERTH_NO_NODE for inputs, parameters and states
    berth_value
        alias_of; // a view's source, a mutated state's version before; else BERTH_VALUE_NONE
} berth_graph_value;

typedef enum berth_node_kind {
    BERTH_NODE_OP,
    BERTH_NODE_SLICE,
    BERTH_NODE_RESHAPE,
} berth_node_kind;

typedef struct berth_graph_node {
    berth_node_kind kind;
    const berth_op_entry *op;                 // BERTH_NODE_OP
    const char *layer;                        // prefix of the layer that emitted it, ""
    const berth_attribute *const *attributes; // in the op's order, defaults filled in
    size_t attribute_count;
    const berth_value *inputs; // one per declared input, BERTH_VALUE_NONE where absent
    size_t input_count;
    const berth_value *states; // versions before the node, BERTH_VALUE_NONE where absent
    const berth_value *states_after;
    size_t state_count;
    const berth_value *outputs;
    size_t output_count;
    bool is_enforced;    // enforce_enable
    const char *made_by; // pass, NULL: the model; the text form does not have it
    uint64_t slice_dim;
    int64_t slice_start;
    int64_t slice_length;
} berth_graph_node;

typedef struct berth_graph_output {
    const char *name;
    berth_value value;
} berth_graph_output;

// Read directly, changed never. values[0] is unused, so that a berth_value is its index.
typedef struct berth_graph {
    const char *name;
    const berth_graph_value *values;
    size_t value_count;
    const berth_graph_node *nodes;
    size_t node_count;
    const berth_graph_output *outputs;
    size_t output_count;
    berth_arena *arena; // owned
} berth_graph;

// ---- building
// -------------------------------------------------------------------------------------

typedef struct berth_graph_builder berth_graph_builder; // sticky, like berth_builder

BERTH_MUST_CHECK berth_status berth_graph_begin(const berth_registry *registry, const char *name,
                                                berth_graph_builder **out_builder);
berth_value berth_graph_input(berth_graph_builder *builder, const char *name);
// The same name twice gives the same value; with another type it fails.
berth_value berth_graph_parameter(berth_graph_builder *builder, const char *name,
                                  const berth_value_type *type);
// State `index` of a layer, its first version. Must come before the layer's node. Twice is refused.
void berth_graph_state(berth_graph_builder *builder, const char *layer, uint64_t index,
                       const berth_value_type *type);
// Resolves the op, completes the attributes, infers, appends; refuses with op, argument and rule.
// The node uses and renews the states of the layer that call->prefix names.
berth_value berth_graph_op(berth_graph_builder *builder, const berth_call *call);
// The rows of a value that an input of the step numbers: the op select_rows.
berth_value berth_graph_rows(berth_graph_builder *builder, berth_value value, const char *input);
// Constant dimensions only.
berth_value berth_graph_slice(berth_graph_builder *builder, berth_value value, uint64_t dim,
                              int64_t start, int64_t length);
// The number of elements must be the same for every value of the symbols.
berth_value berth_graph_reshape(berth_graph_builder *builder, berth_value value,
                                const berth_dim *dims, uint64_t ndim);
// Nodes that are added from now on are this pass's, NULL: the model's.
void berth_graph_made_by(berth_graph_builder *builder, const char *pass);
void berth_graph_output_add(berth_graph_builder *builder, const char *name, berth_value value);
const berth_value_type *berth_graph_type(const berth_graph_builder *builder, berth_value value);
void berth_graph_fail(berth_graph_builder *builder, berth_status status, const char *text);
bool berth_graph_has_failed(const berth_graph_builder *builder);
// The graph as it grows: its nodes and values until the builder's next call.
const berth_graph *berth_graph_peek(const berth_graph_builder *builder);
// Verifies and hands over the graph; the builder is gone in any case. The first failure is
// returned.
BERTH_MUST_CHECK berth_status berth_graph_finish(berth_graph_builder *builder,
                                                 berth_graph **out_graph);
void berth_graph_destroy(berth_graph *graph);

// What an op or an implementation is told of a node. The arrays come from the arena, the types are
// the graph's own, so both must outlive the site. Bounds, cache group and block size are left 0: at
// inference nobody knows them, the executor fills them in.
BERTH_MUST_CHECK berth_status berth_graph_site(const berth_graph *graph,
                                               const berth_graph_node *node, const berth_host *host,
                                               berth_arena *arena, berth_op_site *out_site);
// Whether the op computes each row of that site by itself (berth_op.is_rowwise).
bool berth_graph_is_rowwise(const berth_op_site *site);

// ---- checking, printing, parsing
// --------------------------------------------------------------------

// Order, arity, types (inferred again), aliases, states used in order, outputs. INTERNAL with the
// node.
BERTH_MUST_CHECK berth_status berth_graph_verify(const berth_graph *graph,
                                                 const berth_registry *registry);
void berth_graph_print(const berth_graph *graph, berth_text *text);
void berth_graph_print_dot(const berth_graph *graph, berth_text *text);
// INVALID_ARGUMENT with line and column, or OUT_OF_MEMORY.
BERTH_MUST_CHECK berth_status berth_graph_parse(const berth_registry *registry, berth_str source,
                                                berth_graph **out_graph);

// ---- symbolic dims and dtypes
// -----------------------------------------------------------------------

// The one form that equal dims share: a and c without a common divisor, a constant with a 0 and
// c 1. INVALID_ARGUMENT for a dim that has no such form: an unknown symbol, c < 1, a < 1 with a
// symbol, a constant < 1, a value below 0 for a symbol of 0, numbers beyond 2^47.
BERTH_MUST_CHECK berth_status berth_dim_normalise(berth_dim dim, berth_dim *out_dim);
// Whether both give the same number for every value of the symbols. For normalised dims.
bool berth_dim_equal(berth_dim a, berth_dim b);
bool berth_dim_is_const(berth_dim dim);
int64_t berth_dim_value(berth_dim dim, int64_t tokens, int64_t sequences); // -1 on overflow
void berth_dim_print(berth_dim dim, berth_text *text); // "64", "s0", "2*s0", "ceil((s0+3)/4)"
// Whether both products of at most BERTH_MAX_DIMS dims are the same for every value of the symbols.
bool berth_dims_match(const berth_dim *a, uint32_t a_count, const berth_dim *b, uint32_t b_count);
bool berth_type_equal(const berth_value_type *a, const berth_value_type *b);
void berth_type_print(const berth_value_type *type, berth_text *text); // "f32[s0, 64]"
// Elements of a type for given symbols; -1 on overflow.
int64_t berth_type_elements(const berth_value_type *type, int64_t tokens, int64_t sequences);
uint64_t berth_dtype_bytes(berth_dtype dtype, uint64_t elements); // rounded up for 4-bit types
const char *berth_dtype_name(berth_dtype dtype);                  // "bf16", "?" when unknown
berth_dtype berth_dtype_find(berth_str name);                     // BERTH_DTYPE_NONE when unknown

#endif
