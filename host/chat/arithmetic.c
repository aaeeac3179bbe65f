// SPDX-License-Identifier: Apache-2.0
// Operators on values, with Python's rules: the type of the result, rounding towards minus
// infinity, sequences that are joined and repeated. Integers have 64 bits; what leaves them is
// refused.
#include <math.h>
#include <string.h>

#include "chat/evaluate.h"

static const char *const op_texts[] = {
    [BERTH_JINJA_OP_ADD] = "+",    [BERTH_JINJA_OP_SUBTRACT] = "-", [BERTH_JINJA_OP_MULTIPLY] = "*",
    [BERTH_JINJA_OP_DIVIDE] = "/", [BERTH_JINJA_OP_FLOOR] = "//",   [BERTH_JINJA_OP_MODULO] = "%",
    [BERTH_JINJA_OP_POWER] = "**",
};

static berth_status refuse(berth_jinja *j, berth_jinja_op op, const berth_jinja_value operands[2]) {
    for (size_t i = 0; i < 2; ++i) {
        if (operands[i].kind == BERTH_JINJA_UNDEFINED) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, BERTH_STR_FMT,
                                    BERTH_STR_ARG(operands[i].as.string));
        }
    }
    return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "'%s' does not work on '%s' and '%s'",
                            op_texts[op], berth_jinja_type(&operands[0]),
                            berth_jinja_type(&operands[1]));
}

static berth_status too_large(berth_jinja *j) {
    return BERTH_JINJA_FAIL(j, UNSUPPORTED,
                            "an integer that does not fit 64 bits, which is not supported");
}

// ---- numbers ----

static berth_status power_of_integers(berth_jinja *j, int64_t base, int64_t exponent,
                                      berth_jinja_value *out) {
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "zero to a negative power");
        }
        *out = berth_jinja_real(pow((double)base, (double)exponent));
        return BERTH_OK;
    }
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) {
            return too_large(j);
        }
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) {
            return too_large(j);
        }
    }
    *out = berth_jinja_integer(result);
    return BERTH_OK;
}

static berth_status divide_integers(berth_jinja *j, berth_jinja_op op, const int64_t x[2],
                                    berth_jinja_value *out) {
    if (x[1] == 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "division by zero");
    }
    if (op == BERTH_JINJA_OP_DIVIDE) {
        *out = berth_jinja_real((double)((long double)x[0] / (long double)x[1]));
        return BERTH_OK;
    }
    if (x[0] == INT64_MIN && x[1] == -1) {
        *out = berth_jinja_integer(0);
        return op == BERTH_JINJA_OP_MODULO ? BERTH_OK : too_large(j);
    }
    const int64_t rest = x[0] % x[1];
    const bool is_off = rest != 0 && (rest < 0) != (x[1] < 0);
    *out = op == BERTH_JINJA_OP_FLOOR ? berth_jinja_integer(x[0] / x[1] - is_off)
                                      : berth_jinja_integer(is_off ? rest + x[1] : rest);
    return BERTH_OK;
}

static berth_status on_integers(berth_jinja *j, berth_jinja_op op, const int64_t x[2],
                                berth_jinja_value *out) {
    int64_t result;
    bool overflows;
    switch (op) {
    case BERTH_JINJA_OP_ADD:
        overflows = __builtin_add_overflow(x[0], x[1], &result);
        break;
    case BERTH_JINJA_OP_SUBTRACT:
        overflows = __builtin_sub_overflow(x[0], x[1], &result);
        break;
    case BERTH_JINJA_OP_MULTIPLY:
        overflows = __builtin_mul_overflow(x[0], x[1], &result);
        break;
    case BERTH_JINJA_OP_POWER:
        return power_of_integers(j, x[0], x[1], out);
    default:
        return divide_integers(j, op, x, out);
    }
    *out = berth_jinja_integer(result);
    return overflows ? too_large(j) : BERTH_OK;
}

