// SPDX-License-Identifier: Apache-2.0
// The executor: binds every node to an implementation, plans memory, runs a batch.
//
// It is the only module that calls op implementations and references. A plan is immutable after
// loading; a step allocates nothing, takes no lock and looks nothing up.
#ifndef BERTH_EXECUTOR_EXECUTOR_H
#define BERTH_EXECUTOR_EXECUTOR_H

#include <berth/batch.h>
#include <berth/worker.h>

#include "base/status.h"
#include "config/config.h"
#include "graph/graph.h"
#include "platform/platform.h"
#include "registry/registry.h"

typedef struct berth_plan berth_plan;

typedef struct berth_plan_request {
    const berth_registry *registry;
    const berth_config *config; // custom_ops, allow_fallback, fallback_ops, compilation keys
    const berth_graph *graph;   // outlives the plan
    berth_runtime *runtime;     // outlives the plan
    const berth_kv_cache_spec *kv_caches;
    size_t kv_cache_count;
    int64_t max_tokens;    // of one step
    int64_t max_sequences; // of one step, and logits rows of one step
    int64_t max_seq_len;   // longest sequence
} berth_plan_request;

// ---- dispatch: who runs what, and why
// ---------------------------------------------------------------------

// The record of one op site, printed by `berth ops explain`. Sites of the graph come first, in its
// order, then copies (`contiguous`) that the plan had to insert on the device.
typedef struct berth_site_record {
    const char *op;
    const char *layer;
    const char *implementation; // name, "native" for the reference
    const char *plugin;
    const char *version;
    const char
        *reason; // why it was chosen: "override by id", "priority 10, key cpu", "-rms_norm", …
    const char *runner_up; // "name of plugin: reason it lost", "" when there was none
    const char *library;   // op library that it comes from, NULL: the plugin's own
    const char *degraded;  // op library that failed, and why: the site goes without; NULL: none
    const char *pass;      // that made the site, NULL: the model has it
    bool is_override;
    bool is_backend; // an attention backend, which lays out the cache
    bool is_enabled; // custom_ops
    bool is_native;
    bool
        is_bounced; // native on host copies on a device without host memory, not by the user's wish
} berth_site_record;

typedef struct berth_dispatch_counters {
    uint64_t enabled;
    uint64_t disabled;
} berth_dispatch_counters;

// The same decisions before there is a plan: who would run a site, for whoever is about to change a
// graph. The request's graph is not looked at. A record lives as long as the dispatcher.
typedef struct berth_dispatcher berth_dispatcher;
BERTH_MUST_CHECK berth_status berth_dispatcher_create(const berth_plan_request *request,
                                                      berth_dispatcher **out_dispatcher);
BERTH_MUST_CHECK berth_status berth_dispatcher_ask(berth_dispatcher *dispatcher,
                                                   const berth_op_entry *op,
                                                   const berth_op_site *site,
                                                   const berth_site_record **out_record);
void berth_dispatcher_destroy(berth_dispatcher *dispatcher); // takes NULL

// Binds and plans; nothing is loaded, no device memory is taken. Without --allow-fallback a bounced
// op that fallback_ops does not list is UNSUPPORTED, naming all of them. "inductor" with mode > 0
// is UNSUPPORTED.
BERTH_MUST_CHECK berth_status berth_plan_create(const berth_plan_request *request,
                                                berth_plan **out_plan);
size_t berth_plan_site_count(const berth_plan *plan);
const berth_site_record *berth_plan_site(const berth_plan *plan, size_t index);
berth_dispatch_counters berth_plan_counters(const berth_plan *plan);
// Lines for the report after a build: overrides never used, custom_ops names that matched nothing.
// Sorted.
size_t berth_plan_note_count(const berth_plan *plan);
const char *berth_plan_note(const berth_plan *plan, size_t index);
// Whether the note is about a name that the user wrote and that has no effect.
bool berth_plan_note_is_users(const berth_plan *plan, size_t index);

// ---- loading
// ------------------------------------------------------------------------------------------------

// Gives the plan one weight at a time, each once: host memory, row-major, resident dtype; the plan
// packs or uploads it to wherever its users run. The memory may be reused when this returns.
BERTH_MUST_CHECK berth_status berth_plan_set_parameter(berth_plan *plan, berth_value parameter,
                                                       const void *data, uint64_t bytes);
// The same for a parameter in rows, all its dimensions but the last taken as one. It must take
// rows: every copy of it lies in host memory and is kept as stored or packed by rows. After `begin`
// each row is given once, in pieces that begin and end at multiples of BERTH_PACK_ROWS, or with the
// last row. berth_plan_set_rows may be called on several threads at once.
bool berth_plan_takes_rows(const berth_plan *plan, berth_value parameter);
BERTH_MUST_CHECK berth_status berth_plan_begin_rows(berth_plan *plan, berth_value parameter);
BERTH_MUST_CHECK berth_status berth_plan_set_rows(const berth_plan *plan, berth_value parameter,
                                                  int64_t first, int64_t count, const void *data);
