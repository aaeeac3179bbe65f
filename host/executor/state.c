// SPDX-License-Identifier: Apache-2.0
// Input: the states of the graph and who uses them. Output: one storage per state, in host memory
// as soon as one of its users runs there; an op that would need it in both spaces is refused, since
// copying a cache forth and back every step is never what was meant.
#include "executor/stages.h"

#include <string.h>

static berth_operand **home_of(const berth_plan *plan, berth_value root, berth_space space) {
    return &plan->homes[(size_t)root * BERTH_SPACE_COUNT + space];
}

static berth_status refuse_mix(const berth_plan *plan, berth_value root, const berth_binding *one,
                               const berth_binding *other) {
    const berth_graph_value *state = &plan->graph->values[root];
    const berth_binding *host = one->space == BERTH_SPACE_HOST ? one : other;
    const berth_binding *device = one->space == BERTH_SPACE_HOST ? other : one;
    return BERTH_FAIL(UNSUPPORTED,
                      "state %llu of layer '%s' is used by op '%s' on the device and by op '%s' on "
                      "the host (%s); both must run in one place, for instance with custom_ops -%s",
                      (unsigned long long)state->state, state->name, device->op->op.name,
                      host->op->op.name, host->record.reason, device->op->op.name);
}

static berth_status add_state(berth_plan *plan, berth_value root, uint64_t index,
                              const berth_binding *binding) {
    const char *layer = plan->graph->values[root].name;
    const bool is_cache = berth_plan_cache(plan, layer) != NULL;
    const berth_storage storage = {
        .kind = is_cache ? BERTH_STORAGE_CACHE : BERTH_STORAGE_STATE,
        .space = binding->space,
        .value = root,
        .bytes = berth_value_bytes(plan, root),
        .binding = binding,
        .input = index,
    };
    plan->needs_cache = plan->needs_cache || is_cache;
    uint32_t added = 0;
    BERTH_TRY(berth_storage_add(plan, storage, &added));
    berth_operand **home = home_of(plan, root, binding->space);
    BERTH_TRY(berth_operand_add(plan, root, added, home));
    const berth_value_type *type = &plan->graph->values[root].type;
    for (uint32_t i = 0; i < type->ndim; ++i) {
        (*home)->shape[i] = type->dims[i].b;
    }
    berth_layout_dense((*home)->shape, type->ndim, (*home)->strides);
    (*home)->tensor.shape = (*home)->shape;
    (*home)->tensor.strides = (*home)->strides;
    return BERTH_OK;
}

static berth_status place_state(berth_plan *plan, berth_value state, uint64_t index,
                                const berth_binding *binding) {
    const berth_value root = plan->layouts[state].root;
    const berth_space other =
        binding->space == BERTH_SPACE_HOST ? BERTH_SPACE_DEVICE : BERTH_SPACE_HOST;
    const berth_operand *elsewhere = *home_of(plan, root, other);
    if (elsewhere != NULL) {
        return refuse_mix(plan, root, plan->storages.data[elsewhere->storage].binding, binding);
    }
    return *home_of(plan, root, binding->space) != NULL ? BERTH_OK
                                                        : add_state(plan, root, index, binding);
}

berth_status berth_states_place(berth_plan *plan) {
    size_t bound = 0;
    for (size_t i = 0; i < plan->graph->node_count; ++i) {
        const berth_graph_node *node = &plan->graph->nodes[i];
        if (node->kind != BERTH_NODE_OP) {
            continue;
        }
        const berth_binding *binding = plan->bindings.data[bound++];
        for (size_t j = 0; j < node->state_count; ++j) {
            if (node->states[j] != BERTH_VALUE_NONE) {
                BERTH_TRY(place_state(plan, node->states[j], j, binding));
            }
        }
    }
    return BERTH_OK;
}

// The first bytes zero, in pieces, so that no host copy as large as the state is needed.
static berth_status clear(berth_plan *plan, uint32_t index, uint64_t bytes) {
    static const unsigned char zeros[4096];
    const berth_storage *storage = &plan->storages.data[index];
    for (uint64_t at = 0; at < bytes; at += sizeof(zeros)) {
        const uint64_t left = bytes - at;
        const uint64_t piece = left < sizeof(zeros) ? left : sizeof(zeros);
        if (storage->space == BERTH_SPACE_DEVICE) {
            BERTH_TRY(berth_runtime_upload(plan->runtime, storage->buffer, at, zeros, piece));
        } else {
            memcpy((char *)storage->memory + at, zeros, piece);
        }
    }
    return BERTH_OK;
}

