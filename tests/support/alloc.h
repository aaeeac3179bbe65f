// SPDX-License-Identifier: Apache-2.0
// Counts, and on request fails, every allocation of the process: those of the host, of plugins and
// of libraries alike, in all threads.
//
// Two files implement it and the build picks one: alloc_replace.c stands in for malloc itself;
// alloc_hooks.c listens to a sanitizer, whose allocator cannot be replaced, and can only count.
#ifndef TEST_ALLOC_H
#define TEST_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

// malloc, calloc, realloc and aligned allocations since the process began.
uint64_t test_alloc_count(void);

// The n-th allocation of the calling thread from now on (1 = the next one) and all after it return
// NULL, until 0 is given. False where the flavour cannot do that: then SKIP.
bool test_alloc_fail_from(uint64_t n);

// Whether an allocation was refused since the last test_alloc_fail_from.
bool test_alloc_has_failed(void);

#endif
