// SPDX-License-Identifier: Apache-2.0
// Values as JSON, byte for byte as Python's json.dumps() writes them.
#include <math.h>

#include "base/utf8.h"
#include "chat/value.h"

typedef struct json_writer {
    berth_jinja *j;
    const berth_jinja_json_style *style;
    berth_text *text;
    size_t level;
} json_writer;

static berth_status write_json(json_writer *w, const berth_jinja_value *value);

static void write_char(json_writer *w, uint32_t code, berth_str bytes) {
    static const char *const escapes[128] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\b'] = "\\b", ['\f'] = "\\f",
        ['\n'] = "\\n", ['\r'] = "\\r",  ['\t'] = "\\t",
    };
    if (code < 128 && escapes[code]) {
        berth_text_add_cstr(w->text, escapes[code]);
    } else if (code < 0x20 || (w->style->is_ascii && code >= 0x80 && code <= 0xFFFF)) {
        berth_text_add_format(w->text, "\\u%04x", (unsigned)code);
    } else if (w->style->is_ascii && code > 0xFFFF) {
        const uint32_t rest = code - 0x10000;
        berth_text_add_format(w->text, "\\u%04x\\u%04x", 0xD800u + (unsigned)(rest >> 10),
                              0xDC00u + (unsigned)(rest & 0x3FF));
    } else {
        berth_text_add(w->text, bytes);
    }
}

static berth_status write_string(json_writer *w, berth_str string) {
    size_t step;
    berth_text_add_char(w->text, '"');
    for (size_t at = 0; at < string.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(string, at, 4), &code);
        write_char(w, code, berth_str_slice(string, at, step));
    }
    berth_text_add_char(w->text, '"');
    return berth_jinja_spend(w->j, string.size / 16);
}

static void write_real(json_writer *w, double value) {
    if (isnan(value)) {
        berth_text_add_cstr(w->text, "NaN");
    } else if (isinf(value)) {
        berth_text_add_cstr(w->text, value < 0 ? "-Infinity" : "Infinity");
    } else {
        berth_jinja_print_real(value, w->text);
    }
}

static void write_line(json_writer *w) {
    if (!w->style->is_indented) {
        return;
    }
    berth_text_add_char(w->text, '\n');
    for (size_t i = 0; i < w->level; ++i) {
        berth_text_add(w->text, w->style->indent);
    }
}

static berth_status write_list(json_writer *w, const berth_jinja_list *list) {
    if (list->count == 0) {
        berth_text_add_cstr(w->text, "[]");
        return BERTH_OK;
    }
    berth_text_add_char(w->text, '[');
    ++w->level;
    for (size_t i = 0; i < list->count; ++i) {
        if (i > 0) {
            berth_text_add(w->text, w->style->item_separator);
        }
        write_line(w);
        BERTH_TRY(write_json(w, &list->items[i]));
    }
    --w->level;
    write_line(w);
    berth_text_add_char(w->text, ']');
    return BERTH_OK;
}

// A key that is no string becomes one.
static berth_status write_key(json_writer *w, const berth_jinja_value *key) {
    if (key->kind == BERTH_JINJA_STRING) {
        return write_string(w, key->as.string);
    }
    if (key->kind < BERTH_JINJA_NONE || key->kind > BERTH_JINJA_REAL) {
        return BERTH_JINJA_FAIL(w->j, INVALID_ARGUMENT, "tojson: a %s cannot be a key of an object",
                                berth_jinja_type(key));
    }
    berth_text_add_char(w->text, '"');
    BERTH_TRY(write_json(w, key));
    berth_text_add_char(w->text, '"');
    return BERTH_OK;
}

// The places of the entries in the order of their keys.
static berth_status sort_keys(berth_jinja *j, const berth_jinja_dict *dict, size_t *order) {
    for (size_t i = 0; i < dict->count; ++i) {
        size_t at = i;
        for (int sign; at > 0; --at) {
            BERTH_TRY(berth_jinja_compare(j, &dict->keys[order[at - 1]], &dict->keys[i], &sign));
            if (sign <= 0) {
                break;
            }
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return BERTH_OK;
}

static berth_status write_dict(json_writer *w, const berth_jinja_dict *dict) {
    if (dict->count == 0) {
        berth_text_add_cstr(w->text, "{}");
        return BERTH_OK;
    }
    void *order = NULL;
    if (w->style->is_sorted) {
        BERTH_TRY(berth_jinja_alloc(w->j, dict->count, sizeof(size_t), &order));
        BERTH_TRY(sort_keys(w->j, dict, order));
    }
    berth_text_add_char(w->text, '{');
    ++w->level;
    for (size_t i = 0; i < dict->count; ++i) {
        const size_t at = order ? ((size_t *)order)[i] : i;
        if (i > 0) {
            berth_text_add(w->text, w->style->item_separator);
        }
        write_line(w);
        BERTH_TRY(write_key(w, &dict->keys[at]));
        berth_text_add(w->text, w->style->key_separator);
        BERTH_TRY(write_json(w, &dict->values[at]));
    }
    --w->level;
    write_line(w);
    berth_text_add_char(w->text, '}');
    return BERTH_OK;
}

static berth_status write_any(json_writer *w, const berth_jinja_value *value) {
    switch (value->kind) {
    case BERTH_JINJA_NONE:
        berth_text_add_cstr(w->text, "null");
        return BERTH_OK;
    case BERTH_JINJA_BOOL:
        berth_text_add_cstr(w->text, value->as.boolean ? "true" : "false");
        return BERTH_OK;
    case BERTH_JINJA_INTEGER:
        berth_text_add_format(w->text, "%lld", (long long)value->as.integer);
        return BERTH_OK;
    case BERTH_JINJA_REAL:
        write_real(w, value->as.real);
        return BERTH_OK;
    case BERTH_JINJA_STRING:
        return write_string(w, value->as.string);
    case BERTH_JINJA_LIST:
    case BERTH_JINJA_TUPLE:
        return write_list(w, value->as.list);
    case BERTH_JINJA_DICT:
        return write_dict(w, value->as.dict);
    case BERTH_JINJA_UNDEFINED:
        return BERTH_JINJA_FAIL(w->j, INVALID_ARGUMENT, "tojson: " BERTH_STR_FMT,
                                BERTH_STR_ARG(value->as.string));
    default:
        return BERTH_JINJA_FAIL(w->j, INVALID_ARGUMENT, "tojson: a %s has no form in JSON",
                                berth_jinja_type(value));
    }
}

static berth_status write_json(json_writer *w, const berth_jinja_value *value) {
    BERTH_TRY(berth_jinja_spend(w->j, 1));
    BERTH_TRY(berth_jinja_enter(w->j));
    const berth_status status = write_any(w, value);
    berth_jinja_leave(w->j);
    return status;
}

berth_status berth_jinja_json(berth_jinja *j, const berth_jinja_value *value,
                              const berth_jinja_json_style *style, berth_text *text) {
    json_writer w = {.j = j, .style = style, .text = text};
    return write_json(&w, value);
}
