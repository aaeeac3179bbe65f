// SPDX-License-Identifier: Apache-2.0
// Sleeping and waking up, as the default worker does it: the plan gives the device's memory back
// and takes it again. Discarded weights are read from the checkpoint once more, as if for the first
// time; what lies there by then may have other numbers, not another form.
#include "worker/worker_private.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

static uint64_t held(const berth_default_worker *base) {
    return berth_runtime_counted(base->runtime)->held;
}

static void report(const berth_default_worker *base, const char *what, uint64_t start,
                   uint64_t before) {
    BERTH_INFO("worker", "%s in %llu ms: %llu bytes of device memory, %llu before", what,
               (unsigned long long)((berth_clock_ns() - start) / 1000000),
               (unsigned long long)held(base), (unsigned long long)before);
}

berth_status berth_worker_fall_asleep(berth_default_worker *base, uint64_t level) {
    const uint64_t start = berth_clock_ns();
    const uint64_t before = held(base);
    BERTH_TRY_NOTE(berth_plan_sleep(base->plan, (berth_sleep_level)level), "falling asleep");
    base->sleep_level = level;
    report(base, "asleep", start, before);
    return BERTH_OK;
}

// ---- weights again ------------------------------------------------------------------------------

static bool is_same_form(const berth_weight *one, const berth_weight *other) {
    return one->value == other->value && one->bytes == other->bytes &&
           one->type.dtype == other->type.dtype && strcmp(one->name, other->name) == 0;
}

// The plan was made for the first build: it takes weights of another one only as if they were its.
static berth_status check_build(const berth_default_worker *base, const berth_model_build *build) {
    const berth_model_build *first = base->build;
    bool is_same = first->weight_count == build->weight_count;
    for (size_t i = 0; i < build->weight_count && is_same; ++i) {
        is_same = is_same_form(&first->weights[i], &build->weights[i]);
    }
    return is_same ? BERTH_OK
                   : BERTH_FAIL(CORRUPT, "the checkpoint is of another form than when it was "
                                         "loaded first; start again to use it");
}

static berth_status load_from(berth_default_worker *base, const berth_checkpoint *checkpoint) {
    berth_model_build *build = NULL;
    berth_status status = berth_worker_create_build(base, checkpoint, &build);
    if (status == BERTH_OK) {
        status = berth_worker_run_passes(base, build);
    }
    if (status == BERTH_OK) {
        status = check_build(base, build);
    }
    if (status == BERTH_OK) {
        status = berth_worker_load_weights(base, build);
    }
    berth_model_destroy(build);
    return status;
}

static berth_status load_again(berth_default_worker *base) {
    berth_checkpoint *checkpoint = NULL;
    BERTH_TRY(berth_checkpoint_open(base->config->model, &checkpoint));
    const berth_status status = load_from(base, checkpoint);
    berth_checkpoint_close(checkpoint);
    return status;
}

static berth_status wake_weights(berth_default_worker *base) {
    const bool is_discarded = base->sleep_level == BERTH_SLEEP_DISCARD;
    berth_status status = is_discarded ? load_again(base) : BERTH_OK;
    if (status == BERTH_OK) {
        status = berth_plan_wake_up(base->plan);
    }
    if (status != BERTH_OK) {
        berth_status_note(__FILE__, __LINE__, "waking up the weights of %s", base->config->model);
        if (is_discarded) {
            berth_plan_discard_weights(base->plan);
        }
    }
    return status;
}

berth_status berth_worker_wake(berth_default_worker *base, uint64_t tags) {
    const uint64_t start = berth_clock_ns();
    const uint64_t before = held(base);
    if ((tags & BERTH_SLEEP_WEIGHTS) && berth_plan_is_asleep(base->plan)) {
        BERTH_TRY(wake_weights(base));
    }
    if (tags & BERTH_SLEEP_KV_CACHE) {
        BERTH_TRY_NOTE(berth_plan_wake_caches(base->plan), "waking up the KV cache");
    }
    BERTH_TRY_NOTE(berth_worker_record(base), "waking up"); // nothing, while a part still sleeps
    report(base, "awake", start, before);
    return BERTH_OK;
}
