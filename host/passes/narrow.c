// SPDX-License-Identifier: Apache-2.0
// Input: a graph whose end selects rows of its tokens, those whose logits are wanted. Output: the
// same with rows selected as early as that can be, which is behind the last op that looks at other
// rows than its own, attention for instance: of a prompt nobody then computes the last layer's
// other rows. Ops say whether a row is its own (berth_op.is_rowwise).
#include <string.h>

#include "base/arena.h"
#include "passes/copying.h"
#include "passes/narrow.h"

#define BLOCK_BYTES (64u << 10)
#define LIMIT_BYTES (256u << 20)

// What is used of a value.
#define USED_ALL      1u // every row
#define USED_SELECTED 2u

typedef struct narrowing {
    const berth_graph *graph;
    const berth_host *host;
    berth_arena *arena;
    berth_value rows;       // the input that numbers the rows
    const char *layer;      // that selects them
    uint8_t *uses;          // [value_count] USED_*
    bool *is_own;           // [node_count] each row by itself, by its op and its types
    bool *is_narrow;        // [node_count] computed for the selected rows only
    berth_copying whole;    // into the new graph: values with all rows
    berth_copying selected; // and with the selected ones
} narrowing;

// ---- what a node does with rows -----------------------------------------------------------------

static bool is_of_tokens(const berth_value_type *type, uint32_t from) {
    for (uint32_t i = from; i < type->ndim; ++i) {
        if (type->dims[i].symbol == BERTH_SYMBOL_TOKENS) {
            return true;
        }
    }
    return false;
}

static bool has_rows(const narrowing *in, berth_value value) {
    return value != BERTH_VALUE_NONE && is_of_tokens(&in->graph->values[value].type, 0);
}

// One row for each token, and nothing else depends on how many there are.
static bool has_plain_rows(const narrowing *in, berth_value value) {
    const berth_value_type *type = &in->graph->values[value].type;
    return type->ndim > 0 && berth_dim_equal(type->dims[0], BERTH_DIM_TOKENS) &&
           !is_of_tokens(type, 1);
}

static bool is_select_rows(const berth_graph_node *node) {
    return node->kind == BERTH_NODE_OP && strcmp(node->op->op.name, "select_rows") == 0;
}

static bool is_selection(const narrowing *in, const berth_graph_node *node) {
    return is_select_rows(node) && node->inputs[1] == in->rows &&
           has_plain_rows(in, node->inputs[0]);
}

static bool are_plain(const narrowing *in, const berth_value *values, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (has_rows(in, values[i]) && !has_plain_rows(in, values[i])) {
            return false;
        }
    }
    return true;
}

static berth_status find_own(const narrowing *in, const berth_graph_node *node, bool *out_is_own) {
    bool is_own = node->output_count > 0 && has_rows(in, node->outputs[0]) &&
                  are_plain(in, node->inputs, node->input_count) &&
                  are_plain(in, node->outputs, node->output_count);
    if (is_own && node->kind == BERTH_NODE_OP) {
        berth_op_site site;
        BERTH_TRY(berth_graph_site(in->graph, node, in->host, in->arena, &site));
        is_own = node->state_count == 0 && berth_graph_is_rowwise(&site);
    }
    *out_is_own = is_own;
    return BERTH_OK;
}

// ---- what is used -------------------------------------------------------------------------------

static bool is_used_narrowly(const narrowing *in, const berth_graph_node *node) {
    uint8_t uses = 0;
    for (size_t i = 0; i < node->output_count; ++i) {
        uses |= in->uses[node->outputs[i]];
    }
    return uses == USED_SELECTED;
}

static void use_inputs(const narrowing *in, const berth_graph_node *node, uint8_t how) {
    for (size_t i = 0; i < node->input_count; ++i) {
        if (node->inputs[i] != BERTH_VALUE_NONE) {
            in->uses[node->inputs[i]] |= how;
        }
    }
}

// From the last node on: of a value all users are known when its own node's turn comes.
static void find_uses(const narrowing *in) {
    const berth_graph *graph = in->graph;
    memset(in->uses, 0, graph->value_count);
    for (size_t i = 0; i < graph->output_count; ++i) {
        in->uses[graph->outputs[i].value] = USED_ALL;
    }
    for (size_t i = graph->node_count; i-- > 0;) {
        const berth_graph_node *node = &graph->nodes[i];
        in->is_narrow[i] = in->is_own[i] && is_used_narrowly(in, node);
        use_inputs(in, node, in->is_narrow[i] || is_selection(in, node) ? USED_SELECTED : USED_ALL);
    }
}

static bool is_made_narrowly(const narrowing *in, berth_value value) {
    const uint32_t node = in->graph->values[value].node;
    return node != BERTH_NO_NODE && in->is_narrow[node];
}

// Whether rows of all inputs can be had: select_rows takes rows of numbers.
static bool can_select(const narrowing *in, const berth_graph_node *node) {
    for (size_t i = 0; i < node->input_count; ++i) {
        const berth_value value = node->inputs[i];
        if (has_rows(in, value) && !is_made_narrowly(in, value)) {
            const berth_value_type *type = &in->graph->values[value].type;
            const bool is_float = type->dtype == BERTH_DTYPE_F32 ||
                                  type->dtype == BERTH_DTYPE_F16 || type->dtype == BERTH_DTYPE_BF16;
            if (!is_float || type->ndim < 2) {
                return false;
            }
        }
    }
    return true;
}

