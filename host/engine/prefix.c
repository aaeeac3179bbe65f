// SPDX-License-Identifier: Apache-2.0
// Prefix caching: full blocks whose keys and values are known are found again by their tokens.
//
// In the first group, which keeps all tokens, a stored block has a link, a number that is given out
// once. It is found by the link of the block before it (0: it is the first) and its own tokens,
// hashed together: a chain of blocks. A find compares link and tokens themselves, so two prefixes
// of the same hash are never taken for each other, whoever chose them. In the other groups a block
// has the link of the first group's block at its place and is found by that number: what it holds
// is what that one tells. Where the number is nobody's any more it is never asked for again.
#include "engine/engine_private.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"

// ---- one pool -----------------------------------------------------------------------------------

static berth_status init_pool(berth_block_pool *pool, berth_arena *arena) {
    size_t buckets = 1;
    while (buckets < (size_t)pool->num_blocks) {
        buckets *= 2;
    }
    pool->bucket_mask = buckets - 1;
    pool->buckets = BERTH_ARENA_ARRAY(arena, int32_t, buckets);
    return pool->buckets ? BERTH_OK : berth_arena_exhausted(arena, "the prefix cache");
}

static uint64_t bucket_of_tokens(const berth_block_pool *pool, uint64_t parent,
                                 const int32_t *tokens) {
    const uint64_t hash = berth_hash_bytes(berth_hash_u64(BERTH_HASH_START, parent), tokens,
                                           (size_t)pool->block_size * sizeof *tokens);
    return hash & pool->bucket_mask;
}

static uint64_t bucket_of_link(const berth_block_pool *pool, uint64_t link) {
    return berth_hash_u64(BERTH_HASH_START, link) & pool->bucket_mask;
}

static int32_t *tokens_of(const berth_block_pool *pool, int32_t id) {
    return pool->tokens + id * pool->block_size;
}

// The first group's block of these tokens behind `parent`, or 0.
static int32_t find_tokens(const berth_block_pool *pool, uint64_t parent, const int32_t *tokens) {
    const size_t bytes = (size_t)pool->block_size * sizeof *tokens;
    assert(pool->buckets != NULL); // nobody looks where prefixes are not kept
    int32_t id = pool->buckets[bucket_of_tokens(pool, parent, tokens)];
    while (id != 0 &&
           (pool->blocks[id].parent != parent || memcmp(tokens_of(pool, id), tokens, bytes) != 0)) {
        id = pool->blocks[id].next;
    }
    return id;
}

// Another group's block with that link, or 0.
static int32_t find_link(const berth_block_pool *pool, uint64_t link) {
    int32_t id = pool->buckets[bucket_of_link(pool, link)];
    while (id != 0 && pool->blocks[id].link != link) {
        id = pool->blocks[id].next;
    }
    return id;
}

static void enter(berth_block_pool *pool, int32_t id, uint64_t link, uint64_t bucket) {
    berth_block *block = &pool->blocks[id];
    block->link = link;
    block->bucket = bucket;
    block->next = pool->buckets[bucket];
    pool->buckets[bucket] = id;
}

void berth_prefix_forget(berth_block_pool *pool, int32_t id) {
    berth_block *block = &pool->blocks[id];
    if (block->link == 0) {
        return;
    }
    int32_t *at = &pool->buckets[block->bucket];
    while (*at != id) {
        at = &pool->blocks[*at].next;
    }
    *at = block->next;
    block->link = 0;
}

void berth_prefix_reset(berth_token_groups *groups) {
    for (size_t i = 0; i < groups->count; ++i) {
        berth_block_pool *pool = &groups->all[i].pool;
        for (int64_t id = 1; pool->buckets && id < pool->num_blocks; ++id) {
            berth_prefix_forget(pool, (int32_t)id);
        }
    }
}

berth_status berth_prefix_init(berth_token_groups *groups, berth_arena *arena) {
    for (size_t i = 0; i < groups->count; ++i) {
        BERTH_TRY(init_pool(&groups->all[i].pool, arena));
    }
    berth_block_pool *pool = &groups->all[0].pool;
    pool->tokens =
        BERTH_ARENA_ARRAY(arena, int32_t, (size_t)pool->num_blocks * (size_t)pool->block_size);
    return pool->tokens ? BERTH_OK : berth_arena_exhausted(arena, "the prefix cache");
}

// ---- finding ------------------------------------------------------------------------------------

// Whether every group has what the tokens behind the first `count` blocks see of these. `in_a_row`:
// how many of the last of them are stored in each.
static bool is_enough(const berth_token_groups *groups, int64_t count, const int64_t *in_a_row) {
    for (size_t i = 1; i < groups->count; ++i) {
        const berth_token_group *group = &groups->all[i];
        const int64_t skipped = berth_group_skips(group, count * group->pool.block_size);
        if (in_a_row[i] < count - skipped) {
            return false;
        }
    }
    return true;
}

