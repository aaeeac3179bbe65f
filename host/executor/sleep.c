// SPDX-License-Identifier: Apache-2.0
// Input: a plan that can run. Output: one that holds no weights, caches or activations on the
// device, and from that the same plan again. All of it goes through the facade of the device table,
// so a platform has nothing to do for it.
//
// Why implementations are destroyed and created again: one may keep the place of a weight or of a
// state for its whole life, and neither comes back to where it was.
#include "executor/stages.h"

static bool is_weight(const berth_storage *storage) {
    return storage->kind == BERTH_STORAGE_PARAMETER || storage->kind == BERTH_STORAGE_PACKED;
}

// Whether its content waits in host memory: never what lies there anyway.
static bool is_kept(const berth_plan *plan, const berth_storage *storage, berth_sleep_level level) {
    const bool is_wanted =
        storage->kind == BERTH_STORAGE_STATE || (is_weight(storage) && level == BERTH_SLEEP_KEEP);
    return is_wanted && !plan->is_host && storage->space == BERTH_SPACE_DEVICE;
}

static void free_kept(berth_plan *plan) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        berth_storage *storage = &plan->storages.data[i];
        berth_runtime_free_host(plan->runtime, storage->kept);
        storage->kept = NULL;
    }
}

// ---- falling asleep -----------------------------------------------------------------------------

static berth_status keep(berth_plan *plan, berth_sleep_level level) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        berth_storage *storage = &plan->storages.data[i];
        if (is_kept(plan, storage, level) && storage->bytes > 0) {
            BERTH_TRY(berth_runtime_alloc_host(plan->runtime, storage->bytes, &storage->kept));
            BERTH_TRY(berth_runtime_download(plan->runtime, storage->kept, storage->buffer, 0,
                                             storage->bytes));
        }
    }
    return BERTH_OK;
}

static void destroy_implementations(berth_plan *plan) {
    for (size_t i = plan->bindings.count; i-- > 0;) {
        berth_impl_destroy(plan->bindings.data[i]);
    }
}

static void free_device_block(berth_plan *plan) {
    berth_runtime_free(plan->runtime, &plan->device_block);
}

static void free_kept_storages(berth_plan *plan) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        if (plan->storages.data[i].kept != NULL) {
            berth_storage_free(plan, i);
        }
    }
}

void berth_plan_discard_weights(berth_plan *plan) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        berth_storage *storage = &plan->storages.data[i];
        if (is_weight(storage) && storage->is_set) {
            berth_storage_free(plan, i);
            plan->parameter_bytes -= storage->bytes;
            storage->is_set = false;
        }
    }
    berth_weights_free(plan);
}

berth_status berth_plan_sleep(berth_plan *plan, berth_sleep_level level) {
    if (!plan->is_ready || plan->needs_cache) {
        return BERTH_FAIL(WRONG_STATE, "only a plan that can run falls asleep");
    }
    BERTH_TRY(berth_runtime_wait(plan->runtime)); // nothing queued may find its memory gone
    const berth_status status = keep(plan, level);
    if (status != BERTH_OK) {
        free_kept(plan);
        return status;
    }
    berth_caches_free(plan);
    destroy_implementations(plan);
    free_kept_storages(plan);
    free_device_block(plan);
    if (level == BERTH_SLEEP_DISCARD) {
        berth_plan_discard_weights(plan);
    }
    plan->is_ready = false;
    plan->is_asleep = true;
    plan->tokens = 0; // results are gone, and the steps to come have other implementations
    return BERTH_OK;
}

// ---- waking up ----------------------------------------------------------------------------------

static berth_status restore(berth_plan *plan) {
    for (uint32_t i = 0; i < plan->storages.count; ++i) {
        berth_storage *storage = &plan->storages.data[i];
        if (storage->kept != NULL) {
            BERTH_TRY(berth_storage_alloc(plan, i));
            BERTH_TRY(berth_runtime_queue(plan->runtime, storage->buffer, 0, storage->kept,
                                          storage->bytes));
        }
    }
    return berth_runtime_wait(plan->runtime);
}

// What the plan's memory was shared out for cannot grow any more.
static berth_status check_workspace(const berth_plan *plan, const berth_step_note *note) {
    const berth_tensor *workspace = note->args->workspace;
    const uint64_t planned = workspace != NULL ? (uint64_t)workspace->shape[0] : 0;
    const uint64_t bytes = berth_impl_workspace(plan, note->binding);
    return bytes <= planned
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL,
                            "'%s' of op '%s' of layer '%s' wants a workspace of %llu bytes after "
                            "sleeping, it wanted %llu before",
                            note->binding->record.implementation, note->binding->record.op,
                            note->binding->record.layer, (unsigned long long)bytes,
                            (unsigned long long)planned);
}

static berth_status create_implementations(berth_plan *plan) {
    for (size_t i = 0; i < plan->bindings.count; ++i) {
        BERTH_TRY(berth_impl_create(plan, plan->bindings.data[i]));
    }
    for (size_t i = 0; i < plan->steps.count; ++i) {
        const berth_step_note *note = &plan->step_notes.data[i];
        if (note->binding != NULL) {
            BERTH_TRY(check_workspace(plan, note));
            plan->steps.data[i].self = note->binding->self;
        }
    }
    return BERTH_OK;
}

static berth_status wake_up(berth_plan *plan) {
    BERTH_TRY(berth_plan_check_parameters(plan));
    BERTH_TRY(restore(plan));
    BERTH_TRY(berth_device_block_alloc(plan));
    return create_implementations(plan);
}

// Copies may still be under way to what is about to go.
static berth_status fall_back(berth_plan *plan) {
    berth_status_report failure;
    berth_status_take(&failure);
    if (berth_runtime_wait(plan->runtime) != BERTH_OK) {
        berth_status_clear();
    }
    destroy_implementations(plan);
    free_device_block(plan);
    free_kept_storages(plan);
    return berth_status_restore(&failure);
}

berth_status berth_plan_wake_up(berth_plan *plan) {
    if (!plan->is_asleep) {
        return BERTH_FAIL(WRONG_STATE, "the plan is not asleep");
    }
    if (wake_up(plan) != BERTH_OK) {
        return fall_back(plan);
    }
    free_kept(plan);
    plan->is_asleep = false;
    plan->is_ready = true;
    return BERTH_OK;
}

bool berth_plan_is_asleep(const berth_plan *plan) {
    return plan->is_asleep;
}

berth_status berth_plan_wake_caches(berth_plan *plan) {
    return plan->needs_cache ? berth_caches_alloc(plan) : BERTH_OK;
}
