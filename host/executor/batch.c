// SPDX-License-Identifier: Apache-2.0
// Input: the batch of a step in host memory. Output: what calls see of it: the same arrays in
// device memory, and the numbers that give every shape.
#include "executor/stages.h"

#include <string.h>

enum { QUERY_START_LOC = 2, SEQ_LENS = 3, LOGITS_ROWS = 4 };

static const char *const array_names[BERTH_BATCH_ARRAYS] = {
    "token_ids",
    "positions",
    [QUERY_START_LOC] = "query_start_loc",
    [SEQ_LENS] = "seq_lens",
    [LOGITS_ROWS] = "logits_rows",
};

// ---- at plan time -------------------------------------------------------------------------------

static size_t group_count(const berth_plan *plan) {
    size_t count = 0;
    for (size_t i = 0; i < plan->request.kv_cache_count; ++i) {
        const size_t group = plan->request.kv_caches[i].group;
        count = group + 1 > count ? group + 1 : count;
    }
    // An op with states may look at the batch without a cache of the model's being declared.
    for (size_t i = 0; count == 0 && i < plan->bindings.count; ++i) {
        count = plan->bindings.data[i]->op->op.state_count > 0;
    }
    return count;
}

// The smallest blocks of a group give its longest table.
static uint64_t table_width(const berth_plan *plan, size_t group) {
    // Blocks of one token where nobody says how large they are.
    uint64_t width = plan->request.kv_cache_count > 0 ? 1 : (uint64_t)plan->request.max_seq_len;
    for (size_t i = 0; i < plan->request.kv_cache_count; ++i) {
        const berth_kv_cache_spec *cache = &plan->request.kv_caches[i];
        const int64_t blocks =
            cache->block_size < 1
                ? 1
                : (plan->request.max_seq_len + cache->block_size - 1) / cache->block_size;
        width = cache->group == group && (uint64_t)blocks > width ? (uint64_t)blocks : width;
    }
    return width;
}

static void size_arrays(berth_plan *plan) {
    berth_device_batch *batch = &plan->device_batch;
    const uint64_t tokens = (uint64_t)plan->request.max_tokens;
    const uint64_t sequences = (uint64_t)plan->request.max_sequences;
    uint64_t *capacities = batch->capacities;
    capacities[0] = tokens * sizeof(int32_t);
    capacities[1] = tokens * sizeof(int32_t);
    capacities[2] = (sequences + 1) * sizeof(int32_t);
    capacities[3] = sequences * sizeof(int32_t);
    capacities[4] = sequences * sizeof(int32_t);
    for (size_t i = 0; i < batch->group_count; ++i) {
        capacities[BERTH_BATCH_ARRAYS + i] = sequences * table_width(plan, i) * sizeof(int32_t);
        capacities[BERTH_BATCH_ARRAYS + batch->group_count + i] = tokens * sizeof(int64_t);
    }
}

// One buffer for all arrays.
static berth_status alloc_arrays(berth_plan *plan, size_t count) {
    berth_device_batch *batch = &plan->device_batch;
    const uint64_t alignment = berth_runtime_alignment(plan->runtime);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
        batch->tensors[i] = (berth_tensor){
            .size = sizeof(berth_tensor),
            .device_type = berth_runtime_memory_type(plan->runtime),
            .device_id = (int32_t)berth_runtime_device(plan->runtime)->index,
            .byte_offset = bytes,
            .shape = batch->extents[i].shape,
            .strides = batch->extents[i].strides,
        };
        bytes += (batch->capacities[i] + alignment - 1) / alignment * alignment;
    }
    BERTH_TRY_NOTE(berth_runtime_alloc(plan->runtime, bytes, &batch->buffer), "the batch");
    for (size_t i = 0; i < count; ++i) {
        batch->tensors[i].data = batch->buffer.base;
    }
    void *staging = NULL;
    BERTH_TRY_NOTE(berth_runtime_alloc_host(plan->runtime, bytes, &staging), "the batch");
    batch->staging = staging;
    return BERTH_OK;
}

