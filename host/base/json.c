// SPDX-License-Identifier: Apache-2.0
// Input: JSON text. Output: a tree in one arena. jansson decides what is JSON; its tree is then
// copied into ours and freed. Why a copy: our nodes know their parent and key, so that every
// failure can name the place, children are reached by index in constant time, and nobody else sees
// jansson.
#include "base/json.h"

#include <jansson.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/map.h"
#include "base/memory.h"

#define DEFAULT_BYTES ((size_t)64 << 20)
#define DEFAULT_DEPTH 64
#define MAX_DEPTH     512
#define FEW_MEMBERS   8 // up to so many are compared one by one

#define EXACT_INTEGERS 0x1p53 // a double holds every integer below

#define NUL_ESCAPE    "\\u0000"
#define STAND_IN      "\xF4\x8F\xBF\xBE" // U+10FFFE, for ever no character
#define STAND_IN_HIGH "\\udbff"          // how its escape begins

// The keys of a large object, kept in a list so that destroy finds them.
typedef struct key_index {
    berth_map map;
    struct key_index *next;
} key_index;

struct berth_json {
    const berth_json *parent; // NULL for the root
    uint32_t index;           // in the parent
    uint32_t size;            // of an array or object
    berth_json_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        berth_str string;
        struct {
            berth_json *items;
            berth_str *keys;  // of an object
            key_index *index; // of a large object
        } children;
    } as;
};

// How jansson could be brought to read a text.
typedef struct json_reading {
    bool has_wide_integers; // every integer came as a real
    bool has_stand_ins;     // every STAND_IN is a NUL
} json_reading;

// What destroy frees; the root is the first member, so that the one pointer leads to both.
typedef struct document {
    berth_json root;
    berth_arena *arena;
    const char *name;
    key_index *indices;
    uint32_t max_depth;
    json_reading reading;
} document;

// Why: jansson calls a failed allocation inside a string a syntax error; this tells them apart.
static _Thread_local bool ran_out_of_memory;

static void *allocate(size_t size) {
    void *block = berth_alloc(size);
    ran_out_of_memory = ran_out_of_memory || block == NULL;
    return block;
}

static void use_own_allocator(void) {
    json_set_alloc_funcs(allocate, berth_free);
}

static berth_status no_memory(const document *doc) {
    return BERTH_FAIL(OUT_OF_MEMORY, "%s: no memory for its content", doc->name);
}

// Puts NULs in place of their stand-ins; returns the bytes that are left.
static size_t restore_nuls(char *data, size_t size) {
    const size_t width = sizeof(STAND_IN) - 1;
    size_t kept = 0;
    for (size_t i = 0; i < size; ++i) {
        const bool is_nul = size - i >= width && memcmp(data + i, STAND_IN, width) == 0;
        data[kept++] = is_nul ? '\0' : data[i];
        i += is_nul ? width - 1 : 0;
    }
    data[kept] = '\0';
    return kept;
}

static berth_status copy_str(document *doc, const char *data, size_t size, berth_str *out_str) {
    char *copy = berth_arena_copy(doc->arena, (berth_str){.data = data, .size = size});
    if (copy == NULL) {
        return no_memory(doc);
    }
    size = doc->reading.has_stand_ins ? restore_nuls(copy, size) : size;
    *out_str = (berth_str){.data = copy, .size = size};
    return BERTH_OK;
}

static berth_status index_keys(document *doc, berth_json *object) {
    key_index *index = BERTH_ARENA_NEW(doc->arena, key_index);
    if (index == NULL) {
        return no_memory(doc);
    }
    index->next = doc->indices;
    doc->indices = index;
    object->as.children.index = index;
    BERTH_TRY(berth_map_reserve(&index->map, object->size));
    for (uint32_t i = 0; i < object->size; ++i) {
        BERTH_TRY(berth_map_add(&index->map, object->as.children.keys[i], i));
    }
    return BERTH_OK;
}

static berth_status copy_keys(document *doc, json_t *from, berth_json *to) {
    to->as.children.keys = BERTH_ARENA_ARRAY(doc->arena, berth_str, to->size);
    if (to->as.children.keys == NULL) {
        return no_memory(doc);
    }
    uint32_t i = 0;
    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *key = json_object_iter_key(at);
        BERTH_TRY(copy_str(doc, key, strlen(key), &to->as.children.keys[i++]));
    }
    return to->size > FEW_MEMBERS ? index_keys(doc, to) : BERTH_OK;
}

