// SPDX-License-Identifier: Apache-2.0
// Input: the graph of a layer alone and its operands. Output: a plan that has run it once, on the
// device of the session's model, in one step whose tokens are the rows of the operands.
#include <string.h>

#include "base/convert.h"
#include "cli/eval.h"

// ---- operands and weights -----------------------------------------------------------------------

static const berth_eval_operand *find_operand(const berth_eval_layer *layer, const char *name) {
    for (size_t i = 0; i < layer->operand_count; ++i) {
        if (strcmp(layer->operands[i].name, name) == 0) {
            return &layer->operands[i];
        }
    }
    return NULL;
}

// In the type that the graph wants, of two float types converted.
static berth_status give_operand(const berth_eval_layer *layer, berth_plan *plan, berth_value value,
                                 const berth_value_type *type) {
    const berth_eval_operand *operand =
        find_operand(layer, layer->build->graph->values[value].name);
    if (operand == NULL) {
        return BERTH_OK; // a weight
    }
    const uint64_t count = (uint64_t)berth_type_elements(type, 0, 0);
    const uint64_t bytes = berth_dtype_bytes(type->dtype, count);
    if (operand->count != count) {
        return BERTH_FAIL(CORRUPT, "operand '%s' has %llu elements, the layer needs %llu",
                          operand->name, (unsigned long long)operand->count,
                          (unsigned long long)count);
    }
    void *data = berth_arena_alloc(layer->arena, (size_t)bytes, 64);
    if (data == NULL) {
        return berth_arena_exhausted(layer->arena, "operands");
    }
    if (operand->dtype == type->dtype) {
        memcpy(data, operand->data, (size_t)bytes);
    } else {
        berth_convert(operand->dtype, operand->data, type->dtype, data, count);
    }
    return berth_plan_set_parameter(plan, value, data, bytes);
}

static berth_status accept(void *context, const berth_weight *weight, const void *data) {
    return berth_plan_set_parameter(context, weight->value, data, weight->bytes);
}

static berth_status load(const berth_eval_layer *layer, berth_plan *plan) {
    const berth_graph *graph = layer->build->graph;
    const berth_weight_taker taker = {.context = plan, .accept = accept};
    for (size_t i = 1; i < graph->value_count; ++i) {
        if (graph->values[i].kind == BERTH_VALUE_PARAMETER) {
            BERTH_TRY(give_operand(layer, plan, (berth_value)i, &graph->values[i].type));
        }
    }
    BERTH_TRY(berth_model_load(layer->build, &taker));
    return berth_plan_ready(plan);
}

// ---- the step -----------------------------------------------------------------------------------

// One sequence of `rows` tokens.
static berth_status run_step(const berth_eval_layer *layer, berth_plan *plan) {
    const int64_t rows = layer->rows;
    int32_t *numbers = BERTH_ARENA_ARRAY(layer->arena, int32_t, (size_t)rows);
    int32_t *of_tokens = BERTH_ARENA_ARRAY(layer->arena, int32_t, (size_t)rows);
    int64_t *slots = BERTH_ARENA_ARRAY(layer->arena, int64_t, (size_t)rows);
    if (numbers == NULL || of_tokens == NULL || slots == NULL) {
        return berth_arena_exhausted(layer->arena, "a step");
    }
    for (int64_t i = 0; i < rows; ++i) {
        numbers[i] = (int32_t)i;
        of_tokens[i] = layer->id;
        slots[i] = -1; // nothing is stored
    }
    int32_t bounds[2] = {0, (int32_t)rows};
    int32_t none[1] = {0};
    const int64_t strides[2] = {1, 1};
    const int64_t all[1] = {rows};
    const int64_t one[2] = {1, 1};
    const int64_t two[1] = {2};
#define ARRAY(values, rank, extents, type)                                                         \
    {                                                                                              \
        .size = sizeof(berth_tensor), .data = (values), .device_type = BERTH_MEMORY_HOST,          \
        .ndim = (rank), .dtype = (type), .shape = (extents), .strides = strides                    \
    }
    const berth_tensor ids = ARRAY(of_tokens, 1, all, BERTH_DTYPE_I32);
    const berth_tensor positions = ARRAY(numbers, 1, all, BERTH_DTYPE_I32);
    const berth_tensor length = ARRAY(bounds + 1, 1, one, BERTH_DTYPE_I32);
    const berth_tensor start = ARRAY(bounds, 1, two, BERTH_DTYPE_I32);
    const berth_tensor table = ARRAY(none, 2, one, BERTH_DTYPE_I32);
    const berth_tensor mapping = ARRAY(slots, 1, all, BERTH_DTYPE_I64);
#undef ARRAY
    const berth_tensor *tables[] = {&table};
    const berth_tensor *mappings[] = {&mapping};
    const berth_batch_view view = {
        .size = sizeof view,
        .token_ids = &ids,
        .positions = &positions,
        .query_start_loc = &start,
        .seq_lens = &length,
        .logits_rows = &positions,
        .block_tables = tables,
        .slot_mappings = mappings,
    };
    const berth_batch batch = {
        .size = sizeof batch,
        .host = &view,
        .token_count = rows,
        .sequence_count = 1,
        .logits_row_count = rows,
        .group_count = 1,
        .max_query_len = rows,
        .max_seq_len = rows,
    };
    return berth_plan_run(plan, &batch);
}

berth_status berth_eval_run(const berth_eval_layer *layer, berth_plan **out_plan) {
    const berth_session *session = layer->session;
    berth_plan *plan = NULL;
    const berth_plan_request request = {
        .registry = session->registry,
        .config = &session->config,
        .graph = layer->build->graph,
        .runtime = berth_worker_runtime(session->worker),
        .max_tokens = layer->rows,
        .max_sequences = layer->rows,
        .max_seq_len = layer->rows,
    };
    BERTH_TRY(berth_plan_create(&request, &plan));
    berth_status status = load(layer, plan);
    if (status == BERTH_OK) {
        status = run_step(layer, plan);
    }
    if (status != BERTH_OK) {
        berth_plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return BERTH_OK;
}