static void point_view(berth_device_batch *batch) {
    for (size_t i = 0; i < 2 * batch->group_count; ++i) {
        batch->pointers[i] = &batch->tensors[BERTH_BATCH_ARRAYS + i];
    }
    batch->view = (berth_batch_view){
        .size = sizeof(batch->view),
        .token_ids = &batch->tensors[0],
        .positions = &batch->tensors[1],
        .query_start_loc = &batch->tensors[2],
        .seq_lens = &batch->tensors[3],
        .logits_rows = &batch->tensors[4],
        .block_tables = batch->pointers,
        .slot_mappings = batch->pointers + batch->group_count,
    };
}

static berth_status find_inputs(berth_plan *plan) {
    for (size_t i = 0; i < plan->operands.count; ++i) {
        berth_operand *operand = plan->operands.data[i];
        berth_storage *storage = &plan->storages.data[operand->storage];
        size_t array = 0;
        if (storage->kind != BERTH_STORAGE_INPUT) {
            continue;
        }
        while (strcmp(array_names[array], plan->graph->values[storage->value].name) != 0) {
            ++array;
        }
        if (storage->space == BERTH_SPACE_DEVICE && !plan->is_host) {
            operand->tensor.data = plan->device_batch.buffer.base;
            storage->offset = plan->device_batch.tensors[array].byte_offset;
            BERTH_TRY(berth_array_push(&plan->device_inputs,
                                       (berth_plan_input){.operand = operand, .array = array}));
        } else {
            BERTH_TRY(berth_array_push(&plan->inputs,
                                       (berth_plan_input){.operand = operand, .array = array}));
        }
    }
    return BERTH_OK;
}

berth_status berth_device_batch_create(berth_plan *plan) {
    berth_device_batch *batch = &plan->device_batch;
    batch->group_count = group_count(plan);
    if (!plan->is_host) {
        const size_t count = BERTH_BATCH_ARRAYS + 2 * batch->group_count;
        batch->tensors = BERTH_ARENA_ARRAY(plan->arena, berth_tensor, count);
        batch->capacities = BERTH_ARENA_ARRAY(plan->arena, uint64_t, count);
        batch->extents = BERTH_ARENA_ARRAY(plan->arena, berth_batch_extent, count);
        batch->pointers =
            BERTH_ARENA_ARRAY(plan->arena, const berth_tensor *, 2 * batch->group_count);
        if (batch->tensors == NULL || batch->capacities == NULL || batch->extents == NULL ||
            batch->pointers == NULL) {
            return berth_arena_exhausted(plan->arena, "the device's batch");
        }
        size_arrays(plan);
        BERTH_TRY(alloc_arrays(plan, count));
        point_view(batch);
    }
    return find_inputs(plan);
}

// ---- for a step ---------------------------------------------------------------------------------

berth_status berth_batch_check(const berth_plan *plan, const berth_batch *batch) {
    const berth_plan_request *request = &plan->request;
    if (batch->token_count < 1 || batch->token_count > request->max_tokens) {
        return BERTH_FAIL(INVALID_ARGUMENT, "a step of %lld tokens: the plan is for 1 to %lld",
                          (long long)batch->token_count, (long long)request->max_tokens);
    }
    if (batch->sequence_count < 1 || batch->sequence_count > plan->most_sequences ||
        batch->logits_row_count < 0 || batch->logits_row_count > plan->most_sequences) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "a step of %lld sequences and %lld rows of logits: the plan is for at "
                          "most %lld",
                          (long long)batch->sequence_count, (long long)batch->logits_row_count,
                          (long long)plan->most_sequences);
    }
    if (batch->group_count < (int64_t)plan->device_batch.group_count) {
        return BERTH_FAIL(INVALID_ARGUMENT, "a step of %lld cache groups: the model has %zu",
                          (long long)batch->group_count, plan->device_batch.group_count);
    }
    return BERTH_OK;
}

static const berth_tensor *host_array(const berth_batch_view *view, size_t array) {
    const berth_tensor *const arrays[BERTH_BATCH_ARRAYS] = {
        view->token_ids, view->positions, view->query_start_loc, view->seq_lens, view->logits_rows,
    };
    return arrays[array];
}

