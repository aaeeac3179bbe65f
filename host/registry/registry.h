// SPDX-License-Identifier: Apache-2.0
// The registry: opens plugins, runs their entry points in transactions, and ends as frozen tables.
//
// It is the only place that calls an entry point. It copies every table it is given (min of the
// sizes) and checks required slots, but calls none of their functions: that is done by the modules
// that own each kind. After the freeze it is read without locks.
#ifndef BERTH_REGISTRY_REGISTRY_H
#define BERTH_REGISTRY_REGISTRY_H

#include <berth/op_library.h>
#include <berth/plugin.h>

#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "discovery/discovery.h"

typedef struct berth_registry berth_registry;

// Who an entry of a table belongs to. Borrowed from the candidate.
typedef struct berth_owner {
    const char *id; // plugin id
    const char *version;
    const char *entry; // entry point's name
    const char *group;
    bool is_builtin;
    const berth_candidate *candidate;
} berth_owner;

typedef struct berth_op_entry {
    berth_op op; // the host's copy, absent members zero
    const berth_owner *owner;
    const struct berth_impl_entry *const *impls; // by priority, then plugin id, then name
    size_t impl_count;
    const struct berth_impl_entry *const *overrides;
    size_t override_count;
    uint32_t index; // position in the table, for arrays parallel to it
} berth_op_entry;

typedef enum berth_library_state {
    BERTH_LIBRARY_NOT_TRIED,
    BERTH_LIBRARY_LOADED,
    BERTH_LIBRARY_FAILED,
} berth_library_state;

// A plugin's op library. The one record that changes behind the freeze: at its first use, once.
typedef struct berth_op_library_entry {
    const char *file;
    const char *path; // beside the plugin's own library
    const berth_owner *owner;
    berth_library_state state;
    const char *reason; // why it failed, else ""
} berth_op_library_entry;

typedef struct berth_impl_entry {
    berth_op_impl impl;
    const berth_owner *owner;
    const berth_op_entry *op;
    bool is_override;
    berth_op_library_entry *library; // that has a faster form, NULL: none
    berth_op_impl form;              // that one, once the library is loaded
} berth_impl_entry;

typedef struct berth_platform_entry {
    berth_platform platform; // with the copies of its three tables behind it
    berth_device_api device;
    berth_worker_api worker; // zeroed but for features when it gave none
    berth_capabilities capabilities;
    void *self;
    const berth_owner *owner;
} berth_platform_entry;

typedef struct berth_layer_entry {
    berth_layer layer;
    const berth_owner *owner;
} berth_layer_entry;
typedef struct berth_quant_entry {
    berth_quant_config config; // of a replacement with what it did not set
    const berth_owner *owner;
    const struct berth_quant_entry *replaced; // NULL: it stands in nobody's place
} berth_quant_entry;
typedef struct berth_model_entry {
    berth_model model;
    const berth_owner *owner;
} berth_model_entry;
typedef struct berth_attention_entry {
    berth_attention_backend backend;
    berth_op_impl impl;
    const berth_owner *owner;
} berth_attention_entry;
typedef struct berth_pass_entry {
    berth_pass pass; // with the copies of its patterns behind it
    const berth_owner *owner;
} berth_pass_entry;

// ---- life ---------------------------------------------------------------------------------------

// `config` is what berth_host gives plugins; `worker_base` goes into berth_host (the default worker
// lives below, so the caller hands it in; NULL where no worker runs).
BERTH_MUST_CHECK berth_status berth_registry_create(berth_config *config,
                                                    const berth_worker_api *worker_base,
                                                    berth_registry **out_registry);
// The plugins linked into this binary: registered like any other, as candidates in state `active`
// or `register failed`. A failure of a core plugin is INTERNAL.
BERTH_MUST_CHECK berth_status berth_registry_add_core(berth_registry *registry,
                                                      const berth_plugin *const *plugins,
                                                      size_t count);
// Opens every candidate in state `found`, negotiates the ABI, runs the allowed entry points of both
// groups and writes states and reasons back. A named platform runs only when `config->platform`
// names it. A failure of a plugin is recorded, not returned; of an `importance: required` one it is
// returned after all others.
BERTH_MUST_CHECK berth_status berth_registry_load(berth_registry *registry,
                                                  berth_candidates *candidates);
