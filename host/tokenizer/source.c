// SPDX-License-Identifier: Apache-2.0
// Loading. A checkpoint without tokenizer.json names a class in its tokenizer_config.json, and the
// class knows what a tokenizer.json would say besides the vocabulary and the merges.
#include "tokenizer/source.h"

#include "base/arena.h"
#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "tokenizer/sentencepiece.h"

#define PATHS_BYTES  ((size_t)1 << 16)
#define CLASS_BYTES  4096
#define MERGES_BYTES ((size_t)1 << 26) // of merges.txt, and of its lines as JSON
#define MODEL_BYTES  ((size_t)1 << 26) // of tokenizer.model
#define FAST_SUFFIX  "Fast"            // of the class that reads tokenizer.json; it means the same

// bos_token and eos_token stand for what tokenizer_config.json leaves out, not for what is null
// there. %s is add_prefix_space.
static const struct {
    const char *name, *file;
} classes[] = {
    {
     .name = "GPT2Tokenizer",
     .file = "{\"model\":{},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s},"
                "\"decoder\":{\"type\":\"ByteLevel\"},"
                "\"bos_token\":\"<|endoftext|>\",\"eos_token\":\"<|endoftext|>\"}", },
    {
     .name = "Qwen2Tokenizer",
     .file = "{\"model\":{},\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":"
                "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\","
                "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
                "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|"
                " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
                "\\\\s+\"}},{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":false}]},"
                "\"decoder\":{\"type\":\"ByteLevel\"},\"eos_token\":\"<|endoftext|>\"}", },
};

// ---- the files of a class ----

// The class that a checkpoint names, empty when it names none.
static berth_status read_class(const berth_json *config, berth_str *out_name) {
    *out_name = BERTH_STR("");
    if (!config || !berth_json_has(config, "tokenizer_class")) {
        return BERTH_OK;
    }
    const berth_json *value = berth_json_find(config, "tokenizer_class");
    if (!berth_json_as_str(value, out_name)) {
        return berth_json_fail(BERTH_CORRUPT, value, "needs the name of a class");
    }
    if (berth_str_ends_with(*out_name, BERTH_STR(FAST_SUFFIX))) {
        out_name->size -= sizeof(FAST_SUFFIX) - 1;
    }
    return BERTH_OK;
}

static berth_status find_class(const berth_json *config, const char *directory,
                               const char **out_file) {
    berth_str name;
    *out_file = NULL;
    BERTH_TRY(read_class(config, &name));
    for (size_t i = 0; i < BERTH_COUNT(classes); ++i) {
        if (berth_str_equal_cstr(name, classes[i].name)) {
            *out_file = classes[i].file;
            return BERTH_OK;
        }
    }
    return BERTH_FAIL(UNSUPPORTED,
                      "%s: tokenizer class '" BERTH_STR_FMT "' of tokenizer_config.json is not "
                      "supported without a tokenizer.json: GPT2Tokenizer and Qwen2Tokenizer are",
                      directory, BERTH_STR_ARG(name));
}

static berth_status read_prefix(const berth_json *config, bool *out_has_prefix) {
    *out_has_prefix = false;
    if (!berth_json_has(config, "add_prefix_space")) {
        return BERTH_OK;
    }
    const berth_json *value = berth_json_find(config, "add_prefix_space");
    return berth_json_as_bool(value, out_has_prefix)
               ? BERTH_OK
               : berth_json_fail(BERTH_CORRUPT, value, "needs true or false");
}

static berth_status make_file(berth_source *source, const char *directory) {
    const char *format;
    bool has_prefix;
    BERTH_TRY(find_class(source->config, directory, &format));
    BERTH_TRY(read_prefix(source->config, &has_prefix));
    berth_text text;
    berth_text_init(&text, CLASS_BYTES);
    berth_text_add_format(&text, format, has_prefix ? "true" : "false");
    berth_status status = berth_text_finish(&text, NULL);
    if (status == BERTH_OK) {
        status = berth_json_parse(berth_text_str(&text), "tokenizer class", NULL, &source->file);
    }
    berth_text_deinit(&text);
    return status;
}

