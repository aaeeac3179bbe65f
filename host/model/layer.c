// SPDX-License-Identifier: Apache-2.0
// Input: a layer class, its inputs and weights. Output: a graph of that layer alone, by the same
// builder that builds it inside a model.
#include <stdio.h>

#include "model/building.h"

static void emit(berth_building *building, const berth_layer_request *request) {
    berth_value inputs[BERTH_MAX_INPUTS] = {0};
    berth_value outputs[BERTH_MAX_OUTPUTS] = {0};
    berth_call call = *request->call;
    request->feed(request->context, building->graph, inputs);
    call.inputs = inputs;
    call.input_count = BERTH_MAX_INPUTS;
    call.outputs = outputs;
    (void)building->face.layer(&building->face, &call);
    for (uint64_t i = 0; i < call.output_count; ++i) {
        char name[16];
        (void)snprintf(name, sizeof name, "o%u", (unsigned)i);
        building->face.output(&building->face, name, outputs[i]);
    }
}

static berth_status build_graph(berth_building *building, const berth_layer_request *request,
                                const berth_checkpoint *checkpoint, berth_model_build *build) {
    building->quant_config = berth_checkpoint_config(checkpoint);
    BERTH_TRY(berth_quantization_choose(building, checkpoint, NULL));
    BERTH_TRY(berth_graph_begin(request->registry, request->call->name, &building->graph));
    berth_building_open(building, berth_checkpoint_config(checkpoint));
    emit(building, request);
    BERTH_TRY(berth_graph_finish(building->graph, &build->graph));
    BERTH_TRY(berth_parameters_check(building->parameters));
    return berth_building_collect(building, build);
}

static berth_status create(const berth_layer_request *request, berth_checkpoint *checkpoint,
                           berth_model_build *build) {
    const berth_model names = {
        .size = sizeof names,
        .architecture = request->call->name,
        .weight_rules = request->weight_rules,
        .weight_rule_count = request->weight_rule_count,
    };
    berth_building building = {
        .registry = request->registry,
        .config = request->config,
        .activation = request->activation,
        .arena = build->arena,
        .state_slots = request->state_slots,
    };
    BERTH_TRY(berth_parameters_create(checkpoint, &names, request->activation, build->arena,
                                      &building.parameters));
    berth_map_init(&building.cache_layers);
    const berth_status status = build_graph(&building, request, checkpoint, build);
    berth_parameters_destroy(building.parameters);
    berth_map_deinit(&building.cache_layers);
    berth_array_free(&building.kv_caches);
    berth_array_free(&building.kv_codes);
    berth_array_free(&building.schemes);
    return status;
}

berth_status berth_layer_create(const berth_layer_request *request, berth_model_build **out_build) {
    berth_model_build *build = NULL;
    berth_checkpoint *checkpoint = NULL;
    BERTH_TRY(berth_model_build_new(&build));
    build->architecture = request->call->name;
    berth_status status = berth_checkpoint_of(request->tensors, request->tensor_count, &checkpoint);
    if (status == BERTH_OK) {
        status = create(request, checkpoint, build);
    }
    berth_checkpoint_close(checkpoint);
    if (status != BERTH_OK) {
        berth_model_destroy(build);
        return status;
    }
    *out_build = build;
    return BERTH_OK;
}
