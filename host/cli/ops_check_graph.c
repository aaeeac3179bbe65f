// SPDX-License-Identifier: Apache-2.0
// Input: a case of an op. Output: a graph of one site.
//
// Its operands are parameters, so that the plan brings them to wherever the site runs; an empty one
// is made of no rows of a parameter, since a graph has no constant of size 0. Arrays of the batch
// are not operands: they go into the batch.
#include <string.h>

#include "cli/ops_check_run.h"

// ---- attributes ---------------------------------------------------------------------------------

// A number, or a list of them, as the kind of list that the schema wants.
static berth_status convert_list(berth_check_case *at, const berth_json *json, uint64_t kind,
                                 berth_attribute *out) {
    const bool is_array = berth_json_kind_of(json) == BERTH_JSON_ARRAY;
    const size_t count = is_array ? berth_json_size(json) : 1;
    int64_t *i64s = BERTH_ARENA_ARRAY(at->arena, int64_t, count + 1);
    double *f64s = BERTH_ARENA_ARRAY(at->arena, double, count + 1);
    if (!i64s || !f64s) {
        return berth_arena_exhausted(at->arena, "attributes");
    }
    for (size_t i = 0; i < count; ++i) {
        const berth_json *item = is_array ? berth_json_at(json, i) : json;
        bool truth = false;
        if (berth_json_as_bool(item, &truth)) {
            i64s[i] = truth;
        } else if (kind == BERTH_ATTRIBUTE_I64S) {
            BERTH_TRY(berth_json_get_i64(item, "", &i64s[i]));
        } else {
            BERTH_TRY(berth_json_get_f64(item, "", &f64s[i]));
        }
    }
    out->i64s = i64s;
    out->f64s = f64s;
    out->count = count;
    return BERTH_OK;
}

berth_status berth_check_convert(berth_check_case *at, const berth_json *json, uint64_t kind,
                                 berth_attribute *out) {
    bool truth = false;
    berth_str text = {0};
    out->kind = kind;
    switch (kind) {
    case BERTH_ATTRIBUTE_I64:
        return berth_json_get_i64(json, "", &out->i64);
    case BERTH_ATTRIBUTE_F64:
        return berth_json_get_f64(json, "", &out->f64);
    case BERTH_ATTRIBUTE_BOOL:
        BERTH_TRY(berth_json_get_bool(json, "", &truth));
        out->i64 = truth;
        return BERTH_OK;
    case BERTH_ATTRIBUTE_STR:
        BERTH_TRY(berth_json_get_str(json, "", &text));
        out->str = text.data;
        return BERTH_OK;
    default:
        return convert_list(at, json, kind, out);
    }
}

// The kind that the schema gives the attribute, NONE when it has no such attribute.
static uint64_t kind_of(const berth_op *op, const char *name) {
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        if (strcmp(op->attributes[i]->name, name) == 0) {
            return op->attributes[i]->kind;
        }
    }
    return BERTH_ATTRIBUTE_NONE;
}

static berth_status make_attributes(berth_check_run *run) {
    berth_check_case *at = run->at;
    for (size_t i = 0; i < at->attribute_count; ++i) {
        const berth_check_attribute *given = &at->attributes[i];
        berth_attribute *made = &run->attributes[i];
        const uint64_t kind = kind_of(run->op, given->name);
        *made = given->made;
        if (kind == BERTH_ATTRIBUTE_NONE) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "op '%s' has no attribute '%s'; the golden file's row must say what "
                              "it means",
                              run->op->name, given->name);
        }
        if (given->json) {
            BERTH_TRY(berth_check_convert(at, given->json, kind, made));
        }
        made->size = sizeof *made;
        made->name = given->name;
        run->attribute_pointers[i] = made;
    }
    return BERTH_OK;
}

// ---- operands -----------------------------------------------------------------------------------

