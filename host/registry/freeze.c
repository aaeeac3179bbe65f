// SPDX-License-Identifier: Apache-2.0
// Input: everything that entry points and register_ops added. Output: sealed tables, and the
// failure that concerns the whole run: a core plugin, the chosen platform, a required plugin.
#include <stdlib.h>
#include <string.h>

#include "registry/registry_private.h"

static int compare(const char *a, const char *b, int otherwise) {
    const int order = strcmp(a, b);
    return order != 0 ? order : otherwise;
}

// Core first, then by plugin, group and entry point; register_ops after its platform. Why not the
// order of loading: which of two is refused must not depend on directories.
static int compare_transactions(const void *a, const void *b) {
    const berth_transaction *left = *(berth_transaction *const *)a;
    const berth_transaction *right = *(berth_transaction *const *)b;
    if (left->is_core != right->is_core) {
        return left->is_core ? -1 : 1;
    }
    const int by_age = left->first < right->first ? -1 : left->first > right->first;
    const int by_phase = left->is_late != right->is_late ? (left->is_late ? 1 : -1) : by_age;
    const int by_entry = compare(left->owner->entry, right->owner->entry, by_phase);
    const int by_group = compare(left->owner->group, right->owner->group, by_entry);
    return compare(left->owner->id, right->owner->id, by_group);
}

static berth_status check_chosen(const berth_registry *registry) {
    for (size_t i = 0; i < registry->transactions.count; ++i) {
        const berth_transaction *one = registry->transactions.data[i];
        if (one->is_late && one->is_dropped) {
            return BERTH_FAIL(INVALID_ARGUMENT, "platform '%s' of plugin '%s' %s: %s",
                              one->owner->entry, one->owner->id, one->owner->version, one->reason);
        }
    }
    return BERTH_OK;
}

berth_status berth_registry_freeze(berth_registry *registry) {
    if (registry->is_frozen || registry->open != NULL) {
        return BERTH_FAIL(WRONG_STATE, "the registry is %s",
                          registry->is_frozen ? "frozen already" : "in the middle of a plugin");
    }
    if (registry->transactions.count > 1) { // an empty array has no address, which qsort wants
        qsort(registry->transactions.data, registry->transactions.count,
              sizeof(registry->transactions.data[0]), compare_transactions);
    }
    BERTH_TRY(berth_judge(registry));
    BERTH_TRY(berth_seal(registry));
    registry->digest = berth_digest_additions(registry);
    registry->is_frozen = true;
    BERTH_TRY(check_chosen(registry));
    return registry->candidates == NULL ? BERTH_OK : berth_candidates_require(registry->candidates);
}
