// SPDX-License-Identifier: Apache-2.0
// Methods of strings that ask what their characters are, and the methods of lists, dicts and loops.
#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

// ---- characters ----

typedef bool (*char_fn)(uint32_t code);

static bool is_alphabetic(uint32_t code) {
    return berth_jinja_char_is(code, BERTH_JINJA_ALPHABETIC);
}

static bool is_digit(uint32_t code) {
    return berth_jinja_char_is(code, BERTH_JINJA_DIGIT);
}

static bool is_numeric(uint32_t code) {
    return berth_jinja_char_is(code, BERTH_JINJA_NUMERIC);
}

static bool is_alphanumeric(uint32_t code) {
    return is_alphabetic(code) || is_numeric(code);
}

// Digits that no decimal number is written with: raised, lowered, in circles, of old scripts.
static bool is_any_digit(uint32_t code) {
    static const uint32_t ranges[][2] = {
  // clang-format off
        {0xb2, 0xb3}, {0xb9, 0xb9}, {0x1369, 0x1371}, {0x19da, 0x19da},
        {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089}, {0x2460, 0x2468},
        {0x2474, 0x247c}, {0x2488, 0x2490}, {0x24ea, 0x24ea}, {0x24f5, 0x24fd},
        {0x24ff, 0x24ff}, {0x2776, 0x277e}, {0x2780, 0x2788}, {0x278a, 0x2792},
        {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
  // clang-format on
    };
    bool is_one = is_digit(code);
    for (size_t i = 0; i < BERTH_COUNT(ranges) && !is_one; ++i) {
        is_one = code >= ranges[i][0] && code <= ranges[i][1];
    }
    return is_one;
}

static bool is_space(uint32_t code) {
    return berth_jinja_char_is(code, BERTH_JINJA_SPACE);
}

static bool is_printable(uint32_t code) {
    return berth_jinja_char_is(code, BERTH_JINJA_PRINTABLE);
}

static bool is_ascii(uint32_t code) {
    return code < 0x80;
}

static bool is_identifier(uint32_t code) {
    return code == '_' || is_alphabetic(code) || is_digit(code);
}

// Whether all characters are so; what an empty string is, is the caller's to say.
static berth_status all_are(berth_jinja *j, const berth_jinja_args *args, char_fn holds,
                            bool is_empty_so, berth_jinja_value *out) {
    const berth_str text = args->self.as.string;
    bool all = text.size > 0 || is_empty_so;
    size_t step;
    for (size_t at = 0; at < text.size && all; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(text, at, 4), &code);
        all = holds(code);
    }
    *out = berth_jinja_bool(all);
    return berth_jinja_spend(j, text.size / 16);
}

#define ALL_ARE(name, holds, is_empty_so)                                                          \
    static berth_status name(berth_jinja *j, const berth_jinja_args *args,                         \
                             berth_jinja_value *out) {                                             \
        return all_are(j, args, holds, is_empty_so, out);                                          \
    }

ALL_ARE(has_letters, is_alphabetic, false)
ALL_ARE(has_decimals, is_digit, false)
ALL_ARE(has_digits, is_any_digit, false)
ALL_ARE(has_numerals, is_numeric, false)
ALL_ARE(has_letters_or_digits, is_alphanumeric, false)
ALL_ARE(has_spaces, is_space, false)
ALL_ARE(has_printable, is_printable, true)
ALL_ARE(has_ascii, is_ascii, true)

static berth_status is_name(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    uint32_t first = 0;
    (void)berth_utf8_next(args->self.as.string, &first);
    BERTH_TRY(all_are(j, args, is_identifier, false, out));
    out->as.boolean &= !is_digit(first);
    return BERTH_OK;
}

