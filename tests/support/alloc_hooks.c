// SPDX-License-Identifier: Apache-2.0
// Counting under a sanitizer: its runtime calls a hook at every allocation.
#include "support/alloc.h"

#include <stdatomic.h>
#include <stddef.h>

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static atomic_uint_fast64_t total;

static void on_malloc(const volatile void *memory, size_t size) {
    (void)memory;
    (void)size;
    atomic_fetch_add_explicit(&total, 1, memory_order_relaxed);
}

static void on_free(const volatile void *memory) {
    (void)memory;
}

__attribute__((constructor)) static void install_hooks(void) {
    (void)__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

uint64_t test_alloc_count(void) {
    return atomic_load_explicit(&total, memory_order_relaxed);
}

bool test_alloc_fail_from(uint64_t n) {
    (void)n;
    return false;
}

bool test_alloc_has_failed(void) {
    return false;
}
