// SPDX-License-Identifier: Apache-2.0
// What the files of the registry share: the staged additions and the transactions that own them.
//
// An addition is the host's copy of one table that a plugin added. Additions of one transaction lie
// next to each other; a transaction that fails while it is open takes its own off the end, one that
// fails at the freeze is marked dropped.
#ifndef BERTH_REGISTRY_PRIVATE_H
#define BERTH_REGISTRY_PRIVATE_H

#include "base/arena.h"
#include "base/array.h"
#include "base/map.h"
#include "registry/registry.h"

#define BERTH_ENTRY_POINTS_MAX 64 // of one library

// Indices into berth_tables.
typedef enum berth_table_id {
    BERTH_TABLE_PLUGIN,
    BERTH_TABLE_ENTRY_POINT,
    BERTH_TABLE_PLATFORM,
    BERTH_TABLE_CAPABILITIES,
    BERTH_TABLE_DEVICE,
    BERTH_TABLE_WORKER,
    BERTH_TABLE_OP,
    BERTH_TABLE_ARGUMENT,
    BERTH_TABLE_ATTRIBUTE,
    BERTH_TABLE_VALUE,
    BERTH_TABLE_IMPL,
    BERTH_TABLE_LAYER,
    BERTH_TABLE_QUANT,
    BERTH_TABLE_QUANT_METHOD,
    BERTH_TABLE_KV_CACHE_METHOD,
    BERTH_TABLE_MODEL,
    BERTH_TABLE_RULE,
    BERTH_TABLE_ATTENTION,
    BERTH_TABLE_OP_LIBRARY,
    BERTH_TABLE_PASS,
    BERTH_TABLE_PATTERN,
    BERTH_TABLE_PATTERN_NODE,
    BERTH_TABLE_PATTERN_INPUT,
} berth_table_id;

// What can be added. The first six have one name each, which is unique in its table.
typedef enum berth_kind {
    BERTH_KIND_OP,
    BERTH_KIND_LAYER,
    BERTH_KIND_QUANT,
    BERTH_KIND_MODEL,
    BERTH_KIND_ATTENTION,
    BERTH_KIND_PASS,
    BERTH_KIND_PLATFORM,
    BERTH_KIND_IMPL,
    BERTH_KIND_OVERRIDE,
} berth_kind;
#define BERTH_NAMED_KINDS (BERTH_KIND_PASS + 1)
#define BERTH_KIND_COUNT  (BERTH_KIND_OVERRIDE + 1)

typedef struct berth_transaction {
    const berth_owner *owner;
    berth_candidate *candidate;
    berth_entry *entry;
    uint64_t owner_hash; // for the digest
    uint32_t first;      // its additions
    uint32_t count;
    berth_status failed; // of the first add that failed
    const char *reason;  // its text
    bool is_core;
    bool is_late; // of register_ops: the platform is chosen already
    bool is_dropped;
    bool has_platform;
} berth_transaction;

typedef struct berth_addition {
    berth_transaction *transaction;
    void *entry;      // berth_op_entry, berth_impl_entry, …; begins with the copied table
    const char *name; // of a named kind its key; of an implementation its own name
    uint64_t flags;   // BERTH_REGISTER_*
    uint64_t name_hash;
    berth_kind kind;
    uint32_t first_impl;  // ops: head of the chain of their implementations, index + 1, 0 ends
    uint32_t first_claim; // ops: head of the chain of claims, index + 1
    uint32_t next_impl;   // implementations: the next of the chain
    uint32_t op;          // implementations and overrides: index of their op
    uint32_t replaces;    // named kinds: whose place it took, index + 1, 0: nobody's
    bool is_replaced;     // implementations: another one took its place
    bool is_live;         // stands in a frozen table
} berth_addition;

// One table after the freeze, sorted by name.
typedef struct berth_listed {
    const char *name;
    void *entry;
} berth_listed;
typedef struct berth_listing {
    berth_listed *items;
    size_t count;
} berth_listing;

// One op on one device type, and the override that has it.
typedef struct berth_claim {
    const char *device_type;
    uint32_t override; // addition
    uint32_t next;     // of the op's chain, index + 1, 0 ends
} berth_claim;

// One opened library or linked-in plugin.
typedef struct berth_opened {
    berth_plugin plugin;        // the host's copy
    berth_entry_point *entries; // the host's copies
    size_t entry_count;
    berth_candidate *candidate;
    bool has_run; // an entry point of it
} berth_opened;

struct berth_registry {
    berth_config *config; // borrowed
    berth_arena *arena;
    berth_host host;
    berth_registrar registrar;
    berth_array(berth_addition) additions;
    berth_array(berth_transaction *) transactions;   // after the freeze in canonical order
    berth_array(berth_opened *) opened;              // in order of opening
    berth_array(berth_platform_entry *) platforms;   // by name
    berth_array(berth_op_library_entry *) libraries; // after the freeze
    berth_transaction *open;                         // NULL: no entry point runs
    berth_candidates *candidates;                    // borrowed; of the last load, or NULL
    berth_candidates core;
    bool is_frozen;
    bool has_cache_note; // the log has said that nothing can be kept
    berth_array(berth_claim) claims;
    berth_map names[BERTH_NAMED_KINDS]; // name (of ops also class name) → index into additions
    berth_listing listings[BERTH_NAMED_KINDS];
    uint64_t digest;
};

// host.c
void berth_host_fill(berth_host *host, berth_registry *registry,
                     const berth_worker_api *worker_base);

