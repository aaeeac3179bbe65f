// SPDX-License-Identifier: Apache-2.0
// Discovery: directories, environment and configuration become candidates, each with a state and a
// reason.
//
// No plugin code runs here and no library is opened. Order of directories: --plugin-dir,
// BERTH_PLUGIN_PATH (extends) or BERTH_PLUGIN_DIRS (replaces), $XDG_DATA_HOME/berth/plugins,
// /etc/berth/plugins, <prefix>/lib/berth/plugins, the directory beside the executable. Never the
// working directory. Inside a directory: byte order of file names. The seams for the child probe,
// the cache, trust and signatures are the states `quarantined` and `refused`: a later stage sets
// them between discovery and the registry.
#ifndef BERTH_DISCOVERY_DISCOVERY_H
#define BERTH_DISCOVERY_DISCOVERY_H

#include "base/arena.h"
#include "base/status.h"
#include "config/config.h"

// Ordered as a plugin passes through them. A candidate that failed keeps the state it failed in.
typedef enum berth_plugin_state {
    BERTH_PLUGIN_FOUND,
    BERTH_PLUGIN_FILTERED,
    BERTH_PLUGIN_INELIGIBLE, // a predicate of the manifest does not hold here
    BERTH_PLUGIN_REFUSED,    // manifest, trust, ABI range or ELF
    BERTH_PLUGIN_QUARANTINED,
    BERTH_PLUGIN_LOAD_FAILED, // dlopen, symbol, negotiation, manifest against library
    BERTH_PLUGIN_DECLINED,    // the platform says its hardware is absent
    BERTH_PLUGIN_REGISTER_FAILED,
    BERTH_PLUGIN_ACTIVE,
    BERTH_PLUGIN_SELECTED,
} berth_plugin_state;

typedef enum berth_importance {
    BERTH_IMPORTANCE_OPTIONAL,
    BERTH_IMPORTANCE_REQUIRED,
    BERTH_IMPORTANCE_QUIET,
} berth_importance;

// One entry point that the manifest allows.
typedef struct berth_entry {
    const char *group;
    const char *name;
    berth_plugin_state state;
    const char *reason; // "" when there is nothing to say
} berth_entry;

// One plugin. Strings live in the arena of the run.
typedef struct berth_candidate {
    const char *id; // "" when the manifest could not be read
    const char *version;
    const char *vendor;
    const char *manifest; // path; NULL for --plugin FILE and for core plugins
    const char *library;  // absolute path; NULL for core plugins
    const char *source;   // "--plugin-dir", "BERTH_PLUGIN_PATH", "/etc/berth/plugins", "core", …
    uint64_t abi_min;     // of the manifest, 0 when unknown
    uint64_t abi_max;
    berth_importance importance;
    bool is_named;   // activation: named
    bool is_builtin; // in builtin.list and in the host's own library directory, or a core plugin
    const char *variant_of; // NULL: none
    int64_t score;
    berth_entry *entries;
    size_t entry_count;
    berth_plugin_state
        state; // of the plugin as a whole: the furthest of its entries, or its own failure
    const char *reason;
} berth_candidate;

typedef struct berth_candidates {
    berth_candidate *items;
    size_t count;
    const char *const
        *warnings; // one line each: filter names that matched nothing, ignored elements
    size_t warning_count;
} berth_candidates;

// "found", "load failed", … as printed.
const char *berth_plugin_state_name(berth_plugin_state state);

// Fails only for what concerns the whole run: a named directory that is missing (NOT_FOUND), a
// --plugin FILE that is missing. A bad manifest is a candidate in state `refused`.
BERTH_MUST_CHECK berth_status berth_discovery_run(const berth_config *config, berth_arena *arena,
                                                  berth_candidates *out);
// One manifest; CORRUPT or INVALID_ARGUMENT with file:line:column and the nearest valid key.
BERTH_MUST_CHECK berth_status berth_manifest_load(const char *path, berth_arena *arena,
                                                  berth_candidate *out);
// The filter of BERTH_PLUGINS: NULL lets all pass, "" none, a list exact names with blanks trimmed.
bool berth_filter_accepts(const char *filter, const char *entry_name);

#endif