// Makes room for the children of an array or object and copies the keys.
static berth_status prepare_children(document *doc, json_t *from, uint32_t depth, berth_json *to) {
    const size_t size = json_is_array(from) ? json_array_size(from) : json_object_size(from);
    if (depth >= doc->max_depth) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: nested deeper than the limit of %" PRIu32 " levels",
                          doc->name, doc->max_depth);
    }
    to->as.children.items =
        size > UINT32_MAX / 2 ? NULL : BERTH_ARENA_ARRAY(doc->arena, berth_json, size);
    if (to->as.children.items == NULL) {
        return no_memory(doc);
    }
    to->size = (uint32_t)size;
    return json_is_array(from) ? BERTH_OK : copy_keys(doc, from, to);
}

static void copy_real(const document *doc, double real, berth_json *to) {
    to->kind = BERTH_JSON_REAL;
    to->as.real = real;
    if (doc->reading.has_wide_integers && fabs(real) < EXACT_INTEGERS && trunc(real) == real) {
        to->kind = BERTH_JSON_INTEGER;
        to->as.integer = (int64_t)real;
    }
}

// Copies a value, of an array or object all but its children.
static berth_status copy_value(document *doc, json_t *from, uint32_t depth, berth_json *to) {
    switch (json_typeof(from)) {
    case JSON_OBJECT:
        to->kind = BERTH_JSON_OBJECT;
        return prepare_children(doc, from, depth, to);
    case JSON_ARRAY:
        to->kind = BERTH_JSON_ARRAY;
        return prepare_children(doc, from, depth, to);
    case JSON_STRING:
        to->kind = BERTH_JSON_STRING;
        return copy_str(doc, json_string_value(from), json_string_length(from), &to->as.string);
    case JSON_INTEGER:
        to->kind = BERTH_JSON_INTEGER;
        to->as.integer = json_integer_value(from);
        return BERTH_OK;
    case JSON_REAL:
        copy_real(doc, json_real_value(from), to);
        return BERTH_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        to->kind = BERTH_JSON_BOOL;
        to->as.boolean = json_is_true(from);
        return BERTH_OK;
    case JSON_NULL:
        break;
    }
    return BERTH_OK;
}

// Recurses at most max_depth times.
static berth_status copy_tree(document *doc, json_t *from, uint32_t depth, berth_json *to) {
    BERTH_TRY(copy_value(doc, from, depth, to));
    const bool is_object = to->kind == BERTH_JSON_OBJECT;
    void *at = is_object ? json_object_iter(from) : NULL;
    for (uint32_t i = 0; i < to->size; ++i) {
        json_t *child = is_object ? json_object_iter_value(at) : json_array_get(from, i);
        berth_json *item = &to->as.children.items[i];
        item->parent = to;
        item->index = i;
        BERTH_TRY(copy_tree(doc, child, depth + 1, item));
        at = is_object ? json_object_iter_next(from, at) : NULL;
    }
    return BERTH_OK;
}

static berth_status syntax_failure(const char *name, const json_error_t *error) {
    if (ran_out_of_memory) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: no memory for its content", name);
    }
    if (json_error_code(error) == json_error_stack_overflow) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s:%d:%d: nested deeper than the limit", name,
                          error->line, error->column);
    }
    return BERTH_FAIL(CORRUPT, "%s:%d:%d: not valid JSON: %s", name, error->line, error->column,
                      error->text);
}

static berth_status create_document(const char *name, uint32_t max_depth, document **out_doc) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(4096, SIZE_MAX, &arena));
    document *doc = BERTH_ARENA_NEW(arena, document);
    const char *own_name = berth_arena_strdup(arena, name);
    if (doc == NULL || own_name == NULL) {
        const berth_status status = berth_arena_exhausted(arena, "a JSON document");
        berth_arena_destroy(arena);
        return status;
    }
    doc->arena = arena;
    doc->name = own_name;
    doc->max_depth = max_depth;
    *out_doc = doc;
    return BERTH_OK;
}

static berth_json_limits with_defaults(const berth_json_limits *limits) {
    berth_json_limits result = limits == NULL ? (berth_json_limits){0} : *limits;
    result.bytes = result.bytes == 0 ? DEFAULT_BYTES : result.bytes;
    result.depth = result.depth == 0 ? DEFAULT_DEPTH : result.depth;
    assert(result.depth <= MAX_DEPTH);
    return result;
}

