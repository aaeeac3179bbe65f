// SPDX-License-Identifier: Apache-2.0
// Tests: what may stand behind `is`.
#include "chat/characters.h"
#include "chat/evaluate.h"

// A test that only looks at the value: its name, and whether it holds.
#define ASKS(name, condition)                                                                      \
    static berth_status name(berth_jinja *j, const berth_jinja_args *args,                         \
                             berth_jinja_value *out) {                                             \
        const berth_jinja_value *v = &args->self;                                                  \
        (void)j;                                                                                   \
        *out = berth_jinja_bool(condition);                                                        \
        return BERTH_OK;                                                                           \
    }

ASKS(is_defined, v->kind != BERTH_JINJA_UNDEFINED)
ASKS(is_undefined, v->kind == BERTH_JINJA_UNDEFINED)
ASKS(is_none, v->kind == BERTH_JINJA_NONE)
ASKS(is_boolean, v->kind == BERTH_JINJA_BOOL)
ASKS(is_true, v->kind == BERTH_JINJA_BOOL && v->as.boolean)
ASKS(is_false, v->kind == BERTH_JINJA_BOOL && !v->as.boolean)
ASKS(is_integer, v->kind == BERTH_JINJA_INTEGER)
ASKS(is_float, v->kind == BERTH_JINJA_REAL)
ASKS(is_number, berth_jinja_is_number(v))
ASKS(is_string, v->kind == BERTH_JINJA_STRING)
ASKS(is_mapping, v->kind == BERTH_JINJA_DICT)
ASKS(is_escaped, v->is_markup)
ASKS(is_callable, v->kind >= BERTH_JINJA_LOOP || v->kind == BERTH_JINJA_UNDEFINED)
ASKS(is_sequence, berth_jinja_is_sequence(v) || v->kind == BERTH_JINJA_STRING ||
                      v->kind == BERTH_JINJA_DICT || v->kind == BERTH_JINJA_UNDEFINED)
ASKS(is_iterable, (v->kind >= BERTH_JINJA_STRING && v->kind <= BERTH_JINJA_DICT) ||
                      v->kind == BERTH_JINJA_UNDEFINED || v->kind == BERTH_JINJA_LOOP)

// ---- numbers ----

static berth_status divides(berth_jinja *j, const berth_jinja_value *value,
                            const berth_jinja_value *by, int64_t rest, berth_jinja_value *out) {
    const berth_jinja_value operands[2] = {*value, *by};
    const berth_jinja_value wanted = berth_jinja_integer(rest);
    berth_jinja_value left;
    bool is_equal;
    BERTH_TRY(berth_jinja_binary(j, BERTH_JINJA_OP_MODULO, operands, &left));
    BERTH_TRY(berth_jinja_equal(j, &left, &wanted, &is_equal));
    *out = berth_jinja_bool(is_equal);
    return BERTH_OK;
}

static berth_status is_even(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_value two = berth_jinja_integer(2);
    return divides(j, &args->self, &two, 0, out);
}

static berth_status is_odd(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_value two = berth_jinja_integer(2);
    return divides(j, &args->self, &two, 1, out);
}

static berth_status is_divisible(berth_jinja *j, const berth_jinja_args *args,
                                 berth_jinja_value *out) {
    return divides(j, &args->self, &args->values[0], 0, out);
}

// ---- comparisons ----

static berth_status is_equal(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    bool holds;
    BERTH_TRY(berth_jinja_equal(j, &args->self, &args->values[0], &holds));
    *out = berth_jinja_bool(holds);
    return BERTH_OK;
}

static berth_status is_unequal(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    BERTH_TRY(is_equal(j, args, out));
    out->as.boolean = !out->as.boolean;
    return BERTH_OK;
}

// Whether the order of the two is one of the two signs.
static berth_status is_ordered(berth_jinja *j, const berth_jinja_args *args, const int signs[2],
                               berth_jinja_value *out) {
    int sign;
    BERTH_TRY(berth_jinja_compare(j, &args->self, &args->values[0], &sign));
    sign = sign == 2 ? 2 : (sign > 0) - (sign < 0);
    *out = berth_jinja_bool(sign == signs[0] || sign == signs[1]);
    return BERTH_OK;
}

static berth_status is_less(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return is_ordered(j, args, (const int[2]){-1, -1}, out);
}

static berth_status is_at_most(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    return is_ordered(j, args, (const int[2]){-1, 0}, out);
}

static berth_status is_greater(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    return is_ordered(j, args, (const int[2]){1, 1}, out);
}

static berth_status is_at_least(berth_jinja *j, const berth_jinja_args *args,
                                berth_jinja_value *out) {
    return is_ordered(j, args, (const int[2]){1, 0}, out);
}

