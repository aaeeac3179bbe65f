// SPDX-License-Identifier: Apache-2.0
// Input: one weight at a time in host memory. Output: its resident copies: as stored in each space
// where an op reads it so, and packed for every site that wants it packed.
#include "executor/stages.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"

// The packed form of a storage, as an implementation gets it.
typedef struct packed_form {
    int64_t shape[1];
    int64_t strides[1];
    berth_tensor tensor;
} packed_form;

static const berth_tensor *packed_at(const berth_storage *storage, void *memory, packed_form *out) {
    out->shape[0] = (int64_t)storage->bytes;
    out->strides[0] = 1;
    out->tensor = (berth_tensor){
        .size = sizeof out->tensor,
        .data = memory,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = 1,
        .dtype = BERTH_DTYPE_U8,
        .shape = out->shape,
        .strides = out->strides,
    };
    return &out->tensor;
}

// The packed form goes straight into host memory, by way of a temporary into a device's.
static berth_status pack(const berth_plan *plan, uint32_t index, const berth_tensor *source,
                         void *destination) {
    const berth_storage *storage = &plan->storages.data[index];
    packed_form to;
    return berth_impl_pack(storage->binding, storage->input, source,
                           packed_at(storage, destination, &to));
}

static berth_status pack_and_upload(berth_plan *plan, uint32_t index, const berth_tensor *source) {
    const uint64_t bytes = plan->storages.data[index].bytes;
    void *memory = berth_alloc_aligned(64, bytes);
    if (memory == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no host memory for %llu bytes of a packed weight",
                          (unsigned long long)bytes);
    }
    berth_status status = pack(plan, index, source, memory);
    if (status == BERTH_OK) {
        status = berth_storage_write(plan, index, memory, bytes);
    }
    berth_free(memory);
    return status;
}

static berth_status begin(berth_plan *plan, uint32_t index) {
    berth_storage *storage = &plan->storages.data[index];
    BERTH_TRY(berth_storage_alloc(plan, index));
    storage->is_set = true;
    plan->parameter_bytes += storage->bytes;
    return BERTH_OK;
}

static void *host_memory(const berth_storage *storage) {
    return storage->space == BERTH_SPACE_HOST ? storage->memory : storage->buffer.base;
}

static berth_status fill(berth_plan *plan, uint32_t index, const berth_tensor *source,
                         uint64_t bytes) {
    const berth_storage *storage = &plan->storages.data[index];
    BERTH_TRY(begin(plan, index));
    if (storage->kind == BERTH_STORAGE_PARAMETER) {
        return berth_storage_write(plan, index, source->data, bytes);
    }
    if (storage->space == BERTH_SPACE_DEVICE && !plan->is_host) {
        return pack_and_upload(plan, index, source);
    }
    return pack(plan, index, source, host_memory(storage));
}

static bool is_copy_of(const berth_storage *storage, berth_value parameter) {
    return storage->value == parameter &&
           (storage->kind == BERTH_STORAGE_PARAMETER || storage->kind == BERTH_STORAGE_PACKED);
}

static berth_status check_parameter(const berth_plan *plan, berth_value parameter, uint64_t bytes) {
    if (parameter == BERTH_VALUE_NONE || parameter >= plan->graph->value_count ||
        plan->graph->values[parameter].kind != BERTH_VALUE_PARAMETER) {
        return BERTH_FAIL(INVALID_ARGUMENT, "value %%%u is no parameter", (unsigned)parameter);
    }
    const char *name = plan->graph->values[parameter].name;
    const uint64_t wanted = berth_value_bytes(plan, parameter);
    if (bytes != wanted) {
        return BERTH_FAIL(INVALID_ARGUMENT, "parameter '%s' has %llu bytes, %llu were given", name,
                          (unsigned long long)wanted, (unsigned long long)bytes);
    }
    for (size_t i = 0; i < plan->storages.count; ++i) {
        if (is_copy_of(&plan->storages.data[i], parameter) && plan->storages.data[i].is_set) {
            return BERTH_FAIL(WRONG_STATE, "parameter '%s' is set twice", name);
        }
    }
    return BERTH_OK;
}

