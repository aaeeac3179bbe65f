// SPDX-License-Identifier: Apache-2.0
// Input: a configuration. Output: an engine, by the stages of host/main.c.
#include "support/flow.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

extern const berth_plugin *const berth_core_plugins[];
extern const size_t berth_core_plugins_count;

void flow_init(flow *f) {
    char plugins[PATH_MAX];
    memset(f, 0, sizeof *f);
    CHECK_OK(berth_arena_create(1 << 16, 1 << 28, &f->arena));
    CHECK_OK(berth_config_init(&f->config, f->arena));
    const char *given = getenv("TEST_PLUGINS");
    CHECK(realpath(given != NULL ? given : TEST_BUILD "/plugins", plugins) != NULL);
    f->config.plugin_search = berth_arena_strdup(f->arena, plugins);
    f->config.allow_fallback = true;
}

void flow_start_worker(flow *f) {
    CHECK_OK(berth_discovery_run(&f->config, f->arena, &f->candidates));
    CHECK_OK(berth_registry_create(&f->config, &berth_worker_default, &f->registry));
    CHECK_OK(berth_registry_add_core(f->registry, berth_core_plugins, berth_core_plugins_count));
    CHECK_OK(berth_registry_load(f->registry, &f->candidates));
    CHECK_OK(
        berth_platform_choose(&f->config, f->registry, &f->candidates, f->arena, &f->decision));
    CHECK_OK(berth_platform_configure(f->decision.platform, &f->config, f->registry));
    CHECK_OK(berth_registry_freeze(f->registry));
    CHECK_OK(berth_worker_create(&f->config, f->registry, f->decision.platform, &f->worker));
    CHECK_OK(berth_worker_init_device(f->worker));
}

void flow_start(flow *f) {
    flow_start_worker(f);
    CHECK_OK(berth_worker_load_model(f->worker));
    CHECK_OK(berth_engine_create(&f->config, f->worker, &f->engine));
}

void flow_deinit(flow *f) {
    berth_engine_destroy(f->engine);
    berth_worker_destroy(f->worker);
    berth_registry_destroy(f->registry);
    berth_arena_destroy(f->arena);
}
