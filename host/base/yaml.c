// SPDX-License-Identifier: Apache-2.0
// Input: YAML text, possibly hostile. Output: a tree in one arena. libyaml's events are taken one
// by one and checked before anything is built, because its own document loader accepts duplicate
// keys and has no limit on depth (200,000 nested "[" take it minutes).
#include "base/yaml.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include <yaml.h>

#include "base/file.h"
#include "base/memory.h"

#define DEFAULT_BYTES ((size_t)64 << 10)
#define DEFAULT_DEPTH 16
#define DEFAULT_NODES 1000
#define MAX_DEPTH     64

struct berth_yaml {
    const berth_yaml *parent; // NULL for the root
    berth_str key;            // of a mapping's member
    berth_str text;           // of a scalar
    berth_yaml *next;         // the parent's next child, while the tree is being built
    berth_yaml **items;       // of a sequence or mapping
    uint32_t size;            // of items
    uint32_t index;           // in the parent
    uint32_t line;
    uint32_t column;
    berth_yaml_kind kind;
    bool is_quoted;
};

// What destroy frees; the root is the first member, so that the one pointer leads to both.
typedef struct document {
    berth_yaml root;
    berth_arena *arena;
    const char *name;
} document;

// Lives while one text is read.
typedef struct reader {
    yaml_parser_t parser;
    document *doc;
    berth_yaml_limits limits;
    uint32_t nodes;
} reader;

static berth_status no_memory(const reader *in) {
    return BERTH_FAIL(OUT_OF_MEMORY, "%s: no memory for its content", in->doc->name);
}

static berth_status refuse(const reader *in, const yaml_event_t *event, const char *why) {
    return BERTH_FAIL(CORRUPT, "%s:%zu:%zu: %s", in->doc->name, event->start_mark.line + 1,
                      event->start_mark.column + 1, why);
}

static berth_status syntax_failure(const reader *in) {
    const yaml_parser_t *parser = &in->parser;
    if (parser->error == YAML_MEMORY_ERROR) {
        return no_memory(in);
    }
    // Errors of the byte decoder have no mark of their own; the parser has come as far as its mark.
    const yaml_mark_t mark =
        parser->error == YAML_READER_ERROR ? parser->mark : parser->problem_mark;
    return BERTH_FAIL(CORRUPT, "%s:%zu:%zu: not valid YAML: %s%s%s", in->doc->name, mark.line + 1,
                      mark.column + 1, parser->problem == NULL ? "unreadable" : parser->problem,
                      parser->context == NULL ? "" : " ",
                      parser->context == NULL ? "" : parser->context);
}

// The next event; the caller deletes it.
static berth_status next_event(reader *in, yaml_event_t *out_event) {
    return yaml_parser_parse(&in->parser, out_event) ? BERTH_OK : syntax_failure(in);
}

// Why: anchors and tags change what a value means, and nobody who writes a manifest needs them.
static berth_status check_plain(const reader *in, const yaml_event_t *event,
                                const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor != NULL) {
        return refuse(in, event, "anchors are not allowed; write the value out");
    }
    if (tag != NULL) {
        return refuse(in, event, "tags are not allowed; leave '!' away or quote the text");
    }
    return BERTH_OK;
}

static berth_status check_event(const reader *in, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return check_plain(in, event, event->data.scalar.anchor, event->data.scalar.tag);
    case YAML_SEQUENCE_START_EVENT:
        return check_plain(in, event, event->data.sequence_start.anchor,
                           event->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return check_plain(in, event, event->data.mapping_start.anchor,
                           event->data.mapping_start.tag);
    case YAML_ALIAS_EVENT:
        return refuse(in, event, "aliases are not allowed; write the value out");
    default:
        return BERTH_OK;
    }
}

static berth_status count_node(reader *in, const yaml_event_t *event) {
    if (++in->nodes > in->limits.nodes) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s:%zu:%zu: more than the limit of %" PRIu32 " values",
                          in->doc->name, event->start_mark.line + 1, event->start_mark.column + 1,
                          in->limits.nodes);
    }
    return check_event(in, event);
}

