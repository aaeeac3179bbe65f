// SPDX-License-Identifier: Apache-2.0
// Input: planned storages with sizes and lifetimes in steps. Output: an offset for each in the one
// block of its space, such that two that live at the same time never overlap. Largest first, each
// at the lowest gap that is free for its whole life: within a few percent of the best there is on
// transformer graphs, and simple.
#include "executor/stages.h"

#include <stdlib.h>

static bool is_alive_with(const berth_storage *a, const berth_storage *b) {
    return a->first <= b->last && b->first <= a->last;
}

static int compare_sizes(const void *a, const void *b) {
    const berth_storage *left = *(const berth_storage *const *)a;
    const berth_storage *right = *(const berth_storage *const *)b;
    if (left->bytes != right->bytes) {
        return left->bytes < right->bytes ? 1 : -1;
    }
    // Why: storages lie in one array, so this is their order of creation, the same on every run.
    return left < right ? -1 : left > right;
}

// `placed` is sorted by offset; inserts the storage there.
static void insert(berth_storage **placed, size_t count, berth_storage *storage) {
    while (count > 0 && placed[count - 1]->offset > storage->offset) {
        placed[count] = placed[count - 1];
        --count;
    }
    placed[count] = storage;
}

static void assign_one(berth_storage **placed, size_t count, berth_storage *storage,
                       uint64_t alignment) {
    uint64_t offset = 0;
    for (size_t i = 0; i < count; ++i) {
        const berth_storage *other = placed[i];
        if (!is_alive_with(other, storage)) {
            continue;
        }
        if (other->offset >= offset && other->offset - offset >= storage->bytes) {
            break; // the gap before it is large enough
        }
        const uint64_t end = other->offset + other->bytes;
        offset = end > offset ? (end + alignment - 1) / alignment * alignment : offset;
    }
    storage->offset = offset;
    insert(placed, count, storage);
}

berth_status berth_memory_assign(berth_plan *plan, berth_space space) {
    const size_t most = plan->storages.count;
    berth_storage **sorted = BERTH_ARENA_ARRAY(plan->arena, berth_storage *, most);
    berth_storage **placed = BERTH_ARENA_ARRAY(plan->arena, berth_storage *, most);
    if (sorted == NULL || placed == NULL) {
        return berth_arena_exhausted(plan->arena, "the memory plan");
    }
    size_t count = 0;
    for (size_t i = 0; i < most; ++i) {
        berth_storage *storage = &plan->storages.data[i];
        if (storage->kind == BERTH_STORAGE_PLANNED && storage->space == space) {
            sorted[count++] = storage;
        }
    }
    if (count > 0) {
        qsort(sorted, count, sizeof(berth_storage *), compare_sizes);
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
        assign_one(placed, i, sorted[i], berth_runtime_alignment(plan->runtime));
        const uint64_t end = sorted[i]->offset + sorted[i]->bytes;
        bytes = end > bytes ? end : bytes;
    }
    plan->block_bytes[space] = bytes;
    return BERTH_OK;
}
