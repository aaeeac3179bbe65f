// SPDX-License-Identifier: Apache-2.0
// Formatting: "%05.2f" of the operator % and "{:>8}" of str.format, which share what a value looks
// like in a field.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

#define WIDTH_LIMIT 65536
#define FIELD_BYTES 1024

typedef struct field {
    berth_str fill; // one character
    char align;     // '<', '>', '^', '=': behind the sign
    char sign;      // '+', ' ' or NUL
    bool is_alternate, has_commas;
    int64_t width, precision; // -1: not given
    char type;                // NUL: not given
} field;

typedef struct formatter {
    berth_jinja *j;
    berth_str format;
    size_t at;
    const berth_jinja_value *values; // of %
    const berth_jinja_call *call;    // of str.format
    size_t next;                     // the value that comes next
    berth_text *out;
} formatter;

static char peek(const formatter *f) {
    return f->at < f->format.size ? f->format.data[f->at] : '\0';
}

static int64_t read_number(formatter *f) {
    int64_t number = -1;
    while (peek(f) >= '0' && peek(f) <= '9') {
        number = (number < 0 ? 0 : number) * 10 + (peek(f) - '0');
        number = number > WIDTH_LIMIT ? WIDTH_LIMIT : number;
        ++f->at;
    }
    return number;
}

static berth_status unknown(const formatter *f) {
    return BERTH_JINJA_FAIL(f->j, UNSUPPORTED, "the format '" BERTH_STR_FMT "' is not supported",
                            BERTH_STR_ARG(f->format));
}

// ---- a value in its field ----

static void pad(formatter *f, const field *spec, berth_str sign, berth_str body) {
    const int64_t size = (int64_t)(berth_jinja_char_count(sign) + berth_jinja_char_count(body));
    const int64_t missing = spec->width > size ? spec->width - size : 0;
    const int64_t left = spec->align == '<' ? 0 : spec->align == '^' ? missing / 2 : missing;
    berth_text_add(f->out, spec->align == '=' ? sign : (berth_str){0});
    for (int64_t i = 0; i < left; ++i) {
        berth_text_add(f->out, spec->fill);
    }
    berth_text_add(f->out, spec->align == '=' ? (berth_str){0} : sign);
    berth_text_add(f->out, body);
    for (int64_t i = left; i < missing; ++i) {
        berth_text_add(f->out, spec->fill);
    }
}

// Puts commas between the thousands of the digits at the front.
static void add_commas(char *digits, size_t size) {
    const size_t whole = strspn(digits, "0123456789");
    size_t length = strlen(digits);
    for (size_t at = whole; at > 3 && length + 2 < size;) {
        at -= 3;
        memmove(digits + at + 1, digits + at, length - at + 1);
        digits[at] = ',';
        ++length;
    }
}

static void add_number(formatter *f, const field *spec, bool is_negative, char *digits) {
    const char *sign = is_negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
    if (spec->has_commas) {
        add_commas(digits, FIELD_BYTES);
    }
    pad(f, spec, berth_str_from(sign), berth_str_from(digits));
}

static berth_status add_integer(formatter *f, const field *spec, int64_t value) {
    char digits[FIELD_BYTES] = "";
    const uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const unsigned long long number = size;
    switch (spec->type) {
    case 'x':
        (void)snprintf(digits, sizeof(digits), spec->is_alternate ? "0x%llx" : "%llx", number);
        break;
    case 'X':
        (void)snprintf(digits, sizeof(digits), spec->is_alternate ? "0X%llX" : "%llX", number);
        break;
    case 'o':
        (void)snprintf(digits, sizeof(digits), spec->is_alternate ? "0o%llo" : "%llo", number);
        break;
    default:
        (void)snprintf(digits, sizeof(digits), "%llu", number);
        break;
    }
    add_number(f, spec, value < 0, digits);
    return BERTH_OK;
}

static berth_status add_real(formatter *f, const field *spec, double value) {
    char digits[FIELD_BYTES];
    char format[] = "%.*f%s";
    const double size = fabs(value);
    if (spec->precision > 300) {
        return unknown(f);
    }
    const bool is_percent = spec->type == '%';
    format[3] = is_percent ? 'f' : spec->type;
    (void)snprintf(digits, sizeof(digits), format, (int)(spec->precision < 0 ? 6 : spec->precision),
                   is_percent ? size * 100 : size, is_percent ? "%" : "");
    add_number(f, spec, signbit(value) && !isnan(value), digits);
    return BERTH_OK;
}