berth_status berth_states_create(berth_plan *plan) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        if (plan->storages.data[i].kind == BERTH_STORAGE_STATE) {
            BERTH_TRY(berth_storage_alloc(plan, i));
            BERTH_TRY(clear(plan, i, plan->storages.data[i].bytes));
        }
    }
    return BERTH_OK;
}

// ---- KV caches ----------------------------------------------------------------------------------

static const char *layer_of(const berth_plan *plan, const berth_storage *storage) {
    return plan->graph->values[storage->value].name;
}

static bool is_slots(const berth_plan *plan, const berth_storage *storage) {
    return berth_plan_cache(plan, layer_of(plan, storage))->is_state != 0;
}

// The slots stand in front of what the layer keeps of one sequence.
static berth_cache_shape slots_shape(const berth_value_type *type, int64_t slots) {
    berth_cache_shape shape = {.extents = {slots}, .ndim = type->ndim + 1};
    for (uint32_t i = 0; i < type->ndim; ++i) {
        shape.extents[i + 1] = type->dims[i].b;
    }
    return shape;
}

static berth_status shape_cache(berth_plan *plan, uint32_t index, int64_t num_blocks) {
    berth_storage *storage = &plan->storages.data[index];
    berth_operand *operand = *home_of(plan, storage->value, storage->space);
    berth_cache_shape shape;
    if (is_slots(plan, storage)) {
        shape = slots_shape(&plan->graph->values[storage->value].type, num_blocks);
    } else {
        BERTH_TRY(berth_backend_shape(plan, storage->binding, storage->input, num_blocks, &shape));
    }
    int64_t elements = 1;
    for (uint32_t i = 0; i < shape.ndim; ++i) {
        if (__builtin_mul_overflow(elements, shape.extents[i], &elements) ||
            elements > INT64_MAX / 64) {
            return BERTH_FAIL(OUT_OF_MEMORY, "a cache of %lld blocks is too large",
                              (long long)num_blocks);
        }
        operand->shape[i] = shape.extents[i];
    }
    berth_layout_dense(operand->shape, shape.ndim, operand->strides);
    operand->tensor.ndim = (int32_t)shape.ndim;
    storage->bytes = berth_dtype_bytes(operand->tensor.dtype, (uint64_t)elements);
    return BERTH_OK;
}

static int64_t count_blocks(const berth_kv_cache_spec *cache, const berth_kv_cache_config *config) {
    if (config->group_blocks != NULL) {
        return cache->group < config->group_count ? config->group_blocks[cache->group] : 0;
    }
    return cache->is_state != 0 ? config->state_slots : config->num_blocks;
}

// Why the null block is cleared: sequences that fill a step up read it, and numbers that are none
// would wander through whatever is chosen by comparing.
static berth_status alloc_cache(berth_plan *plan, uint32_t index) {
    const berth_storage *storage = &plan->storages.data[index];
    const int64_t blocks = (*home_of(plan, storage->value, storage->space))->shape[0];
    BERTH_TRY(berth_storage_alloc(plan, index));
    return plan->capture_count > 0 ? clear(plan, index, storage->bytes / (uint64_t)blocks)
                                   : BERTH_OK;
}

static berth_status create_cache(berth_plan *plan, uint32_t index,
                                 const berth_kv_cache_config *config) {
    const berth_storage *storage = &plan->storages.data[index];
    const bool has_slots = is_slots(plan, storage);
    const char *layer = layer_of(plan, storage);
    const int64_t count = count_blocks(berth_plan_cache(plan, layer), config);
    if (count < 1) {
        return BERTH_FAIL(INVALID_ARGUMENT, "layer '%s': a cache of %lld %s, at least 1 is needed",
                          layer, (long long)count, has_slots ? "slots" : "blocks");
    }
    BERTH_TRY_NOTE(shape_cache(plan, index, count), "cache of layer '%s'", layer);
    BERTH_TRY_NOTE(alloc_cache(plan, index), "cache of layer '%s', %lld %s", layer,
                   (long long)count, has_slots ? "slots" : "blocks");
    return BERTH_OK;
}

