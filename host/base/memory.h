// SPDX-License-Identifier: Apache-2.0
// The host's only way to the heap. Modules outside base do not call it: they use an arena, an array
// or a text. It counts allocations, so that a test can assert that a decode step makes none, and it
// can be told to fail the n-th one, so that a test can walk through every out-of-memory path.
#ifndef BERTH_BASE_MEMORY_H
#define BERTH_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

// Once, before any other: large blocks go back to the system as soon as they are freed. Why: the C
// library keeps what seems to be of a usual size, up to 64 MiB of what loading has freed.
void berth_memory_begin(void);

// Zeroed memory for any type, or NULL. A size of 0 gives a unique block too. [any]
void *berth_alloc(size_t size);
// Resizes a block of berth_alloc or berth_realloc, or makes one from NULL; the added bytes are not
// zeroed. NULL leaves the old block as it was. [any]
void *berth_realloc(void *block, size_t size);
// Uninitialised memory at a multiple of `alignment`, a power of two of at least 8. [any]
void *berth_alloc_aligned(size_t alignment, size_t size);
// Zeroes a block of berth_alloc_aligned. Whole pages of a large one are given back instead: they
// are zero and take no memory until they are used. [any]
void berth_memory_zero(void *block, size_t size);
// All of a block of berth_alloc_aligned will be written soon: the system may give it large pages.
// [any]
void berth_memory_fill_soon(void *block, size_t size);
// Frees a block of any of the above; NULL does nothing. [any]
void berth_free(void *block);

// Successful calls of the three allocating functions since the process started, all threads.
uint64_t berth_memory_allocations(void);
// For tests: the n-th allocation from now fails, only that one, n = 1 being the next; 0 disarms.
// Returns what was left of the previous count: 0 means that it was reached or never armed.
uint64_t berth_memory_fail_after(uint64_t n);

// Bytes of memory that this process can have without swapping, what the page cache would give back
// included, and of all there is: the machine's, or what a control group leaves of it. 0 when it is
// not known. [any]
uint64_t berth_memory_available(void);
uint64_t berth_memory_total(void);

#endif
