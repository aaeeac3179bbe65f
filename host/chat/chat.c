// SPDX-License-Identifier: Apache-2.0
// A checkpoint's template: found, parsed once, rendered as often as there are conversations.
#include "chat/chat.h"

#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "chat/evaluate.h"

#define ARENA_BLOCK  ((size_t)1 << 14)
#define TREE_BYTES   ((size_t)256 << 20) // of a parsed template
#define TEMPLATE     "chat_template.jinja"
#define CONFIG       "tokenizer_config.json"
#define DEFAULT_NAME "default"
#define TOOL_NAME    "tool_use"

struct berth_chat {
    berth_arena *arena; // owns this struct too
    berth_json *config; // tokenizer_config.json; NULL: there is none
    const char *name;   // of the file, for errors
    const berth_jinja_node *tree;
    const berth_jinja_node *tool_tree; // for conversations with tools; NULL: the other one
};

// ---- parsing ----

// "\r\n" and "\r" are newlines, and a single one at the end goes.
static berth_str normalize_lines(berth_arena *arena, berth_str source) {
    char *copy = berth_arena_alloc(arena, source.size + 1, 1);
    size_t size = 0;
    for (size_t i = 0; copy && i < source.size; ++i) {
        const bool is_return = source.data[i] == '\r';
        copy[size++] = is_return ? '\n' : source.data[i];
        i += is_return && i + 1 < source.size && source.data[i + 1] == '\n';
    }
    size -= size > 0 && copy[size - 1] == '\n';
    return (berth_str){.data = copy, .size = size};
}

static berth_status parse_tree(berth_chat *chat, berth_str source, const berth_jinja_node **out) {
    berth_jinja j = {.arena = chat->arena, .name = chat->name, .steps = BERTH_JINJA_STEPS};
    berth_jinja_node *tree;
    if (source.size > BERTH_CHAT_TEMPLATE_BYTES) {
        return BERTH_FAIL(CORRUPT, "%s: the chat template has %zu bytes, at most %zu can be read",
                          chat->name, source.size, BERTH_CHAT_TEMPLATE_BYTES);
    }
    if (berth_utf8_valid_bytes(source) < source.size) {
        return BERTH_FAIL(CORRUPT, "%s: the chat template is not UTF-8 at byte %zu", chat->name,
                          berth_utf8_valid_bytes(source));
    }
    const berth_str lines = normalize_lines(chat->arena, source);
    if (!lines.data) {
        return berth_arena_exhausted(chat->arena, "a chat template");
    }
    BERTH_TRY(berth_jinja_parse(&j, lines, &tree));
    *out = tree;
    return BERTH_OK;
}

static berth_status create(const char *name, berth_chat **out_chat) {
    berth_arena *arena;
    BERTH_TRY(berth_arena_create(ARENA_BLOCK, TREE_BYTES, &arena));
    berth_chat *chat = BERTH_ARENA_NEW(arena, berth_chat);
    const char *copy = berth_arena_strdup(arena, name);
    if (!chat || !copy) {
        const berth_status status = berth_arena_exhausted(arena, "a chat template");
        berth_arena_destroy(arena);
        return status;
    }
    *chat = (berth_chat){.arena = arena, .name = copy};
    *out_chat = chat;
    return BERTH_OK;
}

berth_status berth_chat_parse(berth_str source, const char *name, berth_chat **out_chat) {
    berth_chat *chat;
    *out_chat = NULL;
    BERTH_TRY(create(name, &chat));
    const berth_status status = parse_tree(chat, source, &chat->tree);
    if (status != BERTH_OK) {
        berth_chat_close(chat);
        return status;
    }
    *out_chat = chat;
    return BERTH_OK;
}

// ---- a checkpoint's files ----

static berth_status read_file(berth_chat *chat, const char *path) {
    char *data = NULL;
    size_t size = 0;
    chat->name = path;
    BERTH_TRY(berth_file_read(path, BERTH_CHAT_TEMPLATE_BYTES, &data, &size));
    const berth_status status =
        parse_tree(chat, (berth_str){.data = data, .size = size}, &chat->tree);
    berth_free(data);
    return status;
}

// A list of {name, template}: the two names that transformers knows are read.
static berth_status read_named(berth_chat *chat, const berth_json *list) {
    for (size_t i = 0; i < berth_json_size(list); ++i) {
        const berth_json *entry = berth_json_at(list, i);
        berth_str name, source;
        BERTH_TRY(berth_json_get_str(entry, "name", &name));
        BERTH_TRY(berth_json_get_str(entry, "template", &source));
        if (berth_str_equal_cstr(name, DEFAULT_NAME)) {
            BERTH_TRY(parse_tree(chat, source, &chat->tree));
        } else if (berth_str_equal_cstr(name, TOOL_NAME)) {
            BERTH_TRY(parse_tree(chat, source, &chat->tool_tree));
        }
    }
    if (!chat->tree) {
        return berth_json_fail(BERTH_UNSUPPORTED, list,
                               "there is no template named '" DEFAULT_NAME "' among these");
    }
    return BERTH_OK;
}

