// SPDX-License-Identifier: Apache-2.0
// Input: borrowed strings. Output: views into them, numbers, the nearest name. Nothing is
// allocated.
#include "base/str.h"

#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 512 // of the longest number that is read
#define WORD_BYTES   64  // of the longest word that berth_str_nearest compares

berth_str berth_str_from(const char *cstr) {
    return (berth_str){.data = cstr, .size = cstr == NULL ? 0 : strlen(cstr)};
}

bool berth_str_equal(berth_str a, berth_str b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

bool berth_str_equal_cstr(berth_str a, const char *b) {
    return berth_str_equal(a, berth_str_from(b));
}

int berth_str_compare(berth_str a, berth_str b) {
    const size_t shared = a.size < b.size ? a.size : b.size;
    const int order = shared == 0 ? 0 : memcmp(a.data, b.data, shared);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

bool berth_str_starts_with(berth_str str, berth_str prefix) {
    return str.size >= prefix.size && berth_str_equal(berth_str_slice(str, 0, prefix.size), prefix);
}

bool berth_str_ends_with(berth_str str, berth_str suffix) {
    return str.size >= suffix.size &&
           berth_str_equal(berth_str_slice(str, str.size - suffix.size, suffix.size), suffix);
}

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

berth_str berth_str_trim(berth_str str) {
    size_t first = 0;
    size_t end = str.size;
    while (first < end && is_blank(str.data[first])) {
        ++first;
    }
    while (end > first && is_blank(str.data[end - 1])) {
        --end;
    }
    return berth_str_slice(str, first, end - first);
}

berth_str berth_str_slice(berth_str str, size_t first, size_t count) {
    const size_t start = first < str.size ? first : str.size;
    const size_t left = str.size - start;
    return (berth_str){
        .data = str.data == NULL ? NULL : str.data + start,
        .size = count < left ? count : left,
    };
}

size_t berth_str_find(berth_str str, char byte) {
    const char *place = str.size == 0 ? NULL : memchr(str.data, byte, str.size);
    return place == NULL ? str.size : (size_t)(place - str.data);
}

bool berth_str_split_first(berth_str *rest, char byte, berth_str *out_piece) {
    if (rest->data == NULL) {
        return false;
    }
    const size_t end = berth_str_find(*rest, byte);
    *out_piece = berth_str_slice(*rest, 0, end);
    *rest = end == rest->size ? (berth_str){0} : berth_str_slice(*rest, end + 1, rest->size);
    return true;
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

// Copies into `number` what strtoX will read, so that it ends with NUL.
static bool copy_number(berth_str str, char number[NUMBER_BYTES]) {
    if (str.size == 0 || str.size >= NUMBER_BYTES) {
        return false;
    }
    memcpy(number, str.data, str.size);
    number[str.size] = '\0';
    return true;
}

// The size of a run of decimal digits from `first` on.
static size_t digits(berth_str str, size_t first) {
    size_t end = first;
    while (end < str.size && is_digit(str.data[end])) {
        ++end;
    }
    return end - first;
}

static berth_status not_a_number(berth_str str, const char *needed) {
    const berth_str shown = berth_str_slice(str, 0, WORD_BYTES);
    return BERTH_FAIL(INVALID_ARGUMENT, "'" BERTH_STR_FMT "%s' is not %s", BERTH_STR_ARG(shown),
                      shown.size < str.size ? "…" : "", needed);
}

static berth_status out_of_range(berth_str str, const char *range) {
    const berth_str shown = berth_str_slice(str, 0, WORD_BYTES);
    return BERTH_FAIL(INVALID_ARGUMENT, "'" BERTH_STR_FMT "%s' is out of range, needed is %s",
                      BERTH_STR_ARG(shown), shown.size < str.size ? "…" : "", range);
}

berth_status berth_str_parse_i64(berth_str str, int64_t *out_value) {
    char number[NUMBER_BYTES];
    const size_t sign = str.size > 0 && str.data[0] == '-';
    if (digits(str, sign) == 0 || digits(str, sign) + sign != str.size ||
        !copy_number(str, number)) {
        return not_a_number(str, "a whole number");
    }
    errno = 0;
    const long long value = strtoll(number, NULL, 10);
    if (errno == ERANGE) {
        return out_of_range(str, "-9223372036854775808 to 9223372036854775807");
    }
    *out_value = value;
    return BERTH_OK;
}

berth_status berth_str_parse_u64(berth_str str, uint64_t *out_value) {
    char number[NUMBER_BYTES];
    if (digits(str, 0) == 0 || digits(str, 0) != str.size || !copy_number(str, number)) {
        return not_a_number(str, "a whole number of at least 0");
    }
    errno = 0;
    const unsigned long long value = strtoull(number, NULL, 10);
    if (errno == ERANGE) {
        return out_of_range(str, "0 to 18446744073709551615");
    }
    *out_value = value;
    return BERTH_OK;
}

// [-] digits [. digits] [e [sign] digits], with at least one digit before or after the point.
static bool is_decimal(berth_str str) {
    size_t at = str.size > 0 && str.data[0] == '-';
    size_t mantissa = digits(str, at);
    at += mantissa;
    if (at < str.size && str.data[at] == '.') {
        const size_t fraction = digits(str, ++at);
        mantissa += fraction;
        at += fraction;
    }
    if (mantissa == 0) {
        return false;
    }
    if (at < str.size && (str.data[at] == 'e' || str.data[at] == 'E')) {
        ++at;
        at += at < str.size && (str.data[at] == '+' || str.data[at] == '-');
        const size_t exponent = digits(str, at);
        at = exponent == 0 ? str.size + 1 : at + exponent;
    }
    return at == str.size;
}

berth_status berth_str_parse_f64(berth_str str, double *out_value) {
    char number[NUMBER_BYTES];
    if (!is_decimal(str) || !copy_number(str, number)) {
        return not_a_number(str, "a number");
    }
    // The C locale is a constant of the C library: this neither allocates nor fails.
    const locale_t locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double value = strtod_l(number, NULL, locale);
    freelocale(locale);
    if (!isfinite(value)) {
        return out_of_range(str, "a magnitude below 1.8e308");
    }
    *out_value = value;
    return BERTH_OK;
}

static char lower(char byte) {
    return byte >= 'A' && byte <= 'Z' ? (char)(byte - 'A' + 'a') : byte;
}

static bool same_letter(char a, char b) {
    return lower(a) == lower(b);
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// Edits that turn `a` into `b`: insert, delete, replace, swap two neighbours, each letter once.
static size_t edit_distance(berth_str a, berth_str b) {
    size_t rows[3][WORD_BYTES + 1]; // of the current letter of `a` and the two before it
    for (size_t j = 0; j <= b.size; ++j) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a.size; ++i) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b.size; ++j) {
            const bool is_same = same_letter(a.data[i - 1], b.data[j - 1]);
            row[j] = least(above[j - 1] + !is_same, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a.data[i - 1], b.data[j - 2]) &&
                same_letter(a.data[i - 2], b.data[j - 1])) {
                row[j] = least(row[j], two_above[j - 2] + 1);
            }
        }
    }
    return rows[a.size % 3][b.size];
}

const char *berth_str_nearest(berth_str word, const char *const *candidates, size_t count) {
    if (word.size < 2 || word.size > WORD_BYTES) {
        return NULL;
    }
    const char *nearest = NULL;
    size_t limit = word.size < 6 ? 2 : word.size / 3 + 1; // the first distance that is too far
    for (size_t i = 0; i < count; ++i) {
        const berth_str candidate = berth_str_from(candidates[i]);
        if (candidate.size == 0 || candidate.size > WORD_BYTES) {
            continue;
        }
        const size_t distance = edit_distance(word, candidate);
        if (distance < limit) {
            limit = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