// A transaction of the platform's register_ops, after the configuration is final.
typedef berth_status (*berth_register_fn)(void *self, berth_registrar *registrar);
BERTH_MUST_CHECK berth_status berth_registry_transaction(berth_registry *registry,
                                                         const berth_owner *owner,
                                                         berth_register_fn body, void *self);
// Resolves names and judges duplicates. What fails here drops the whole entry point that added it
// (state `register failed`), except core plugins, where it is INTERNAL. Later adds are
// BERTH_SEALED.
BERTH_MUST_CHECK berth_status berth_registry_freeze(berth_registry *registry);
// Platforms' destroy, then plugins' shutdown, in reverse order. Libraries stay mapped. Takes NULL.
void berth_registry_destroy(berth_registry *registry);

// ---- what it holds (after the freeze; platforms also before) ------------------------------------

const berth_host *berth_registry_host(const berth_registry *registry);
size_t berth_registry_op_count(const berth_registry *registry);
const berth_op_entry *berth_registry_op_at(const berth_registry *registry, size_t index); // by id
const berth_op_entry *berth_registry_find_op(const berth_registry *registry, const char *name);
const berth_layer_entry *berth_registry_find_layer(const berth_registry *registry,
                                                   const char *name);
const berth_model_entry *berth_registry_find_model(const berth_registry *registry,
                                                   const char *name);
size_t berth_registry_model_count(const berth_registry *registry);
const berth_model_entry *berth_registry_model_at(const berth_registry *registry, size_t index);
size_t berth_registry_quant_count(const berth_registry *registry);
const berth_quant_entry *berth_registry_quant_at(const berth_registry *registry, size_t index);
size_t berth_registry_attention_count(const berth_registry *registry);
const berth_attention_entry *berth_registry_attention_at(const berth_registry *registry,
                                                         size_t index);
size_t berth_registry_pass_count(const berth_registry *registry);
const berth_pass_entry *berth_registry_pass_at(const berth_registry *registry, size_t index);
size_t berth_registry_platform_count(const berth_registry *registry);
const berth_platform_entry *berth_registry_platform_at(const berth_registry *registry,
                                                       size_t index);
size_t berth_registry_library_count(const berth_registry *registry);
berth_op_library_entry *berth_registry_library_at(const berth_registry *registry, size_t index);
// Core plugins as candidates, for listings.
const berth_candidates *berth_registry_core(const berth_registry *registry);
// The same in every process that saw the same plugins, in whatever order. 0 before the freeze.
uint64_t berth_registry_digest(const berth_registry *registry);

// ---- op libraries -------------------------------------------------------------------------------

// Opens it, unless that has been tried; whether its forms are there. Not on several threads.
bool berth_op_library_open(const berth_registry *registry, berth_op_library_entry *library);
// "not tried", "loaded", "failed".
const char *berth_library_state_name(berth_library_state state);

// ---- slots --------------------------------------------------------------------------------------

typedef enum berth_slot_tag {
    BERTH_SLOT_REQUIRED, // NULL or missing: the table is refused
    BERTH_SLOT_INHERIT,
    BERTH_SLOT_OPTIONAL,
} berth_slot_tag;

typedef struct berth_slot {
    const char *name;
    uint32_t offset;
    berth_slot_tag tag;
} berth_slot;

// The tagged slots of one struct of the contract, as its header tags them.
typedef struct berth_table {
    const char *name; // "berth_op"
    uint32_t size;    // of the host's own
    const berth_slot *slots;
    size_t slot_count;
} berth_table;

extern const berth_table berth_tables[];
extern const size_t berth_table_count;

// ---- calling plugins ----------------------------------------------------------------------------

// Around every call of a plugin's slot, by the facade that owns that kind: the text that the plugin
// hands to host->fail during the call becomes this thread's report. `status` is what the slot
// returned. Without a text the report is the one that a host service made during the call, else it
// names plugin and slot. Yields `status`, and INTERNAL for a number that is no status. Calls nest;
// `owner` may be NULL for the host's own.
void berth_plugin_enter(const berth_owner *owner, const char *slot);
BERTH_MUST_CHECK berth_status berth_plugin_leave(berth_status status);

#endif
