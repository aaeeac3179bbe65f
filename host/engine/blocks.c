// SPDX-License-Identifier: Apache-2.0
// The pool of KV blocks: a stack of free ids, taken and given back by sequences.
//
// Every block is owned by the stack or by one sequence, never by both: the pool moves ids, it
// copies none.
#include "engine/engine_private.h"

berth_status berth_pool_init(berth_block_pool *pool, int64_t num_blocks, int64_t block_size,
                             berth_arena *arena) {
    pool->free = BERTH_ARENA_ARRAY(arena, int32_t, (size_t)num_blocks);
    if (!pool->free) {
        return berth_arena_exhausted(arena, "the list of free KV blocks");
    }
    pool->block_size = block_size;
    pool->free_count = 0;
    // The lowest ids end on top, so that a short run touches few pages.
    for (int64_t block = num_blocks - 1; block > 0; --block) {
        pool->free[pool->free_count++] = (int32_t)block;
    }
    return BERTH_OK;
}

bool berth_pool_cover(berth_block_pool *pool, berth_sequence *sequence, int64_t tokens) {
    const int64_t needed = (tokens + pool->block_size - 1) / pool->block_size;
    if (needed - sequence->block_count > pool->free_count) {
        return false;
    }
    while (sequence->block_count < needed) {
        sequence->blocks[sequence->block_count++] = pool->free[--pool->free_count];
    }
    return true;
}

void berth_pool_return(berth_block_pool *pool, berth_sequence *sequence) {
    while (sequence->block_count > 0) {
        pool->free[pool->free_count++] = sequence->blocks[--sequence->block_count];
    }
}
