// SPDX-License-Identifier: Apache-2.0
// `berth bench sleep`: what a model that falls asleep gives back, how long that and waking up take,
// and that it says the same afterwards.
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench_model.h"
#include "cli/bench_report.h"
#include "cli/cli_private.h"

#define PROMPT    16
#define TOKENS    16
#define NS_PER_MS 1e6

static berth_status generate(berth_session *session, int32_t *out_tokens) {
    berth_engine *engine = session->engine;
    size_t taken = 0;
    BERTH_TRY(berth_bench_add(session, 1, PROMPT, TOKENS, 0));
    while (!berth_engine_is_idle(engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        BERTH_TRY(berth_engine_step(engine, &outputs, &count));
        for (size_t i = 0; i < count && taken < TOKENS; ++i) {
            out_tokens[taken++] = outputs[i].token;
        }
    }
    return BERTH_OK;
}

static uint64_t held(const berth_session *session) {
    return berth_runtime_counted(berth_worker_runtime(session->worker))->held;
}

static berth_bench_row describe(const berth_session *session, const char *name, uint64_t start,
                                uint64_t before) {
    return (berth_bench_row){
        .name = name,
        .threads = berth_config_threads(&session->config),
        .value = (double)(berth_clock_ns() - start) / NS_PER_MS,
        .unit = "ms",
        .ceiling = NAN,
        .share = NAN,
        .p10 = NAN,
        .p90 = NAN,
        .times_one = NAN,
        .note = berth_arena_printf(session->arena, "%llu bytes of the device, %llu before",
                                   (unsigned long long)held(session), (unsigned long long)before),
    };
}

// One level, there and back.
static berth_status time_level(berth_session *session, uint64_t level, const int32_t *expected,
                               berth_bench_row out_rows[2]) {
    static const char *const names[2][2] = {
        {"sleep_1", "wake_up_1"},
        {"sleep_2", "wake_up_2"}
    };
    int32_t tokens[TOKENS] = {0};
    const uint64_t awake = held(session);
    uint64_t start = berth_clock_ns();
    BERTH_TRY(berth_engine_sleep(session->engine, level));
    out_rows[0] = describe(session, names[level - 1][0], start, awake);
    const uint64_t asleep = held(session);
    if (asleep >= awake) {
        return BERTH_FAIL(INTERNAL,
                          "asleep at level %llu it holds %llu bytes of the device, as "
                          "many as before",
                          (unsigned long long)level, (unsigned long long)asleep);
    }
    start = berth_clock_ns();
    BERTH_TRY(berth_engine_wake_up(session->engine, 0));
    out_rows[1] = describe(session, names[level - 1][1], start, asleep);
    BERTH_TRY(generate(session, tokens));
    return memcmp(tokens, expected, sizeof tokens) == 0
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL, "after sleeping at level %llu the model gives other tokens",
                            (unsigned long long)level);
}

static berth_status run(berth_session *session) {
    berth_bench_row rows[4];
    int32_t tokens[TOKENS] = {0};
    session->stage = BERTH_STAGE_STEP;
    BERTH_TRY(generate(session, tokens));
    for (uint64_t level = 1; level <= 2; ++level) {
        BERTH_TRY_NOTE(time_level(session, level, tokens, &rows[2 * (level - 1)]),
                       "sleep level %llu", (unsigned long long)level);
    }
    return berth_bench_print(session, rows, 4);
}

// clang-format off
static const char details[] =
    "A few tokens are generated before each level and after it, and must be the same; the\n"
    "device's memory must go down. Level 1 keeps the weights in host memory, level 2 discards\n"
    "them, and waking up reads the checkpoint again; the KV cache is discarded by both.\n"
    BERTH_BENCH_JSON_HELP;
// clang-format on

const berth_command berth_command_bench_sleep = {
    .name = "bench sleep",
    .arguments = "",
    .help = "time falling asleep and waking up, and what it gives back",
    .details = details,
    .bit = BERTH_COMMAND_BENCH,
    .needs = BERTH_STAGE_ENGINE,
    .flags = BERTH_CLI_MODEL,
    .run = run,
};
