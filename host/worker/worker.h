// SPDX-License-Identifier: Apache-2.0
// Workers: the default worker, the merge with a platform's table, and the lifecycle that all must
// follow.
//
// The only module that calls worker slots. Engine and CLI drive a worker through the functions
// below, which check the order, call the merged slot and name it in a failure.
#ifndef BERTH_WORKER_WORKER_H
#define BERTH_WORKER_WORKER_H

#include <berth/worker.h>

#include "base/status.h"
#include "config/config.h"
#include "executor/executor.h"
#include "model/model.h"
#include "platform/platform.h"
#include "registry/registry.h"

// Complete: every inherit slot is set, optional ones return UNSUPPORTED naming themselves.
extern const berth_worker_api berth_worker_default;

// Merges and creates; nothing of the device is touched. `platform` may be NULL (native host
// execution). Everything given outlives the worker.
BERTH_MUST_CHECK berth_status berth_worker_create(const berth_config *config,
                                                  berth_registry *registry,
                                                  const berth_platform_entry *platform,
                                                  berth_worker **out_worker);
void berth_worker_destroy(berth_worker *worker); // shutdown, then memory; takes NULL

// One function per slot, in lifecycle order. A wrong order is WRONG_STATE, saying what must come
// first.
BERTH_MUST_CHECK berth_status berth_worker_init_device(berth_worker *worker);
BERTH_MUST_CHECK berth_status berth_worker_load_model(berth_worker *worker);
BERTH_MUST_CHECK berth_status berth_worker_get_model(berth_worker *worker, berth_model_info *out);
BERTH_MUST_CHECK berth_status berth_worker_get_kv_cache_spec(berth_worker *worker,
                                                             berth_kv_cache_spec *const *specs,
                                                             uint64_t capacity,
                                                             uint64_t *out_count);
BERTH_MUST_CHECK berth_status berth_worker_available_memory(berth_worker *worker,
                                                            uint64_t *out_bytes);
BERTH_MUST_CHECK berth_status berth_worker_initialize_cache(berth_worker *worker,
                                                            const berth_kv_cache_config *config);
BERTH_MUST_CHECK berth_status berth_worker_warm_up(berth_worker *worker);
BERTH_MUST_CHECK berth_status berth_worker_execute(berth_worker *worker,
                                                   const berth_scheduler_output *input,
                                                   berth_model_output *out);
BERTH_MUST_CHECK berth_status berth_worker_sample(berth_worker *worker,
                                                  const berth_scheduler_output *input,
                                                  berth_model_output *out);
// Waits for an asynchronous output.
BERTH_MUST_CHECK berth_status berth_worker_wait(berth_worker *worker, berth_model_output *out);
BERTH_MUST_CHECK berth_status berth_worker_execute_dummy(berth_worker *worker);
// Level 1 moves the weights to host memory, 2 discards them, and wake_up reads the checkpoint
// again; the KV cache is discarded by both. No step until everything is awake.
BERTH_MUST_CHECK berth_status berth_worker_sleep(berth_worker *worker, uint64_t level);
// BERTH_SLEEP_* of what is to be awake, 0: all. WRONG_STATE when all of that is. What a failure
// kept from waking up still sleeps, and may be woken up again.
BERTH_MUST_CHECK berth_status berth_worker_wake_up(berth_worker *worker, uint64_t tags);
uint64_t berth_worker_asleep(const berth_worker *worker); // BERTH_SLEEP_*, 0: awake
BERTH_MUST_CHECK berth_status berth_worker_check_health(berth_worker *worker);

// The model of config->model as the default worker would plan it, after the passes; nothing is
// loaded. For a worker whose device is bound.
BERTH_MUST_CHECK berth_status berth_worker_build_model(berth_worker *worker,
                                                       berth_model_build **out_build);
// The default worker's plan, for `berth ops explain`, `berth graph` and tests; NULL when another
// worker replaced load_model without calling the inherited one, or before it.
const berth_plan *berth_worker_plan(const berth_worker *worker);
const berth_graph *berth_worker_graph(const berth_worker *worker);
// The build behind it, and the device that it runs on.
const berth_model_build *berth_worker_build(const berth_worker *worker);
berth_runtime *berth_worker_runtime(const berth_worker *worker);
// The scheme of a linear layer in that plan; NULL: it has no linear layer of the name.
const berth_layer_scheme *berth_worker_scheme(const berth_worker *worker, const char *layer);
// Whether runs of that plan note how long every site takes (berth_plan_set_timed); no plan, no
// effect.
void berth_worker_set_timed(const berth_worker *worker, bool is_timed);

#endif