// The array of the device's batch with that index in host memory.
static const berth_tensor *source_of(const berth_plan *plan, const berth_batch_view *view,
                                     size_t index) {
    const size_t groups = plan->device_batch.group_count;
    return index < BERTH_BATCH_ARRAYS ? host_array(view, index)
           : index < BERTH_BATCH_ARRAYS + groups
               ? view->block_tables[index - BERTH_BATCH_ARRAYS]
               : view->slot_mappings[index - BERTH_BATCH_ARRAYS - groups];
}

static bool is_table(const berth_plan *plan, size_t index) {
    return index >= BERTH_BATCH_ARRAYS &&
           index < BERTH_BATCH_ARRAYS + plan->device_batch.group_count;
}

static int64_t padding_of(const berth_plan *plan, size_t index) {
    return index == LOGITS_ROWS ? plan->padding.rows : plan->padding.sequences;
}

// Shape and strides of an array on the device, with rows for the padding. A table has the columns
// that the step needs, in rows that are as wide as any step's. Why: a recorded step is good for as
// long as the arrays lie where they lay.
static uint64_t shape_array(const berth_plan *plan, size_t index, const berth_tensor *from) {
    const berth_device_batch *batch = &plan->device_batch;
    int64_t *shape = batch->extents[index].shape;
    int64_t *strides = batch->extents[index].strides;
    berth_tensor *to = &batch->tensors[index];
    to->ndim = from->ndim;
    to->dtype = from->dtype;
    shape[0] = from->shape[0] + padding_of(plan, index);
    shape[1] = from->ndim > 1 ? from->shape[1] : 1;
    strides[0] = 1;
    strides[1] = 1;
    if (is_table(plan, index)) {
        const int64_t widest =
            (int64_t)(batch->capacities[index] / sizeof(int32_t)) / plan->request.max_sequences;
        strides[0] = shape[1] < widest ? widest : shape[1];
    }
    return berth_dtype_bytes(to->dtype, (uint64_t)shape[0] * (uint64_t)strides[0]);
}

// One array behind the other. *out_has_moved: one lies elsewhere than in the last step.
static berth_status pack_arrays(berth_plan *plan, const berth_batch_view *view,
                                bool *out_has_moved) {
    berth_device_batch *batch = &plan->device_batch;
    const uint64_t alignment = berth_runtime_alignment(plan->runtime);
    batch->used = 0;
    for (size_t i = 0; i < BERTH_BATCH_ARRAYS + 2 * batch->group_count; ++i) {
        berth_tensor *to = &batch->tensors[i];
        const uint64_t bytes = shape_array(plan, i, source_of(plan, view, i));
        if (bytes > batch->capacities[i]) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "array %zu of the batch has %llu bytes, at most %llu fit", i,
                              (unsigned long long)bytes, (unsigned long long)batch->capacities[i]);
        }
        *out_has_moved = *out_has_moved || to->byte_offset != batch->used;
        to->byte_offset = batch->used;
        batch->used += (bytes + alignment - 1) / alignment * alignment;
    }
    for (size_t i = 0; *out_has_moved && i < plan->device_inputs.count; ++i) {
        const berth_plan_input *input = &plan->device_inputs.data[i];
        plan->storages.data[input->operand->storage].offset =
            batch->tensors[input->array].byte_offset;
    }
    return BERTH_OK;
}

// What is needed of an array, in its place. Why not all columns of a table: with 256 sequences of
// up to 8,192 tokens that is half a megabyte a step, which the device would wait for.
static void copy_rows(uint8_t *to, const berth_tensor *from, const int64_t *strides) {
    const uint8_t *at = (const uint8_t *)from->data + from->byte_offset;
    const int64_t columns = from->ndim > 1 ? from->shape[1] : 1;
    if (from->ndim < 2 || (columns == from->strides[0] && columns == strides[0])) {
        memcpy(to, at, berth_dtype_bytes(from->dtype, (uint64_t)(from->shape[0] * columns)));
        return;
    }
    const uint64_t bytes = berth_dtype_bytes(from->dtype, (uint64_t)columns);
    const uint64_t gap = berth_dtype_bytes(from->dtype, (uint64_t)from->strides[0]);
    const uint64_t row = berth_dtype_bytes(from->dtype, (uint64_t)strides[0]);
    for (int64_t i = 0; i < from->shape[0]; ++i) {
        memcpy(to + (uint64_t)i * row, at + (uint64_t)i * gap, bytes);
    }
}