// The rest has the sign of the divisor, the quotient is what the rest leaves.
static double modulo_of_reals(double x, double y, double *out_quotient) {
    double rest = fmod(x, y);
    double quotient = (x - rest) / y;
    if (rest != 0 && (y < 0) != (rest < 0)) {
        rest += y;
        quotient -= 1;
    }
    const double whole = floor(quotient);
    *out_quotient = quotient == 0 ? copysign(0, x / y) : whole + (quotient - whole > 0.5);
    return rest == 0 ? copysign(0, y) : rest;
}

static berth_status power_of_reals(berth_jinja *j, const double x[2], berth_jinja_value *out) {
    if (x[0] == 0 && x[1] < 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "zero to a negative power");
    }
    if (x[0] < 0 && floor(x[1]) != x[1]) {
        return BERTH_JINJA_FAIL(j, UNSUPPORTED, "a root of a negative number is not supported");
    }
    *out = berth_jinja_real(pow(x[0], x[1]));
    if (isinf(out->as.real) && !isinf(x[0]) && !isinf(x[1])) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "the result of '**' is too large");
    }
    return BERTH_OK;
}

static berth_status on_reals(berth_jinja *j, berth_jinja_op op, const double x[2],
                             berth_jinja_value *out) {
    double quotient;
    switch (op) {
    case BERTH_JINJA_OP_ADD:
        *out = berth_jinja_real(x[0] + x[1]);
        return BERTH_OK;
    case BERTH_JINJA_OP_SUBTRACT:
        *out = berth_jinja_real(x[0] - x[1]);
        return BERTH_OK;
    case BERTH_JINJA_OP_MULTIPLY:
        *out = berth_jinja_real(x[0] * x[1]);
        return BERTH_OK;
    case BERTH_JINJA_OP_POWER:
        return power_of_reals(j, x, out);
    default:
        break;
    }
    if (x[1] == 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "division by zero");
    }
    const double rest = modulo_of_reals(x[0], x[1], &quotient);
    *out = berth_jinja_real(op == BERTH_JINJA_OP_DIVIDE  ? x[0] / x[1]
                            : op == BERTH_JINJA_OP_FLOOR ? quotient
                                                         : rest);
    return BERTH_OK;
}

// ---- sequences ----

static berth_status repeat_string(berth_jinja *j, const berth_jinja_value *string, size_t times,
                                  berth_jinja_value *out) {
    const berth_str piece = string->as.string;
    void *bytes;
    if (piece.size > 0 && times > BERTH_JINJA_OUTPUT / piece.size) {
        return BERTH_JINJA_FAIL(j, OUT_OF_MEMORY, "a text of more than %zu MiB",
                                BERTH_JINJA_OUTPUT >> 20);
    }
    BERTH_TRY(berth_jinja_alloc(j, piece.size > 0 ? piece.size * times + 1 : 1, 1, &bytes));
    for (size_t i = 0; i < times && piece.size > 0; ++i) {
        memcpy((char *)bytes + i * piece.size, piece.data, piece.size);
    }
    *out = *string;
    out->as.string = (berth_str){.data = bytes, .size = piece.size > 0 ? piece.size * times : 0};
    return BERTH_OK;
}

static berth_status repeat_list(berth_jinja *j, const berth_jinja_value *value, size_t times,
                                berth_jinja_value *out) {
    const berth_jinja_list *list = value->as.list;
    times = list->count == 0 ? 0 : times;
    if (times > BERTH_JINJA_BYTES / sizeof(berth_jinja_value)) {
        return BERTH_JINJA_FAIL(j, OUT_OF_MEMORY, "a list repeated %zu times", times);
    }
    BERTH_TRY(berth_jinja_list_new(j, value->kind, list->count * times, out));
    for (size_t i = 0; i < times; ++i) {
        for (size_t k = 0; k < list->count; ++k) {
            BERTH_TRY(berth_jinja_list_add(j, out->as.list, list->items[k]));
        }
    }
    return BERTH_OK;
}

