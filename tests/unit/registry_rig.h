// SPDX-License-Identifier: Apache-2.0
// A registry under test, and plugins that are written in the test itself. They are adopted as if a
// library of theirs had been opened, so everything behind dlopen is the real thing.
#ifndef TEST_REGISTRY_RIG_H
#define TEST_REGISTRY_RIG_H

#include <string.h>

#include "registry/registry_private.h"
#include "support/test.h"

typedef struct rig {
    berth_arena *arena;
    berth_config config;
    berth_registry *registry;
} rig;

// FAKE(name, group, { statements }) defines the plugin `name` with one entry point of that name;
// the statements see `host` and `registrar` and return a status.
#define FAKE(plugin_name, plugin_group, ...)                                                       \
    FAKE_SHUTDOWN(plugin_name, plugin_group, NULL, __VA_ARGS__)
#define FAKE_SHUTDOWN(plugin_name, plugin_group, plugin_shutdown, ...)                             \
    static berth_status register_##plugin_name(const berth_host *host,                             \
                                               berth_registrar *registrar) {                       \
        (void)host, (void)registrar;                                                               \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    static const berth_entry_point entry_##plugin_name = {                                         \
        .size = sizeof(berth_entry_point),                                                         \
        .group = (plugin_group),                                                                   \
        .name = #plugin_name,                                                                      \
        .register_plugin = register_##plugin_name,                                                 \
    };                                                                                             \
    static const berth_entry_point *const entries_##plugin_name[] = {&entry_##plugin_name};        \
    static const berth_plugin plugin_name = {                                                      \
        .size = sizeof(berth_plugin),                                                              \
        .abi_min = BERTH_ABI(1, 0),                                                                \
        .abi_max = BERTH_ABI_CURRENT,                                                              \
        .id = #plugin_name,                                                                        \
        .version = "1.0",                                                                          \
        .vendor = "berth tests",                                                                   \
        .entry_points = entries_##plugin_name,                                                     \
        .entry_point_count = 1,                                                                    \
        .shutdown = (plugin_shutdown),                                                             \
    }

static inline void rig_open(rig *in) {
    *in = (rig){0};
    CHECK_OK(berth_arena_create(64 * 1024, 16 * 1024 * 1024, &in->arena));
    in->config.arena = in->arena;
    CHECK_OK(berth_registry_create(&in->config, NULL, &in->registry));
}

static inline void rig_close(rig *in) {
    berth_registry_destroy(in->registry);
    berth_arena_destroy(in->arena);
    berth_status_clear();
}

// What opening a library would make of it; the candidate has the plugin's entry points.
static inline berth_status rig_adopt(rig *in, const berth_plugin *plugin,
                                     berth_candidate **out_candidate, berth_opened **out_opened) {
    berth_candidate *candidate = BERTH_ARENA_NEW(in->arena, berth_candidate);
    *candidate = (berth_candidate){
        .id = "",
        .version = "",
        .vendor = "",
        .library = "in the test",
        .source = "--plugin",
        .reason = "",
    };
    *out_candidate = candidate;
    return berth_library_adopt(in->registry, plugin, candidate, out_opened);
}

// Adopts a plugin and runs its entry points. The candidate says how it went.
static inline berth_candidate *rig_add(rig *in, const berth_plugin *plugin) {
    berth_candidate *candidate = NULL;
    berth_opened *opened = NULL;
    CHECK_OK(rig_adopt(in, plugin, &candidate, &opened));
    for (size_t i = 0; i < candidate->entry_count; ++i) {
        berth_entry_run(in->registry, opened, &candidate->entries[i]);
    }
    CHECK_OK(berth_platforms_list(in->registry));
    berth_candidate_settle(in->registry, candidate);
    return candidate;
}

#define CHECK_STATE(candidate, wanted)                                                             \
    CHECK_STR(berth_plugin_state_name((candidate)->state), berth_plugin_state_name(wanted))

static inline void check_refused(const berth_candidate *candidate, const char *text) {
    CHECK_STATE(candidate, BERTH_PLUGIN_REGISTER_FAILED);
    CHECK_CONTAINS(candidate->reason, text);
}
#define CHECK_REFUSED(candidate, text) check_refused((candidate), (text))

// ---- tables that lack nothing -------------------------------------------------------------------

static inline berth_status fake_infer(const berth_op_site *site, berth_op_result *out) {
    (void)site, (void)out;
    return BERTH_OK;
}

static inline berth_status fake_forward(void *self, const berth_op_args *args) {
    (void)self, (void)args;
    return BERTH_OK;
}

