// SPDX-License-Identifier: Apache-2.0
// What is asked for ahead of a weight that is read once, front to back: the lines just behind, or
// lines of four later pages in turns. A Sapphire Rapids reads 1.5 times as fast from four pages as
// from one, a Zen 5 by itself faster than it can be asked to: so the machine is measured.
#ifndef BERTH_KERNELS_CPU_PLACES_H
#define BERTH_KERNELS_CPU_PLACES_H

#include <cpu/fetch.h>

#include <time.h>

#define PLACES       4
#define PLACES_PAGE  4096                   // bytes
#define PLACES_BLOCK (PLACES * PLACES_PAGE) // a line of each page in turn

#define PLACES_TRIED  (INT64_C(64) * PLACES_BLOCK) // bytes that are read in a trial
#define PLACES_TRIALS 3                            // some ten milliseconds in all
#define PLACES_GAIN   0.9                          // of the time, from which on it is worth it

// Lines that are asked for while at most PLACES lines are used, which begin at a multiple of their
// bytes.
typedef struct places_lines {
    const char *first;
    int64_t step; // from one to the next
} places_lines;

// While those `at` bytes behind a weight's start are used; `near`: how far away the others are
// where the machine is not better asked for later pages.
BERTH_INLINE places_lines places_ahead(const char *weight, int64_t at, int in_places,
                                       int64_t near) {
    const uint64_t in_block = (uint64_t)at % PLACES_BLOCK;
    const uint64_t line = in_block / BERTH_LINE;
    const uint64_t there = line / PLACES * BERTH_LINE + line % PLACES * PLACES_PAGE;
    const int64_t ahead = in_places ? (int64_t)(PLACES_BLOCK - in_block + there) : near;
    return (places_lines){weight + at + ahead, in_places ? PLACES_PAGE : BERTH_LINE};
}

static inline int64_t nanoseconds_now(void) {
    struct timespec now = {0};
    (void)timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Nanoseconds that it takes to read what no cache has.
static inline int64_t places_time(const char *bytes, int in_places) {
    berth_vec sum = berth_vec_of(0);
    for (int64_t at = 0; at < PLACES_TRIED; at += BERTH_LINE) {
        BERTH_FLUSH(bytes + at);
    }
    const int64_t start = nanoseconds_now();
    for (int64_t at = 0; at < PLACES_TRIED; at += BERTH_LINE) {
        BERTH_PREFETCH(places_ahead(bytes, at, in_places, PLACES * BERTH_LINE).first);
        for (int64_t i = 0; i < BERTH_LINE; i += (int64_t)sizeof sum) {
            sum = sum + berth_vec_load((const float *)(const void *)(bytes + at + i));
        }
    }
    const int64_t time = nanoseconds_now() - start;
    return berth_vec_sum(sum) == 0 ? time : INT64_MAX; // zeros all, which the compiler cannot know
}

static inline int places_measure(const berth_host *host) {
    int64_t one = INT64_MAX;
    int64_t four = INT64_MAX;
    char *bytes = host->alloc(host, PLACES_TRIED, PLACES_PAGE);
    if (!bytes) {
        return -1;
    }
    memset(bytes, 0, PLACES_TRIED); // each page has memory of its own now
    for (int trial = 0; trial < PLACES_TRIALS; ++trial) {
        const int64_t near = places_time(bytes, 0);
        const int64_t far = places_time(bytes, 1);
        one = near < one ? near : one;
        four = far < four ? far : four;
    }
    host->free(host, bytes);
    return (double)four < PLACES_GAIN * (double)one ? 1 : -1;
}

// In a create of a kernel that reads weights; what is found holds for all.
static inline void places_find(berth_cpu *cpu) {
    if (cpu->places_win == 0) {
        cpu->places_win = places_measure(cpu->host);
    }
}

#endif
