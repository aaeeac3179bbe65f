// SPDX-License-Identifier: Apache-2.0
// `berth bench model`: tokens per second of a checkpoint, each figure beside the roof of this
// machine, measured in turns with it. A number of threads is chosen when a platform starts, so the
// flow is gone through once for each, and once more for the ops' references before that.
#include "cli/bench_model.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_report.h"
#include "cli/bench_roof.h"
#include "cli/cli_private.h"

#define RUNS         5 // of everything; the best counts
#define PROMPT       16
#define STEPS_MAX    64
#define SINGLE_STEPS 16 // of one request, beside several
#define REQUESTS_MAX 16
#define PREFILL      512
#define FLOAT32      1 // of berth_config_dtypes
#define NS_PER_S     1e9

typedef struct model_bench {
    berth_session *session;
    const char *wanted; // part of the names of cases, NULL: all
    berth_model_check check;
    berth_model_work work;
    int64_t threads;
    int32_t dtype;  // in place of the configured one; 0: that
    bool has_roofs; // the platform is the CPU, so its roofs are the machine's
    berth_roof roof;
    berth_bench_row *rows;
    size_t row_count;
} model_bench;

typedef struct model_case {
    const char *name;
    size_t requests;
    size_t prompt;
    size_t steps;
    berth_status (*time)(model_bench *bench, const struct model_case *one, berth_bench_row *out);
} model_case;

// ---- the flow -----------------------------------------------------------------------------------

// Sequences as long as the model takes, and all requests of a case beside one another.
static berth_status choose_blocks(berth_session *session) {
    berth_model_info model = {.size = sizeof model};
    berth_config *config = &session->config;
    BERTH_TRY(berth_worker_get_model(session->worker, &model));
    const int64_t size = config->block_size;
    const int64_t longest = (model.max_model_len + size - 1) / size;
    const int64_t together = (PROMPT + STEPS_MAX + 1 + size) / size * REQUESTS_MAX;
    if (config->kv_cache_blocks == 0) {
        config->kv_cache_blocks = 1 + (longest > together ? longest : together);
    }
    return BERTH_OK;
}

// The model on so many threads; 0: as the references compute it.
static berth_status open_model(model_bench *bench, int64_t threads) {
    static const char *none[] = {"none"};
    berth_session *session = bench->session;
    berth_config *config = &session->config;
    BERTH_TRY(session->begin_again(session));
    BERTH_TRY(session->open_until(session, BERTH_STAGE_CONFIG));
    config->threads = threads > 0 ? threads : 1;
    config->dtype = bench->dtype != 0 ? bench->dtype : config->dtype;
    config->max_logits_rows = config->max_num_batched_tokens;
    if (threads == 0) {
        config->custom_ops = (berth_option_list){.items = none, .count = 1};
        config->user_ops = config->custom_ops;
    }
    BERTH_TRY(session->open_until(session, BERTH_STAGE_MODEL));
    BERTH_TRY(choose_blocks(session));
    BERTH_TRY(session->open_until(session, BERTH_STAGE_ENGINE));
    session->stage = BERTH_STAGE_STEP;
    bench->threads = threads;
    const berth_platform_entry *platform = session->decision.platform;
    bench->has_roofs = !platform || platform->platform.kind == BERTH_PLATFORM_CPU;
    return berth_model_work_read(session->worker, session->arena, &bench->work);
}

// ---- decode -------------------------------------------------------------------------------------

