// SPDX-License-Identifier: Apache-2.0
// Normal forms, stretch by stretch: characters that no form changes and that join with nothing
// before them are copied, and only what lies between two of them is taken apart, ordered and
// composed. Most texts are copied whole.
//
// Why utf8proc's tables, though the reference's are older: the forms of a character never change,
// so the two differ only in some 170 characters that the older ones do not know yet.
#include "tokenizer/unicode.h"

#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"

#define EXPANSION   32 // more than the 18 characters that U+FDFA, the worst, is taken apart into
#define DOTTED_I    0x130
#define DOT_ABOVE   0x307
#define HANGUL      0xAC00
#define HANGUL_LAST 0xD7A3

// ---- characters ----

static utf8proc_category_t category_of(uint32_t code) {
    return code == BERTH_UTF8_BAD ? UTF8PROC_CATEGORY_CN
                                  : utf8proc_category((utf8proc_int32_t)code);
}

bool berth_unicode_is_space(uint32_t code) {
    const utf8proc_category_t category = category_of(code);
    return (code >= '\t' && code <= '\r') || code == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

// Alphabetic, mark, decimal digit, connector or joiner. The ranges are the alphabetic characters
// that are neither letters nor marks.
bool berth_unicode_is_word(uint32_t code) {
    switch (category_of(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
               (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
               (code >= 0x1F170 && code <= 0x1F189);
    }
}

uint32_t berth_unicode_char_before(berth_str text, size_t at, size_t *out_size) {
    size_t start = at;
    while (start > 0 && at - start < 4) {
        --start;
        if (((uint8_t)text.data[start] & 0xC0) != 0x80) {
            break;
        }
    }
    return berth_unicode_char_at(berth_str_slice(text, 0, at), start, out_size);
}

uint32_t berth_unicode_char_at(berth_str text, size_t at, size_t *out_size) {
    uint32_t code;
    *out_size = berth_utf8_next(berth_str_slice(text, at, 4), &code);
    return *out_size > 0 ? code : BERTH_UTF8_BAD;
}

bool berth_unicode_is_flat_mark(uint32_t code) {
    return category_of(code) == UTF8PROC_CATEGORY_MN;
}

bool berth_unicode_is_mark(uint32_t code) {
    const utf8proc_category_t category = category_of(code);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

bool berth_unicode_is_control(uint32_t code) {
    const utf8proc_category_t category = category_of(code);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO;
}

bool berth_unicode_is_han(uint32_t code) {
    static const struct {
        uint32_t first, last;
    } blocks[] = {
        {0x4E00,  0x9FFF },
        {0x3400,  0x4DBF },
        {0x20000, 0x2A6DF},
        {0x2A700, 0x2B73F},
        {0x2B740, 0x2B81F},
        {0x2B920, 0x2CEAF},
        {0xF900,  0xFAFF },
        {0x2F800, 0x2FA1F}
    };
    for (size_t i = 0; i < BERTH_COUNT(blocks); ++i) {
        if (code >= blocks[i].first && code <= blocks[i].last) {
            return true;
        }
    }
    return false;
}

size_t berth_unicode_grapheme_bytes(berth_str text) {
    utf8proc_int32_t state = 0;
    size_t step;
    uint32_t before = berth_unicode_char_at(text, 0, &step);
    size_t at = step;
    while (at < text.size) {
        const uint32_t code = berth_unicode_char_at(text, at, &step);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)code,
                                             &state)) {
            break;
        }
        before = code;
        at += step;
    }
    return at;
}

size_t berth_unicode_char_count(berth_str text) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; ++i) {
        count += ((uint8_t)text.data[i] & 0xC0) != 0x80;
    }
    return count;
}

void berth_unicode_add(berth_text *out, uint32_t code) {
    char bytes[4];
    const size_t size = berth_utf8_encode(code, bytes);
    berth_text_add(out, (berth_str){.data = bytes, .size = size});
}

// Why U+0130 stands alone: it is the one character whose small form is two, wherever it stands.
void berth_unicode_lower(berth_str text, berth_text *out) {
    size_t step;
    for (size_t at = 0; at < text.size; at += step) {
        uint32_t code = berth_unicode_char_at(text, at, &step);
        berth_unicode_add(
            out, code == DOTTED_I ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
        if (code == DOTTED_I) {
            berth_unicode_add(out, DOT_ABOVE);
        }
    }
}

// ---- normal forms ----

static bool composes(berth_unicode_form form) {
    return form == BERTH_UNICODE_NFC || form == BERTH_UNICODE_NFKC;
}

static bool is_compatible(berth_unicode_form form) {
    return form == BERTH_UNICODE_NFKC || form == BERTH_UNICODE_NFKD;
}

// No form changes it and nothing before it joins with it. Why marks and the vowels and finals of
// Hangul never count: those are what may join.
static bool is_inert(uint32_t code, berth_unicode_form form) {
    if (code < 0x80) {
        return true;
    }
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)code);
    const bool is_changed = property->decomp_seqindex != UINT16_MAX &&
                            (property->decomp_type == 0 || is_compatible(form));
    const bool is_syllable = code >= HANGUL && code <= HANGUL_LAST;
    const bool is_mark = berth_unicode_is_mark(code);
    const bool is_jamo = code >= 0x1160 && code <= 0x11FF;
    return !is_changed && property->combining_class == 0 && !is_mark && !is_jamo &&
           (!is_syllable || composes(form));
}

