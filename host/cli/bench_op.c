// SPDX-License-Identifier: Apache-2.0
// `berth bench op`: single ops at the widths of real models, on the platform that is chosen, each
// beside the roofs of this machine, measured in turns with it.
#include "cli/bench_op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/bench_onednn.h"
#include "cli/bench_report.h"
#include "cli/bench_roof.h"
#include "cli/cli_private.h"

#define RUNS          5    // the best counts
#define STEPS         3    // of the graph in one run; the first is not counted
#define CHECK_TOKENS  8    // of a prompt; later rows say nothing that these do not
#define DENSE_FLOPS   16.0 // operations a byte from which on arithmetic is what a case is about
#define CACHES        4    // as many last-level caches the copies of a case are large
#define CACHE_BYTES   ((double)(32 << 20)) // where the system does not tell
#define MEMORY_BYTES  1.5e9                // of all copies, at most
#define NS_PER_S      1e9
#define ARENA_BLOCK   ((size_t)1 << 20)
#define ARENA_LIMIT   ((size_t)256 << 20)
#define CACHE_SIZE_OF "/sys/devices/system/cpu/cpu0/cache/index%d/size"
#define SMALL_FILE    4096

typedef struct op_bench {
    berth_session *session;
    berth_arena *arena; // owned, of one case
    const char *wanted; // NULL: all
    berth_dtype dtype;
    int64_t threads;
    bool has_roofs;
    double cache_bytes; // of the last level
    berth_runtime *runtime;
    berth_roof roof;
    berth_onednn *onednn; // NULL: absent, or not asked for yet
    bool is_onednn_absent;
    berth_bench_row *rows;
    size_t row_count;
} op_bench;

// A case's graph on one side: the references or the platform.
typedef struct op_side {
    size_t copies;
    berth_graph *graph;
    berth_plan *plan;
    berth_config config;
    berth_op_batch *batch;
} op_side;

// ---- a side -------------------------------------------------------------------------------------

static void fill_values(float *values, size_t count, uint64_t seed) {
    uint64_t state = seed;
    for (size_t i = 0; i < count; ++i) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = (float)((double)(state >> 33) / 0x1p30 - 1.0);
    }
}

// The same numbers for a parameter of any copy, so that all copies give the same.
static berth_status set_parameter(const op_side *side, berth_value at) {
    const berth_value_type *type = &side->graph->values[at].type;
    const size_t count = (size_t)berth_type_elements(type, 1, 1);
    const uint64_t bytes = berth_dtype_bytes(type->dtype, count);
    float *values = berth_alloc(count * sizeof *values);
    void *data = berth_alloc(bytes);
    berth_status status = BERTH_OK;
    if (!values || !data) {
        status = BERTH_FAIL(OUT_OF_MEMORY, "no memory for a weight of %zu elements", count);
    } else {
        fill_values(values, count, count);
        berth_convert(BERTH_DTYPE_F32, values, type->dtype, data, count);
        status = berth_plan_set_parameter(side->plan, at, data, bytes);
    }
    berth_free(values);
    berth_free(data);
    return status;
}

static berth_status load(const op_side *side, bool has_cache) {
    for (berth_value i = 1; i < side->graph->value_count; ++i) {
        if (side->graph->values[i].kind == BERTH_VALUE_PARAMETER) {
            BERTH_TRY(set_parameter(side, i));
        }
    }
    BERTH_TRY(berth_plan_ready(side->plan));
    const berth_kv_cache_config cache = {
        .size = sizeof cache,
        .num_blocks = 1 + BERTH_OP_CONTEXT / BERTH_OP_BLOCK,
        .group_count = 1,
    };
    return has_cache ? berth_plan_set_cache(side->plan, &cache) : BERTH_OK;
}

