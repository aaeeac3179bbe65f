// SPDX-License-Identifier: Apache-2.0
// Passes: what makes a better graph of a model's graph before it is planned.
//
// A pass is a list of patterns, and a pattern a few nodes, each an input of a later one, with a
// function that says what stands for them instead. The host finds them, from the last node of the
// graph to the first, and makes the graph anew; no pass ever holds a graph in its hands. What
// becomes of a match is decided there:
//
//   rewrite        looks at attributes and types, emits nodes into the builder, as a layer does,
//                  and names the values that they replace
//   no match       it returned BERTH_NOT_FOUND; a value that somebody else uses was not replaced;
//                  no implementation of the platform would run an op that it emitted, for
//                  references do not count; custom_ops switches one of the matched ops off, or an
//                  override of another plugin or an attention backend runs it; there is no place
//                  in the order of the graph
//   a wrong pass   a replacement of another type, an op that is not there, a state that is changed
//                  in another order: the model is refused, naming pass and node
//
// Where no platform runs the fused op, the graph stays as it was. From ABI 1.1 on.
#ifndef BERTH_PASS_H
#define BERTH_PASS_H

#include <berth/builder.h>

#define BERTH_PASS_NODES 8 // of one pattern

// An input that another node of the pattern makes.
typedef struct berth_pass_input {
    uint64_t size;
    const char *name; // [required] of the op's input; "x" of a view
    uint64_t node;    // which node of the pattern, an earlier one
    uint64_t output;  // which of its outputs
} berth_pass_input;

// Inputs that are not listed may be anything, or absent.
typedef struct berth_pass_node {
    uint64_t size;
    const char *op; // [required] id of an op; "reshape" and "slice" are views
    const berth_pass_input *const *inputs;
    uint64_t input_count;
} berth_pass_node;

// One place of the graph that looks like the pattern. The arrays are parallel to its nodes and live
// as long as the call; values are those of the builder, too.
typedef struct berth_pass_match {
    uint64_t size;
    const berth_host *host;
    const berth_op_site *const *sites; // attributes and types of a node; NULL: it is a view
    const berth_value *const *inputs;  // in the order of the op; BERTH_VALUE_NONE: absent
    const berth_value *const *outputs;
    uint64_t node_count;
    void *context; // the host's own
    // Whoever uses `old`, an output of a matched node, uses `value` of the same type from now on:
    // an output of what was emitted, or what was there before the match.
    void (*replace)(const struct berth_pass_match *match, berth_value old, berth_value value);
} berth_pass_match;

typedef struct berth_pass_pattern {
    uint64_t size;
    const berth_pass_node *const *nodes; // [required] every node but the last is used by a later
    uint64_t node_count;
    // [required][startup] BERTH_OK, or BERTH_NOT_FOUND: it is not one that the pass is for; another
    // status is a failure. Of the builder there are input, op, slice, reshape, type, intern, fail
    // and has_failed; anything else is a failure of the build.
    berth_status (*rewrite)(const berth_pass_match *match, berth_builder *builder);
} berth_pass_pattern;

typedef struct berth_pass {
    uint64_t size;
    const char *name;  // [required] unique, "fuse_norm_linear"
    uint64_t revision; // [required] from 1; raised when it makes another graph
    // [inherit] Key under compilation.pass_config that switches it on and off. NULL: it is on
    // unless compilation.pass_config.disabled names it, which goes for every pass.
    const char *flag;
    int64_t priority;                          // higher runs first; ties by name
    const berth_pass_pattern *const *patterns; // [required] the first that matches counts
    uint64_t pattern_count;
} berth_pass;

// ---- shorthand for tables -----------------------------------------------------------------------

// Nodes of a pattern, to be used at file scope:
//   enum { NORM, LINEAR };
//   static const berth_pass_node *const nodes[] = {
//       BERTH_PASS_FIRST("rms_norm"),
//       BERTH_PASS_NODE("linear", BERTH_PASS_INPUT("x", NORM, 0)),
//   };
#define BERTH_PASS_FIRST(op_id)                                                                    \
    &(const berth_pass_node) {                                                                     \
        .size = sizeof(berth_pass_node), .op = (op_id)                                             \
    }
#define BERTH_PASS_NODE(op_id, ...)                                                                \
    &(const berth_pass_node) {                                                                     \
        .size = sizeof(berth_pass_node), .op = (op_id),                                            \
        .inputs = (const berth_pass_input *const[]){__VA_ARGS__},                                  \
        .input_count =                                                                             \
            sizeof((const berth_pass_input *const[]){__VA_ARGS__}) / sizeof(berth_pass_input *)    \
    }
#define BERTH_PASS_INPUT(input_name, node_index, output_index)                                     \
    &(const berth_pass_input) {                                                                    \
        .size = sizeof(berth_pass_input), .name = (input_name), .node = (node_index),              \
        .output = (output_index)                                                                   \
    }
// The pattern of an array of nodes.
#define BERTH_PASS_PATTERN(node_array, function)                                                   \
    &(const berth_pass_pattern) {                                                                  \
        .size = sizeof(berth_pass_pattern), .nodes = (node_array),                                 \
        .node_count = sizeof(node_array) / sizeof((node_array)[0]), .rewrite = (function)          \
    }

// ---- looking at a match -------------------------------------------------------------------------

// The value at an input of a matched op; BERTH_VALUE_NONE: absent, or the op has none of the name.
static inline berth_value berth_pass_value(const berth_pass_match *match, uint64_t node,
                                           const char *name) {
    const berth_op_site *site = match->sites[node];
    for (uint64_t i = 0; site && i < site->op->input_count; ++i) {
        if (strcmp(site->op->inputs[i]->name, name) == 0) {
            return match->inputs[node][i];
        }
    }
    return BERTH_VALUE_NONE;
}

// Its type; NULL: absent.
static inline const berth_value_type *berth_pass_type(const berth_pass_match *match, uint64_t node,
                                                      const char *name) {
    const berth_op_site *site = match->sites[node];
    for (uint64_t i = 0; site && i < site->op->input_count; ++i) {
        if (strcmp(site->op->inputs[i]->name, name) == 0) {
            return site->inputs[i];
        }
    }
    return NULL;
}

// An attribute of a matched op; NULL: absent, or the op has none of the name.
static inline const berth_attribute *berth_pass_attribute(const berth_pass_match *match,
                                                          uint64_t node, const char *name) {
    const berth_op_site *site = match->sites[node];
    const berth_attribute *found = site ? berth_site_attribute(site, name) : NULL;
    return found && found->kind != BERTH_ATTRIBUTE_NONE ? found : NULL;
}

// Those of a matched op that are set, for a call; returns how many, at most `most`.
static inline uint64_t berth_pass_attributes(const berth_pass_match *match, uint64_t node,
                                             const berth_attribute **out, uint64_t most) {
    const berth_op_site *site = match->sites[node];
    uint64_t count = 0;
    for (uint64_t i = 0; site && i < site->attribute_count && count < most; ++i) {
        if (site->attributes[i]->kind != BERTH_ATTRIBUTE_NONE) {
            out[count++] = site->attributes[i];
        }
    }
    return count;
}

#endif
