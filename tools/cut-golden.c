// SPDX-License-Identifier: Apache-2.0
// Cuts one golden file down to a size for the repository. A case is kept when it has a feature that
// no kept one has: a class, an attribute's value, an input, a dtype, or a word of its name; small
// cases are asked first, and cases are no longer kept when the file is full. Values in float64,
// which only measure errors, are left out. Run it by tools/cut-golden.
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL_BYTES ((size_t)72 << 10) // of tensors in a file
#define CASE_BYTES ((size_t)32 << 10) // of one case
#define TEXT_BYTES 1024

typedef struct golden {
    json_t *root;
    json_t *header; // of the safetensors file
    char *data;     // behind the header
} golden;

typedef struct sized_case {
    json_t *json;
    size_t index;
    size_t bytes;
} sized_case;

static _Noreturn void stop(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("cut-golden: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

// ---- reading ------------------------------------------------------------------------------------

static char *read_file(const char *path, size_t *out_size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        stop("%s cannot be read", path);
    }
    *out_size = (size_t)ftell(file);
    char *data = malloc(*out_size + 1);
    rewind(file);
    if (data == NULL || fread(data, 1, *out_size, file) != *out_size) {
        stop("%s cannot be read", path);
    }
    fclose(file);
    return data;
}

static void open_golden(const char *folder, const char *name, golden *out) {
    char path[TEXT_BYTES];
    json_error_t error;
    size_t size = 0;
    uint64_t header_bytes = 0;
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    out->root = json_load_file(path, 0, &error);
    if (out->root == NULL) {
        stop("%s:%d: %s", path, error.line, error.text);
    }
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    char *data = read_file(path, &size);
    memcpy(&header_bytes, data, sizeof header_bytes);
    out->header = json_loadb(data + sizeof header_bytes, header_bytes, 0, &error);
    out->data = data + sizeof header_bytes + header_bytes;
    if (out->header == NULL) {
        stop("%s: %s", path, error.text);
    }
}

// ---- which cases --------------------------------------------------------------------------------

static const json_t *entry_of(const golden *file, const json_t *key) {
    const json_t *entry = json_object_get(file->header, json_string_value(key));
    if (entry == NULL) {
        stop("no tensor '%s'", json_string_value(key));
    }
    return entry;
}

static size_t bytes_of(const json_t *entry) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    return (size_t)(json_integer_value(json_array_get(offsets, 1)) -
                    json_integer_value(json_array_get(offsets, 0)));
}

static size_t bytes_of_group(const golden *file, json_t *names) {
    const char *name = NULL;
    json_t *key = NULL;
    size_t bytes = 0;
    json_object_foreach(names, name, key) {
        bytes += bytes_of(entry_of(file, key));
    }
    return bytes;
}

static int by_size(const void *a, const void *b) {
    const sized_case *x = a;
    const sized_case *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->index > y->index) - (x->index < y->index);
}

static int by_index(const void *a, const void *b) {
    const sized_case *x = a;
    const sized_case *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

static int is_new(json_t *seen, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const int is_known = json_object_get(seen, text) != NULL;
    json_object_set_new(seen, text, json_true());
    return !is_known;
}

static int has_new_words(json_t *seen, const char *name) {
    char text[TEXT_BYTES];
    char *rest = NULL;
    int is_any = 0;
    snprintf(text, sizeof text, "%s", name);
    for (char *word = strtok_r(text, "-", &rest); word; word = strtok_r(NULL, "-", &rest)) {
        if (strpbrk(word, "0123456789") == NULL) {
            is_any |= is_new(seen, "word %s", word);
        }
    }
    return is_any;
}

static int has_new_feature(const golden *file, json_t *seen, json_t *json) {
    const char *name = NULL;
    json_t *value = NULL;
    const json_t *class_name = json_object_get(json, "class");
    int is_any = has_new_words(seen, json_string_value(json_object_get(json, "name")));
    is_any |= is_new(seen, "class %s", class_name ? json_string_value(class_name) : "");
    json_object_foreach(json_object_get(json, "attributes"), name, value) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
        is_any |= is_new(seen, "attribute %s %s", name, text);
        free(text);
    }
    json_object_foreach(json_object_get(json, "inputs"), name, value) {
        const json_t *dtype = json_object_get(entry_of(file, value), "dtype");
        is_any |= is_new(seen, "input %s %s", name, json_string_value(dtype));
    }
    return is_any;
}

