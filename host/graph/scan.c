// SPDX-License-Identifier: Apache-2.0
// Words and types of a graph's text; the grammar stands in print.c.
#include "graph/scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/rules.h"

// ---- words --------------------------------------------------------------------------------------

berth_status berth_scan_fail(const berth_scan *scan, size_t at, const char *format, ...) {
    unsigned long line = 1;
    unsigned long column = 1;
    for (size_t i = 0; i < at && i < scan->source.size; ++i) {
        const bool is_end = scan->source.data[i] == '\n';
        line += is_end;
        column = is_end ? 1 : column + 1;
    }
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return BERTH_FAIL(INVALID_ARGUMENT, "graph text:%lu:%lu: %s", line, column, text);
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static bool is_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

static char byte_at(const berth_scan *scan, size_t at) {
    return at < scan->source.size ? scan->source.data[at] : '\0';
}

static size_t skip_digits(const berth_scan *scan, size_t at) {
    while (is_digit(byte_at(scan, at))) {
        ++at;
    }
    return at;
}

static size_t end_of_number(const berth_scan *scan, size_t at) {
    at = skip_digits(scan, at);
    if (byte_at(scan, at) == '.') {
        at = skip_digits(scan, at + 1);
    }
    if (byte_at(scan, at) == 'e') {
        const char sign = byte_at(scan, at + 1);
        at = skip_digits(scan, at + (sign == '-' || sign == '+' ? 2 : 1));
    }
    return at;
}

static size_t end_of_name(const berth_scan *scan, size_t at) {
    while (is_letter(byte_at(scan, at)) || is_digit(byte_at(scan, at))) {
        ++at;
    }
    return at;
}

// Behind the closing quote.
static berth_status end_of_string(const berth_scan *scan, size_t at, size_t *out_end) {
    const size_t first = at++;
    while (at < scan->source.size && scan->source.data[at] != '"') {
        if ((unsigned char)scan->source.data[at] < 0x20) {
            return berth_scan_fail(scan, at, "a control character in a string; write \\xHH");
        }
        at += scan->source.data[at] == '\\' ? 2 : 1;
    }
    if (at >= scan->source.size) {
        return berth_scan_fail(scan, first, "a string without its closing '\"'");
    }
    *out_end = at + 1;
    return BERTH_OK;
}

berth_status berth_scan_next(berth_scan *scan) {
    size_t at = scan->at;
    while (at < scan->source.size && strchr(" \n\t\r", scan->source.data[at]) != NULL &&
           scan->source.data[at] != '\0') {
        ++at;
    }
    scan->word_at = at;
    const char first = byte_at(scan, at);
    size_t end = at + 1;
    scan->kind = BERTH_WORD_MARK;
    if (at >= scan->source.size) {
        scan->kind = BERTH_WORD_END;
        end = at;
    } else if (is_letter(first)) {
        scan->kind = BERTH_WORD_NAME;
        end = end_of_name(scan, at);
    } else if (is_digit(first)) {
        scan->kind = BERTH_WORD_NUMBER;
        end = end_of_number(scan, at);
    } else if (first == '"') {
        scan->kind = BERTH_WORD_STRING;
        BERTH_TRY(end_of_string(scan, at, &end));
    }
    scan->word = berth_str_slice(scan->source, at, end - at);
    if (scan->kind == BERTH_WORD_STRING) {
        scan->word = berth_str_slice(scan->source, at + 1, end - at - 2);
    }
    scan->at = end;
    return BERTH_OK;
}

berth_status berth_scan_begin(berth_scan *scan, berth_str source) {
    *scan = (berth_scan){.source = source};
    return berth_scan_next(scan);
}

bool berth_scan_is_mark(const berth_scan *scan, char mark) {
    return scan->kind == BERTH_WORD_MARK && scan->word.data[0] == mark;
}

bool berth_scan_is_name(const berth_scan *scan, const char *name) {
    return scan->kind == BERTH_WORD_NAME && berth_str_equal_cstr(scan->word, name);
}

berth_status berth_scan_accept(berth_scan *scan, const char *word, bool *out_is) {
    *out_is = (scan->kind == BERTH_WORD_MARK || scan->kind == BERTH_WORD_NAME) &&
              berth_str_equal_cstr(scan->word, word);
    return *out_is ? berth_scan_next(scan) : BERTH_OK;
}

// A failure at the word: what should stand there and what does.
static berth_status unexpected(const berth_scan *scan, const char *what) {
    if (scan->kind == BERTH_WORD_END) {
        return berth_scan_fail(scan, scan->word_at, "%s is missing at the end", what);
    }
    return berth_scan_fail(scan, scan->word_at, "%s is missing before '%.*s'", what,
                           scan->word.size > 40 ? 40 : (int)scan->word.size, scan->word.data);
}

berth_status berth_scan_expect(berth_scan *scan, const char *word) {
    bool is_there = false;
    char what[32];
    (void)snprintf(what, sizeof(what), "'%s'", word);
    BERTH_TRY(berth_scan_accept(scan, word, &is_there));
    return is_there ? BERTH_OK : unexpected(scan, what);
}

berth_status berth_scan_name(berth_scan *scan, const char *what, berth_str *out_name) {
    if (scan->kind != BERTH_WORD_NAME) {
        return unexpected(scan, what);
    }
    *out_name = scan->word;
    return berth_scan_next(scan);
}

berth_status berth_scan_i64(berth_scan *scan, const char *what, int64_t *out_value) {
    if (scan->kind != BERTH_WORD_NUMBER) {
        return unexpected(scan, what);
    }
    if (berth_str_parse_i64(scan->word, out_value) != BERTH_OK) {
        return berth_scan_fail(scan, scan->word_at, "%s must be a whole number of 64 bits", what);
    }
    return berth_scan_next(scan);
}

static int hex_value(char byte) {
    return is_digit(byte) ? byte - '0' : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

// The byte that the escape after a backslash at `at` stands for; -1 when it is none.
static int unescape(berth_str word, size_t at, size_t *out_size) {
    const char kind = at + 1 < word.size ? word.data[at + 1] : '\0';
    if (kind == '"' || kind == '\\') {
        *out_size = 2;
        return kind;
    }
    if (kind != 'x' || at + 3 >= word.size) {
        return -1;
    }
    const int high = hex_value(word.data[at + 2]);
    const int low = hex_value(word.data[at + 3]);
    *out_size = 4;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

berth_status berth_scan_string(berth_scan *scan, berth_arena *arena, const char **out_string) {
    if (scan->kind != BERTH_WORD_STRING) {
        return unexpected(scan, "a quoted name");
    }
    char *string = berth_arena_array(arena, scan->word.size + 1, 1);
    if (string == NULL) {
        return berth_arena_exhausted(arena, "strings of a graph text");
    }
    char *to = string;
    for (size_t i = 0, size = 0; i < scan->word.size; i += size) {
        size = 1;
        const bool is_escape = scan->word.data[i] == '\\';
        const int byte = is_escape ? unescape(scan->word, i, &size) : scan->word.data[i];
        if (is_escape ? byte <= 0 : byte == 0) {
            return berth_scan_fail(scan, scan->word_at + 1 + i,
                                   "an escape is \\\", \\\\ or \\xHH, and none is \\x00");
        }
        *to++ = (char)byte;
    }
    *out_string = string;
    return berth_scan_next(scan);
}

// ---- types --------------------------------------------------------------------------------------

static berth_status scan_symbol(berth_scan *scan, berth_dim *dim) {
    dim->symbol = berth_scan_is_name(scan, "s0")   ? BERTH_SYMBOL_TOKENS
                  : berth_scan_is_name(scan, "s1") ? BERTH_SYMBOL_SEQUENCES
                                                   : BERTH_SYMBOL_NONE;
    if (dim->symbol == BERTH_SYMBOL_NONE) {
        return unexpected(scan, "a number, s0 or s1");
    }
    return berth_scan_next(scan);
}

// "64", "s0", "2*s0+3"
static berth_status scan_affine(berth_scan *scan, berth_dim *dim) {
    *dim = (berth_dim){.a = 1, .c = 1};
    if (scan->kind == BERTH_WORD_NUMBER) {
        bool is_product = false;
        BERTH_TRY(berth_scan_i64(scan, "a dimension", &dim->a));
        BERTH_TRY(berth_scan_accept(scan, "*", &is_product));
        if (!is_product) {
            *dim = BERTH_DIM_CONST(dim->a);
            return BERTH_OK;
        }
    }
    BERTH_TRY(scan_symbol(scan, dim));
    const int64_t sign = berth_scan_is_mark(scan, '-') ? -1 : 1;
    if (sign < 0 || berth_scan_is_mark(scan, '+')) {
        BERTH_TRY(berth_scan_next(scan));
        BERTH_TRY(berth_scan_i64(scan, "a summand", &dim->b));
        dim->b *= sign;
    }
    return BERTH_OK;
}

static berth_status scan_dim(berth_scan *scan, berth_dim *dim) {
    bool is_quotient = false;
    bool is_sum = false;
    BERTH_TRY(berth_scan_accept(scan, "ceil", &is_quotient));
    if (!is_quotient) {
        return scan_affine(scan, dim);
    }
    BERTH_TRY(berth_scan_expect(scan, "("));
    BERTH_TRY(berth_scan_accept(scan, "(", &is_sum));
    BERTH_TRY(scan_affine(scan, dim));
    if (is_sum) {
        BERTH_TRY(berth_scan_expect(scan, ")"));
    }
    BERTH_TRY(berth_scan_expect(scan, "/"));
    BERTH_TRY(berth_scan_i64(scan, "a divisor", &dim->c));
    return berth_scan_expect(scan, ")");
}

static berth_status scan_dims(berth_scan *scan, berth_value_type *type) {
    bool has_more = true;
    while (has_more) {
        if (type->ndim == BERTH_MAX_DIMS) {
            return berth_scan_fail(scan, scan->word_at, "more than %d dimensions", BERTH_MAX_DIMS);
        }
        BERTH_TRY(scan_dim(scan, &type->dims[type->ndim++]));
        BERTH_TRY(berth_scan_accept(scan, ",", &has_more));
    }
    return berth_scan_expect(scan, "]");
}

berth_status berth_scan_type(berth_scan *scan, berth_value_type *out_type) {
    const size_t at = scan->word_at;
    berth_str name = {0};
    BERTH_TRY(berth_scan_name(scan, "a type", &name));
    berth_value_type type = {.size = sizeof(type), .dtype = berth_dtype_find(name)};
    if (type.dtype == BERTH_DTYPE_NONE) {
        return berth_scan_fail(scan, at, "'" BERTH_STR_FMT "' is no dtype", BERTH_STR_ARG(name));
    }
    bool is_scalar = false;
    BERTH_TRY(berth_scan_expect(scan, "["));
    BERTH_TRY(berth_scan_accept(scan, "]", &is_scalar));
    if (!is_scalar) {
        BERTH_TRY(scan_dims(scan, &type));
    }
    if (berth_type_normalise(&type, out_type) != BERTH_OK) {
        return berth_scan_fail(scan, at, "%s", berth_status_message());
    }
    return BERTH_OK;
}
