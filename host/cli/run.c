// SPDX-License-Identifier: Apache-2.0
// `berth run`: prompts in, text out. All prompts run at once; their texts come out in the order of
// the prompts, that of a single prompt while it is being written.
#include "cli/run.h"

#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/cli_private.h"

#define PROMPTS_LIMIT_BYTES ((size_t)64 << 20)

// ---- prompts ------------------------------------------------------------------------------------

static berth_status add_passage(berth_run *run, berth_str prompt) {
    run->session->stage = BERTH_STAGE_REQUEST;
    if (run->file) {
        BERTH_TRY_NOTE(berth_utf8_check(prompt, "the prompt"), "reading prompt %zu of %s",
                       run->passages.count + 1, run->session->config.prompts_file);
    } else {
        BERTH_TRY(berth_utf8_check(prompt, "the prompt"));
    }
    const berth_passage added = {.prompt = prompt};
    return berth_array_push(&run->passages, added);
}

// One prompt per line; lines with nothing in them are none.
static berth_status read_prompts(berth_run *run, const char *path) {
    size_t size = 0;
    run->session->stage = BERTH_STAGE_INPUT;
    BERTH_TRY(berth_file_read(path, PROMPTS_LIMIT_BYTES, &run->file, &size));
    berth_str rest = {.data = run->file, .size = size};
    for (berth_str line; berth_str_split_first(&rest, '\n', &line);) {
        if (berth_str_ends_with(line, BERTH_STR("\r"))) {
            --line.size;
        }
        if (line.size > 0) {
            BERTH_TRY(add_passage(run, line));
        }
    }
    if (run->passages.count == 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "--prompts %s: there is no prompt in it, write one per "
                          "line",
                          path);
    }
    return BERTH_OK;
}

// ---- requests -----------------------------------------------------------------------------------

static berth_request request_of(const berth_run *run, const berth_token_ids *ids) {
    const berth_config *config = &run->session->config;
    return (berth_request){
        .prompt = ids->data,
        .prompt_count = ids->count,
        .max_tokens = config->max_tokens,
        .min_tokens = config->min_tokens,
        .temperature = config->temperature,
        .seed = (uint64_t)config->seed,
        .top_k = config->top_k,
        .top_p = config->top_p,
        .min_p = config->min_p,
        .presence_penalty = config->presence_penalty,
        .frequency_penalty = config->frequency_penalty,
        .repetition_penalty = config->repetition_penalty,
        .logprobs = config->logprobs > 0 ? (size_t)config->logprobs + 1 : 0,
        .stop_ids = run->generation.stop_ids,
        .stop_count = run->generation.stop_count,
        .tokenizer = run->session->tokenizer,
        .stop_strings = run->stop_strings,
        .stop_string_count = config->stop.count,
    };
}

