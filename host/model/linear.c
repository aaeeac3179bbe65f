// SPDX-License-Identifier: Apache-2.0
// Input: a model that was built, a module of its checkpoint. Output: a graph of the linear layer,
// or of the experts, that has the module, alone, by the quantization method that has it in the
// model.
#include <stdlib.h>
#include <string.h>

#include "model/building.h"

// ---- which layer --------------------------------------------------------------------------------

// Where the module's outputs begin in those of a layer, and how many there are.
typedef struct span {
    int64_t first;
    int64_t count;
} span;

static bool has_module(const berth_processing *layer, const char *module, span *out) {
    const berth_linear *linear = &layer->linear;
    const bool has_shards = layer->layer.name_count == linear->shard_count;
    for (uint64_t i = 0; i < layer->layer.name_count; ++i) {
        if (strcmp(layer->layer.names[i], module) == 0) {
            *out = has_shards ? (span){linear->shards[i]->offset, linear->shards[i]->extent}
                              : (span){0, linear->output_size};
            return true;
        }
    }
    return false;
}

// A module that is no linear layer of the model, such as those of an expert, is one by itself.
static berth_linear plain(const berth_linear_request *request) {
    return (berth_linear){
        .size = sizeof(berth_linear),
        .prefix = request->module,
        .input_size = request->inputs,
        .output_size = request->outputs,
        .layer_class = "ReplicatedLinear",
    };
}

static const berth_linear *find(const berth_linear_request *request, span *out) {
    const berth_model_build *of = request->of;
    for (size_t i = 0; i < of->scheme_count; ++i) {
        const berth_processing *layer = of->schemes[i].of;
        if (layer->linear.stack_size == 0 && has_module(layer, request->module, out)) {
            return &layer->linear;
        }
    }
    return NULL;
}

// The experts of which the module "PREFIX.3" is one.
static const berth_experts *find_experts(const berth_linear_request *request, int64_t *out_expert) {
    const berth_model_build *of = request->of;
    for (size_t i = 0; i < of->scheme_count; ++i) {
        const berth_experts *experts = of->schemes[i].of->experts;
        const size_t length = experts == NULL ? 0 : strlen(experts->prefix);
        if (length > 0 && strncmp(request->module, experts->prefix, length) == 0 &&
            request->module[length] == '.') {
            *out_expert = strtoll(request->module + length + 1, NULL, 10);
            return experts;
        }
    }
    return NULL;
}

// ---- graphs -------------------------------------------------------------------------------------

// Either of the two.
typedef struct part {
    const berth_linear *linear;
    const berth_experts *experts;
} part;

// A parameter [rows, width], row by token as in a model: how many there are is not constant.
static berth_value add_rows(berth_graph_builder *graph, const char *name, berth_dtype dtype,
                            int64_t rows, int64_t width) {
    const berth_value_type type = {
        .size = sizeof type,
        .dtype = dtype,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(rows), BERTH_DIM_CONST(width)},
    };
    return berth_graph_rows(graph, berth_graph_parameter(graph, name, &type), "positions");
}

static berth_value emit_experts(berth_building *building, const part *of,
                                const berth_linear_request *request, berth_value x) {
    const berth_dim column[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(1)};
    berth_experts experts = *of->experts;
    experts.x = x;
    experts.topk_weights =
        add_rows(building->graph, "topk_weights", BERTH_DTYPE_F32, request->rows, 1);
    experts.topk_ids =
        berth_graph_reshape(building->graph, berth_graph_input(building->graph, "token_ids"),
                            column, BERTH_COUNT(column));
    return building->face.experts(&building->face, &experts);
}

// The node that quantizes the input: the first whose result is of codes.
static void add_codes(berth_graph_builder *builder) {
    const berth_graph *graph = berth_graph_peek(builder);
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        const berth_dtype dtype =
            node->output_count > 1 ? graph->values[node->outputs[0]].type.dtype : BERTH_DTYPE_NONE;
        if (dtype == BERTH_DTYPE_I8 || dtype == BERTH_DTYPE_F8_E4M3FN) {
            berth_graph_output_add(builder, "codes", node->outputs[0]);
            return;
        }
    }
}

