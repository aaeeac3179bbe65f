// SPDX-License-Identifier: Apache-2.0
// Input: a number of threads. Output: what they can read, copy and multiply. A round begins when
// every thread is there and ends when the last one is done.
#include "cli/bench_roof.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/stream.h"
#include "base/thread.h"

#define MULTIPLY_ROUNDS UINT64_C(1000000) // some milliseconds
#define NS_PER_S        1e9
#define CACHE_BYTES     ((double)(32 << 20)) // where the system does not tell
#define CACHE_SIZE_OF   "/sys/devices/system/cpu/cpu0/cache/index%d/size"
#define SMALL_FILE      4096

typedef struct team team;
typedef void (*part_fn)(const team *self, int64_t part);

struct team {
    part_fn run;
    const berth_roof *roof;
    berth_stream_way way;
    int64_t parts;
    _Atomic int64_t here;
    _Atomic bool is_on;
    _Atomic int64_t left;
    double *done; // [parts], operations of each
    float *sinks; // [parts]
};

typedef struct member {
    berth_thread thread;
    team *of;
    int64_t part;
} member;

static void take_part(void *context) {
    const member *self = context;
    team *of = self->of;
    atomic_fetch_add(&of->here, 1);
    while (!atomic_load_explicit(&of->is_on, memory_order_acquire)) {
    }
    of->run(of, self->part);
    atomic_fetch_sub(&of->left, 1);
}

// Seconds that the parts take together; the caller's thread does one.
static double run_parts(team *of, int64_t others) {
    while (atomic_load(&of->here) < others) {
    }
    const uint64_t start = berth_clock_ns();
    atomic_store_explicit(&of->is_on, true, memory_order_release);
    of->run(of, 0);
    while (atomic_load(&of->left) > 0) {
    }
    return (double)(berth_clock_ns() - start) / NS_PER_S;
}

static berth_status run_with(team *of, member *members, double *out_seconds) {
    const int64_t others = of->parts - 1;
    berth_status status = BERTH_OK;
    int64_t started = 0;
    atomic_store(&of->left, others);
    while (started < others && status == BERTH_OK) {
        members[started] = (member){.of = of, .part = started + 1};
        status =
            berth_thread_start(&members[started].thread, "bench", take_part, &members[started]);
        started += status == BERTH_OK;
    }
    *out_seconds = run_parts(of, started);
    for (int64_t i = 0; i < started; ++i) {
        berth_thread_join(&members[i].thread);
    }
    return status;
}

// Runs one round; `out_done` may be NULL.
static berth_status run(const berth_roof *roof, part_fn function, berth_stream_way way,
                        double *out_seconds, double *out_done) {
    const size_t count = (size_t)roof->threads;
    team of = {.run = function, .roof = roof, .way = way, .parts = roof->threads};
    member *members = berth_alloc(count * sizeof *members);
    of.done = berth_alloc(count * sizeof *of.done);
    of.sinks = berth_alloc(count * sizeof *of.sinks);
    berth_status status = members && of.done && of.sinks
                              ? run_with(&of, members, out_seconds)
                              : BERTH_FAIL(OUT_OF_MEMORY, "no memory for %zu threads", count);
    for (size_t i = 0; i < count && status == BERTH_OK && out_done; ++i) {
        *out_done += of.done[i];
    }
    berth_free(members);
    berth_free(of.done);
    berth_free(of.sinks);
    return status;
}

// ---- parts --------------------------------------------------------------------------------------

static size_t share(const team *self, size_t bytes) {
    return bytes / (size_t)self->parts / BERTH_STREAM_GRAIN * BERTH_STREAM_GRAIN;
}

static void fill_part(const team *self, int64_t part) {
    const size_t bytes = share(self, BERTH_ROOF_BYTES);
    berth_stream_fill(self->roof->memory + (size_t)part * bytes, bytes);
    self->done[part] = (double)bytes;
}

static void read_part(const team *self, int64_t part) {
    const size_t bytes = share(self, BERTH_ROOF_BYTES);
    const char *from = self->roof->memory + (size_t)part * bytes;
    self->sinks[part] = berth_stream_read(from, bytes, self->way);
    self->done[part] = (double)bytes;
}

static void copy_part(const team *self, int64_t part) {
    const size_t bytes = share(self, BERTH_ROOF_BYTES / 2);
    char *to = self->roof->memory + (size_t)part * bytes;
    if (self->way == BERTH_STREAM_PLAIN) {
        berth_stream_copy(to, to + BERTH_ROOF_BYTES / 2, bytes);
    } else {
        berth_stream_copy_past(to, to + BERTH_ROOF_BYTES / 2, bytes);
    }
    self->done[part] = 2.0 * (double)bytes;
}

static void multiply_part(const team *self, int64_t part) {
    self->done[part] = berth_stream_multiply_f32(MULTIPLY_ROUNDS, &self->sinks[part]);
}

static void multiply_pairs_part(const team *self, int64_t part) {
    self->done[part] = berth_stream_multiply_bf16(MULTIPLY_ROUNDS, &self->sinks[part]);
}

// ---- rounds -------------------------------------------------------------------------------------

static berth_status round_of(const berth_roof *roof, part_fn function, berth_stream_way way,
                             double *best) {
    double seconds = 0;
    double done = 0;
    BERTH_TRY(run(roof, function, way, &seconds, &done));
    *best = done / seconds > *best ? done / seconds : *best;
    return BERTH_OK;
}

berth_status berth_roof_open(int64_t threads, berth_roof *roof) {
    double seconds = 0;
    *roof = (berth_roof){.threads = threads, .memory = berth_stream_map(BERTH_ROOF_BYTES)};
    return roof->memory
               ? run(roof, fill_part, BERTH_STREAM_PLAIN, &seconds, NULL)
               : BERTH_FAIL(OUT_OF_MEMORY, "no %zu bytes to measure the memory with; free some",
                            BERTH_ROOF_BYTES);
}

void berth_roof_begin(berth_roof *roof) {
    roof->read = 0;
    roof->copy = 0;
    roof->multiply_f32 = 0;
    roof->multiply = 0;
}

berth_status berth_roof_read(berth_roof *roof) {
    for (int way = 0; way < BERTH_STREAM_WAYS; ++way) {
        BERTH_TRY(round_of(roof, read_part, (berth_stream_way)way, &roof->read));
    }
    return BERTH_OK;
}

berth_status berth_roof_copy(berth_roof *roof) {
    BERTH_TRY(round_of(roof, copy_part, BERTH_STREAM_PLAIN, &roof->copy));
    return round_of(roof, copy_part, BERTH_STREAM_FAR, &roof->copy);
}

berth_status berth_roof_multiply(berth_roof *roof) {
    BERTH_TRY(round_of(roof, multiply_part, BERTH_STREAM_PLAIN, &roof->multiply_f32));
    roof->multiply = roof->multiply > roof->multiply_f32 ? roof->multiply : roof->multiply_f32;
    return round_of(roof, multiply_pairs_part, BERTH_STREAM_PLAIN, &roof->multiply);
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
