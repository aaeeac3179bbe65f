// SPDX-License-Identifier: Apache-2.0
// What a plugin library exports, and what it may register.
//
// A library exports one symbol, `berth_plugin_v1`, with constant data behind it. The host reads it,
// checks that the ABI ranges overlap, and calls the entry points that the plugin's manifest allows,
// each exactly once per process. Registration is transactional: when an entry point fails,
// everything it added is dropped and none of its slots is ever called. Names are resolved, and
// duplicates judged, when the tables are frozen, so an override may be registered before its op.
#ifndef BERTH_PLUGIN_H
#define BERTH_PLUGIN_H

#include <berth/attention.h>
#include <berth/host.h>
#include <berth/layer.h>
#include <berth/model.h>
#include <berth/op.h>
#include <berth/pass.h>
#include <berth/platform.h>
#include <berth/quant.h>
#include <berth/status.h>

#define BERTH_GROUP_PLATFORM "berth.platform_plugins"
#define BERTH_GROUP_GENERAL  "berth.general_plugins"

// Take the place of the entry of the same name. Without the flag a name that exists is refused,
// with it one that does not, and a second replacement of the same entry. An op keeps its id and its
// class name. Implementations: the name is that of the same plugin, op and dispatch key; overrides:
// op and device type. A quantization config takes over what it does not set: a platform that only
// multiplies otherwise registers, in register_ops, a name and a get_quant_method that inherits.
#define BERTH_REGISTER_REPLACE 1u

// The tables a plugin may add to. What is added must stay valid until the plugin's shutdown; the
// host copies the table itself. A failed add makes its entry point fail. Every add returns
// BERTH_SEALED once the tables are frozen. [startup]
struct berth_registrar {
    uint64_t size;
    void *context; // the host's own
    // Platform entry points only, once, and they add nothing else: ops belong in the platform's
    // register_ops. `self` is passed to every slot of the platform.
    berth_status (*add_platform)(berth_registrar *registrar, const berth_platform *platform,
                                 void *self);
    berth_status (*add_op)(berth_registrar *registrar, const berth_op *op, uint64_t flags);
    berth_status (*add_op_impl)(berth_registrar *registrar, const berth_op_impl *impl,
                                uint64_t flags);
    berth_status (*add_op_override)(berth_registrar *registrar, const berth_op_impl *impl,
                                    uint64_t flags);
    berth_status (*add_layer)(berth_registrar *registrar, const berth_layer *layer, uint64_t flags);
    berth_status (*add_quant_config)(berth_registrar *registrar, const berth_quant_config *config,
                                     uint64_t flags);
    berth_status (*add_model)(berth_registrar *registrar, const berth_model *model, uint64_t flags);
    berth_status (*add_attention_backend)(berth_registrar *registrar,
                                          const berth_attention_backend *backend, uint64_t flags);
    // From ABI 1.1 on.
    berth_status (*add_pass)(berth_registrar *registrar, const berth_pass *pass, uint64_t flags);
};

typedef struct berth_entry_point {
    uint64_t size;
    const char *group; // [required] BERTH_GROUP_*
    const char *name;  // [required]
    // [required][startup] A platform whose hardware is absent returns BERTH_DECLINED with a text.
    // It must be cheap and must not initialise a device.
    berth_status (*register_plugin)(const berth_host *host, berth_registrar *registrar);
} berth_entry_point;

typedef struct berth_plugin {
    uint64_t size;
    uint64_t abi_min; // BERTH_ABI range that this library can work with
    uint64_t abi_max;
    const char *id;      // [required] equals the manifest's
    const char *version; // [required] "1.4.0"
    const char *vendor;  // [required]
    const berth_entry_point *const *entry_points;
    uint64_t entry_point_count;
    // [inherit][startup] Last call, after its ops, worker and device are gone. Only if an entry
    // point ran.
    void (*shutdown)(void);
} berth_plugin;

#if defined(BERTH_STATIC)
#define BERTH_PASTE_(a, b)  a##b
#define BERTH_PASTE(a, b)   BERTH_PASTE_(a, b)
#define BERTH_PLUGIN_SYMBOL BERTH_PASTE(berth_plugin_v1_, BERTH_STATIC)
#else
#define BERTH_PLUGIN_SYMBOL berth_plugin_v1
#endif

// Defines the exported symbol:
//   BERTH_PLUGIN_DEFINE(.id = "acme", .version = "1.4.0", .vendor = "Acme Silicon",
//                       .entry_points = entries, .entry_point_count = 2);
#define BERTH_PLUGIN_DEFINE(...)                                                                   \
    extern __attribute__((visibility("default"))) const berth_plugin BERTH_PLUGIN_SYMBOL;          \
    const berth_plugin BERTH_PLUGIN_SYMBOL = {.size = sizeof(berth_plugin),                        \
                                              .abi_min = BERTH_ABI(1, 0),                          \
                                              .abi_max = BERTH_ABI_CURRENT,                        \
                                              __VA_ARGS__}

#endif
