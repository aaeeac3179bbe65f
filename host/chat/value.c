// SPDX-License-Identifier: Apache-2.0
// Making values and asking them.
#include "chat/value.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"

#define MESSAGE_BYTES 256

static const char *const type_names[] = {
    [BERTH_JINJA_ABSENT] = "missing argument",
    [BERTH_JINJA_UNDEFINED] = "Undefined",
    [BERTH_JINJA_NONE] = "NoneType",
    [BERTH_JINJA_BOOL] = "bool",
    [BERTH_JINJA_INTEGER] = "int",
    [BERTH_JINJA_REAL] = "float",
    [BERTH_JINJA_STRING] = "str",
    [BERTH_JINJA_LIST] = "list",
    [BERTH_JINJA_TUPLE] = "tuple",
    [BERTH_JINJA_RANGE] = "range",
    [BERTH_JINJA_VIEW] = "dict view",
    [BERTH_JINJA_ITERATOR] = "generator",
    [BERTH_JINJA_DICT] = "dict",
    [BERTH_JINJA_NAMESPACE] = "Namespace",
    [BERTH_JINJA_LOOP] = "LoopContext",
    [BERTH_JINJA_MACRO] = "Macro",
    [BERTH_JINJA_BUILTIN] = "function",
    [BERTH_JINJA_CYCLER] = "Cycler",
    [BERTH_JINJA_JOINER] = "Joiner",
};

// ---- making ----

berth_status berth_jinja_copy(berth_jinja *j, berth_str text, berth_jinja_value *out) {
    void *bytes;
    BERTH_TRY(berth_jinja_alloc(j, text.size + 1, 1, &bytes));
    if (text.size > 0) {
        memcpy(bytes, text.data, text.size);
    }
    *out = berth_jinja_str((berth_str){.data = bytes, .size = text.size});
    return BERTH_OK;
}

berth_status berth_jinja_take(berth_jinja *j, const berth_text *text, berth_jinja_value *out) {
    if (berth_text_finish(text, NULL) != BERTH_OK) {
        return BERTH_JINJA_FAIL(j, OUT_OF_MEMORY, "a text of more than %zu MiB",
                                BERTH_JINJA_OUTPUT >> 20);
    }
    return berth_jinja_copy(j, berth_text_str(text), out);
}

berth_status berth_jinja_undefined(berth_jinja *j, berth_jinja_value *out, const char *format,
                                   ...) {
    char message[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    BERTH_TRY(berth_jinja_copy(j, berth_str_from(message), out));
    out->kind = BERTH_JINJA_UNDEFINED;
    return BERTH_OK;
}

berth_status berth_jinja_list_new(berth_jinja *j, berth_jinja_kind kind, size_t room,
                                  berth_jinja_value *out) {
    void *list, *items = NULL;
    BERTH_TRY(berth_jinja_alloc(j, 1, sizeof(berth_jinja_list), &list));
    if (room > 0) {
        BERTH_TRY(berth_jinja_alloc(j, room, sizeof(berth_jinja_value), &items));
    }
    *(berth_jinja_list *)list = (berth_jinja_list){.items = items, .capacity = room};
    *out = (berth_jinja_value){.kind = kind, .as.list = list};
    return BERTH_OK;
}

berth_status berth_jinja_list_add(berth_jinja *j, berth_jinja_list *list, berth_jinja_value item) {
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity < 4 ? 8 : 2 * list->capacity;
        void *items;
        BERTH_TRY(berth_jinja_alloc(j, capacity, sizeof(berth_jinja_value), &items));
        if (list->count > 0) {
            memcpy(items, list->items, list->count * sizeof(*list->items));
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return BERTH_OK;
}

berth_status berth_jinja_pair(berth_jinja *j, berth_jinja_value first, berth_jinja_value second,
                              berth_jinja_value *out) {
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_TUPLE, 2, out));
    BERTH_TRY(berth_jinja_list_add(j, out->as.list, first));
    return berth_jinja_list_add(j, out->as.list, second);
}

