// SPDX-License-Identifier: Apache-2.0
// Two entry points: the first fails after it has added a layer, the second is fine.
#include <berth/plugin.h>

static void build(berth_builder *builder, const berth_call *call) {
    (void)builder, (void)call;
}

static const berth_layer left = {
    .size = sizeof(berth_layer),
    .name = "HalfFailedLeft",
    .build = build,
};
static const berth_layer kept = {
    .size = sizeof(berth_layer),
    .name = "HalfFailedKept",
    .build = build,
};

static berth_status fail_late(const berth_host *host, berth_registrar *registrar) {
    const berth_status status = registrar->add_layer(registrar, &left, 0);
    if (status != BERTH_OK) {
        return status;
    }
    return BERTH_PLUGIN_FAIL(host, BERTH_UNAVAILABLE, "the licence server does not answer");
}

static berth_status succeed(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_layer(registrar, &kept, 0);
}

static const berth_entry_point first = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "half-first",
    .register_plugin = fail_late,
};
static const berth_entry_point second = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "half-second",
    .register_plugin = succeed,
};
static const berth_entry_point *const entries[] = {&first, &second};

BERTH_PLUGIN_DEFINE(.id = "half-failed", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 2);
