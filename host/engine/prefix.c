// SPDX-License-Identifier: Apache-2.0
// Prefix caching: full blocks whose keys and values are known are found again by their tokens.
//
// A stored block has a link, a number that is given out once. It is found by the link of the block
// before it (0: it is the first) and its own tokens, hashed together: a chain of blocks. A find
// compares link and tokens themselves, so two prefixes of the same hash are never taken for each
// other, whoever chose them.
#include "engine/engine_private.h"

#include <string.h>

#include "base/hash.h"

berth_status berth_prefix_init(berth_block_pool *pool, berth_arena *arena) {
    size_t buckets = 1;
    while (buckets < (size_t)pool->num_blocks) {
        buckets *= 2;
    }
    pool->bucket_mask = buckets - 1;
    pool->buckets = BERTH_ARENA_ARRAY(arena, int32_t, buckets);
    pool->tokens =
        BERTH_ARENA_ARRAY(arena, int32_t, (size_t)pool->num_blocks * (size_t)pool->block_size);
    return pool->buckets && pool->tokens ? BERTH_OK
                                         : berth_arena_exhausted(arena, "the prefix cache");
}

static int32_t *bucket_of(const berth_block_pool *pool, uint64_t parent, const int32_t *tokens) {
    const uint64_t hash = berth_hash_bytes(berth_hash_u64(BERTH_HASH_START, parent), tokens,
                                           (size_t)pool->block_size * sizeof *tokens);
    return &pool->buckets[hash & pool->bucket_mask];
}

static int32_t *tokens_of(const berth_block_pool *pool, int32_t id) {
    return pool->tokens + id * pool->block_size;
}

// The stored block of these tokens behind `parent`, or 0.
static int32_t find(const berth_block_pool *pool, uint64_t parent, const int32_t *tokens) {
    const size_t bytes = (size_t)pool->block_size * sizeof *tokens;
    int32_t id = *bucket_of(pool, parent, tokens);
    while (id != 0 &&
           (pool->blocks[id].parent != parent || memcmp(tokens_of(pool, id), tokens, bytes) != 0)) {
        id = pool->blocks[id].next;
    }
    return id;
}

void berth_prefix_forget(berth_block_pool *pool, int32_t id) {
    berth_block *block = &pool->blocks[id];
    if (block->link == 0) {
        return;
    }
    int32_t *at = bucket_of(pool, block->parent, tokens_of(pool, id));
    while (*at != id) {
        at = &pool->blocks[*at].next;
    }
    *at = block->next;
    block->link = 0;
}

// How many of its first blocks are stored. Never all tokens: the last one has to be computed, for
// the logits after it.
static int64_t match(const berth_block_pool *pool, berth_sequence *sequence) {
    const int64_t most = (sequence->token_count - 1) / pool->block_size;
    uint64_t parent = 0;
    int64_t count = 0;
    while (count < most) {
        const int32_t id = find(pool, parent, sequence->tokens + count * pool->block_size);
        if (id == 0) {
            break;
        }
        parent = pool->blocks[id].link;
        sequence->blocks[count++] = id;
    }
    return count;
}

bool berth_prefix_admit(berth_block_pool *pool, berth_sequence *sequence, int64_t promised) {
    const bool is_read = pool->buckets && !sequence->skips_prefix_cache;
    const int64_t found = is_read ? match(pool, sequence) : 0;
    int64_t needed = promised + berth_pool_blocks(pool, sequence->token_count) - found;
    for (int64_t i = 0; i < found; ++i) {
        needed += pool->blocks[sequence->blocks[i]].users == 0; // it leaves the free ones
    }
    if (needed > pool->free_count) {
        return false;
    }
    for (int64_t i = 0; i < found; ++i) {
        berth_pool_retain(pool, sequence->blocks[i]);
        sequence->link = pool->blocks[sequence->blocks[i]].link;
    }
    sequence->block_count = found;
    sequence->stored = found;
    sequence->computed = found * pool->block_size;
    return true;
}

static void store(berth_block_pool *pool, int32_t id, uint64_t parent, const int32_t *tokens) {
    int32_t *bucket = bucket_of(pool, parent, tokens);
    berth_block *block = &pool->blocks[id];
    memcpy(tokens_of(pool, id), tokens, (size_t)pool->block_size * sizeof *tokens);
    block->parent = parent;
    block->link = ++pool->last_link;
    block->next = *bucket;
    *bucket = id;
}

// Why the sequence moves over to a block that somebody else has stored meanwhile: that one is found
// by others, two of the same content are one too many, and its chain stays whole while in use.
void berth_prefix_store(berth_block_pool *pool, berth_sequence *sequence) {
    const bool is_kept = pool->buckets && !sequence->skips_prefix_cache;
    const int64_t full = is_kept ? sequence->computed / pool->block_size : 0;
    for (; sequence->stored < full; ++sequence->stored) {
        const int32_t *tokens = sequence->tokens + sequence->stored * pool->block_size;
        int32_t *own = &sequence->blocks[sequence->stored];
        const int32_t known = find(pool, sequence->link, tokens);
        if (known) {
            berth_pool_retain(pool, known);
            berth_pool_release(pool, *own);
            *own = known;
        } else {
            store(pool, *own, sequence->link, tokens);
        }
        sequence->link = pool->blocks[*own].link;
    }
}
