// SPDX-License-Identifier: Apache-2.0
// The untyped half of the array macros. The pointer is read and written with memcpy because its
// type is the caller's, and an object may only be accessed through its own type.
#include "base/array.h"

#include <string.h>

#include "base/memory.h"

#define FIRST_CAPACITY 8

berth_status berth_array_grow(void *data, size_t *capacity, size_t wanted, size_t element_bytes) {
    if (wanted <= *capacity) {
        return BERTH_OK;
    }
    size_t grown = *capacity > SIZE_MAX / 2 ? wanted : *capacity * 2;
    grown = grown < FIRST_CAPACITY ? FIRST_CAPACITY : grown;
    grown = grown < wanted ? wanted : grown;
    if (grown > SIZE_MAX / element_bytes) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%zu elements of %zu bytes do not fit into memory", wanted,
                          element_bytes);
    }
    void *old = NULL;
    memcpy(&old, data, sizeof(old));
    void *moved = berth_realloc(old, grown * element_bytes);
    if (moved == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for %zu elements of %zu bytes", grown,
                          element_bytes);
    }
    memcpy(data, &moved, sizeof(moved));
    *capacity = grown;
    return BERTH_OK;
}

void berth_array_release(void *data, size_t *count, size_t *capacity) {
    void *old = NULL;
    memcpy(&old, data, sizeof(old));
    berth_free(old);
    old = NULL;
    memcpy(data, &old, sizeof(old));
    *count = 0;
    *capacity = 0;
}
