// SPDX-License-Identifier: Apache-2.0
// Input: bound nodes and layouts. Output: the steps of a run, each with its operands, and the
// storages that they need with their lifetimes. Steps come in the order of the graph; a copy stands
// right before the first step that needs it.
#include "executor/stages.h"

// ---- lifetimes in the graph ---------------------------------------------------------------------

// The node that uses each root last, through whatever view.
static berth_status find_last_uses(berth_plan *plan) {
    const berth_graph *graph = plan->graph;
    plan->last_uses = BERTH_ARENA_ARRAY(plan->arena, uint32_t, graph->value_count);
    if (plan->last_uses == NULL) {
        return berth_arena_exhausted(plan->arena, "lifetimes");
    }
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        for (size_t j = 0; j < node->input_count; ++j) {
            plan->last_uses[plan->layouts[node->inputs[j]].root] = (uint32_t)i;
        }
    }
    for (size_t i = 0; i < graph->output_count; ++i) {
        plan->last_uses[plan->layouts[graph->outputs[i].value].root] = BERTH_LAST_STEP;
    }
    return BERTH_OK;
}

// ---- one op -------------------------------------------------------------------------------------

// The step being made.
typedef struct placing {
    berth_plan *plan;
    berth_binding *binding;
    const berth_graph_node *node;
    berth_operand **inputs; // [input_count], NULL where absent
    berth_operand **outputs;
    berth_operand **states;
} placing;

static berth_status place_packed(placing *in, size_t index, uint64_t bytes) {
    const berth_storage storage = {
        .kind = BERTH_STORAGE_PACKED,
        .space = in->binding->space,
        .value = in->node->inputs[index],
        .bytes = bytes,
        .binding = in->binding,
        .input = index,
    };
    uint32_t added = 0;
    BERTH_TRY(berth_storage_add(in->plan, storage, &added));
    return berth_operand_add(in->plan, storage.value, added, &in->inputs[index]);
}

static berth_status place_input(placing *in, size_t index) {
    const berth_value value = in->node->inputs[index];
    if (value == BERTH_VALUE_NONE) {
        return BERTH_OK;
    }
    const uint64_t packed = berth_impl_packed_bytes(in->binding, index);
    if (packed > 0) {
        return place_packed(in, index, packed);
    }
    const uint64_t need = in->binding->op->op.inputs[index]->layout;
    if (berth_layout_meets(&in->plan->layouts[value], need)) {
        return berth_operand_get_view(in->plan, value, in->binding->space, &in->inputs[index]);
    }
    return berth_operand_get(in->plan, value, in->node->layer, in->binding->space,
                             &in->inputs[index]);
}

// Output 0 takes the memory of input 0: the implementation allows it, the input dies here, no other
// operand sees its memory, and both fill it exactly.
static bool can_be_in_place(const placing *in) {
    const berth_plan *plan = in->plan;
    const berth_graph *graph = plan->graph;
    if (in->binding->impl == NULL || (in->binding->impl->flags & BERTH_IMPL_IN_PLACE) == 0 ||
        in->node->input_count == 0 || in->inputs[0] == NULL) {
        return false;
    }
    const berth_value root = plan->layouts[in->node->inputs[0]].root;
    const uint32_t node = (uint32_t)(in->node - graph->nodes);
    if (graph->values[root].kind != BERTH_VALUE_RESULT || plan->last_uses[root] != node) {
        return false;
    }
    for (size_t i = 1; i < in->node->input_count; ++i) {
        const berth_value other = in->node->inputs[i];
        if (other != BERTH_VALUE_NONE && plan->layouts[other].root == root) {
            return false;
        }
    }
    const berth_value_type *input = &graph->values[in->node->inputs[0]].type;
    const berth_value_type *output = &graph->values[in->node->outputs[0]].type;
    const berth_value_type *whole = &graph->values[root].type;
    return input->dtype == output->dtype && !in->inputs[0]->is_dense &&
           berth_dims_match(input->dims, input->ndim, whole->dims, whole->ndim) &&
           berth_dims_match(input->dims, input->ndim, output->dims, output->ndim);
}

static berth_status place_outputs(placing *in) {
    berth_plan *plan = in->plan;
    for (size_t i = 0; i < in->node->output_count; ++i) {
        const berth_value value = in->node->outputs[i];
        BERTH_TRY(i == 0 && can_be_in_place(in)
                      ? berth_operand_add(plan, value, in->inputs[0]->storage, &in->outputs[i])
                      : berth_planned_add(plan, value, in->binding->space, &in->outputs[i]));
        plan->homes[(size_t)value * BERTH_SPACE_COUNT + in->binding->space] = in->outputs[i];
    }
    return BERTH_OK;
}

static void place_states(placing *in) {
    for (size_t i = 0; i < in->node->state_count; ++i) {
        if (in->node->states[i] != BERTH_VALUE_NONE) {
            const berth_value root = in->plan->layouts[in->node->states[i]].root;
            in->states[i] = in->plan->homes[(size_t)root * BERTH_SPACE_COUNT + in->binding->space];
        }
    }
}

// Touches the operands and makes the arrays of tensors of a call from them.
static berth_tensor **tensors_of(berth_plan *plan, berth_operand *const *operands, size_t count) {
    berth_tensor **tensors = BERTH_ARENA_ARRAY(plan->arena, berth_tensor *, count);
    for (size_t i = 0; tensors != NULL && i < count; ++i) {
        if (operands[i] != NULL) {
            berth_operand_touch(plan, operands[i]);
            tensors[i] = &operands[i]->tensor;
        }
    }
    return tensors;
}

