// SPDX-License-Identifier: Apache-2.0
// model PLUGIN_DIR CHECKPOINT [COPY_GB_PER_S PRODUCT_TFLOP_PER_S]: how fast platform-cuda runs a
// whole model of Llama's structure through the engine: decode at a context of about 592 tokens with
// 1, 64 and 256 requests, prefill of one prompt of 8,191 tokens, and the start. Greedy, random
// prompts, no prefix twice.
//
// model PLUGIN_DIR CHECKPOINT start: only the start, whose GEMM choices come from $BERTH_CACHE_DIR
// when an earlier one has left them there; $BERTH_LOG=debug says which. EAGER: no recorded steps.
// model PLUGIN_DIR CHECKPOINT mixed: steps in which prompts come in beside requests that decode.
// PIECEWISE: these are recorded, too, in pieces.
// WITHOUT=PASS, with any of these: that pass over the graph is off, to see what it brings.
// model PLUGIN_DIR CHECKPOINT prefill: the time of each kernel of that prompt, as CUPTI saw it.
// model PLUGIN_DIR CHECKPOINT captured: what captured decode costs beside its kernels, each figure
// with its gate, and status 1 if one is missed.
//
// Shares: of decode the bytes of all weights but the embedding's and of the keys and values read, a
// step, beside a copy; of prefill the arithmetic of the linear ops beside a large product.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "discovery/discovery.h"
#include "engine/engine.h"
#include "platform/platform.h"
#include "registry/registry.h"
#include "tests/gpu/capture.h"
#include "tests/gpu/trace.h"
#include "worker/worker.h"

#define CONTEXT  592
#define STEPS    64 // timed, half before and half behind CONTEXT
#define PROMPT   8191
#define REPEATS  3
#define MAX_SEQS 256

// Gates of captured decode.
#define MOST_CPU_US     30.0 // of the engine's thread, one request
#define MOST_IDLE_SHARE 0.03 // of a replay
#define WAITS           1    // a step

extern const berth_plugin *const berth_core_plugins[];
extern const size_t berth_core_plugins_count;

typedef struct bench {
    berth_arena *arena;
    berth_config config;
    berth_candidates candidates;
    berth_registry *registry;
    berth_decision decision;
    berth_worker *worker;
    berth_engine *engine;
    int64_t vocabulary;
    double linear_weights; // elements, the head's not among them
    double last_weights;   // of those behind the last attention: a prompt's other rows skip them
    double linear_bytes;   // of codes and scales, or of numbers of 16 bits
    double head_weights;
    double kv_bytes; // of a token
    double copy_rate;
    double product_rate;
    bool is_captured; // what captured decode costs, and nothing else
    bool has_missed;  // a gate
} bench;

static void must(berth_status status) {
    if (status != BERTH_OK) {
        (void)fprintf(stderr, "%s\n", berth_status_message());
        exit(1);
    }
}

static double seconds_since(uint64_t start) {
    return (double)(berth_clock_ns() - start) / 1e9;
}

// ---- the flow -----------------------------------------------------------------------------------

static void set_passes(bench *b) {
    static const char *without[1];
    without[0] = getenv("WITHOUT");
    if (without[0] != NULL) {
        b->config.disabled_passes = (berth_option_list){.items = without, .count = 1};
    }
}

static void start(bench *b, const char *plugins, const char *model) {
    must(berth_arena_create(1 << 16, 1 << 28, &b->arena));
    must(berth_config_init(&b->config, b->arena));
    b->config.plugin_search = realpath(plugins, NULL);
    b->config.platform = "cuda";
    b->config.model = model;
    b->config.max_num_batched_tokens = PROMPT + 1;
    b->config.max_num_seqs = MAX_SEQS;
    b->config.enforce_eager = getenv("EAGER") != NULL;
    b->config.capture_mode = getenv("PIECEWISE") != NULL ? BERTH_CAPTURE_FULL_AND_PIECEWISE
                                                         : BERTH_CAPTURE_FULL_DECODE_ONLY;
    b->config.cache_dir = getenv("BERTH_CACHE_DIR");
    set_passes(b);
    must(berth_discovery_run(&b->config, b->arena, &b->candidates));
    must(berth_registry_create(&b->config, &berth_worker_default, &b->registry));
    must(berth_registry_add_core(b->registry, berth_core_plugins, berth_core_plugins_count));
    must(berth_registry_load(b->registry, &b->candidates));
    must(berth_platform_choose(&b->config, b->registry, &b->candidates, b->arena, &b->decision));
    must(berth_platform_configure(b->decision.platform, &b->config, b->registry));
    must(berth_registry_freeze(b->registry));
    if (b->is_captured) {
        capture_watch(b->decision.platform);
    }
    must(berth_worker_create(&b->config, b->registry, b->decision.platform, &b->worker));
    must(berth_worker_init_device(b->worker));
    must(berth_worker_load_model(b->worker));
    must(berth_engine_create(&b->config, b->worker, &b->engine));
}

