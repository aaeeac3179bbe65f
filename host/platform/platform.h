// SPDX-License-Identifier: Apache-2.0
// Platforms: which one is current and why, its config hooks, and the facade over its device tables.
//
// This is the only module that calls a platform's and a device's slots.
#ifndef BERTH_PLATFORM_PLATFORM_H
#define BERTH_PLATFORM_PLATFORM_H

#include <berth/op.h>
#include <berth/platform.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "discovery/discovery.h"
#include "registry/registry.h"

// ---- selection ----------------------------------------------------------------------------------

// Why one candidate won or lost. `entry` names a platform entry point, selected or not; "" for a
// plugin that could not be read as far as its entry points.
typedef struct berth_verdict {
    const char *entry;
    const char *plugin; // id, or the path of the file when the id is unknown
    berth_plugin_state state;
    bool is_builtin;
    const char *reason; // one line
} berth_verdict;

typedef struct berth_decision {
    const berth_platform_entry *platform; // NULL: unspecified, native host execution
    const char *rule;                     // the line of the selection table that decided
    const berth_verdict *verdicts;        // every platform entry, in search order
    size_t verdict_count;
    const berth_verdict *culprit; // the failed plugin that stops the start; NULL: none does
} berth_decision;

// An out-of-tree platform before a built-in accelerator before the built-in CPU before native host
// execution, which needs allow_fallback; `platform` of the configuration before all. Two that are
// equally good are an error. So is a plugin that failed (refused, quarantined, load failed,
// register failed; not `named`, not quiet) when the answer would be the CPU or native: a broken
// accelerator must not look like a slow machine.
//
// UNAVAILABLE with everything a user needs when there is no answer; `out` is filled in any case,
// for `berth plugins explain`. Marks the winner's candidate and entry `selected`.
BERTH_MUST_CHECK berth_status berth_platform_choose(const berth_config *config,
                                                    berth_registry *registry,
                                                    berth_candidates *candidates,
                                                    berth_arena *arena, berth_decision *out);
// apply_config_defaults and check_and_update_config in this order, each once; then register_ops in
// a transaction. Call before berth_registry_freeze. `platform` may be NULL (unspecified). A second
// call for one configuration is WRONG_STATE.
BERTH_MUST_CHECK berth_status berth_platform_configure(const berth_platform_entry *platform,
                                                       berth_config *config,
                                                       berth_registry *registry);
// verify_model_arch, verify_quantization (either NULL: not asked).
BERTH_MUST_CHECK berth_status berth_platform_verify(const berth_platform_entry *platform,
                                                    const char *architecture,
                                                    const char *quantization);
BERTH_MUST_CHECK berth_status berth_platform_check_request(const berth_platform_entry *platform,
                                                           int64_t prompt_tokens,
                                                           int64_t max_tokens);
// The backend that the platform chose; UNSUPPORTED with the reasons, and NULL, when it has none:
// the op's implementations are asked then.
BERTH_MUST_CHECK berth_status berth_platform_attention(const berth_platform_entry *platform,
                                                       const berth_attention_query *query,
                                                       const berth_attention_backend **out);
// The keys that enabled ops are looked up with, in order of preference; NULL-terminated, at most 2.
// None for a NULL platform: everything is native.
const char *const *berth_platform_keys(const berth_platform_entry *platform);

// ---- the device runtime -------------------------------------------------------------------------

typedef struct berth_runtime berth_runtime; // one opened device

// A piece of device memory. For a host-memory device `base` is an address.
typedef struct berth_buffer {
    void *base;
    uint64_t bytes;
} berth_buffer;

// Calls of the platform's slots. Copies of host memory are none.
typedef struct berth_runtime_counters {
    uint64_t to_device; // copies
    uint64_t queued;    // of them those that may still be under way when the call returns
    uint64_t to_host;
    uint64_t on_device;
    uint64_t waits;    // beside those of copies
    uint64_t captures; // recordings that were made
    uint64_t replays;  // of recordings
    uint64_t held;     // bytes that are allocated
    uint64_t peak;     // and the most that were at once
} berth_runtime_counters;