// Fills side->plan; the copies' states hold the context.
static berth_status open_side(const op_bench *bench, const berth_op_case *one, op_side *side) {
    const bool has_cache = strcmp(one->op, "paged_attention") == 0;
    berth_kv_cache_spec *caches = NULL;
    BERTH_TRY(berth_op_batch_create(bench->arena, &side->batch));
    BERTH_TRY(berth_op_graph_build(bench->session->registry, one, bench->dtype, side->copies,
                                   &side->graph));
    BERTH_TRY(has_cache
                  ? berth_op_graph_caches(one, bench->dtype, side->copies, bench->arena, &caches)
                  : BERTH_OK);
    BERTH_TRY(berth_plan_create(
        &(berth_plan_request){
            .registry = bench->session->registry,
            .config = &side->config,
            .graph = side->graph,
            .runtime = bench->runtime,
            .kv_caches = caches,
            .kv_cache_count = has_cache ? side->copies : 0,
            .max_tokens = BERTH_OP_TOKENS,
            .max_sequences = BERTH_OP_TOKENS,
            .max_seq_len = BERTH_OP_CONTEXT,
        },
        &side->plan));
    BERTH_TRY(load(side, has_cache));
    for (int64_t at = 0; at < one->context; at += BERTH_OP_TOKENS) {
        const int64_t left = one->context - at;
        BERTH_TRY(berth_plan_run(
            side->plan,
            berth_op_batch_fill(side->batch, at, left < BERTH_OP_TOKENS ? left : BERTH_OP_TOKENS)));
    }
    return BERTH_OK;
}

static void close_side(op_side *side) {
    berth_plan_destroy(side->plan);
    berth_graph_destroy(side->graph);
    side->plan = NULL;
    side->graph = NULL;
}

static berth_status run_side(const op_side *side, const berth_op_case *one, int64_t tokens) {
    return berth_plan_run(side->plan, one->context > 0
                                          ? berth_op_batch_decode(side->batch, one->context)
                                          : berth_op_batch_prompt(side->batch, tokens));
}

// ---- the check ----------------------------------------------------------------------------------

// The largest error beside the root mean square of what is wanted.
static double error_of(const float *got, const float *wanted, size_t count) {
    double sum = 0;
    double largest = 0;
    for (size_t i = 0; i < count; ++i) {
        const double error = fabs((double)got[i] - (double)wanted[i]);
        largest = error <= largest ? largest : error; // a NaN is kept
        sum += (double)wanted[i] * (double)wanted[i];
    }
    return sum > 0 ? largest / sqrt(sum / (double)count) : INFINITY;
}

// The error of `count` elements; of codes 0, or INFINITY where one differs.
static double tensor_error(const berth_tensor *got, const berth_tensor *wanted, size_t count) {
    const char *ours = (const char *)got->data + got->byte_offset;
    const char *theirs = (const char *)wanted->data + wanted->byte_offset;
    if (wanted->dtype != BERTH_DTYPE_F32) {
        return memcmp(ours, theirs, berth_dtype_bytes(wanted->dtype, count)) == 0 ? 0 : INFINITY;
    }
    return error_of((const float *)(const void *)ours, (const float *)(const void *)theirs, count);
}

static berth_status compare(const op_side *reference, const op_side *side, char kind,
                            double allowed) {
    const berth_tensor *wanted = NULL;
    char name[32] = {kind, '0', 0};
    BERTH_TRY(berth_plan_output(reference->plan, name, &wanted));
    size_t count = 1;
    for (int32_t i = 0; i < wanted->ndim; ++i) {
        count *= (size_t)wanted->shape[i];
    }
    for (size_t copy = 0; copy < side->copies; ++copy) {
        const berth_tensor *got = NULL;
        (void)snprintf(name, sizeof name, "%c%zu", kind, copy);
        BERTH_TRY(berth_plan_output(side->plan, name, &got));
        const double error = tensor_error(got, wanted, count);
        if (!(error <= allowed)) {
            return BERTH_FAIL(INTERNAL,
                              "the largest error beside the op's reference is %.3g of the root "
                              "mean square, %.3g are allowed; nothing is timed",
                              error, allowed);
        }
    }
    return BERTH_OK;
}

