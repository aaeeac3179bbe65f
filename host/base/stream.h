// SPDX-License-Identifier: Apache-2.0
// What this machine's memory and arithmetic can do at most: loops of one thread that read, copy or
// multiply and do nothing else. Benches measure others by them; who runs them on how many threads,
// and with which clock, is theirs. Each loop uses the widest vectors that the machine has.
#ifndef BERTH_BASE_STREAM_H
#define BERTH_BASE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BERTH_STREAM_GRAIN 4096 // bytes: sizes and places below are multiples of it

// Fresh memory that nobody has touched yet, in large pages where the system gives them; or NULL.
void *berth_stream_map(size_t bytes);
void berth_stream_unmap(void *memory, size_t bytes); // takes NULL
// Small numbers for bf16 and f32 alike: arithmetic on them meets no NaN and nothing denormal.
void berth_stream_fill(void *memory, size_t bytes);

// Which reader is the fastest differs from machine to machine.
typedef enum berth_stream_way {
    BERTH_STREAM_PLAIN,
    BERTH_STREAM_NEAR,  // prefetching what comes next
    BERTH_STREAM_FAR,   // prefetching a page ahead
    BERTH_STREAM_EIGHT, // in eight places in turns
    BERTH_STREAM_WAYS,
} berth_stream_way;

// The result says nothing; it keeps a compiler from leaving the reading out.
float berth_stream_read(const void *from, size_t bytes, berth_stream_way way);
// Through the caches, or past them.
void berth_stream_copy(void *to, const void *from, size_t bytes);
void berth_stream_copy_past(void *to, const void *from, size_t bytes);

// A pass over lines of 64 bytes that reads so many of them and then writes so many, and again.
typedef struct berth_stream_mix {
    size_t reads;
    size_t writes;
    bool is_past; // stores go past the caches, and what is read is prefetched a page ahead
} berth_stream_mix;

// `turns` times.
void berth_stream_pass(void *to, const void *from, size_t turns, const berth_stream_mix *mix);

// Multiplies and adds in registers; returns the floating-point operations that these were, 0 when
// the machine has no such instruction. `sink` is written to, for the compiler.
double berth_stream_multiply_f32(uint64_t rounds, float *sink);
double berth_stream_multiply_bf16(uint64_t rounds, float *sink);
double berth_stream_multiply_i8(uint64_t rounds, float *sink); // u8 by s8, sums in 32 bits

#endif
