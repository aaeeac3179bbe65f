// SPDX-License-Identifier: Apache-2.0
// The parts of discovery that tests look at one by one: where to search, one manifest from a text,
// predicates. Private to host/discovery.
#ifndef BERTH_DISCOVERY_SEARCH_H
#define BERTH_DISCOVERY_SEARCH_H

#include <sys/types.h>

#include "base/arena.h"
#include "base/str.h"
#include "discovery/discovery.h"

// What the system says about this process; a test writes its own.
typedef struct berth_surroundings {
    const char *executable_dir; // resolved
    const char *data_home;      // $XDG_DATA_HOME, NULL: unset
    const char *home;           // $HOME, NULL: unset
    const char *system_dir;     // "/etc/berth/plugins"
    bool is_secure;             // AT_SECURE: more rights than the caller
    const char *const *builtin_ids;
    size_t builtin_count;
} berth_surroundings;

// One directory that exists.
typedef struct berth_place {
    const char *path;   // absolute
    const char *source; // "--plugin-dir", "BERTH_PLUGIN_PATH", or the path
    dev_t device;
    ino_t inode;
    bool is_own; // the host's own library directory
} berth_place;

typedef struct berth_places {
    berth_place *items;
    size_t count;
    const char *const *warnings;
    size_t warning_count;
} berth_places;

BERTH_MUST_CHECK berth_status berth_surroundings_get(berth_arena *arena, berth_surroundings *out);
// The directories of the search order that exist, each once. NOT_FOUND names a --plugin-dir that is
// missing.
BERTH_MUST_CHECK berth_status berth_places_find(const berth_config *config,
                                                const berth_surroundings *surroundings,
                                                berth_arena *arena, berth_places *out);

// berth_discovery_run with the surroundings given.
BERTH_MUST_CHECK berth_status berth_discovery_scan(const berth_config *config,
                                                   const berth_surroundings *surroundings,
                                                   berth_arena *arena, berth_candidates *out);

// What a manifest demands of the machine; strings in the arena.
typedef struct berth_demands {
    const char *arch; // NULL: any
    const char **cpu;
    size_t cpu_count;
} berth_demands;

// berth_manifest_load, and what the machine must have. `text` NULL: read the file at `path`.
// `out` keeps what could be read when the manifest is refused, so that the report can name it.
BERTH_MUST_CHECK berth_status berth_manifest_read(const char *path, const berth_str *text,
                                                  berth_arena *arena, berth_candidate *out,
                                                  berth_demands *out_demands);

// The machine, asked once per run and only as far as a manifest needs it.
typedef struct berth_machine {
    const char *arch;  // uname's; NULL: not asked yet
    const char *flags; // " fpu avx2 … "; NULL: not asked yet
} berth_machine;

// NULL when the machine has all that is demanded, else the reason, in the arena.
BERTH_MUST_CHECK berth_status berth_demands_judge(const berth_demands *demands,
                                                  berth_machine *machine, berth_arena *arena,
                                                  const char **out_reason);

// Applies BERTH_PLUGINS to the entries of candidates that are no built-ins.
BERTH_MUST_CHECK berth_status berth_filter_apply(const char *filter, berth_candidates *candidates,
                                                 berth_arena *arena);
// Adds a line to the warnings.
BERTH_MUST_CHECK berth_status berth_warnings_add(const char *const **warnings, size_t *count,
                                                 berth_arena *arena, const char *line);

#endif
