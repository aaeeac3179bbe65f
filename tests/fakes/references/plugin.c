// SPDX-License-Identifier: Apache-2.0
// The fused ops of linear layers, and the ops that they are made of, on the CPU: each runs its
// reference, so that a graph gives the same bits before and after the passes. With
// REFERENCES_FUSED_ONLY in the environment the parts are the platform's own.
#include <stdlib.h>

#include <berth/plugin.h>

// No `create`, so the self of a forward is its site.
static berth_status forward(void *self, const berth_op_args *args) {
    return ((const berth_op_site *)self)->op->reference(self, args);
}

static uint64_t workspace(void *self, uint64_t tokens) {
    const berth_op_site *site = self;
    return site->op->reference_workspace ? site->op->reference_workspace(site, tokens) : 0;
}

// What has no inputs to begin with is refused by name, as a vendor's kernel would.
static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return getenv("REFERENCES_REFUSE") && strstr(site->layer, getenv("REFERENCES_REFUSE"))
               ? BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "not this layer")
               : BERTH_OK;
}

#define REFERENCE(op_id, op_revision)                                                              \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_id), .name = "reference_" op_id,                  \
        .revision = (op_revision), .supports = supports, .workspace = workspace,                   \
        .forward = forward, .device_types = (const char *const[]){"cpu"}, .device_type_count = 1   \
    }

static const berth_op_impl fused[] = {
    REFERENCE("fused_linear", 1),
    REFERENCE("fused_packed_linear", 1),
    REFERENCE("fused_scaled_linear", 1),
};

static const berth_op_impl parts[] = {
    REFERENCE("rms_norm", 2),      REFERENCE("silu_and_mul", 1), REFERENCE("quant_fp8", 1),
    REFERENCE("quant_int8", 1),    REFERENCE("linear", 1),       REFERENCE("packed_linear", 1),
    REFERENCE("scaled_linear", 1),
};

static berth_status add(berth_registrar *registrar, const berth_op_impl *impls, size_t count) {
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < count && status == BERTH_OK; ++i) {
        status = registrar->add_op_override(registrar, &impls[i], 0);
    }
    return status;
}

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    const berth_status status = add(registrar, fused, sizeof fused / sizeof fused[0]);
    return status == BERTH_OK && !getenv("REFERENCES_FUSED_ONLY")
               ? add(registrar, parts, sizeof parts / sizeof parts[0])
               : status;
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "references",
    .register_plugin = register_plugin,
};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "references", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