static berth_status add_string(formatter *f, const field *spec, berth_str text) {
    if (spec->precision >= 0) {
        const size_t end = berth_jinja_char_offset(text, (size_t)spec->precision);
        text = berth_str_slice(text, 0, end);
    }
    pad(f, spec, (berth_str){0}, text);
    return BERTH_OK;
}

static berth_status repr_of(formatter *f, const berth_jinja_value *value, berth_str *out) {
    berth_text text;
    berth_jinja_value made = *value;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = berth_jinja_repr(f->j, value, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(f->j, &text, &made);
    }
    berth_text_deinit(&text);
    *out = status == BERTH_OK ? made.as.string : (berth_str){0};
    return status;
}

// A number by its letter.
static berth_status add_typed(formatter *f, const field *spec, const berth_jinja_value *value) {
    int64_t integer;
    double real;
    if (strchr("dxXo", spec->type)) {
        if (berth_jinja_as_integer(value, &integer)) {
            return add_integer(f, spec, integer);
        }
    } else if (berth_jinja_as_real(value, &real)) {
        return add_real(f, spec, real);
    }
    return BERTH_JINJA_FAIL(f->j, INVALID_ARGUMENT, "format '%c' needs a number, not '%s'",
                            spec->type, berth_jinja_type(value));
}

// ---- % ----

static void read_flags(formatter *f, field *spec) {
    for (;; ++f->at) {
        switch (peek(f)) {
        case '-':
            spec->align = '<';
            spec->fill = BERTH_STR(" ");
            break;
        case '0':
            if (spec->align != '<') {
                spec->align = '=';
                spec->fill = BERTH_STR("0");
            }
            break;
        case '+':
        case ' ':
            spec->sign = spec->sign == '+' ? '+' : peek(f);
            break;
        case '#':
            spec->is_alternate = true;
            break;
        default:
            return;
        }
    }
}

// The value of the next conversion: the one of a name, the next of a tuple, or the only one.
static berth_status next_value(formatter *f, berth_str name, berth_jinja_value *out) {
    const berth_jinja_value *values = f->values;
    assert(values);
    if (name.data) {
        const berth_jinja_value *found =
            values->kind == BERTH_JINJA_DICT ? berth_jinja_dict_str(values->as.dict, name) : NULL;
        *out = found ? *found : berth_jinja_none();
        return found ? BERTH_OK
                     : BERTH_JINJA_FAIL(f->j, INVALID_ARGUMENT,
                                        "there is no value '" BERTH_STR_FMT "' to format",
                                        BERTH_STR_ARG(name));
    }
    const bool is_tuple = values->kind == BERTH_JINJA_TUPLE;
    if (f->next >= (is_tuple ? values->as.list->count : 1)) {
        return BERTH_JINJA_FAIL(f->j, INVALID_ARGUMENT, "not enough values for the format");
    }
    *out = is_tuple ? values->as.list->items[f->next] : *values;
    ++f->next;
    return BERTH_OK;
}

static berth_status add_conversion(formatter *f, field *spec, const berth_jinja_value *value) {
    berth_str text;
    double real;
    switch (spec->type) {
    case 's':
    case 'r':
        BERTH_TRY(spec->type == 's' ? berth_jinja_to_str(f->j, value, &text)
                                    : repr_of(f, value, &text));
        spec->fill = BERTH_STR(" ");
        return add_string(f, spec, text);
    case 'd':
    case 'i':
    case 'u':
        spec->type = 'd';
        if (value->kind == BERTH_JINJA_REAL && berth_jinja_as_real(value, &real) &&
            fabs(real) < 0x1p62) {
            return add_integer(f, spec, (int64_t)real);
        }
        return add_typed(f, spec, value);
    case 'x':
    case 'X':
    case 'o':
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        return add_typed(f, spec, value);
    default:
        return unknown(f);
    }
}

