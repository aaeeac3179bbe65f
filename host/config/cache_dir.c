// SPDX-License-Identifier: Apache-2.0
// Input: the option and the environment. Output: the directory of the cache, or none. As the XDG
// base directory specification has it, a variable that is empty or no absolute path is not set.
#include <stdlib.h>
#include <sys/auxv.h>

#include "base/file.h"
#include "config/config.h"

static const char *absolute(const char *variable) {
    const char *path = getenv(variable);
    return path != NULL && path[0] == '/' ? path : NULL;
}

berth_status berth_config_cache_dir(const berth_config *config, berth_arena *arena,
                                    const char **out_dir) {
    const char *cache = absolute("XDG_CACHE_HOME");
    const char *home = absolute("HOME");
    *out_dir = NULL;
    if (config->cache_dir != NULL) {
        *out_dir = config->cache_dir[0] == '\0' ? NULL : config->cache_dir;
        return BERTH_OK;
    }
    // Why: what such a process writes must not lie where its caller points.
    if (getauxval(AT_SECURE) != 0 || (cache == NULL && home == NULL)) {
        return BERTH_OK;
    }
    *out_dir = cache != NULL ? berth_path_join(arena, cache, "berth")
                             : berth_path_join(arena, home, ".cache/berth");
    return *out_dir == NULL ? berth_arena_exhausted(arena, "the cache's directory") : BERTH_OK;
}
