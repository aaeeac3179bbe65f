// SPDX-License-Identifier: Apache-2.0
// `berth bench host`: what the host itself costs. Every case is checked before it is timed, and
// where there is a floor (the same files only read, the same calls without a plan) that is measured
// beside it in turns.
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/cli_private.h"

#define SAMPLES          101
#define CALL_RUNS        20 // of all sites, in one sample
#define SCAN_BLOCK_BYTES ((size_t)64 << 10)
#define SCAN_LIMIT_BYTES ((size_t)64 << 20)
#define NS_PER_US        1000.0

// Nanoseconds of one sample.
typedef berth_status (*sample_fn)(berth_bench *bench, uint64_t *out_ns);

typedef struct bench_case {
    const char *name;
    const char *unit;
    double divisor; // of nanoseconds, to get the unit of one thing
    berth_status (*open)(berth_bench *bench);
    sample_fn sample;
    sample_fn floor; // NULL: nothing is known to be the least
    const char *floor_is;
} bench_case;

// ---- discovery ----------------------------------------------------------------------------------

static berth_status scan(berth_bench *bench, uint64_t *out_ns) {
    berth_arena *arena = NULL;
    berth_candidates candidates = {0};
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_arena_create(SCAN_BLOCK_BYTES, SCAN_LIMIT_BYTES, &arena));
    berth_status status = berth_discovery_run(&bench->config, arena, &candidates);
    *out_ns = berth_clock_ns() - start;
    if (status == BERTH_OK && (candidates.count != BERTH_BENCH_MANIFESTS ||
                               candidates.items[0].state != BERTH_PLUGIN_FOUND)) {
        status = BERTH_FAIL(INTERNAL, "%zu plugins found, the first is %s: %s", candidates.count,
                            berth_plugin_state_name(candidates.items[0].state),
                            candidates.items[0].reason);
    }
    berth_arena_destroy(arena);
    return status;
}

static berth_status read_all(berth_bench *bench, berth_arena *arena) {
    berth_dir_listing listing;
    BERTH_TRY(berth_dir_list(bench->directory, arena, &listing));
    for (size_t i = 0; i < listing.count; ++i) {
        char *data = NULL;
        size_t size = 0;
        const char *path = berth_path_join(arena, bench->directory, listing.names[i]);
        if (!berth_str_ends_with(berth_str_from(path), BERTH_STR(".yaml"))) {
            continue;
        }
        BERTH_TRY(berth_file_read(path, SCAN_LIMIT_BYTES, &data, &size));
        berth_free(data);
    }
    return BERTH_OK;
}

static berth_status only_read(berth_bench *bench, uint64_t *out_ns) {
    berth_arena *arena = NULL;
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_arena_create(SCAN_BLOCK_BYTES, SCAN_LIMIT_BYTES, &arena));
    const berth_status status = read_all(bench, arena);
    *out_ns = berth_clock_ns() - start;
    berth_arena_destroy(arena);
    return status;
}

// ---- registration, sealing, selection -----------------------------------------------------------

static berth_status register_ops(berth_bench *bench, uint64_t *out_ns) {
    BERTH_TRY(berth_bench_renew_registry(bench));
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_bench_add_ops(bench, 0));
    *out_ns = berth_clock_ns() - start;
    return BERTH_OK;
}

// Sealing resolves names, judges duplicates, sorts, and takes the digest.
static berth_status seal(berth_bench *bench, uint64_t *out_ns) {
    BERTH_TRY(berth_bench_renew_registry(bench));
    BERTH_TRY(berth_bench_add_ops(bench, BERTH_BENCH_IMPLS));
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_registry_freeze(bench->registry));
    const uint64_t digest = berth_registry_digest(bench->registry);
    *out_ns = berth_clock_ns() - start;
    return digest != 0 && berth_registry_op_count(bench->registry) == BERTH_BENCH_OPS
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL, "%zu ops were sealed",
                            berth_registry_op_count(bench->registry));
}

static berth_status open_platforms(berth_bench *bench) {
    BERTH_TRY(berth_bench_renew_registry(bench));
    return berth_bench_add_platforms(bench);
}

static berth_status choose(berth_bench *bench, uint64_t *out_ns) {
    berth_arena *arena = NULL;
    berth_decision decision = {0};
    BERTH_TRY(berth_arena_create(SCAN_BLOCK_BYTES, SCAN_LIMIT_BYTES, &arena));
    const uint64_t start = berth_clock_ns();
    berth_status status = berth_platform_choose(&bench->config, bench->registry, &bench->candidates,
                                                arena, &decision);
    *out_ns = berth_clock_ns() - start;
    if (status == BERTH_OK &&
        (decision.verdict_count != BERTH_BENCH_PLATFORMS ||
         strcmp(decision.platform->platform.name, bench->config.platform) != 0)) {
        status = BERTH_FAIL(INTERNAL, "'%s' was chosen of %zu", decision.platform->platform.name,
                            decision.verdict_count);
    }
    berth_arena_destroy(arena);
    return status;
}

// ---- binding and calling ------------------------------------------------------------------------

static berth_status bind(berth_bench *bench, uint64_t *out_ns) {
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_bench_renew_plan(bench));
    *out_ns = berth_clock_ns() - start;
    return BERTH_OK;
}