berth_value_type berth_check_type(const berth_check_tensor *tensor, uint32_t from_dim) {
    berth_value_type type = {
        .size = sizeof type,
        .dtype = tensor->dtype,
        .ndim = tensor->ndim - from_dim,
    };
    for (uint32_t i = from_dim; i < tensor->ndim; ++i) {
        type.dims[i - from_dim] = BERTH_DIM_CONST(tensor->shape[i]);
    }
    return type;
}

// Of a parameter, the rows that nobody wants.
static berth_value add_no_rows(berth_check_run *run, const berth_check_tensor *tensor,
                               berth_dtype dtype, int64_t width) {
    const berth_check_tensor one = {
        .dtype = dtype, .ndim = 2, .shape = {1, width}
    };
    const berth_value_type type = berth_check_type(&one, 0);
    return berth_graph_rows(run->builder, berth_graph_parameter(run->builder, tensor->name, &type),
                            "logits_rows");
}

// No rows of whole numbers: the logits' own, or the ids that a router chooses for no token.
static berth_value add_no_numbers(berth_check_run *run, const berth_check_tensor *tensor,
                                  int64_t width) {
    if (width == 1) {
        return berth_graph_input(run->builder, "logits_rows");
    }
    const berth_value scores = add_no_rows(run, tensor, BERTH_DTYPE_F32, width);
    const berth_attribute topk = {
        .size = sizeof topk,
        .name = "topk",
        .kind = BERTH_ATTRIBUTE_I64,
        .i64 = width,
    };
    const berth_attribute renormalize = {
        .size = sizeof renormalize,
        .name = "renormalize",
        .kind = BERTH_ATTRIBUTE_BOOL,
    };
    const berth_attribute *const attributes[] = {&topk, &renormalize};
    berth_value chosen[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    const berth_call call = {
        .size = sizeof call,
        .name = "topk_softmax",
        .inputs = &scores,
        .input_count = 1,
        .attributes = attributes,
        .attribute_count = 2,
        .outputs = chosen,
        .output_count = 2,
    };
    (void)berth_graph_op(run->builder, &call);
    return chosen[1];
}

// The same as a constant, for who must know how many rows there are.
static berth_value add_no_constant_rows(berth_check_run *run, const berth_check_tensor *tensor) {
    berth_check_tensor one = *tensor;
    one.shape[0] = 1;
    const berth_value_type type = berth_check_type(&one, 0);
    return berth_graph_slice(run->builder, berth_graph_parameter(run->builder, one.name, &type), 0,
                             0, 0);
}

static berth_value add_empty(berth_check_run *run, const berth_check_tensor *tensor) {
    if (tensor->shape[0] == 0 && berth_check_number(run->at, "num_token_padding", 0) > 0) {
        return add_no_constant_rows(run, tensor);
    }
    berth_dim dims[BERTH_MAX_DIMS];
    int64_t width = 1;
    for (uint32_t i = 0; i < tensor->ndim; ++i) {
        const bool is_empty = tensor->shape[i] == 0;
        dims[i] = is_empty ? BERTH_DIM_SEQUENCES : BERTH_DIM_CONST(tensor->shape[i]);
        width *= is_empty ? 1 : tensor->shape[i];
    }
    const bool is_integer = tensor->dtype == BERTH_DTYPE_I32 || tensor->dtype == BERTH_DTYPE_I64;
    const berth_value rows = is_integer ? add_no_numbers(run, tensor, width)
                                        : add_no_rows(run, tensor, tensor->dtype, width);
    return berth_graph_reshape(run->builder, rows, dims, tensor->ndim);
}

static berth_value add_operand(berth_check_run *run, const berth_check_tensor *tensor) {
    if (berth_check_elements(tensor) == 0) {
        return add_empty(run, tensor);
    }
    const berth_value_type type = berth_check_type(tensor, 0);
    return berth_graph_parameter(run->builder, tensor->name, &type);
}

bool berth_check_is_array(const char *name) {
    return strcmp(name, "query_start_loc") == 0 || strcmp(name, "seq_lens") == 0 ||
           strcmp(name, "block_table") == 0;
}

// What an operand of the case is to the op.
static berth_status place_operands(berth_check_run *run) {
    const berth_op *op = run->op;
    for (size_t i = 0; i < run->at->input_count; ++i) {
        const char *name = run->at->inputs[i].name;
        bool is_known = berth_check_is_array(name);
        for (uint64_t k = 0; k < op->input_count; ++k) {
            is_known = is_known || strcmp(op->inputs[k]->name, name) == 0;
        }
        for (uint64_t k = 0; k < op->state_count; ++k) {
            is_known = is_known || strcmp(op->states[k]->name, name) == 0;
        }
        if (!is_known) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "op '%s' has no operand '%s'; the golden file's row must say what it "
                              "means",
                              op->name, name);
        }
    }
    return BERTH_OK;
}