static berth_status repeat(berth_jinja *j, const berth_jinja_value operands[2],
                           berth_jinja_value *out) {
    int64_t times;
    const size_t which = berth_jinja_as_integer(&operands[0], &times) ? 1 : 0;
    const berth_jinja_value *value = &operands[which];
    const bool is_list = value->kind == BERTH_JINJA_LIST || value->kind == BERTH_JINJA_TUPLE;
    if (!berth_jinja_as_integer(&operands[1 - which], &times) ||
        (value->kind != BERTH_JINJA_STRING && !is_list)) {
        return refuse(j, BERTH_JINJA_OP_MULTIPLY, operands);
    }
    times = times < 0 ? 0 : times;
    return is_list ? repeat_list(j, value, (size_t)times, out)
                   : repeat_string(j, value, (size_t)times, out);
}

// Markup stays markup, and what comes to it is escaped.
static berth_status join_strings(berth_jinja *j, const berth_jinja_value operands[2],
                                 berth_jinja_value *out) {
    const bool is_markup = operands[0].is_markup || operands[1].is_markup;
    berth_text text;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    for (size_t i = 0; i < 2; ++i) {
        if (is_markup && !operands[i].is_markup) {
            berth_jinja_escape(operands[i].as.string, &text);
        } else {
            berth_text_add(&text, operands[i].as.string);
        }
    }
    const berth_status status = berth_jinja_take(j, &text, out);
    out->is_markup = is_markup;
    berth_text_deinit(&text);
    return status;
}

static berth_status join_lists(berth_jinja *j, const berth_jinja_value operands[2],
                               berth_jinja_value *out) {
    const size_t count = operands[0].as.list->count + operands[1].as.list->count;
    BERTH_TRY(berth_jinja_list_new(j, operands[0].kind, count, out));
    for (size_t i = 0; i < 2; ++i) {
        for (size_t k = 0; k < operands[i].as.list->count; ++k) {
            BERTH_TRY(berth_jinja_list_add(j, out->as.list, operands[i].as.list->items[k]));
        }
    }
    return BERTH_OK;
}

static berth_status on_others(berth_jinja *j, berth_jinja_op op,
                              const berth_jinja_value operands[2], berth_jinja_value *out) {
    const berth_jinja_kind kind = operands[0].kind;
    const bool is_same = kind == operands[1].kind;
    if (op == BERTH_JINJA_OP_ADD && is_same && kind == BERTH_JINJA_STRING) {
        return join_strings(j, operands, out);
    }
    if (op == BERTH_JINJA_OP_ADD && is_same &&
        (kind == BERTH_JINJA_LIST || kind == BERTH_JINJA_TUPLE)) {
        return join_lists(j, operands, out);
    }
    if (op == BERTH_JINJA_OP_MULTIPLY) {
        return repeat(j, operands, out);
    }
    if (op == BERTH_JINJA_OP_MODULO && kind == BERTH_JINJA_STRING) {
        return berth_jinja_percent(j, operands[0].as.string, &operands[1], out);
    }
    return refuse(j, op, operands);
}

berth_status berth_jinja_binary(berth_jinja *j, berth_jinja_op op,
                                const berth_jinja_value operands[2], berth_jinja_value *out) {
    int64_t integers[2];
    double reals[2];
    if (berth_jinja_as_integer(&operands[0], &integers[0]) &&
        berth_jinja_as_integer(&operands[1], &integers[1])) {
        return on_integers(j, op, integers, out);
    }
    if (berth_jinja_as_real(&operands[0], &reals[0]) &&
        berth_jinja_as_real(&operands[1], &reals[1])) {
        return on_reals(j, op, reals, out);
    }
    return on_others(j, op, operands, out);
}

berth_status berth_jinja_negate(berth_jinja *j, const berth_jinja_value *value,
                                berth_jinja_value *out) {
    int64_t integer;
    if (value->kind == BERTH_JINJA_REAL) {
        *out = berth_jinja_real(-value->as.real);
        return BERTH_OK;
    }
    if (berth_jinja_as_integer(value, &integer)) {
        *out = berth_jinja_integer(integer == INT64_MIN ? 0 : -integer);
        return integer == INT64_MIN ? too_large(j) : BERTH_OK;
    }
    const berth_jinja_value operands[2] = {*value, berth_jinja_none()};
    return value->kind == BERTH_JINJA_UNDEFINED
               ? refuse(j, BERTH_JINJA_OP_SUBTRACT, operands)
               : BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "a sign does not work on '%s'",
                                  berth_jinja_type(value));
}
