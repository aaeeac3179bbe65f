// SPDX-License-Identifier: Apache-2.0
// The pool of KV blocks: who holds each, which are free, and what free ones still hold.
//
// A block has as many users as sequences hold it. One without users stands in the list of free
// blocks, from whose front blocks are taken: those that hold nothing of use stand at the front,
// those that a prefix may ask for at the back, the one that was let go last at the very end.
#include "engine/engine_private.h"

#define ENDS 0 // block 0, the null block, is before the first and after the last free one

static void unlink_free(berth_block_pool *pool, int32_t id) {
    berth_block *block = &pool->blocks[id];
    pool->blocks[block->before].after = block->after;
    pool->blocks[block->after].before = block->before;
    --pool->free_count;
}

static void link_free(berth_block_pool *pool, int32_t id, int32_t before) {
    const int32_t after = pool->blocks[before].after;
    pool->blocks[id].before = before;
    pool->blocks[id].after = after;
    pool->blocks[before].after = id;
    pool->blocks[after].before = id;
    ++pool->free_count;
}

berth_status berth_pool_init(berth_block_pool *pool, int64_t num_blocks, int64_t block_size,
                             berth_arena *arena) {
    pool->blocks = BERTH_ARENA_ARRAY(arena, berth_block, (size_t)num_blocks);
    if (!pool->blocks) {
        return berth_arena_exhausted(arena, "the list of KV blocks");
    }
    pool->num_blocks = num_blocks;
    pool->block_size = block_size;
    // The lowest ids come first, so that a short run touches few pages.
    for (int32_t id = 1; id < num_blocks; ++id) {
        link_free(pool, id, pool->blocks[ENDS].before);
    }
    return BERTH_OK;
}

int64_t berth_pool_blocks(const berth_block_pool *pool, int64_t tokens) {
    return (tokens + pool->block_size - 1) / pool->block_size;
}

void berth_pool_retain(berth_block_pool *pool, int32_t id) {
    if (pool->blocks[id].users++ == 0) {
        unlink_free(pool, id);
    }
}

bool berth_pool_cover(berth_block_pool *pool, berth_block_list *list, int64_t tokens) {
    const int64_t needed = berth_pool_blocks(pool, tokens);
    if (needed - list->count > pool->free_count) {
        return false;
    }
    while (list->count < needed) {
        const int32_t id = pool->blocks[ENDS].after;
        berth_prefix_forget(pool, id);
        berth_pool_retain(pool, id);
        list->ids[list->count++] = id;
    }
    return true;
}

void berth_pool_release(berth_block_pool *pool, int32_t id) {
    if (--pool->blocks[id].users == 0) {
        link_free(pool, id, pool->blocks[id].link ? pool->blocks[ENDS].before : ENDS);
    }
}

void berth_pool_drop(berth_block_pool *pool, berth_block_list *list, int64_t count) {
    for (; list->dropped < count; ++list->dropped) {
        berth_pool_release(pool, list->ids[list->dropped]);
        list->ids[list->dropped] = 0;
    }
}

// Why the last block first: the end of a sequence is the least likely to be asked for again, and
// without its beginning it is of no use.
void berth_pool_return(berth_block_pool *pool, berth_block_list *list) {
    while (list->count > list->dropped) {
        berth_pool_release(pool, list->ids[--list->count]);
    }
    list->count = 0;
    list->dropped = 0;
}
