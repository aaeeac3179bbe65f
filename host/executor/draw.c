// SPDX-License-Identifier: Apache-2.0
// Drawing a token of each row on the device: where the platform has the op 'sample' for the logits,
// a vocabulary of them need not come to the host for a request that is not greedy. It is no step of
// the plan, since a step that nobody draws from should not pay for it: it is queued behind a run,
// with the options that one copy brings.
#include "executor/stages.h"

#include "base/log.h"

#define DRAW_OP "sample"

// The op's inputs behind the logits, in its order; 8 bytes a row each.
enum { TEMPERATURE, TOP_P, MIN_P, TOP_K, SEED, INDEX, OPTION_COUNT };

struct berth_plan_draw {
    berth_binding *binding;
    berth_buffer buffer;                    // options, then ids
    unsigned char *memory;                  // the same in host memory; owned
    int64_t shape[2];                       // of the logits; its first number is everybody's
    int64_t strides[1];                     // of options and ids
    berth_tensor tensors[2 + OPTION_COUNT]; // logits, options, ids
    const berth_tensor *inputs[1 + OPTION_COUNT];
    berth_tensor *outputs[1];
};

// ---- at plan time -------------------------------------------------------------------------------

// The site's types: logits and options in, ids out.
static berth_status make_types(berth_plan *plan, const berth_value_type ***out_types) {
    const berth_value_type *logits = &plan->graph->values[plan->choice.logits->value].type;
    const berth_value_type **types =
        BERTH_ARENA_ARRAY(plan->arena, const berth_value_type *, 2 + OPTION_COUNT);
    berth_value_type *rest = BERTH_ARENA_ARRAY(plan->arena, berth_value_type, 1 + OPTION_COUNT);
    if (types == NULL || rest == NULL) {
        return berth_arena_exhausted(plan->arena, "op sites");
    }
    types[0] = logits;
    for (size_t i = 0; i <= OPTION_COUNT; ++i) {
        rest[i] = *logits;
        rest[i].ndim = 1;
        rest[i].dtype = i < TOP_K          ? BERTH_DTYPE_F64
                        : i < OPTION_COUNT ? BERTH_DTYPE_I64
                                           : BERTH_DTYPE_I32;
        types[1 + i] = &rest[i];
    }
    *out_types = types;
    return BERTH_OK;
}

berth_status berth_draw_place(berth_plan *plan) {
    const berth_op_entry *op = berth_registry_find_op(plan->request.registry, DRAW_OP);
    if (op == NULL || plan->choice.ids == NULL ||
        plan->graph->values[plan->choice.logits->value].type.ndim != 2) {
        return BERTH_OK;
    }
    const berth_value_type **types = NULL;
    const berth_dispatch_counters before = plan->counters;
    berth_binding *binding = NULL;
    BERTH_TRY(make_types(plan, &types));
    const berth_op_site site = {
        .size = sizeof(site),
        .host = berth_registry_host(plan->request.registry),
        .op = &op->op,
        .layer = "logits",
        .inputs = types,
        .input_count = 1 + OPTION_COUNT,
        .outputs = types + 1 + OPTION_COUNT,
        .output_count = 1,
    };
    BERTH_TRY(berth_dispatch(plan, op, &site, false, &binding));
    if (binding->impl == NULL || binding->space != BERTH_SPACE_DEVICE) {
        --plan->bindings.count;
        plan->counters = before;
        return BERTH_OK;
    }
    plan->draw = BERTH_ARENA_NEW(plan->arena, struct berth_plan_draw);
    if (plan->draw == NULL) {
        return berth_arena_exhausted(plan->arena, "op sites");
    }
    plan->draw->binding = binding;
    return BERTH_OK;
}

// ---- memory -------------------------------------------------------------------------------------

// Options and ids, each array of rows at a multiple of the alignment.
static uint64_t array_bytes(const berth_plan *plan) {
    const uint64_t alignment = berth_runtime_alignment(plan->runtime);
    const uint64_t bytes = (uint64_t)plan->request.max_sequences * sizeof(int64_t);
    return (bytes + alignment - 1) / alignment * alignment;
}

static void point_tensors(berth_plan *plan) {
    struct berth_plan_draw *draw = plan->draw;
    for (size_t i = 0; i <= OPTION_COUNT; ++i) {
        draw->tensors[1 + i] = (berth_tensor){
            .size = sizeof(berth_tensor),
            .dtype = i < TOP_K          ? BERTH_DTYPE_F64
                     : i < OPTION_COUNT ? BERTH_DTYPE_I64
                                        : BERTH_DTYPE_I32,
            .device_type = berth_runtime_memory_type(plan->runtime),
            .device_id = (int32_t)berth_runtime_device(plan->runtime)->index,
            .data = draw->buffer.base,
            .byte_offset = i * array_bytes(plan),
            .ndim = 1,
            .shape = draw->shape,
            .strides = draw->strides,
        };
    }
    for (size_t i = 0; i <= OPTION_COUNT; ++i) {
        draw->inputs[i] = &draw->tensors[i];
    }
    draw->strides[0] = 1;
    draw->outputs[0] = &draw->tensors[1 + OPTION_COUNT];
}

