// SPDX-License-Identifier: Apache-2.0
// The greedy choice: where the platform has the op 'argmax' for the logits, a step behind all
// others picks the likeliest id of each row, so that not a vocabulary of logits but one number a
// row comes to the host. Where it has not, nothing is added, and nothing is a fallback: the sampler
// does it.
#include "executor/stages.h"

#include <string.h>

#define CHOICE_OP     "argmax"
#define CHOICE_OUTPUT "logits"

static const berth_plan_result *find_logits(const berth_plan *plan) {
    for (size_t i = 0; i < plan->graph->output_count; ++i) {
        if (strcmp(plan->results[i].name, CHOICE_OUTPUT) == 0) {
            return &plan->results[i];
        }
    }
    return NULL;
}

// The site's types: logits in, ids out.
static berth_status make_types(berth_plan *plan, berth_value logits,
                               const berth_value_type ***out_types) {
    const berth_value_type **types = BERTH_ARENA_ARRAY(plan->arena, const berth_value_type *, 2);
    berth_value_type *ids = BERTH_ARENA_NEW(plan->arena, berth_value_type);
    if (types == NULL || ids == NULL) {
        return berth_arena_exhausted(plan->arena, "op sites");
    }
    types[0] = &plan->graph->values[logits].type;
    *ids = *types[0];
    ids->dtype = BERTH_DTYPE_I32;
    ids->ndim = types[0]->ndim - 1;
    types[1] = ids;
    *out_types = types;
    return BERTH_OK;
}

// The binding, or NULL when it would not be the device's.
static berth_status bind_choice(berth_plan *plan, const berth_op_entry *op, berth_value logits,
                                berth_binding **out_binding) {
    const berth_value_type **types = NULL;
    const berth_dispatch_counters before = plan->counters;
    BERTH_TRY(make_types(plan, logits, &types));
    const berth_op_site site = {
        .size = sizeof(site),
        .host = berth_registry_host(plan->request.registry),
        .op = &op->op,
        .layer = CHOICE_OUTPUT,
        .inputs = types,
        .input_count = 1,
        .outputs = types + 1,
        .output_count = 1,
    };
    BERTH_TRY(berth_dispatch(plan, op, &site, false, out_binding));
    if ((*out_binding)->impl == NULL || (*out_binding)->space != BERTH_SPACE_DEVICE) {
        --plan->bindings.count;
        plan->counters = before;
        *out_binding = NULL;
    }
    return BERTH_OK;
}

static berth_status add_ids(berth_plan *plan, berth_operand **out_ids) {
    const uint32_t step = (uint32_t)plan->steps.count;
    const berth_storage storage = {
        .kind = BERTH_STORAGE_PLANNED,
        .space = BERTH_SPACE_DEVICE,
        .bytes = (uint64_t)plan->request.max_sequences * sizeof(int32_t),
        .first = step,
        .last = BERTH_LAST_STEP,
    };
    uint32_t index = 0;
    BERTH_TRY(berth_storage_add(plan, storage, &index));
    BERTH_TRY(berth_operand_add(plan, BERTH_VALUE_NONE, index, out_ids));
    berth_operand *ids = *out_ids;
    ids->strides[0] = 1;
    ids->tensor.ndim = 1;
    ids->tensor.dtype = BERTH_DTYPE_I32;
    ids->tensor.shape = ids->shape;
    ids->tensor.strides = ids->strides;
    return BERTH_OK;
}

static berth_status add_step(berth_plan *plan, berth_binding *binding) {
    berth_op_args *args = BERTH_ARENA_NEW(plan->arena, berth_op_args);
    const berth_tensor **inputs = BERTH_ARENA_ARRAY(plan->arena, const berth_tensor *, 1);
    berth_tensor **outputs = BERTH_ARENA_ARRAY(plan->arena, berth_tensor *, 1);
    if (args == NULL || inputs == NULL || outputs == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's steps");
    }
    inputs[0] = &plan->choice.logits->tensor;
    outputs[0] = &plan->choice.ids->tensor;
    *args = (berth_op_args){
        .size = sizeof(*args),
        .inputs = inputs,
        .outputs = outputs,
        .batch = &plan->batch,
    };
    return berth_step_add(plan, (berth_step){.args = args},
                          (berth_step_note){.binding = binding, .args = args});
}

berth_status berth_choice_place(berth_plan *plan) {
    const berth_op_entry *op = berth_registry_find_op(plan->request.registry, CHOICE_OP);
    const berth_plan_result *logits = find_logits(plan);
    if (plan->is_host || op == NULL || logits == NULL ||
        plan->storages.data[logits->operand->storage].space != BERTH_SPACE_DEVICE) {
        return BERTH_OK;
    }
    berth_binding *binding = NULL;
    BERTH_TRY(bind_choice(plan, op, logits->operand->value, &binding));
    if (binding == NULL) {
        return BERTH_OK;
    }
    plan->choice.logits = logits->operand;
    BERTH_TRY(add_ids(plan, &plan->choice.ids));
    return add_step(plan, binding);
}

berth_status berth_choice_create(berth_plan *plan) {
    void *memory = NULL;
    if (plan->choice.ids == NULL) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_runtime_alloc_host(
        plan->runtime, (uint64_t)plan->request.max_sequences * sizeof(int32_t), &memory));
    plan->choice.memory = memory;
    return BERTH_OK;
}

void berth_choice_update(berth_plan *plan, int64_t rows) {
    if (plan->choice.ids != NULL) {
        plan->choice.ids->shape[0] = rows;
    }
}

bool berth_plan_chooses(const berth_plan *plan) {
    return plan->choice.ids != NULL;
}

berth_status berth_plan_choices(berth_plan *plan, const int32_t **out_ids) {
    const berth_operand *ids = plan->choice.ids;
    if (ids == NULL || plan->tokens == 0) {
        return BERTH_FAIL(WRONG_STATE, "the plan has chosen nothing");
    }
    BERTH_TRY_NOTE(
        berth_runtime_download(plan->runtime, plan->choice.memory, plan->device_block,
                               ids->tensor.byte_offset,
                               (uint64_t)(plan->rows - plan->padding.rows) * sizeof(int32_t)),
        "fetching the chosen ids");
    *out_ids = plan->choice.memory;
    return BERTH_OK;
}