static berth_status copy_scalar(reader *in, const yaml_event_t *event, berth_str *out_text) {
    const char *value = (const char *)event->data.scalar.value;
    const size_t size = event->data.scalar.length;
    if (memchr(value, '\0', size) != NULL) {
        return refuse(in, event, "a NUL character is not allowed");
    }
    const char *copy = berth_arena_copy(in->doc->arena, (berth_str){.data = value, .size = size});
    if (copy == NULL) {
        return no_memory(in);
    }
    *out_text = (berth_str){.data = copy, .size = size};
    return BERTH_OK;
}

// Reads a mapping's key and puts it into `child`.
static berth_status read_key(reader *in, const yaml_event_t *event, const berth_yaml *first,
                             berth_yaml *child) {
    BERTH_TRY(count_node(in, event));
    if (event->type != YAML_SCALAR_EVENT) {
        return refuse(in, event, "a key must be a text");
    }
    BERTH_TRY(copy_scalar(in, event, &child->key));
    child->line = (uint32_t)event->start_mark.line + 1;
    child->column = (uint32_t)event->start_mark.column + 1;
    for (const berth_yaml *other = first; other != NULL; other = other->next) {
        if (berth_str_equal(other->key, child->key)) {
            return BERTH_FAIL(CORRUPT,
                              "%s:%" PRIu32 ":%" PRIu32 ": " BERTH_STR_FMT
                              ": the key is there twice, first in line %" PRIu32,
                              in->doc->name, child->line, child->column, BERTH_STR_ARG(child->key),
                              other->line);
        }
    }
    return BERTH_OK;
}

static berth_status collect_items(reader *in, berth_yaml *node, berth_yaml *first) {
    node->items = BERTH_ARENA_ARRAY(in->doc->arena, berth_yaml *, node->size);
    if (node->items == NULL) {
        return no_memory(in);
    }
    uint32_t index = 0;
    for (berth_yaml *child = first; child != NULL; child = child->next) {
        child->index = index;
        node->items[index++] = child;
    }
    return BERTH_OK;
}

// Fills a scalar, or starts a sequence or mapping, from its first event.
static berth_status begin_node(reader *in, const yaml_event_t *event, uint32_t depth,
                               berth_yaml *node) {
    BERTH_TRY(count_node(in, event));
    if (node->line == 0) { // else the key has given the place
        node->line = (uint32_t)event->start_mark.line + 1;
        node->column = (uint32_t)event->start_mark.column + 1;
    }
    if (event->type == YAML_SCALAR_EVENT) {
        node->kind = BERTH_YAML_SCALAR;
        node->is_quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        return copy_scalar(in, event, &node->text);
    }
    node->kind = event->type == YAML_MAPPING_START_EVENT ? BERTH_YAML_MAPPING : BERTH_YAML_SEQUENCE;
    if (depth >= in->limits.depth) {
        return BERTH_FAIL(OUT_OF_MEMORY,
                          "%s:%zu:%zu: nested deeper than the limit of %" PRIu32 " levels",
                          in->doc->name, event->start_mark.line + 1, event->start_mark.column + 1,
                          in->limits.depth);
    }
    return BERTH_OK;
}

// Adds the child that `event` begins; of a mapping that event is the key, and the value's comes
// next.
static berth_status begin_child(reader *in, yaml_event_t *event, uint32_t depth,
                                const berth_yaml *first, berth_yaml *child) {
    if (child->parent->kind == BERTH_YAML_MAPPING) {
        BERTH_TRY(read_key(in, event, first, child));
        yaml_event_delete(event);
        BERTH_TRY(next_event(in, event));
    }
    return begin_node(in, event, depth, child);
}

