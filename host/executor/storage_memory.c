// SPDX-License-Identifier: Apache-2.0
// Input: storages with sizes and, where planned, offsets. Output: their memory, and operands that
// point into it. All of it is allocated before the first step and freed with the plan.
#include "executor/stages.h"

#include <string.h>

#include "base/memory.h"

#define HOST_ALIGNMENT 64

// ---- one storage --------------------------------------------------------------------------------

static void bind_operands(berth_plan *plan, uint32_t index, void *data) {
    for (size_t i = 0; i < plan->operands.count; ++i) {
        berth_operand *operand = plan->operands.data[i];
        if (operand->storage == index) {
            operand->tensor.data = data;
        }
    }
}

static berth_status alloc_host(uint64_t bytes, void **out_memory) {
    *out_memory = bytes < SIZE_MAX / 2 ? berth_alloc_aligned(HOST_ALIGNMENT, bytes) : NULL;
    return *out_memory != NULL ? BERTH_OK
                               : BERTH_FAIL(OUT_OF_MEMORY, "no host memory for %llu bytes",
                                            (unsigned long long)bytes);
}

static bool is_in_weights(const berth_plan *plan, const berth_storage *storage) {
    return plan->is_host && storage->space == BERTH_SPACE_DEVICE &&
           (storage->kind == BERTH_STORAGE_PARAMETER || storage->kind == BERTH_STORAGE_PACKED);
}

static uint64_t aligned(const berth_plan *plan, uint64_t bytes) {
    const uint64_t alignment = berth_runtime_alignment(plan->runtime);
    return (bytes + alignment - 1) / alignment * alignment;
}

// Where memory is the host's, all weights lie in one block. Why: what is left of a weight behind
// its last large page would lie in small ones, which are slower to read; of 1 B parameters in 4
// bits that is a seventh.
static berth_status create_weights(berth_plan *plan) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->storages.count; ++i) {
        const berth_storage *storage = &plan->storages.data[i];
        const uint64_t more = is_in_weights(plan, storage) ? aligned(plan, storage->bytes) : 0;
        if (__builtin_add_overflow(bytes, more, &bytes)) {
            return BERTH_FAIL(OUT_OF_MEMORY, "the weights of graph '%s' are too large",
                              plan->graph->name);
        }
    }
    BERTH_TRY(berth_runtime_alloc(plan->runtime, bytes, &plan->weights));
    berth_memory_fill_soon(plan->weights.base, bytes);
    return BERTH_OK;
}

static berth_status alloc_on_device(berth_plan *plan, berth_storage *storage) {
    if (!is_in_weights(plan, storage)) {
        return berth_runtime_alloc(plan->runtime, storage->bytes, &storage->buffer);
    }
    BERTH_TRY(plan->weights.base != NULL ? BERTH_OK : create_weights(plan));
    storage->buffer = (berth_buffer){
        .base = (char *)plan->weights.base + plan->weights_used,
        .bytes = storage->bytes,
    };
    plan->weights_used += aligned(plan, storage->bytes);
    return BERTH_OK;
}

berth_status berth_storage_alloc(berth_plan *plan, uint32_t index) {
    berth_storage *storage = &plan->storages.data[index];
    if (storage->space == BERTH_SPACE_DEVICE) {
        BERTH_TRY(alloc_on_device(plan, storage));
        bind_operands(plan, index, storage->buffer.base);
    } else {
        BERTH_TRY(alloc_host(storage->bytes, &storage->memory));
        bind_operands(plan, index, storage->memory);
    }
    return BERTH_OK;
}

// A part of the block of weights only forgets where it lay.
static void free_memory(const berth_plan *plan, berth_storage *storage) {
    if (is_in_weights(plan, storage)) {
        storage->buffer = (berth_buffer){0};
    }
    berth_runtime_free(plan->runtime, &storage->buffer);
    berth_free(storage->memory);
    storage->memory = NULL;
}

