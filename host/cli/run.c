// SPDX-License-Identifier: Apache-2.0
// `berth run`: prompts in, text out. All prompts run at once; their texts come out in the order of
// the prompts, that of a single prompt while it is being written.
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/cli_private.h"
#include "model/model.h"

#define PROMPTS_LIMIT_BYTES ((size_t)64 << 20)

// One prompt on its way.
typedef struct passage {
    berth_str prompt; // borrowed from the command line or the file
    uint64_t request;
    berth_token_ids ids; // of the output
    berth_text text;     // of the output
    const char *stop;    // the --stop that ended it, or NULL
    // With --logprobs: [ids, entries], ranks [ids].
    berth_array(int32_t) logprob_ids;
    berth_array(float) logprobs;
    berth_array(int32_t) ranks;
    size_t entries;
    berth_finish finish;
} passage;

typedef struct run_state {
    berth_session *session;
    char *file; // the content of --prompts
    berth_array(passage) passages;
    berth_generation generation;
    berth_str *stop_strings; // of --stop
    size_t printed;          // passages that are out
    size_t streamed;         // bytes of the next one that are out
} run_state;

// ---- prompts ------------------------------------------------------------------------------------

static berth_status add_passage(run_state *run, berth_str prompt) {
    run->session->stage = BERTH_STAGE_REQUEST;
    if (run->file) {
        BERTH_TRY_NOTE(berth_utf8_check(prompt, "the prompt"), "reading prompt %zu of %s",
                       run->passages.count + 1, run->session->config.prompts_file);
    } else {
        BERTH_TRY(berth_utf8_check(prompt, "the prompt"));
    }
    const passage added = {.prompt = prompt};
    return berth_array_push(&run->passages, added);
}

