// SPDX-License-Identifier: Apache-2.0
// Input: the last op of a case's graph. Output: the same work as tasks of oneDNN.
#include "cli/bench_op_rival.h"

#include <math.h>
#include <string.h>

#include "base/array.h"

typedef struct rival_site {
    const berth_graph *graph;
    const berth_graph_node *node;
    int64_t tokens;
    berth_onednn_type type;
    char *memory;
    size_t bytes;
} rival_site;

// NULL when the op has no such input.
static const berth_value_type *input_of(const rival_site *at, const char *name) {
    const berth_op *op = &at->node->op->op;
    for (uint64_t i = 0; i < op->input_count; ++i) {
        if (strcmp(op->inputs[i]->name, name) == 0) {
            return &at->graph->values[at->node->inputs[i]].type;
        }
    }
    return NULL;
}

static berth_status add_product(const rival_site *at, berth_onednn_shape shape, int64_t calls,
                                berth_op_rival *rival) {
    berth_onednn_task **task = &rival->tasks[rival->task_count];
    shape.type = at->type;
    BERTH_TRY(berth_onednn_multiply(rival->onednn, &shape, at->memory, at->bytes, task));
    rival->calls[rival->task_count] = calls;
    rival->task_count += *task != NULL;
    return BERTH_OK;
}

static berth_status add_linear(const rival_site *at, berth_op_rival *rival) {
    const berth_value_type *weight = input_of(at, "weight");
    return add_product(at,
                       (berth_onednn_shape){
                           .rows = at->tokens,
                           .out = weight->dims[0].b,
                           .in = weight->dims[1].b,
                       },
                       1, rival);
}

// Two codes of 4 bits are one element of the weight.
static berth_status add_codes(const rival_site *at, berth_op_rival *rival) {
    const berth_value_type *x = input_of(at, "x");
    berth_onednn_shape shape = {
        .rows = at->tokens,
        .out = input_of(at, "weight")->dims[0].b,
        .in = x->dims[x->ndim - 1].b,
    };
    if (x->dtype != BERTH_DTYPE_I8) {
        return add_product(at, shape, 1, rival);
    }
    rival_site by_bytes = *at;
    rival->type = "int8";
    rival->is_choice = true;
    by_bytes.type = BERTH_ONEDNN_S8;
    BERTH_TRY(add_product(&by_bytes, shape, 1, rival));
    by_bytes.type = BERTH_ONEDNN_U8;
    return add_product(&by_bytes, shape, 1, rival);
}

// The choices of a case go to all experts in turns.
static berth_status add_experts(const rival_site *at, berth_op_rival *rival) {
    const berth_value_type *w13 = input_of(at, "w13_weight");
    const berth_value_type *w2 = input_of(at, "w2_weight");
    const berth_value_type *ids = input_of(at, "topk_ids");
    const int64_t rows = ids ? at->tokens * ids->dims[1].b : input_of(at, "expert_x")->dims[0].b;
    const int64_t experts = rows < w2->dims[0].b ? rows : w2->dims[0].b;
    const berth_onednn_shape up = {rows / experts, w13->dims[1].b, w13->dims[2].b, at->type};
    const berth_onednn_shape down = {rows / experts, w2->dims[1].b, w2->dims[2].b, at->type};
    BERTH_TRY(add_product(at, up, experts, rival));
    return rival->task_count > 0 ? add_product(at, down, experts, rival) : BERTH_OK;
}

// A list of the node as one number for each of the sizes; the op knows one number for all.
static void read_list(const rival_site *at, const char *name, int64_t rank, int64_t *out) {
    const berth_attribute *list =
        berth_attribute_find(at->node->attributes, at->node->attribute_count, name);
    for (int64_t i = 0; i < rank; ++i) {
        out[i] = list->i64s[list->count == 1 ? 0 : i];
    }
}

