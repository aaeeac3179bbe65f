// SPDX-License-Identifier: Apache-2.0
// `berth bench load`: how fast a checkpoint becomes a model that can run, beside reading the same
// files into fresh memory on as many threads, in turns. Both find the files in the page cache,
// since they were read before.
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
#include "cli/bench_report.h"
#include "cli/cli_private.h"

#define RUNS        5 // of everything; the best counts
#define PIECE_BYTES ((size_t)4 << 20)
#define MAX_THREADS 64
#define BYTES_PER_G 1e9 // and nanoseconds of a second, so that bytes a nanosecond are GB/s

// ---- reading ------------------------------------------------------------------------------------

// One file that threads read piece by piece.
typedef struct reading {
    int file;
    size_t size;
    char *to;
    _Atomic size_t next;   // byte that nobody reads yet
    _Atomic bool is_short; // somebody got less than there should be
} reading;

static void read_pieces(void *context) {
    reading *self = context;
    for (size_t at = atomic_fetch_add(&self->next, PIECE_BYTES); at < self->size;
         at = atomic_fetch_add(&self->next, PIECE_BYTES)) {
        const size_t end = self->size - at < PIECE_BYTES ? self->size : at + PIECE_BYTES;
        while (at < end) {
            const ssize_t got = pread(self->file, self->to + at, end - at, (off_t)at);
            if (got <= 0) {
                atomic_store(&self->is_short, true);
                return;
            }
            at += (size_t)got;
        }
    }
}

static void read_on_threads(reading *self, int64_t threads) {
    berth_thread others[MAX_THREADS];
    size_t started = 0;
    while ((int64_t)started + 1 < threads && started < MAX_THREADS &&
           berth_thread_start(&others[started], "read", read_pieces, self) == BERTH_OK) {
        ++started;
    }
    read_pieces(self);
    for (size_t i = 0; i < started; ++i) {
        berth_thread_join(&others[i]);
    }
}

static berth_status read_open(const char *path, int file, int64_t threads, uint64_t *bytes) {
    struct stat about;
    if (fstat(file, &about) != 0 || about.st_size <= 0) {
        return BERTH_FAIL(IO, "%s: cannot be read, or is empty", path);
    }
    reading self = {.file = file, .size = (size_t)about.st_size};
    void *fresh = mmap(NULL, self.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: no %zu bytes to read it into", path, self.size);
    }
    self.to = fresh;
    read_on_threads(&self, threads);
    (void)munmap(fresh, self.size);
    *bytes += self.size;
    return atomic_load(&self.is_short) ? BERTH_FAIL(IO, "%s: changed while it was read", path)
                                       : BERTH_OK;
}

static berth_status read_file(const char *path, int64_t threads, uint64_t *bytes) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return BERTH_FAIL(IO, "%s: cannot be opened", path);
    }
    const berth_status status = read_open(path, file, threads, bytes);
    close(file);
    return status;
}

static berth_status read_checkpoint(berth_session *session, int64_t threads, uint64_t *out_ns,
                                    uint64_t *out_bytes) {
    const char *folder = session->config.model;
    berth_dir_listing listing;
    *out_bytes = 0;
    BERTH_TRY(berth_dir_list(folder, session->arena, &listing));
    const uint64_t start = berth_clock_ns();
    for (size_t i = 0; i < listing.count; ++i) {
        if (berth_str_ends_with(berth_str_from(listing.names[i]), BERTH_STR(".safetensors"))) {
            const char *path = berth_path_join(session->arena, folder, listing.names[i]);
            BERTH_TRY(read_file(path, threads, out_bytes));
        }
    }
    *out_ns = berth_clock_ns() - start;
    return *out_bytes > 0 ? BERTH_OK : BERTH_FAIL(NOT_FOUND, "%s: has no *.safetensors", folder);
}

// ---- loading ------------------------------------------------------------------------------------

// From a device that is open to a model that can run.
static berth_status load_checkpoint(berth_session *session, int64_t threads, uint64_t *out_ns) {
    BERTH_TRY(session->begin_again(session));
    BERTH_TRY(session->open_until(session, BERTH_STAGE_CONFIG));
    session->config.threads = threads;
    BERTH_TRY(session->open_until(session, BERTH_STAGE_WORKER));
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(session->open_until(session, BERTH_STAGE_MODEL));
    *out_ns = berth_clock_ns() - start;
    return BERTH_OK;
}

static berth_status run_threads(berth_session *session, int64_t threads, berth_bench_row *out) {
    double samples[RUNS];
    double reader = INFINITY;
    uint64_t bytes = 0;
    for (int run = 0; run < RUNS; ++run) {
        uint64_t ours = 0;
        uint64_t theirs = 0;
        BERTH_TRY(load_checkpoint(session, threads, &ours));
        BERTH_TRY(read_checkpoint(session, threads, &theirs, &bytes));
        samples[run] = (double)ours;
        reader = fmin(reader, (double)theirs);
    }
    const double best = berth_bench_quantile(samples, RUNS, 0);
    *out = (berth_bench_row){
        .name = "load",
        .threads = threads,
        .value = (double)bytes / best,
        .unit = "GB/s",
        .ceiling = (double)bytes / reader,
        .share = reader / best,
        .p10 = (double)bytes / berth_bench_quantile(samples, RUNS, 0.9),
        .p90 = (double)bytes / berth_bench_quantile(samples, RUNS, 0.1),
        .times_one = NAN,
        .note = berth_arena_printf(session->arena, "pread of %.2f GB into fresh memory",
                                   (double)bytes / BYTES_PER_G),
    };
    return BERTH_OK;
}

// ---- the command --------------------------------------------------------------------------------

static berth_status run(berth_session *session) {
    berth_bench_row rows[BERTH_BENCH_THREADS];
    int64_t threads[BERTH_BENCH_THREADS];
    const size_t count = berth_bench_threads(&session->config, threads);
    for (size_t i = 0; i < count; ++i) {
        BERTH_TRY_NOTE(run_threads(session, threads[i], &rows[i]), "load on %lld threads",
                       (long long)threads[i]);
    }
    return berth_bench_print(session, rows, count);
}

// clang-format off
static const char details[] =
    "Loading is everything from config.json to a model that can run: the graph is built and\n"
    "planned, every weight read, checked, put into the layout that its kernels read. The\n"
    "ceiling is pread of the same *.safetensors into fresh memory; both take turns 5 times, so\n"
    "that the files lie in the page cache, and the best of each counts.\n"
    BERTH_BENCH_JSON_HELP;
// clang-format on

const berth_command berth_command_bench_load = {
    .name = "bench load",
    .arguments = "",
    .help = "time the loading of a checkpoint beside reading its files",
    .details = details,
    .bit = BERTH_COMMAND_BENCH,
    .needs = BERTH_STAGE_WORKER,
    .flags = BERTH_CLI_MODEL,
    .run = run,
};