// host_cache.c: two of its slots.
berth_status berth_host_cache_read(const berth_host *host, const char *name, const char *key,
                                   void **out_data, uint64_t *out_bytes);
berth_status berth_host_cache_write(const berth_host *host, const char *name, const char *key,
                                    const void *data, uint64_t bytes);

// check.c: sizes and required slots. `table` begins with its size and may be NULL. Slot `except`
// (an offset, 0 none) may be NULL.
BERTH_MUST_CHECK berth_status berth_table_check(berth_table_id id, const void *table,
                                                size_t except);
// min(sizes) bytes and the host's own size; the rest of `out` is zero.
void berth_table_copy(berth_table_id id, void *out, const void *table);
// A name that may stand in a table: 1 to 127 bytes, no blanks, no control characters.
BERTH_MUST_CHECK berth_status berth_name_check(const char *what, const char *name);
BERTH_MUST_CHECK berth_status berth_platform_check(const berth_platform_entry *entry);
BERTH_MUST_CHECK berth_status berth_impl_check(const berth_op_impl *impl, berth_kind kind);
// The same for one that a table has without registering it: an attention backend's, a library's.
BERTH_MUST_CHECK berth_status berth_impl_check_bare(const berth_op_impl *impl);

// copy.c: what tables point to, and the checks that need it. Each gets a zeroed entry whose table
// is a copy of the plugin's.
typedef berth_status (*berth_copy_fn)(berth_registry *registry, void *entry);
BERTH_MUST_CHECK berth_status berth_copy_op(berth_registry *registry, void *entry);
BERTH_MUST_CHECK berth_status berth_copy_impl(berth_registry *registry, void *entry);
BERTH_MUST_CHECK berth_status berth_copy_model(berth_registry *registry, void *entry);
BERTH_MUST_CHECK berth_status berth_copy_attention(berth_registry *registry, void *entry);
BERTH_MUST_CHECK berth_status berth_copy_pass(berth_registry *registry, void *entry);
BERTH_MUST_CHECK berth_status berth_copy_platform(berth_registry *registry, void *entry);

// register.c: the slots that plugins call.
void berth_registrar_fill(berth_registrar *registrar, berth_registry *registry);

// transaction.c: one at a time.
BERTH_MUST_CHECK berth_status berth_transaction_begin(berth_registry *registry,
                                                      const berth_owner *owner,
                                                      berth_transaction **out);
// Keeps the additions when `status` is OK and no add failed, else takes them off. The status of the
// whole; its report is this thread's.
BERTH_MUST_CHECK berth_status berth_transaction_end(berth_registry *registry, berth_status status);
// What was kept is dropped after all: it is in no table, and its record says why.
void berth_transaction_drop(berth_registry *registry, berth_transaction *transaction,
                            const char *reason);

// library.c: reads and negotiates. Failures are the plugin's, and say what to do.
// The table that the file exports, of a plugin or of an op library; its first three members are
// size and ABI range, and nothing else of it is looked at before those are good.
BERTH_MUST_CHECK berth_status berth_library_map(const char *path, berth_table_id id,
                                                const void **out_table);
BERTH_MUST_CHECK berth_status berth_library_negotiate(const berth_registry *registry,
                                                      const berth_candidate *candidate,
                                                      berth_table_id id, const void *table);
BERTH_MUST_CHECK berth_status berth_library_open(berth_registry *registry,
                                                 berth_candidate *candidate, berth_opened **out);
BERTH_MUST_CHECK berth_status berth_library_adopt(berth_registry *registry,
                                                  const berth_plugin *plugin,
                                                  berth_candidate *candidate, berth_opened **out);

// entry.c: runs one entry point and writes its state and reason.
void berth_entry_run(berth_registry *registry, berth_opened *opened, berth_entry *entry);
void berth_entry_set(berth_entry *entry, berth_plugin_state state, const char *reason);
// The candidate as a whole: its furthest entry, and what to say of the others.
void berth_candidate_settle(berth_registry *registry, berth_candidate *candidate);
// Fails when one whose importance is `required` did not make it.
BERTH_MUST_CHECK berth_status berth_candidates_require(const berth_candidates *candidates);
// Text that lives as long as the run's other texts.
const char *berth_reason(const berth_registry *registry, const char *format, ...)
    BERTH_PRINTF(2, 3);

// platforms.c: the list of active platforms, by name; the second of a name is dropped.
BERTH_MUST_CHECK berth_status berth_platforms_list(berth_registry *registry);

// judge.c and seal.c: the two halves of the freeze. The first drops transactions until all names
// resolve and none is taken twice, the second builds the tables.
BERTH_MUST_CHECK berth_status berth_judge(berth_registry *registry);
BERTH_MUST_CHECK berth_status berth_seal(berth_registry *registry);
// Whether implementations of that revision still run sites of the op.
bool berth_op_accepts(const berth_op *op, uint64_t revision);

// op_library.c: one record for every file that live implementations name; what an opened one
// exports is judged and its forms are taken.
BERTH_MUST_CHECK berth_status berth_op_libraries_list(berth_registry *registry);
BERTH_MUST_CHECK berth_status berth_op_library_adopt(const berth_registry *registry,
                                                     const berth_op_library_entry *library,
                                                     const berth_op_library *given);

// digest.c
uint64_t berth_owner_hash(const berth_owner *owner);
uint64_t berth_digest_additions(const berth_registry *registry);

#endif