static berth_status build_graph(berth_building *building, const part *of,
                                const berth_linear_request *request, berth_model_build *build) {
    BERTH_TRY(berth_graph_begin(building->registry, request->module, &building->graph));
    berth_building_open(building, berth_checkpoint_config(request->model.checkpoint));
    const berth_value x =
        add_rows(building->graph, "x", request->model.activation, request->rows, request->inputs);
    const berth_value y = of->experts != NULL
                              ? emit_experts(building, of, request, x)
                              : building->face.linear(&building->face, of->linear, x);
    building->face.output(&building->face, "y", y);
    if (of->experts == NULL && !berth_graph_has_failed(building->graph)) {
        add_codes(building->graph);
    }
    BERTH_TRY(berth_graph_finish(building->graph, &build->graph));
    berth_parameters_ignore(building->parameters, ""); // the rest of the model
    BERTH_TRY(berth_parameters_check(building->parameters));
    return berth_building_collect(building, build);
}

static berth_status create_in(const berth_linear_request *request, const part *of,
                              const berth_model *names, berth_model_build *build) {
    const berth_model_request *model = &request->model;
    berth_building building = berth_building_of(model, &request->of->chosen, build->arena);
    BERTH_TRY(berth_parameters_create(model->checkpoint, names, model->activation, build->arena,
                                      &building.parameters));
    const berth_status status = build_graph(&building, of, request, build);
    berth_parameters_destroy(building.parameters);
    berth_array_free(&building.schemes);
    return status;
}

static berth_status create(const berth_linear_request *request, const part *of,
                           const berth_model *names, berth_model_build **out_build) {
    berth_model_build *build = NULL;
    BERTH_TRY(berth_model_build_new(&build));
    const berth_status status = create_in(request, of, names, build);
    if (status != BERTH_OK) {
        berth_model_destroy(build);
        return status;
    }
    *out_build = build;
    return BERTH_OK;
}

// ---- entry points -------------------------------------------------------------------------------

static berth_status check_sizes(const berth_linear_request *request, int64_t inputs,
                                int64_t outputs) {
    return inputs == request->inputs && outputs == request->outputs
               ? BERTH_OK
               : BERTH_FAIL(INVALID_ARGUMENT,
                            "'%s' has %lld inputs and %lld outputs in the model, not %lld and %lld",
                            request->module, (long long)inputs, (long long)outputs,
                            (long long)request->inputs, (long long)request->outputs);
}

berth_status berth_linear_create(const berth_linear_request *request, int64_t *out_first,
                                 berth_model_build **out_build) {
    static const berth_model no_rules = {.size = sizeof no_rules, .architecture = "a linear layer"};
    span at = {.count = request->outputs};
    const berth_linear own = plain(request);
    const berth_linear *found = find(request, &at);
    const part of = {.linear = found == NULL ? &own : found};
    BERTH_TRY(check_sizes(request, of.linear->input_size, at.count));
    *out_first = at.first;
    return create(request, &of, found == NULL ? &no_rules : request->of->names, out_build);
}

berth_status berth_experts_create(const berth_linear_request *request, int64_t *out_expert,
                                  berth_model_build **out_build) {
    int64_t expert = 0;
    const part of = {.experts = find_experts(request, &expert)};
    if (of.experts == NULL || expert < 0 || expert >= of.experts->w13->stack_size) {
        return BERTH_FAIL(INVALID_ARGUMENT, "'%s' is no expert of the model", request->module);
    }
    BERTH_TRY(check_sizes(request, of.experts->w13->input_size, of.experts->w2->output_size));
    *out_expert = expert;
    return create(request, &of, request->of->names, out_build);
}
