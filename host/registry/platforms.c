// SPDX-License-Identifier: Apache-2.0
// Input: the platforms that entry points gave. Output: the list of active ones by name. It exists
// before the freeze, because the choice among them decides what else is registered.
#include <string.h>

#include "registry/registry_private.h"

// The place of a name in the sorted list.
static size_t place_of(const berth_registry *registry, const char *name) {
    size_t i = 0;
    while (i < registry->platforms.count &&
           strcmp(registry->platforms.data[i]->platform.name, name) < 0) {
        ++i;
    }
    return i;
}

static berth_status insert(berth_registry *registry, size_t place, berth_platform_entry *entry) {
    BERTH_TRY(berth_array_push(&registry->platforms, entry));
    berth_platform_entry **data = registry->platforms.data;
    memmove(data + place + 1, data + place,
            (registry->platforms.count - 1 - place) * sizeof(data[0]));
    data[place] = entry;
    return BERTH_OK;
}

berth_status berth_platforms_list(berth_registry *registry) {
    berth_array_clear(&registry->platforms);
    for (size_t i = 0; i < registry->additions.count; ++i) {
        const berth_addition *added = &registry->additions.data[i];
        if (added->kind != BERTH_KIND_PLATFORM || added->transaction->is_dropped) {
            continue;
        }
        const size_t place = place_of(registry, added->name);
        const berth_platform_entry *other =
            place < registry->platforms.count ? registry->platforms.data[place] : NULL;
        if (other == NULL || strcmp(other->platform.name, added->name) != 0) {
            BERTH_TRY(insert(registry, place, added->entry));
            continue;
        }
        const berth_owner *owner = added->transaction->owner;
        berth_transaction_drop(
            registry, added->transaction,
            berth_reason(
                registry,
                "platform '%s' is added by plugin '%s' %s and by plugin '%s' %s; the first "
                "is kept, remove one",
                added->name, other->owner->id, other->owner->version, owner->id, owner->version));
    }
    return BERTH_OK;
}