// A node of which an input cannot be selected is computed whole, which others then follow.
static bool find_narrow(const narrowing *in) {
    bool is_settled = false;
    size_t count = 0;
    while (!is_settled) {
        is_settled = true;
        count = 0;
        find_uses(in);
        for (size_t i = 0; i < in->graph->node_count; ++i) {
            count += in->is_narrow[i];
            if (in->is_narrow[i] && !can_select(in, &in->graph->nodes[i])) {
                in->is_own[i] = false;
                is_settled = false;
            }
        }
    }
    return count > 0;
}

// ---- the new graph ------------------------------------------------------------------------------

// The value for the selected rows, or as it is where it has none.
static berth_value select_value(const narrowing *in, berth_value value) {
    berth_value *known = &in->selected.map[value];
    if (*known == BERTH_VALUE_NONE && !has_rows(in, value)) {
        *known = berth_moved(&in->whole, value);
    } else if (*known == BERTH_VALUE_NONE) {
        const berth_value inputs[] = {berth_moved(&in->whole, value),
                                      berth_moved(&in->whole, in->rows)};
        berth_graph_made_by(in->whole.to, BERTH_NARROW_ROWS);
        *known = berth_graph_op(in->whole.to, &(berth_call){
                                                  .size = sizeof(berth_call),
                                                  .name = "select_rows",
                                                  .prefix = in->layer,
                                                  .inputs = inputs,
                                                  .input_count = 2,
                                              });
    }
    return *known;
}

static void copy_narrow(const narrowing *in, const berth_graph_node *node) {
    for (size_t i = 0; i < node->input_count; ++i) {
        if (node->inputs[i] != BERTH_VALUE_NONE) {
            (void)select_value(in, node->inputs[i]);
        }
    }
    berth_copy_node(&in->selected, node, node->made_by);
}

static void copy_node(const narrowing *in, uint32_t index) {
    const berth_graph_node *node = &in->graph->nodes[index];
    if (in->is_narrow[index]) {
        copy_narrow(in, node);
    } else if (is_selection(in, node)) {
        in->whole.map[node->outputs[0]] = select_value(in, node->inputs[0]);
    } else {
        berth_copy_node(&in->whole, node, node->made_by);
    }
}

static void copy_all(const narrowing *in) {
    uint32_t next = 0;
    for (berth_value i = 1; i < in->graph->value_count && !berth_graph_has_failed(in->whole.to);
         ++i) {
        const uint32_t node = in->graph->values[i].node;
        if (node == BERTH_NO_NODE) {
            berth_copy_root(&in->whole, i);
        } else if (node == next) {
            copy_node(in, next++);
        }
    }
    berth_copy_outputs(&in->whole, in->graph);
}

static berth_status make_copying(const narrowing *in, berth_copying *out) {
    *out = (berth_copying){
        .from = in->graph,
        .map = BERTH_ARENA_ARRAY(in->arena, berth_value, in->graph->value_count),
    };
    return out->map != NULL ? BERTH_OK : berth_arena_exhausted(in->arena, "a graph's values");
}

static berth_status build(narrowing *in, const berth_registry *registry, berth_graph **out_graph) {
    BERTH_TRY(make_copying(in, &in->whole));
    BERTH_TRY(make_copying(in, &in->selected));
    BERTH_TRY(berth_graph_begin(registry, in->graph->name, &in->whole.to));
    in->selected.to = in->whole.to;
    copy_all(in);
    return berth_graph_finish(in->whole.to, out_graph);
}

// ---- the pass -----------------------------------------------------------------------------------

// The last selection says which rows; where there is none there is nothing to do.
static bool find_rows(narrowing *in) {
    for (size_t i = in->graph->node_count; i-- > 0;) {
        const berth_graph_node *node = &in->graph->nodes[i];
        if (is_select_rows(node) && in->graph->values[node->inputs[1]].kind == BERTH_VALUE_INPUT) {
            in->rows = node->inputs[1];
            in->layer = node->layer;
            return true;
        }
    }
    return false;
}

static berth_status narrow(narrowing *in, const berth_registry *registry, berth_graph **out_graph) {
    const berth_graph *graph = in->graph;
    in->uses = BERTH_ARENA_ARRAY(in->arena, uint8_t, graph->value_count);
    in->is_narrow = BERTH_ARENA_ARRAY(in->arena, bool, graph->node_count);
    in->is_own = BERTH_ARENA_ARRAY(in->arena, bool, graph->node_count);
    if (in->uses == NULL || in->is_narrow == NULL || in->is_own == NULL) {
        return berth_arena_exhausted(in->arena, "a graph's rows");
    }
    for (size_t i = 0; i < graph->node_count; ++i) {
        BERTH_TRY(find_own(in, &graph->nodes[i], &in->is_own[i]));
    }
    return find_narrow(in) ? build(in, registry, out_graph) : BERTH_OK;
}

berth_status berth_narrow_rows(const berth_registry *registry, const berth_graph *graph,
                               berth_graph **out_graph) {
    narrowing in = {.graph = graph, .host = berth_registry_host(registry)};
    *out_graph = NULL;
    if (!find_rows(&in)) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &in.arena));
    const berth_status status = narrow(&in, registry, out_graph);
    berth_arena_destroy(in.arena);
    return status;
}
