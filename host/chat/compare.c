// SPDX-License-Identifier: Apache-2.0
// Equality, order and membership as Python has them.
#include <string.h>

#include "chat/value.h"

#define UNORDERED 2 // a NaN is on one of the sides

// ---- numbers ----

// Why long double: it holds every int64_t and every double.
static int compare_numbers(const berth_jinja_value *a, const berth_jinja_value *b) {
    int64_t integer_a, integer_b;
    if (berth_jinja_as_integer(a, &integer_a) && berth_jinja_as_integer(b, &integer_b)) {
        return (integer_a > integer_b) - (integer_a < integer_b);
    }
    const bool has_real_a = a->kind == BERTH_JINJA_REAL;
    const bool has_real_b = b->kind == BERTH_JINJA_REAL;
    integer_a = has_real_a || !berth_jinja_as_integer(a, &integer_a) ? 0 : integer_a;
    integer_b = has_real_b || !berth_jinja_as_integer(b, &integer_b) ? 0 : integer_b;
    const long double x = has_real_a ? (long double)a->as.real : (long double)integer_a;
    const long double y = has_real_b ? (long double)b->as.real : (long double)integer_b;
    return x != x || y != y ? UNORDERED : (x > y) - (x < y);
}

// ---- equality ----

static berth_status lists_equal(berth_jinja *j, const berth_jinja_list *a,
                                const berth_jinja_list *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; ++i) {
        BERTH_TRY(berth_jinja_equal(j, &a->items[i], &b->items[i], out));
    }
    return BERTH_OK;
}

static berth_status dicts_equal(berth_jinja *j, const berth_jinja_dict *a,
                                const berth_jinja_dict *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; ++i) {
        berth_jinja_value *other;
        BERTH_TRY(berth_jinja_dict_find(j, b, &a->keys[i], &other));
        *out = other;
        if (other) {
            BERTH_TRY(berth_jinja_equal(j, &a->values[i], other, out));
        }
    }
    return BERTH_OK;
}

static berth_status same_kind_equal(berth_jinja *j, const berth_jinja_value *a,
                                    const berth_jinja_value *b, bool *out) {
    switch (a->kind) {
    case BERTH_JINJA_UNDEFINED:
    case BERTH_JINJA_NONE:
        *out = true;
        return BERTH_OK;
    case BERTH_JINJA_STRING:
        *out = berth_str_equal(a->as.string, b->as.string);
        return berth_jinja_spend(j, *out ? a->as.string.size / 64 : 0);
    case BERTH_JINJA_LIST:
    case BERTH_JINJA_TUPLE:
    case BERTH_JINJA_RANGE:
    case BERTH_JINJA_VIEW:
        return lists_equal(j, a->as.list, b->as.list, out);
    case BERTH_JINJA_DICT:
        return dicts_equal(j, a->as.dict, b->as.dict, out);
    default:
        *out = a->as.list == b->as.list; // the same object
        return BERTH_OK;
    }
}

berth_status berth_jinja_equal(berth_jinja *j, const berth_jinja_value *a,
                               const berth_jinja_value *b, bool *out) {
    *out = false;
    BERTH_TRY(berth_jinja_spend(j, 1));
    if (berth_jinja_is_number(a) && berth_jinja_is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return BERTH_OK;
    }
    if (a->kind != b->kind) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_enter(j));
    const berth_status status = same_kind_equal(j, a, b, out);
    berth_jinja_leave(j);
    return status;
}

// ---- order ----

static berth_status compare_lists(berth_jinja *j, const berth_jinja_list *a,
                                  const berth_jinja_list *b, int *out) {
    for (size_t i = 0; i < a->count && i < b->count; ++i) {
        bool is_equal;
        BERTH_TRY(berth_jinja_equal(j, &a->items[i], &b->items[i], &is_equal));
        if (!is_equal) {
            return berth_jinja_compare(j, &a->items[i], &b->items[i], out);
        }
    }
    *out = (a->count > b->count) - (a->count < b->count);
    return BERTH_OK;
}

berth_status berth_jinja_compare(berth_jinja *j, const berth_jinja_value *a,
                                 const berth_jinja_value *b, int *out) {
    BERTH_TRY(berth_jinja_spend(j, 1));
    if (berth_jinja_is_number(a) && berth_jinja_is_number(b)) {
        *out = compare_numbers(a, b);
        return BERTH_OK;
    }
    if (a->kind == BERTH_JINJA_STRING && b->kind == BERTH_JINJA_STRING) {
        // Code points and the bytes of UTF-8 have the same order.
        const int sign = berth_str_compare(a->as.string, b->as.string);
        *out = (sign > 0) - (sign < 0);
        return BERTH_OK;
    }
    if (a->kind == b->kind && (a->kind == BERTH_JINJA_LIST || a->kind == BERTH_JINJA_TUPLE)) {
        BERTH_TRY(berth_jinja_enter(j));
        const berth_status status = compare_lists(j, a->as.list, b->as.list, out);
        berth_jinja_leave(j);
        return status;
    }
    if (a->kind == BERTH_JINJA_UNDEFINED || b->kind == BERTH_JINJA_UNDEFINED) {
        const berth_jinja_value *missing = a->kind == BERTH_JINJA_UNDEFINED ? a : b;
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, BERTH_STR_FMT,
                                BERTH_STR_ARG(missing->as.string));
    }
    return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "'%s' and '%s' cannot be ordered",
                            berth_jinja_type(a), berth_jinja_type(b));
}

// ---- membership ----

static berth_status string_contains(berth_jinja *j, berth_str whole, const berth_jinja_value *part,
                                    bool *out) {
    if (part->kind != BERTH_JINJA_STRING) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "'in <str>' needs a str on its left, not '%s'",
                                berth_jinja_type(part));
    }
    const berth_str sought = part->as.string;
    *out = sought.size == 0 ||
           (whole.size > 0 && memmem(whole.data, whole.size, sought.data, sought.size));
    return berth_jinja_spend(j, whole.size / 64);
}

berth_status berth_jinja_contains(berth_jinja *j, const berth_jinja_value *whole,
                                  const berth_jinja_value *part, bool *out) {
    *out = false;
    if (whole->kind == BERTH_JINJA_STRING) {
        return string_contains(j, whole->as.string, part, out);
    }
    if (whole->kind == BERTH_JINJA_DICT) {
        berth_jinja_value *found;
        BERTH_TRY(berth_jinja_want_hashable(j, part));
        BERTH_TRY(berth_jinja_dict_find(j, whole->as.dict, part, &found));
        *out = found;
        return BERTH_OK;
    }
    berth_jinja_list *items;
    BERTH_TRY(berth_jinja_items(j, whole, &items));
    for (size_t i = 0; i < items->count && !*out; ++i) {
        BERTH_TRY(berth_jinja_equal(j, &items->items[i], part, out));
    }
    return BERTH_OK;
}
