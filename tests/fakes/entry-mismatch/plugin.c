// SPDX-License-Identifier: Apache-2.0
// Manifest and library know one entry point each that the other does not know.
#include <berth/plugin.h>

static void build(berth_builder *builder) {
    (void)builder;
}

static const berth_model model = {
    .size = sizeof(berth_model),
    .architecture = "MismatchForCausalLM",
    .build = build,
};

static berth_status add_model(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_model(registrar, &model, 0);
}

static berth_status refuse(const berth_host *host, berth_registrar *registrar) {
    (void)registrar;
    return BERTH_PLUGIN_FAIL(host, BERTH_INTERNAL, "what no manifest lists is called");
}

static const berth_entry_point listed = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "in-both",
    .register_plugin = add_model,
};
static const berth_entry_point unlisted = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "in-library",
    .register_plugin = refuse,
};
static const berth_entry_point *const entries[] = {&listed, &unlisted};

BERTH_PLUGIN_DEFINE(.id = "entry-mismatch", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 2);
