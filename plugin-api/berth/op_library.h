// SPDX-License-Identifier: Apache-2.0
// Op libraries: a plugin's second library, with its heavy kernels, opened only where a plan could
// use one.
//
// An implementation or override that has a faster form there names the file
// (berth_op_impl.library), and stays complete: it is what runs where that file is missing, does not
// load, is of another build, or refuses the site. So a plugin is installed, listed and tested
// without its heavy half, and losing it costs speed and nothing else.
//
// The file lies in the folder of the plugin's own library and exports one symbol,
// `berth_op_library_v1`, with constant data behind it. It is opened when the first plan reaches a
// site that such an implementation would be asked about, [startup], once per process and by the
// rules of a plugin's library: RTLD_NOW | RTLD_LOCAL, ABI ranges, sizes, required slots, never
// unloaded. It comes whole: unless it has a form of every registered implementation that names it,
// nothing of it is used. What has failed stays failed, and shows: the loader's own words are in one
// warning, in `berth ops explain` beside every site that goes without, and in `berth plugins list`.
#ifndef BERTH_OP_LIBRARY_H
#define BERTH_OP_LIBRARY_H

#include <berth/op.h>
#include <berth/status.h>

// From ABI 1.1 on.
typedef struct berth_op_library {
    uint64_t size;
    uint64_t abi_min; // BERTH_ABI range that this library can work with
    uint64_t abi_max;
    const char *id;      // [required] berth_plugin.id of the plugin whose library it is
    const char *version; // [required] berth_plugin.version: both share what only one build knows
    // The forms. Each has op (either name), name and dispatch_key of the implementation that it is
    // a form of, whose priority and device types it keeps; everything else is its own: revision,
    // flags, supports, create, packed_bytes, forward. What no registered implementation asks for is
    // not used.
    const berth_op_impl *const *impls;
    uint64_t impl_count;
} berth_op_library;

// Defines the exported symbol:
//   BERTH_OP_LIBRARY_DEFINE(.id = "acme", .version = "1.4.0", .impls = forms, .impl_count = 3);
#define BERTH_OP_LIBRARY_DEFINE(...)                                                               \
    extern __attribute__((visibility("default"))) const berth_op_library berth_op_library_v1;      \
    const berth_op_library berth_op_library_v1 = {.size = sizeof(berth_op_library),                \
                                                  .abi_min = BERTH_ABI(1, 0),                      \
                                                  .abi_max = BERTH_ABI_CURRENT,                    \
                                                  __VA_ARGS__}

#endif