static berth_status check_with(const op_bench *bench, const berth_op_case *one, op_side *reference,
                               const op_side *side) {
    const double allowed = bench->dtype == BERTH_DTYPE_F32   ? 1e-4
                           : bench->dtype == BERTH_DTYPE_F16 ? 1e-2
                                                             : 6e-2;
    const bool is_all = one->is_whole || one->tokens < CHECK_TOKENS;
    const int64_t tokens = is_all ? one->tokens : CHECK_TOKENS;
    BERTH_TRY(open_side(bench, one, reference));
    BERTH_TRY(run_side(reference, one, tokens));
    BERTH_TRY(run_side(side, one, one->tokens));
    BERTH_TRY(compare(reference, side, 'y', allowed));
    return one->output_count > 1 ? compare(reference, side, 'z', allowed) : BERTH_OK;
}

// The first rows of every copy, from the step that is timed, beside the op's reference.
static berth_status check(const op_bench *bench, const berth_op_case *one, const op_side *side) {
    static const char *none[] = {"none"};
    op_side reference = {.copies = 1, .config = bench->session->config};
    reference.config.custom_ops = (berth_option_list){.items = none, .count = 1};
    reference.config.user_ops = reference.config.custom_ops;
    const berth_status status = check_with(bench, one, &reference, side);
    close_side(&reference);
    return status;
}

// ---- timing -------------------------------------------------------------------------------------

// Seconds of every copy in one step.
static berth_status time_step(const op_side *side, const berth_op_case *one, double *out_seconds) {
    size_t count = 0;
    BERTH_TRY(run_side(side, one, one->tokens));
    const size_t sites = berth_plan_site_count(side->plan);
    for (size_t i = 0; i < sites && count < side->copies; ++i) {
        if (strcmp(berth_plan_site(side->plan, i)->op, one->op) == 0) {
            out_seconds[count++] = (double)berth_plan_site_ns(side->plan, i) / NS_PER_S;
        }
    }
    return BERTH_OK;
}

typedef struct op_times {
    double samples[(STEPS - 1) * BERTH_OP_COPIES]; // of the best run
    size_t count;
    double median; // of these
    double theirs; // oneDNN's, the best of all runs; INFINITY: none
} op_times;

static berth_status time_run(const op_side *side, const berth_op_case *one, op_times *best) {
    double samples[STEPS * BERTH_OP_COPIES];
    for (size_t step = 0; step < STEPS; ++step) {
        BERTH_TRY(time_step(side, one, samples + step * side->copies));
    }
    double *counted = samples + side->copies;
    const size_t count = (STEPS - 1) * side->copies;
    const double median = berth_bench_quantile(counted, count, 0.5);
    if (median < best->median) {
        memcpy(best->samples, counted, count * sizeof *counted);
        best->count = count;
        best->median = median;
    }
    return BERTH_OK;
}

static berth_status measure_roofs(op_bench *bench) {
    if (!bench->has_roofs) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_roof_read(&bench->roof));
    BERTH_TRY(berth_roof_copy(&bench->roof));
    return berth_roof_multiply(&bench->roof);
}

// ---- oneDNN -------------------------------------------------------------------------------------

static void open_onednn(op_bench *bench) {
    if (bench->onednn || bench->is_onednn_absent || !bench->has_roofs) {
        return;
    }
    if (berth_onednn_open(bench->session->arena, bench->threads, &bench->onednn) != BERTH_OK) {
        bench->is_onednn_absent = true;
        berth_status_clear();
    }
}

