// SPDX-License-Identifier: Apache-2.0
// Memory with one lifetime: a process, a model, a request. Objects are handed out from blocks and
// freed all at once. An arena belongs to one thread at a time; it is passed in, never global.
#ifndef BERTH_BASE_ARENA_H
#define BERTH_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef struct berth_arena berth_arena;

// `node_type *node = BERTH_ARENA_NEW(arena, node_type);` zeroed, NULL when the arena is exhausted.
#define BERTH_ARENA_NEW(arena, type) ((type *)berth_arena_array(arena, 1, sizeof(type)))
#define BERTH_ARENA_ARRAY(arena, type, count)                                                      \
    ((type *)berth_arena_array(arena, count, sizeof(type)))

// Memory comes in blocks of at least `block_bytes` and never exceeds `limit_bytes` in all, this
// struct included. Larger objects get a block of their own.
BERTH_MUST_CHECK berth_status berth_arena_create(size_t block_bytes, size_t limit_bytes,
                                                 berth_arena **out_arena);
// Zeroed memory at a multiple of `alignment` (a power of two, at most 4096), or NULL beyond the
// limit or when the system has no more. A size of 0 gives a valid pointer to nothing.
void *berth_arena_alloc(berth_arena *arena, size_t size, size_t alignment);
// The same for `count` objects of `size` bytes, aligned for any type; NULL when the product
// overflows.
void *berth_arena_array(berth_arena *arena, size_t count, size_t size);
// Copies that end with NUL, or NULL.
char *berth_arena_strdup(berth_arena *arena, const char *cstr);
char *berth_arena_copy(berth_arena *arena, berth_str str);
char *berth_arena_printf(berth_arena *arena, const char *format, ...) BERTH_PRINTF(2, 3);
void berth_arena_fail(const berth_arena *arena, const char *what); // part of the next
// The failure to return when one of the above gave NULL: OUT_OF_MEMORY with `what` ("graph nodes")
// and the arena's limit and use. Why inline: an analyzer sees that it is never BERTH_OK.
BERTH_MUST_CHECK static inline berth_status berth_arena_exhausted(const berth_arena *arena,
                                                                  const char *what) {
    berth_arena_fail(arena, what);
    return BERTH_OUT_OF_MEMORY;
}
// Bytes obtained from the system so far; stays the same over berth_arena_reset for the first block.
size_t berth_arena_bytes(const berth_arena *arena);
// Frees every object; keeps the first block, so that refilling it allocates nothing.
void berth_arena_reset(berth_arena *arena);
void berth_arena_destroy(berth_arena *arena);

#endif
