// SPDX-License-Identifier: Apache-2.0
// From a node to the types of its outputs and to what its op says of rows: the one place that calls
// berth_op.infer. What that writes is checked here, since a wrong shape would later be a wrong
// address.
#include "graph/rules.h"

berth_status berth_graph_site(const berth_graph *graph, const berth_graph_node *node,
                              const berth_host *host, berth_arena *arena, berth_op_site *out_site) {
    const berth_value_type **inputs =
        BERTH_ARENA_ARRAY(arena, const berth_value_type *, node->input_count);
    const berth_value_type **outputs =
        BERTH_ARENA_ARRAY(arena, const berth_value_type *, node->output_count);
    const berth_value_type **states =
        BERTH_ARENA_ARRAY(arena, const berth_value_type *, node->state_count);
    if (inputs == NULL || outputs == NULL || states == NULL) {
        return berth_arena_exhausted(arena, "op sites");
    }
    uint64_t parameter_mask = 0;
    for (size_t i = 0; i < node->input_count; ++i) {
        const berth_graph_value *value = &graph->values[node->inputs[i]];
        inputs[i] = node->inputs[i] == BERTH_VALUE_NONE ? NULL : &value->type;
        if (inputs[i] != NULL && value->kind == BERTH_VALUE_PARAMETER) {
            parameter_mask |= UINT64_C(1) << i;
        }
    }
    for (size_t i = 0; i < node->output_count; ++i) {
        outputs[i] = &graph->values[node->outputs[i]].type;
    }
    for (size_t i = 0; i < node->state_count; ++i) {
        const berth_value state = node->states[i];
        states[i] = state == BERTH_VALUE_NONE ? NULL : &graph->values[state].type;
    }
    *out_site = (berth_op_site){
        .size = sizeof(*out_site),
        .host = host,
        .op = &node->op->op,
        .layer = node->layer,
        .attributes = node->attributes,
        .attribute_count = node->attribute_count,
        .inputs = inputs,
        .input_count = node->input_count,
        .outputs = node->output_count > 0 ? outputs : NULL,
        .output_count = node->output_count,
        .parameter_mask = parameter_mask,
        .states = states,
        .state_count = node->state_count,
    };
    return BERTH_OK;
}

bool berth_graph_is_rowwise(const berth_op_site *site) {
    return site->op->is_rowwise != NULL && site->op->is_rowwise(site) != 0;
}

static berth_status check_result(const berth_graph_node *node, const berth_op_result *result,
                                 berth_inferred *out) {
    const char *name = node->op->op.name;
    if (result->count > BERTH_MAX_OUTPUTS) {
        return BERTH_FAIL(INTERNAL, "op '%s': its infer gave %llu outputs, there may be at most %d",
                          name, (unsigned long long)result->count, BERTH_MAX_OUTPUTS);
    }
    if (result->count == 0 && node->state_count == 0) {
        return BERTH_FAIL(INTERNAL, "op '%s': its infer gave no output", name);
    }
    for (uint64_t i = 0; i < result->count; ++i) {
        const berth_status status = berth_type_normalise(result->types[i], &out->types[i]);
        if (status != BERTH_OK) {
            return BERTH_FAIL(INTERNAL, "op '%s': its infer gave output %llu a wrong type: %s",
                              name, (unsigned long long)i, berth_status_message());
        }
    }
    out->count = result->count;
    return BERTH_OK;
}

berth_status berth_node_infer(const berth_graph *graph, const berth_graph_node *node,
                              const berth_host *host, berth_arena *arena, berth_inferred *out) {
    berth_op_site site;
    BERTH_TRY(berth_graph_site(graph, node, host, arena, &site));
    berth_value_type written[BERTH_MAX_OUTPUTS] = {0};
    berth_value_type *types[BERTH_MAX_OUTPUTS];
    for (size_t i = 0; i < BERTH_MAX_OUTPUTS; ++i) {
        written[i].size = sizeof(written[i]);
        types[i] = &written[i];
    }
    berth_op_result result = {.size = sizeof(result), .types = types};
    berth_plugin_enter(node->op->owner, "infer");
    BERTH_TRY(berth_plugin_leave(node->op->op.infer(&site, &result)));
    return check_result(node, &result, out);
}