// Some letter has a case, and none has the other one.
static berth_status has_only(berth_jinja *j, const berth_jinja_args *args, berth_jinja_class wanted,
                             berth_jinja_value *out) {
    const berth_str text = args->self.as.string;
    bool has_some = false;
    bool has_other = false;
    size_t step;
    for (size_t at = 0; at < text.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(text, at, 4), &code);
        const bool is_wanted = berth_jinja_char_is(code, wanted);
        has_some |= is_wanted;
        has_other |= !is_wanted && berth_jinja_char_is(code, BERTH_JINJA_CASED);
    }
    *out = berth_jinja_bool(has_some && !has_other);
    return berth_jinja_spend(j, text.size / 16);
}

static berth_status is_small(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return has_only(j, args, BERTH_JINJA_SMALL, out);
}

static berth_status is_capital(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    return has_only(j, args, BERTH_JINJA_CAPITAL, out);
}

// Capitals begin words, small letters go on.
static berth_status is_titled(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    const berth_str text = args->self.as.string;
    bool is_title = true;
    bool has_some = false;
    bool is_inside = false;
    size_t step;
    for (size_t at = 0; at < text.size && is_title; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(text, at, 4), &code);
        const bool is_cased = berth_jinja_char_is(code, BERTH_JINJA_CASED);
        is_title = !is_cased || berth_jinja_char_is(code, BERTH_JINJA_SMALL) == is_inside;
        has_some |= is_cased;
        is_inside = is_cased;
    }
    *out = berth_jinja_bool(is_title && has_some);
    return berth_jinja_spend(j, text.size / 16);
}

static berth_status zfill(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_str text = args->self.as.string;
    int64_t width = 0;
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[0], &width));
    const bool has_sign = text.size > 0 && (text.data[0] == '-' || text.data[0] == '+');
    berth_jinja_value items[2] = {
        berth_jinja_integer(width - (has_sign ? 1 : 0)),
        berth_jinja_str(BERTH_STR("0")),
    };
    const berth_jinja_call call = {.items = items, .count = 2};
    const berth_jinja_value digits =
        berth_jinja_str(berth_str_slice(text, has_sign ? 1 : 0, SIZE_MAX));
    BERTH_TRY(berth_jinja_run(j, berth_jinja_method(BERTH_JINJA_STRING, BERTH_STR("rjust")),
                              &digits, &call, out));
    const berth_jinja_value operands[2] = {berth_jinja_str(berth_str_slice(text, 0, 1)), *out};
    return has_sign ? berth_jinja_binary(j, BERTH_JINJA_OP_ADD, operands, out) : BERTH_OK;
}

// ---- lists ----

static berth_status count(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_list *list = args->self.as.list;
    *out = berth_jinja_integer(0);
    for (size_t i = 0; i < list->count; ++i) {
        bool is_equal;
        BERTH_TRY(berth_jinja_equal(j, &list->items[i], &args->values[0], &is_equal));
        out->as.integer += is_equal;
    }
    return BERTH_OK;
}

static berth_status index_of(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_list *list = args->self.as.list;
    for (size_t i = 0; i < list->count; ++i) {
        bool is_equal;
        BERTH_TRY(berth_jinja_equal(j, &list->items[i], &args->values[0], &is_equal));
        if (is_equal) {
            *out = berth_jinja_integer((int64_t)i);
            return BERTH_OK;
        }
    }
    return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "index: the value is not in the list");
}

static berth_status copy(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    (void)j;
    *out = args->self; // Nothing could change either of them.
    return BERTH_OK;
}

// ---- dicts ----

static berth_status get(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_value *found;
    BERTH_TRY(berth_jinja_want_hashable(j, &args->values[0]));
    BERTH_TRY(berth_jinja_dict_find(j, args->self.as.dict, &args->values[0], &found));
    *out = found                                        ? *found
           : args->values[1].kind == BERTH_JINJA_ABSENT ? berth_jinja_none()
                                                        : args->values[1];
    return BERTH_OK;
}

static berth_status view_of(berth_jinja *j, const berth_jinja_value *dict, const char *name,
                            berth_jinja_value *out) {
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_VIEW, dict->as.dict->count, out));
    out->as.list->name = name;
    return BERTH_OK;
}