// Seconds of each of `steps` steps in which so many requests got one token each.
static berth_status decode(const model_bench *bench, size_t requests, size_t steps,
                           double *out_seconds) {
    berth_engine *engine = bench->session->engine;
    size_t taken = 0;
    BERTH_TRY(berth_bench_add(bench->session, requests, PROMPT, steps + 1, 0));
    while (!berth_engine_is_idle(engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        const uint64_t before = berth_engine_get_stats(engine).computed_tokens;
        const uint64_t start = berth_clock_ns();
        BERTH_TRY(berth_engine_step(engine, &outputs, &count));
        const double seconds = (double)(berth_clock_ns() - start) / NS_PER_S;
        const uint64_t computed = berth_engine_get_stats(engine).computed_tokens - before;
        if (computed == requests && count == requests && taken < steps) {
            out_seconds[taken++] = seconds;
        }
    }
    return taken == steps ? BERTH_OK
                          : BERTH_FAIL(INVALID_ARGUMENT,
                                       "only %zu of %zu steps had %zu requests in them; raise "
                                       "--kv-cache-blocks",
                                       taken, steps, requests);
}

typedef struct decode_times {
    double steps[STEPS_MAX]; // of the best run
    double median;           // of these
    double single;           // the best median of one request alone
} decode_times;

static berth_status decode_round(model_bench *bench, const model_case *one, decode_times *best) {
    double samples[STEPS_MAX];
    if (bench->has_roofs) {
        BERTH_TRY(berth_roof_read(&bench->roof));
        BERTH_TRY(one->requests > 1 ? berth_roof_multiply(&bench->roof) : BERTH_OK);
    }
    if (one->requests > 1) {
        BERTH_TRY(decode(bench, 1, SINGLE_STEPS, samples));
        best->single = fmin(best->single, berth_bench_quantile(samples, SINGLE_STEPS, 0.5));
    }
    BERTH_TRY(decode(bench, one->requests, one->steps, samples));
    const double median = berth_bench_quantile(samples, one->steps, 0.5);
    if (median < best->median) {
        memcpy(best->steps, samples, one->steps * sizeof *samples);
        best->median = median;
    }
    return BERTH_OK;
}

// Steps per second that the memory, and the arithmetic, allow at most.
static void decode_roof(const model_bench *bench, const model_case *one, berth_bench_row *out) {
    const double requests = (double)one->requests;
    const double context = PROMPT + ((double)one->steps + 1) / 2;
    const double bytes =
        (double)bench->work.weight_bytes + requests * berth_model_work_cache(&bench->work, context);
    const double flops =
        berth_model_work_flops(&bench->work, (int64_t)one->requests, (int64_t)one->requests);
    const double reads = bench->roof.read / bytes;
    const double multiplies = one->requests > 1 ? bench->roof.multiply / flops : (double)INFINITY;
    out->ceiling = requests * fmin(reads, multiplies);
    out->note = reads <= multiplies
                    ? berth_arena_printf(bench->session->arena, "memory: %.2f GB/s, %.3f GB a step",
                                         bench->roof.read / 1e9, bytes / 1e9)
                    : berth_arena_printf(bench->session->arena,
                                         "arithmetic: %.0f GFLOP/s, %.1f GFLOP a step",
                                         bench->roof.multiply / 1e9, flops / 1e9);
}

static berth_status time_decode(model_bench *bench, const model_case *one, berth_bench_row *out) {
    decode_times best = {.median = INFINITY, .single = INFINITY};
    const double requests = (double)one->requests;
    for (int run = 0; run < RUNS; ++run) {
        BERTH_TRY(decode_round(bench, one, &best));
    }
    out->value = requests / best.median;
    out->p10 = requests / berth_bench_quantile(best.steps, one->steps, 0.9);
    out->p90 = requests / berth_bench_quantile(best.steps, one->steps, 0.1);
    if (one->requests > 1) {
        out->times_one = out->value * best.single;
    }
    if (bench->has_roofs) {
        decode_roof(bench, one, out);
    }
    return BERTH_OK;
}

// ---- prefill ------------------------------------------------------------------------------------

// oneDNN's products of the model's shapes, each in both types.
typedef struct rivals {
    berth_onednn *onednn; // NULL: there is none
    berth_onednn_task *(*products)[2];
} rivals;

static void close_rivals(const model_bench *bench, rivals *self) {
    for (size_t i = 0; i < bench->work.product_count && self->products; ++i) {
        berth_onednn_task_destroy(self->products[i][0]);
        berth_onednn_task_destroy(self->products[i][1]);
    }
    berth_onednn_close(self->onednn);
}

static berth_status create_rivals(const model_bench *bench, rivals *self) {
    berth_arena *arena = bench->session->arena;
    const berth_model_work *work = &bench->work;
    self->products = berth_arena_array(arena, work->product_count, sizeof *self->products);
    if (!self->products) {
        return berth_arena_exhausted(arena, "products of oneDNN");
    }
    for (size_t i = 0; i < work->product_count; ++i) {
        berth_onednn_shape shape = berth_work_product_shape(&work->products[i], PREFILL, 1);
        for (int type = 0; type < 2; ++type) {
            shape.type = (berth_onednn_type)type;
            BERTH_TRY(berth_onednn_multiply(self->onednn, &shape, bench->roof.memory,
                                            BERTH_ROOF_BYTES, &self->products[i][type]));
        }
    }
    return BERTH_OK;
}

// Without oneDNN there is no ceiling, and the note says why.
static berth_status open_rivals(const model_bench *bench, rivals *self, const char **out_note) {
    if (!bench->has_roofs) {
        return BERTH_OK;
    }
    if (berth_onednn_open(bench->session->arena, bench->threads, &self->onednn) != BERTH_OK) {
        *out_note =
            berth_arena_printf(bench->session->arena, "no ceiling: %s", berth_status_message());
        berth_status_clear();
        return BERTH_OK;
    }
    return create_rivals(bench, self);
}

// Seconds of all the model's products, each in the faster type.
static berth_status time_rivals(const model_bench *bench, const rivals *self, double *out_seconds) {
    *out_seconds = 0;
    for (size_t i = 0; i < bench->work.product_count; ++i) {
        double seconds[2] = {INFINITY, INFINITY};
        for (int type = 0; type < 2; ++type) {
            berth_onednn_task *product = self->products[i][type];
            BERTH_TRY(product ? berth_onednn_task_time(product, 1, &seconds[type]) : BERTH_OK);
        }
        *out_seconds += (double)bench->work.products[i].count * fmin(seconds[0], seconds[1]);
    }
    berth_onednn_settle(self->onednn);
    return BERTH_OK;
}

// Seconds of ops on a state in the last step.
static double attention_seconds(const berth_session *session) {
    const berth_plan *plan = berth_worker_plan(session->worker);
    uint64_t ns = 0;
    for (size_t i = 0; i < berth_plan_site_count(plan); ++i) {
        const berth_op_entry *op =
            berth_registry_find_op(session->registry, berth_plan_site(plan, i)->op);
        ns += op && op->op.state_count > 0 ? berth_plan_site_ns(plan, i) : 0;
    }
    return (double)ns / NS_PER_S;
}

static berth_status prefill(const model_bench *bench, double *out_seconds, double *out_attention) {
    berth_engine *engine = bench->session->engine;
    const berth_output *outputs = NULL;
    size_t count = 0;
    BERTH_TRY(berth_bench_add(bench->session, 1, PREFILL, 1, 0));
    const uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_engine_step(engine, &outputs, &count));
    *out_seconds = (double)(berth_clock_ns() - start) / NS_PER_S;
    *out_attention = attention_seconds(bench->session);
    return count == 1 && berth_engine_is_idle(engine)
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL, "a prompt of %d tokens took more than one step", PREFILL);
}