// A state of a paged cache is declared as one block; the cache has as many as the case.
static berth_status declare_states(berth_check_run *run) {
    for (uint64_t i = 0; i < run->op->state_count; ++i) {
        const berth_check_tensor *state = berth_check_input(run->at, run->op->states[i]->name);
        if (!state) {
            continue;
        }
        if (run->table && state->ndim == 4) {
            run->cache = (berth_kv_cache_spec){
                .size = sizeof run->cache,
                .layer = BERTH_CHECK_LAYER,
                .num_heads = run->at->inputs[0].ndim == 3 ? run->at->inputs[0].shape[1] : 1,
                .num_kv_heads = state->shape[2],
                .head_size = state->shape[3],
                .block_size = state->shape[1],
                .dtype = state->dtype,
            };
            run->caches = &run->cache;
            run->cache_count = 1;
            run->block_count = state->shape[0];
        }
        const berth_value_type type = berth_check_type(state, run->cache_count > 0 ? 1 : 0);
        berth_graph_state(run->builder, BERTH_CHECK_LAYER, i, &type);
    }
    return BERTH_OK;
}

static berth_status build_op(berth_check_run *run) {
    berth_value inputs[BERTH_MAX_INPUTS] = {0};
    BERTH_TRY(make_attributes(run));
    BERTH_TRY(place_operands(run));
    BERTH_TRY(declare_states(run));
    for (uint64_t i = 0; i < run->op->input_count; ++i) {
        const berth_check_tensor *tensor = berth_check_input(run->at, run->op->inputs[i]->name);
        inputs[i] = tensor ? add_operand(run, tensor) : BERTH_VALUE_NONE;
    }
    const berth_call call = {
        .size = sizeof call,
        .name = run->op->name,
        .prefix = BERTH_CHECK_LAYER,
        .inputs = inputs,
        .input_count = run->op->input_count,
        .attributes = run->attribute_pointers,
        .attribute_count = run->at->attribute_count,
    };
    (void)berth_graph_op(run->builder, &call);
    return BERTH_OK;
}

// Every result of the last node becomes an output of the graph.
static void add_outputs(berth_check_run *run) {
    static const char *const names[BERTH_MAX_OUTPUTS] = {"o0", "o1", "o2", "o3",
                                                         "o4", "o5", "o6", "o7"};
    const berth_graph *graph = berth_graph_peek(run->builder);
    const berth_graph_node *node = &graph->nodes[graph->node_count - 1];
    for (size_t i = 0; i < node->output_count; ++i) {
        berth_graph_output_add(run->builder, names[i], node->outputs[i]);
    }
}

berth_status berth_check_build(berth_check_run *run) {
    const berth_registry *registry = run->at->check->session->registry;
    BERTH_TRY(berth_graph_begin(registry, run->op->name, &run->builder));
    const berth_status status = build_op(run);
    if (status != BERTH_OK) {
        berth_graph_fail(run->builder, status, berth_status_message());
    }
    if (!berth_graph_has_failed(run->builder)) {
        add_outputs(run);
    }
    return berth_graph_finish(run->builder, &run->graph);
}
