// SPDX-License-Identifier: Apache-2.0
// Input: which value is wanted in which space with which layout. Output: an operand, after the copy
// steps that this takes. A value is copied at most once per space and layout; a transfer moves the
// whole root, so that every view of it lies in both spaces alike.
#include "executor/stages.h"

#define CONTIGUOUS_OP "contiguous"

static const berth_value_type *type_of(const berth_plan *plan, berth_value value) {
    return &plan->graph->values[value].type;
}

uint64_t berth_value_bytes(const berth_plan *plan, berth_value value) {
    const berth_value_type *type = type_of(plan, value);
    const int64_t elements =
        berth_type_elements(type, plan->request.max_tokens, plan->request.max_sequences);
    return elements < 0 || elements > INT64_MAX / 64
               ? UINT64_MAX
               : berth_dtype_bytes(type->dtype, (uint64_t)elements);
}

// ---- storages, operands, steps ------------------------------------------------------------------

berth_status berth_storage_add(berth_plan *plan, berth_storage storage, uint32_t *out_index) {
    if (storage.bytes == UINT64_MAX) {
        return BERTH_FAIL(OUT_OF_MEMORY,
                          "value %%%u of graph '%s' is too large for a step of %lld tokens; lower "
                          "max_num_batched_tokens",
                          (unsigned)storage.value, plan->graph->name,
                          (long long)plan->request.max_tokens);
    }
    *out_index = (uint32_t)plan->storages.count;
    return berth_array_push(&plan->storages, storage);
}

berth_status berth_operand_add(berth_plan *plan, berth_value value, uint32_t storage,
                               berth_operand **out_operand) {
    berth_operand *operand = BERTH_ARENA_NEW(plan->arena, berth_operand);
    if (operand == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's operands");
    }
    const bool is_device = plan->storages.data[storage].space == BERTH_SPACE_DEVICE;
    operand->value = value;
    operand->storage = storage;
    operand->tensor = (berth_tensor){
        .size = sizeof(operand->tensor),
        .device_type = is_device ? berth_runtime_memory_type(plan->runtime) : BERTH_MEMORY_HOST,
        .device_id = is_device ? (int32_t)berth_runtime_device(plan->runtime)->index : 0,
        .ndim = (int32_t)type_of(plan, value)->ndim,
        .dtype = type_of(plan, value)->dtype,
        .shape = plan->extents[value].shape,
        .strides = plan->extents[value].strides,
    };
    *out_operand = operand;
    return berth_array_push(&plan->operands, operand);
}

void berth_operand_touch(berth_plan *plan, const berth_operand *operand) {
    berth_storage *storage = &plan->storages.data[operand->storage];
    const uint32_t step = (uint32_t)plan->steps.count;
    if (storage->last < step) {
        storage->last = step;
    }
}

berth_status berth_planned_add(berth_plan *plan, berth_value value, berth_space space,
                               berth_operand **out_operand) {
    const berth_storage storage = {
        .kind = BERTH_STORAGE_PLANNED,
        .space = space,
        .value = value,
        .bytes = berth_value_bytes(plan, value),
        .first = (uint32_t)plan->steps.count,
        .last = (uint32_t)plan->steps.count,
    };
    uint32_t index = 0;
    BERTH_TRY(berth_storage_add(plan, storage, &index));
    return berth_operand_add(plan, value, index, out_operand);
}

berth_status berth_step_add(berth_plan *plan, berth_step step, berth_step_note note) {
    BERTH_TRY(berth_array_push(&plan->steps, step));
    return berth_array_push(&plan->step_notes, note);
}

// Why: host memory is read by this thread at once, while a platform with streams may still be at
// work on it.
berth_status berth_step_settle(berth_plan *plan, const berth_binding *next) {
    const berth_platform_entry *platform = berth_runtime_platform(plan->runtime);
    const bool has_streams = plan->is_host && platform != NULL &&
                             (platform->capabilities.flags & BERTH_CAPABILITY_STREAMS) != 0;
    if (has_streams && plan->is_unsettled && (next == NULL || next->impl == NULL)) {
        berth_copy_step *wait = BERTH_ARENA_NEW(plan->arena, berth_copy_step);
        if (wait == NULL) {
            return berth_arena_exhausted(plan->arena, "the plan's steps");
        }
        wait->plan = plan;
        plan->is_unsettled = false;
        return berth_step_add(plan, (berth_step){.forward = berth_copy_wait, .self = wait},
                              (berth_step_note){0});
    }
    plan->is_unsettled = plan->is_unsettled || (next != NULL && next->impl != NULL);
    return BERTH_OK;
}