static double number(const berth_json *json, const char *key) {
    double value = 0;
    must(berth_json_get_f64(json, key, &value));
    return value;
}

// Of compressed-tensors with one scale of 16 bits for an output or a group of inputs; `hidden` and
// `inner` are the widths of rows, a third of the weights being of the second.
static double bytes_of_weight(const berth_json *json, double hidden, double inner) {
    const berth_json *weights =
        berth_json_find(json, "quantization_config.config_groups.group_0.weights");
    double size = (2 * hidden + inner) / 3;
    if (weights == NULL) {
        return 2;
    }
    must(berth_json_f64_or(weights, "group_size", size, &size));
    return number(weights, "num_bits") / 8 + 2 / size;
}

// What a step must read and multiply, from config.json.
static void count_work(bench *b, const char *model) {
    char path[4096];
    berth_json *json = NULL;
    (void)snprintf(path, sizeof path, "%s/config.json", model);
    must(berth_json_load(path, NULL, &json));
    const double hidden = number(json, "hidden_size");
    const double inner = number(json, "intermediate_size");
    const double layers = number(json, "num_hidden_layers");
    const double width = number(json, "head_dim");
    const double heads = number(json, "num_attention_heads");
    const double kv_heads = number(json, "num_key_value_heads");
    b->vocabulary = (int64_t)number(json, "vocab_size");
    b->linear_weights = layers * hidden * ((2 * heads + 2 * kv_heads) * width + 3 * inner);
    b->last_weights = hidden * (heads * width + 3 * inner);
    b->linear_bytes = b->linear_weights * bytes_of_weight(json, hidden, inner);
    b->head_weights = (double)b->vocabulary * hidden;
    b->kv_bytes = layers * kv_heads * width * 2 * 2;
    berth_json_destroy(json);
}

static void add(bench *b, size_t tokens, int64_t output, uint64_t *seed) {
    static int32_t prompt[PROMPT];
    uint64_t id = 0;
    for (size_t i = 0; i < tokens; ++i) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        prompt[i] = (int32_t)((*seed >> 33) % (uint64_t)b->vocabulary);
    }
    const berth_request request = {
        .prompt = prompt,
        .prompt_count = tokens,
        .max_tokens = output,
        .skips_prefix_cache = true,
    };
    must(berth_engine_add(b->engine, &request, &id));
}

// One turn; how many requests got a token.
static size_t step(bench *b) {
    const berth_output *outputs = NULL;
    size_t count = 0;
    must(berth_engine_step(b->engine, &outputs, &count));
    return count;
}