static berth_status keys(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_dict *dict = args->self.as.dict;
    BERTH_TRY(view_of(j, &args->self, "dict_keys", out));
    for (size_t i = 0; i < dict->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, dict->keys[i]));
    }
    return BERTH_OK;
}

static berth_status values(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_dict *dict = args->self.as.dict;
    BERTH_TRY(view_of(j, &args->self, "dict_values", out));
    for (size_t i = 0; i < dict->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, dict->values[i]));
    }
    return BERTH_OK;
}

static berth_status items(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_dict *dict = args->self.as.dict;
    BERTH_TRY(view_of(j, &args->self, "dict_items", out));
    for (size_t i = 0; i < dict->count; ++i) {
        berth_jinja_value pair;
        BERTH_TRY(berth_jinja_pair(j, dict->keys[i], dict->values[i], &pair));
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, pair));
    }
    return BERTH_OK;
}

// ---- loops and cyclers ----

static berth_status cycle(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    if (args->call->count == 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "cycle needs values to choose from");
    }
    *out = args->call->items[args->self.as.loop->index % args->call->count];
    return BERTH_OK;
}

static berth_status changed(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_loop *loop = args->self.as.loop;
    berth_jinja_value now;
    bool is_equal = false;
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_TUPLE, args->call->count, &now));
    for (size_t i = 0; i < args->call->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, now.as.list, args->call->items[i]));
    }
    if (loop->seen.kind != BERTH_JINJA_ABSENT) {
        BERTH_TRY(berth_jinja_equal(j, &loop->seen, &now, &is_equal));
    }
    loop->seen = now;
    *out = berth_jinja_bool(!is_equal);
    return BERTH_OK;
}

static berth_status next(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_list *list = args->self.as.list;
    (void)j;
    *out = list->items[list->at];
    list->at = (list->at + 1) % list->count;
    return BERTH_OK;
}

static berth_status reset(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    (void)j;
    args->self.as.list->at = 0;
    *out = berth_jinja_none();
    return BERTH_OK;
}

const berth_jinja_builtin berth_jinja_class_methods[] = {
    {.name = "isalpha",      .run = has_letters},
    {.name = "isdigit",                      .run = has_digits},
    {.name = "isdecimal",.run = has_decimals},
    {.name = "isnumeric",    .run = has_numerals},
    {.name = "isalnum",                      .run = has_letters_or_digits},
    {.name = "isspace",.run = has_spaces},
    {.name = "isprintable",      .run = has_printable},
    {.name = "isascii",                      .run = has_ascii},
    {.name = "isidentifier",      .run = is_name},
    {.name = "islower",  .run = is_small},
    {.name = "isupper",                      .run = is_capital},
    {.name = "istitle",.run = is_titled},
    {.name = "zfill", .run = zfill, .least = 1, .parameters = {"width"}},
    {.name = NULL                     },
};

const berth_jinja_builtin berth_jinja_list_methods[] = {
    {.name = "count",  .run = count, .least = 1, .parameters = {"value"}},
    {.name = "index",      .run = index_of, .least = 1, .parameters = {"value"}},
    {.name = "copy",                .run = copy},
    {.name = NULL},
};

const berth_jinja_builtin berth_jinja_dict_methods[] = {
    {.name = "get",    .run = get, .least = 1, .parameters = {"key", "default"}},
    {.name = "keys",      .run = keys},
    {.name = "values",                .run = values},
    {.name = "items",.run = items},
    {.name = "copy", .run = copy},
    {.name = NULL               },
};

const berth_jinja_builtin berth_jinja_loop_methods[] = {
    {.name = "cycle",   .run = cycle, .is_free = true},
    {.name = "changed",  .run = changed, .is_free = true},
    {.name = NULL},
};

const berth_jinja_builtin berth_jinja_cycler_methods[] = {
    {.name = "next", .run = next},
    {.name = "reset",              .run = reset},
    {.name = NULL},
};