berth_status berth_jinja_dict_new(berth_jinja *j, berth_jinja_kind kind, size_t room,
                                  berth_jinja_value *out) {
    void *dict, *keys, *values;
    BERTH_TRY(berth_jinja_alloc(j, 1, sizeof(berth_jinja_dict), &dict));
    BERTH_TRY(berth_jinja_alloc(j, room, sizeof(berth_jinja_value), &keys));
    BERTH_TRY(berth_jinja_alloc(j, room, sizeof(berth_jinja_value), &values));
    *(berth_jinja_dict *)dict =
        (berth_jinja_dict){.keys = keys, .values = values, .capacity = room};
    *out = (berth_jinja_value){.kind = kind, .as.dict = dict};
    return BERTH_OK;
}

static bool is_scalar(const berth_jinja_value *value) {
    return value->kind >= BERTH_JINJA_UNDEFINED && value->kind <= BERTH_JINJA_STRING;
}

static bool is_key(const berth_jinja_value *value) {
    if (value->kind != BERTH_JINJA_TUPLE) {
        return is_scalar(value);
    }
    for (size_t i = 0; i < value->as.list->count; ++i) {
        if (!is_scalar(&value->as.list->items[i])) {
            return false;
        }
    }
    return true;
}

static berth_status grow_dict(berth_jinja *j, berth_jinja_dict *dict) {
    const size_t capacity = dict->capacity < 4 ? 8 : 2 * dict->capacity;
    void *keys, *values;
    BERTH_TRY(berth_jinja_alloc(j, capacity, sizeof(berth_jinja_value), &keys));
    BERTH_TRY(berth_jinja_alloc(j, capacity, sizeof(berth_jinja_value), &values));
    if (dict->count > 0) {
        memcpy(keys, dict->keys, dict->count * sizeof(*dict->keys));
        memcpy(values, dict->values, dict->count * sizeof(*dict->values));
    }
    dict->keys = keys;
    dict->values = values;
    dict->capacity = capacity;
    return BERTH_OK;
}

static berth_status add_entry(berth_jinja *j, berth_jinja_dict *dict, berth_jinja_value key,
                              berth_jinja_value value) {
    if (dict->count == dict->capacity) {
        BERTH_TRY(grow_dict(j, dict));
    }
    assert(dict->keys && dict->values);
    dict->keys[dict->count] = key;
    dict->values[dict->count++] = value;
    return BERTH_OK;
}

berth_status berth_jinja_dict_set(berth_jinja *j, berth_jinja_dict *dict, berth_jinja_value key,
                                  berth_jinja_value value) {
    berth_jinja_value *found;
    if (!is_key(&key)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "a %s cannot be the key of a dict",
                                berth_jinja_type(&key));
    }
    BERTH_TRY(berth_jinja_dict_find(j, dict, &key, &found));
    if (found) {
        *found = value;
        return BERTH_OK;
    }
    return add_entry(j, dict, key, value);
}

static berth_status copy_children(berth_jinja *j, const berth_json *json, berth_jinja_value *out) {
    const bool is_object = berth_json_kind_of(json) == BERTH_JSON_OBJECT;
    const size_t count = berth_json_size(json);
    BERTH_TRY(is_object ? berth_jinja_dict_new(j, BERTH_JINJA_DICT, count, out)
                        : berth_jinja_list_new(j, BERTH_JINJA_LIST, count, out));
    for (size_t i = 0; i < count; ++i) {
        berth_jinja_value child;
        BERTH_TRY(berth_jinja_from_json(j, berth_json_at(json, i), &child));
        if (is_object) {
            const berth_jinja_value key = berth_jinja_str(berth_json_key_at(json, i));
            BERTH_TRY(add_entry(j, out->as.dict, key, child));
        } else {
            BERTH_TRY(berth_jinja_list_add(j, out->as.list, child));
        }
    }
    return BERTH_OK;
}