// How many of its first blocks are there for all groups; the first one's are written down, and
// possibly more. Never all tokens: the last one has to be computed, for the logits after it.
static int64_t match(const berth_token_groups *groups, const berth_sequence *sequence) {
    const berth_block_pool *pool = &groups->all[0].pool;
    const int64_t most = (sequence->token_count - 1) / pool->block_size;
    int64_t in_a_row[BERTH_CACHE_GROUPS_MAX + 1] = {0};
    uint64_t link = 0;
    int64_t best = 0;
    for (int64_t count = 0; count < most;) {
        const int32_t id = find_tokens(pool, link, sequence->tokens + count * pool->block_size);
        if (id == 0) {
            break;
        }
        link = pool->blocks[id].link;
        sequence->blocks[0].ids[count++] = id;
        for (size_t i = 1; i < groups->count; ++i) {
            in_a_row[i] = find_link(&groups->all[i].pool, link) != 0 ? in_a_row[i] + 1 : 0;
        }
        best = is_enough(groups, count, in_a_row) ? count : best;
    }
    return best;
}

// Writes down what the group has of the first `found` blocks.
static void list_blocks(const berth_token_groups *groups, size_t index,
                        const berth_sequence *sequence, int64_t found) {
    const berth_token_group *group = &groups->all[index];
    const berth_block *chain = groups->all[0].pool.blocks;
    berth_block_list *list = &sequence->blocks[index];
    list->count = found;
    list->dropped = berth_group_skips(group, found * group->pool.block_size);
    for (int64_t i = 0; i < found && index > 0; ++i) {
        const uint64_t link = chain[sequence->blocks[0].ids[i]].link;
        list->ids[i] = i < list->dropped ? 0 : find_link(&group->pool, link);
    }
}

static bool has_room(const berth_token_group *group, const berth_block_list *list,
                     int64_t token_count) {
    int64_t needed = group->promised + berth_group_needs(group, token_count);
    for (int64_t i = list->dropped; i < list->count; ++i) {
        needed -= group->pool.blocks[list->ids[i]].users > 0; // else it leaves the free ones
    }
    return needed <= group->pool.free_count;
}

bool berth_prefix_admit(berth_token_groups *groups, berth_sequence *sequence) {
    const bool is_read = groups->all[0].pool.buckets && !sequence->skips_prefix_cache;
    const int64_t found = is_read ? match(groups, sequence) : 0;
    bool fits = true;
    for (size_t i = 0; i < groups->count; ++i) {
        list_blocks(groups, i, sequence, found);
        fits = fits && has_room(&groups->all[i], &sequence->blocks[i], sequence->token_count);
    }
    for (size_t i = 0; i < groups->count; ++i) {
        berth_block_list *list = &sequence->blocks[i];
        for (int64_t k = list->dropped; fits && k < list->count; ++k) {
            berth_pool_retain(&groups->all[i].pool, list->ids[k]);
        }
        list->count = fits ? list->count : 0;
        list->dropped = fits ? list->dropped : 0;
    }
    if (fits && found > 0) {
        sequence->link = groups->all[0].pool.blocks[sequence->blocks[0].ids[found - 1]].link;
        sequence->stored = found;
        sequence->computed = found * groups->all[0].pool.block_size;
    }
    return fits;
}

// ---- storing ------------------------------------------------------------------------------------

// Why the sequence moves over to a block that somebody else has stored meanwhile: that one is found
// by others, two of the same content are one too many, and its chain stays whole while in use.
static void move_over(berth_block_pool *pool, int32_t *own, int32_t known) {
    berth_pool_retain(pool, known);
    berth_pool_release(pool, *own);
    *own = known;
}

static void store_tokens(berth_block_pool *pool, int32_t *own, uint64_t parent,
                         const int32_t *tokens) {
    const int32_t known = find_tokens(pool, parent, tokens);
    if (known) {
        move_over(pool, own, known);
        return;
    }
    memcpy(tokens_of(pool, *own), tokens, (size_t)pool->block_size * sizeof *tokens);
    pool->blocks[*own].parent = parent;
    enter(pool, *own, ++pool->last_link, bucket_of_tokens(pool, parent, tokens));
}

static void store_link(berth_block_pool *pool, int32_t *own, uint64_t link) {
    const int32_t known = find_link(pool, link);
    assert(*own != 0); // what was just computed is never behind the window
    if (known) {
        move_over(pool, own, known);
    } else {
        enter(pool, *own, link, bucket_of_link(pool, link));
    }
}

void berth_prefix_store(berth_token_groups *groups, berth_sequence *sequence) {
    berth_block_pool *pool = &groups->all[0].pool;
    const bool is_kept = pool->buckets && !sequence->skips_prefix_cache;
    const int64_t full = is_kept ? sequence->computed / pool->block_size : 0;
    for (; sequence->stored < full; ++sequence->stored) {
        const int64_t at = sequence->stored;
        int32_t *own = &sequence->blocks[0].ids[at];
        store_tokens(pool, own, sequence->link, sequence->tokens + at * pool->block_size);
        sequence->link = pool->blocks[*own].link;
        for (size_t i = 1; i < groups->count; ++i) {
            store_link(&groups->all[i].pool, &sequence->blocks[i].ids[at], sequence->link);
        }
    }
}
