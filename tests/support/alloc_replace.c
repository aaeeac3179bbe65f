// SPDX-License-Identifier: Apache-2.0
// The C library's allocation functions, replaced for the whole process by ones that count. The work
// is done by glibc under its own names.
#include "support/alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_uint_fast64_t total;
static _Thread_local uint64_t countdown; // 0: refuse nothing
static _Thread_local bool refused;

static bool may_allocate(void) {
    atomic_fetch_add_explicit(&total, 1, memory_order_relaxed);
    if (countdown == 0) {
        return true;
    }
    if (countdown > 1) {
        --countdown;
        return true;
    }
    refused = true;
    errno = ENOMEM;
    return false;
}

__attribute__((visibility("default"))) void *malloc(size_t size) {
    return may_allocate() ? __libc_malloc(size) : NULL;
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size) {
    return may_allocate() ? __libc_calloc(count, size) : NULL;
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t size) {
    return may_allocate() ? __libc_realloc(old, size) : NULL;
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t size) {
    return may_allocate() ? __libc_memalign(alignment, size) : NULL;
}

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t alignment,
                                                          size_t size) {
    *out = may_allocate() ? __libc_memalign(alignment, size) : NULL;
    return *out == NULL ? ENOMEM : 0;
}

uint64_t test_alloc_count(void) {
    return atomic_load_explicit(&total, memory_order_relaxed);
}

bool test_alloc_fail_from(uint64_t n) {
    countdown = n;
    refused = false;
    return true;
}

bool test_alloc_has_failed(void) {
    return refused;
}
