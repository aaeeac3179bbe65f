// SPDX-License-Identifier: Apache-2.0
// A hash map from strings to 32-bit values (mostly indices into an array), in insertion order,
// without removal. Filled at start-up and then only read; after that any number of threads may look
// up. Keys are borrowed: the caller keeps their bytes alive, usually in the arena of the same
// lifetime.
#ifndef BERTH_BASE_MAP_H
#define BERTH_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef struct berth_map_entry {
    berth_str key; // borrowed from the caller
    uint32_t hash;
    uint32_t value;
} berth_map_entry;

// Zeroed is empty. `entries[0 .. count)` is the insertion order and may be read directly.
typedef struct berth_map {
    berth_map_entry *entries; // owned
    uint32_t count;
    uint32_t capacity;
    uint32_t *slots; // owned, private
    uint32_t slot_count;
} berth_map;

void berth_map_init(berth_map *map);
// Makes room for `wanted` entries in all.
BERTH_MUST_CHECK berth_status berth_map_reserve(berth_map *map, size_t wanted);
// ALREADY_EXISTS leaves the map and the old value as they were.
BERTH_MUST_CHECK berth_status berth_map_add(berth_map *map, berth_str key, uint32_t value);
// The value under the key, to read or to change, borrowed until the next add; NULL when absent.
uint32_t *berth_map_find(const berth_map *map, berth_str key);
void berth_map_deinit(berth_map *map);

#endif
