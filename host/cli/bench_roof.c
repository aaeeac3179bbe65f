// SPDX-License-Identifier: Apache-2.0
// Input: a number of threads. Output: what they can read, copy and multiply. A round begins when
// every thread is there and ends when the last one is done; who waits looks without a pause, so
// that even a copy of few bytes is timed and not the system's waking.
#include "cli/bench_roof.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "cli/bench_report.h"

#define MULTIPLY_ROUNDS UINT64_C(1000000) // some milliseconds
#define COPY_STEPS      3                 // over all places; the first is not counted
#define NS_PER_S        1e9
#define LINE            64                   // bytes
#define CACHE_BYTES     ((double)(32 << 20)) // where the system does not tell
#define CACHE_SIZE_OF   "/sys/devices/system/cpu/cpu0/cache/index%d/size"
#define SMALL_FILE      4096

typedef struct team team;
typedef void (*part_fn)(const team *self, int64_t part, int64_t round);

// What all parts do together, so many times.
typedef struct work {
    part_fn run;
    berth_stream_way way;
    size_t bytes;  // of a copy's source; of all that a pass reads and writes
    size_t places; // that copies take in turns
    berth_stream_mix mix;
    int64_t rounds;
} work;

struct team {
    work of;
    const berth_roof *roof;
    int64_t parts;
    _Atomic int64_t here;
    _Atomic int64_t begun; // rounds
    _Atomic int64_t left;  // parts of the last of them
    double *done;          // [parts], operations of each
    float *sinks;          // [parts]
};

typedef struct member {
    berth_thread thread;
    team *in;
    int64_t part;
} member;

static void take_part(void *context) {
    const member *self = context;
    team *in = self->in;
    atomic_fetch_add(&in->here, 1);
    for (int64_t round = 0; round < in->of.rounds; ++round) {
        while (atomic_load_explicit(&in->begun, memory_order_acquire) <= round) {
            berth_thread_yield();
        }
        in->of.run(in, self->part, round);
        atomic_fetch_sub(&in->left, 1);
    }
}

// Seconds that the parts take together in each round; the caller's thread does one.
static void run_parts(team *in, int64_t others, double *out_seconds) {
    while (atomic_load(&in->here) < others) {
        berth_thread_yield();
    }
    for (int64_t round = 0; round < in->of.rounds; ++round) {
        atomic_store(&in->left, others);
        const uint64_t start = berth_clock_ns();
        atomic_store_explicit(&in->begun, round + 1, memory_order_release);
        in->of.run(in, 0, round);
        while (atomic_load(&in->left) > 0) {
            berth_thread_yield();
        }
        out_seconds[round] = (double)(berth_clock_ns() - start) / NS_PER_S;
    }
}

static berth_status run_with(team *in, member *members, double *out_seconds) {
    berth_status status = BERTH_OK;
    int64_t started = 0;
    while (started < in->parts - 1 && status == BERTH_OK) {
        members[started] = (member){.in = in, .part = started + 1};
        status =
            berth_thread_start(&members[started].thread, "bench", take_part, &members[started]);
        started += status == BERTH_OK;
    }
    run_parts(in, started, out_seconds);
    for (int64_t i = 0; i < started; ++i) {
        berth_thread_join(&members[i].thread);
    }
    return status;
}

// `out_seconds` has room for every round; `out_done`, of the last one, may be NULL.
static berth_status run(const berth_roof *roof, const work *of, double *out_seconds,
                        double *out_done) {
    const size_t count = (size_t)roof->threads;
    team in = {.of = *of, .roof = roof, .parts = roof->threads};
    member *members = berth_alloc(count * sizeof *members);
    in.done = berth_alloc(count * sizeof *in.done);
    in.sinks = berth_alloc(count * sizeof *in.sinks);
    berth_status status = members && in.done && in.sinks
                              ? run_with(&in, members, out_seconds)
                              : BERTH_FAIL(OUT_OF_MEMORY, "no memory for %zu threads", count);
    for (size_t i = 0; i < count && status == BERTH_OK && out_done; ++i) {
        *out_done += in.done[i];
    }
    berth_free(members);
    berth_free(in.done);
    berth_free(in.sinks);
    return status;
}

// ---- parts --------------------------------------------------------------------------------------

