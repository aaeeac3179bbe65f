// SPDX-License-Identifier: Apache-2.0
// From an Oniguruma pattern to a PCRE2 pattern with the same matches. What both read alike is
// copied, \s \S \d \D \w \W and scripts are written out, "^" and "$" become those of lines,
// everything else is refused: a pattern that splits a text a little differently would give a model
// ids it was never trained on.
//
// Why \s is written out: PCRE2 counts U+180E, which lost that property in Unicode 6.3. Why scripts
// are: PCRE2's \p{Han} means script extensions.
#include "base/dialect.h"

#include <ctype.h>

#include "base/array.h"

#define SPACE                                                                                      \
    "[\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"  \
    "\\x{3000}]"
#define NOT_SPACE                                                                                  \
    "[\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}"              \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"                 \
    "\\x{3001}-\\x{10ffff}]"

#define WORD_INSIDE                                                                                \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"                    \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
// Outside of classes Latin-1's fractions and raised digits are of words, too.
#define WORD WORD_INSIDE "\\xb2\\xb3\\xb9\\xbc-\\xbe"

static const char *const group_openings[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};

static const char *const categories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs",
};

typedef struct translation {
    berth_str pattern;
    size_t at;
    size_t class_from; // the first byte inside the class at hand; 0 outside of classes
    berth_text *out;
} translation;

static berth_status refuse(const translation *t, size_t size) {
    const berth_str construct = berth_str_slice(t->pattern, t->at, size);
    return BERTH_FAIL(UNSUPPORTED,
                      "'" BERTH_STR_FMT "' at byte %zu of the pattern '" BERTH_STR_FMT
                      "' is not supported",
                      BERTH_STR_ARG(construct), t->at, BERTH_STR_ARG(t->pattern));
}

// The byte `ahead` of the current one; NUL behind the end.
static char peek(const translation *t, size_t ahead) {
    return t->at + ahead < t->pattern.size ? t->pattern.data[t->at + ahead] : '\0';
}

static berth_status copy(translation *t, size_t size) {
    berth_text_add(t->out, berth_str_slice(t->pattern, t->at, size));
    t->at += size;
    return BERTH_OK;
}

// Replaces `size` bytes by a class, of which only the inside goes into a class.
static berth_status write_class(translation *t, size_t size, berth_str class) {
    const size_t trim = t->class_from ? 1 : 0;
    berth_text_add(t->out, berth_str_slice(class, trim, class.size - 2 * trim));
    t->at += size;
    return BERTH_OK;
}

static bool is_category(berth_str name) {
    for (size_t i = 0; i < BERTH_COUNT(categories); ++i) {
        if (berth_str_equal_cstr(name, categories[i])) {
            return true;
        }
    }
    return false;
}

// \p{L} is copied, \p{Han} becomes \p{sc:Han}; PCRE2 itself refuses a name that is no script.
static berth_status translate_property(translation *t) {
    const berth_str rest = berth_str_slice(t->pattern, t->at, SIZE_MAX);
    const size_t end = berth_str_find(rest, '}');
    if (peek(t, 2) != '{' || end == rest.size) {
        return refuse(t, 3);
    }
    const berth_str name = berth_str_slice(rest, 3, end - 3);
    if (is_category(name)) {
        return copy(t, end + 1);
    }
    for (size_t i = 0; i < name.size; ++i) {
        if (!isalpha((unsigned char)name.data[i]) && name.data[i] != '_') {
            return refuse(t, end + 1);
        }
    }
    berth_text_add_format(t->out, "\\%c{sc:" BERTH_STR_FMT "}", peek(t, 1), BERTH_STR_ARG(name));
    t->at += end + 1;
    return BERTH_OK;
}

// Why: "[a-\d]" and "[\d-a]" are a range, a hyphen or an error, depending on who reads them.
static bool is_in_range(const translation *t, size_t size) {
    if (!t->class_from) {
        return false;
    }
    const bool behind = t->at > t->class_from && t->pattern.data[t->at - 1] == '-';
    return behind || (peek(t, size) == '-' && peek(t, size + 1) != ']');
}

