// SPDX-License-Identifier: Apache-2.0
// Input: directories and files to look at. Output: one candidate for every plugin, with the state
// that can be known without opening a library.
#include "discovery/discovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "discovery/search.h"

#define SUFFIX   ".plugin.yaml"
#define HOST_MIN BERTH_ABI(1, 0) // what this host still speaks
#define HOST_MAX BERTH_ABI_CURRENT

// A candidate and which file its manifest is.
typedef struct sighting {
    berth_candidate candidate;
    dev_t device;
    ino_t inode;
} sighting;

typedef berth_array(sighting) sighting_array;

typedef struct scan {
    const berth_surroundings *around;
    berth_arena *arena;
    sighting_array seen;
    berth_machine machine;
    berth_candidates *out;
} scan;

const char *berth_plugin_state_name(berth_plugin_state state) {
    static const char *const names[] = {
        [BERTH_PLUGIN_FOUND] = "found",
        [BERTH_PLUGIN_FILTERED] = "filtered",
        [BERTH_PLUGIN_INELIGIBLE] = "ineligible",
        [BERTH_PLUGIN_REFUSED] = "refused",
        [BERTH_PLUGIN_QUARANTINED] = "quarantined",
        [BERTH_PLUGIN_LOAD_FAILED] = "load failed",
        [BERTH_PLUGIN_DECLINED] = "declined",
        [BERTH_PLUGIN_REGISTER_FAILED] = "register failed",
        [BERTH_PLUGIN_ACTIVE] = "active",
        [BERTH_PLUGIN_SELECTED] = "selected",
    };
    return (size_t)state < BERTH_COUNT(names) ? names[state] : "unknown";
}

// ---- one candidate ------------------------------------------------------------------------------

// Ends a candidate, with all of its entries that were still in the running.
static berth_status settle(scan *in, berth_candidate *candidate, berth_plugin_state state,
                           const char *reason) {
    if (reason == NULL) {
        return berth_arena_exhausted(in->arena, "plugin candidates");
    }
    candidate->state = state;
    candidate->reason = reason;
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        if (candidate->entries[i].state == BERTH_PLUGIN_FOUND) {
            candidate->entries[i].state = state;
            candidate->entries[i].reason = reason;
        }
    }
    return BERTH_OK;
}

static berth_status check_twin(scan *in, berth_candidate *candidate) {
    for (size_t i = 0; candidate->id[0] != '\0' && i < in->seen.count; ++i) {
        const berth_candidate *first = &in->seen.data[i].candidate;
        if (strcmp(first->id, candidate->id) == 0) {
            return settle(in, candidate, BERTH_PLUGIN_REFUSED,
                          berth_arena_printf(in->arena,
                                             "the id '%s' is taken by %s, which comes first: "
                                             "remove %s or the other",
                                             candidate->id, first->manifest, candidate->manifest));
        }
    }
    return BERTH_OK;
}

static berth_status check_abi(scan *in, berth_candidate *candidate) {
    const uint64_t min = candidate->abi_min;
    const uint64_t max = candidate->abi_max;
    if (max == 0 || (min <= HOST_MAX && max >= HOST_MIN)) {
        return BERTH_OK;
    }
    return settle(in, candidate, BERTH_PLUGIN_REFUSED,
                  berth_arena_printf(in->arena,
                                     "built for plugin ABI %" PRIu32 ".%" PRIu32 "-%" PRIu32
                                     ".%" PRIu32 ", this host speaks %" PRIu32 ".%" PRIu32
                                     "-%" PRIu32 ".%" PRIu32 ": install a %s",
                                     BERTH_ABI_MAJOR(min), BERTH_ABI_MINOR(min),
                                     BERTH_ABI_MAJOR(max), BERTH_ABI_MINOR(max),
                                     BERTH_ABI_MAJOR(HOST_MIN), BERTH_ABI_MINOR(HOST_MIN),
                                     BERTH_ABI_MAJOR(HOST_MAX), BERTH_ABI_MINOR(HOST_MAX),
                                     min > HOST_MAX ? "newer berth, or an older build of the plugin"
                                                    : "newer build of the plugin"));
}

static berth_status check_machine(scan *in, berth_candidate *candidate,
                                  const berth_demands *demands) {
    const char *reason = NULL;
    BERTH_TRY(berth_demands_judge(demands, &in->machine, in->arena, &reason));
    return reason == NULL ? BERTH_OK : settle(in, candidate, BERTH_PLUGIN_INELIGIBLE, reason);
}

// Nothing that this host could call is left.
static berth_status check_groups(scan *in, berth_candidate *candidate) {
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        if (candidate->entries[i].state == BERTH_PLUGIN_FOUND) {
            return BERTH_OK;
        }
    }
    return settle(in, candidate, BERTH_PLUGIN_INELIGIBLE,
                  "this host serves none of the groups of its entry points yet");
}

static berth_status judge(scan *in, berth_candidate *candidate, const berth_demands *demands,
                          berth_status read) {
    if (read != BERTH_OK) {
        return settle(in, candidate, BERTH_PLUGIN_REFUSED,
                      berth_arena_strdup(in->arena, berth_status_message()));
    }
    BERTH_TRY(check_twin(in, candidate));
    if (candidate->state == BERTH_PLUGIN_FOUND) {
        BERTH_TRY(check_abi(in, candidate));
    }
    if (candidate->state == BERTH_PLUGIN_FOUND) {
        BERTH_TRY(check_machine(in, candidate, demands));
    }
    return candidate->state == BERTH_PLUGIN_FOUND ? check_groups(in, candidate) : BERTH_OK;
}