// Sequences of one token that read the null block alone and leave nothing: the token 0 at position
// 0, in row after row, its keys and values stored nowhere.
static void fill_up(const berth_plan *plan, size_t index, uint8_t *array) {
    const berth_tensor *tensor = &plan->device_batch.tensors[index];
    const int64_t first = tensor->shape[0] - padding_of(plan, index);
    const int64_t tokens = plan->batch.token_count - plan->padding.sequences; // somebody's
    int32_t *ids = (int32_t *)(void *)array;
    int64_t *slots = (int64_t *)(void *)array;
    for (int64_t i = first; i < tensor->shape[0]; ++i) {
        if (is_table(plan, index)) {
            memset(ids + i * tensor->strides[0], 0, (size_t)tensor->shape[1] * sizeof *ids);
        } else if (index >= BERTH_BATCH_ARRAYS) {
            slots[i] = -1;
        } else {
            ids[i] = index == QUERY_START_LOC ? (int32_t)(tokens + i - first + 1)
                     : index == LOGITS_ROWS   ? (int32_t)(tokens + i - first)
                                              : index == SEQ_LENS;
        }
    }
}

static uint64_t settled(const berth_plan *plan) {
    const berth_runtime_counters *counters = berth_runtime_counted(plan->runtime);
    return counters->to_host + counters->waits;
}

// One copy for all arrays, which need not be done when the first forward is queued behind it.
static berth_status send_arrays(berth_plan *plan, const berth_batch_view *view) {
    berth_device_batch *batch = &plan->device_batch;
    if (batch->is_staged && batch->staged_at == settled(plan)) {
        BERTH_TRY(berth_runtime_wait(plan->runtime)); // the last step's copy may still read
    }
    for (size_t i = 0; i < BERTH_BATCH_ARRAYS + 2 * batch->group_count; ++i) {
        uint8_t *to = batch->staging + batch->tensors[i].byte_offset;
        copy_rows(to, source_of(plan, view, i), batch->extents[i].strides);
        fill_up(plan, i, to);
    }
    batch->is_staged = true;
    batch->staged_at = settled(plan);
    return berth_runtime_queue(plan->runtime, batch->buffer, 0, batch->staging, batch->used);
}

static void point_inputs(berth_plan *plan, const berth_batch_view *view) {
    for (size_t i = 0; i < plan->inputs.count; ++i) {
        berth_operand *operand = plan->inputs.data[i].operand;
        const berth_tensor *array = host_array(view, plan->inputs.data[i].array);
        operand->tensor.data = array->data;
        operand->tensor.byte_offset = array->byte_offset;
    }
}

berth_status berth_batch_begin(berth_plan *plan, const berth_batch *batch, berth_padding padding) {
    bool has_moved = false;
    plan->batch = *batch;
    plan->batch.token_count += padding.sequences;
    plan->batch.sequence_count += padding.sequences;
    plan->batch.logits_row_count += padding.rows;
    plan->padding = padding;
    plan->batch.device = plan->is_host ? batch->host : &plan->device_batch.view;
    if (!plan->is_host) {
        BERTH_TRY(pack_arrays(plan, batch->host, &has_moved));
    }
    const int64_t tokens = plan->batch.token_count;
    const int64_t rows = plan->batch.logits_row_count;
    if (has_moved || plan->tokens != tokens || plan->rows != rows) {
        berth_layout_update(plan, tokens, rows);
        berth_plan_activate(plan);
    }
    point_inputs(plan, batch->host);
    return plan->is_host ? BERTH_OK : send_arrays(plan, batch->host);
}
