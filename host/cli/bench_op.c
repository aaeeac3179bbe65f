// SPDX-License-Identifier: Apache-2.0
// `berth bench op`: single ops at the widths of real models, on the platform that is chosen, each
// beside the roofs of this machine, measured in turns with it.
#include "cli/bench_op.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench_op_rival.h"
#include "cli/bench_op_side.h"
#include "cli/bench_report.h"
#include "cli/bench_roof.h"
#include "cli/cli_private.h"

#define RUNS        5           // the best counts
#define RUN_NS      10000000000 // after which there is no further run, nor a step of one
#define STEPS       3           // of the graph in one run; the first counts only where it is alone
#define DENSE_FLOPS 16.0 // operations a byte from which on arithmetic is what a case is about
#define MIXED_LINES 8    // of what a pass has fewer of, at most
#define CACHES      4    // as many last-level caches the copies of a case are large
#define NS_PER_S    1e9
#define ARENA_BLOCK ((size_t)1 << 20)
#define ARENA_LIMIT ((size_t)256 << 20)

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

// ---- timing -------------------------------------------------------------------------------------

// Seconds of every copy in one step.
static berth_status time_step(const berth_op_side *side, double *out_seconds) {
    size_t count = 0;
    BERTH_TRY(berth_op_side_run(side));
    const size_t sites = berth_plan_site_count(side->plan);
    for (size_t i = 0; i < sites && count < side->size.copies; ++i) {
        if (strcmp(berth_plan_site(side->plan, i)->op, side->of->op) == 0) {
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

static berth_status time_run(const berth_op_side *side, op_times *best) {
    const size_t copies = side->size.copies;
    const uint64_t start = berth_clock_ns();
    double samples[STEPS * BERTH_OP_COPIES];
    size_t steps = 0;
    while (steps < STEPS && (steps == 0 || berth_clock_ns() - start < RUN_NS)) {
        BERTH_TRY(time_step(side, samples + steps++ * copies));
    }
    const size_t warm = steps > 1 ? 1 : 0;
    double *counted = samples + warm * copies;
    const size_t count = (steps - warm) * copies;
    const double median = berth_bench_quantile(counted, count, 0.5);
    if (median < best->median) {
        memcpy(best->samples, counted, count * sizeof *counted);
        best->count = count;
        best->median = median;
    }
    return BERTH_OK;
}

// Bytes that a step reads and writes.
static double moved_by(const berth_op_side *side) {
    return berth_op_case_bytes(side->of, side->graph, false) +
           berth_op_case_again(side->of, side->graph);
}

// Where next to nothing is written reading is the roof.
static bool is_copying(const berth_op_side *side) {
    return berth_op_case_bytes(side->of, side->graph, true) > 0.1 * moved_by(side);
}

// How far `lines` of the fewer and whole lines of the others are from the proportion.
static double error_of(size_t lines, double ratio) {
    const double more = (double)lines * ratio;
    return fabs(round(more) / more - 1);
}

// Lines that are read and written in about the proportion in which the op does it, at most
// MIXED_LINES of the fewer; none where it writes about as much as it reads.
static berth_stream_mix mix_of(const berth_op_side *side) {
    const double writes = berth_op_case_bytes(side->of, side->graph, true);
    const double reads = moved_by(side) - writes;
    const double ratio = fmax(reads, writes) / fmin(reads, writes);
    size_t fewer = 1;
    if (!is_copying(side) || ratio < 1.1 || isinf(ratio)) {
        return (berth_stream_mix){.reads = 0};
    }
    for (size_t lines = 2; lines <= MIXED_LINES && error_of(fewer, ratio) > 0.02; ++lines) {
        fewer = error_of(lines, ratio) < 0.9 * error_of(fewer, ratio) ? lines : fewer;
    }
    const size_t more = (size_t)round((double)fewer * ratio);
    return reads > writes ? (berth_stream_mix){.reads = more, .writes = fewer}
                          : (berth_stream_mix){.reads = fewer, .writes = more};
}

static berth_status measure_roofs(op_bench *bench, const berth_op_side *side) {
    if (!bench->has_roofs) {
        return BERTH_OK;
    }
    const berth_stream_mix mix = mix_of(side);
    if (mix.reads > 0) {
        BERTH_TRY(berth_roof_mix(&bench->roof, moved_by(side), side->size.copies, &mix));
    }
    BERTH_TRY(is_copying(side) ? berth_roof_copy(&bench->roof, moved_by(side), side->size.copies)
                               : berth_roof_read(&bench->roof));
    return side->of->flops > 0 ? berth_roof_multiply(&bench->roof) : BERTH_OK;
}

// ---- oneDNN -------------------------------------------------------------------------------------

// Once, for the first case that can use it.
static void open_onednn(op_bench *bench) {
    if (bench->onednn || bench->is_onednn_absent) {
        return;
    }
    if (berth_onednn_open(bench->session->arena, bench->threads, &bench->onednn) != BERTH_OK) {
        bench->is_onednn_absent = true;
        berth_status_clear();
    }
}

static berth_status open_rival(op_bench *bench, const berth_op_side *side, berth_op_rival *rival) {
    if (!bench->has_roofs || !berth_op_has_rival(side->of)) {
        return BERTH_OK;
    }
    open_onednn(bench);
    rival->onednn = bench->onednn;
    return bench->onednn ? berth_op_rival_open(side->of, side->graph, bench->roof.memory,
                                               BERTH_ROOF_BYTES, rival)
                         : BERTH_OK;
}

// ---- a case -------------------------------------------------------------------------------------

// What a step moves and multiplies, and the ceiling of that.
typedef struct op_work {
    double bytes;
    double flops;
    double memory;   // bytes/s
    double multiply; // flops/s
    const char *roof;
    double seconds; // at least
} op_work;

// By what the op gets: the first input of the last op of the graph.
static double multiply_roof(const op_bench *bench, const berth_graph *graph) {
    size_t at = graph->node_count - 1;
    while (graph->nodes[at].kind != BERTH_NODE_OP) {
        --at;
    }
    const berth_dtype x = graph->values[graph->nodes[at].inputs[0]].type.dtype;
    return x == BERTH_DTYPE_I8 ? bench->roof.multiply_i8
           : x == BERTH_DTYPE_F8_E4M3FN || bench->dtype == BERTH_DTYPE_BF16
               ? bench->roof.multiply
               : bench->roof.multiply_f32;
}

// Whether operations are what the case counts, not bytes.
static bool is_dense(const op_work *of) {
    return of->flops > DENSE_FLOPS * of->bytes;
}

static op_work work_of(const op_bench *bench, const berth_op_side *side) {
    op_work work = {
        .bytes = moved_by(side),
        .flops = side->of->flops,
        .multiply = multiply_roof(bench, side->graph),
    };
    work.memory = is_copying(side) ? bench->roof.copy : bench->roof.read;
    const double multiplying = work.flops > 0 ? work.flops / work.multiply : 0;
    work.seconds = fmax(work.bytes / work.memory, multiplying);
    work.roof = work.bytes / work.memory < multiplying ? "multiply-add"
                : is_copying(side)                     ? "copying"
                                                       : "reading";
    return work;
}

// What the share is one of; where that is copying, and the op does not write as much as it reads,
// its share of a pass in its proportion, too.
static const char *note_of(const op_bench *bench, const berth_op_side *side,
                           const berth_op_rival *rival, const op_times *best) {
    berth_arena *arena = bench->session->arena;
    const op_work of = work_of(bench, side);
    const berth_stream_mix mix = mix_of(side);
    if (rival->task_count > 0) {
        return berth_arena_printf(arena, "%s; %s, %s: %.1f, %.2f of it", of.roof,
                                  berth_onednn_version(bench->onednn), rival->type,
                                  (is_dense(&of) ? of.flops : of.bytes) / 1e9 / best->theirs,
                                  best->theirs / best->median);
    }
    if (mix.reads == 0 || of.seconds > of.bytes / of.memory) {
        return of.roof;
    }
    return berth_arena_printf(arena, "%s; %.2f of reading %zu, writing %zu%s", of.roof,
                              of.bytes / best->median / bench->roof.mix, mix.reads, mix.writes,
                              side->of->is_read_twice ? "; x counts twice" : "");
}

// Whether the case reaches what is asked for; NULL where nothing is, or what it is a share of is
// not there.
static const char *gate_of(const op_bench *bench, const berth_op_side *side,
                           const berth_op_rival *rival, const op_times *best, double share) {
    const bool is_rival = berth_op_has_rival(side->of);
    if (side->of->gate == 0 || !bench->has_roofs || (is_rival && rival->task_count == 0)) {
        return NULL;
    }
    const double reached = is_rival ? best->theirs / best->median : share;
    return reached >= side->of->gate ? "pass" : "below";
}

// The figures in the unit that the case is about.
static void report(op_bench *bench, const berth_op_side *side, const berth_op_rival *rival,
                   op_times *best) {
    berth_bench_row *row = &bench->rows[bench->row_count++];
    const op_work of = work_of(bench, side);
    const double work = (is_dense(&of) ? of.flops : of.bytes) / 1e9;
    *row = (berth_bench_row){
        .name = side->of->name,
        .threads = bench->threads,
        .value = work / best->median,
        .unit = is_dense(&of) ? "GFLOP/s" : "GB/s",
        .ceiling = bench->has_roofs ? work / of.seconds : (double)NAN,
        .p10 = work / berth_bench_quantile(best->samples, best->count, 0.9),
        .p90 = work / berth_bench_quantile(best->samples, best->count, 0.1),
        .times_one = NAN,
    };
    row->share = row->value / row->ceiling;
    row->gate = gate_of(bench, side, rival, best, row->share);
    row->note = bench->has_roofs ? note_of(bench, side, rival, best) : NULL;
}

static berth_status time_side(op_bench *bench, const berth_op_side *side,
                              const berth_op_rival *rival) {
    const uint64_t start = berth_clock_ns();
    op_times best = {.median = INFINITY, .theirs = INFINITY};
    berth_roof_begin(&bench->roof);
    berth_plan_set_timed(side->plan, true);
    for (int run = 0; run < RUNS && (run == 0 || berth_clock_ns() - start < RUN_NS); ++run) {
        double theirs = INFINITY;
        BERTH_TRY(measure_roofs(bench, side));
        BERTH_TRY(time_run(side, &best));
        BERTH_TRY(berth_op_rival_time(rival, &theirs));
        best.theirs = fmin(best.theirs, theirs);
    }
    report(bench, side, rival, &best);
    return BERTH_OK;
}

// So many that they are larger together than the caches.
static berth_status choose_copies(const op_bench *bench, const berth_op_case *one,
                                  berth_op_size *size) {
    berth_graph *graph = NULL;
    BERTH_TRY(berth_op_graph_build(bench->session->registry, one, size, &graph));
    const double bytes = berth_op_case_bytes(one, graph, false);
    const double wanted = fmax(2, ceil(CACHES * bench->cache_bytes / bytes));
    berth_graph_destroy(graph);
    if (wanted > BERTH_OP_COPIES) {
        return BERTH_FAIL(UNSUPPORTED,
                          "%.0f bytes a step: more than %d times would have to be there, to be %d "
                          "times the %.0f bytes of the last cache",
                          bytes, BERTH_OP_COPIES, CACHES, bench->cache_bytes);
    }
    size->copies = (size_t)wanted;
    return BERTH_OK;
}

static berth_status run_case(op_bench *bench, const berth_op_case *one) {
    berth_op_side side = {
        .session = bench->session,
        .of = one,
        .size = {bench->dtype, one->tokens, 1},
        .config = bench->session->config,
    };
    berth_op_rival rival = {.task_count = 0};
    BERTH_TRY(choose_copies(bench, one, &side.size));
    berth_status status = berth_op_side_open(&side, bench->arena, bench->runtime);
    if (status == BERTH_OK) {
        status = berth_op_side_check(&side, bench->arena, bench->runtime);
    }
    if (status == BERTH_OK) {
        status = open_rival(bench, &side, &rival);
    }
    if (status == BERTH_OK) {
        status = time_side(bench, &side, &rival);
    }
    berth_op_rival_close(&rival);
    berth_op_side_close(&side);
    berth_arena_reset(bench->arena);
    return status;
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
            berth_progress_show(bench->session, "%s", one->name);
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
    bench->cache_bytes = berth_roof_cache_bytes(bench->session->arena);
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
    if (status == BERTH_OK || bench.row_count > 0) {
        BERTH_TRY(berth_bench_print(session, bench.rows, bench.row_count));
    }
    if (status != BERTH_OK) {
        BERTH_TRY(berth_session_print(session)); // minutes of cases before it are not lost
    }
    return status;
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
        "by 1, 16 and 512 rows; convolutions of patches, 1x1 and 3x3; mixtures of 32 experts of "
        "512\n"
        "and 8 of 1792; every other op at the widths of a model that has it: `bench op OP` names\n"
        "its cases.\n"
        "Each with 1 thread and with all, or with --threads N alone; activations are float32 or\n"
        "what --dtype says.\n"
        "First the first 8 rows of the step that is timed (all, where rows depend on later ones)\n"
        "are compared with the op's reference:\n"
        "the largest error is at most 1e-4 of their root mean square in float32, 6 % in bfloat16,\n"
        "1 % in float16. Otherwise neither it is timed nor what comes behind it.\n"
        "Every case has operands of its own so often that they are 4 times the last cache of the\n"
        "processor; a value is the median call of the best of 5 runs, in turns with the ceilings.\n"
        "GB/s: bytes that have to be read and written, beside the median copy of as many, by the\n"
        "same number of threads and in as many places, through the caches or past them, whichever\n"
        "is faster; or the fastest reader of 1 GiB where next to nothing is written. Where "
        "nothing\n"
        "can be written before all of x is read, x counts twice, as the note says. Where an op\n"
        "does not write as much as it reads, the note has its share of a pass that reads and\n"
        "writes lines in the same proportion, which need not be as fast as a copy. GFLOP/s: "
        "beside\n"
        "the fastest multiply-add of the machine. Where both matter the ceiling is the lower one;\n"
        "the note says which that is, and what oneDNN reaches for products, convolutions and\n"
        "mixtures in the type of the activations, in the same unit, where libdnnl.so.3 or .2 is\n"
        "there.\n"
        "gate: pass at 85 % of the ceiling of activations, norms, ropes, quantization and\n"
        "embedding, at 80 % of oneDNN for products, convolutions and mixtures; else "
        "below.\n" BERTH_BENCH_JSON_HELP,
    .bit = BERTH_COMMAND_BENCH,
    .max_arguments = 1,
    .needs = BERTH_STAGE_CONFIG,
    .prepare = prepare,
    .run = run,
};
