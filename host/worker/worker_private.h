// SPDX-License-Identifier: Apache-2.0
// Private to worker/: the host's side of a worker, and what the default one keeps.
#ifndef BERTH_WORKER_WORKER_PRIVATE_H
#define BERTH_WORKER_WORKER_PRIVATE_H

#include "base/arena.h"
#include "model/model.h"
#include "worker/sampler.h"
#include "worker/worker.h"

// Where a worker is in its life. Bits, so that a slot can name the set it is allowed in.
typedef enum berth_worker_state {
    BERTH_WORKER_CREATED = 1,
    BERTH_WORKER_BOUND = 2,    // init_device
    BERTH_WORKER_LOADED = 4,   // load_model
    BERTH_WORKER_CACHED = 8,   // initialize_from_config
    BERTH_WORKER_READY = 16,   // compile_or_warm_up_model, or a finished step
    BERTH_WORKER_PENDING = 32, // execute_model, before sample_tokens
    BERTH_WORKER_ASLEEP = 64,
    BERTH_WORKER_SHUT_DOWN = 128,
} berth_worker_state;

// What the default worker keeps behind `base`. Zeroed until its slots run.
typedef struct berth_default_worker {
    const berth_config *config;           // borrowed
    const berth_registry *registry;       // borrowed
    const berth_platform_entry *platform; // borrowed, NULL: native host execution
    berth_arena *arena;                   // borrowed
    berth_runtime *runtime;
    berth_dtype activation; // between ops
    berth_model_build *build;
    berth_plan *plan;
    int64_t max_model_len;
    int64_t num_blocks;
    uint64_t cache_bytes; // of device memory
    uint64_t sleep_level; // of the last sleep
    berth_sampler sampler;
} berth_default_worker;

// One object: what plugins see, then what only the host knows.
typedef struct berth_worker_object {
    berth_worker worker; // first, so that a berth_worker * is one of these
    berth_worker_api merged;
    berth_arena *arena; // owned; this object lives in it
    berth_worker_state state;
    uint64_t asleep;          // BERTH_SLEEP_*, of what wake_up has not brought back
    const berth_owner *owner; // of the platform, NULL for native host execution
    berth_default_worker base;
} berth_worker_object;

// The type of activations. With --dtype auto that of the checkpoint, `stored`; where the platform
// lists types and this is none of them, the first of those.
berth_dtype berth_activation_choose(const berth_config *config,
                                    const berth_platform_entry *platform, berth_dtype stored);
// UNSUPPORTED when the user named a type that the platform does not list. With --allow-fallback the
// host's own ops may still have it, and every op is asked for itself.
BERTH_MUST_CHECK berth_status berth_activation_check(const berth_config *config,
                                                     const berth_platform_entry *platform);

// The model of a checkpoint: graph, weights, caches.
BERTH_MUST_CHECK berth_status berth_worker_create_build(const berth_default_worker *base,
                                                        const berth_checkpoint *checkpoint,
                                                        berth_model_build **out_build);
// Its graph becomes what the passes make of it for the platform; the same for the same checkpoint.
BERTH_MUST_CHECK berth_status berth_worker_run_passes(const berth_default_worker *base,
                                                      berth_model_build *build);
// load.c: every weight of the build into the plan.
BERTH_MUST_CHECK berth_status berth_worker_load_weights(const berth_default_worker *base,
                                                        const berth_model_build *build);
// Records decode steps, as far as the plan can.
BERTH_MUST_CHECK berth_status berth_worker_record(berth_default_worker *base);
// sleep.c: what the slots of the default worker do.
BERTH_MUST_CHECK berth_status berth_worker_fall_asleep(berth_default_worker *base, uint64_t level);
BERTH_MUST_CHECK berth_status berth_worker_wake(berth_default_worker *base, uint64_t tags);

static inline berth_default_worker *berth_worker_base(const berth_worker *worker) {
    return worker->base;
}

#endif