static inline void fake_layer_build(berth_builder *builder, const berth_call *call) {
    (void)builder, (void)call;
}

static inline void fake_model_build(berth_builder *builder) {
    (void)builder;
}

static inline berth_status fake_matches(const berth_host *host, const berth_json *config) {
    (void)host, (void)config;
    return BERTH_NOT_FOUND;
}

static inline const berth_quant_method *
fake_method(const berth_host *host, const berth_json *config, const berth_linear *linear) {
    (void)host, (void)config, (void)linear;
    return NULL;
}

static inline berth_status fake_allocate(void *self, uint64_t device, uint64_t bytes,
                                         void **out_base) {
    (void)self, (void)device, (void)bytes, (void)out_base;
    return BERTH_OUT_OF_MEMORY;
}

static inline void fake_release(void *self, uint64_t device, void *base) {
    (void)self, (void)device, (void)base;
}

static inline berth_status fake_copy(void *self, uint64_t device, const berth_copy *copy) {
    (void)self, (void)device, (void)copy;
    return BERTH_OK;
}

static inline berth_status fake_synchronize(void *self, uint64_t device) {
    (void)self, (void)device;
    return BERTH_OK;
}

static inline berth_status fake_device_count(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 1;
    return BERTH_OK;
}

static inline berth_status fake_device_info(void *self, uint64_t device, berth_device_info *out) {
    (void)self, (void)device, (void)out;
    return BERTH_OK;
}

#define OP(id, class, ...)                                                                         \
    {                                                                                              \
        .size = sizeof(berth_op), .name = (id), .class_name = (class), .revision = 1,              \
        .infer = fake_infer, .reference = fake_forward, __VA_ARGS__                                \
    }
#define IMPL(op_name, impl_name, key, ...)                                                         \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_name), .name = (impl_name),                       \
        .dispatch_key = (key), .revision = 1, .forward = fake_forward, __VA_ARGS__                 \
    }
#define OVERRIDE(op_name, impl_name, types, ...)                                                   \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (op_name), .name = (impl_name), .revision = 1,        \
        .forward = fake_forward, .device_types = (types), .device_type_count = BERTH_COUNT(types), \
        __VA_ARGS__                                                                                \
    }
#define LAYER(layer_name)                                                                          \
    { .size = sizeof(berth_layer), .name = (layer_name), .build = fake_layer_build }
#define MODEL(model_name)                                                                          \
    { .size = sizeof(berth_model), .architecture = (model_name), .build = fake_model_build }
#define QUANT(quant_name)                                                                          \
    {                                                                                              \
        .size = sizeof(berth_quant_config), .name = (quant_name), .matches = fake_matches,         \
        .get_quant_method = fake_method                                                            \
    }
static inline berth_status rig_rewrite(const berth_pass_match *match, berth_builder *builder) {
    (void)match, (void)builder;
    return BERTH_NOT_FOUND;
}
static const berth_pass_node *const rig_nodes[] = {BERTH_PASS_FIRST("reshape")};
static const berth_pass_pattern *const rig_patterns[] = {
    BERTH_PASS_PATTERN(rig_nodes, rig_rewrite),
};
#define PASS(pass_name)                                                                            \
    {                                                                                              \
        .size = sizeof(berth_pass), .name = (pass_name), .revision = 1, .patterns = rig_patterns,  \
        .pattern_count = 1                                                                         \
    }
#define ATTENTION(backend_name, backend_impl)                                                      \
    { .size = sizeof(berth_attention_backend), .name = (backend_name), .impl = (backend_impl) }
#define DEVICE                                                                                     \
    {                                                                                              \
        .size = sizeof(berth_device_api), .allocate = fake_allocate, .release = fake_release,      \
        .copy_to_device = fake_copy, .copy_to_host = fake_copy, .synchronize = fake_synchronize    \
    }
#define PLATFORM(platform_name, ...)                                                               \
    {                                                                                              \
        .size = sizeof(berth_platform), .name = (platform_name), .vendor = "berth tests",          \
        .kind = BERTH_PLATFORM_OOT, .device_type = "fake", .device_name = "fake device",           \
        .capabilities = &fake_capabilities, .device = &fake_device,                                \
        .device_count = fake_device_count, .device_info = fake_device_info, __VA_ARGS__            \
    }

static const berth_capabilities fake_capabilities = {.size = sizeof(berth_capabilities)};
static const berth_device_api fake_device = DEVICE;

#endif