// One prompt per line; lines with nothing in them are none.
static berth_status read_prompts(run_state *run, const char *path) {
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

static berth_request request_of(const run_state *run, const berth_token_ids *ids) {
    const berth_config *config = &run->session->config;
    return (berth_request){
        .prompt = ids->data,
        .prompt_count = ids->count,
        .max_tokens = config->max_tokens,
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

static berth_status submit(run_state *run, passage *next) {
    berth_session *session = run->session;
    berth_token_ids ids = {0};
    berth_text_init(&next->text, PROMPTS_LIMIT_BYTES);
    berth_status status =
        berth_tokenizer_encode(session->tokenizer, next->prompt,
                               BERTH_ENCODE_ADD_SPECIAL | BERTH_ENCODE_PARSE_SPECIAL, &ids);
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

static berth_status submit_all(run_state *run) {
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

static passage *passage_of(run_state *run, uint64_t request) {
    for (size_t i = run->printed; i < run->passages.count; ++i) {
        if (run->passages.data[i].request == request) {
            return &run->passages.data[i];
        }
    }
    return NULL;
}

static berth_status keep_logprobs(passage *its, const berth_output *output) {
    its->entries = output->logprob_count;
    for (size_t i = 0; i < output->logprob_count; ++i) {
        BERTH_TRY(berth_array_push(&its->logprob_ids, output->logprob_ids[i]));
        BERTH_TRY(berth_array_push(&its->logprobs, output->logprobs[i]));
    }
    return its->entries > 0 ? berth_array_push(&its->ranks, output->rank) : BERTH_OK;
}

static berth_status accept(run_state *run, const berth_output *output) {
    const berth_option_list *stops = &run->session->config.stop;
    passage *its = passage_of(run, output->request);
    if (!its || output->token < 0) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_array_push(&its->ids, output->token));
    BERTH_TRY(keep_logprobs(its, output));
    berth_text_add(&its->text, output->text);
    its->finish = output->finish;
    for (size_t i = 0; i < stops->count && output->stop.size > 0 && !its->stop; ++i) {
        its->stop = berth_str_equal_cstr(output->stop, stops->items[i]) ? stops->items[i] : NULL;
    }
    return berth_text_finish(&its->text, NULL);
}

// What became known of the texts since the last call, in the order of the prompts.
static berth_status print_texts(run_state *run) {
    berth_text *out = &run->session->out;
    for (; run->printed < run->passages.count; ++run->printed) {
        const passage *next = &run->passages.data[run->printed];
        if (run->passages.count > 1 && run->streamed == 0 && next->text.size > 0) {
            berth_text_add_format(out, "%s--- %zu: ", run->printed > 0 ? "\n" : "",
                                  run->printed + 1);
            berth_text_add(out, next->prompt); // no format: it may hold NUL bytes
            berth_text_add_char(out, '\n');
        }
        berth_text_add(out, berth_str_slice(berth_text_str(&next->text), run->streamed, SIZE_MAX));
        run->streamed = next->text.size;
        if (next->finish == BERTH_FINISH_NOT_YET) {
            break;
        }
        berth_text_add_char(out, '\n');
        run->streamed = 0;
    }
    return out->size > 0 ? berth_session_print(run->session) : BERTH_OK;
}

static void put_logprob(berth_json_writer *json, const passage *done, size_t at) {
    berth_json_put_key(json, "id");
    berth_json_put_i64(json, done->logprob_ids.data[at]);
    berth_cli_put_f64(json, "logprob", done->logprobs.data[at]);
}

// For every token its own log probability, its rank, and those of the likeliest.
static void put_logprobs(berth_json_writer *json, const passage *done) {
    berth_json_put_key(json, "logprobs");
    berth_json_begin_array(json);
    for (size_t i = 0; i < done->ranks.count; ++i) {
        const size_t first = i * done->entries;
        berth_json_begin_object(json);
        put_logprob(json, done, first);
        berth_json_put_key(json, "rank");
        berth_json_put_i64(json, done->ranks.data[i]);
        berth_json_put_key(json, "top");
        berth_json_begin_array(json);
        for (size_t k = 1; k < done->entries; ++k) {
            berth_json_begin_object(json);
            put_logprob(json, done, first + k);
            berth_json_end_object(json);
        }
        berth_json_end_array(json);
        berth_json_end_object(json);
    }
    berth_json_end_array(json);
}

static void put_passage(berth_json_writer *json, const passage *done) {
    berth_json_begin_object(json);
    berth_json_put_key(json, "prompt");
    berth_json_put_str(json, done->prompt);
    berth_json_put_key(json, "text");
    berth_json_put_str(json, berth_text_str(&done->text));
    berth_json_put_key(json, "ids");
    berth_json_begin_array(json);
    for (size_t k = 0; k < done->ids.count; ++k) {
        berth_json_put_i64(json, done->ids.data[k]);
    }
    berth_json_end_array(json);
    berth_cli_put(json, "finish", done->finish == BERTH_FINISH_STOP ? "stop" : "length");
    berth_cli_put(json, "stop", done->stop);
    if (done->entries > 0) {
        put_logprobs(json, done);
    }
    berth_json_end_object(json);
}

static void print_json(run_state *run) {
    berth_json_writer json;
    berth_session_json(run->session, &json);
    berth_json_begin_array(&json);
    for (size_t i = 0; i < run->passages.count; ++i) {
        put_passage(&json, &run->passages.data[i]);
    }
    berth_json_end_array(&json);
    berth_session_json_end(run->session);
}

static berth_status generate(run_state *run) {
    berth_session *session = run->session;
    const bool is_silent = session->config.is_json;
    while (!berth_engine_is_idle(session->engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        session->stage = BERTH_STAGE_STEP;
        BERTH_TRY(berth_engine_step(session->engine, &outputs, &count));
        for (size_t i = 0; i < count; ++i) {
            BERTH_TRY(accept(run, &outputs[i]));
        }
        if (!is_silent) {
            BERTH_TRY(print_texts(run));
        }
    }
    if (is_silent) {
        print_json(run);
    }
    return BERTH_OK;
}

// ---- the command --------------------------------------------------------------------------------

static berth_status read_stop_strings(run_state *run) {
    const berth_option_list *stops = &run->session->config.stop;
    run->stop_strings = BERTH_ARENA_ARRAY(run->session->arena, berth_str, stops->count);
    for (size_t i = 0; i < stops->count && run->stop_strings; ++i) {
        run->stop_strings[i] = berth_str_from(stops->items[i]);
    }
    return run->stop_strings ? BERTH_OK : berth_arena_exhausted(run->session->arena, "--stop");
}

static berth_status run_all(run_state *run) {
    berth_config *config = &run->session->config;
    if (config->prompts_file) {
        BERTH_TRY(read_prompts(run, config->prompts_file));
    } else {
        BERTH_TRY(add_passage(run, berth_str_from(config->prompt)));
    }
    run->session->stage = BERTH_STAGE_CHECKPOINT;
    BERTH_TRY(berth_generation_load(config->model, config, &run->generation));
    BERTH_TRY(read_stop_strings(run));
    BERTH_TRY(submit_all(run));
    return generate(run);
}

static berth_status run_command(berth_session *session) {
    run_state run = {.session = session};
    const berth_status status = run_all(&run);
    for (size_t i = 0; i < run.passages.count; ++i) {
        passage *done = &run.passages.data[i];
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
    session->stage = BERTH_STAGE_CHECKPOINT;
    return berth_tokenizer_open(config->model, &session->tokenizer);
}

const berth_command berth_command_run = {
    .name = "run",
    .arguments = "",
    .help = "continue one prompt, or all lines of a file at once",
    .details =
        "--json prints an array of {prompt, text, ids, finish, stop}; finish is \"stop\" after\n"
        "one of the checkpoint's eos_token_id or before a --stop, which `stop` then is, else\n"
        "\"length\". --logprobs adds an array of {id, logprob, rank, top}, one for each id.\n"
        "The checkpoint's generation_config.json gives the defaults of --temperature, --top-k,\n"
        "--top-p, --min-p and --repetition-penalty.",
    .bit = BERTH_COMMAND_RUN,
    .needs = BERTH_STAGE_ENGINE,
    .flags = BERTH_CLI_MODEL,
    .prepare = prepare,
    .run = run_command,
};
