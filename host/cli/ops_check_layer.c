// SPDX-License-Identifier: Apache-2.0
// Input: a case of a layer. Output: a graph of that layer alone, and its weights in the plan.
//
// Operands of two dimensions are rows of tokens, as they are in a model: their first dimension is
// s0, for which the rows of a parameter are selected. Ids and positions are arrays of the batch,
// everything else is a parameter as it is.
#include <stdio.h>
#include <string.h>

#include "cli/ops_check_run.h"

// ---- operands -----------------------------------------------------------------------------------

static bool is_operand(const berth_check_row *row, const char *name) {
    for (size_t i = 0; i < BERTH_MAX_INPUTS && row->operands[i]; ++i) {
        if (strcmp(row->operands[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_state(const berth_check_row *row, const char *name) {
    for (size_t i = 0; i < BERTH_MAX_OUTPUTS && row->states[i]; ++i) {
        if (strcmp(row->states[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_token_array(const char *name) {
    return strcmp(name, "token_ids") == 0 || strcmp(name, "positions") == 0;
}

// Why logits_rows for none: a step has at least one token.
static berth_value add_rows(berth_graph_builder *graph, const berth_check_tensor *tensor) {
    berth_check_tensor rows = *tensor;
    rows.shape[0] = tensor->shape[0] > 0 ? tensor->shape[0] : 1;
    const berth_value_type type = berth_check_type(&rows, 0);
    return berth_graph_rows(graph, berth_graph_parameter(graph, tensor->name, &type),
                            tensor->shape[0] > 0 ? "token_ids" : "logits_rows");
}

static berth_value add_operand(berth_graph_builder *graph, const berth_check_tensor *tensor) {
    if (is_token_array(tensor->name)) {
        const bool is_empty = berth_check_elements(tensor) == 0;
        return berth_graph_input(graph, is_empty ? "logits_rows" : tensor->name);
    }
    const bool is_float = tensor->dtype == BERTH_DTYPE_F32 || tensor->dtype == BERTH_DTYPE_F16 ||
                          tensor->dtype == BERTH_DTYPE_BF16;
    if (is_float && tensor->ndim == 2) {
        return add_rows(graph, tensor);
    }
    const berth_value_type type = berth_check_type(tensor, 0);
    return berth_graph_parameter(graph, tensor->name, &type);
}

static void feed(void *context, berth_graph_builder *graph, berth_value *inputs) {
    berth_check_run *run = context;
    const berth_check_row *row = run->at->row;
    for (size_t i = 0; i < BERTH_MAX_INPUTS && row->operands[i]; ++i) {
        const berth_check_tensor *tensor = berth_check_input(run->at, row->operands[i]);
        inputs[i] = tensor ? add_operand(graph, tensor) : BERTH_VALUE_NONE;
    }
}

// ---- attributes, weights ------------------------------------------------------------------------

static bool is_listed(const berth_check_row *row, const char *name) {
    for (size_t i = 0; i < BERTH_CHECK_NAMES && row->attributes[i].ours; ++i) {
        if (strcmp(row->attributes[i].ours, name) == 0) {
            return true;
        }
    }
    return false;
}

static uint64_t kind_of(const berth_json *json) {
    static const uint64_t kinds[] = {
        [BERTH_JSON_BOOL] = BERTH_ATTRIBUTE_BOOL,  [BERTH_JSON_INTEGER] = BERTH_ATTRIBUTE_I64,
        [BERTH_JSON_REAL] = BERTH_ATTRIBUTE_F64,   [BERTH_JSON_STRING] = BERTH_ATTRIBUTE_STR,
        [BERTH_JSON_ARRAY] = BERTH_ATTRIBUTE_I64S,
    };
    const size_t kind = (size_t)berth_json_kind_of(json);
    return kind < BERTH_COUNT(kinds) ? kinds[kind] : BERTH_ATTRIBUTE_NONE;
}

static berth_status make_attributes(berth_check_run *run) {
    berth_check_case *at = run->at;
    for (size_t i = 0; i < at->attribute_count; ++i) {
        const berth_check_attribute *given = &at->attributes[i];
        berth_attribute *made = &run->attributes[i];
        *made = given->made;
        if (given->json) {
            if (!is_listed(at->row, given->name)) {
                return BERTH_FAIL(INVALID_ARGUMENT,
                                  "layer '%s': the golden file's row does not say what attribute "
                                  "'%s' means",
                                  at->layer, given->name);
            }
            BERTH_TRY(berth_check_convert(at, given->json, kind_of(given->json), made));
            made->f64 = made->kind == BERTH_ATTRIBUTE_I64 ? (double)made->i64 : made->f64;
        }
        made->size = sizeof *made;
        made->name = given->name;
        run->attribute_pointers[i] = made;
    }
    return BERTH_OK;
}

// Inputs that are nothing else, under the layer's names.
static berth_status list_weights(berth_check_run *run, const berth_stored_tensor **out,
                                 size_t *out_count) {
    for (size_t i = 0; i < run->at->input_count; ++i) {
        berth_check_tensor *tensor = &run->at->inputs[i];
        if (is_operand(run->at->row, tensor->name) || is_state(run->at->row, tensor->name) ||
            berth_check_is_array(tensor->name) || is_token_array(tensor->name)) {
            continue;
        }
        berth_stored_tensor *stored = BERTH_ARENA_NEW(run->at->arena, berth_stored_tensor);
        const char *name =
            berth_arena_printf(run->at->arena, BERTH_CHECK_LAYER ".%s", tensor->name);
        if (!stored || !name) {
            return berth_arena_exhausted(run->at->arena, "weights");
        }
        *stored = (berth_stored_tensor){
            .name = name,
            .dtype = tensor->dtype,
            .ndim = tensor->ndim,
            .shape = tensor->shape,
            .data = tensor->data,
            .bytes = tensor->bytes,
        };
        out[(*out_count)++] = stored;
    }
    return BERTH_OK;
}

// The type of activations is that of the first float operand, else of the first float input.
static berth_dtype activation_of(berth_check_run *run) {
    for (int pass = 0; pass < 2; ++pass) {
        for (size_t i = 0; i < run->at->input_count; ++i) {
            const berth_check_tensor *tensor = &run->at->inputs[i];
            const bool is_float = tensor->dtype == BERTH_DTYPE_F32 ||
                                  tensor->dtype == BERTH_DTYPE_F16 ||
                                  tensor->dtype == BERTH_DTYPE_BF16;
            if (is_float && (pass > 0 || is_operand(run->at->row, tensor->name))) {
                return tensor->dtype;
            }
        }
    }
    return BERTH_DTYPE_F32;
}

static uint64_t output_count_of(const berth_check_row *row) {
    uint64_t count = 0;
    while (count < BERTH_MAX_OUTPUTS && row->outputs[count]) {
        ++count;
    }
    return count > 0 ? count : 1;
}

// Slots of the states, or blocks of the cache, as many as the case's have.
static int64_t slots_of(berth_check_run *run) {
    const char *name = run->at->row->states[0];
    const berth_check_tensor *state = name ? berth_check_input(run->at, name) : NULL;
    return state && state->ndim > 0 ? state->shape[0] : 0;
}

berth_status berth_check_layer_build(berth_check_run *run) {
    const berth_check_case *at = run->at;
    const berth_stored_tensor *weights[BERTH_CHECK_TENSORS];
    size_t weight_count = 0;
    berth_config config = at->check->session->config; // whose blocks are as large as the case's
    config.block_size = (int64_t)berth_check_number(at, "block_size", (double)config.block_size);
    BERTH_TRY(make_attributes(run));
    BERTH_TRY(list_weights(run, weights, &weight_count));
    const berth_call call = {
        .size = sizeof call,
        .name = at->layer,
        .prefix = BERTH_CHECK_LAYER,
        .attributes = run->attribute_pointers,
        .attribute_count = at->attribute_count,
        .output_count = output_count_of(at->row),
    };
    const berth_layer_request request = {
        .registry = at->check->session->registry,
        .config = &config,
        .activation = activation_of(run),
        .call = &call,
        .tensors = weights,
        .tensor_count = weight_count,
        .weight_rules = at->row->weight_rules,
        .weight_rule_count = at->row->weight_rule_count,
        .state_slots = slots_of(run),
        .feed = feed,
        .context = run,
    };
    BERTH_TRY(berth_layer_create(&request, &run->model));
    run->graph = run->model->graph;
    run->caches = run->model->kv_caches;
    run->cache_count = run->model->kv_cache_count;
    run->block_count = run->cache_count < 1 ? 0
                       : run->table         ? slots_of(run)
                                            : berth_check_rows_of(run) + 1;
    run->has_rows = true;
    return BERTH_OK;
}

bool berth_check_is_weight(const berth_check_run *run, berth_value value) {
    for (size_t i = 0; run->model && i < run->model->weight_count; ++i) {
        if (run->model->weights[i].value == value) {
            return true;
        }
    }
    return false;
}

// The weight as it is resident, under its name in the case.
static berth_status load(berth_check_run *run, const berth_weight *weight,
                         berth_check_tensor *out) {
    *out = (berth_check_tensor){
        .name = weight->name + strlen(BERTH_CHECK_LAYER) + 1,
        .dtype = weight->type.dtype,
        .ndim = weight->type.ndim,
        .bytes = weight->bytes,
        .data = berth_arena_alloc(run->at->arena, (size_t)weight->bytes + 1, 64),
    };
    if (!out->data) {
        return berth_arena_exhausted(run->at->arena, "weights");
    }
    for (uint32_t k = 0; k < out->ndim; ++k) {
        out->shape[k] = weight->type.dims[k].b;
    }
    BERTH_TRY(berth_weight_load(weight, out->data));
    if (run->at->row->loaded) {
        run->at->row->loaded(run->at, out->name, out);
    }
    return BERTH_OK;
}

berth_status berth_check_layer_feed(berth_check_run *run) {
    for (size_t i = 0; i < run->model->weight_count; ++i) {
        const berth_weight *weight = &run->model->weights[i];
        berth_check_tensor tensor;
        BERTH_TRY(load(run, weight, &tensor));
        BERTH_TRY(berth_plan_set_parameter(run->plan, weight->value, tensor.data, tensor.bytes));
    }
    return BERTH_OK;
}

berth_status berth_check_layer_weights(berth_check_run *run, berth_check_results *out) {
    for (size_t i = 0; i < run->model->weight_count; ++i) {
        if (out->named_count == BERTH_CHECK_TENSORS) {
            return berth_arena_exhausted(run->at->arena, "weights");
        }
        berth_check_tensor *tensor = &out->named[out->named_count];
        BERTH_TRY(load(run, &run->model->weights[i], tensor));
        tensor->name = berth_arena_strdup(run->at->arena, tensor->name);
        if (!tensor->name) {
            return berth_arena_exhausted(run->at->arena, "weights");
        }
        ++out->named_count;
    }
    return BERTH_OK;
}