// The kept ones of `cases` come first; returns how many.
static size_t choose(const golden *file, sized_case *cases, size_t count) {
    json_t *seen = json_object();
    size_t kept = 0;
    size_t bytes = 0;
    qsort(cases, count, sizeof *cases, by_size);
    for (size_t i = 0; i < count && cases[i].bytes <= CASE_BYTES; ++i) {
        if (bytes + cases[i].bytes <= FULL_BYTES && has_new_feature(file, seen, cases[i].json)) {
            bytes += cases[i].bytes;
            const sized_case one = cases[kept];
            cases[kept++] = cases[i];
            cases[i] = one;
        }
    }
    json_decref(seen);
    qsort(cases, kept, sizeof *cases, by_index);
    return kept;
}

// ---- writing ------------------------------------------------------------------------------------

typedef struct writing {
    const golden *file;
    json_t *header;
    char *data;
    size_t bytes;
} writing;

static void add_group(writing *out, json_t *names) {
    const char *name = NULL;
    json_t *key = NULL;
    json_object_foreach(names, name, key) {
        const json_t *entry = entry_of(out->file, key);
        const size_t bytes = bytes_of(entry);
        const json_t *offsets = json_object_get(entry, "data_offsets");
        const size_t from = (size_t)json_integer_value(json_array_get(offsets, 0));
        if (json_object_get(out->header, json_string_value(key)) != NULL) {
            continue;
        }
        json_t *copy = json_deep_copy(entry);
        json_object_set_new(
            copy, "data_offsets",
            json_pack("[I,I]", (json_int_t)out->bytes, (json_int_t)(out->bytes + bytes)));
        json_object_set_new(out->header, json_string_value(key), copy);
        out->data = realloc(out->data, out->bytes + bytes + 1);
        memcpy(out->data + out->bytes, out->file->data + from, bytes);
        out->bytes += bytes;
    }
}

static void write_tensors(const writing *out, const char *path) {
    FILE *file = fopen(path, "wb");
    char *text = json_dumps(out->header, JSON_COMPACT);
    const size_t length = strlen(text);
    const uint64_t padded = (length + 7) / 8 * 8;
    if (file == NULL || fwrite(&padded, sizeof padded, 1, file) != 1) {
        stop("%s cannot be written", path);
    }
    fprintf(file, "%s%*s", text, (int)(padded - length), "");
    if (fwrite(out->data, 1, out->bytes, file) != out->bytes || fclose(file) != 0) {
        stop("%s cannot be written", path);
    }
    free(text);
}

// The list of cases on one line each.
static void write_json(json_t *root, const char *path) {
    const char *key = NULL;
    json_t *value = NULL;
    int is_first = 1;
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        stop("%s cannot be written", path);
    }
    fputs("{", file);
    json_object_foreach(root, key, value) {
        fprintf(file, "%s\n  \"%s\": ", is_first ? "" : ",", key);
        is_first = 0;
        if (strcmp(key, "cases") != 0) {
            json_dumpf(value, file, JSON_ENCODE_ANY | JSON_COMPACT);
            continue;
        }
        for (size_t i = 0; i < json_array_size(value); ++i) {
            fputs(i == 0 ? "[\n    " : ",\n    ", file);
            json_dumpf(json_array_get(value, i), file, JSON_COMPACT);
        }
        fputs("\n  ]", file);
    }
    fputs("\n}\n", file);
    if (fclose(file) != 0) {
        stop("%s cannot be written", path);
    }
}

static void cut(golden *file, const char *folder, const char *name) {
    char path[TEXT_BYTES];
    json_t *all = json_object_get(file->root, "cases");
    const size_t count = json_array_size(all);
    sized_case *cases = calloc(count + 1, sizeof *cases);
    writing out = {.file = file, .header = json_object()};
    json_t *kept = json_array();
    for (size_t i = 0; i < count; ++i) {
        json_t *json = json_array_get(all, i);
        json_object_del(json, "f64");
        cases[i] = (sized_case){.json = json, .index = i};
        cases[i].bytes = bytes_of_group(file, json_object_get(json, "inputs")) +
                         bytes_of_group(file, json_object_get(json, "outputs"));
    }
    const size_t kept_count = choose(file, cases, count);
    for (size_t i = 0; i < kept_count; ++i) {
        json_array_append(kept, cases[i].json);
        add_group(&out, json_object_get(cases[i].json, "inputs"));
        add_group(&out, json_object_get(cases[i].json, "outputs"));
    }
    json_object_set_new(file->root, "cases", kept);
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    write_tensors(&out, path);
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    write_json(file->root, path);
    printf("%s: %zu of %zu cases, %zu bytes\n", name, kept_count, count, out.bytes);
}

int main(int argc, char **argv) {
    golden file;
    if (argc != 4) {
        stop("FROM TO NAME");
    }
    open_golden(argv[1], argv[3], &file);
    cut(&file, argv[2], argv[3]);
    return 0;
}
