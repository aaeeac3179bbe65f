// SPDX-License-Identifier: Apache-2.0
// model: one layer alone becomes a graph, with weights that a caller has in memory.
#include <string.h>

#include "model/model.h"
#include "support/core_registry.h"
#include "support/test.h"

static const float weight[6] = {1, 2, 3, 4, 5, 6};
static const float bias[3] = {7, 8, 9};

static const berth_stored_tensor weight_tensor = {
    .name = "layer.weight",
    .dtype = BERTH_DTYPE_F32,
    .ndim = 2,
    .shape = (const int64_t[]){3, 2},
    .data = weight,
    .bytes = sizeof weight,
};
static const berth_stored_tensor bias_tensor = {
    .name = "layer.bias",
    .dtype = BERTH_DTYPE_F32,
    .ndim = 1,
    .shape = (const int64_t[]){3},
    .data = bias,
    .bytes = sizeof bias,
};

static void feed(void *context, berth_graph_builder *graph, berth_value *inputs) {
    const berth_value_type type = {
        .size = sizeof type,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(5), BERTH_DIM_CONST(2)},
    };
    (void)context;
    inputs[0] = berth_graph_parameter(graph, "x", &type);
}

static berth_status build(const core_registry *core, const char *name, size_t tensor_count,
                          berth_model_build **out_build) {
    static const berth_stored_tensor *const tensors[] = {&weight_tensor, &bias_tensor};
    const berth_call call = {
        .size = sizeof call,
        .name = name,
        .prefix = "layer",
        .output_count = 1,
        BERTH_ATTRIBUTES(BERTH_I64("input_size", 2), BERTH_I64("output_size", 3),
                         BERTH_BOOL("bias", 1)),
    };
    const berth_layer_request request = {
        .registry = core->registry,
        .config = &core->config,
        .activation = BERTH_DTYPE_F32,
        .call = &call,
        .tensors = tensors,
        .tensor_count = tensor_count,
        .feed = feed,
    };
    return berth_layer_create(&request, out_build);
}

TEST(layer_alone_becomes_a_graph_with_its_weights) {
    core_registry core;
    berth_model_build *built = NULL;
    float resident[6] = {0};
    core_registry_init(&core, NULL);
    CHECK_OK(build(&core, "ReplicatedLinear", 2, &built));
    CHECK_UINT(built->graph->node_count, 1);
    CHECK_STR(built->graph->nodes[0].op->op.name, "linear");
    CHECK_UINT(built->graph->output_count, 1);
    CHECK_STR(built->graph->outputs[0].name, "o0");
    CHECK_UINT(built->weight_count, 2);
    CHECK_STR(built->weights[0].name, "layer.weight");
    CHECK_OK(berth_weight_load(&built->weights[0], resident));
    CHECK_BYTES(resident, weight, sizeof weight);
    berth_model_destroy(built);
    core_registry_deinit(&core);
}

TEST(layer_alone_names_missing_weights_and_unknown_classes) {
    core_registry core;
    berth_model_build *built = NULL;
    core_registry_init(&core, NULL);
    CHECK_STATUS(build(&core, "ReplicatedLinear", 1, &built), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "layer.bias");
    CHECK_STATUS(build(&core, "NoSuchLayer", 2, &built), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "no plugin registers a layer class 'NoSuchLayer'");
    CHECK(built == NULL);
    core_registry_deinit(&core);
}

static void feed_bf16(void *context, berth_graph_builder *graph, berth_value *inputs) {
    const berth_value_type type = {
        .size = sizeof type,
        .dtype = BERTH_DTYPE_BF16,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(5), BERTH_DIM_CONST(2)},
    };
    (void)context;
    inputs[0] = berth_graph_parameter(graph, "x", &type);
}

// vLLM's plain tier; its device tiers hand over the float32 sum.
TEST(a_router_rounds_its_logits_before_it_widens_them) {
    static const berth_stored_tensor *const tensors[] = {&weight_tensor};
    const berth_call call = {
        .size = sizeof call,
        .name = "GateLinear",
        .prefix = "layer",
        .output_count = 1,
        BERTH_ATTRIBUTES(BERTH_I64("input_size", 2), BERTH_I64("output_size", 3),
                         BERTH_TEXT("out_dtype", "f32")),
    };
    core_registry core;
    berth_model_build *built = NULL;
    core_registry_init(&core, NULL);
    const berth_layer_request request = {
        .registry = core.registry,
        .config = &core.config,
        .activation = BERTH_DTYPE_BF16,
        .call = &call,
        .tensors = tensors,
        .tensor_count = 1,
        .feed = feed_bf16,
    };
    CHECK_OK(berth_layer_create(&request, &built));
    const berth_graph *graph = built->graph;
    CHECK_UINT(graph->node_count, 2);
    CHECK_STR(graph->nodes[0].op->op.name, "linear");
    CHECK(graph->values[graph->nodes[0].outputs[0]].type.dtype == BERTH_DTYPE_BF16);
    CHECK_STR(graph->nodes[1].op->op.name, "cast");
    CHECK(graph->values[graph->nodes[1].outputs[0]].type.dtype == BERTH_DTYPE_F32);
    berth_model_destroy(built);
    core_registry_deinit(&core);
}