static berth_status create_caches(berth_plan *plan, const berth_kv_cache_config *config) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        if (plan->storages.data[i].kind == BERTH_STORAGE_CACHE) {
            BERTH_TRY(create_cache(plan, i, config));
        }
    }
    return BERTH_OK;
}

void berth_caches_free(berth_plan *plan) {
    berth_recordings_drop(plan);
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        if (plan->storages.data[i].kind == BERTH_STORAGE_CACHE) {
            berth_storage_free(plan, i);
            plan->needs_cache = true;
        }
    }
}

static berth_status alloc_caches(berth_plan *plan) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        const berth_storage *storage = &plan->storages.data[i];
        if (storage->kind == BERTH_STORAGE_CACHE) {
            BERTH_TRY_NOTE(alloc_cache(plan, i), "cache of layer '%s'", layer_of(plan, storage));
        }
    }
    return BERTH_OK;
}

berth_status berth_caches_alloc(berth_plan *plan) {
    const berth_status status = alloc_caches(plan);
    if (status != BERTH_OK) {
        berth_caches_free(plan);
        return status;
    }
    plan->needs_cache = false;
    return BERTH_OK;
}

berth_status berth_plan_set_cache(berth_plan *plan, const berth_kv_cache_config *config) {
    if (!plan->is_ready) {
        return BERTH_FAIL(WRONG_STATE, "the cache comes after berth_plan_ready");
    }
    berth_caches_free(plan);
    const berth_status status = create_caches(plan, config);
    if (status != BERTH_OK) {
        berth_caches_free(plan);
        return status;
    }
    plan->needs_cache = false;
    return BERTH_OK;
}

// ---- from outside -------------------------------------------------------------------------------

static berth_status find_state(const berth_plan *plan, const char *layer, uint64_t index,
                               uint64_t bytes, const berth_storage **out_storage) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        const berth_storage *storage = &plan->storages.data[i];
        const bool is_state =
            storage->kind == BERTH_STORAGE_STATE || storage->kind == BERTH_STORAGE_CACHE;
        const berth_graph_value *value = &plan->graph->values[storage->value];
        if (!is_state || value->state != index || strcmp(value->name, layer) != 0) {
            continue;
        }
        if (storage->bytes != bytes) {
            return BERTH_FAIL(INVALID_ARGUMENT, "state %llu of layer '%s' has %llu bytes, not %llu",
                              (unsigned long long)index, layer, (unsigned long long)storage->bytes,
                              (unsigned long long)bytes);
        }
        *out_storage = storage;
        return BERTH_OK;
    }
    return BERTH_FAIL(NOT_FOUND, "the plan has no state %llu of layer '%s'",
                      (unsigned long long)index, layer);
}

static berth_status check_memory(const berth_plan *plan, const char *layer) {
    return plan->is_ready && !plan->needs_cache
               ? BERTH_OK
               : BERTH_FAIL(WRONG_STATE, "the states of layer '%s' have no memory yet", layer);
}

berth_status berth_plan_write_state(berth_plan *plan, const char *layer, uint64_t index,
                                    const void *data, uint64_t bytes) {
    const berth_storage *storage = NULL;
    BERTH_TRY(check_memory(plan, layer));
    BERTH_TRY(find_state(plan, layer, index, bytes, &storage));
    return berth_storage_write(plan, (uint32_t)(storage - plan->storages.data), data, bytes);
}

berth_status berth_plan_read_state(berth_plan *plan, const char *layer, uint64_t index, void *data,
                                   uint64_t bytes) {
    const berth_storage *storage = NULL;
    BERTH_TRY(check_memory(plan, layer));
    BERTH_TRY(find_state(plan, layer, index, bytes, &storage));
    if (storage->space == BERTH_SPACE_DEVICE) {
        return berth_runtime_download(plan->runtime, data, storage->buffer, 0, bytes);
    }
    memcpy(data, storage->memory, bytes);
    return BERTH_OK;
}