// ---- copies -------------------------------------------------------------------------------------

// A step that copies the elements of a value, as `forward` does it.
static berth_status add_copy(berth_plan *plan, berth_op_forward_fn forward,
                             const berth_operand *from, const berth_operand *to,
                             berth_value value) {
    berth_copy_step *copy = BERTH_ARENA_NEW(plan->arena, berth_copy_step);
    berth_value *written = BERTH_ARENA_NEW(plan->arena, berth_value);
    if (copy == NULL || written == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's copies");
    }
    *copy = (berth_copy_step){.plan = plan, .from = from, .to = to, .value = value};
    *written = value;
    berth_operand_touch(plan, from);
    berth_operand_touch(plan, to);
    return berth_step_add(plan, (berth_step){.forward = forward, .self = copy},
                          (berth_step_note){.values = written, .value_count = 1});
}

static size_t place_of(berth_value value, berth_space space) {
    return (size_t)value * BERTH_SPACE_COUNT + space;
}

// A root that has no producer: there in whatever space asks.
static berth_status add_source(berth_plan *plan, berth_value root, berth_space space,
                               berth_operand **out_operand) {
    const bool is_input = plan->graph->values[root].kind == BERTH_VALUE_INPUT;
    const berth_storage storage = {
        .kind = is_input ? BERTH_STORAGE_INPUT : BERTH_STORAGE_PARAMETER,
        .space = space,
        .value = root,
        .bytes = berth_value_bytes(plan, root),
    };
    uint32_t index = 0;
    BERTH_TRY(berth_storage_add(plan, storage, &index));
    return berth_operand_add(plan, root, index, out_operand);
}

static berth_status add_transfer(berth_plan *plan, berth_value root, berth_space space,
                                 berth_operand **out_operand) {
    const berth_space other = space == BERTH_SPACE_HOST ? BERTH_SPACE_DEVICE : BERTH_SPACE_HOST;
    const berth_operand *from = plan->homes[place_of(root, other)];
    BERTH_TRY(berth_planned_add(plan, root, space, out_operand));
    return add_copy(plan, space == BERTH_SPACE_HOST ? berth_copy_to_host : berth_copy_to_device,
                    from, *out_operand, root);
}

static berth_status get_root(berth_plan *plan, berth_value root, berth_space space,
                             berth_operand **out_operand) {
    berth_operand **home = &plan->homes[place_of(root, space)];
    if (*home == NULL) {
        const berth_value_kind kind = plan->graph->values[root].kind;
        const bool is_source = kind == BERTH_VALUE_INPUT || kind == BERTH_VALUE_PARAMETER;
        BERTH_TRY(is_source ? add_source(plan, root, space, home)
                            : add_transfer(plan, root, space, home));
    }
    *out_operand = *home;
    return BERTH_OK;
}

// The value as its layout has it.
berth_status berth_operand_get_view(berth_plan *plan, berth_value value, berth_space space,
                                    berth_operand **out_operand) {
    berth_operand *root = NULL;
    BERTH_TRY(get_root(plan, plan->layouts[value].root, space, &root));
    berth_operand **home = &plan->homes[place_of(value, space)];
    if (*home == NULL) {
        BERTH_TRY(berth_operand_add(plan, value, root->storage, home));
    }
    *out_operand = *home;
    return BERTH_OK;
}

// ---- without gaps -------------------------------------------------------------------------------

static berth_status add_dense(berth_plan *plan, berth_value value, berth_space space,
                              berth_operand **out_operand) {
    BERTH_TRY(berth_planned_add(plan, value, space, out_operand));
    (*out_operand)->is_dense = true;
    (*out_operand)->tensor.strides = (*out_operand)->strides;
    return BERTH_OK;
}

static berth_status densify_on_host(berth_plan *plan, berth_value value, berth_space space,
                                    berth_operand **out_operand) {
    if (BERTH_DTYPE_BITS(type_of(plan, value)->dtype) < 8) {
        return BERTH_FAIL(UNSUPPORTED, "a view with gaps of a %s value cannot be copied",
                          berth_dtype_name(type_of(plan, value)->dtype));
    }
    berth_operand *from = NULL;
    BERTH_TRY(berth_operand_get_view(plan, value, space, &from));
    BERTH_TRY(berth_step_settle(plan, NULL));
    BERTH_TRY(add_dense(plan, value, space, out_operand));
    return add_copy(plan, berth_copy_dense, from, *out_operand, value);
}

