// SPDX-License-Identifier: Apache-2.0
// The values of a template: Python's, as far as templates see them. A value is small and copied;
// what it points to lives in the arena of the rendering (or of the template) and, but for
// namespaces and iterators, never changes.
#ifndef BERTH_CHAT_VALUE_H
#define BERTH_CHAT_VALUE_H

#include "base/json.h"
#include "base/str.h"
#include "chat/machine.h"

typedef enum berth_jinja_kind {
    BERTH_JINJA_ABSENT, // an argument that was not given
    BERTH_JINJA_UNDEFINED,
    BERTH_JINJA_NONE,
    BERTH_JINJA_BOOL,
    BERTH_JINJA_INTEGER,
    BERTH_JINJA_REAL,
    BERTH_JINJA_STRING,
    BERTH_JINJA_LIST,
    BERTH_JINJA_TUPLE,
    BERTH_JINJA_RANGE,    // a list that remembers its bounds
    BERTH_JINJA_VIEW,     // what items, keys and values of a dict give: no index reaches into it
    BERTH_JINJA_ITERATOR, // can be walked once; what map, select and their kind give
    BERTH_JINJA_DICT,
    BERTH_JINJA_NAMESPACE, // a dict that `set` may change
    BERTH_JINJA_LOOP,
    BERTH_JINJA_MACRO,
    BERTH_JINJA_BUILTIN, // a function, or a method with its object
    BERTH_JINJA_CYCLER,
    BERTH_JINJA_JOINER,
} berth_jinja_kind;

typedef struct berth_jinja_value berth_jinja_value;
typedef struct berth_jinja_loop berth_jinja_loop;
typedef struct berth_jinja_macro berth_jinja_macro;
typedef struct berth_jinja_bound berth_jinja_bound;

typedef struct berth_jinja_list {
    berth_jinja_value *items;
    size_t count, capacity;
    size_t at;                 // of an ITERATOR, a CYCLER and a JOINER: the next item
    int64_t start, stop, step; // of a RANGE
    const char *name;          // of a VIEW: "dict_items"
} berth_jinja_list;

typedef struct berth_jinja_dict {
    berth_jinja_value *keys, *values; // in the order of insertion
    size_t count, capacity;
} berth_jinja_dict;

struct berth_jinja_value {
    berth_jinja_kind kind;
    bool is_markup; // of a STRING: what is added to it gets HTML's escapes
    union {
        bool boolean;
        int64_t integer;
        double real;
        berth_str string; // UTF-8; of an UNDEFINED what is missing: "'x' is undefined"
        berth_jinja_list *list;
        berth_jinja_dict *dict;
        berth_jinja_loop *loop;
        const berth_jinja_macro *macro;
        const berth_jinja_bound *bound;
    } as;
};

// ---- making ----

static inline berth_jinja_value berth_jinja_none(void) {
    return (berth_jinja_value){.kind = BERTH_JINJA_NONE};
}
static inline berth_jinja_value berth_jinja_bool(bool value) {
    return (berth_jinja_value){.kind = BERTH_JINJA_BOOL, .as.boolean = value};
}
static inline berth_jinja_value berth_jinja_integer(int64_t value) {
    return (berth_jinja_value){.kind = BERTH_JINJA_INTEGER, .as.integer = value};
}
static inline berth_jinja_value berth_jinja_real(double value) {
    return (berth_jinja_value){.kind = BERTH_JINJA_REAL, .as.real = value};
}
// Borrows the bytes.
static inline berth_jinja_value berth_jinja_str(berth_str value) {
    return (berth_jinja_value){.kind = BERTH_JINJA_STRING, .as.string = value};
}
// Copies the bytes.
BERTH_MUST_CHECK berth_status berth_jinja_copy(berth_jinja *j, berth_str text,
                                               berth_jinja_value *out);
