// SPDX-License-Identifier: Apache-2.0
// A frozen registry with the core plugins (ops, layers, models, quantization) and, if wanted, one
// more plugin that the test brings along.
#ifndef TEST_CORE_REGISTRY_H
#define TEST_CORE_REGISTRY_H

#include "base/arena.h"
#include "config/config.h"
#include "registry/registry.h"

typedef struct core_registry {
    berth_arena *arena;
    berth_config config; // all defaults
    berth_registry *registry;
} core_registry;

// `extra` may be NULL.
void core_registry_init(core_registry *core, const berth_plugin *extra);
void core_registry_deinit(core_registry *core);

#endif
