// SPDX-License-Identifier: Apache-2.0
// Input: keys and values. Output: the entries in insertion order, and beside them a table of slots
// (entry index + 1, 0 = free) probed one after the other. At most half of the slots are taken.
#include "base/map.h"

#include <stdbool.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/memory.h"

#define MAX_ENTRIES (UINT32_MAX / 4)

void berth_map_init(berth_map *map) {
    *map = (berth_map){0};
}

static uint32_t hash_of(berth_str key) {
    const uint64_t hash = berth_hash_bytes(BERTH_HASH_START, key.data, key.size);
    return (uint32_t)(hash ^ hash >> 32);
}

// The slot that holds the key, or the free one where it belongs. The table has free slots.
static uint32_t *slot_of(const berth_map *map, berth_str key, uint32_t hash) {
    const uint32_t mask = map->slot_count - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        uint32_t *slot = &map->slots[i];
        if (*slot == 0) {
            return slot;
        }
        const berth_map_entry *entry = &map->entries[*slot - 1];
        if (entry->hash == hash && berth_str_equal(entry->key, key)) {
            return slot;
        }
    }
}

static berth_status grow_slots(berth_map *map, size_t wanted) {
    uint32_t count = 16;
    while (count < wanted * 2) {
        count *= 2;
    }
    if (count <= map->slot_count) {
        return BERTH_OK;
    }
    uint32_t *slots = berth_alloc(count * sizeof(*slots));
    if (slots == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a map of %zu entries", wanted);
    }
    berth_free(map->slots);
    map->slots = slots;
    map->slot_count = count;
    for (uint32_t i = 0; i < map->count; ++i) {
        *slot_of(map, map->entries[i].key, map->entries[i].hash) = i + 1;
    }
    return BERTH_OK;
}

berth_status berth_map_reserve(berth_map *map, size_t wanted) {
    if (wanted <= map->capacity && map->slot_count > 0) {
        return BERTH_OK;
    }
    if (wanted > MAX_ENTRIES) {
        return BERTH_FAIL(OUT_OF_MEMORY, "a map of %zu entries: the limit is %u", wanted,
                          MAX_ENTRIES);
    }
    size_t capacity = map->capacity;
    BERTH_TRY(berth_array_grow(&map->entries, &capacity, wanted, sizeof(*map->entries)));
    map->capacity = (uint32_t)capacity;
    return grow_slots(map, capacity);
}

berth_status berth_map_add(berth_map *map, berth_str key, uint32_t value) {
    BERTH_TRY(berth_map_reserve(map, (size_t)map->count + 1));
    const uint32_t hash = hash_of(key);
    uint32_t *slot = slot_of(map, key, hash);
    if (*slot != 0) {
        return BERTH_FAIL(ALREADY_EXISTS, "'" BERTH_STR_FMT "' is there already",
                          BERTH_STR_ARG(key));
    }
    map->entries[map->count] = (berth_map_entry){.key = key, .hash = hash, .value = value};
    *slot = ++map->count;
    return BERTH_OK;
}

uint32_t *berth_map_find(const berth_map *map, berth_str key) {
    if (map->count == 0) {
        return NULL;
    }
    const uint32_t slot = *slot_of(map, key, hash_of(key));
    return slot == 0 ? NULL : &map->entries[slot - 1].value;
}

void berth_map_deinit(berth_map *map) {
    berth_free(map->entries);
    berth_free(map->slots);
    *map = (berth_map){0};
}