// A copy of the text in which STAND_IN stands for every escaped NUL; NULL: the text has one itself,
// or there is no memory. berth_free it.
static char *replace_nuls(berth_str text, size_t *out_size) {
    const size_t width = sizeof(NUL_ESCAPE) - 1;
    const bool is_taken = memmem(text.data, text.size, STAND_IN, sizeof(STAND_IN) - 1) != NULL;
    char *copy = is_taken ? NULL : allocate(text.size + 1);
    size_t size = 0;
    for (size_t i = 0; copy != NULL && i < text.size; ++i) {
        const berth_str rest = berth_str_slice(text, i, width);
        if (rest.size == width && strncasecmp(rest.data, STAND_IN_HIGH, width) == 0) {
            berth_free(copy);
            return NULL;
        }
        if (berth_str_equal_cstr(rest, NUL_ESCAPE)) {
            memcpy(copy + size, STAND_IN, sizeof(STAND_IN) - 1);
            size += sizeof(STAND_IN) - 1;
            i += width - 1;
            continue;
        }
        copy[size++] = text.data[i];
        if (text.data[i] == '\\' && i + 1 < text.size) {
            copy[size++] = text.data[++i]; // an escape of two bytes, which may be a backslash
        }
    }
    *out_size = size;
    return copy;
}

// Why twice: jansson refuses an integer beyond 64 bits, and nearly every tokenizer_config.json has
// one (1e30, written out). The second time integers are read as reals; copy_real turns back those
// that it can.
static json_t *load_tree(berth_str text, json_error_t *error, json_reading *reading) {
    const char *data = text.data == NULL ? "" : text.data;
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *tree = json_loadb(data, text.size, flags, error);
    reading->has_wide_integers =
        tree == NULL && json_error_code(error) == json_error_numeric_overflow;
    if (reading->has_wide_integers) {
        tree = json_loadb(data, text.size, flags | JSON_DECODE_INT_AS_REAL, error);
    }
    return tree;
}

// Why once more: jansson refuses a key with a NUL in it, which JSON allows.
static json_t *load_any_tree(berth_str text, json_error_t *error, json_reading *reading) {
    json_t *tree = load_tree(text, error, reading);
    if (tree != NULL || json_error_code(error) != json_error_null_byte_in_key) {
        return tree;
    }
    berth_str replaced = {0};
    char *copy = replace_nuls(text, &replaced.size);
    if (copy != NULL) {
        replaced.data = copy;
        reading->has_stand_ins = true;
        tree = load_tree(replaced, error, reading);
    }
    berth_free(copy);
    return tree;
}

static berth_status parse_text(berth_str text, const char *name, json_t **out_tree,
                               json_reading *out_reading) {
    // Why: jansson skips a NUL that follows a number.
    const char *nul = text.size == 0 ? NULL : memchr(text.data, '\0', text.size);
    if (nul != NULL) {
        return BERTH_FAIL(CORRUPT, "%s: not valid JSON: a NUL byte at offset %zu", name,
                          (size_t)(nul - text.data));
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_own_allocator);
    ran_out_of_memory = false;
    json_error_t error;
    *out_tree = load_any_tree(text, &error, out_reading);
    if (*out_tree != NULL && ran_out_of_memory) {
        // Why: jansson drops the bytes of a string that it had no memory for, and goes on.
        json_decref(*out_tree);
        *out_tree = NULL;
    }
    return *out_tree == NULL ? syntax_failure(name, &error) : BERTH_OK;
}

berth_status berth_json_parse(berth_str text, const char *name, const berth_json_limits *limits,
                              berth_json **out_root) {
    const berth_json_limits limit = with_defaults(limits);
    if (text.size > limit.bytes) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: has %zu bytes, the limit is %zu", name, text.size,
                          limit.bytes);
    }
    json_t *tree = NULL;
    json_reading reading = {0};
    BERTH_TRY(parse_text(text, name, &tree, &reading));
    document *doc = NULL;
    berth_status status = create_document(name, limit.depth, &doc);
    if (status == BERTH_OK) {
        doc->reading = reading;
        status = copy_tree(doc, tree, 0, &doc->root);
    }
    json_decref(tree);
    if (status != BERTH_OK) {
        berth_json_destroy(doc == NULL ? NULL : &doc->root);
        return status;
    }
    *out_root = &doc->root;
    return BERTH_OK;
}

berth_status berth_json_load(const char *path, const berth_json_limits *limits,
                             berth_json **out_root) {
    char *data = NULL;
    size_t size = 0;
    BERTH_TRY(berth_file_read(path, with_defaults(limits).bytes, &data, &size));
    const berth_status status =
        berth_json_parse((berth_str){.data = data, .size = size}, path, limits, out_root);
    berth_free(data);
    return status;
}

void berth_json_destroy(berth_json *root) {
    if (root == NULL) {
        return;
    }
    document *doc = (document *)root;
    for (key_index *index = doc->indices; index != NULL; index = index->next) {
        berth_map_deinit(&index->map);
    }
    berth_arena_destroy(doc->arena);
}

