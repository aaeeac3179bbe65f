// SPDX-License-Identifier: Apache-2.0
// Input: --dtype, the platform, the checkpoint. Output: the type of activations between ops.
#include "worker/worker_private.h"

#include "base/array.h"
#include "base/log.h"
#include "base/text.h"

#define TEXT_BYTES 256

// By index of berth_config_dtypes.
static const berth_dtype dtypes[] = {
    BERTH_DTYPE_NONE, // auto
    BERTH_DTYPE_F32,
    BERTH_DTYPE_BF16,
    BERTH_DTYPE_F16,
};

static const char *name_of(berth_dtype dtype) {
    size_t index = 1;
    while (index + 1 < BERTH_COUNT(dtypes) && dtypes[index] != dtype) {
        ++index;
    }
    return berth_config_dtypes[index];
}

// A platform that lists no types has said nothing against any; the host itself has all.
static bool is_listed(const berth_platform_entry *platform, berth_dtype dtype) {
    const berth_capabilities *able = platform ? &platform->capabilities : NULL;
    bool is_found = able == NULL || able->dtype_count == 0;
    for (uint64_t i = 0; !is_found && i < able->dtype_count; ++i) {
        is_found = able->dtypes[i] == dtype;
    }
    return is_found;
}

static berth_status refuse(const berth_platform_entry *platform, berth_dtype dtype) {
    const berth_capabilities *able = &platform->capabilities;
    berth_text list;
    berth_text_init(&list, TEXT_BYTES);
    for (uint64_t i = 0; i < able->dtype_count; ++i) {
        berth_text_add_format(&list, "%s%s", i > 0 ? ", " : "", name_of(able->dtypes[i]));
    }
    const berth_str text = berth_text_str(&list);
    const berth_status status =
        BERTH_FAIL(UNSUPPORTED,
                   "--dtype %s: platform '%s' computes in " BERTH_STR_FMT
                   "; use that, or --allow-fallback to run on the host what it cannot",
                   name_of(dtype), platform->platform.name, BERTH_STR_ARG(text));
    berth_text_deinit(&list);
    return status;
}

berth_status berth_activation_check(const berth_config *config,
                                    const berth_platform_entry *platform) {
    const berth_dtype wanted = dtypes[config->dtype];
    return wanted == BERTH_DTYPE_NONE || is_listed(platform, wanted) || config->allow_fallback
               ? BERTH_OK
               : refuse(platform, wanted);
}

berth_dtype berth_activation_choose(const berth_config *config,
                                    const berth_platform_entry *platform, berth_dtype stored) {
    const berth_dtype wanted = dtypes[config->dtype];
    if (wanted != BERTH_DTYPE_NONE || is_listed(platform, stored)) {
        return wanted != BERTH_DTYPE_NONE ? wanted : stored;
    }
    const berth_dtype first = platform->capabilities.dtypes[0];
    BERTH_INFO("worker", "activations are %s: the checkpoint's %s is not a type of platform '%s'",
               name_of(first), name_of(stored), platform->platform.name);
    return first;
}
