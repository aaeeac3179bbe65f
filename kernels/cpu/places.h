// SPDX-License-Identifier: Apache-2.0
// What is asked for ahead of a weight that is read once, front to back: the lines just behind, or
// lines of four later places in turns, into the second cache, or nothing. Memory answers several
// rows of its banks faster than one: a Sapphire Rapids reads 1.5 times as fast, a Zen 3 1.15 times;
// a Zen 4 reads 0.96 to 1.0 of its speed where it is asked for nothing, 0.8 to 0.9 with the lines
// behind and 0.6 with places. So the machine is measured.
#ifndef BERTH_KERNELS_CPU_PLACES_H
#define BERTH_KERNELS_CPU_PLACES_H

#include <cpu/fetch.h>

#include <time.h>

#define PLACES       4
#define PLACES_APART INT64_C(16384) // bytes; 4096 gain a Zen 3 little, places in one page nothing
#define PLACES_BLOCK (PLACES * PLACES_APART) // a line of each place in turn
#define PLACES_LEAST (16 * PLACES_BLOCK)

#define PLACES_TRIED  (32 * PLACES_BLOCK) // bytes that are read in a trial
#define PLACES_NEAR   1024                // bytes
#define PLACES_TRIALS 7                   // some ten milliseconds in all
#define PLACES_GAIN   20                  // one of so many parts a way has to be faster by

// How a weight is asked for.
enum { PLACES_NOTHING = -1, PLACES_BEHIND = 0, PLACES_TURNS = 1 };

// Lines that are asked for while at most PLACES lines are used. Where those do not begin at a
// multiple of their bytes, the last ones are a block further away.
typedef struct places_lines {
    const char *first;
    int64_t step; // from one to the next
    int is_far;
} places_lines;

// While those at `at` are used; `near`: how far away the others are of PLACES_BEHIND. Of
// PLACES_NOTHING they are those that are used.
BERTH_INLINE places_lines places_ahead(const char *at, int way, int64_t near) {
    const int in_places = way == PLACES_TURNS;
    const uint64_t in_block = (uintptr_t)at % PLACES_BLOCK;
    const uint64_t line = in_block / BERTH_LINE;
    const uint64_t there = line / PLACES * BERTH_LINE + line % PLACES * PLACES_APART;
    const int64_t ahead = in_places              ? (int64_t)(PLACES_BLOCK - in_block + there)
                          : way == PLACES_BEHIND ? near
                                                 : 0;
    return (places_lines){at + ahead, in_places ? PLACES_APART : BERTH_LINE, in_places};
}

// The same way, where arithmetic takes too long for a processor that is asked for nothing.
BERTH_INLINE int places_asked(int way) {
    return way == PLACES_NOTHING ? PLACES_BEHIND : way;
}

BERTH_INLINE void places_ask(places_lines lines, int line) {
    const char *at = lines.first + line * lines.step;
    if (lines.is_far) {
        BERTH_PREFETCH_FAR(at);
    } else {
        BERTH_PREFETCH(at);
    }
}

static inline int64_t nanoseconds_now(void) {
    struct timespec now = {0};
    (void)timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Nanoseconds that it takes to multiply what no cache has, as bytes by words: reading alone would
// leave the processor time to look ahead by itself.
static inline int64_t places_time(const char *bytes, int way) {
    const int64_t vector = sizeof(berth_vec);
    const berth_vec_bits x = (berth_vec_bits)berth_vec_of(1);
    berth_vec_bits sum = {0};
    for (int64_t at = 0; at < PLACES_TRIED; at += BERTH_LINE) {
        BERTH_FLUSH(bytes + at);
    }
    const int64_t start = nanoseconds_now();
    for (int64_t at = 0; at < PLACES_TRIED; at += BERTH_LINE) {
        places_ask(places_ahead(bytes + at, way, PLACES_NEAR), 0);
        for (int64_t i = 0; i < BERTH_LINE; i += vector) {
            const berth_vec_bits codes =
                (berth_vec_bits)berth_vec_load((const float *)(const void *)(bytes + at + i));
            sum = berth_vec_dot_words(sum, codes & 0x00ff00ffu, x);
            sum = berth_vec_dot_words(sum, codes >> 8 & 0x00ff00ffu, x);
        }
    }
    const int64_t time = nanoseconds_now() - start;
    return berth_vec_sum((berth_vec)sum) == 0 ? time : INT64_MAX; // zeros, which no compiler knows
}

// All ways one after the other, several times: a neighbour may hold the memory back for a while.
// Why places have to win clearly: what they gain in a trial they may lose in a long weight.
static inline void places_measure(berth_cpu *cpu) {
    char *bytes = cpu->host->alloc(cpu->host, PLACES_TRIED, BERTH_LINE);
    cpu->places_from = INT64_MAX;
    if (!bytes) {
        return;
    }
    memset(bytes, 0, PLACES_TRIED); // each page has memory of its own now
    int turns_won = 0;
    int behind_lost = 0;
    for (int trial = 0; trial < PLACES_TRIALS; ++trial) {
        const int64_t turns = places_time(bytes, PLACES_TURNS);
        const int64_t behind = places_time(bytes, PLACES_BEHIND);
        const int64_t nothing = places_time(bytes, PLACES_NOTHING);
        const int64_t best = behind < nothing ? behind : nothing;
        turns_won += turns + turns / PLACES_GAIN < best;
        behind_lost += nothing + nothing / PLACES_GAIN < behind;
    }
    cpu->host->free(cpu->host, bytes);
    cpu->places_from = 2 * turns_won > PLACES_TRIALS ? PLACES_LEAST : INT64_MAX;
    cpu->reads_alone = 2 * behind_lost > PLACES_TRIALS;
}

// For a create: how a weight of so many bytes, which all threads share, is asked for. What is asked
// for behind the end of a share is wasted. Who asks first measures for all.
static inline int places_serve(berth_cpu *cpu, int64_t bytes) {
    if (cpu->places_from == 0) {
        places_measure(cpu);
    }
    return bytes / cpu->threads >= cpu->places_from ? PLACES_TURNS
           : cpu->reads_alone                       ? PLACES_NOTHING
                                                    : PLACES_BEHIND;
}

#endif