static berth_status prefill_runs(const model_bench *bench, const rivals *self,
                                 berth_bench_row *out) {
    double samples[RUNS];
    double best = INFINITY;
    double bound = INFINITY;
    double share = 0;
    for (int run = 0; run < RUNS; ++run) {
        double step = 0;
        double attention = 0;
        double theirs = INFINITY;
        BERTH_TRY(prefill(bench, &step, &attention));
        BERTH_TRY(self->onednn ? time_rivals(bench, self, &theirs) : BERTH_OK);
        samples[run] = step - attention;
        share = samples[run] < best ? attention / step : share;
        best = fmin(best, samples[run]);
        bound = fmin(bound, theirs);
    }
    out->value = PREFILL / best;
    out->p10 = PREFILL / berth_bench_quantile(samples, RUNS, 0.9);
    out->p90 = PREFILL / berth_bench_quantile(samples, RUNS, 0.1);
    if (self->onednn) {
        out->ceiling = PREFILL / bound;
        out->note = berth_arena_printf(bench->session->arena,
                                       "%s; attention, %.1f %% of the step, is left out",
                                       berth_onednn_version(self->onednn), 100 * share);
    }
    return BERTH_OK;
}

static berth_status time_prefill(model_bench *bench, const model_case *one, berth_bench_row *out) {
    (void)one;
    rivals self = {.onednn = NULL};
    berth_status status = open_rivals(bench, &self, &out->note);
    berth_worker_set_timed(bench->session->worker, true);
    if (status == BERTH_OK) {
        status = prefill_runs(bench, &self, out);
    }
    berth_worker_set_timed(bench->session->worker, false);
    close_rivals(bench, &self);
    return status;
}

