// SPDX-License-Identifier: Apache-2.0
// pprint: what repr() gives with the keys of dicts sorted, over several lines where it is too wide
// for one, as Python's module of that name lays it out.
#include <string.h>

#include "base/utf8.h"
#include "chat/builtin.h"
#include "chat/characters.h"
#include "chat/sort.h"

#define LINE_CHARACTERS 80

typedef struct printer {
    berth_jinja *j;
    berth_text *text;
    berth_text *scratch; // what is only measured
} printer;

typedef struct place {
    int64_t indent;
    int64_t allowance; // characters of brackets and commas that follow on the last line
    bool is_nested;
} place;

// ---- sorting ----

// A dict of the same entries with its keys in order.
static berth_status sort_keys(berth_jinja *j, const berth_jinja_dict *dict,
                              berth_jinja_value *out) {
    berth_jinja_sorter s;
    BERTH_TRY(berth_jinja_sorter_init(j, dict->count, &s));
    s.takes_any = true;
    for (size_t i = 0; i < dict->count; ++i) {
        s.items[i] = (berth_jinja_sortable){.key = dict->keys[i], .item = dict->values[i]};
    }
    BERTH_TRY(berth_jinja_sort(&s));
    BERTH_TRY(berth_jinja_dict_new(j, BERTH_JINJA_DICT, dict->count, out));
    for (size_t i = 0; i < dict->count; ++i) {
        out->as.dict->keys[i] = s.items[i].key;
        out->as.dict->values[i] = s.items[i].item;
    }
    out->as.dict->count = dict->count;
    return BERTH_OK;
}

static berth_status copy_list(berth_jinja *j, const berth_jinja_value *value,
                              berth_jinja_value *out) {
    const berth_jinja_list *list = value->as.list;
    BERTH_TRY(berth_jinja_list_new(j, value->kind, list->count, out));
    for (size_t i = 0; i < list->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, list->items[i]));
    }
    return BERTH_OK;
}

static bool is_list(const berth_jinja_value *value) {
    return value->kind == BERTH_JINJA_LIST || value->kind == BERTH_JINJA_TUPLE;
}

// Sorts every dict that pprint looks into.
static berth_status sort_deeply(berth_jinja *j, berth_jinja_value *value) {
    const berth_jinja_value whole = *value;
    const bool is_dict = whole.kind == BERTH_JINJA_DICT;
    if (!is_dict && !is_list(&whole)) {
        return BERTH_OK;
    }
    BERTH_TRY(is_dict ? sort_keys(j, whole.as.dict, value) : copy_list(j, &whole, value));
    berth_jinja_value *items = is_dict ? value->as.dict->values : value->as.list->items;
    const size_t count = is_dict ? value->as.dict->count : value->as.list->count;
    BERTH_TRY(berth_jinja_enter(j));
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < count && status == BERTH_OK; ++i) {
        status = sort_deeply(j, &items[i]);
    }
    berth_jinja_leave(j);
    return status;
}

// ---- strings ----

static berth_status measure(printer *p, berth_str string, int64_t *out_count) {
    const berth_jinja_value value = berth_jinja_str(string);
    berth_text_clear(p->scratch);
    BERTH_TRY(berth_jinja_repr(p->j, &value, p->scratch));
    BERTH_TRY(berth_text_finish(p->scratch, NULL));
    *out_count = (int64_t)berth_jinja_char_count(berth_text_str(p->scratch));
    return BERTH_OK;
}

// The end of the word at `at` and of the white space behind it.
static size_t end_of_word(berth_str line, size_t at) {
    bool was_space = false;
    while (at < line.size) {
        uint32_t code;
        const size_t step = berth_utf8_next(berth_str_slice(line, at, 4), &code);
        const bool is_space = berth_jinja_char_is(code, BERTH_JINJA_SPACE);
        if (was_space && !is_space) {
            break;
        }
        was_space = is_space;
        at += step;
    }
    return at;
}

// A line as pieces that repr() makes at most widths[0] characters of, widths[1] of the last.
static berth_status break_line(printer *p, berth_str line, const int64_t widths[2],
                               berth_jinja_list *pieces) {
    int64_t count;
    size_t start = 0;
    size_t end;
    BERTH_TRY(measure(p, line, &count));
    const bool is_whole = count <= widths[1];
    for (size_t at = 0; at < line.size && !is_whole; at = end) {
        end = end_of_word(line, at);
        BERTH_TRY(measure(p, berth_str_slice(line, start, end - start), &count));
        if (count > widths[end == line.size] && at > start) {
            const berth_str piece = berth_str_slice(line, start, at - start);
            BERTH_TRY(berth_jinja_list_add(p->j, pieces, berth_jinja_str(piece)));
            start = at;
        }
    }
    const berth_str rest = berth_str_slice(line, start, SIZE_MAX);
    return berth_jinja_list_add(p->j, pieces, berth_jinja_str(rest));
}