static berth_status convert(formatter *f) {
    field spec = {.fill = BERTH_STR(" "), .align = '>', .precision = -1};
    berth_str name = {0};
    berth_jinja_value value;
    if (peek(f) == '(') {
        const berth_str rest = berth_str_slice(f->format, f->at + 1, SIZE_MAX);
        name = berth_str_slice(rest, 0, berth_str_find(rest, ')'));
        f->at += name.size + 2;
    }
    read_flags(f, &spec);
    spec.width = read_number(f);
    if (peek(f) == '.') {
        ++f->at;
        spec.precision = read_number(f);
        spec.precision = spec.precision < 0 ? 0 : spec.precision;
    }
    spec.type = peek(f);
    ++f->at;
    if (spec.type == '%') {
        berth_text_add_char(f->out, '%');
        return BERTH_OK;
    }
    BERTH_TRY(next_value(f, name, &value));
    return add_conversion(f, &spec, &value);
}

static berth_status run_percent(formatter *f) {
    assert(f->values);
    while (f->at < f->format.size) {
        const berth_str rest = berth_str_slice(f->format, f->at, SIZE_MAX);
        const size_t plain = berth_str_find(rest, '%');
        berth_text_add(f->out, berth_str_slice(rest, 0, plain));
        f->at += plain + 1;
        if (plain < rest.size) {
            BERTH_TRY(convert(f));
        }
    }
    const bool is_left = f->values->kind == BERTH_JINJA_TUPLE
                             ? f->next < f->values->as.list->count
                             : f->next == 0 && f->values->kind != BERTH_JINJA_DICT &&
                                   f->values->kind != BERTH_JINJA_LIST &&
                                   f->values->kind != BERTH_JINJA_UNDEFINED;
    return is_left
               ? BERTH_JINJA_FAIL(f->j, INVALID_ARGUMENT, "not all values were used by the format")
               : BERTH_OK;
}

// ---- str.format ----

static const char *find_align(char byte) {
    return byte ? strchr("<>^=", byte) : NULL;
}

static berth_status read_spec(formatter *f, field *spec) {
    const berth_str rest = berth_str_slice(f->format, f->at, SIZE_MAX);
    const size_t step = berth_utf8_next(rest, NULL);
    if (step > 0 && step < rest.size && find_align(rest.data[step])) {
        spec->fill = berth_str_slice(rest, 0, step);
        f->at += step;
    }
    if (find_align(peek(f))) {
        spec->align = peek(f);
        ++f->at;
    }
    if (peek(f) == '+' || peek(f) == ' ' || peek(f) == '-') {
        spec->sign = peek(f);
        ++f->at;
    }
    if (peek(f) == '#') {
        spec->is_alternate = true;
        ++f->at;
    }
    if (peek(f) == '0' && !spec->align) {
        spec->fill = BERTH_STR("0");
        spec->align = '=';
    }
    spec->width = read_number(f);
    if (peek(f) == ',') {
        spec->has_commas = true;
        ++f->at;
    }
    if (peek(f) == '.') {
        ++f->at;
        spec->precision = read_number(f);
    }
    spec->type = peek(f) == '}' ? '\0' : peek(f);
    f->at += spec->type ? 1 : 0;
    return peek(f) == '}' ? BERTH_OK : unknown(f);
}

static berth_status add_formatted(formatter *f, field *spec, const berth_jinja_value *value) {
    berth_str text;
    int64_t integer;
    const bool is_number = berth_jinja_is_number(value) && value->kind != BERTH_JINJA_BOOL;
    spec->align = spec->align ? spec->align : is_number ? '>' : '<';
    if (value->kind == BERTH_JINJA_INTEGER && !spec->type &&
        berth_jinja_as_integer(value, &integer)) {
        return add_integer(f, spec, integer);
    }
    if (value->kind == BERTH_JINJA_REAL && !spec->type && spec->precision >= 0) {
        spec->type = 'g';
    }
    if (spec->type && spec->type != 's') {
        return strchr("dxXofFeEgG%", spec->type) ? add_typed(f, spec, value) : unknown(f);
    }
    BERTH_TRY(berth_jinja_to_str(f->j, value, &text));
    return add_string(f, spec, text);
}

// Digits alone are an index; with anything else among them, or too many, they are a name.
static bool read_index(berth_str text, int64_t *out) {
    int64_t value = 0;
    for (size_t i = 0; i < text.size; ++i) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }
        value = 10 * value + (text.data[i] - '0');
        if (value > UINT32_MAX) {
            return false;
        }
    }
    *out = value;
    return text.size > 0;
}