// ---- cases --------------------------------------------------------------------------------------

static const model_case cases[] = {
    {"decode",          1,  PROMPT,  64, time_decode },
    {"decode-batch-4",  4,  PROMPT,  16, time_decode },
    {"decode-batch-16", 16, PROMPT,  16, time_decode },
    {"prefill-512",     1,  PREFILL, 0,  time_prefill},
};

static bool is_wanted(const model_bench *bench, const model_case *one) {
    bool is_exact = false;
    for (size_t i = 0; i < BERTH_COUNT(cases) && bench->wanted; ++i) {
        is_exact = is_exact || strcmp(cases[i].name, bench->wanted) == 0;
    }
    return berth_bench_is_wanted(bench->wanted, one->name, is_exact);
}

// A case that the model is too short for is left out, unless it was asked for by name.
static berth_status fits(const model_bench *bench, const model_case *one, bool *out_fits) {
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(bench->session->worker, &model));
    const int64_t needed = (int64_t)(one->prompt + one->steps + 1);
    *out_fits = needed <= model.max_model_len;
    if (!*out_fits && bench->wanted) {
        bench->session->stage = BERTH_STAGE_REQUEST;
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: takes %lld tokens, the model has room for %lld",
                          one->name, (long long)needed, (long long)model.max_model_len);
    }
    if (!*out_fits) {
        BERTH_WARN("bench", "%s is left out: it takes %lld tokens, the model has room for %lld",
                   one->name, (long long)needed, (long long)model.max_model_len);
    }
    return BERTH_OK;
}

static berth_status run_case(model_bench *bench, const model_case *one) {
    bool is_fit = false;
    BERTH_TRY(fits(bench, one, &is_fit));
    if (!is_fit) {
        return BERTH_OK;
    }
    berth_progress_show(bench->session, "%s", one->name);
    BERTH_TRY(berth_model_check_run(bench->session, &bench->check, one->requests,
                                    one->prompt == PREFILL ? PREFILL : bench->check.prompt));
    berth_bench_row *row = &bench->rows[bench->row_count];
    *row = (berth_bench_row){
        .name = one->name,
        .threads = bench->threads,
        .unit = "tokens/s",
        .ceiling = NAN,
        .times_one = NAN,
    };
    berth_roof_begin(&bench->roof);
    BERTH_TRY(one->time(bench, one, row));
    row->share = row->value / row->ceiling;
    ++bench->row_count;
    return BERTH_OK;
}

static berth_status run_threads(model_bench *bench, int64_t threads) {
    BERTH_TRY(open_model(bench, threads));
    BERTH_TRY(bench->has_roofs ? berth_roof_open(threads, &bench->roof) : BERTH_OK);
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        if (is_wanted(bench, &cases[i])) {
            BERTH_TRY_NOTE(run_case(bench, &cases[i]), "%s on %lld threads", cases[i].name,
                           (long long)threads);
        }
    }
    berth_progress_show(bench->session, NULL);
    berth_roof_close(&bench->roof);
    return BERTH_OK;
}

// ---- the command --------------------------------------------------------------------------------

static berth_status record(model_bench *bench, int32_t dtype) {
    bench->dtype = dtype;
    BERTH_TRY(open_model(bench, 0));
    berth_progress_show(bench->session, "checking");
    bench->dtype = 0;
    return berth_model_check_record(bench->session, &bench->work, &bench->check);
}

static berth_status record_references(model_bench *bench) {
    BERTH_TRY(record(bench, 0));
    const berth_model_check rounded = bench->check;
    if (rounded.is_rms && bench->work.has_coded_inputs) {
        BERTH_TRY(record(bench, FLOAT32));
        berth_model_check_allow(&bench->check, &rounded);
    }
    return BERTH_OK;
}