// The lines as a JSON array of strings, without empty ones.
static void print_lines(berth_str lines, berth_text *out) {
    const char *separator = "[\"";
    for (berth_str line; berth_str_split_first(&lines, '\n', &line);) {
        if (berth_str_ends_with(line, BERTH_STR("\r"))) {
            --line.size;
        }
        if (line.size > 0) {
            berth_text_add_cstr(out, separator);
            berth_text_add_json(out, line);
            separator = "\",\"";
        }
    }
    berth_text_add_cstr(out, separator[0] == '[' ? "[]" : "\"]");
}

static berth_status load_merges(const char *path, berth_json **out_merges) {
    char *data;
    size_t size;
    berth_text text;
    berth_text_init(&text, MERGES_BYTES);
    BERTH_TRY(berth_file_read(path, MERGES_BYTES, &data, &size));
    print_lines((berth_str){.data = data, .size = size}, &text);
    berth_free(data);
    berth_status status = berth_text_finish(&text, NULL);
    if (status == BERTH_OK) {
        status = berth_json_parse(berth_text_str(&text), path, NULL, out_merges);
    }
    berth_text_deinit(&text);
    return status;
}

// ---- the files of a checkpoint ----

typedef struct paths {
    const char *file, *model, *config, *vocab, *merges;
} paths;

static berth_status load_model(berth_source *source, const char *path) {
    char *data;
    size_t size;
    BERTH_TRY(berth_file_read(path, MODEL_BYTES, &data, &size));
    const berth_status status = berth_sentencepiece_read((berth_str){.data = data, .size = size},
                                                         path, source->config, &source->file);
    berth_free(data);
    return status;
}

static berth_status load_files(berth_source *source, const char *directory, const paths *p) {
    const bool has_file = berth_path_exists(p->file);
    const bool has_model = berth_path_exists(p->model);
    if (!has_file && !has_model && !berth_path_exists(p->vocab)) {
        return BERTH_FAIL(NOT_FOUND,
                          "no tokenizer: neither %s nor tokenizer.model nor vocab.json exists; "
                          "save the checkpoint with its tokenizer.json",
                          p->file);
    }
    if (berth_path_exists(p->config)) {
        BERTH_TRY(berth_json_load(p->config, NULL, &source->config));
    }
    if (has_file) {
        return berth_json_load(p->file, NULL, &source->file);
    }
    source->is_made = true;
    if (has_model) {
        return load_model(source, p->model);
    }
    BERTH_TRY(make_file(source, directory));
    BERTH_TRY(berth_json_load(p->vocab, NULL, &source->vocab));
    return load_merges(p->merges, &source->merges);
}

berth_status berth_source_load(berth_source *source, const char *directory) {
    berth_arena *arena;
    BERTH_TRY(berth_arena_create(PATHS_BYTES, 2 * PATHS_BYTES, &arena));
    const paths p = {
        .file = berth_path_join(arena, directory, "tokenizer.json"),
        .model = berth_path_join(arena, directory, "tokenizer.model"),
        .config = berth_path_join(arena, directory, "tokenizer_config.json"),
        .vocab = berth_path_join(arena, directory, "vocab.json"),
        .merges = berth_path_join(arena, directory, "merges.txt"),
    };
    const bool is_whole = p.file && p.model && p.config && p.vocab && p.merges;
    const berth_status status =
        is_whole ? load_files(source, directory, &p) : berth_arena_exhausted(arena, "paths");
    berth_arena_destroy(arena);
    return status;
}

void berth_source_deinit(berth_source *source) {
    berth_json_destroy(source->file);
    berth_json_destroy(source->config);
    berth_json_destroy(source->vocab);
    berth_json_destroy(source->merges);
}