static size_t share(const team *self, size_t bytes) {
    return bytes / (size_t)self->parts / BERTH_STREAM_GRAIN * BERTH_STREAM_GRAIN;
}

static void fill_part(const team *self, int64_t part, int64_t round) {
    (void)round;
    const size_t bytes = share(self, BERTH_ROOF_BYTES);
    berth_stream_fill(self->roof->memory + (size_t)part * bytes, bytes);
    self->done[part] = (double)bytes;
}

static void read_part(const team *self, int64_t part, int64_t round) {
    (void)round;
    const size_t bytes = share(self, BERTH_ROOF_BYTES);
    const char *from = self->roof->memory + (size_t)part * bytes;
    self->sinks[part] = berth_stream_read(from, bytes, self->of.way);
    self->done[part] = (double)bytes;
}

// A place has what is copied, and behind it room for that.
static void copy_part(const team *self, int64_t part, int64_t round) {
    const size_t place = (size_t)round % self->of.places * 2 * self->of.bytes;
    const size_t bytes = share(self, self->of.bytes);
    const char *from = self->roof->memory + place + (size_t)part * bytes;
    char *to = self->roof->memory + place + self->of.bytes + (size_t)part * bytes;
    if (self->of.way == BERTH_STREAM_PLAIN) {
        berth_stream_copy(to, from, bytes);
    } else {
        berth_stream_copy_past(to, from, bytes);
    }
    self->done[part] = 2.0 * (double)bytes;
}

// A place has what is read, and behind it what is written.
static void pass_part(const team *self, int64_t part, int64_t round) {
    const berth_stream_mix *mix = &self->of.mix;
    const size_t lines = mix->reads + mix->writes;
    const size_t turns = self->of.bytes / (size_t)self->parts / (lines * LINE);
    char *place = self->roof->memory + (size_t)round % self->of.places * self->of.bytes;
    char *from = place + (size_t)part * turns * mix->reads * LINE;
    char *to =
        place + ((size_t)self->parts * mix->reads + (size_t)part * mix->writes) * turns * LINE;
    berth_stream_pass(to, from, turns, mix);
    self->done[part] = (double)(turns * lines * LINE);
}

static void multiply_part(const team *self, int64_t part, int64_t round) {
    (void)round;
    self->done[part] = berth_stream_multiply_f32(MULTIPLY_ROUNDS, &self->sinks[part]);
}

static void multiply_pairs_part(const team *self, int64_t part, int64_t round) {
    (void)round;
    self->done[part] = berth_stream_multiply_bf16(MULTIPLY_ROUNDS, &self->sinks[part]);
}

static void multiply_bytes_part(const team *self, int64_t part, int64_t round) {
    (void)round;
    self->done[part] = berth_stream_multiply_i8(MULTIPLY_ROUNDS, &self->sinks[part]);
}

// ---- rounds -------------------------------------------------------------------------------------

static void keep_best(double *best, double done, double seconds) {
    *best = done / seconds > *best ? done / seconds : *best;
}

static berth_status round_of(const berth_roof *roof, part_fn function, berth_stream_way way,
                             double *best) {
    double seconds = 0;
    double done = 0;
    BERTH_TRY(run(roof, &(work){.run = function, .way = way, .rounds = 1}, &seconds, &done));
    keep_best(best, done, seconds);
    return BERTH_OK;
}

// Through the caches and past them. The first time at every place is not counted.
static berth_status both_ways(const berth_roof *roof, work of, double *seconds, double *best) {
    for (int way = 0; way < 2; ++way) {
        double done = 0;
        of.way = way == 0 ? BERTH_STREAM_PLAIN : BERTH_STREAM_FAR;
        of.mix.is_past = way == 1;
        BERTH_TRY(run(roof, &of, seconds, &done));
        keep_best(best, done,
                  berth_bench_quantile(seconds + of.places, (size_t)of.rounds - of.places, 0.5));
    }
    return BERTH_OK;
}