static berth_status run_all(model_bench *bench) {
    int64_t threads[BERTH_BENCH_THREADS];
    const size_t count = berth_bench_threads(&bench->session->config, threads);
    BERTH_TRY(record_references(bench));
    for (size_t i = 0; i < count; ++i) {
        BERTH_TRY(run_threads(bench, threads[i]));
    }
    return BERTH_OK;
}

static berth_status run(berth_session *session) {
    berth_bench_row rows[BERTH_COUNT(cases) * BERTH_BENCH_THREADS];
    model_bench bench = {
        .session = session,
        .wanted = berth_session_argument(session, 0),
        .rows = rows,
    };
    const berth_status status = run_all(&bench);
    berth_roof_close(&bench.roof);
    BERTH_TRY(status);
    return berth_bench_print(session, rows, bench.row_count);
}

static berth_status prepare(berth_session *session) {
    const berth_config *config = &session->config;
    const model_bench bench = {.wanted = berth_session_argument(session, 0)};
    size_t count = 0;
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        count += is_wanted(&bench, &cases[i]);
    }
    if (count == 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "bench model: no case is called '%s'; there are decode, decode-batch-4, "
                          "decode-batch-16 and prefill-512",
                          bench.wanted);
    }
    if (config->max_num_seqs < REQUESTS_MAX || config->max_num_batched_tokens < PREFILL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "bench model: has up to %d requests and %d tokens in a step; --max-num-"
                          "seqs %lld or --max-num-batched-tokens %lld is too little",
                          REQUESTS_MAX, PREFILL, (long long)config->max_num_seqs,
                          (long long)config->max_num_batched_tokens);
    }
    return BERTH_OK;
}

const berth_command berth_command_bench_model = {
    .name = "bench model",
    .arguments = "[CASE]",
    .help = "time a checkpoint beside the roofs of this machine",
    .details =
        "Cases, each with 1 thread and with all, or with --threads N alone: decode, of one "
        "request\n"
        "(prompt 16, then 64 tokens), decode-batch-4 and decode-batch-16, of so many together, "
        "and\n"
        "prefill-512, a prompt of 512 tokens in one step. CASE is a name, or a part of several.\n"
        "First of all the logits of a prompt of 8 tokens (2 of a checkpoint of codes, whose\n"
        "references are slow) and of 2 tokens after it are compared\n"
        "with those of the ops' references (--custom-ops none), in every case as many requests\n"
        "together as are timed; in prefill-512 the prompt's rows of the 512. In float32 the "
        "largest\n"
        "error is at most 1e-4 times the root of width/64, times the logits' root mean square "
        "where\n"
        "that is above 1; in 16 bits the root mean square of the errors is at most 3 % (bfloat16)\n"
        "or 0.4 % (float16) of theirs, times the root of the number of layers. Where inputs are\n"
        "quantized, too, it is at most three times that of the references in 16 bits, both beside\n"
        "those in float32. Else nothing is timed.\n"
        "Everything is run 5 times in turns with its ceiling, the best counts.\n"
        "decode: the median step; the ceiling is the fastest of four readers of 1 GiB, on as many\n"
        "threads, divided by the bytes of a step: all weights but a table that is only looked up\n"
        "in, and the cached keys and values.\n"
        "decode-batch: the same bytes once for all, or what the step multiplies beside the "
        "fastest\n"
        "multiply-add of the machine, whichever is less; times one: beside one request alone.\n"
        "prefill: the step without its attention; the ceiling is the sum over the model's "
        "products\n"
        "of the faster of oneDNN in f32 and bf16, weights packed and taken in turns from 1 GiB. "
        "It\n"
        "is null where libdnnl.so.3 or .2 is absent.\n" BERTH_BENCH_JSON_HELP,
    .bit = BERTH_COMMAND_BENCH,
    .max_arguments = 1,
    .needs = BERTH_STAGE_CONFIG,
    .flags = BERTH_CLI_MODEL,
    .prepare = prepare,
    .run = run,
};