berth_status berth_jinja_from_json(berth_jinja *j, const berth_json *json, berth_jinja_value *out) {
    *out = berth_jinja_none();
    switch (berth_json_kind_of(json)) {
    case BERTH_JSON_NULL:
        return BERTH_OK;
    case BERTH_JSON_BOOL:
        out->kind = BERTH_JINJA_BOOL;
        (void)berth_json_as_bool(json, &out->as.boolean);
        return BERTH_OK;
    case BERTH_JSON_INTEGER:
        out->kind = BERTH_JINJA_INTEGER;
        (void)berth_json_as_i64(json, &out->as.integer);
        return BERTH_OK;
    case BERTH_JSON_REAL:
        out->kind = BERTH_JINJA_REAL;
        (void)berth_json_as_f64(json, &out->as.real);
        return BERTH_OK;
    case BERTH_JSON_STRING:
        out->kind = BERTH_JINJA_STRING;
        (void)berth_json_as_str(json, &out->as.string);
        return BERTH_OK;
    default:
        return copy_children(j, json, out);
    }
}

// ---- asking ----

const char *berth_jinja_type(const berth_jinja_value *value) {
    return type_names[value->kind];
}

bool berth_jinja_is_number(const berth_jinja_value *value) {
    return value->kind == BERTH_JINJA_INTEGER || value->kind == BERTH_JINJA_REAL ||
           value->kind == BERTH_JINJA_BOOL;
}

bool berth_jinja_is_sequence(const berth_jinja_value *value) {
    return value->kind == BERTH_JINJA_LIST || value->kind == BERTH_JINJA_TUPLE ||
           value->kind == BERTH_JINJA_RANGE;
}

bool berth_jinja_as_integer(const berth_jinja_value *value, int64_t *out) {
    if (value->kind == BERTH_JINJA_BOOL) {
        *out = value->as.boolean;
        return true;
    }
    if (value->kind == BERTH_JINJA_INTEGER) {
        *out = value->as.integer;
        return true;
    }
    return false;
}

bool berth_jinja_as_real(const berth_jinja_value *value, double *out) {
    int64_t integer;
    if (berth_jinja_as_integer(value, &integer)) {
        *out = (double)integer;
        return true;
    }
    *out = value->as.real;
    return value->kind == BERTH_JINJA_REAL;
}

bool berth_jinja_truth(const berth_jinja_value *value) {
    switch (value->kind) {
    case BERTH_JINJA_ABSENT:
    case BERTH_JINJA_UNDEFINED:
    case BERTH_JINJA_NONE:
        return false;
    case BERTH_JINJA_BOOL:
        return value->as.boolean;
    case BERTH_JINJA_INTEGER:
        return value->as.integer != 0;
    case BERTH_JINJA_REAL:
        return value->as.real != 0;
    case BERTH_JINJA_STRING:
        return value->as.string.size > 0;
    case BERTH_JINJA_LIST:
    case BERTH_JINJA_TUPLE:
    case BERTH_JINJA_RANGE:
    case BERTH_JINJA_VIEW:
        return value->as.list->count > 0;
    case BERTH_JINJA_DICT:
        return value->as.dict->count > 0;
    default:
        return true; // Why iterators too: Python cannot know whether something comes out of them.
    }
}

static berth_status want_hashable_items(berth_jinja *j, const berth_jinja_list *tuple) {
    for (size_t i = 0; i < tuple->count; ++i) {
        BERTH_TRY(berth_jinja_want_hashable(j, &tuple->items[i]));
    }
    return BERTH_OK;
}

berth_status berth_jinja_want_hashable(berth_jinja *j, const berth_jinja_value *value) {
    if (value->kind == BERTH_JINJA_LIST || value->kind == BERTH_JINJA_DICT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "unhashable type: '%s'",
                                berth_jinja_type(value));
    }
    if (value->kind != BERTH_JINJA_TUPLE) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_enter(j));
    const berth_status status = want_hashable_items(j, value->as.list);
    berth_jinja_leave(j);
    return status;
}