// `of` but for its places, of which there are `copies` where `most` bytes are enough.
static berth_status in_turns(const berth_roof *roof, work of, size_t most, size_t copies,
                             double *best) {
    of.places = most / of.bytes < copies ? most / of.bytes : copies;
    of.rounds = (int64_t)of.places * COPY_STEPS;
    double *seconds = berth_alloc((size_t)of.rounds * sizeof *seconds);
    const berth_status status =
        seconds ? both_ways(roof, of, seconds, best)
                : BERTH_FAIL(OUT_OF_MEMORY, "no memory for %lld times", (long long)of.rounds);
    berth_free(seconds);
    return status;
}

berth_status berth_roof_open(int64_t threads, berth_roof *roof) {
    double seconds = 0;
    *roof = (berth_roof){.threads = threads, .memory = berth_stream_map(BERTH_ROOF_BYTES)};
    return roof->memory
               ? run(roof, &(work){.run = fill_part, .rounds = 1}, &seconds, NULL)
               : BERTH_FAIL(OUT_OF_MEMORY, "no %zu bytes to measure the memory with; free some",
                            BERTH_ROOF_BYTES);
}

void berth_roof_begin(berth_roof *roof) {
    roof->read = 0;
    roof->copy = 0;
    roof->mix = 0;
    roof->multiply_f32 = 0;
    roof->multiply = 0;
    roof->multiply_i8 = 0;
}

berth_status berth_roof_read(berth_roof *roof) {
    for (int way = 0; way < BERTH_STREAM_WAYS; ++way) {
        BERTH_TRY(round_of(roof, read_part, (berth_stream_way)way, &roof->read));
    }
    return BERTH_OK;
}

static size_t at_most(size_t wanted, size_t most) {
    return wanted < most ? wanted : most;
}

berth_status berth_roof_copy(berth_roof *roof, double bytes, size_t copies) {
    const size_t grain = BERTH_STREAM_GRAIN * (size_t)roof->threads;
    const size_t most = BERTH_ROOF_BYTES / 2;
    const size_t wanted = ((size_t)(bytes / 2) + grain - 1) / grain * grain;
    const work of = {.run = copy_part, .bytes = at_most(wanted, most)};
    return in_turns(roof, of, most, copies, &roof->copy);
}

berth_status berth_roof_mix(berth_roof *roof, double bytes, size_t copies,
                            const berth_stream_mix *lines) {
    const size_t grain = (lines->reads + lines->writes) * LINE * (size_t)roof->threads;
    const size_t most = BERTH_ROOF_BYTES / grain * grain;
    const size_t wanted = ((size_t)bytes + grain - 1) / grain * grain;
    const work of = {.run = pass_part, .bytes = at_most(wanted, most), .mix = *lines};
    return in_turns(roof, of, most, copies, &roof->mix);
}

berth_status berth_roof_multiply(berth_roof *roof) {
    BERTH_TRY(round_of(roof, multiply_part, BERTH_STREAM_PLAIN, &roof->multiply_f32));
    roof->multiply = roof->multiply > roof->multiply_f32 ? roof->multiply : roof->multiply_f32;
    BERTH_TRY(round_of(roof, multiply_pairs_part, BERTH_STREAM_PLAIN, &roof->multiply));
    roof->multiply_i8 = roof->multiply_i8 > roof->multiply ? roof->multiply_i8 : roof->multiply;
    return round_of(roof, multiply_bytes_part, BERTH_STREAM_PLAIN, &roof->multiply_i8);
}

void berth_roof_close(berth_roof *roof) {
    berth_stream_unmap(roof->memory, BERTH_ROOF_BYTES);
    *roof = (berth_roof){.memory = NULL};
}

// ---- caches -------------------------------------------------------------------------------------

// "32768K", of the last cache that the system lists.
double berth_roof_cache_bytes(berth_arena *arena) {
    double bytes = CACHE_BYTES;
    for (int index = 0; index < 8; ++index) {
        char *text = NULL;
        size_t size = 0;
        const char *path = berth_arena_printf(arena, CACHE_SIZE_OF, index);
        if (!path || !berth_path_exists(path) ||
            berth_file_read(path, SMALL_FILE, &text, &size) != BERTH_OK) {
            break;
        }
        char *end = NULL;
        const double count = strtod(text, &end);
        bytes = count > 0 ? count * (*end == 'M' ? 0x1p20 : *end == 'K' ? 0x1p10 : 1) : bytes;
        berth_free(text);
    }
    berth_status_clear();
    return bytes;
}