static berth_status bind_contiguous(berth_plan *plan, berth_value value, const char *layer,
                                    berth_binding **out_binding) {
    const berth_op_entry *op = berth_registry_find_op(plan->request.registry, CONTIGUOUS_OP);
    if (op == NULL) {
        return BERTH_FAIL(UNSUPPORTED,
                          "layer '%s' needs a copy without gaps, and no plugin has the op "
                          "'" CONTIGUOUS_OP "'",
                          layer);
    }
    const berth_value_type **types = BERTH_ARENA_ARRAY(plan->arena, const berth_value_type *, 1);
    if (types == NULL) {
        return berth_arena_exhausted(plan->arena, "op sites");
    }
    types[0] = type_of(plan, value);
    const berth_op_site site = {
        .size = sizeof(site),
        .host = berth_registry_host(plan->request.registry),
        .op = &op->op,
        .layer = layer,
        .inputs = types,
        .input_count = 1,
        .outputs = types,
        .output_count = 1,
    };
    return berth_dispatch(plan, op, &site, false, out_binding);
}

static berth_status add_contiguous(berth_plan *plan, berth_value value, berth_binding *binding,
                                   berth_operand **out_operand) {
    berth_operand *from = NULL;
    BERTH_TRY(berth_operand_get_view(plan, value, BERTH_SPACE_DEVICE, &from));
    BERTH_TRY(add_dense(plan, value, BERTH_SPACE_DEVICE, out_operand));
    berth_op_args *args = BERTH_ARENA_NEW(plan->arena, berth_op_args);
    const berth_tensor **inputs = BERTH_ARENA_ARRAY(plan->arena, const berth_tensor *, 1);
    berth_tensor **outputs = BERTH_ARENA_ARRAY(plan->arena, berth_tensor *, 1);
    berth_value *written = BERTH_ARENA_NEW(plan->arena, berth_value);
    if (args == NULL || inputs == NULL || outputs == NULL || written == NULL) {
        return berth_arena_exhausted(plan->arena, "the plan's copies");
    }
    inputs[0] = &from->tensor;
    outputs[0] = &(*out_operand)->tensor;
    *written = value;
    *args = (berth_op_args){
        .size = sizeof(*args),
        .inputs = inputs,
        .outputs = outputs,
        .batch = &plan->batch,
    };
    berth_operand_touch(plan, from);
    berth_operand_touch(plan, *out_operand);
    return berth_step_add(plan, (berth_step){.args = args},
                          (berth_step_note){
                              .binding = binding,
                              .args = args,
                              .values = written,
                              .value_count = 1,
                          });
}

// On the device when it has the op, else by way of the host, which is a fallback like any other.
static berth_status densify_on_device(berth_plan *plan, berth_value value, const char *layer,
                                      berth_operand **out_operand) {
    berth_binding *binding = NULL;
    BERTH_TRY(bind_contiguous(plan, value, layer, &binding));
    if (binding->space == BERTH_SPACE_DEVICE) {
        return add_contiguous(plan, value, binding, out_operand);
    }
    berth_operand *on_host = NULL;
    BERTH_TRY(berth_operand_get(plan, value, layer, BERTH_SPACE_HOST, &on_host));
    BERTH_TRY(add_dense(plan, value, BERTH_SPACE_DEVICE, out_operand));
    return add_copy(plan, berth_copy_to_device, on_host, *out_operand, value);
}

berth_status berth_operand_get(berth_plan *plan, berth_value value, const char *layer,
                               berth_space space, berth_operand **out_operand) {
    if (berth_layout_meets(&plan->layouts[value], BERTH_LAYOUT_CONTIGUOUS)) {
        return berth_operand_get_view(plan, value, space, out_operand);
    }
    berth_operand **dense = &plan->denses[place_of(value, space)];
    if (*dense == NULL) {
        BERTH_TRY(plan->is_host || space == BERTH_SPACE_HOST
                      ? densify_on_host(plan, value, space, dense)
                      : densify_on_device(plan, value, layer, dense));
    }
    *out_operand = *dense;
    return BERTH_OK;
}
