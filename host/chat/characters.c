// SPDX-License-Identifier: Apache-2.0
// Characters through utf8proc's tables. Letters whose other case is several letters are a table of
// their own, because utf8proc maps one to one.
#include "chat/characters.h"

#include <string.h>

#include <utf8proc.h>

#include "base/array.h"
#include "base/utf8.h"

#define DOTTED_I    0x130
#define DOT_ABOVE   "\u0307"
#define SIGMA       0x3A3
#define FINAL_SIGMA 0x3C2

// In large letters, and at the beginning of a word.
static const struct {
    uint32_t code;
    const char *upper, *title;
} long_capitals[] = {
    {.code = 0xDF,   .upper = "SS",           .title = "Ss"          },
    {.code = 0x149,  .upper = "\u02BCN",      .title = "\u02BCN"     },
    {.code = 0x1F0,  .upper = "J\u030C",      .title = "J\u030C"     },
    {.code = 0x587,  .upper = "\u0535\u0552", .title = "\u0535\u0582"},
    {.code = 0x1E96, .upper = "H\u0331",      .title = "H\u0331"     },
    {.code = 0x1E97, .upper = "T\u0308",      .title = "T\u0308"     },
    {.code = 0x1E98, .upper = "W\u030A",      .title = "W\u030A"     },
    {.code = 0x1E99, .upper = "Y\u030A",      .title = "Y\u030A"     },
    {.code = 0x1E9A, .upper = "A\u02BE",      .title = "A\u02BE"     },
    {.code = 0xFB00, .upper = "FF",           .title = "Ff"          },
    {.code = 0xFB01, .upper = "FI",           .title = "Fi"          },
    {.code = 0xFB02, .upper = "FL",           .title = "Fl"          },
    {.code = 0xFB03, .upper = "FFI",          .title = "Ffi"         },
    {.code = 0xFB04, .upper = "FFL",          .title = "Ffl"         },
    {.code = 0xFB05, .upper = "ST",           .title = "St"          },
    {.code = 0xFB06, .upper = "ST",           .title = "St"          },
};

// ---- classes ----

static bool is_space(uint32_t code) {
    return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
           (code >= 0x80 && utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ZS) ||
           code == 0x2028 || code == 0x2029;
}

static bool is_printable(uint32_t code) {
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return code == ' ';
    default:
        return true;
    }
}

static bool is_of_case(uint32_t code, berth_jinja_class class) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    const bool is_small = utf8proc_islower((utf8proc_int32_t)code);
    const bool is_capital = utf8proc_isupper((utf8proc_int32_t)code);
    switch (class) {
    case BERTH_JINJA_SMALL:
        return is_small;
    case BERTH_JINJA_CAPITAL:
        return is_capital;
    default:
        return is_small || is_capital || category == UTF8PROC_CATEGORY_LT;
    }
}

bool berth_jinja_char_is(uint32_t code, berth_jinja_class class) {
    if (code == BERTH_UTF8_BAD) {
        return false;
    }
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    switch (class) {
    case BERTH_JINJA_SPACE:
        return is_space(code);
    case BERTH_JINJA_PRINTABLE:
        return is_printable(code);
    case BERTH_JINJA_ALPHABETIC:
        return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    case BERTH_JINJA_DIGIT:
        return category == UTF8PROC_CATEGORY_ND;
    case BERTH_JINJA_NUMERIC:
        return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    default:
        return is_of_case(code, class);
    }
}

// ---- places ----

size_t berth_jinja_char_count(berth_str text) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; ++i) {
        count += ((uint8_t)text.data[i] & 0xC0) != 0x80;
    }
    return count;
}

size_t berth_jinja_char_offset(berth_str text, size_t index) {
    size_t at = 0;
    for (; index > 0 && at < text.size; --index) {
        at += berth_utf8_next(berth_str_slice(text, at, 4), NULL);
    }
    return at;
}

uint32_t berth_jinja_char_before(berth_str text, size_t end, size_t *out_start) {
    uint32_t code = BERTH_UTF8_BAD;
    size_t start = end;
    while (start > 0 && ((uint8_t)text.data[--start] & 0xC0) == 0x80) {
    }
    (void)berth_utf8_next(berth_str_slice(text, start, end - start), &code);
    *out_start = start;
    return end > 0 ? code : BERTH_UTF8_BAD;
}