static berth_status break_string(printer *p, const berth_jinja_value *string, place at,
                                 berth_jinja_list *pieces) {
    berth_jinja_value keeps_ends = berth_jinja_bool(true);
    const berth_jinja_call call = {.items = &keeps_ends, .count = 1};
    berth_jinja_value lines;
    BERTH_TRY(berth_jinja_run(p->j, berth_jinja_method(BERTH_JINJA_STRING, BERTH_STR("splitlines")),
                              string, &call, &lines));
    const int64_t width = LINE_CHARACTERS - at.indent;
    for (size_t i = 0; i < lines.as.list->count; ++i) {
        const bool is_last = i + 1 == lines.as.list->count;
        const int64_t widths[] = {width, is_last ? width - at.allowance : width};
        BERTH_TRY(break_line(p, lines.as.list->items[i].as.string, widths, pieces));
    }
    return BERTH_OK;
}

static void new_line(printer *p, int64_t indent) {
    berth_text_add_format(p->text, "\n%*s", (int)indent, "");
}

// Python joins strings that stand side by side; only one that stands alone needs brackets.
static berth_status write_string(printer *p, const berth_jinja_value *string, place at) {
    berth_jinja_value pieces;
    at.indent += !at.is_nested;
    at.allowance += !at.is_nested;
    BERTH_TRY(berth_jinja_list_new(p->j, BERTH_JINJA_LIST, 0, &pieces));
    BERTH_TRY(break_string(p, string, at, pieces.as.list));
    const bool has_brackets = !at.is_nested && pieces.as.list->count > 1;
    berth_text_add_cstr(p->text, has_brackets ? "(" : "");
    for (size_t i = 0; i < pieces.as.list->count; ++i) {
        if (i > 0) {
            new_line(p, at.indent);
        }
        BERTH_TRY(berth_jinja_repr(p->j, &pieces.as.list->items[i], p->text));
    }
    berth_text_add_cstr(p->text, has_brackets ? ")" : "");
    return BERTH_OK;
}

// ---- values ----

typedef struct shape {
    const char *start, *end;
    const berth_jinja_value *keys; // NULL: there are none
    const berth_jinja_value *items;
    size_t count;
} shape;

static shape shape_of(const berth_jinja_value *value) {
    if (value->kind == BERTH_JINJA_DICT) {
        const berth_jinja_dict *dict = value->as.dict;
        return (shape){.start = "{",
                       .end = "}",
                       .keys = dict->keys,
                       .items = dict->values,
                       .count = dict->count};
    }
    const berth_jinja_list *list = value->as.list;
    const bool is_tuple = value->kind == BERTH_JINJA_TUPLE;
    const char *end = !is_tuple ? "]" : list->count == 1 ? ",)" : ")";
    return (shape){
        .start = is_tuple ? "(" : "[", .end = end, .items = list->items, .count = list->count};
}

// Writes what repr() gives. Returns how many characters that are.
static berth_status write_repr(printer *p, const berth_jinja_value *value, int64_t *out_count) {
    const size_t start = p->text->size;
    BERTH_TRY(berth_jinja_repr(p->j, value, p->text));
    const berth_str written = berth_str_slice(berth_text_str(p->text), start, SIZE_MAX);
    *out_count = (int64_t)berth_jinja_char_count(written);
    return BERTH_OK;
}

static bool is_breakable(const berth_jinja_value *value) {
    return value->kind == BERTH_JINJA_DICT || is_list(value) ||
           (value->kind == BERTH_JINJA_STRING && !value->is_markup && value->as.string.size > 0);
}

// Depth is limited already: repr() goes through all of a value before any part of it is written.
static berth_status write_value(printer *p, const berth_jinja_value *value, place at) {
    const size_t start = p->text->size;
    int64_t count;
    BERTH_TRY(write_repr(p, value, &count));
    if (count <= LINE_CHARACTERS - at.indent - at.allowance || !is_breakable(value)) {
        return BERTH_OK;
    }
    p->text->size = start;
    if (value->kind == BERTH_JINJA_STRING) {
        return write_string(p, value, at);
    }
    const shape s = shape_of(value);
    berth_text_add_cstr(p->text, s.start);
    for (size_t i = 0; i < s.count; ++i) {
        const bool is_last = i + 1 == s.count;
        const int64_t allowance = is_last ? at.allowance + (int64_t)strlen(s.end) : 1;
        place inner = {.indent = at.indent + 1, .allowance = allowance, .is_nested = true};
        if (i > 0) {
            berth_text_add_cstr(p->text, ",");
            new_line(p, inner.indent);
        }
        if (s.keys) {
            BERTH_TRY(write_repr(p, &s.keys[i], &count));
            berth_text_add_cstr(p->text, ": ");
            inner.indent += count + 2;
        }
        BERTH_TRY(write_value(p, &s.items[i], inner));
    }
    berth_text_add_cstr(p->text, s.end);
    return BERTH_OK;
}

static berth_status print(printer *p, berth_jinja_value value, berth_jinja_value *out) {
    BERTH_TRY(sort_deeply(p->j, &value));
    BERTH_TRY(write_value(p, &value, (place){0}));
    return berth_jinja_take(p->j, p->text, out);
}

static berth_status pprint(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_text text, scratch;
    printer p = {.j = j, .text = &text, .scratch = &scratch};
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_text_init(&scratch, BERTH_JINJA_OUTPUT);
    const berth_status status = print(&p, args->self, out);
    berth_text_deinit(&scratch);
    berth_text_deinit(&text);
    return status;
}

const berth_jinja_builtin berth_jinja_pretty_filters[] = {
    {.name = "pprint", .run = pprint},
    {.name = NULL               },
};
