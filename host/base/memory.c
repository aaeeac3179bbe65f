// SPDX-License-Identifier: Apache-2.0
// Input: sizes. Output: blocks of the C library's heap, counted. The two counters are the reason
// why this file exists: tests read the one and arm the other.
#include "base/memory.h"

#include <assert.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cgroup.h"

#define LAZY_BYTES (1 << 20)
#define LARGE_PAGE ((size_t)2 << 20)

// Why writable globals: the heap is one per process, and so are its counters.
static _Atomic uint64_t allocations;
static _Atomic uint64_t until_failure; // 0 = disarmed

void berth_memory_begin(void) {
#ifdef M_MMAP_THRESHOLD
    (void)mallopt(M_MMAP_THRESHOLD, LAZY_BYTES); // a wish
#endif
}

static bool must_fail(void) {
    uint64_t left = atomic_load_explicit(&until_failure, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&until_failure, &left, left - 1)) {
            return left == 1;
        }
    }
    return false;
}

static void *counted(void *block) {
    if (block != NULL) {
        atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    }
    return block;
}

void *berth_alloc(size_t size) {
    return must_fail() ? NULL : counted(calloc(1, size > 0 ? size : 1));
}

void *berth_realloc(void *block, size_t size) {
    return must_fail() ? NULL : counted(realloc(block, size > 0 ? size : 1));
}

void *berth_alloc_aligned(size_t alignment, size_t size) {
    assert(alignment >= 8 && (alignment & (alignment - 1)) == 0);
    void *block = NULL;
    if (must_fail() || posix_memalign(&block, alignment, size > 0 ? size : 1) != 0) {
        return NULL;
    }
    return counted(block);
}

void berth_memory_zero(void *block, size_t size) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)block;
    const uintptr_t first = (begin + page - 1) / page * page;
    const uintptr_t last = (begin + size) / page * page;
    if (size < LAZY_BYTES || madvise((void *)first, last - first, MADV_DONTNEED) != 0) {
        memset(block, 0, size);
        return;
    }
    memset(block, 0, first - begin);
    memset((void *)last, 0, begin + size - last);
}

void berth_memory_fill_soon(void *block, size_t size) {
    const uintptr_t begin = ((uintptr_t)block + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    const uintptr_t end = ((uintptr_t)block + size) / LARGE_PAGE * LARGE_PAGE;
    if (end > begin) {
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE); // a wish
    }
}

void berth_free(void *block) {
    free(block);
}

uint64_t berth_memory_allocations(void) {
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

uint64_t berth_memory_fail_after(uint64_t n) {
    return atomic_exchange(&until_failure, n);
}

// Why not sysinfo(2): it counts the page cache as used, and a machine that has read its checkpoints
// has little else.
uint64_t berth_memory_available(void) {
    unsigned long long kibibytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1) {
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    const uint64_t available = (uint64_t)kibibytes * 1024;
    const uint64_t allowed =
        berth_cgroup_memory_read(BERTH_CGROUP_FILE, BERTH_CGROUP_MOUNT).available;
    return allowed < available ? allowed : available;
}

uint64_t berth_memory_total(void) {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    const uint64_t total = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
    const uint64_t limit = berth_cgroup_memory_read(BERTH_CGROUP_FILE, BERTH_CGROUP_MOUNT).limit;
    return limit < total ? limit : total;
}
