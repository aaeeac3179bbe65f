// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str() and repr().
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

// ---- numbers ----

// The digits and the exponent of the shortest decimal that reads back the same.
static int shortest_digits(double value, char *digits, size_t size) {
    char number[40];
    for (int precision = 0; precision <= 16; ++precision) {
        (void)snprintf(number, sizeof(number), "%.*e", precision, value);
        if (strtod(number, NULL) == value) {
            break;
        }
    }
    const char *exponent = strchr(number, 'e');
    size_t count = 0;
    for (const char *c = number; c < exponent && count + 1 < size; ++c) {
        if (*c >= '0' && *c <= '9') {
            digits[count++] = *c;
        }
    }
    while (count > 1 && digits[count - 1] == '0') {
        --count;
    }
    digits[count] = '\0';
    return (int)strtol(exponent + 1, NULL, 10);
}

static void print_exponent(const char *digits, int exponent, berth_text *text) {
    berth_text_add_char(text, digits[0]);
    if (digits[1]) {
        berth_text_add_format(text, ".%s", digits + 1);
    }
    berth_text_add_format(text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

void berth_jinja_print_real(double value, berth_text *text) {
    char digits[24];
    if (isnan(value)) {
        berth_text_add_cstr(text, "nan");
        return;
    }
    berth_text_add_cstr(text, signbit(value) ? "-" : "");
    if (isinf(value)) {
        berth_text_add_cstr(text, "inf");
        return;
    }
    const int exponent = shortest_digits(fabs(value), digits, sizeof(digits));
    const int count = (int)strlen(digits);
    if (exponent < -4 || exponent >= 16) {
        print_exponent(digits, exponent, text);
        return;
    }
    if (exponent < 0) {
        berth_text_add_format(text, "0.%.*s%s", -exponent - 1, "0000", digits);
        return;
    }
    for (int i = 0; i <= exponent; ++i) {
        berth_text_add_char(text, i < count ? digits[i] : '0');
    }
    berth_text_add_format(text, ".%s", count > exponent + 1 ? digits + exponent + 1 : "0");
}

// ---- repr ----

static void repr_char(uint32_t code, char quote, berth_text *text) {
    char bytes[4];
    switch (code) {
    case '\n':
        berth_text_add_cstr(text, "\\n");
        return;
    case '\r':
        berth_text_add_cstr(text, "\\r");
        return;
    case '\t':
        berth_text_add_cstr(text, "\\t");
        return;
    case '\\':
        berth_text_add_cstr(text, "\\\\");
        return;
    default:
        break;
    }
    if (code == (uint32_t)(unsigned char)quote) {
        berth_text_add_format(text, "\\%c", quote);
    } else if (berth_jinja_char_is(code, BERTH_JINJA_PRINTABLE)) {
        const size_t size = berth_utf8_encode(code, bytes);
        berth_text_add(text, (berth_str){.data = bytes, .size = size});
    } else if (code <= 0xFF) {
        berth_text_add_format(text, "\\x%02x", (unsigned)code);
    } else {
        berth_text_add_format(text, code <= 0xFFFF ? "\\u%04x" : "\\U%08x", (unsigned)code);
    }
}

static void repr_string(berth_str string, berth_text *text) {
    const bool has_single = berth_str_find(string, '\'') < string.size;
    const bool has_double = berth_str_find(string, '"') < string.size;
    const char quote = has_single && !has_double ? '"' : '\'';
    size_t step;
    berth_text_add_char(text, quote);
    for (size_t at = 0; at < string.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(string, at, 4), &code);
        repr_char(code, quote, text);
    }
    berth_text_add_char(text, quote);
}

static berth_status repr_list(berth_jinja *j, const berth_jinja_value *value, berth_text *text) {
    const berth_jinja_list *list = value->as.list;
    const bool is_tuple = value->kind == BERTH_JINJA_TUPLE;
    berth_text_add_cstr(text, is_tuple ? "(" : "[");
    for (size_t i = 0; i < list->count; ++i) {
        berth_text_add_cstr(text, i > 0 ? ", " : "");
        BERTH_TRY(berth_jinja_repr(j, &list->items[i], text));
    }
    berth_text_add_cstr(text, !is_tuple ? "]" : list->count == 1 ? ",)" : ")");
    return BERTH_OK;
}

static berth_status repr_dict(berth_jinja *j, const berth_jinja_dict *dict, berth_text *text) {
    berth_text_add_cstr(text, "{");
    for (size_t i = 0; i < dict->count; ++i) {
        berth_text_add_cstr(text, i > 0 ? ", " : "");
        BERTH_TRY(berth_jinja_repr(j, &dict->keys[i], text));
        berth_text_add_cstr(text, ": ");
        BERTH_TRY(berth_jinja_repr(j, &dict->values[i], text));
    }
    berth_text_add_cstr(text, "}");
    return BERTH_OK;
}

static berth_status repr_view(berth_jinja *j, const berth_jinja_value *value, berth_text *text) {
    berth_text_add_format(text, "%s(", value->as.list->name);
    BERTH_TRY(repr_list(j, value, text));
    berth_text_add_cstr(text, ")");
    return BERTH_OK;
}

static void repr_range(const berth_jinja_list *range, berth_text *text) {
    berth_text_add_format(text, "range(%lld, %lld", (long long)range->start,
                          (long long)range->stop);
    if (range->step != 1) {
        berth_text_add_format(text, ", %lld", (long long)range->step);
    }
    berth_text_add_cstr(text, ")");
}

static berth_status repr_any(berth_jinja *j, const berth_jinja_value *value, berth_text *text) {
    switch (value->kind) {
    case BERTH_JINJA_NONE:
        berth_text_add_cstr(text, "None");
        return BERTH_OK;
    case BERTH_JINJA_BOOL:
        berth_text_add_cstr(text, value->as.boolean ? "True" : "False");
        return BERTH_OK;
    case BERTH_JINJA_INTEGER:
        berth_text_add_format(text, "%lld", (long long)value->as.integer);
        return BERTH_OK;
    case BERTH_JINJA_REAL:
        berth_jinja_print_real(value->as.real, text);
        return BERTH_OK;
    case BERTH_JINJA_STRING:
        berth_text_add_cstr(text, value->is_markup ? "Markup(" : "");
        repr_string(value->as.string, text);
        berth_text_add_cstr(text, value->is_markup ? ")" : "");
        return berth_jinja_spend(j, value->as.string.size / 16);
    case BERTH_JINJA_LIST:
    case BERTH_JINJA_TUPLE:
        return repr_list(j, value, text);
    case BERTH_JINJA_RANGE:
        repr_range(value->as.list, text);
        return BERTH_OK;
    case BERTH_JINJA_VIEW:
        return repr_view(j, value, text);
    case BERTH_JINJA_DICT:
        return repr_dict(j, value->as.dict, text);
    case BERTH_JINJA_NAMESPACE:
        berth_text_add_cstr(text, "<Namespace ");
        BERTH_TRY(repr_dict(j, value->as.dict, text));
        berth_text_add_cstr(text, ">");
        return BERTH_OK;
    case BERTH_JINJA_LOOP:
        berth_text_add_format(text, "<LoopContext %zu/%zu>", value->as.loop->index + 1,
                              value->as.loop->items->count);
        return BERTH_OK;
    case BERTH_JINJA_UNDEFINED:
        berth_text_add_cstr(text, "Undefined");
        return BERTH_OK;
    default:
        berth_text_add_format(text, "<%s object>", berth_jinja_type(value));
        return BERTH_OK;
    }
}

berth_status berth_jinja_repr(berth_jinja *j, const berth_jinja_value *value, berth_text *text) {
    BERTH_TRY(berth_jinja_spend(j, 1));
    BERTH_TRY(berth_jinja_enter(j));
    const berth_status status = repr_any(j, value, text);
    berth_jinja_leave(j);
    return status;
}

// ---- str ----

berth_status berth_jinja_print(berth_jinja *j, const berth_jinja_value *value, berth_text *text) {
    if (value->kind == BERTH_JINJA_STRING) {
        berth_text_add(text, value->as.string);
        return berth_jinja_spend(j, 1 + value->as.string.size / 64);
    }
    return value->kind == BERTH_JINJA_UNDEFINED ? BERTH_OK : berth_jinja_repr(j, value, text);
}

berth_status berth_jinja_to_str(berth_jinja *j, const berth_jinja_value *value, berth_str *out) {
    if (value->kind == BERTH_JINJA_STRING) {
        *out = value->as.string;
        return BERTH_OK;
    }
    berth_text text;
    berth_jinja_value made = berth_jinja_str(BERTH_STR(""));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = berth_jinja_print(j, value, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, &made);
    }
    berth_text_deinit(&text);
    *out = made.as.string;
    return status;
}

void berth_jinja_escape(berth_str string, berth_text *text) {
    static const char *const escapes[128] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['\''] = "&#39;", ['"'] = "&#34;",
    };
    for (size_t i = 0; i < string.size; ++i) {
        const uint8_t byte = (uint8_t)string.data[i];
        const char *escape = byte < 128 ? escapes[byte] : NULL;
        if (escape) {
            berth_text_add_cstr(text, escape);
        } else {
            berth_text_add_char(text, (char)byte);
        }
    }
}