// Reads what follows the first event of `node`. Recurses at most limits.depth times.
static berth_status read_children(reader *in, uint32_t depth, berth_yaml *node) {
    berth_yaml *first = NULL;
    berth_yaml **last = &first;
    for (;;) {
        yaml_event_t event = {0};
        BERTH_TRY(next_event(in, &event));
        if (event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return collect_items(in, node, first);
        }
        berth_yaml *child = BERTH_ARENA_NEW(in->doc->arena, berth_yaml);
        if (child == NULL) {
            yaml_event_delete(&event);
            return no_memory(in);
        }
        child->parent = node;
        const berth_status status = begin_child(in, &event, depth + 1, first, child);
        yaml_event_delete(&event);
        BERTH_TRY(status);
        *last = child;
        last = &child->next;
        ++node->size;
        if (child->kind != BERTH_YAML_SCALAR) {
            BERTH_TRY(read_children(in, depth + 1, child));
        }
    }
}

// Reads the root from the event that follows the document's start.
static berth_status read_root(reader *in) {
    yaml_event_t event = {0};
    BERTH_TRY(next_event(in, &event));
    const berth_status status = begin_node(in, &event, 0, &in->doc->root);
    yaml_event_delete(&event);
    BERTH_TRY(status);
    return in->doc->root.kind == BERTH_YAML_SCALAR ? BERTH_OK
                                                   : read_children(in, 0, &in->doc->root);
}

// Takes one event; refuses it with `why` unless it has the wanted type.
static berth_status expect(reader *in, yaml_event_type_t type, const char *why) {
    yaml_event_t event = {0};
    BERTH_TRY(next_event(in, &event));
    const berth_status status = event.type == type ? BERTH_OK : refuse(in, &event, why);
    yaml_event_delete(&event);
    return status;
}

static berth_status read_document(reader *in) {
    BERTH_TRY(expect(in, YAML_STREAM_START_EVENT, "not valid YAML"));
    yaml_event_t event = {0};
    BERTH_TRY(next_event(in, &event));
    const bool is_empty = event.type == YAML_STREAM_END_EVENT;
    berth_status status = BERTH_OK;
    if (!is_empty && event.data.document_start.tag_directives.start !=
                         event.data.document_start.tag_directives.end) {
        status = refuse(in, &event, "%TAG is not allowed");
    }
    yaml_event_delete(&event);
    if (is_empty || status != BERTH_OK) {
        in->doc->root = (berth_yaml){.kind = BERTH_YAML_MAPPING, .line = 1, .column = 1};
        return status;
    }
    BERTH_TRY(read_root(in));
    BERTH_TRY(expect(in, YAML_DOCUMENT_END_EVENT, "not valid YAML"));
    return expect(in, YAML_STREAM_END_EVENT, "a second document is not allowed");
}

static berth_yaml_limits with_defaults(const berth_yaml_limits *limits) {
    berth_yaml_limits result = limits == NULL ? (berth_yaml_limits){0} : *limits;
    result.bytes = result.bytes == 0 ? DEFAULT_BYTES : result.bytes;
    result.depth = result.depth == 0 ? DEFAULT_DEPTH : result.depth;
    result.nodes = result.nodes == 0 ? DEFAULT_NODES : result.nodes;
    assert(result.depth <= MAX_DEPTH);
    return result;
}

static berth_status create_document(const char *name, document **out_doc) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(4096, SIZE_MAX, &arena));
    document *doc = BERTH_ARENA_NEW(arena, document);
    const char *own_name = berth_arena_strdup(arena, name);
    if (doc == NULL || own_name == NULL) {
        const berth_status status = berth_arena_exhausted(arena, "a YAML document");
        berth_arena_destroy(arena);
        return status;
    }
    doc->arena = arena;
    doc->name = own_name;
    *out_doc = doc;
    return BERTH_OK;
}

