// SPDX-License-Identifier: Apache-2.0
// A plugin of a later major ABI. Behind the range nothing is as today, so nothing may be read.
#include <berth/plugin.h>

extern __attribute__((visibility("default"))) const uint64_t berth_plugin_v1[];
const uint64_t berth_plugin_v1[] = {
    64, BERTH_ABI(7, 1), BERTH_ABI(9, 0), 1, 2, 3, 4, 5,
};