static berth_status read_config(berth_chat *chat) {
    const berth_json *template =
        chat->config ? berth_json_find(chat->config, "chat_template") : NULL;
    berth_str source;
    if (!template || berth_json_kind_of(template) == BERTH_JSON_NULL) {
        return BERTH_FAIL(NOT_FOUND,
                          "%s: there is no chat template: neither " TEMPLATE
                          " beside it nor a chat_template in it",
                          chat->name);
    }
    if (berth_json_kind_of(template) == BERTH_JSON_ARRAY) {
        return read_named(chat, template);
    }
    BERTH_TRY(berth_json_get_str(template, "", &source));
    return parse_tree(chat, source, &chat->tree);
}

static berth_status read_directory(berth_chat *chat, const char *directory) {
    const char *path = berth_path_join(chat->arena, directory, TEMPLATE);
    const char *config = berth_path_join(chat->arena, directory, CONFIG);
    if (!path || !config) {
        return berth_arena_exhausted(chat->arena, "the paths of a chat template");
    }
    if (berth_path_exists(config)) {
        BERTH_TRY(berth_json_load(config, NULL, &chat->config));
    }
    if (berth_path_exists(path)) {
        return read_file(chat, path);
    }
    chat->name = config;
    return read_config(chat);
}

berth_status berth_chat_open(const char *directory, berth_chat **out_chat) {
    berth_chat *chat;
    *out_chat = NULL;
    BERTH_TRY(create(directory, &chat));
    const berth_status status = read_directory(chat, directory);
    if (status != BERTH_OK) {
        berth_chat_close(chat);
        return status;
    }
    *out_chat = chat;
    return BERTH_OK;
}

void berth_chat_close(berth_chat *chat) {
    if (!chat) {
        return;
    }
    berth_json_destroy(chat->config);
    berth_arena_destroy(chat->arena);
}

// ---- rendering ----

// The tokens that tokenizer_config.json names, as their texts: "<s>" or {"content": "<s>"}.
static berth_status set_tokens(berth_jinja *j, const berth_json *config) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",  "pad_token",
                                        "sep_token", "cls_token", "mask_token", "image_token"};
    for (size_t i = 0; config && i < BERTH_COUNT(names); ++i) {
        const berth_json *token = berth_json_find(config, names[i]);
        const berth_json *content = token ? berth_json_find(token, "content") : NULL;
        berth_str text;
        if (token && berth_json_as_str(content ? content : token, &text)) {
            BERTH_TRY(berth_jinja_frame_set(j, j->frame, berth_str_from(names[i]),
                                            berth_jinja_str(text)));
        }
    }
    return BERTH_OK;
}

static berth_status set_variables(berth_jinja *j, const berth_json *variables) {
    for (size_t i = 0; i < berth_json_size(variables); ++i) {
        berth_jinja_value value;
        BERTH_TRY(berth_jinja_from_json(j, berth_json_at(variables, i), &value));
        BERTH_TRY(berth_jinja_frame_set(j, j->frame, berth_json_key_at(variables, i), value));
    }
    return BERTH_OK;
}

static bool has_tools(const berth_json *variables) {
    const berth_json *tools = berth_json_find(variables, "tools");
    return tools && berth_json_kind_of(tools) != BERTH_JSON_NULL;
}

// The variables are one scope, what the template sets is another inside of it.
static berth_status render(berth_jinja *j, const berth_chat *chat, const berth_json *variables) {
    const bool takes_tools = chat->tool_tree && has_tools(variables);
    BERTH_TRY(berth_jinja_frame_new(j, NULL, &j->frame));
    BERTH_TRY(set_tokens(j, chat->config));
    BERTH_TRY(set_variables(j, variables));
    BERTH_TRY(berth_jinja_frame_new(j, j->frame, &j->frame));
    return berth_jinja_execute(j, takes_tools ? chat->tool_tree : chat->tree);
}

berth_status berth_chat_render(const berth_chat *chat, const berth_json *variables, int64_t now,
                               berth_text *text) {
    berth_arena *arena;
    if (berth_json_kind_of(variables) != BERTH_JSON_OBJECT) {
        return berth_json_fail(BERTH_INVALID_ARGUMENT, variables,
                               "the variables of a chat template are an object, with messages");
    }
    BERTH_TRY(berth_arena_create(ARENA_BLOCK, BERTH_JINJA_BYTES, &arena));
    berth_jinja j = {
        .arena = arena,
        .name = chat->name,
        .steps = BERTH_JINJA_STEPS,
        .out = text,
        .now = now,
    };
    const berth_status status = render(&j, chat, variables);
    berth_arena_destroy(arena);
    return status;
}