berth_status berth_yaml_parse(berth_str text, const char *name, const berth_yaml_limits *limits,
                              berth_yaml **out_root) {
    reader in = {.limits = with_defaults(limits)};
    if (text.size > in.limits.bytes) {
        return BERTH_FAIL(OUT_OF_MEMORY, "%s: has %zu bytes, the limit is %zu", name, text.size,
                          in.limits.bytes);
    }
    BERTH_TRY(create_document(name, &in.doc));
    berth_status status = BERTH_OK;
    if (yaml_parser_initialize(&in.parser)) {
        yaml_parser_set_encoding(&in.parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&in.parser, (const unsigned char *)text.data, text.size);
        status = read_document(&in);
        yaml_parser_delete(&in.parser);
    } else {
        status = no_memory(&in);
    }
    if (status != BERTH_OK) {
        berth_yaml_destroy(&in.doc->root);
        return status;
    }
    *out_root = &in.doc->root;
    return BERTH_OK;
}

berth_status berth_yaml_load(const char *path, const berth_yaml_limits *limits,
                             berth_yaml **out_root) {
    char *data = NULL;
    size_t size = 0;
    BERTH_TRY(berth_file_read(path, with_defaults(limits).bytes, &data, &size));
    const berth_status status =
        berth_yaml_parse((berth_str){.data = data, .size = size}, path, limits, out_root);
    berth_free(data);
    return status;
}

void berth_yaml_destroy(berth_yaml *root) {
    if (root != NULL) {
        berth_arena_destroy(((document *)root)->arena);
    }
}

const berth_yaml *berth_yaml_member(const berth_yaml *node, berth_str key) {
    for (uint32_t i = 0; node->kind == BERTH_YAML_MAPPING && i < node->size; ++i) {
        if (berth_str_equal(node->items[i]->key, key)) {
            return node->items[i];
        }
    }
    return NULL;
}

static const berth_yaml *element(const berth_yaml *sequence, berth_str piece) {
    uint64_t index = 0;
    for (size_t i = 0; i < piece.size; ++i) {
        if (piece.data[i] < '0' || piece.data[i] > '9' || i > 9) {
            return NULL;
        }
        index = index * 10 + (uint64_t)(piece.data[i] - '0');
    }
    return piece.size > 0 && index < sequence->size ? sequence->items[index] : NULL;
}

const berth_yaml *berth_yaml_find(const berth_yaml *node, const char *path) {
    berth_str rest = path[0] == '\0' ? (berth_str){0} : berth_str_from(path);
    const berth_yaml *found = node;
    for (berth_str piece; found != NULL && berth_str_split_first(&rest, '.', &piece);) {
        found = found->kind == BERTH_YAML_SEQUENCE ? element(found, piece)
                                                   : berth_yaml_member(found, piece);
    }
    return found;
}

berth_yaml_kind berth_yaml_kind_of(const berth_yaml *node) {
    return node->kind;
}

bool berth_yaml_is_null(const berth_yaml *node) {
    return node->kind == BERTH_YAML_SCALAR && !node->is_quoted &&
           (node->text.size == 0 || berth_str_equal(node->text, BERTH_STR("~")) ||
            berth_str_equal(node->text, BERTH_STR("null")));
}

bool berth_yaml_is_quoted(const berth_yaml *node) {
    return node->is_quoted;
}

berth_str berth_yaml_scalar(const berth_yaml *node) {
    return node->kind == BERTH_YAML_SCALAR ? node->text : BERTH_STR("");
}

uint32_t berth_yaml_line(const berth_yaml *node) {
    return node->line;
}

uint32_t berth_yaml_column(const berth_yaml *node) {
    return node->column;
}

const char *berth_yaml_file(const berth_yaml *node) {
    while (node->parent != NULL) {
        node = node->parent;
    }
    return ((const document *)node)->name;
}

const berth_yaml *berth_yaml_parent(const berth_yaml *node, uint32_t *out_index) {
    *out_index = node->index;
    return node->parent;
}

size_t berth_yaml_size(const berth_yaml *node) {
    return node->size;
}

const berth_yaml *berth_yaml_at(const berth_yaml *node, size_t index) {
    assert(index < node->size);
    return node->items[index];
}

berth_str berth_yaml_key_at(const berth_yaml *node, size_t index) {
    assert(node->kind == BERTH_YAML_MAPPING && index < node->size);
    return node->items[index]->key;
}