size_t berth_jinja_find(berth_str text, berth_str part, size_t from) {
    if (from > text.size || part.size > text.size - from) {
        return SIZE_MAX;
    }
    if (part.size == 0) {
        return from;
    }
    const char *found = memmem(text.data + from, text.size - from, part.data, part.size);
    return found ? (size_t)(found - text.data) : SIZE_MAX;
}

static bool is_in_set(uint32_t code, berth_str set) {
    if (!set.data) {
        return berth_jinja_char_is(code, BERTH_JINJA_SPACE);
    }
    char bytes[4];
    const size_t size = berth_utf8_encode(code, bytes);
    return size > 0 &&
           berth_jinja_find(set, (berth_str){.data = bytes, .size = size}, 0) < set.size;
}

berth_str berth_jinja_strip(berth_str text, berth_str set, unsigned sides) {
    size_t start = 0;
    size_t end = text.size;
    while ((sides & BERTH_JINJA_STRIP_LEFT) && start < end) {
        uint32_t code;
        const size_t size = berth_utf8_next(berth_str_slice(text, start, 4), &code);
        if (!is_in_set(code, set)) {
            break;
        }
        start += size;
    }
    while ((sides & BERTH_JINJA_STRIP_RIGHT) && start < end) {
        size_t before;
        if (!is_in_set(berth_jinja_char_before(text, end, &before), set)) {
            break;
        }
        end = before;
    }
    return berth_str_slice(text, start, end - start);
}

// ---- letter case ----

static void add_code(berth_text *out, uint32_t code) {
    char bytes[4];
    const size_t size = berth_utf8_encode(code, bytes);
    berth_text_add(out, (berth_str){.data = bytes, .size = size});
}

static void add_capital(uint32_t code, bool is_title, berth_text *out) {
    for (size_t i = 0; code >= 0x80 && i < BERTH_COUNT(long_capitals); ++i) {
        if (long_capitals[i].code == code) {
            berth_text_add_cstr(out, is_title ? long_capitals[i].title : long_capitals[i].upper);
            return;
        }
    }
    add_code(out, (uint32_t)(is_title ? utf8proc_totitle((utf8proc_int32_t)code)
                                      : utf8proc_toupper((utf8proc_int32_t)code)));
}

// A sigma behind a letter and before none is a final one.
static bool is_final(berth_str text, size_t at, size_t size) {
    uint32_t next = BERTH_UTF8_BAD;
    size_t start;
    (void)berth_utf8_next(berth_str_slice(text, at + size, 4), &next);
    const bool has_next = at + size < text.size && berth_jinja_char_is(next, BERTH_JINJA_CASED);
    return berth_jinja_char_is(berth_jinja_char_before(text, at, &start), BERTH_JINJA_CASED) &&
           !has_next;
}

static void add_small(berth_str text, size_t at, berth_text *out) {
    uint32_t code;
    const size_t size = berth_utf8_next(berth_str_slice(text, at, 4), &code);
    if (code == SIGMA && is_final(text, at, size)) {
        add_code(out, FINAL_SIGMA);
        return;
    }
    add_code(out, code == DOTTED_I ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
    berth_text_add_cstr(out, code == DOTTED_I ? DOT_ABOVE : "");
}

void berth_jinja_change_case(berth_str text, berth_jinja_case to, berth_text *out) {
    bool is_behind_letter = false;
    size_t step;
    for (size_t at = 0; at < text.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(text, at, 4), &code);
        const bool is_start = (to == BERTH_JINJA_TITLE && !is_behind_letter) ||
                              (to == BERTH_JINJA_CAPITALIZE && at == 0);
        const bool is_large =
            to == BERTH_JINJA_UPPER ||
            (to == BERTH_JINJA_SWAP && berth_jinja_char_is(code, BERTH_JINJA_SMALL));
        const bool stays =
            to == BERTH_JINJA_SWAP && !is_large && !berth_jinja_char_is(code, BERTH_JINJA_CAPITAL);
        if (stays) {
            add_code(out, code);
        } else if (is_start || is_large) {
            add_capital(code, is_start, out);
        } else {
            add_small(text, at, out);
        }
        is_behind_letter = berth_jinja_char_is(code, BERTH_JINJA_CASED);
    }
}