berth_status berth_storage_write(berth_plan *plan, uint32_t index, const void *data,
                                 uint64_t bytes) {
    const berth_storage *storage = &plan->storages.data[index];
    if (storage->space == BERTH_SPACE_DEVICE) {
        return berth_runtime_upload(plan->runtime, storage->buffer, 0, data, bytes);
    }
    memcpy(storage->memory, data, bytes);
    return BERTH_OK;
}

void berth_storage_free(berth_plan *plan, uint32_t index) {
    free_memory(plan, &plan->storages.data[index]);
    bind_operands(plan, index, NULL);
}

void berth_weights_free(berth_plan *plan) {
    berth_runtime_free(plan->runtime, &plan->weights);
    plan->weights_used = 0;
}

berth_buffer berth_operand_buffer(const berth_plan *plan, const berth_operand *operand) {
    const berth_storage *storage = &plan->storages.data[operand->storage];
    return storage->kind == BERTH_STORAGE_PLANNED ? plan->device_block
           : storage->kind == BERTH_STORAGE_INPUT ? plan->device_batch.buffer
                                                  : storage->buffer;
}

// ---- blocks -------------------------------------------------------------------------------------

static berth_status create_results(berth_plan *plan) {
    for (size_t i = 0; i < plan->graph->output_count; ++i) {
        berth_plan_result *result = &plan->results[i];
        const bool is_on_device =
            plan->storages.data[result->operand->storage].space == BERTH_SPACE_DEVICE;
        result->tensor = result->operand->tensor;
        if (is_on_device && !plan->is_host) {
            BERTH_TRY(berth_runtime_alloc_host(
                plan->runtime, berth_value_bytes(plan, result->operand->value), &result->memory));
        }
        if (BERTH_DTYPE_BITS(result->tensor.dtype) == 16) {
            void *floats = NULL;
            BERTH_TRY(alloc_host(2 * berth_value_bytes(plan, result->operand->value), &floats));
            result->floats = floats;
        }
    }
    return BERTH_OK;
}

// Operands of planned storages find the block of their space.
static void bind_planned(berth_plan *plan, berth_space space, void *block) {
    for (size_t i = 0; i < plan->operands.count; ++i) {
        berth_operand *operand = plan->operands.data[i];
        const berth_storage *storage = &plan->storages.data[operand->storage];
        if (storage->kind == BERTH_STORAGE_PLANNED && storage->space == space) {
            operand->tensor.data = block;
            operand->tensor.byte_offset = storage->offset;
        }
    }
}

berth_status berth_device_block_alloc(berth_plan *plan) {
    BERTH_TRY_NOTE(berth_runtime_alloc(plan->runtime, plan->block_bytes[BERTH_SPACE_DEVICE],
                                       &plan->device_block),
                   "activations of a step of %lld tokens", (long long)plan->request.max_tokens);
    bind_planned(plan, BERTH_SPACE_DEVICE, plan->device_block.base);
    return BERTH_OK;
}

berth_status berth_blocks_create(berth_plan *plan) {
    for (int space = 0; space < BERTH_SPACE_COUNT; ++space) {
        BERTH_TRY(berth_memory_assign(plan, (berth_space)space));
    }
    BERTH_TRY(berth_device_block_alloc(plan));
    BERTH_TRY(alloc_host(plan->block_bytes[BERTH_SPACE_HOST], &plan->host_block));
    bind_planned(plan, BERTH_SPACE_HOST, plan->host_block);
    return create_results(plan);
}

void berth_blocks_destroy(berth_plan *plan) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        free_memory(plan, &plan->storages.data[i]);
        berth_runtime_free_host(plan->runtime, plan->storages.data[i].kept);
    }
    berth_weights_free(plan);
    for (size_t i = 0; plan->results != NULL && i < plan->graph->output_count; ++i) {
        berth_runtime_free_host(plan->runtime, plan->results[i].memory);
        berth_free(plan->results[i].floats);
    }
    berth_runtime_free_host(plan->runtime, plan->choice.memory);
    berth_draw_destroy(plan);
    berth_runtime_free_host(plan->runtime, plan->device_batch.staging);
    berth_runtime_free(plan->runtime, &plan->device_batch.buffer);
    berth_runtime_free(plan->runtime, &plan->device_block);
    berth_free(plan->host_block);
}