// `platform` NULL opens the host itself (native execution): its memory is ordinary memory. `host`
// is the table that plugins get; platform and host outlive the runtime.
BERTH_MUST_CHECK berth_status berth_runtime_open(const berth_platform_entry *platform,
                                                 uint64_t device, const berth_host *host,
                                                 berth_runtime **out_runtime);
void berth_runtime_close(berth_runtime *runtime);         // takes NULL; buffers are freed before
bool berth_runtime_is_host(const berth_runtime *runtime); // its memory is host memory
int32_t berth_runtime_memory_type(const berth_runtime *runtime);
uint64_t berth_runtime_alignment(const berth_runtime *runtime);
const berth_device *berth_runtime_device(const berth_runtime *runtime); // for op implementations
const berth_platform_entry *berth_runtime_platform(const berth_runtime *runtime);
BERTH_MUST_CHECK berth_status berth_runtime_info(const berth_runtime *runtime,
                                                 berth_device_info *out);
BERTH_MUST_CHECK berth_status berth_runtime_memory(const berth_runtime *runtime, uint64_t *out_free,
                                                   uint64_t *out_total);
// OUT_OF_MEMORY says what was asked, what was free and which setting to change. 0 bytes gives a
// zero buffer.
BERTH_MUST_CHECK berth_status berth_runtime_alloc(berth_runtime *runtime, uint64_t bytes,
                                                  berth_buffer *out);
void berth_runtime_free(berth_runtime *runtime, berth_buffer *buffer); // zeroes it
// Copies are complete when they return and ordered after all work that was queued before. Beyond
// the end of a buffer is INVALID_ARGUMENT.
BERTH_MUST_CHECK berth_status berth_runtime_upload(berth_runtime *runtime, berth_buffer to,
                                                   uint64_t offset, const void *from,
                                                   uint64_t bytes);
BERTH_MUST_CHECK berth_status berth_runtime_download(berth_runtime *runtime, void *to,
                                                     berth_buffer from, uint64_t offset,
                                                     uint64_t bytes);
// Both sides on this device, not overlapping, within their buffers. Without the platform's
// copy_on_device through host memory.
BERTH_MUST_CHECK berth_status berth_runtime_copy(berth_runtime *runtime, const berth_copy *copy);
BERTH_MUST_CHECK berth_status berth_runtime_wait(berth_runtime *runtime);
// Host memory that copies reach without a detour, where the platform has such; takes NULL back.
BERTH_MUST_CHECK berth_status berth_runtime_alloc_host(berth_runtime *runtime, uint64_t bytes,
                                                       void **out_memory);
void berth_runtime_free_host(berth_runtime *runtime, void *memory);
// An upload that may still be under way when this returns: `from` stays as it is until the next
// download or wait.
BERTH_MUST_CHECK berth_status berth_runtime_queue(berth_runtime *runtime, berth_buffer to,
                                                  uint64_t offset, const void *from,
                                                  uint64_t bytes);
// Recordings: the work that forwards queue between begin and end is kept instead of run, and
// replayed on the same memory. Only where the first one says so.
bool berth_runtime_records(const berth_runtime *runtime);
BERTH_MUST_CHECK berth_status berth_runtime_record_begin(berth_runtime *runtime);
// The recording is over, also when it fails.
BERTH_MUST_CHECK berth_status berth_runtime_record_end(berth_runtime *runtime, void **out_graph);
BERTH_MUST_CHECK berth_status berth_runtime_replay(berth_runtime *runtime, void *graph);
void berth_runtime_free_graph(berth_runtime *runtime, void *graph); // takes NULL
const berth_runtime_counters *berth_runtime_counted(const berth_runtime *runtime);
// Calls so far in which this thread waited for the device: those of waits, and of copies that were
// complete when they returned.
uint64_t berth_runtime_waited(const berth_runtime *runtime);

#endif