berth_status berth_draw_create(berth_plan *plan) {
    struct berth_plan_draw *draw = plan->draw;
    void *memory = NULL;
    if (draw == NULL) {
        return BERTH_OK;
    }
    const uint64_t bytes = array_bytes(plan);
    // Nobody plans a workspace behind the last step.
    if (berth_impl_workspace(plan, draw->binding) > 0) {
        BERTH_INFO("executor", "draws on the host: '%s' wants a workspace",
                   draw->binding->record.implementation);
        plan->draw = NULL;
        return BERTH_OK;
    }
    BERTH_TRY_NOTE(berth_runtime_alloc(plan->runtime, (1 + OPTION_COUNT) * bytes, &draw->buffer),
                   "the options of requests");
    BERTH_TRY_NOTE(berth_runtime_alloc_host(plan->runtime, (1 + OPTION_COUNT) * bytes, &memory),
                   "the options of requests");
    draw->memory = memory;
    point_tensors(plan);
    return BERTH_OK;
}

void berth_draw_destroy(berth_plan *plan) {
    if (plan->draw != NULL) {
        berth_runtime_free_host(plan->runtime, plan->draw->memory);
        berth_runtime_free(plan->runtime, &plan->draw->buffer);
    }
}

// ---- for a step ---------------------------------------------------------------------------------

bool berth_plan_draws(const berth_plan *plan) {
    return plan->draw != NULL;
}

// The row's place in an array of options, in host memory.
static void *option_of(const berth_plan *plan, int option, int64_t row) {
    return plan->draw->memory + (uint64_t)option * array_bytes(plan) +
           (uint64_t)row * sizeof(int64_t);
}

void berth_plan_set_draw(berth_plan *plan, int64_t row, const berth_sampling *sampling) {
    static const berth_sampling nobodys = {0}; // the likeliest, which costs nothing
    const berth_sampling *options = sampling != NULL ? sampling : &nobodys;
    *(double *)option_of(plan, TEMPERATURE, row) = options->temperature;
    *(double *)option_of(plan, TOP_P, row) = options->top_p;
    *(double *)option_of(plan, MIN_P, row) = options->min_p;
    *(int64_t *)option_of(plan, TOP_K, row) =
        options->top_k < INT64_MAX ? (int64_t)options->top_k : 0;
    *(int64_t *)option_of(plan, SEED, row) = (int64_t)options->seed;
    *(int64_t *)option_of(plan, INDEX, row) = (int64_t)options->index;
}

// Of the rows that are somebody's: they come first.
static berth_status run(berth_plan *plan) {
    struct berth_plan_draw *draw = plan->draw;
    const berth_binding *binding = draw->binding;
    const berth_op_args args = {
        .size = sizeof(args),
        .inputs = draw->inputs,
        .outputs = draw->outputs,
        .batch = &plan->batch,
    };
    draw->shape[0] = plan->rows - plan->padding.rows;
    draw->tensors[0] = plan->choice.logits->tensor;
    draw->tensors[0].shape = draw->shape;
    draw->shape[1] = plan->choice.logits->tensor.shape[1];
    berth_plugin_enter(binding->owner, "forward");
    BERTH_TRY_NOTE(berth_plugin_leave(binding->impl->forward(binding->self, &args)),
                   "running op '" DRAW_OP "'");
    return BERTH_OK;
}

berth_status berth_plan_draw_ids(berth_plan *plan, const int32_t **out_ids) {
    struct berth_plan_draw *draw = plan->draw;
    const uint64_t at = OPTION_COUNT * array_bytes(plan);
    if (draw == NULL || plan->tokens == 0) {
        return BERTH_FAIL(WRONG_STATE, "the plan has nothing to draw from");
    }
    BERTH_TRY(berth_runtime_queue(plan->runtime, draw->buffer, 0, draw->memory, at));
    BERTH_TRY(run(plan));
    BERTH_TRY_NOTE(berth_runtime_download(plan->runtime, draw->memory + at, draw->buffer, at,
                                          (uint64_t)draw->shape[0] * sizeof(int32_t)),
                   "fetching the drawn ids");
    *out_ids = (const int32_t *)(const void *)(draw->memory + at);
    return BERTH_OK;
}