static berth_status create_products(op_bench *bench, const berth_op_case *one,
                                    berth_onednn_product **products) {
    berth_onednn_shape shape = {.rows = one->tokens, .out = one->out, .in = one->in};
    if (strcmp(one->op, "linear") != 0) {
        return BERTH_OK;
    }
    open_onednn(bench);
    for (int type = 0; type < 2 && bench->onednn; ++type) {
        shape.type = (berth_onednn_type)type;
        BERTH_TRY(berth_onednn_product_create(bench->onednn, &shape, bench->roof.memory,
                                              BERTH_ROOF_BYTES, &products[type]));
    }
    return BERTH_OK;
}

static berth_status time_products(const op_bench *bench, berth_onednn_product *const *products,
                                  op_times *best) {
    for (int type = 0; type < 2; ++type) {
        double seconds = INFINITY;
        BERTH_TRY(products[type] ? berth_onednn_product_time(products[type], &seconds) : BERTH_OK);
        best->theirs = fmin(best->theirs, seconds);
    }
    berth_onednn_settle(bench->onednn);
    return BERTH_OK;
}

// ---- a case -------------------------------------------------------------------------------------

// What the machine's roofs allow at most, and the figures in the unit that the case is about.
static void report(const op_bench *bench, const berth_op_case *one, const berth_graph *graph,
                   op_times *best) {
    berth_bench_row *row = &bench->rows[bench->row_count];
    const double bytes = berth_op_case_bytes(one, graph, false);
    const double flops = berth_op_case_flops(one);
    const bool is_dense = flops > DENSE_FLOPS * bytes;
    const double work = (is_dense ? flops : bytes) / 1e9;
    const bool is_copy = berth_op_case_bytes(one, graph, true) > 0.1 * bytes;
    const double memory = is_copy ? bench->roof.copy : bench->roof.read;
    const double seconds = fmax(bytes / memory, flops / bench->roof.multiply);
    *row = (berth_bench_row){
        .name = one->name,
        .threads = bench->threads,
        .value = work / best->median,
        .unit = is_dense ? "GFLOP/s" : "GB/s",
        .ceiling = bench->has_roofs ? work / seconds : (double)NAN,
        .p10 = work / berth_bench_quantile(best->samples, best->count, 0.9),
        .p90 = work / berth_bench_quantile(best->samples, best->count, 0.1),
        .times_one = NAN,
    };
    row->share = row->value / row->ceiling;
    if (bench->has_roofs) {
        const char *roof = bytes / memory < flops / bench->roof.multiply ? "multiply-add"
                           : is_copy                                     ? "copying"
                                                                         : "reading";
        row->note =
            isinf(best->theirs)
                ? roof
                : berth_arena_printf(bench->session->arena, "%s; %s: %.1f", roof,
                                     berth_onednn_version(bench->onednn), work / best->theirs);
    }
}

static berth_status time_side(op_bench *bench, const berth_op_case *one, const op_side *side,
                              berth_onednn_product *const *products) {
    op_times best = {.median = INFINITY, .theirs = INFINITY};
    berth_roof_begin(&bench->roof);
    berth_plan_set_timed(side->plan, true);
    for (int run = 0; run < RUNS; ++run) {
        BERTH_TRY(measure_roofs(bench));
        BERTH_TRY(time_run(side, one, &best));
        BERTH_TRY(time_products(bench, products, &best));
    }
    report(bench, one, side->graph, &best);
    ++bench->row_count;
    return BERTH_OK;
}

// Copies that are larger together than the caches.
static berth_status choose_copies(const op_bench *bench, const berth_op_case *one,
                                  size_t *out_copies) {
    berth_graph *graph = NULL;
    BERTH_TRY(berth_op_graph_build(bench->session->registry, one, bench->dtype, 1, &graph));
    const double bytes = berth_op_case_bytes(one, graph, false);
    const double wanted = ceil(fmin(CACHES * bench->cache_bytes, MEMORY_BYTES) / bytes);
    *out_copies = wanted < 2 ? 2 : wanted > BERTH_OP_COPIES ? BERTH_OP_COPIES : (size_t)wanted;
    berth_graph_destroy(graph);
    return BERTH_OK;
}

