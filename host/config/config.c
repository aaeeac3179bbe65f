// SPDX-License-Identifier: Apache-2.0
// Input: argv, environment, a YAML file. Output: one berth_config with a value and a source for
// every row of rows.c.
#include "config/config.h"

#include <string.h>
#include <sys/auxv.h>

#include "base/array.h"
#include "base/file.h"
#include "config/rows.h"

static bool is_from_file(const berth_config *config, size_t offset) {
    for (size_t i = 0; i < berth_config_row_count; ++i) {
        if (berth_config_rows[i].offset == offset) {
            return config->options.sources[i].origin == BERTH_ORIGIN_CONFIG;
        }
    }
    return false;
}

// Why: what a configuration file means must not depend on the working directory of whoever uses it.
static berth_status resolve(berth_config *config, size_t offset, berth_option_list *list) {
    if (!is_from_file(config, offset)) {
        return BERTH_OK;
    }
    const char *dir = berth_arena_copy(config->arena, berth_path_dir(config->config_file));
    for (size_t i = 0; i < list->count; ++i) {
        list->items[i] = dir == NULL ? NULL : berth_path_join(config->arena, dir, list->items[i]);
        if (list->items[i] == NULL) {
            return berth_arena_exhausted(config->arena, "plugin directories");
        }
    }
    return BERTH_OK;
}

static berth_status apply_file(berth_config *config) {
    berth_yaml *root = NULL;
    BERTH_TRY(berth_yaml_load(config->config_file, NULL, &root));
    const berth_status status = berth_options_apply_yaml(&config->options, root);
    berth_yaml_destroy(root);
    BERTH_TRY(status);
    BERTH_TRY(resolve(config, offsetof(berth_config, plugin_dirs), &config->plugin_dirs));
    return resolve(config, offsetof(berth_config, plugin_files), &config->plugin_files);
}

berth_status berth_config_check_backend(const char *name) {
    static const char *const backends[] = {"eager", "inductor"};
    for (size_t i = 0; i < BERTH_COUNT(backends); ++i) {
        if (strcmp(name, backends[i]) == 0) {
            return BERTH_OK;
        }
    }
    return BERTH_FAIL(INVALID_ARGUMENT,
                      "compilation.backend: there is no backend '%s', use eager or inductor", name);
}

berth_status berth_config_init(berth_config *config, berth_arena *arena) {
    *config = (berth_config){.arena = arena};
    return berth_options_init(&config->options, berth_config_rows, berth_config_row_count, config,
                              arena);
}

berth_status berth_config_load(berth_config *config, uint64_t command, int argc,
                               char *const *argv) {
    BERTH_TRY(berth_options_apply_argv(&config->options, command, argc, argv));
    // Why: whoever starts a program with more rights than his own must not steer what it loads.
    if (getauxval(AT_SECURE) == 0) {
        BERTH_TRY(berth_options_apply_env(&config->options));
    }
    if (config->config_file != NULL) {
        BERTH_TRY(apply_file(config));
    }
    config->user_ops = config->custom_ops;
    BERTH_TRY(berth_config_check_backend(config->compilation_backend));
    berth_capture_sizes sizes;
    return berth_config_capture_sizes(config, config->arena, &sizes);
}

void berth_config_allow(berth_config *config, const char *plugin) {
    config->changed_by = plugin;
}