// "0", "name" or nothing: the next one.
static berth_status find_value(formatter *f, berth_str name, berth_jinja_value *out) {
    int64_t index = (int64_t)f->next;
    if (name.size == 0) {
        ++f->next;
    } else if (!read_index(name, &index)) {
        for (size_t i = 0; i < f->call->named_count; ++i) {
            if (berth_str_equal(f->call->names[i], name)) {
                *out = f->call->named[i];
                return BERTH_OK;
            }
        }
        index = -1;
    }
    if (index < 0 || (size_t)index >= f->call->count) {
        return BERTH_JINJA_FAIL(f->j, INVALID_ARGUMENT,
                                "there is no value '" BERTH_STR_FMT "' to format",
                                BERTH_STR_ARG(name));
    }
    *out = f->call->items[index];
    return BERTH_OK;
}

// ".name" and "[0]" behind a value's name.
static berth_status follow(formatter *f, berth_str path, berth_jinja_value *value) {
    while (path.size > 0) {
        const bool is_index = path.data[0] == '[';
        const berth_str rest = berth_str_slice(path, 1, SIZE_MAX);
        size_t size = 0;
        while (size < rest.size && rest.data[size] != ']' &&
               (is_index || (rest.data[size] != '.' && rest.data[size] != '['))) {
            ++size;
        }
        const berth_str name = berth_str_slice(rest, 0, size);
        int64_t number = 0;
        berth_jinja_value index = berth_jinja_str(name);
        if (is_index && read_index(name, &number)) {
            index.kind = BERTH_JINJA_INTEGER;
            index.as.integer = number;
        }
        const berth_jinja_value from = *value;
        BERTH_TRY(berth_jinja_item(f->j, &from, &index, value));
        path = berth_str_slice(rest, size + (is_index ? 1 : 0), SIZE_MAX);
    }
    return BERTH_OK;
}

static berth_status replace_field(formatter *f) {
    field spec = {.fill = BERTH_STR(" "), .width = -1, .precision = -1};
    const berth_str rest = berth_str_slice(f->format, f->at, SIZE_MAX);
    size_t size = 0;
    while (size < rest.size && !strchr("!:}", rest.data[size])) {
        ++size;
    }
    const berth_str path = berth_str_slice(rest, 0, size);
    size_t name = 0;
    while (name < size && path.data[name] != '.' && path.data[name] != '[') {
        ++name;
    }
    berth_jinja_value value;
    BERTH_TRY(find_value(f, berth_str_slice(path, 0, name), &value));
    BERTH_TRY(follow(f, berth_str_slice(path, name, SIZE_MAX), &value));
    f->at += size;
    if (peek(f) == '!') {
        return unknown(f);
    }
    f->at += peek(f) == ':' ? 1 : 0;
    BERTH_TRY(read_spec(f, &spec));
    ++f->at;
    return add_formatted(f, &spec, &value);
}

static berth_status run_format(formatter *f) {
    while (f->at < f->format.size) {
        const char byte = f->format.data[f->at++];
        const bool is_brace = byte == '{' || byte == '}';
        if (!is_brace || peek(f) == byte) {
            berth_text_add_char(f->out, byte);
            f->at += is_brace ? 1 : 0;
        } else if (byte == '{') {
            BERTH_TRY(replace_field(f));
        } else {
            return BERTH_JINJA_FAIL(f->j, INVALID_ARGUMENT, "a single '}' in a format");
        }
    }
    return BERTH_OK;
}

// ---- both ----

static berth_status run(formatter *f, berth_jinja_value *out) {
    berth_text text;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    f->out = &text;
    berth_status status = f->call ? run_format(f) : run_percent(f);
    if (status == BERTH_OK) {
        status = berth_jinja_take(f->j, &text, out);
    }
    berth_text_deinit(&text);
    f->out = NULL;
    return status;
}

berth_status berth_jinja_percent(berth_jinja *j, berth_str format, const berth_jinja_value *values,
                                 berth_jinja_value *out) {
    formatter f = {.j = j, .format = format, .values = values};
    return run(&f, out);
}

berth_status berth_jinja_format(berth_jinja *j, berth_str format, const berth_jinja_call *call,
                                berth_jinja_value *out) {
    formatter f = {.j = j, .format = format, .call = call};
    return run(&f, out);
}
