// SPDX-License-Identifier: Apache-2.0
// Input: one weight at a time in host memory. Output: its resident copies: as stored in each space
// where an op reads it so, and packed for every site that wants it packed.
#include "executor/stages.h"

#include "base/memory.h"

// The packed form goes straight into host memory, by way of a temporary into a device's.
static berth_status pack(berth_plan *plan, uint32_t index, const berth_tensor *source,
                         void *destination) {
    const berth_storage *storage = &plan->storages.data[index];
    const int64_t shape[] = {(int64_t)storage->bytes};
    const int64_t strides[] = {1};
    const berth_tensor packed = {
        .size = sizeof(packed),
        .data = destination,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = 1,
        .dtype = BERTH_DTYPE_U8,
        .shape = shape,
        .strides = strides,
    };
    return berth_impl_pack(storage->binding, storage->input, source, &packed);
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

static berth_status fill(berth_plan *plan, uint32_t index, const berth_tensor *source,
                         uint64_t bytes) {
    berth_storage *storage = &plan->storages.data[index];
    BERTH_TRY(berth_storage_alloc(plan, index));
    storage->is_set = true;
    plan->parameter_bytes += storage->bytes;
    if (storage->kind == BERTH_STORAGE_PARAMETER) {
        return berth_storage_write(plan, index, source->data, bytes);
    }
    if (storage->space == BERTH_SPACE_DEVICE && !plan->is_host) {
        return pack_and_upload(plan, index, source);
    }
    return pack(plan, index, source,
                storage->space == BERTH_SPACE_HOST ? storage->memory : storage->buffer.base);
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