// After the last parameter: allocates activations and calls every create.
BERTH_MUST_CHECK berth_status berth_plan_ready(berth_plan *plan);
// Bytes of the block of activations, workspaces and staging; of parameters.
uint64_t berth_plan_activation_bytes(const berth_plan *plan);
uint64_t berth_plan_parameter_bytes(const berth_plan *plan);
// Allocates the KV cache: blocks of every layer, in device or host memory as its users run. May be
// repeated.
BERTH_MUST_CHECK berth_status berth_plan_set_cache(berth_plan *plan,
                                                   const berth_kv_cache_config *config);

// The memory of state `index` of a layer, as it is declared or, of a KV cache, as its backend
// shapes it: written before, read after a run. INVALID_ARGUMENT when `bytes` is not its size.
BERTH_MUST_CHECK berth_status berth_plan_write_state(berth_plan *plan, const char *layer,
                                                     uint64_t index, const void *data,
                                                     uint64_t bytes);
BERTH_MUST_CHECK berth_status berth_plan_read_state(berth_plan *plan, const char *layer,
                                                    uint64_t index, void *data, uint64_t bytes);

// ---- sleep
// -------------------------------------------------------------------------------------------------

typedef enum berth_sleep_level {
    BERTH_SLEEP_KEEP = 1,    // weights move to host memory
    BERTH_SLEEP_DISCARD = 2, // weights are given again, as before berth_plan_ready
} berth_sleep_level;

// Gives back what a plan that can run has of the device: weights, caches, the block of activations,
// and what implementations made for themselves, for they are destroyed; recordings go, states that
// are no cache wait in host memory. Of a platform with host memory level 1 leaves the weights where
// they are. OUT_OF_MEMORY when the host has no room for the weights: nothing has changed.
BERTH_MUST_CHECK berth_status berth_plan_sleep(berth_plan *plan, berth_sleep_level level);
// Weights, activations and implementations are there again. Of discarded weights each was set
// before. After a failure the plan still sleeps.
BERTH_MUST_CHECK berth_status berth_plan_wake_up(berth_plan *plan);
// The caches are there again, as large as they were and empty; before or after the weights.
BERTH_MUST_CHECK berth_status berth_plan_wake_caches(berth_plan *plan);
bool berth_plan_is_asleep(const berth_plan *plan); // its weights are
// Of a sleeping plan: forgets every weight that was set, so that all can be set again.
void berth_plan_discard_weights(berth_plan *plan);

// ---- running
// -------------------------------------------------------------------------------------------------

// Runs all nodes on the batch: `batch->host` is set, the plan provides device copies. Results stay
// in the plan's memory until the next run.
BERTH_MUST_CHECK berth_status berth_plan_run(berth_plan *plan, const berth_batch *batch);
// Records the decode steps of the configuration's capture sizes, the largest first, and fills steps
// in between up with sequences that are nobody's; results have the rows of the batch alone. Nothing
// happens where steps cannot be recorded or not be filled up, or before the cache is there; without
// it, a decode step is recorded the second time that so many sequences come. Of other steps, where
// the configuration says so, those of up to the largest size in tokens are recorded piece by piece,
// between the ops that depend on more than the number of tokens, which go on being called. Again
// after berth_plan_set_cache and sleep.
BERTH_MUST_CHECK berth_status berth_plan_record(berth_plan *plan);
size_t berth_plan_captures(const berth_plan *plan); // decode steps that are recorded
size_t berth_plan_pieces(const berth_plan *plan);   // pieces that are
// From now on every run notes how long each site takes, and waits for the device after each; or no
// longer. It costs nothing while it is off.
void berth_plan_set_timed(berth_plan *plan, bool is_timed);
// Nanoseconds of a site in the last timed run; a copy that the plan had to make for it is not its
// own.
uint64_t berth_plan_site_ns(const berth_plan *plan, size_t index);
// An output of the last run as host memory (copied there if it was not): shape [rows, …], f32.
BERTH_MUST_CHECK berth_status berth_plan_output(berth_plan *plan, const char *name,
                                                const berth_tensor **out_tensor);
// Whether the platform picks the largest of each row of the output 'logits' in the same run, and
// which those were in the last one: [rows], -1 where no logit of the row is finite.
bool berth_plan_chooses(const berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_plan_choices(berth_plan *plan, const int32_t **out_ids);

// Whether the platform can draw a token of each row of the output 'logits' of the last run. Then
// what every row is drawn by is set, NULL where nobody wants a token, and it does: [rows], -1 where
// no logit of the row is finite. Bans and penalties are not looked at.
bool berth_plan_draws(const berth_plan *plan);
void berth_plan_set_draw(berth_plan *plan, int64_t row, const berth_sampling *sampling);
BERTH_MUST_CHECK berth_status berth_plan_draw_ids(berth_plan *plan, const int32_t **out_ids);
void berth_plan_destroy(berth_plan *plan);

#endif