// The text that was put together, or its failure; deinit stays the caller's.
BERTH_MUST_CHECK berth_status berth_jinja_take(berth_jinja *j, const berth_text *text,
                                               berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_undefined(berth_jinja *j, berth_jinja_value *out,
                                                    const char *format, ...) BERTH_PRINTF(3, 4);
// An empty sequence of a kind with room for so many items.
BERTH_MUST_CHECK berth_status berth_jinja_list_new(berth_jinja *j, berth_jinja_kind kind,
                                                   size_t room, berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_list_add(berth_jinja *j, berth_jinja_list *list,
                                                   berth_jinja_value item);
BERTH_MUST_CHECK berth_status berth_jinja_pair(berth_jinja *j, berth_jinja_value first,
                                               berth_jinja_value second, berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_dict_new(berth_jinja *j, berth_jinja_kind kind,
                                                   size_t room, berth_jinja_value *out);
// Replaces the value of a key that is there. Keys are what Python can hash.
BERTH_MUST_CHECK berth_status berth_jinja_dict_set(berth_jinja *j, berth_jinja_dict *dict,
                                                   berth_jinja_value key, berth_jinja_value value);
// Strings are borrowed from the tree.
BERTH_MUST_CHECK berth_status berth_jinja_from_json(berth_jinja *j, const berth_json *json,
                                                    berth_jinja_value *out);

// ---- asking ----

// "str", "dict object" without its second word, …: as Python names the type.
const char *berth_jinja_type(const berth_jinja_value *value);
bool berth_jinja_is_number(const berth_jinja_value *value);   // bool included
bool berth_jinja_is_sequence(const berth_jinja_value *value); // LIST, TUPLE or RANGE
// Of an INTEGER or BOOL; of any number.
bool berth_jinja_as_integer(const berth_jinja_value *value, int64_t *out);
bool berth_jinja_as_real(const berth_jinja_value *value, double *out);
bool berth_jinja_truth(const berth_jinja_value *value);
// TypeError's refusal of a list or a dict where Python wants what it can hash.
BERTH_MUST_CHECK berth_status berth_jinja_want_hashable(berth_jinja *j,
                                                        const berth_jinja_value *value);
// NULL: there is no such key, or none could be.
BERTH_MUST_CHECK berth_status berth_jinja_dict_find(berth_jinja *j, const berth_jinja_dict *dict,
                                                    const berth_jinja_value *key,
                                                    berth_jinja_value **out);
berth_jinja_value *berth_jinja_dict_str(const berth_jinja_dict *dict, berth_str key);
// Items, keys or characters; TypeError's refusal for what has none. Walks an iterator to its end.
BERTH_MUST_CHECK berth_status berth_jinja_items(berth_jinja *j, const berth_jinja_value *value,
                                                berth_jinja_list **out);
BERTH_MUST_CHECK berth_status berth_jinja_size(berth_jinja *j, const berth_jinja_value *value,
                                               size_t *out);

// ---- comparing (compare.c) ----

BERTH_MUST_CHECK berth_status berth_jinja_equal(berth_jinja *j, const berth_jinja_value *a,
                                                const berth_jinja_value *b, bool *out);
// Negative, zero or positive; refuses what Python cannot order. A NaN is `out` 2.
BERTH_MUST_CHECK berth_status berth_jinja_compare(berth_jinja *j, const berth_jinja_value *a,
                                                  const berth_jinja_value *b, int *out);
BERTH_MUST_CHECK berth_status berth_jinja_contains(berth_jinja *j, const berth_jinja_value *whole,
                                                   const berth_jinja_value *part, bool *out);

// ---- printing (print.c) ----

typedef struct berth_jinja_json_style {
    bool is_ascii, is_sorted, is_indented;
    berth_str indent; // of one level
    berth_str item_separator, key_separator;
} berth_jinja_json_style;

// str(), repr() and json.dumps().
BERTH_MUST_CHECK berth_status berth_jinja_print(berth_jinja *j, const berth_jinja_value *value,
                                                berth_text *text);
BERTH_MUST_CHECK berth_status berth_jinja_repr(berth_jinja *j, const berth_jinja_value *value,
                                               berth_text *text);
BERTH_MUST_CHECK berth_status berth_jinja_json(berth_jinja *j, const berth_jinja_value *value,
                                               const berth_jinja_json_style *style,
                                               berth_text *text);
void berth_jinja_print_real(double value, berth_text *text);
// The string of a value: itself, or what str() gives.
BERTH_MUST_CHECK berth_status berth_jinja_to_str(berth_jinja *j, const berth_jinja_value *value,
                                                 berth_str *out);
void berth_jinja_escape(berth_str string, berth_text *text); // & < > ' "

#endif