// Why a chat adds no special tokens: its template has written those that belong there.
static berth_status encode_chat(const berth_session *session, berth_str prompt,
                                berth_token_ids *ids) {
    berth_text text;
    berth_text_init(&text, BERTH_CHAT_TEXT_BYTES);
    berth_status status = berth_run_render(session, prompt, &text);
    if (status == BERTH_OK) {
        status = berth_tokenizer_encode(session->tokenizer, berth_text_str(&text),
                                        BERTH_ENCODE_PARSE_SPECIAL, ids);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status encode(const berth_session *session, berth_str prompt, berth_token_ids *ids) {
    return session->config.is_chat
               ? encode_chat(session, prompt, ids)
               : berth_tokenizer_encode(session->tokenizer, prompt,
                                        BERTH_ENCODE_ADD_SPECIAL | BERTH_ENCODE_PARSE_SPECIAL, ids);
}

static berth_status submit(berth_run *run, berth_passage *next) {
    berth_session *session = run->session;
    berth_token_ids ids = {0};
    berth_text_init(&next->text, PROMPTS_LIMIT_BYTES);
    berth_status status = encode(session, next->prompt, &ids);
    if (status == BERTH_OK) {
        status = berth_platform_check_request(session->decision.platform, (int64_t)ids.count,
                                              session->config.max_tokens);
    }
    if (status == BERTH_OK) {
        const berth_request request = request_of(run, &ids);
        status = berth_engine_add(session->engine, &request, &next->request);
    }
    berth_array_free(&ids);
    return status;
}

static berth_status submit_all(berth_run *run) {
    run->session->stage = BERTH_STAGE_REQUEST;
    for (size_t i = 0; i < run->passages.count; ++i) {
        const berth_status status = submit(run, &run->passages.data[i]);
        if (status != BERTH_OK && run->passages.count > 1) {
            berth_status_note(__FILE__, __LINE__, "adding prompt %zu", i + 1);
        }
        BERTH_TRY(status);
    }
    return BERTH_OK;
}

// ---- texts --------------------------------------------------------------------------------------

// Ids of requests rise in the order of the prompts.
static berth_passage *passage_of(berth_run *run, uint64_t request) {
    size_t first = 0;
    size_t end = run->passages.count;
    while (first < end) {
        const size_t middle = first + (end - first) / 2;
        if (run->passages.data[middle].request < request) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return &run->passages.data[first];
}

static berth_status keep_logprobs(berth_passage *its, const berth_output *output) {
    its->entries = output->logprob_count;
    for (size_t i = 0; i < output->logprob_count; ++i) {
        BERTH_TRY(berth_array_push(&its->logprob_ids, output->logprob_ids[i]));
        BERTH_TRY(berth_array_push(&its->logprobs, output->logprobs[i]));
    }
    return its->entries > 0 ? berth_array_push(&its->ranks, output->rank) : BERTH_OK;
}

static berth_status accept(berth_run *run, const berth_output *output) {
    const berth_option_list *stops = &run->session->config.stop;
    berth_passage *its = passage_of(run, output->request);
    BERTH_TRY(berth_array_push(&its->ids, output->token));
    BERTH_TRY(keep_logprobs(its, output));
    berth_text_add(&its->text, output->text);
    its->finish = output->finish;
    run->ended += output->finish != BERTH_FINISH_NOT_YET;
    ++run->tokens;
    for (size_t i = 0; i < stops->count && output->stop.size > 0 && !its->stop; ++i) {
        its->stop = berth_str_equal_cstr(output->stop, stops->items[i]) ? stops->items[i] : NULL;
    }
    return berth_text_finish(&its->text, NULL);
}

static berth_status step(berth_run *run) {
    berth_session *session = run->session;
    const berth_output *outputs = NULL;
    size_t count = 0;
    session->stage = BERTH_STAGE_STEP;
    BERTH_TRY(berth_engine_step(session->engine, &outputs, &count));
    for (size_t i = 0; i < count; ++i) {
        BERTH_TRY(accept(run, &outputs[i]));
    }
    berth_run_show_progress(run);
    return session->config.is_json ? BERTH_OK : berth_run_print_texts(run);
}

static berth_status generate(berth_run *run) {
    while (!berth_engine_is_idle(run->session->engine) && !berth_interrupt_signal()) {
        BERTH_TRY(step(run));
    }
    return BERTH_OK;
}

// Whatever has not ended by now never will: what there is of it is its text.
static void cut_off(berth_run *run) {
    for (size_t i = 0; i < run->passages.count; ++i) {
        berth_passage *its = &run->passages.data[i];
        if (its->finish == BERTH_FINISH_NOT_YET) {
            if (its->request != 0) {
                berth_engine_abort(run->session->engine, its->request, &its->text);
            }
            its->finish = BERTH_FINISH_ABORTED;
            run->session->is_interrupted = true;
        }
    }
    if (run->session->is_interrupted) {
        berth_progress_show(run->session, NULL);
        BERTH_WARN("run", "interrupted: %zu of %zu texts are complete", run->ended,
                   run->passages.count);
    }
}

static berth_status print(berth_run *run) {
    berth_progress_show(run->session, NULL);
    if (run->session->config.is_json) {
        berth_run_print_json(run);
        return BERTH_OK;
    }
    return berth_run_print_texts(run);
}

// ---- the command --------------------------------------------------------------------------------

static berth_status read_stop_strings(berth_run *run) {
    const berth_option_list *stops = &run->session->config.stop;
    run->stop_strings = BERTH_ARENA_ARRAY(run->session->arena, berth_str, stops->count);
    for (size_t i = 0; i < stops->count && run->stop_strings; ++i) {
        run->stop_strings[i] = berth_str_from(stops->items[i]);
    }
    return run->stop_strings ? BERTH_OK : berth_arena_exhausted(run->session->arena, "--stop");
}

static berth_status read_passages(berth_run *run) {
    const berth_config *config = &run->session->config;
    return config->prompts_file ? read_prompts(run, config->prompts_file)
                                : add_passage(run, berth_str_from(config->prompt));
}

static berth_status start(berth_run *run) {
    berth_config *config = &run->session->config;
    run->session->stage = BERTH_STAGE_CHECKPOINT;
    BERTH_TRY(berth_generation_load(config->model, config, &run->generation));
    BERTH_TRY(read_stop_strings(run));
    return submit_all(run);
}

// Without an engine an interrupt came first: then the answer is that nothing came of any prompt.
static berth_status run_all(berth_run *run) {
    BERTH_TRY(read_passages(run));
    if (run->session->engine) {
        BERTH_TRY(start(run));
        BERTH_TRY(generate(run));
    }
    cut_off(run);
    return print(run);
}

static berth_status run_command(berth_session *session) {
    berth_run run = {.session = session};
    const berth_status status = run_all(&run);
    for (size_t i = 0; i < run.passages.count; ++i) {
        berth_passage *done = &run.passages.data[i];
        berth_array_free(&done->ids);
        berth_text_deinit(&done->text);
        berth_array_free(&done->logprob_ids);
        berth_array_free(&done->logprobs);
        berth_array_free(&done->ranks);
    }
    berth_array_free(&run.passages);
    berth_free(run.file);
    return status;
}

// What can be known to be wrong before a model is loaded.
static berth_status prepare(berth_session *session) {
    const berth_config *config = &session->config;
    if (!config->prompt == !config->prompts_file) {
        return BERTH_FAIL(INVALID_ARGUMENT, "run: %s, use --prompt TEXT or --prompts FILE",
                          config->prompt ? "two kinds of prompts given" : "no prompt given");
    }
    if (config->prompt) {
        BERTH_TRY(berth_utf8_check(berth_str_from(config->prompt), "the prompt"));
    } else if (!berth_path_exists(config->prompts_file)) {
        session->stage = BERTH_STAGE_INPUT;
        return BERTH_FAIL(NOT_FOUND, "--prompts %s: there is no such file", config->prompts_file);
    }
    if (config->logprobs > 0 && !config->is_json) {
        return BERTH_FAIL(INVALID_ARGUMENT, "--logprobs: there is no place for them in the text, "
                                            "add --json");
    }
    if (config->system && !config->is_chat) {
        return BERTH_FAIL(INVALID_ARGUMENT, "--system: there is no conversation, add --chat");
    }
    session->stage = BERTH_STAGE_CHECKPOINT;
    if (config->is_chat) {
        BERTH_TRY(berth_chat_open(config->model, &session->chat));
    }
    return berth_tokenizer_open(config->model, &session->tokenizer);
}

const berth_command berth_command_run = {
    .name = "run",
    .arguments = "",
    .help = "continue one prompt, or all lines of a file at once",
    .details =
        "--json prints an array of {prompt, text, ids, finish, stop}; finish is \"stop\" after\n"
        "one of the checkpoint's eos_token_id or before a --stop, which `stop` then is,\n"
        "\"aborted\" where an interrupt cut it off, else \"length\".\n"
        "--logprobs adds an array of {id, logprob, rank, top}, one for each id.\n"
        "The checkpoint's generation_config.json gives the defaults of -n, --temperature,\n"
        "--top-k, --top-p, --min-p and --repetition-penalty; with its do_sample false the\n"
        "temperature is 0.\n"
        "--chat makes every prompt a conversation, as the checkpoint's chat template writes it:\n"
        "chat_template.jinja, else the chat_template of tokenizer_config.json.\n"
        "An interrupt (SIGINT or SIGTERM) ends the run in order: what was produced so far is\n"
        "printed, and the exit status is 130 or 143. A second one kills.",
    .bit = BERTH_COMMAND_RUN,
    .needs = BERTH_STAGE_ENGINE,
    .flags = BERTH_CLI_MODEL | BERTH_CLI_ENDS_EARLY,
    .prepare = prepare,
    .run = run_command,
};
