// SPDX-License-Identifier: Apache-2.0
// The second best variant of a platform: taken when the best cannot be loaded.
#include "../fake_platform.h"

FAKE_PLATFORM(variant, "variant", BERTH_PLATFORM_OOT)

static const berth_entry_point *const entries[] = {&point_variant};

BERTH_PLUGIN_DEFINE(.id = "variant", .version = "1.0.0", .vendor = "berth tests",
                    .entry_points = entries, .entry_point_count = 1);
