// SPDX-License-Identifier: Apache-2.0
// The slots of states that layers keep of a sequence as a whole: the state of a recurrence, the
// last inputs of a convolution. A running sequence has one, from its admission to its end or until
// it has to give way; what another one left in it is never read, because its first step says that
// nothing has been computed yet.
#include <assert.h>

#include "engine/engine_private.h"

berth_status berth_slots_init(berth_slot_pool *pool, int64_t num_slots, berth_arena *arena) {
    pool->free = BERTH_ARENA_ARRAY(arena, int32_t, (size_t)num_slots);
    if (!pool->free) {
        return berth_arena_exhausted(arena, "the list of state slots");
    }
    pool->num_slots = num_slots;
    // The lowest is on top, so that a short run touches few pages. Slot 0 is never handed out.
    for (int64_t slot = num_slots - 1; slot > 0; --slot) {
        pool->free[pool->free_count++] = (int32_t)slot;
    }
    return BERTH_OK;
}

bool berth_slots_have(const berth_slot_pool *pool) {
    return pool->num_slots == 0 || pool->free_count > 0;
}

void berth_slots_take(berth_slot_pool *pool, berth_sequence *sequence) {
    assert(sequence->slot == 0);
    if (pool->num_slots > 0) {
        sequence->slot = pool->free[--pool->free_count];
    }
}

void berth_slots_return(berth_slot_pool *pool, berth_sequence *sequence) {
    if (sequence->slot != 0) {
        pool->free[pool->free_count++] = sequence->slot;
    }
    sequence->slot = 0;
}
