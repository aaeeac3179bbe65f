// SPDX-License-Identifier: Apache-2.0
// Input: sizes and alignments. Output: zeroed objects inside a list of heap blocks. The arena's own
// struct lives in its first block, so that a small arena is one allocation.
#include "base/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

#define MAX_ALIGNMENT 4096

typedef struct block {
    struct block *next; // older
    size_t size;        // bytes, this header included
    size_t used;        // bytes, this header included
} block;

struct berth_arena {
    block *current;   // the newest block that small objects come from
    block *first;     // holds this struct
    size_t first_use; // bytes of `first` that are never given out
    size_t block_bytes;
    size_t limit_bytes;
    size_t total_bytes;
};

berth_status berth_arena_create(size_t block_bytes, size_t limit_bytes, berth_arena **out_arena) {
    const size_t header = sizeof(block) + sizeof(berth_arena);
    const size_t size = block_bytes > header ? block_bytes : header;
    block *first = size > limit_bytes ? NULL : berth_alloc(size);
    if (first == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for an arena of %zu bytes (limit %zu)", size,
                          limit_bytes);
    }
    berth_arena *arena = (berth_arena *)(first + 1);
    *first = (block){.size = size, .used = header};
    *arena = (berth_arena){
        .current = first,
        .first = first,
        .first_use = header,
        .block_bytes = size,
        .limit_bytes = limit_bytes,
        .total_bytes = size,
    };
    *out_arena = arena;
    return BERTH_OK;
}

static void *take_from(block *from, size_t size, size_t alignment) {
    const uintptr_t start = (uintptr_t)from + from->used;
    const size_t padding = (size_t)(-start & (alignment - 1));
    const size_t left = from->size - from->used;
    if (padding > left || size > left - padding) {
        return NULL;
    }
    from->used += padding + size;
    return (char *)from + from->used - size;
}

// A new block with room for the object: of the usual size if the limit allows, else just enough.
static block *add_block(berth_arena *arena, size_t needed) {
    const size_t left = arena->limit_bytes - arena->total_bytes;
    const bool is_for_one = needed > arena->block_bytes / 2;
    const size_t usual = is_for_one ? needed : arena->block_bytes;
    const size_t size = usual <= left ? usual : needed;
    block *added = size > left ? NULL : berth_alloc(size);
    if (added == NULL) {
        return NULL;
    }
    *added = (block){.size = size, .used = sizeof(block)};
    arena->total_bytes += size;
    // Why: a block for one large object goes behind the current one, whose rest stays in use.
    block **place = is_for_one ? &arena->current->next : &arena->current;
    added->next = *place;
    *place = added;
    return added;
}

void *berth_arena_alloc(berth_arena *arena, size_t size, size_t alignment) {
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0 && alignment <= MAX_ALIGNMENT);
    void *object = take_from(arena->current, size, alignment);
    if (object != NULL) {
        return object;
    }
    if (size > SIZE_MAX - sizeof(block) - alignment) {
        return NULL;
    }
    block *added = add_block(arena, sizeof(block) + size + alignment);
    return added == NULL ? NULL : take_from(added, size, alignment);
}

void *berth_arena_array(berth_arena *arena, size_t count, size_t size) {
    if (size > 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    return berth_arena_alloc(arena, count * size, _Alignof(max_align_t));
}

char *berth_arena_copy(berth_arena *arena, berth_str str) {
    char *copy = str.size == SIZE_MAX ? NULL : berth_arena_alloc(arena, str.size + 1, 1);
    if (copy != NULL && str.size > 0) {
        memcpy(copy, str.data, str.size);
    }
    return copy;
}

char *berth_arena_strdup(berth_arena *arena, const char *cstr) {
    return berth_arena_copy(arena, berth_str_from(cstr));
}

char *berth_arena_printf(berth_arena *arena, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = size < 0 ? NULL : berth_arena_alloc(arena, (size_t)size + 1, 1);
    if (text != NULL) {
        va_start(arguments, format);
        vsnprintf(text, (size_t)size + 1, format, arguments);
        va_end(arguments);
    }
    return text;
}

void berth_arena_fail(const berth_arena *arena, const char *what) {
    (void)BERTH_FAIL(OUT_OF_MEMORY, "no memory for %s: %zu bytes are in use, the limit is %zu",
                     what, arena->total_bytes, arena->limit_bytes);
}

size_t berth_arena_bytes(const berth_arena *arena) {
    return arena->total_bytes;
}

// Frees every block but the first, which ends the list or stands before blocks of one object.
static void free_others(berth_arena *arena) {
    block *next = arena->current;
    while (next != NULL) {
        block *one = next;
        next = one->next;
        if (one != arena->first) {
            berth_free(one);
        }
    }
}

void berth_arena_reset(berth_arena *arena) {
    free_others(arena);
    block *first = arena->first;
    memset((char *)first + arena->first_use, 0, first->used - arena->first_use);
    first->used = arena->first_use;
    first->next = NULL;
    arena->current = first;
    arena->total_bytes = first->size;
}

void berth_arena_destroy(berth_arena *arena) {
    if (arena == NULL) {
        return;
    }
    free_others(arena);
    berth_free(arena->first);
}
