// SPDX-License-Identifier: Apache-2.0
// berth, the program:
//
//     config → discovery → registry → platform → worker → model → engine
//
// Every stage is one function below and takes what the one before it gave. A command (cli/) names
// the last stage that it needs. Nothing else prints errors or decides the exit status.
#include <signal.h>
#include <stdio.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "config/config.h"
#include "discovery/discovery.h"
#include "engine/engine.h"
#include "platform/platform.h"
#include "registry/registry.h"
#include "tokenizer/tokenizer.h"
#include "worker/worker.h"

#define ARENA_BLOCK_BYTES  ((size_t)64 << 10)
#define ARENA_LIMIT_BYTES  ((size_t)256 << 20)
#define OUTPUT_LIMIT_BYTES ((size_t)1 << 30)

extern const berth_plugin *const berth_core_plugins[]; // generated from plugins/core-*
extern const size_t berth_core_plugins_count;

// ---- the flow -----------------------------------------------------------------------------------

static berth_status read_config(berth_session *s) {
    BERTH_TRY(berth_config_load(&s->config, s->command->bit, s->argc, s->argv));
    berth_log_set_level((berth_level)s->config.log_level);
    return berth_session_prepare(s);
}

static berth_status discover(berth_session *s) {
    BERTH_TRY(berth_discovery_run(&s->config, s->arena, &s->candidates));
    for (size_t i = 0; i < s->candidates.warning_count; ++i) {
        BERTH_WARN("discovery", "%s", s->candidates.warnings[i]);
    }
    return BERTH_OK;
}

static berth_status register_plugins(berth_session *s) {
    BERTH_TRY(berth_registry_create(&s->config, &berth_worker_default, &s->registry));
    BERTH_TRY(berth_registry_add_core(s->registry, berth_core_plugins, berth_core_plugins_count));
    return berth_session_keep(s, berth_registry_load(s->registry, &s->candidates));
}

static berth_status choose_platform(berth_session *s) {
    return berth_session_keep(
        s, berth_platform_choose(&s->config, s->registry, &s->candidates, s->arena, &s->decision));
}

static berth_status freeze_tables(berth_session *s) {
    BERTH_TRY(berth_session_keep(
        s, berth_platform_configure(s->decision.platform, &s->config, s->registry)));
    BERTH_TRY(berth_session_keep(s, berth_registry_freeze(s->registry)));
    berth_session_warn(s);
    return BERTH_OK;
}

static berth_status start_worker(berth_session *s) {
    BERTH_TRY(berth_worker_create(&s->config, s->registry, s->decision.platform, &s->worker));
    return berth_worker_init_device(s->worker);
}

static berth_status load_model(berth_session *s) {
    BERTH_TRY(berth_worker_load_model(s->worker));
    berth_session_note(s);
    return BERTH_OK;
}

static berth_status start_engine(berth_session *s) {
    return berth_engine_create(&s->config, s->worker, &s->engine);
}

static void close_flow(berth_session *s) {
    berth_engine_destroy(s->engine);
    berth_worker_destroy(s->worker);
    berth_registry_destroy(s->registry);
    berth_tokenizer_close(s->tokenizer);
    berth_chat_close(s->chat);
    s->engine = NULL;
    s->worker = NULL;
    s->registry = NULL;
    s->tokenizer = NULL;
    s->chat = NULL;
    s->candidates = (berth_candidates){0};
    s->decision = (berth_decision){0};
}

static void close_all(berth_session *s) {
    close_flow(s);
    berth_text_deinit(&s->out);
    berth_arena_destroy(s->arena);
}

// ---- the program --------------------------------------------------------------------------------

typedef struct stage_row {
    berth_status (*open)(berth_session *session); // NULL: not a stage of the flow
    const char *doing;                            // shown on a terminal while it takes its time
    int failure;                                  // exit status
} stage_row;

// Why a macro: clang-format 14 pulls rows that differ in the number of members apart.
#define STAGE(...)                                                                                 \
    { __VA_ARGS__ }

static const stage_row stages[BERTH_STAGE_COUNT] = {
    [BERTH_STAGE_USAGE] = STAGE(.open = berth_command_check, .failure = 2),
    [BERTH_STAGE_CONFIG] = STAGE(.open = read_config, .failure = 3),
    [BERTH_STAGE_DISCOVERY] = STAGE(.open = discover, .failure = 3),
    [BERTH_STAGE_REGISTRY] = STAGE(.open = register_plugins, .failure = 4),
    [BERTH_STAGE_PLATFORM] = STAGE(.open = choose_platform, .failure = 6),
    [BERTH_STAGE_TABLES] = STAGE(.open = freeze_tables, .failure = 4),
    [BERTH_STAGE_WORKER] = STAGE(.open = start_worker, .failure = 6, .doing = "starting"),
    [BERTH_STAGE_MODEL] = STAGE(.open = load_model, .failure = 5, .doing = "loading"),
    [BERTH_STAGE_ENGINE] = STAGE(.open = start_engine, .failure = 6, .doing = "warming up"),
    [BERTH_STAGE_INPUT] = STAGE(.failure = 3),
    [BERTH_STAGE_CHECKPOINT] = STAGE(.failure = 5),
    [BERTH_STAGE_REQUEST] = STAGE(.failure = 2),
    [BERTH_STAGE_STEP] = STAGE(.failure = 6),
    [BERTH_STAGE_OUTPUT] = STAGE(.failure = 7),
};

