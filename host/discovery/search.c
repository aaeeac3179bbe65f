// SPDX-License-Identifier: Apache-2.0
// Input: the configuration and what the system says about this process. Output: the directories to
// search, in order, each once. A directory that the user named must exist, any other may.
#include "discovery/search.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "base/file.h"

#define OWN_PLACES     2
#define DEFAULT_PLACES 4

// The generated list of the ids that ship with the host.
extern const char *const berth_builtin_ids[];
extern const size_t berth_builtin_ids_count;

// Places on their way; own are the host's library directories.
typedef struct finder {
    const berth_config *config;
    const berth_surroundings *around;
    berth_arena *arena;
    berth_places *out;
    const char *own[OWN_PLACES];
} finder;

berth_status berth_surroundings_get(berth_arena *arena, berth_surroundings *out) {
    *out = (berth_surroundings){
        .data_home = getenv("XDG_DATA_HOME"),
        .home = getenv("HOME"),
        .system_dir = "/etc/berth/plugins",
        .is_secure = getauxval(AT_SECURE) != 0,
        .builtin_ids = berth_builtin_ids,
        .builtin_count = berth_builtin_ids_count,
    };
    return berth_path_executable_dir(arena, &out->executable_dir);
}

berth_status berth_warnings_add(const char *const **warnings, size_t *count, berth_arena *arena,
                                const char *line) {
    const char **longer = BERTH_ARENA_ARRAY(arena, const char *, *count + 1);
    if (longer == NULL || line == NULL) {
        return berth_arena_exhausted(arena, "warnings");
    }
    for (size_t i = 0; i < *count; ++i) {
        longer[i] = (*warnings)[i];
    }
    longer[(*count)++] = line;
    *warnings = longer;
    return BERTH_OK;
}

static berth_status warn(finder *in, const char *line) {
    return berth_warnings_add(&in->out->warnings, &in->out->warning_count, in->arena, line);
}

static bool is_own(const finder *in, const struct stat *found) {
    for (size_t i = 0; i < OWN_PLACES; ++i) {
        struct stat own;
        if (stat(in->own[i], &own) == 0 && own.st_dev == found->st_dev &&
            own.st_ino == found->st_ino) {
            return true;
        }
    }
    return false;
}

static bool is_known(const berth_places *places, const struct stat *found) {
    for (size_t i = 0; i < places->count; ++i) {
        if (places->items[i].device == found->st_dev && places->items[i].inode == found->st_ino) {
            return true;
        }
    }
    return false;
}

// Adds a directory that is there and not yet in the list.
static berth_status add_place(finder *in, const char *path, const char *source) {
    struct stat found;
    if (path == NULL) {
        return berth_arena_exhausted(in->arena, "plugin directories");
    }
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode) || is_known(in->out, &found)) {
        return BERTH_OK;
    }
    in->out->items[in->out->count++] = (berth_place){
        .path = path,
        .source = source,
        .device = found.st_dev,
        .inode = found.st_ino,
        .is_own = is_own(in, &found),
    };
    return BERTH_OK;
}

// A directory that the user named. Why the working directory counts here and nowhere else: this
// name was typed for this run.
static berth_status add_named(finder *in, const char *name, const char *source) {
    char resolved[PATH_MAX];
    if (realpath(name, resolved) == NULL) {
        return BERTH_FAIL(NOT_FOUND, "%s: the plugin directory %s cannot be used: %s", source, name,
                          strerror(errno));
    }
    if (!berth_path_is_dir(resolved)) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: %s is a file, a directory is needed", source,
                          name);
    }
    return add_place(in, berth_arena_strdup(in->arena, resolved), source);
}

static berth_status add_list(finder *in, const char *list, const char *variable) {
    berth_str rest = berth_str_from(list);
    for (berth_str piece; list[0] != '\0' && berth_str_split_first(&rest, ':', &piece);) {
        if (piece.size > 0 && piece.data[0] == '/') {
            BERTH_TRY(add_place(in, berth_arena_copy(in->arena, piece), variable));
        } else {
            BERTH_TRY(warn(in, berth_arena_printf(in->arena,
                                                  "%s: the element '" BERTH_STR_FMT
                                                  "' is ignored, it is no absolute path",
                                                  variable, BERTH_STR_ARG(piece))));
        }
    }
    return BERTH_OK;
}

static berth_status add_user_place(finder *in) {
    const char *data = in->around->data_home;
    if (in->around->is_secure) {
        return BERTH_OK;
    }
    if (data == NULL || data[0] == '\0') {
        if (in->around->home == NULL || in->around->home[0] != '/') {
            return BERTH_OK;
        }
        data = berth_path_join(in->arena, in->around->home, ".local/share");
    } else if (data[0] != '/') {
        return warn(in, berth_arena_printf(in->arena,
                                           "XDG_DATA_HOME: '%s' is ignored, it is no absolute path",
                                           data));
    }
    const char *path = data == NULL ? NULL : berth_path_join(in->arena, data, "berth/plugins");
    return add_place(in, path, path);
}

static berth_status add_defaults(finder *in) {
    BERTH_TRY(add_user_place(in));
    BERTH_TRY(add_place(in, in->around->system_dir, in->around->system_dir));
    for (size_t i = 0; i < OWN_PLACES; ++i) {
        BERTH_TRY(add_place(in, in->own[i], in->own[i]));
    }
    return BERTH_OK;
}

static berth_status add_all(finder *in) {
    const berth_config *config = in->config;
    for (size_t i = 0; i < config->plugin_dirs.count; ++i) {
        BERTH_TRY(add_named(in, config->plugin_dirs.items[i], "--plugin-dir"));
    }
    if (in->around->is_secure && (config->plugin_search != NULL || config->plugin_path != NULL)) {
        BERTH_TRY(warn(in, "BERTH_PLUGIN_PATH and BERTH_PLUGIN_DIRS are ignored in a process that "
                           "has more rights than its user"));
    } else if (config->plugin_search != NULL) {
        if (config->plugin_path != NULL) {
            BERTH_TRY(warn(in, "BERTH_PLUGIN_PATH is ignored, BERTH_PLUGIN_DIRS replaces it"));
        }
        return add_list(in, config->plugin_search, "BERTH_PLUGIN_DIRS");
    } else if (config->plugin_path != NULL) {
        BERTH_TRY(add_list(in, config->plugin_path, "BERTH_PLUGIN_PATH"));
    }
    return add_defaults(in);
}

static size_t count_elements(const char *list) {
    size_t count = 1;
    for (; list != NULL && *list != '\0'; ++list) {
        count += *list == ':';
    }
    return count;
}

berth_status berth_places_find(const berth_config *config, const berth_surroundings *surroundings,
                               berth_arena *arena, berth_places *out) {
    const size_t most = config->plugin_dirs.count + count_elements(config->plugin_path) +
                        count_elements(config->plugin_search) + DEFAULT_PLACES;
    const char *prefix = berth_arena_copy(arena, berth_path_dir(surroundings->executable_dir));
    *out = (berth_places){.items = BERTH_ARENA_ARRAY(arena, berth_place, most)};
    if (out->items == NULL || prefix == NULL) {
        return berth_arena_exhausted(arena, "plugin directories");
    }
    finder in = {
        .config = config,
        .around = surroundings,
        .arena = arena,
        .out = out,
        .own = {berth_path_join(arena, prefix, "lib/berth/plugins"),
                berth_path_join(arena, surroundings->executable_dir, "plugins")},
    };
    if (in.own[0] == NULL || in.own[1] == NULL) {
        return berth_arena_exhausted(arena, "plugin directories");
    }
    return add_all(&in);
}