static void read_dims(const berth_value_type *type, int64_t *out) {
    for (uint32_t i = 0; i < type->ndim; ++i) {
        out[i] = type->dims[i].b;
    }
}

static berth_status add_convolution(const rival_site *at, berth_op_rival *rival) {
    const berth_value_type *weights = input_of(at, "weight");
    berth_onednn_image image = {.rank = (int)weights->ndim, .type = at->type};
    read_dims(input_of(at, "x"), image.x);
    read_dims(weights, image.weights);
    read_dims(&at->graph->values[at->node->outputs[0]].type, image.y);
    read_list(at, "stride", image.rank - 2, image.stride);
    read_list(at, "padding", image.rank - 2, image.padding);
    read_list(at, "dilation", image.rank - 2, image.dilation);
    for (int i = 0; i < image.rank - 2; ++i) {
        --image.dilation[i];
    }
    BERTH_TRY(
        berth_onednn_convolve(rival->onednn, &image, at->memory, at->bytes, &rival->tasks[0]));
    rival->calls[0] = 1;
    rival->task_count = rival->tasks[0] != NULL;
    return BERTH_OK;
}

typedef berth_status (*add_fn)(const rival_site *at, berth_op_rival *rival);

static const struct {
    const char *op;
    add_fn add;
} rows[] = {
    {"linear",                 add_linear     },
    {"packed_linear",          add_codes      },
    {"scaled_linear",          add_codes      },
    {"conv2d",                 add_convolution},
    {"conv3d",                 add_convolution},
    {"fused_moe",              add_experts    },
    {"unquantized_fused_moe",  add_experts    },
    {"modular_fused_moe",      add_experts    },
    {"transformers_fused_moe", add_experts    },
    {"moe_experts",            add_experts    },
};

static add_fn find(const char *op) {
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        if (strcmp(rows[i].op, op) == 0) {
            return rows[i].add;
        }
    }
    return NULL;
}

bool berth_op_has_rival(const berth_op_case *one) {
    return find(one->op) != NULL;
}

static const berth_graph_node *last_op(const berth_graph *graph) {
    size_t at = graph->node_count - 1;
    while (graph->nodes[at].kind != BERTH_NODE_OP) {
        --at;
    }
    return &graph->nodes[at];
}

berth_status berth_op_rival_open(const berth_op_case *one, const berth_graph *graph, char *memory,
                                 size_t bytes, berth_op_rival *rival) {
    rival_site at = {
        .graph = graph,
        .node = last_op(graph),
        .tokens = one->tokens,
        .memory = memory,
        .bytes = bytes,
    };
    const berth_dtype x = graph->values[at.node->inputs[0]].type.dtype;
    const bool is_bf16 = x == BERTH_DTYPE_BF16 || x == BERTH_DTYPE_F8_E4M3FN;
    at.type = is_bf16 ? BERTH_ONEDNN_BF16 : BERTH_ONEDNN_F32;
    rival->type = is_bf16 ? "bf16" : "f32";
    const add_fn add = find(one->op);
    return add ? add(&at, rival) : BERTH_OK;
}

berth_status berth_op_rival_time(const berth_op_rival *rival, double *out_seconds) {
    double sum = rival->task_count > 0 ? 0 : (double)INFINITY;
    for (size_t i = 0; i < rival->task_count; ++i) {
        double seconds = 0;
        BERTH_TRY(berth_onednn_task_time(rival->tasks[i], rival->calls[i], &seconds));
        sum = rival->is_choice && i > 0 ? fmin(sum, seconds) : sum + seconds;
    }
    berth_onednn_settle(rival->onednn);
    *out_seconds = sum;
    return BERTH_OK;
}

void berth_op_rival_close(berth_op_rival *rival) {
    for (size_t i = 0; i < BERTH_RIVAL_TASKS; ++i) {
        berth_onednn_task_destroy(rival->tasks[i]);
        rival->tasks[i] = NULL;
    }
    rival->task_count = 0;
}
