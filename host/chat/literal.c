// SPDX-License-Identifier: Apache-2.0
// String and number literals, as Python reads them.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/token.h"

#define NUMBER_BYTES 128

typedef struct unescaper {
    berth_jinja *j;
    berth_str literal;
    size_t at;
    berth_text *out;
} unescaper;

static int digit_of(char byte) {
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    const char lower = (char)(byte | 0x20);
    return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Up to `most` digits; the number of those that were there.
static size_t read_digits(unescaper *u, int base, size_t most, uint32_t *out) {
    size_t count = 0;
    *out = 0;
    while (count < most && u->at < u->literal.size && digit_of(u->literal.data[u->at]) < base) {
        *out = *out * (uint32_t)base + (uint32_t)digit_of(u->literal.data[u->at++]);
        ++count;
    }
    return count;
}

static berth_status add_code(unescaper *u, uint32_t code) {
    char bytes[4];
    const size_t size = berth_utf8_encode(code, bytes);
    if (size == 0) {
        return BERTH_JINJA_FAIL(u->j, CORRUPT, "the escape of U+%04X, which is no character",
                                (unsigned)code);
    }
    berth_text_add(u->out, (berth_str){.data = bytes, .size = size});
    return BERTH_OK;
}

// A pair of surrogates is one character.
static berth_status add_hex(unescaper *u, size_t digits) {
    uint32_t code, low;
    if (read_digits(u, 16, digits, &code) != digits) {
        return BERTH_JINJA_FAIL(u->j, CORRUPT, "an escape without its %zu hexadecimal digits",
                                digits);
    }
    const berth_str rest = berth_str_slice(u->literal, u->at, SIZE_MAX);
    if (code >= 0xD800 && code < 0xDC00 && berth_str_starts_with(rest, BERTH_STR("\\u"))) {
        u->at += 2;
        if (read_digits(u, 16, 4, &low) == 4 && low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return add_code(u, code);
}

static berth_status add_octal(unescaper *u) {
    uint32_t code;
    (void)read_digits(u, 8, 3, &code);
    return add_code(u, code);
}

static berth_status unescape_one(unescaper *u) {
    static const char letters[] = "abfnrtv\\'\"";
    static const char meanings[] = "\a\b\f\n\r\t\v\\'\"";
    const char letter = u->literal.data[u->at];
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (letter >= '0' && letter <= '7') {
        return add_octal(u);
    }
    ++u->at;
    if (known) {
        berth_text_add_char(u->out, meanings[known - letters]);
        return BERTH_OK;
    }
    switch (letter) {
    case '\n':
        return BERTH_OK;
    case 'x':
        return add_hex(u, 2);
    case 'u':
        return add_hex(u, 4);
    case 'U':
        return add_hex(u, 8);
    case 'N':
        return BERTH_JINJA_FAIL(u->j, UNSUPPORTED,
                                "\\N{…} is not supported, write the character itself");
    default:
        berth_text_add_char(u->out, '\\');
        berth_text_add_char(u->out, letter);
        return BERTH_OK;
    }
}

static berth_status unescape(unescaper *u) {
    while (u->at < u->literal.size) {
        const berth_str rest = berth_str_slice(u->literal, u->at, SIZE_MAX);
        const size_t plain = berth_str_find(rest, '\\');
        berth_text_add(u->out, berth_str_slice(rest, 0, plain));
        u->at += plain + 1;
        if (u->at < u->literal.size) {
            BERTH_TRY(unescape_one(u));
        }
    }
    return BERTH_OK;
}

berth_status berth_jinja_unescape(berth_jinja *j, berth_str literal, berth_str *out) {
    *out = literal;
    if (berth_str_find(literal, '\\') == literal.size) {
        return BERTH_OK;
    }
    berth_text text;
    berth_text_init(&text, literal.size * 2);
    unescaper u = {.j = j, .literal = literal, .out = &text};
    berth_status status = unescape(&u);
    if (status == BERTH_OK) {
        status = berth_text_finish(&text, NULL);
    }
    const char *copy =
        status == BERTH_OK ? berth_arena_copy(j->arena, berth_text_str(&text)) : NULL;
    if (status == BERTH_OK && !copy) {
        status = berth_arena_exhausted(j->arena, "a template");
    }
    *out = (berth_str){.data = copy, .size = text.size};
    berth_text_deinit(&text);
    return status;
}

static int base_of(const char *digits) {
    if (digits[0] != '0') {
        return 10;
    }
    switch (digits[1] | 0x20) {
    case 'x':
        return 16;
    case 'o':
        return 8;
    case 'b':
        return 2;
    default:
        return 10;
    }
}

berth_status berth_jinja_number(berth_jinja *j, berth_jinja_token *token) {
    char digits[NUMBER_BYTES];
    size_t size = 0;
    for (size_t i = 0; i < token->text.size && size + 1 < sizeof(digits); ++i) {
        if (token->text.data[i] != '_') {
            digits[size++] = token->text.data[i];
        }
    }
    digits[size] = '\0';
    if (token->kind == BERTH_JINJA_TOKEN_REAL) {
        token->real = strtod(digits, NULL);
        return BERTH_OK;
    }
    const int base = base_of(digits);
    errno = 0;
    token->integer = strtoll(digits + (base == 10 ? 0 : 2), NULL, base);
    if (errno == ERANGE || size + 1 == sizeof(digits)) {
        return BERTH_JINJA_FAIL(j, UNSUPPORTED,
                                "the integer " BERTH_STR_FMT
                                " does not fit 64 bits, which is not supported",
                                BERTH_STR_ARG(token->text));
    }
    return BERTH_OK;
}