static berth_status is_in(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    bool holds;
    BERTH_TRY(berth_jinja_contains(j, &args->values[0], &args->self, &holds));
    *out = berth_jinja_bool(holds);
    return BERTH_OK;
}

// Why equality stands for identity: Python keeps one of each small number and short string.
static berth_status is_same(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_value *other = &args->values[0];
    if (args->self.kind >= BERTH_JINJA_LIST) {
        *out = berth_jinja_bool(args->self.kind == other->kind &&
                                args->self.as.list == other->as.list);
        return BERTH_OK;
    }
    BERTH_TRY(is_equal(j, args, out));
    out->as.boolean &= args->self.kind == other->kind;
    return BERTH_OK;
}

// ---- names and letters ----

static berth_status is_filter(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    const bool is_name = args->self.kind == BERTH_JINJA_STRING;
    BERTH_TRY(berth_jinja_want_hashable(j, &args->self));
    *out = berth_jinja_bool(is_name && berth_jinja_filter(args->self.as.string));
    return BERTH_OK;
}

static berth_status is_test(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const bool is_name = args->self.kind == BERTH_JINJA_STRING;
    BERTH_TRY(berth_jinja_want_hashable(j, &args->self));
    *out = berth_jinja_bool(is_name && berth_jinja_test(args->self.as.string));
    return BERTH_OK;
}

static berth_status has_case(berth_jinja *j, const berth_jinja_args *args, const char *method,
                             berth_jinja_value *out) {
    static const berth_jinja_call none = {0};
    berth_str text;
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &text));
    const berth_jinja_value self = berth_jinja_str(text);
    return berth_jinja_run(j, berth_jinja_method(BERTH_JINJA_STRING, berth_str_from(method)), &self,
                           &none, out);
}

static berth_status is_lower(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return has_case(j, args, "islower", out);
}

static berth_status is_upper(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return has_case(j, args, "isupper", out);
}

const berth_jinja_builtin berth_jinja_tests[] = {
    {.name = "defined",        .run = is_defined},
    {.name = "undefined",                        .run = is_undefined},
    {.name = "none",.run = is_none},
    {.name = "boolean",           .run = is_boolean},
    {.name = "true",                        .run = is_true},
    {.name = "false",.run = is_false},
    {.name = "integer",           .run = is_integer},
    {.name = "float",                        .run = is_float},
    {.name = "number",             .run = is_number},
    {.name = "string",        .run = is_string},
    {.name = "mapping",                        .run = is_mapping},
    {.name = "sequence",.run = is_sequence},
    {.name = "iterable",         .run = is_iterable},
    {.name = "callable",                        .run = is_callable},
    {.name = "escaped", .run = is_escaped},
    {.name = "even",        .run = is_even},
    {.name = "odd",                        .run = is_odd},
    {.name = "divisibleby",                     .run = is_divisible, .least = 1, .parameters = {"num"}},
    {.name = "eq",       .run = is_equal, .least = 1, .parameters = {"other"}},
    {.name = "equalto",                        .run = is_equal, .least = 1, .parameters = {"other"}},
    {.name = "==",.run = is_equal, .least = 1, .parameters = {"other"}},
    {.name = "ne",        .run = is_unequal, .least = 1, .parameters = {"other"}},
    {.name = "!=",                        .run = is_unequal, .least = 1, .parameters = {"other"}},
    {.name = "lt",   .run = is_less, .least = 1, .parameters = {"other"}},
    {.name = "lessthan",            .run = is_less, .least = 1, .parameters = {"other"}},
    {.name = "<",                        .run = is_less, .least = 1, .parameters = {"other"}},
    {.name = "le",.run = is_at_most, .least = 1, .parameters = {"other"}},
    {.name = "<=",   .run = is_at_most, .least = 1, .parameters = {"other"}},
    {.name = "gt",             .run = is_greater, .least = 1, .parameters = {"other"}},
    {.name = "greaterthan",              .run = is_greater, .least = 1, .parameters = {"other"}},
    {.name = ">",                        .run = is_greater, .least = 1, .parameters = {"other"}},
    {.name = "ge",.run = is_at_least, .least = 1, .parameters = {"other"}},
    {.name = ">=", .run = is_at_least, .least = 1, .parameters = {"other"}},
    {.name = "in",             .run = is_in, .least = 1, .parameters = {"seq"}},
    {.name = "sameas",              .run = is_same, .least = 1, .parameters = {"other"}},
    {.name = "filter",                        .run = is_filter},
    {.name = "test",.run = is_test},
    {.name = "lower", .run = is_lower},
    {.name = "upper",             .run = is_upper},
    {.name = NULL             },
};