berth_status berth_jinja_dict_find(berth_jinja *j, const berth_jinja_dict *dict,
                                   const berth_jinja_value *key, berth_jinja_value **out) {
    *out = NULL;
    BERTH_TRY(berth_jinja_spend(j, 1 + dict->count / 8));
    if (key->kind == BERTH_JINJA_STRING) {
        *out = berth_jinja_dict_str(dict, key->as.string);
        return BERTH_OK;
    }
    for (size_t i = 0; i < dict->count && is_key(key); ++i) {
        bool is_equal;
        BERTH_TRY(berth_jinja_equal(j, &dict->keys[i], key, &is_equal));
        if (is_equal) {
            *out = &dict->values[i];
            return BERTH_OK;
        }
    }
    return BERTH_OK;
}

berth_jinja_value *berth_jinja_dict_str(const berth_jinja_dict *dict, berth_str key) {
    for (size_t i = 0; i < dict->count; ++i) {
        if (dict->keys[i].kind == BERTH_JINJA_STRING &&
            berth_str_equal(dict->keys[i].as.string, key)) {
            return &dict->values[i];
        }
    }
    return NULL;
}

static berth_status characters_of(berth_jinja *j, berth_str text, berth_jinja_list *list) {
    size_t step;
    for (size_t at = 0; at < text.size; at += step) {
        step = berth_utf8_next(berth_str_slice(text, at, 4), NULL);
        BERTH_TRY(berth_jinja_list_add(j, list, berth_jinja_str(berth_str_slice(text, at, step))));
    }
    return BERTH_OK;
}

static berth_status rest_of(berth_jinja *j, berth_jinja_list *iterator, berth_jinja_list *list) {
    list->items = iterator->items + iterator->at;
    list->count = iterator->count - iterator->at;
    list->capacity = list->count;
    iterator->at = iterator->count;
    return berth_jinja_spend(j, 1 + list->count);
}

berth_status berth_jinja_items(berth_jinja *j, const berth_jinja_value *value,
                               berth_jinja_list **out) {
    berth_jinja_value made;
    if (berth_jinja_is_sequence(value) || value->kind == BERTH_JINJA_VIEW) {
        *out = value->as.list;
        return berth_jinja_spend(j, 1 + value->as.list->count);
    }
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, &made));
    *out = made.as.list;
    switch (value->kind) {
    case BERTH_JINJA_UNDEFINED:
        return BERTH_OK;
    case BERTH_JINJA_STRING:
        return characters_of(j, value->as.string, *out);
    case BERTH_JINJA_ITERATOR:
        return rest_of(j, value->as.list, *out);
    case BERTH_JINJA_DICT:
        (*out)->items = value->as.dict->keys;
        (*out)->count = value->as.dict->count;
        (*out)->capacity = (*out)->count;
        return berth_jinja_spend(j, 1 + (*out)->count);
    default:
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "'%s' object is not iterable",
                                berth_jinja_type(value));
    }
}

berth_status berth_jinja_size(berth_jinja *j, const berth_jinja_value *value, size_t *out) {
    *out = 0;
    if (value->kind == BERTH_JINJA_UNDEFINED) {
        return BERTH_OK;
    }
    if (berth_jinja_is_sequence(value) || value->kind == BERTH_JINJA_VIEW) {
        *out = value->as.list->count;
        return BERTH_OK;
    }
    if (value->kind == BERTH_JINJA_DICT) {
        *out = value->as.dict->count;
        return BERTH_OK;
    }
    if (value->kind != BERTH_JINJA_STRING) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "object of type '%s' has no length%s",
                                berth_jinja_type(value),
                                value->kind == BERTH_JINJA_ITERATOR ? ", use | list before" : "");
    }
    for (size_t i = 0; i < value->as.string.size; ++i) {
        *out += ((uint8_t)value->as.string.data[i] & 0xC0) != 0x80;
    }
    return berth_jinja_spend(j, value->as.string.size / 16);
}
