// SPDX-License-Identifier: Apache-2.0
// Input: the graph of a loaded model. Output: what every step has to read and to multiply, which is
// what its speed is measured by.
#include <string.h>

#include "cli/bench_model.h"

// ---- weights ------------------------------------------------------------------------------------

// Whether any op but an embedding uses the value.
static bool is_read_whole(const berth_graph *graph, berth_value value) {
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        if (node->kind == BERTH_NODE_OP && strcmp(node->op->op.name, "embedding") == 0) {
            continue;
        }
        for (size_t k = 0; k < node->input_count; ++k) {
            if (node->inputs[k] == value) {
                return true;
            }
        }
    }
    return false;
}

static uint64_t read_weights(const berth_graph *graph) {
    uint64_t bytes = 0;
    for (berth_value i = 1; i < graph->value_count; ++i) {
        const berth_graph_value *value = &graph->values[i];
        if (value->kind == BERTH_VALUE_PARAMETER && is_read_whole(graph, i)) {
            const int64_t elements = berth_type_elements(&value->type, 1, 1);
            bytes += berth_dtype_bytes(value->type.dtype, (uint64_t)elements);
        }
    }
    return bytes;
}

// An op by its id, or one that passes make of it and of what goes before it.
static bool is_op(const berth_graph_node *node, const char *name) {
    static const char fused[] = "fused_";
    if (node->kind != BERTH_NODE_OP) {
        return false;
    }
    const char *id = node->op->op.name;
    return strcmp(id, name) == 0 ||
           (strncmp(id, fused, sizeof fused - 1) == 0 && strcmp(id + sizeof fused - 1, name) == 0);
}

static bool has_op(const berth_graph *graph, const char *name) {
    for (size_t i = 0; i < graph->node_count; ++i) {
        if (is_op(&graph->nodes[i], name)) {
            return true;
        }
    }
    return false;
}

// ---- products -----------------------------------------------------------------------------------

static berth_work_product product_of(const berth_graph *graph, const berth_graph_node *node) {
    const berth_value_type *x = &graph->values[node->inputs[0]].type;
    const berth_value_type *weight = &graph->values[node->inputs[1]].type;
    return (berth_work_product){
        .rows = x->dims[0],
        .out = weight->dims[0].b,
        .in = weight->dims[1].b,
        .count = 1,
    };
}

static void add_product(berth_model_work *work, berth_work_product product) {
    for (size_t i = 0; i < work->product_count; ++i) {
        berth_work_product *have = &work->products[i];
        if (have->out == product.out && have->in == product.in &&
            berth_dim_equal(have->rows, product.rows)) {
            ++have->count;
            return;
        }
    }
    work->products[work->product_count++] = product;
}

static berth_status read_products(const berth_graph *graph, berth_arena *arena,
                                  berth_model_work *out) {
    out->products = BERTH_ARENA_ARRAY(arena, berth_work_product, graph->node_count);
    if (!out->products) {
        return berth_arena_exhausted(arena, "a model's products");
    }
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        if (is_op(node, "linear")) {
            const berth_work_product product = product_of(graph, node);
            add_product(out, product);
            out->width = product.in;
        }
    }
    return BERTH_OK;
}

// ---- caches -------------------------------------------------------------------------------------

static berth_status read_caches(berth_worker *worker, berth_arena *arena, berth_model_work *out) {
    uint64_t count = 0;
    BERTH_TRY(berth_worker_get_kv_cache_spec(worker, NULL, 0, &count));
    berth_kv_cache_spec **each = BERTH_ARENA_ARRAY(arena, berth_kv_cache_spec *, count);
    out->caches = BERTH_ARENA_ARRAY(arena, berth_kv_cache_spec, count);
    if (!each || !out->caches) {
        return berth_arena_exhausted(arena, "a model's caches");
    }
    for (uint64_t i = 0; i < count; ++i) {
        out->caches[i].size = sizeof *out->caches;
        each[i] = &out->caches[i];
    }
    out->cache_count = count;
    return berth_worker_get_kv_cache_spec(worker, each, count, &count);
}

// ---- all of it ----------------------------------------------------------------------------------

berth_status berth_model_work_read(berth_worker *worker, berth_arena *arena,
                                   berth_model_work *out) {
    const berth_graph *graph = berth_worker_graph(worker);
    *out = (berth_model_work){.weight_bytes = 0};
    if (!graph) {
        return BERTH_FAIL(UNSUPPORTED,
                          "bench model: the platform's own worker does not tell what it runs");
    }
    out->weight_bytes = read_weights(graph);
    out->has_coded_inputs = has_op(graph, "scaled_linear") || has_op(graph, "quantized_experts") ||
                            has_op(graph, "quant_nvfp4");
    out->has_codes = out->has_coded_inputs || has_op(graph, "packed_linear");
    BERTH_TRY(read_products(graph, arena, out));
    return read_caches(worker, arena, out);
}

berth_onednn_shape berth_work_product_shape(const berth_work_product *product, int64_t tokens,
                                            int64_t rows) {
    return (berth_onednn_shape){
        .rows = berth_dim_value(product->rows, tokens, rows),
        .out = product->out,
        .in = product->in,
    };
}

double berth_model_work_flops(const berth_model_work *work, int64_t tokens, int64_t rows) {
    double flops = 0;
    for (size_t i = 0; i < work->product_count; ++i) {
        const berth_onednn_shape shape = berth_work_product_shape(&work->products[i], tokens, rows);
        flops += 2.0 * (double)shape.rows * (double)shape.out * (double)shape.in *
                 (double)work->products[i].count;
    }
    return flops;
}

double berth_model_work_cache(const berth_model_work *work, double tokens) {
    double bytes = 0;
    for (size_t i = 0; i < work->cache_count; ++i) {
        const berth_kv_cache_spec *cache = &work->caches[i];
        const double window = (double)cache->sliding_window;
        const double seen = window > 0 && window < tokens ? window : tokens;
        bytes += cache->is_state ? (double)cache->page_bytes
                                 : seen * (double)cache->page_bytes / (double)cache->block_size;
    }
    return bytes;
}