static berth_status translate_escape(translation *t) {
    const char letter = peek(t, 1);
    if (ispunct((unsigned char)letter) || letter == 'n' || letter == 'r' || letter == 't') {
        return copy(t, 2);
    }
    if (is_in_range(t, 2)) {
        return refuse(t, 2);
    }
    switch (letter) {
    case 's':
        return write_class(t, 2, BERTH_STR(SPACE));
    case 'S':
        return write_class(t, 2, BERTH_STR(NOT_SPACE));
    case 'd':
        return write_class(t, 2, BERTH_STR("[\\p{Nd}]"));
    case 'D':
        return write_class(t, 2, BERTH_STR("[\\P{Nd}]"));
    case 'w':
        return write_class(
            t, 2, t->class_from ? BERTH_STR("[" WORD_INSIDE "]") : BERTH_STR("[" WORD "]"));
    case 'W':
        return t->class_from ? refuse(t, 2) : write_class(t, 2, BERTH_STR("[^" WORD "]"));
    case 'p':
    case 'P':
        return translate_property(t);
    default:
        return refuse(t, 2);
    }
}

static berth_status open_group(translation *t) {
    if (peek(t, 1) != '?' && peek(t, 1) != '*') {
        return copy(t, 1);
    }
    const berth_str rest = berth_str_slice(t->pattern, t->at, SIZE_MAX);
    for (size_t i = 0; i < BERTH_COUNT(group_openings); ++i) {
        const berth_str opening = berth_str_from(group_openings[i]);
        if (berth_str_starts_with(rest, opening)) {
            return copy(t, opening.size);
        }
    }
    return refuse(t, 3);
}

static berth_status open_class(translation *t) {
    BERTH_TRY(copy(t, peek(t, 1) == '^' ? 2 : 1));
    t->class_from = t->at;
    return peek(t, 0) == ']' ? refuse(t, 1) : BERTH_OK;
}

// "{2}", "{2,}" or "{2,3}". Why nothing may follow: "{2}+" is possessive to one and not the other.
static berth_status translate_interval(translation *t) {
    size_t size = 1;
    while (isdigit((unsigned char)peek(t, size)) || (peek(t, size) == ',' && size > 1)) {
        ++size;
    }
    const char next = peek(t, size + 1);
    if (size == 1 || peek(t, size) != '}' || next == '+' || next == '?' || next == '*') {
        return refuse(t, size + 2);
    }
    return copy(t, size + 1);
}

static berth_status translate_anchor(translation *t) {
    berth_text_add_format(t->out, "(?m:%c)", peek(t, 0));
    ++t->at;
    return BERTH_OK;
}

static berth_status translate_in_class(translation *t) {
    switch (peek(t, 0)) {
    case '\\':
        return translate_escape(t);
    case ']':
        t->class_from = 0;
        return copy(t, 1);
    case '[':
        return refuse(t, 2);
    case '&':
        return peek(t, 1) == '&' ? refuse(t, 2) : copy(t, 1);
    default:
        return copy(t, 1);
    }
}

static berth_status translate_outside(translation *t) {
    switch (peek(t, 0)) {
    case '\\':
        return translate_escape(t);
    case '[':
        return open_class(t);
    case '(':
        return open_group(t);
    case '{':
        return translate_interval(t);
    case '^':
    case '$':
        return translate_anchor(t);
    default:
        return copy(t, 1);
    }
}

berth_status berth_dialect_translate(berth_str pattern, berth_text *out_pattern) {
    translation t = {.pattern = pattern, .out = out_pattern};
    while (t.at < pattern.size) {
        BERTH_TRY(t.class_from ? translate_in_class(&t) : translate_outside(&t));
    }
    return berth_text_finish(out_pattern, NULL);
}