static int compare(const void *a, const void *b) {
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

// ---- cases --------------------------------------------------------------------------------------

// So many requests decode, and `steps` from now on.
static void start_decode(bench *b, size_t requests, int64_t steps) {
    uint64_t seed = requests;
    const size_t prompt = CONTEXT - STEPS / 2 - 4;
    // Why so many more: the first requests decode while the last prompts come in, and none may end
    // before the last timed step.
    const int64_t before = (int64_t)(requests * prompt / PROMPT) + 8;
    for (size_t i = 0; i < requests; ++i) {
        add(b, prompt, steps + before, &seed);
    }
    while (step(b) < requests) {
        continue; // until all prompts are in
    }
    (void)step(b); // runs, records, replays
    (void)step(b);
    (void)step(b);
}

static void drain(bench *b) {
    while (!berth_engine_is_idle(b->engine)) {
        (void)step(b);
    }
}

static void time_decode(bench *b, size_t requests) {
    double samples[STEPS];
    start_decode(b, requests, STEPS);
    for (size_t i = 0; i < STEPS; ++i) {
        const uint64_t begin = berth_clock_ns();
        (void)step(b);
        samples[i] = seconds_since(begin);
    }
    drain(b);
    for (size_t i = 0; getenv("SERIES") != NULL && i < STEPS; ++i) {
        (void)printf("%.2f ", samples[i] * 1e3);
    }
    qsort(samples, STEPS, sizeof *samples, compare);
    const double median = samples[STEPS / 2];
    const double bytes =
        b->linear_bytes + 2 * b->head_weights + (double)requests * CONTEXT * b->kv_bytes;
    (void)printf("decode, %3zu requests, context %d   %8.3f ms a step  %9.1f tokens/s  %7.1f GB/s",
                 requests, CONTEXT, median * 1e3, (double)requests / median, bytes / median / 1e9);
    if (b->copy_rate > 0) {
        (void)printf("  %5.1f %% of the copy", 100 * bytes / median / b->copy_rate);
    }
    (void)printf("   (p10 %.3f, p90 %.3f ms)\n", samples[STEPS / 10] * 1e3,
                 samples[STEPS - 1 - STEPS / 10] * 1e3);
}

static void time_prefill(bench *b) {
    double samples[REPEATS];
    uint64_t seed = 4711;
    for (size_t i = 0; i < REPEATS + 1; ++i) {
        add(b, PROMPT, 1, &seed);
        const uint64_t begin = berth_clock_ns();
        drain(b);
        samples[i > 0 ? i - 1 : 0] = seconds_since(begin);
    }
    qsort(samples, REPEATS, sizeof *samples, compare);
    const double median = samples[REPEATS / 2];
    const double of_all = PROMPT * (b->linear_weights - b->last_weights);
    const double flops = 2 * (of_all + b->last_weights + b->head_weights);
    (void)printf(
        "prefill, 1 request of %d tokens     %8.2f ms         %9.1f tokens/s  %7.1f TFLOP/s",
        PROMPT, median * 1e3, PROMPT / median, flops / median / 1e12);
    if (b->product_rate > 0) {
        (void)printf("  %5.1f %% of the product", 100 * flops / median / b->product_rate);
    }
    (void)printf("\n");
}

// Which kernels the time of prompts goes to.
static void trace_prefill(bench *b) {
    trace_result trace = {0};
    uint64_t seed = 4711;
    add(b, PROMPT, 1, &seed);
    drain(b);
    const char *why = trace_begin();
    if (why == NULL) {
        for (size_t i = 0; i < REPEATS; ++i) {
            add(b, PROMPT, 1, &seed);
            drain(b);
        }
        why = trace_end(&trace);
    }
    if (why != NULL) {
        (void)printf("prefill: not traced, %s\n", why);
        return;
    }
    (void)printf("prefill, %d times 1 request of %d tokens: %zu kernels run %.3f of %.3f ms\n",
                 REPEATS, PROMPT, trace.kernels, trace.busy * 1e3, trace.span * 1e3);
    trace_print_names();
}

// Steps in which some requests get a token and one more brings its prompt of so many.
static void time_mixed(bench *b, size_t requests, size_t prompt) {
    double samples[STEPS];
    uint64_t seed = 100 * requests + prompt;
    for (size_t i = 0; i < requests; ++i) {
        add(b, 16, STEPS + 24, &seed);
    }
    while (step(b) < requests) {
        continue;
    }
    for (size_t i = 0; i < STEPS + 4; ++i) {
        add(b, prompt, 1, &seed);
        const uint64_t begin = berth_clock_ns();
        (void)step(b);
        samples[i < 4 ? 0 : i - 4] = seconds_since(begin);
    }
    while (!berth_engine_is_idle(b->engine)) {
        (void)step(b);
    }
    qsort(samples, STEPS, sizeof *samples, compare);
    (void)printf(
        "mixed, %3zu decoding and %3zu of a prompt  %8.3f ms a step (p10 %.3f, p90 %.3f)\n",
        requests, prompt, samples[STEPS / 2] * 1e3, samples[STEPS / 10] * 1e3,
        samples[STEPS - 1 - STEPS / 10] * 1e3);
}

static void time_all(bench *b) {
    time_decode(b, 1);
    time_decode(b, 64);
    time_decode(b, 256);
    time_prefill(b);
}

static void time_all_mixed(bench *b) {
    time_mixed(b, 1, 15);
    time_mixed(b, 8, 33);
    time_mixed(b, 64, 190);
    time_mixed(b, 128, 380);
}

// ---- captured decode ----------------------------------------------------------------------------

static void judge(bench *b, bool is_met) {
    (void)printf("%s\n", is_met ? "passed" : "FAILED");
    (void)fflush(stdout);
    b->has_missed = b->has_missed || !is_met;
}

// Waits of each of a thousand steps, and what the engine's thread does between two of them.
static void check_turns(bench *b, size_t requests) {
    const berth_runtime *runtime = berth_worker_runtime(b->worker);
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    capture_begin();
    const uint64_t begin = berth_clock_ns();
    for (size_t i = 0; i < CAPTURE_SAMPLES + 1; ++i) {
        const uint64_t before = berth_runtime_waited(runtime);
        (void)step(b);
        const uint64_t waits = berth_runtime_waited(runtime) - before;
        least = waits < least ? waits : least;
        most = waits > most ? waits : most;
    }
    const double all = seconds_since(begin);
    const capture_turns turns = capture_get();
    (void)printf("captured decode, %3zu requests   waits a step: %llu to %llu   of %d: ", requests,
                 (unsigned long long)least, (unsigned long long)most, WAITS);
    judge(b, least == WAITS && most == WAITS && turns.count == CAPTURE_SAMPLES);
    (void)printf("captured decode, %3zu requests   a step %.3f ms; tokens visible to launch "
                 "returned: %.1f us of the thread, %.1f of them in the launch, %.1f of the clock",
                 requests, all / (CAPTURE_SAMPLES + 1) * 1e3, turns.cpu * 1e6, turns.launch * 1e6,
                 turns.wall * 1e6);
    if (requests > 1) {
        (void)printf("\n");
        return;
    }
    (void)printf("   at most %.0f: ", MOST_CPU_US);
    judge(b, turns.count > 0 && turns.cpu * 1e6 <= MOST_CPU_US);
}

// The share of a replay in which no kernel runs.
static void check_idle(bench *b, size_t requests) {
    trace_result trace = {0};
    const double median = capture_time_replays();
    const char *why = trace_begin();
    if (why == NULL) {
        capture_replay();
        why = trace_end(&trace);
    }
    (void)printf("captured decode, %3zu requests   ", requests);
    if (why != NULL) {
        (void)printf("idle: not traced, %s: ", why);
        judge(b, false);
        return;
    }
    const double idle = 1 - trace.busy / median;
    (void)printf(
        "idle %.2f %% of a replay: %zu kernels run %.3f of %.3f ms (%.3f when traced)   at "
        "most %.0f %%: ",
        100 * idle, trace.kernels, trace.busy * 1e3, median * 1e3, trace.span * 1e3,
        100 * MOST_IDLE_SHARE);
    judge(b, idle <= MOST_IDLE_SHARE);
}

static void check_captured(bench *b, size_t requests) {
    start_decode(b, requests, CAPTURE_SAMPLES + 1);
    check_turns(b, requests);
    check_idle(b, requests);
    drain(b);
}

int main(int count, char **arguments) {
    static bench b;
    uint64_t seed = 1;
    if (count < 3) {
        (void)fprintf(stderr, "usage: model PLUGIN_DIR CHECKPOINT "
                              "[captured | mixed | prefill | start | GB/s TFLOP/s]\n");
        return 2;
    }
    const char *what = count == 4 ? arguments[3] : "";
    const char *level = getenv("BERTH_LOG");
    berth_log_set_level(level && strcmp(level, "debug") == 0 ? BERTH_LEVEL_DEBUG
                                                             : BERTH_LEVEL_WARN);
    b.is_captured = strcmp(what, "captured") == 0;
    b.copy_rate = count > 4 ? atof(arguments[3]) * 1e9 : 0;
    b.product_rate = count > 4 ? atof(arguments[4]) * 1e12 : 0;
    const uint64_t begin = berth_clock_ns();
    start(&b, arguments[1], arguments[2]);
    const double ready = seconds_since(begin);
    count_work(&b, arguments[2]);
    add(&b, 16, 1, &seed);
    while (!berth_engine_is_idle(b.engine)) {
        (void)step(&b);
    }
    (void)printf("start: ready after %.2f s, the first token out after %.2f s\n", ready,
                 seconds_since(begin));
    (void)fflush(stdout);
    if (b.is_captured) {
        check_captured(&b, 1);
        check_captured(&b, 64);
    } else if (strcmp(what, "mixed") == 0) {
        time_all_mixed(&b);
    } else if (strcmp(what, "prefill") == 0) {
        trace_prefill(&b);
    } else if (strcmp(what, "start") != 0) {
        time_all(&b);
    }
    berth_engine_destroy(b.engine);
    berth_worker_destroy(b.worker);
    berth_registry_destroy(b.registry);
    berth_arena_destroy(b.arena);
    return b.has_missed;
}