// The end of the characters from `at` on that are inert, or that are not.
static size_t skip(berth_str text, size_t at, berth_unicode_form form, bool inert) {
    size_t step;
    while (at < text.size && is_inert(berth_unicode_char_at(text, at, &step), form) == inert) {
        at += step;
    }
    return at;
}

bool berth_unicode_is_normal(berth_str text, berth_unicode_form form) {
    return skip(text, 0, form, true) == text.size;
}

static int class_of(int32_t code) {
    return utf8proc_get_property(code)->combining_class;
}

static void merge(const int32_t *marks, size_t count, size_t middle, int32_t *out) {
    size_t left = 0;
    size_t right = middle;
    for (size_t i = 0; i < count; ++i) {
        const bool takes_left =
            left < middle && (right == count || class_of(marks[left]) <= class_of(marks[right]));
        out[i] = takes_left ? marks[left++] : marks[right++];
    }
}

// Why a merge sort: the order of equals must stay, and a text may be a million marks.
static void sort_marks(int32_t *marks, size_t count, int32_t *spare) {
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t low = 0; low < count; low += 2 * width) {
            const size_t room = count - low;
            const size_t size = room < 2 * width ? room : 2 * width;
            merge(marks + low, size, size < width ? size : width, spare + low);
        }
        memcpy(marks, spare, count * sizeof(*marks));
    }
}

static berth_status order_marks(berth_unicode_scratch *scratch) {
    int32_t *codes = scratch->codes.data;
    const size_t count = scratch->codes.count;
    BERTH_TRY(berth_array_reserve(&scratch->spare, count));
    for (size_t start = 0; start < count; ++start) {
        size_t end = start;
        while (end < count && class_of(codes[end]) > 0) {
            ++end;
        }
        sort_marks(codes + start, end - start, scratch->spare.data);
        start = end;
    }
    return BERTH_OK;
}

static berth_status take_apart(berth_str text, berth_unicode_form form,
                               berth_unicode_scratch *scratch) {
    const utf8proc_option_t options =
        UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (is_compatible(form) ? UTF8PROC_COMPAT : 0);
    scratch->codes.count = 0;
    size_t step;
    for (size_t at = 0; at < text.size; at += step) {
        const uint32_t code = berth_unicode_char_at(text, at, &step);
        BERTH_TRY(berth_array_reserve(&scratch->codes, scratch->codes.count + EXPANSION));
        const utf8proc_ssize_t count = utf8proc_decompose_char(
            (utf8proc_int32_t)code, scratch->codes.data + scratch->codes.count, EXPANSION, options,
            NULL);
        if (count < 0 || count > EXPANSION) {
            return BERTH_FAIL(INTERNAL, "utf8proc cannot take U+%04X apart", code);
        }
        scratch->codes.count += (size_t)count;
    }
    return BERTH_OK;
}

static berth_status normalize_run(berth_str text, berth_unicode_form form,
                                  berth_unicode_scratch *scratch, berth_text *out) {
    BERTH_TRY(take_apart(text, form, scratch));
    BERTH_TRY(order_marks(scratch));
    utf8proc_ssize_t count = (utf8proc_ssize_t)scratch->codes.count;
    if (composes(form)) {
        count = utf8proc_normalize_utf32(scratch->codes.data, count,
                                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
        berth_unicode_add(out, (uint32_t)scratch->codes.data[i]);
    }
    return BERTH_OK;
}

berth_status berth_unicode_normalize(berth_str text, berth_unicode_form form,
                                     berth_unicode_scratch *scratch, berth_text *out) {
    for (size_t at = 0; at < text.size;) {
        size_t start = skip(text, at, form, true);
        const size_t end = skip(text, start, form, false);
        if (start == end) {
            berth_text_add(out, berth_str_slice(text, at, SIZE_MAX));
            break;
        }
        if (start > at) {
            // The last inert character goes with the run: what follows may join with it.
            size_t size;
            (void)berth_unicode_char_before(text, start, &size);
            start -= size;
        }
        berth_text_add(out, berth_str_slice(text, at, start - at));
        BERTH_TRY(normalize_run(berth_str_slice(text, start, end - start), form, scratch, out));
        at = end;
    }
    return BERTH_OK;
}

void berth_unicode_scratch_deinit(berth_unicode_scratch *scratch) {
    berth_array_free(&scratch->codes);
    berth_array_free(&scratch->spare);
}