static void show_progress(berth_session *s, const char *doing) {
    if (doing) {
        berth_progress_show(s, "%s %.200s …", doing, s->config.model ? s->config.model : "");
    } else {
        berth_progress_show(s, NULL);
    }
}

static berth_status open_until(berth_session *s, berth_stage last) {
    for (; s->next <= last; ++s->next) {
        s->stage = s->next;
        show_progress(s, stages[s->stage].doing);
        BERTH_TRY(stages[s->stage].open(s));
        // Not `stage`: who opens one may have gone on to another. No stage is opened twice.
        if (s->next >= BERTH_STAGE_DISCOVERY && berth_interrupt_signal()) {
            break;
        }
    }
    berth_progress_show(s, NULL);
    return BERTH_OK;
}

static berth_status begin_again(berth_session *s) {
    close_flow(s);
    s->next = BERTH_STAGE_CONFIG;
    return berth_config_init(&s->config, s->arena);
}

static berth_status run_command(berth_session *s) {
    if (s->command->flags & BERTH_CLI_ENDS_EARLY) {
        berth_interrupt_watch();
    }
    // The first two decide how far the command goes.
    BERTH_TRY(open_until(s, s->needs < BERTH_STAGE_CONFIG ? s->needs : BERTH_STAGE_CONFIG));
    const berth_status status = open_until(s, s->needs);
    // Who loads a model gives up when an interrupt comes: that is no failure.
    if (status != BERTH_OK && !(s->stage == BERTH_STAGE_MODEL && berth_interrupt_signal())) {
        return status;
    }
    berth_status_clear();
    berth_progress_show(s, NULL);
    BERTH_TRY(s->command->run(s));
    return berth_session_print(s);
}

static int exit_status(const berth_session *s, berth_status status) {
    if (status == BERTH_OK) {
        return s->is_interrupted ? 128 + berth_interrupt_signal() : s->answer_is_no ? 1 : 0;
    }
    if (status == BERTH_INTERNAL && s->stage >= BERTH_STAGE_WORKER) {
        return 7;
    }
    if (s->stage == BERTH_STAGE_PLATFORM && s->decision.culprit) {
        return stages[BERTH_STAGE_REGISTRY].failure; // a plugin failed, not a device
    }
    // Once the graph is there the checkpoint was good: it is the platform that cannot run it, or a
    // value of the configuration that only the model could judge.
    if (s->stage == BERTH_STAGE_MODEL && berth_worker_graph(s->worker) && status != BERTH_CORRUPT) {
        return stages[status == BERTH_INVALID_ARGUMENT ? BERTH_STAGE_CONFIG : BERTH_STAGE_PLATFORM]
            .failure;
    }
    return stages[s->stage].failure;
}

static void print_failure(berth_session *s) {
    char trace[BERTH_STATUS_TEXT_BYTES];
    berth_progress_show(s, NULL);
    fprintf(stderr, "berth: %s\n", berth_status_message());
    if (berth_log_enabled(BERTH_LEVEL_DEBUG)) {
        berth_status_trace(trace, sizeof trace);
        fprintf(stderr, "%s\n", trace);
    }
}

static berth_status start(berth_session *s, int argc, char *const *argv) {
    berth_text_init(&s->out, OUTPUT_LIMIT_BYTES);
    BERTH_TRY(berth_arena_create(ARENA_BLOCK_BYTES, ARENA_LIMIT_BYTES, &s->arena));
    BERTH_TRY(berth_config_init(&s->config, s->arena));
    BERTH_TRY(berth_command_find(s, argc, argv));
    return run_command(s);
}

int main(int argc, char **argv) {
    berth_memory_begin();
    signal(SIGPIPE, SIG_IGN); // a reader that went away is a failed write like any other
    berth_session session = {.open_until = open_until, .begin_again = begin_again};
    const berth_status status = start(&session, argc, argv);
    if (status != BERTH_OK) {
        print_failure(&session);
    }
    const int result = exit_status(&session, status);
    close_all(&session);
    return result;
}
