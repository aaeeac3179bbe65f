// SPDX-License-Identifier: Apache-2.0
// `berth tokenize`: text to ids and back, with nothing but the tokenizer's files. Text comes from
// the argument or, byte for byte, from standard input; it goes out byte for byte, too.
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli_private.h"

#define INPUT_LIMIT_BYTES BERTH_TOKENIZER_TEXT_BYTES
#define READ_BYTES        65536

static berth_status read_input(berth_text *text) {
    char piece[READ_BYTES];
    for (;;) {
        const ssize_t size = read(STDIN_FILENO, piece, sizeof piece);
        if (size == 0) {
            return berth_text_finish(text, NULL);
        }
        if (size < 0 && errno != EINTR) {
            return BERTH_FAIL(IO, "standard input: cannot be read: %s", strerror(errno));
        }
        berth_text_add(text, (berth_str){.data = piece, .size = size < 0 ? 0 : (size_t)size});
    }
}

static berth_status put_ids(berth_session *session, berth_str text) {
    const uint32_t flags =
        BERTH_ENCODE_PARSE_SPECIAL | (session->config.is_special ? BERTH_ENCODE_ADD_SPECIAL : 0);
    berth_token_ids ids = {0};
    const berth_status status = berth_tokenizer_encode(session->tokenizer, text, flags, &ids);
    berth_text *out = &session->out;
    berth_text_add_cstr(out, session->config.is_json ? "{\"ids\": [" : "");
    for (size_t i = 0; i < ids.count && status == BERTH_OK; ++i) {
        berth_text_add_format(out, "%s%d",
                              i == 0                    ? ""
                              : session->config.is_json ? ", "
                                                        : " ",
                              (int)ids.data[i]);
    }
    berth_text_add_cstr(out, session->config.is_json ? "]}\n" : "\n");
    berth_array_free(&ids);
    return status;
}

static berth_status read_ids(berth_str text, berth_token_ids *ids) {
    while ((text = berth_str_trim(text)).size > 0) {
        const size_t size = strcspn(text.data, " \t\r\n");
        int64_t id = 0;
        BERTH_TRY(berth_str_parse_i64(berth_str_slice(text, 0, size), &id));
        if (id < 0 || id > INT32_MAX) {
            return BERTH_FAIL(INVALID_ARGUMENT, "token %lld is no id", (long long)id);
        }
        BERTH_TRY(berth_array_push(ids, (int32_t)id));
        text = berth_str_slice(text, size, SIZE_MAX);
    }
    return BERTH_OK;
}

// A text byte for byte, or as {"text": …}.
static void put_out(berth_session *session, berth_str text) {
    berth_json_writer json;
    if (!session->config.is_json) {
        berth_text_add(&session->out, text);
        return;
    }
    berth_json_writer_init(&json, &session->out, 0);
    berth_json_begin_object(&json);
    berth_json_put_key(&json, "text");
    berth_json_put_str(&json, text);
    berth_json_end_object(&json);
    berth_session_json_end(session);
}

static berth_status put_text(berth_session *session, berth_str text) {
    berth_token_ids ids = {0};
    berth_text decoded;
    berth_text_init(&decoded, INPUT_LIMIT_BYTES);
    berth_status status = read_ids(text, &ids);
    if (status == BERTH_OK) {
        status = berth_tokenizer_decode(session->tokenizer, ids.data, ids.count, 0, &decoded);
    }
    if (status == BERTH_OK) {
        put_out(session, berth_text_str(&decoded));
    }
    berth_text_deinit(&decoded);
    berth_array_free(&ids);
    return status;
}

// What strftime_now sees: the variable `now`, where the document has one, else the clock. Why: a
// prompt with a date in it can then be made again.
static berth_status read_clock(const berth_json *variables, int64_t *out_now) {
    struct tm parts = {.tm_isdst = -1};
    berth_str text = BERTH_STR("");
    *out_now = (int64_t)time(NULL);
    if (berth_json_kind_of(variables) != BERTH_JSON_OBJECT || !berth_json_has(variables, "now")) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_json_get_str(variables, "now", &text));
    const char *end = strptime(text.data, "%Y-%m-%d %H:%M:%S", &parts);
    if (!end || *end != '\0') {
        return berth_json_fail(BERTH_INVALID_ARGUMENT, berth_json_find(variables, "now"),
                               "'" BERTH_STR_FMT "' is no time such as 2025-07-10 12:00:00",
                               BERTH_STR_ARG(text));
    }
    *out_now = (int64_t)mktime(&parts);
    return BERTH_OK;
}

static berth_status render(berth_session *session, const berth_json *variables, berth_text *text) {
    int64_t now = 0;
    BERTH_TRY(read_clock(variables, &now));
    BERTH_TRY(berth_chat_render(session->chat, variables, now, text));
    return berth_text_finish(text, NULL);
}

static berth_status put_rendered(berth_session *session, berth_str input) {
    berth_json *variables = NULL;
    berth_text text;
    BERTH_TRY(berth_json_parse(input, "standard input", NULL, &variables));
    berth_text_init(&text, BERTH_CHAT_TEXT_BYTES);
    const berth_status status = render(session, variables, &text);
    if (status == BERTH_OK) {
        put_out(session, berth_text_str(&text));
    }
    berth_text_deinit(&text);
    berth_json_destroy(variables);
    return status;
}

static berth_status run(berth_session *session) {
    const char *argument = berth_session_argument(session, 0);
    berth_text input;
    berth_text_init(&input, INPUT_LIMIT_BYTES);
    session->stage = BERTH_STAGE_REQUEST;
    berth_text_add_cstr(&input, argument ? argument : "");
    berth_status status = argument ? berth_text_finish(&input, NULL) : read_input(&input);
    if (status == BERTH_OK) {
        status = (session->config.is_template ? put_rendered
                  : session->config.is_ids    ? put_text
                                              : put_ids)(session, berth_text_str(&input));
    }
    berth_text_deinit(&input);
    return status;
}

static berth_status prepare(berth_session *session) {
    const berth_config *config = &session->config;
    if (config->is_template && (config->is_ids || config->is_special)) {
        return BERTH_FAIL(INVALID_ARGUMENT, "tokenize: --template goes with neither --ids nor "
                                            "--special");
    }
    session->stage = BERTH_STAGE_CHECKPOINT;
    if (config->is_template) {
        return berth_chat_open(config->model, &session->chat);
    }
    return berth_tokenizer_open(session->config.model, &session->tokenizer);
}

const berth_command berth_command_tokenize = {
    .name = "tokenize",
    .arguments = "[TEXT]",
    .help = "print the token ids of a text; with --ids the text of ids",
    .details =
        "Without TEXT standard input is read, byte for byte. Ids stand on one line with blanks\n"
        "between; several of them are one argument. --json prints {ids} or {text}.\n"
        "--template reads a JSON object, {messages, tools, add_generation_prompt, …}: what stands\n"
        "in it are the template's variables. `now` (\"2025-07-10 12:00:00\") is its clock.",
    .bit = BERTH_COMMAND_TOKENIZE,
    .max_arguments = 1,
    .needs = BERTH_STAGE_CONFIG,
    .flags = BERTH_CLI_MODEL,
    .prepare = prepare,
    .run = run,
};