static berth_status run_case(op_bench *bench, const berth_op_case *one) {
    op_side side = {.config = bench->session->config};
    berth_onednn_product *products[2] = {NULL, NULL};
    BERTH_TRY(choose_copies(bench, one, &side.copies));
    berth_status status = open_side(bench, one, &side);
    if (status == BERTH_OK) {
        status = check(bench, one, &side);
    }
    if (status == BERTH_OK) {
        status = create_products(bench, one, products);
    }
    if (status == BERTH_OK) {
        status = time_side(bench, one, &side, products);
    }
    berth_onednn_product_destroy(products[0]);
    berth_onednn_product_destroy(products[1]);
    close_side(&side);
    berth_arena_reset(bench->arena);
    return status;
}

// ---- the machine --------------------------------------------------------------------------------

// "32768K", of the last cache that the system lists.
static double read_cache_bytes(berth_arena *arena) {
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

// ---- the command --------------------------------------------------------------------------------

// A case's name means it alone, an op's its cases, anything else whatever has it in its name.
static bool is_wanted(const op_bench *bench, const berth_op_case *one) {
    bool is_name = false;
    bool is_op = false;
    for (size_t i = 0; i < berth_op_case_count() && bench->wanted; ++i) {
        is_name = is_name || strcmp(berth_op_case_at(i)->name, bench->wanted) == 0;
        is_op = is_op || strcmp(berth_op_case_at(i)->op, bench->wanted) == 0;
    }
    return is_op && !is_name ? strcmp(one->op, bench->wanted) == 0
                             : berth_bench_is_wanted(bench->wanted, one->name, is_name);
}

static berth_status open_platform(op_bench *bench, int64_t threads) {
    static const berth_dtype dtypes[] = {BERTH_DTYPE_F32, BERTH_DTYPE_F32, BERTH_DTYPE_BF16,
                                         BERTH_DTYPE_F16}; // in the order of berth_config_dtypes
    berth_session *session = bench->session;
    BERTH_TRY(session->begin_again(session));
    BERTH_TRY(session->open_until(session, BERTH_STAGE_CONFIG));
    session->config.threads = threads;
    BERTH_TRY(session->open_until(session, BERTH_STAGE_TABLES));
    session->stage = BERTH_STAGE_STEP;
    bench->threads = threads;
    bench->dtype = dtypes[session->config.dtype];
    const berth_platform_entry *platform = session->decision.platform;
    bench->has_roofs = !platform || platform->platform.kind == BERTH_PLATFORM_CPU;
    BERTH_TRY(
        berth_runtime_open(platform, 0, berth_registry_host(session->registry), &bench->runtime));
    return bench->has_roofs ? berth_roof_open(threads, &bench->roof) : BERTH_OK;
}

// Takes a bench that is half open, too.
static void close_platform(op_bench *bench) {
    berth_onednn_close(bench->onednn);
    berth_roof_close(&bench->roof);
    berth_runtime_close(bench->runtime);
    bench->onednn = NULL;
    bench->runtime = NULL;
}

static berth_status run_threads(op_bench *bench, int64_t threads) {
    BERTH_TRY(open_platform(bench, threads));
    for (size_t i = 0; i < berth_op_case_count(); ++i) {
        const berth_op_case *one = berth_op_case_at(i);
        if (is_wanted(bench, one)) {
            berth_progress_show(bench->session, one->name);
            BERTH_TRY_NOTE(run_case(bench, one), "%s on %lld threads", one->name,
                           (long long)threads);
        }
    }
    berth_progress_show(bench->session, NULL);
    return BERTH_OK;
}

static berth_status run_all(op_bench *bench) {
    int64_t threads[BERTH_BENCH_THREADS];
    const size_t count = berth_bench_threads(&bench->session->config, threads);
    berth_status status = berth_arena_create(ARENA_BLOCK, ARENA_LIMIT, &bench->arena);
    bench->rows = BERTH_ARENA_ARRAY(bench->session->arena, berth_bench_row,
                                    berth_op_case_count() * BERTH_BENCH_THREADS);
    if (!bench->rows) {
        return berth_arena_exhausted(bench->session->arena, "results");
    }
    bench->cache_bytes = read_cache_bytes(bench->session->arena);
    for (size_t i = 0; i < count && status == BERTH_OK; ++i) {
        status = run_threads(bench, threads[i]);
        close_platform(bench);
    }
    return status;
}

static berth_status run(berth_session *session) {
    op_bench bench = {.session = session, .wanted = berth_session_argument(session, 0)};
    const berth_status status = run_all(&bench);
    berth_arena_destroy(bench.arena);
    BERTH_TRY(status);
    return berth_bench_print(session, bench.rows, bench.row_count);
}

static berth_status prepare(berth_session *session) {
    const op_bench bench = {.wanted = berth_session_argument(session, 0)};
    const size_t cases = berth_op_case_count();
    const char **names = BERTH_ARENA_ARRAY(session->arena, const char *, cases);
    size_t count = 0;
    for (size_t i = 0; i < cases && names; ++i) {
        names[i] = berth_op_case_at(i)->name;
        count += is_wanted(&bench, berth_op_case_at(i));
    }
    if (count > 0 || !names) {
        return names ? BERTH_OK : berth_arena_exhausted(session->arena, "names of cases");
    }
    const char *nearest = berth_str_nearest(berth_str_from(bench.wanted), names, cases);
    return BERTH_FAIL(INVALID_ARGUMENT,
                      "bench op: no case is called '%s'%s%s%s; `berth help bench op` lists them",
                      bench.wanted, nearest ? ", did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'" : "");
}

const berth_command berth_command_bench_op = {
    .name = "bench op",
    .arguments = "[NAME]",
    .help = "time single ops beside the roofs of this machine",
    .details =
        "NAME is a case, an op, which means all of its cases, or a part of their names. Cases:\n"
        "OP-WIDTH, norms of 2048 and 4096, gated activations that make 14336 of 28672, others of\n"
        "4096; embedding, select_rows and contiguous of 4096, rotary_embedding-32x128: each of "
        "512\n"
        "tokens; linear-OUTxIN-ROWS, of 2048x2048, 4096x4096, 14336x4096 and 4096x14336 in bf16,\n"
        "by 1, 16 and 512 rows; paged_attention-decode, of one token behind 2047, and -512, of a\n"
        "prompt.\n"
        "Each with 1 thread and with all, or with --threads N alone; activations are float32 or\n"
        "what --dtype says.\n"
        "First the first 8 rows of the step that is timed are compared with the op's reference:\n"
        "the largest error is at most 1e-4 of their root mean square in float32, 6 % in bfloat16,\n"
        "1 % in float16. Otherwise nothing is timed.\n"
        "Every case has operands of its own so often that they are 4 times the last cache of the\n"
        "processor; a value is the median call of the best of 5 runs, in turns with the ceilings.\n"
        "GB/s: bytes that have to be read and written, beside the fastest copy of 512 MiB, or the\n"
        "fastest reader of 1 GiB where next to nothing is written. GFLOP/s: beside the fastest\n"
        "multiply-add of the machine. Where both matter the ceiling is the lower one; the note\n"
        "says which that is, and what oneDNN reaches in the same unit, f32 or bf16, where\n"
        "libdnnl.so.3 or .2 is there.\n" BERTH_BENCH_JSON_HELP,
    .bit = BERTH_COMMAND_BENCH,
    .max_arguments = 1,
    .needs = BERTH_STAGE_CONFIG,
    .prepare = prepare,
    .run = run,
};
