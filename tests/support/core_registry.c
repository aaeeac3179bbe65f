// SPDX-License-Identifier: Apache-2.0
// Input: the generated table of core plugins. Output: a registry as the program has it when no
// library was found.
#include "support/core_registry.h"

#include "support/test.h"

#define MAX_PLUGINS 16

extern const berth_plugin *const berth_core_plugins[];
extern const size_t berth_core_plugins_count;

void core_registry_init(core_registry *core, const berth_plugin *extra) {
    *core = (core_registry){0};
    CHECK_OK(berth_arena_create((size_t)64 << 10, (size_t)64 << 20, &core->arena));
    CHECK_OK(berth_config_init(&core->config, core->arena));
    CHECK_OK(berth_registry_create(&core->config, NULL, &core->registry));
    const berth_plugin *plugins[MAX_PLUGINS];
    size_t count = 0;
    for (; count < berth_core_plugins_count; ++count) {
        CHECK(count + 1 < MAX_PLUGINS);
        plugins[count] = berth_core_plugins[count];
    }
    if (extra != NULL) {
        plugins[count++] = extra;
    }
    CHECK_OK(berth_registry_add_core(core->registry, plugins, count));
    CHECK_OK(berth_registry_freeze(core->registry));
}

void core_registry_deinit(core_registry *core) {
    berth_registry_destroy(core->registry);
    berth_arena_destroy(core->arena);
    *core = (core_registry){0};
}