static berth_status add_op_step(placing *in) {
    berth_plan *plan = in->plan;
    berth_op_args *args = BERTH_ARENA_NEW(plan->arena, berth_op_args);
    berth_tensor **inputs = tensors_of(plan, in->inputs, in->node->input_count);
    berth_tensor **outputs = tensors_of(plan, in->outputs, in->node->output_count);
    berth_tensor **states = tensors_of(plan, in->states, in->node->state_count);
    if (args == NULL || inputs == NULL || outputs == NULL || states == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's steps");
    }
    *args = (berth_op_args){
        .size = sizeof(*args),
        .inputs = (const berth_tensor *const *)inputs,
        .outputs = outputs,
        .states = states,
        .batch = &plan->batch,
    };
    return berth_step_add(plan, (berth_step){.args = args},
                          (berth_step_note){
                              .binding = in->binding,
                              .args = args,
                              .values = in->node->outputs,
                              .value_count = in->node->output_count,
                              .has_states = in->node->state_count > 0,
                          });
}

static berth_status place_op(berth_plan *plan, const berth_graph_node *node,
                             berth_binding *binding) {
    placing in = {
        .plan = plan,
        .binding = binding,
        .node = node,
        .inputs = BERTH_ARENA_ARRAY(plan->arena, berth_operand *, node->input_count),
        .outputs = BERTH_ARENA_ARRAY(plan->arena, berth_operand *, node->output_count),
        .states = BERTH_ARENA_ARRAY(plan->arena, berth_operand *, node->state_count),
    };
    if (in.inputs == NULL || in.outputs == NULL || in.states == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's steps");
    }
    for (size_t i = 0; i < node->input_count; ++i) {
        BERTH_TRY(place_input(&in, i));
    }
    BERTH_TRY(berth_step_settle(plan, binding));
    BERTH_TRY(place_outputs(&in));
    place_states(&in);
    return add_op_step(&in);
}

// ---- the whole graph ----------------------------------------------------------------------------

// Where the root of a value lies by now; the device's memory when in both.
static berth_space space_of(const berth_plan *plan, berth_value value) {
    const size_t root = plan->layouts[value].root;
    const bool is_on_host_only =
        plan->homes[root * BERTH_SPACE_COUNT + BERTH_SPACE_DEVICE] == NULL &&
        plan->homes[root * BERTH_SPACE_COUNT + BERTH_SPACE_HOST] != NULL;
    return is_on_host_only ? BERTH_SPACE_HOST : BERTH_SPACE_DEVICE;
}

// A reshape that strides cannot express takes the storage of its source's copy without gaps.
static berth_status place_reshape(berth_plan *plan, const berth_graph_node *node) {
    const berth_value value = node->outputs[0];
    if (plan->layouts[value].kind != BERTH_LAYOUT_COPY) {
        return BERTH_OK;
    }
    const berth_space space = space_of(plan, node->inputs[0]);
    berth_operand *dense = NULL;
    BERTH_TRY(berth_operand_get(plan, node->inputs[0], node->layer, space, &dense));
    return berth_operand_add(plan, value, dense->storage,
                             &plan->homes[(size_t)value * BERTH_SPACE_COUNT + space]);
}

static berth_status place_results(berth_plan *plan) {
    const berth_graph *graph = plan->graph;
    plan->results = BERTH_ARENA_ARRAY(plan->arena, berth_plan_result, graph->output_count);
    if (plan->results == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's outputs");
    }
    for (size_t i = 0; i < graph->output_count; ++i) {
        const berth_value value = graph->outputs[i].value;
        const bool is_dense = berth_layout_meets(&plan->layouts[value], BERTH_LAYOUT_CONTIGUOUS);
        // A view with gaps is copied on the host, where the result is wanted anyway.
        const berth_space space =
            is_dense || plan->is_host ? space_of(plan, value) : BERTH_SPACE_HOST;
        plan->results[i].name = graph->outputs[i].name;
        BERTH_TRY(berth_operand_get(plan, value, "", space, &plan->results[i].operand));
    }
    return berth_step_settle(plan, NULL);
}

// Results outlive the last step: their storages take no later one's place and leave theirs to none.
static void keep_results(berth_plan *plan) {
    for (size_t i = 0; i < plan->graph->output_count; ++i) {
        plan->storages.data[plan->results[i].operand->storage].last = BERTH_LAST_STEP;
    }
}

berth_status berth_place(berth_plan *plan) {
    const berth_graph *graph = plan->graph;
    const size_t places = graph->value_count * BERTH_SPACE_COUNT;
    plan->homes = BERTH_ARENA_ARRAY(plan->arena, berth_operand *, places);
    plan->denses = BERTH_ARENA_ARRAY(plan->arena, berth_operand *, places);
    if (plan->homes == NULL || plan->denses == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's operands");
    }
    BERTH_TRY(find_last_uses(plan));
    BERTH_TRY(berth_states_place(plan));
    size_t bound = 0;
    for (size_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        if (node->kind == BERTH_NODE_OP) {
            BERTH_TRY(place_op(plan, node, plan->bindings.data[bound++]));
        } else if (node->kind == BERTH_NODE_RESHAPE) {
            BERTH_TRY(place_reshape(plan, node));
        }
    }
    BERTH_TRY(place_results(plan));
    keep_results(plan);
    return BERTH_OK;
}