berth_status berth_plan_set_parameter(berth_plan *plan, berth_value parameter, const void *data,
                                      uint64_t bytes) {
    if (plan->is_ready) {
        return BERTH_FAIL(WRONG_STATE, "parameters come before berth_plan_ready");
    }
    BERTH_TRY(check_parameter(plan, parameter, bytes));
    const berth_value_type *type = &plan->graph->values[parameter].type;
    int64_t shape[BERTH_MAX_DIMS];
    int64_t strides[BERTH_MAX_DIMS];
    for (uint32_t i = 0; i < type->ndim; ++i) {
        shape[i] = type->dims[i].b;
    }
    berth_layout_dense(shape, type->ndim, strides);
    const berth_tensor source = {
        .size = sizeof(source),
        .data = (void *)(uintptr_t)data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = (int32_t)type->ndim,
        .dtype = type->dtype,
        .shape = shape,
        .strides = strides,
    };
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        if (is_copy_of(&plan->storages.data[i], parameter)) {
            BERTH_TRY_NOTE(fill(plan, i, &source, bytes), "parameter '%s'",
                           plan->graph->values[parameter].name);
        }
    }
    return BERTH_OK;
}

// ---- rows ---------------------------------------------------------------------------------------

static bool takes_rows(const berth_plan *plan, const berth_storage *storage) {
    const bool is_here = plan->is_host || storage->space == BERTH_SPACE_HOST;
    return is_here &&
           (storage->kind == BERTH_STORAGE_PARAMETER || berth_impl_packs_rows(storage->binding));
}

bool berth_plan_takes_rows(const berth_plan *plan, berth_value parameter) {
    bool takes = plan->graph->values[parameter].type.ndim >= 2;
    for (uint32_t i = 0; i < plan->storages.count && takes; ++i) {
        const berth_storage *storage = &plan->storages.data[i];
        takes = !is_copy_of(storage, parameter) || takes_rows(plan, storage);
    }
    return takes;
}

berth_status berth_plan_begin_rows(berth_plan *plan, berth_value parameter) {
    BERTH_TRY(check_parameter(plan, parameter, berth_value_bytes(plan, parameter)));
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        const berth_storage *storage = &plan->storages.data[i];
        if (is_copy_of(storage, parameter)) {
            BERTH_TRY(begin(plan, i));
            if (storage->memory != NULL) {
                berth_memory_fill_soon(storage->memory, storage->bytes);
            }
        }
    }
    return BERTH_OK;
}

static berth_status set_rows(const berth_storage *storage, const berth_tensor *rows,
                             int64_t first) {
    const int64_t row_bytes = rows->shape[1] * (int64_t)BERTH_DTYPE_BITS(rows->dtype) / 8;
    packed_form to;
    if (storage->kind == BERTH_STORAGE_PACKED) {
        return berth_impl_pack_rows(storage->binding, storage->input, rows, first,
                                    packed_at(storage, host_memory(storage), &to));
    }
    memcpy((char *)host_memory(storage) + first * row_bytes, rows->data,
           (size_t)(rows->shape[0] * row_bytes));
    return BERTH_OK;
}

berth_status berth_plan_set_rows(const berth_plan *plan, berth_value parameter, int64_t first,
                                 int64_t count, const void *data) {
    const berth_value_type *type = &plan->graph->values[parameter].type;
    const int64_t shape[] = {count, type->dims[type->ndim - 1].b};
    const int64_t strides[] = {shape[1], 1};
    const berth_tensor rows = {
        .size = sizeof rows,
        .data = (void *)(uintptr_t)data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = 2,
        .dtype = type->dtype,
        .shape = shape,
        .strides = strides,
    };
    assert(!plan->is_ready && first % BERTH_PACK_ROWS == 0);
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        if (is_copy_of(&plan->storages.data[i], parameter)) {
            BERTH_TRY_NOTE(set_rows(&plan->storages.data[i], &rows, first), "parameter '%s'",
                           plan->graph->values[parameter].name);
        }
    }
    return BERTH_OK;
}

berth_status berth_plan_check_parameters(const berth_plan *plan) {
    for (size_t i = 0; i < plan->storages.count; ++i) {
        const berth_storage *storage = &plan->storages.data[i];
        if (is_copy_of(storage, storage->value) && !storage->is_set) {
            return BERTH_FAIL(WRONG_STATE, "parameter '%s' has not been set",
                              plan->graph->values[storage->value].name);
        }
    }
    return BERTH_OK;
}