const berth_json *berth_json_member(const berth_json *node, berth_str key) {
    if (node->kind != BERTH_JSON_OBJECT) {
        return NULL;
    }
    if (node->as.children.index != NULL) {
        const uint32_t *found = berth_map_find(&node->as.children.index->map, key);
        return found == NULL ? NULL : &node->as.children.items[*found];
    }
    for (uint32_t i = 0; i < node->size; ++i) {
        if (berth_str_equal(node->as.children.keys[i], key)) {
            return &node->as.children.items[i];
        }
    }
    return NULL;
}

static bool parse_index(berth_str piece, size_t *out_index) {
    size_t index = 0;
    for (size_t i = 0; i < piece.size; ++i) {
        if (piece.data[i] < '0' || piece.data[i] > '9' || i > 9) {
            return false;
        }
        index = index * 10 + (size_t)(piece.data[i] - '0');
    }
    *out_index = index;
    return piece.size > 0;
}

const berth_json *berth_json_find(const berth_json *node, const char *path) {
    berth_str rest = path[0] == '\0' ? (berth_str){0} : berth_str_from(path);
    const berth_json *found = node;
    for (berth_str piece; found != NULL && berth_str_split_first(&rest, '.', &piece);) {
        size_t index = 0;
        if (found->kind == BERTH_JSON_ARRAY) {
            const bool is_there = parse_index(piece, &index) && index < found->size;
            found = is_there ? &found->as.children.items[index] : NULL;
        } else {
            found = berth_json_member(found, piece);
        }
    }
    return found;
}

bool berth_json_has(const berth_json *node, const char *path) {
    const berth_json *found = berth_json_find(node, path);
    return found != NULL && found->kind != BERTH_JSON_NULL;
}

berth_json_kind berth_json_kind_of(const berth_json *node) {
    return node->kind;
}

const char *berth_json_kind_name(berth_json_kind kind) {
    static const char *const names[] = {
        [BERTH_JSON_NULL] = "null",          [BERTH_JSON_BOOL] = "true or false",
        [BERTH_JSON_INTEGER] = "an integer", [BERTH_JSON_REAL] = "a number",
        [BERTH_JSON_STRING] = "a string",    [BERTH_JSON_ARRAY] = "an array",
        [BERTH_JSON_OBJECT] = "an object",
    };
    return names[kind];
}

size_t berth_json_size(const berth_json *node) {
    return node->size;
}

const berth_json *berth_json_at(const berth_json *node, size_t index) {
    assert(index < node->size);
    return &node->as.children.items[index];
}

berth_str berth_json_key_at(const berth_json *node, size_t index) {
    assert(node->kind == BERTH_JSON_OBJECT && index < node->size);
    return node->as.children.keys[index];
}

const char *berth_json_file(const berth_json *node) {
    while (node->parent != NULL) {
        node = node->parent;
    }
    return ((const document *)node)->name;
}

bool berth_json_as_i64(const berth_json *node, int64_t *out_value) {
    if (node->kind != BERTH_JSON_INTEGER) {
        return false;
    }
    *out_value = node->as.integer;
    return true;
}

bool berth_json_as_f64(const berth_json *node, double *out_value) {
    if (node->kind != BERTH_JSON_INTEGER && node->kind != BERTH_JSON_REAL) {
        return false;
    }
    *out_value = node->kind == BERTH_JSON_REAL ? node->as.real : (double)node->as.integer;
    return true;
}

bool berth_json_as_bool(const berth_json *node, bool *out_value) {
    if (node->kind != BERTH_JSON_BOOL) {
        return false;
    }
    *out_value = node->as.boolean;
    return true;
}

bool berth_json_as_str(const berth_json *node, berth_str *out_value) {
    if (node->kind != BERTH_JSON_STRING) {
        return false;
    }
    *out_value = node->as.string;
    return true;
}

const char *berth_json_place(const berth_json *node, char *buffer, size_t size) {
    const berth_json *chain[MAX_DEPTH + 1];
    size_t depth = 0;
    for (; node->parent != NULL; node = node->parent) {
        chain[depth++] = node;
    }
    size_t used = 0;
    buffer[0] = '\0';
    while (depth-- > 0 && used < size) {
        const berth_json *step = chain[depth];
        const char *dot = used == 0 ? "" : ".";
        int added = 0;
        if (step->parent->kind == BERTH_JSON_OBJECT) {
            const berth_str key = step->parent->as.children.keys[step->index];
            added =
                snprintf(buffer + used, size - used, "%s" BERTH_STR_FMT, dot, BERTH_STR_ARG(key));
        } else {
            added = snprintf(buffer + used, size - used, "%s%" PRIu32, dot, step->index);
        }
        used += added < 0 ? 0 : (size_t)added;
    }
    return buffer;
}