static berth_status open_plan(berth_bench *bench) {
    BERTH_TRY(berth_bench_build_graph(bench));
    BERTH_TRY(berth_bench_ready_plan(bench));
    BERTH_TRY(berth_bench_bound_calls(bench, 1));
    const uint64_t before = berth_memory_allocations();
    BERTH_TRY(berth_bench_bound_calls(bench, 1));
    const uint64_t made = berth_memory_allocations() - before;
    return made == 0 ? BERTH_OK
                     : BERTH_FAIL(INTERNAL, "a run of the plan makes %llu allocations",
                                  (unsigned long long)made);
}

static berth_status call_bound(berth_bench *bench, uint64_t *out_ns) {
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_bench_bound_calls(bench, CALL_RUNS));
    *out_ns = berth_clock_ns() - start;
    return BERTH_OK;
}

static berth_status call_plain(berth_bench *bench, uint64_t *out_ns) {
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_bench_plain_calls(bench, CALL_RUNS));
    *out_ns = berth_clock_ns() - start;
    return BERTH_OK;
}

// Why a macro: clang-format 14 crashes on rows in braces that differ in the number of members.
#define CASE(...)                                                                                  \
    { __VA_ARGS__ }

static const bench_case cases[] = {
    CASE(.name = "discover_16", .unit = "us", .divisor = NS_PER_US,
         .open = berth_bench_write_manifests, .sample = scan, .floor = only_read,
         .floor_is = "the files only read"),
    CASE(.name = "register_64", .unit = "us", .divisor = NS_PER_US, .sample = register_ops),
    CASE(.name = "seal_1000", .unit = "us", .divisor = NS_PER_US, .sample = seal),
    CASE(.name = "select_14", .unit = "us", .divisor = NS_PER_US, .open = open_platforms,
         .sample = choose),
    CASE(.name = "bind_1000", .unit = "us", .divisor = NS_PER_US, .open = berth_bench_build_graph,
         .sample = bind),
    CASE(.name = "bound_call", .unit = "ns", .divisor = (double)CALL_RUNS * BERTH_BENCH_SITES,
         .open = open_plan, .sample = call_bound, .floor = call_plain,
         .floor_is = "calls through a pointer"),
};

// ---- timing -------------------------------------------------------------------------------------

static double quantile(double *samples, const bench_case *one, double share) {
    return berth_bench_quantile(samples, SAMPLES, share) / one->divisor;
}

// Both sides in turns, so that whatever disturbs the machine disturbs them alike.
static berth_status time_case(berth_bench *bench, const bench_case *one, berth_bench_row *out) {
    double values[SAMPLES];
    double floors[SAMPLES];
    uint64_t ns = 0;
    BERTH_TRY(one->open ? one->open(bench) : BERTH_OK);
    BERTH_TRY(one->sample(bench, &ns));
    for (size_t i = 0; i < SAMPLES; ++i) {
        BERTH_TRY(one->sample(bench, &ns));
        values[i] = (double)ns;
        BERTH_TRY(one->floor ? one->floor(bench, &ns) : BERTH_OK);
        floors[i] = (double)ns;
    }
    const double value = quantile(values, one, 0.5);
    const double floor = one->floor ? quantile(floors, one, 0.5) : (double)NAN;
    *out = (berth_bench_row){
        .name = one->name,
        .threads = 1,
        .value = value,
        .unit = one->unit,
        .ceiling = floor,
        .share = floor / value,
        .p10 = quantile(values, one, 0.1),
        .p90 = quantile(values, one, 0.9),
        .times_one = (double)NAN,
        .note = one->floor_is,
    };
    return BERTH_OK;
}

// ---- the command --------------------------------------------------------------------------------

static berth_status time_all(berth_bench *bench, berth_bench_row *rows, size_t *out_count) {
    const char *wanted = berth_session_argument(bench->session, 0);
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        if (!wanted || strstr(cases[i].name, wanted)) {
            BERTH_TRY_NOTE(time_case(bench, &cases[i], &rows[*out_count]), "timing %s",
                           cases[i].name);
            ++*out_count;
        }
    }
    return BERTH_OK;
}

static berth_status run(berth_session *session) {
    berth_bench_row rows[BERTH_COUNT(cases)];
    size_t count = 0;
    berth_bench bench;
    session->stage = BERTH_STAGE_STEP;
    berth_status status = berth_bench_open(session, &bench);
    if (status == BERTH_OK) {
        status = time_all(&bench, rows, &count);
    }
    berth_bench_close(&bench);
    BERTH_TRY(status);
    return berth_bench_print(session, rows, count);
}

const berth_command berth_command_bench_host = {
    .name = "bench host",
    .arguments = "[CASE]",
    .help = "time the host itself; of one case or of all",
    .details =
        "Cases: discovery of 16 manifests, registration of 64 ops, sealing of 1,000 entries,\n"
        "selection among 14 platforms, binding of 1,000 op sites, the call through a bound op.\n"
        "The ceiling is what the same work costs without the host: reading the files, calling\n"
        "through a pointer. --json prints an array of {case, threads, value, unit, ceiling,\n"
        "share, p10, p90, times_one, note}; value is the median, ceiling and share are null where\n"
        "nothing bounds a case.",
    .bit = BERTH_COMMAND_BENCH,
    .max_arguments = 1,
    .needs = BERTH_STAGE_CONFIG,
    .run = run,
};
