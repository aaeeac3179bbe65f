// SPDX-License-Identifier: Apache-2.0
// The flow of the program in a test's own process: plugins of the build, a platform, a worker with
// its model, an engine.
#ifndef TEST_FLOW_H
#define TEST_FLOW_H

#include "base/arena.h"
#include "config/config.h"
#include "discovery/discovery.h"
#include "engine/engine.h"
#include "platform/platform.h"
#include "registry/registry.h"
#include "worker/worker.h"

typedef struct flow {
    berth_arena *arena;
    berth_config config; // to be changed between init and start
    berth_candidates candidates;
    berth_registry *registry;
    berth_decision decision;
    berth_worker *worker;
    berth_engine *engine;
} flow;

// Default configuration, but for native ops where one lacks and the plugins of this build alone, or
// those of the folder $TEST_PLUGINS.
void flow_init(flow *f);
// Everything up to a worker that has its device and no model.
void flow_start_worker(flow *f);
// Everything up to an engine that waits for requests.
void flow_start(flow *f);
void flow_deinit(flow *f);

#endif