static bool is_builtin(const scan *in, const berth_place *place, const char *id) {
    if (place == NULL || !place->is_own) {
        return false;
    }
    for (size_t i = 0; i < in->around->builtin_count; ++i) {
        if (strcmp(in->around->builtin_ids[i], id) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_seen(const scan *in, const struct stat *file) {
    for (size_t i = 0; i < in->seen.count; ++i) {
        if (in->seen.data[i].device == file->st_dev && in->seen.data[i].inode == file->st_ino) {
            return true;
        }
    }
    return false;
}

// `place` NULL: named with --plugin. A file that was seen under another name is the same plugin.
static berth_status add_manifest(scan *in, const char *path, const berth_place *place) {
    struct stat file = {0};
    if (stat(path, &file) == 0 && is_seen(in, &file)) {
        return BERTH_OK;
    }
    sighting found = {.device = file.st_dev, .inode = file.st_ino};
    berth_demands demands;
    const berth_status read =
        berth_manifest_read(path, NULL, in->arena, &found.candidate, &demands);
    found.candidate.source = place == NULL ? "--plugin" : place->source;
    found.candidate.is_builtin = is_builtin(in, place, found.candidate.id);
    BERTH_TRY(judge(in, &found.candidate, &demands, read));
    return berth_array_push(&in->seen, found);
}

// A library without a manifest: what it is called and what it has is known when it is opened.
static berth_status add_library(scan *in, const char *path, const struct stat *file) {
    const sighting found = {
        .device = file->st_dev,
        .inode = file->st_ino,
        .candidate =
            {
                        .id = "",
                        .version = "",
                        .vendor = "",
                        .library = path,
                        .source = "--plugin",
                        .reason = "",
                        },
    };
    return berth_array_push(&in->seen, found);
}

// ---- files and directories ----------------------------------------------------------------------

static bool is_elf(const char *path) {
    char magic[4] = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool has_read = fd >= 0 && read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic);
    if (fd >= 0) {
        close(fd);
    }
    return has_read && memcmp(magic, "\177ELF", sizeof(magic)) == 0;
}

static berth_status scan_file(scan *in, const char *name) {
    char resolved[PATH_MAX];
    struct stat file;
    if (realpath(name, resolved) == NULL || stat(resolved, &file) != 0) {
        return BERTH_FAIL(NOT_FOUND, "--plugin: %s cannot be used: %s", name, strerror(errno));
    }
    if (!S_ISREG(file.st_mode)) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "--plugin: %s is no file, name a manifest or a library, or a directory "
                          "with --plugin-dir",
                          name);
    }
    const char *path = berth_arena_strdup(in->arena, resolved);
    if (path == NULL) {
        return berth_arena_exhausted(in->arena, "plugin files");
    }
    return is_elf(path) ? add_library(in, path, &file) : add_manifest(in, path, NULL);
}

static berth_status scan_place(scan *in, const berth_place *place) {
    berth_dir_listing listing;
    if (berth_dir_list(place->path, in->arena, &listing) != BERTH_OK) {
        return berth_warnings_add(&in->out->warnings, &in->out->warning_count, in->arena,
                                  berth_arena_strdup(in->arena, berth_status_message()));
    }
    for (size_t i = 0; i < listing.count; ++i) {
        const berth_str name = berth_str_from(listing.names[i]);
        if (name.data[0] == '.' || !berth_str_ends_with(name, BERTH_STR(SUFFIX))) {
            continue;
        }
        const char *path = berth_path_join(in->arena, place->path, listing.names[i]);
        if (path == NULL) {
            return berth_arena_exhausted(in->arena, "plugin files");
        }
        BERTH_TRY(add_manifest(in, path, place));
    }
    return BERTH_OK;
}

// ---- the run ------------------------------------------------------------------------------------

static berth_status hand_over(scan *in) {
    in->out->items = BERTH_ARENA_ARRAY(in->arena, berth_candidate, in->seen.count);
    if (in->out->items == NULL) {
        return berth_arena_exhausted(in->arena, "plugin candidates");
    }
    for (size_t i = 0; i < in->seen.count; ++i) {
        in->out->items[in->out->count++] = in->seen.data[i].candidate;
    }
    return BERTH_OK;
}

static berth_status scan_all(scan *in, const berth_config *config) {
    berth_places places;
    BERTH_TRY(berth_places_find(config, in->around, in->arena, &places));
    in->out->warnings = places.warnings;
    in->out->warning_count = places.warning_count;
    for (size_t i = 0; i < config->plugin_files.count; ++i) {
        BERTH_TRY(scan_file(in, config->plugin_files.items[i]));
    }
    for (size_t i = 0; i < places.count; ++i) {
        BERTH_TRY(scan_place(in, &places.items[i]));
    }
    BERTH_TRY(hand_over(in));
    return berth_filter_apply(config->plugins, in->out, in->arena);
}

berth_status berth_discovery_scan(const berth_config *config,
                                  const berth_surroundings *surroundings, berth_arena *arena,
                                  berth_candidates *out) {
    *out = (berth_candidates){0};
    scan in = {.around = surroundings, .arena = arena, .out = out};
    const berth_status status = scan_all(&in, config);
    berth_array_free(&in.seen);
    return status;
}

berth_status berth_discovery_run(const berth_config *config, berth_arena *arena,
                                 berth_candidates *out) {
    berth_surroundings surroundings;
    BERTH_TRY(berth_surroundings_get(arena, &surroundings));
    return berth_discovery_scan(config, &surroundings, arena, out);
}
