// SPDX-License-Identifier: Apache-2.0
// The one growable array, typed by a macro. Zeroed is empty; `data` and `count` are read directly.
//   berth_array(int32_t) ids = {0};
//   BERTH_TRY(berth_array_push(&ids, 7));
//   berth_array_free(&ids);
// Pointers into `data` end with the next push or reserve. For objects with an arena's lifetime
// whose number is known, use the arena instead.
#ifndef BERTH_BASE_ARRAY_H
#define BERTH_BASE_ARRAY_H

#include <stddef.h>

#include "base/status.h"

// The number of elements of a real array (not of a pointer).
#define BERTH_COUNT(table) (sizeof(table) / sizeof((table)[0]))

// The type itself; give it a name with typedef where it crosses a function.
#define berth_array(type)                                                                          \
    struct {                                                                                       \
        type *data; /* owned */                                                                    \
        size_t count;                                                                              \
        size_t capacity;                                                                           \
    }

// Makes room for `wanted` elements in all: BERTH_OK, or OUT_OF_MEMORY with a report and no change.
// `array` is evaluated more than once by these macros.
#define berth_array_reserve(array, wanted)                                                         \
    berth_array_grow(&(array)->data, &(array)->capacity, (wanted), sizeof(*(array)->data))

// Appends the value, which may be a compound literal: BERTH_OK, or OUT_OF_MEMORY and no change.
// The value must not be an element of the same array.
#define berth_array_push(array, ...)                                                               \
    (berth_array_reserve((array), (array)->count + 1) == BERTH_OK                                  \
         ? ((array)->data[(array)->count++] = (__VA_ARGS__), BERTH_OK)                             \
         : BERTH_OUT_OF_MEMORY)

// Forgets the elements and keeps the memory.
#define berth_array_clear(array) ((void)((array)->count = 0))

// Frees the memory; the array is empty and usable again.
#define berth_array_free(array)                                                                    \
    berth_array_release(&(array)->data, &(array)->count, &(array)->capacity)

// Behind the macros. `data` is the address of the array's pointer, whatever its type.
BERTH_MUST_CHECK berth_status berth_array_grow(void *data, size_t *capacity, size_t wanted,
                                               size_t element_bytes);
void berth_array_release(void *data, size_t *count, size_t *capacity);

#endif
