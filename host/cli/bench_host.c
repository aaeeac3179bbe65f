// SPDX-License-Identifier: Apache-2.0
// `berth bench host`: what the host itself costs. Every case is checked before it is timed, and
// where there is a floor (the same files only read, the same calls without a plan) that is measured
// beside it in turns.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/bench.h"
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
} bench_case;

typedef struct figures {
    double median;
    double p10;
    double p90;
} figures;

typedef struct bench_result {
    const bench_case *one; // NULL: not asked for
    figures value;
    figures floor;
    double share; // floor ÷ value, NaN without a floor
} bench_result;

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
         .open = berth_bench_write_manifests, .sample = scan, .floor = only_read),
    CASE(.name = "register_64", .unit = "us", .divisor = NS_PER_US, .sample = register_ops),
    CASE(.name = "seal_1000", .unit = "us", .divisor = NS_PER_US, .sample = seal),
    CASE(.name = "select_14", .unit = "us", .divisor = NS_PER_US, .open = open_platforms,
         .sample = choose),
    CASE(.name = "bind_1000", .unit = "us", .divisor = NS_PER_US, .open = berth_bench_build_graph,
         .sample = bind),
    CASE(.name = "bound_call", .unit = "ns", .divisor = (double)CALL_RUNS * BERTH_BENCH_SITES,
         .open = open_plan, .sample = call_bound, .floor = call_plain),
};

// ---- timing -------------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static figures figures_of(uint64_t *samples, double divisor) {
    const size_t tenth = SAMPLES / 10;
    const size_t middle = SAMPLES / 2;
    qsort(samples, SAMPLES, sizeof *samples, compare);
    return (figures){
        .median = (double)samples[middle] / divisor,
        .p10 = (double)samples[tenth] / divisor,
        .p90 = (double)samples[SAMPLES - 1 - tenth] / divisor,
    };
}

// Both sides in turns, so that whatever disturbs the machine disturbs them alike.
static berth_status time_case(berth_bench *bench, const bench_case *one, bench_result *out) {
    uint64_t values[SAMPLES];
    uint64_t floors[SAMPLES] = {0};
    uint64_t warm = 0;
    BERTH_TRY(one->open ? one->open(bench) : BERTH_OK);
    BERTH_TRY(one->sample(bench, &warm));
    for (size_t i = 0; i < SAMPLES; ++i) {
        BERTH_TRY(one->sample(bench, &values[i]));
        if (one->floor) {
            BERTH_TRY(one->floor(bench, &floors[i]));
        }
    }
    out->one = one;
    out->value = figures_of(values, one->divisor);
    out->floor = figures_of(floors, one->divisor);
    out->share = one->floor ? out->floor.median / out->value.median : (double)NAN;
    return BERTH_OK;
}

// ---- output -------------------------------------------------------------------------------------

static void put_row(berth_json_writer *json, const bench_result *result) {
    berth_json_begin_object(json);
    berth_cli_put(json, "case", result->one->name);
    berth_cli_put_u64(json, "threads", 1);
    berth_cli_put_f64(json, "value", result->value.median);
    berth_cli_put(json, "unit", result->one->unit);
    berth_cli_put_f64(json, "ceiling", result->one->floor ? result->floor.median : (double)NAN);
    berth_cli_put_f64(json, "share", result->share);
    berth_cli_put_f64(json, "p10", result->value.p10);
    berth_cli_put_f64(json, "p90", result->value.p90);
    berth_json_end_object(json);
}

static void print_json(berth_session *session, const bench_result *results) {
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_array(&json);
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        if (results[i].one) {
            put_row(&json, &results[i]);
        }
    }
    berth_json_end_array(&json);
    berth_session_json_end(session);
}

static void add_number(berth_listing *listing, double value) {
    if (isnan(value)) {
        berth_listing_add(listing, NULL);
    } else {
        berth_listing_add_format(listing, "%.3f", value);
    }
}

static berth_status print_table(berth_session *session, const bench_result *results) {
    static const char *const headings[] = {"case",    "threads", "value", "unit",
                                           "ceiling", "share",   "p10",   "p90"};
    berth_listing listing;
    berth_listing_begin(&listing, session, headings, BERTH_COUNT(headings));
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        const bench_result *result = &results[i];
        if (result->one) {
            berth_listing_add(&listing, result->one->name);
            berth_listing_add(&listing, "1");
            add_number(&listing, result->value.median);
            berth_listing_add(&listing, result->one->unit);
            add_number(&listing, result->one->floor ? result->floor.median : (double)NAN);
            add_number(&listing, result->share);
            add_number(&listing, result->value.p10);
            add_number(&listing, result->value.p90);
        }
    }
    return berth_listing_end(&listing);
}

// ---- the command --------------------------------------------------------------------------------

static berth_status time_all(berth_bench *bench, bench_result *results) {
    const char *wanted = berth_session_argument(bench->session, 0);
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        if (!wanted || strstr(cases[i].name, wanted)) {
            BERTH_TRY_NOTE(time_case(bench, &cases[i], &results[i]), "timing %s", cases[i].name);
        }
    }
    return BERTH_OK;
}

static berth_status run(berth_session *session) {
    bench_result results[BERTH_COUNT(cases)] = {{.one = NULL}};
    berth_bench bench;
    session->stage = BERTH_STAGE_STEP;
    berth_status status = berth_bench_open(session, &bench);
    if (status == BERTH_OK) {
        status = time_all(&bench, results);
    }
    berth_bench_close(&bench);
    BERTH_TRY(status);
    if (!session->config.is_json) {
        return print_table(session, results);
    }
    print_json(session, results);
    return BERTH_OK;
}

const berth_command berth_command_bench_host = {
    .name = "bench host",
    .arguments = "[CASE]",
    .help = "time the host itself; of one case or of all",
    .details =
        "Cases: discovery of 16 manifests, registration of 64 ops, sealing of 1,000 entries,\n"
        "selection among 14 platforms, binding of 1,000 op sites, the call through a bound op.\n"
        "The ceiling is what the same work costs without the host: reading the files, calling\n"
        "through a pointer. --json prints an array of {case, threads, value, unit, ceiling, "
        "share,\n"
        "p10, p90}; value is the median, ceiling and share are null where nothing bounds a case.",
    .bit = BERTH_COMMAND_BENCH,
    .max_arguments = 1,
    .needs = BERTH_STAGE_CONFIG,
    .run = run,
};
