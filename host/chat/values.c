// SPDX-License-Identifier: Apache-2.0
// Filters of single values: defaults, conversions, numbers, JSON. And what every builtin asks of
// its arguments.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/characters.h"
#include "chat/evaluate.h"

#define NUMBER_BYTES 400 // every double printed with 20 decimals fits
#define INDENT_LIMIT 1024

// ---- arguments ----

berth_status berth_jinja_want_str(berth_jinja *j, const berth_jinja_value *value, berth_str *out) {
    if (value->kind == BERTH_JINJA_ABSENT) {
        return BERTH_OK;
    }
    if (value->kind != BERTH_JINJA_STRING) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "a str is needed, not '%s'",
                                berth_jinja_type(value));
    }
    *out = value->as.string;
    return BERTH_OK;
}

berth_status berth_jinja_want_integer(berth_jinja *j, const berth_jinja_value *value,
                                      int64_t *out) {
    if (value->kind != BERTH_JINJA_ABSENT && !berth_jinja_as_integer(value, out)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "an int is needed, not '%s'",
                                berth_jinja_type(value));
    }
    return BERTH_OK;
}

berth_status berth_jinja_want_real(berth_jinja *j, const berth_jinja_value *value, double *out) {
    if (value->kind != BERTH_JINJA_ABSENT && !berth_jinja_as_real(value, out)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "a number is needed, not '%s'",
                                berth_jinja_type(value));
    }
    return BERTH_OK;
}

bool berth_jinja_truth_or(const berth_jinja_value *value, bool fallback) {
    return value->kind == BERTH_JINJA_ABSENT ? fallback : berth_jinja_truth(value);
}

// ---- defaults and strings ----

static berth_status use_default(berth_jinja *j, const berth_jinja_args *args,
                                berth_jinja_value *out) {
    (void)j;
    const bool is_missing =
        args->self.kind == BERTH_JINJA_UNDEFINED ||
        (berth_jinja_truth_or(&args->values[1], false) && !berth_jinja_truth(&args->self));
    const bool has_default = args->values[0].kind != BERTH_JINJA_ABSENT;
    *out = !is_missing   ? args->self
           : has_default ? args->values[0]
                         : berth_jinja_str(BERTH_STR(""));
    return BERTH_OK;
}

static berth_status to_string(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    berth_str text;
    *out = args->self;
    if (args->self.kind == BERTH_JINJA_STRING) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &text));
    *out = berth_jinja_str(text);
    return BERTH_OK;
}

static berth_status mark_safe(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    BERTH_TRY(to_string(j, args, out));
    out->is_markup = true;
    return BERTH_OK;
}

static berth_status force_escape(berth_jinja *j, const berth_jinja_args *args,
                                 berth_jinja_value *out) {
    berth_text text;
    BERTH_TRY(to_string(j, args, out));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_jinja_escape(out->as.string, &text);
    const berth_status status = berth_jinja_take(j, &text, out);
    out->is_markup = true;
    berth_text_deinit(&text);
    return status;
}

static berth_status escape(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    *out = args->self;
    return args->self.is_markup ? BERTH_OK : force_escape(j, args, out);
}

static berth_status length(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    size_t size;
    BERTH_TRY(berth_jinja_size(j, &args->self, &size));
    *out = berth_jinja_integer((int64_t)size);
    return BERTH_OK;
}

static berth_status attr(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_str name = {0};
    BERTH_TRY(berth_jinja_want_str(j, &args->values[0], &name));
    if (args->self.kind == BERTH_JINJA_DICT && !berth_jinja_method(BERTH_JINJA_DICT, name)) {
        return berth_jinja_undefined(j, out, "'dict' object has no attribute '" BERTH_STR_FMT "'",
                                     BERTH_STR_ARG(name));
    }
    return berth_jinja_attribute(j, &args->self, name, out);
}

// ---- numbers ----

// Digits, sign and single underscores of a number in a text, as int() and float() allow them.
static bool copy_number(berth_str text, char *digits) {
    const berth_str number =
        berth_jinja_strip(text, (berth_str){0}, BERTH_JINJA_STRIP_LEFT | BERTH_JINJA_STRIP_RIGHT);
    size_t size = 0;
    if (number.size == 0 || number.size >= NUMBER_BYTES) {
        return false;
    }
    for (size_t i = 0; i < number.size; ++i) {
        const char byte = number.data[i];
        const bool is_bar = byte == '_';
        if (is_bar && (i == 0 || i + 1 == number.size || number.data[i - 1] == '_')) {
            return false;
        }
        digits[size] = byte;
        size += !is_bar;
    }
    digits[size] = '\0';
    return true;
}

static bool parse_real(berth_str text, double *out) {
    char digits[NUMBER_BYTES];
    char *end;
    if (!copy_number(text, digits) || strpbrk(digits, "xXpP(")) {
        return false;
    }
    *out = strtod(digits, &end);
    return *end == '\0' && end != digits;
}

static bool parse_integer(berth_str text, int base, int64_t *out) {
    char digits[NUMBER_BYTES];
    char *end;
    if (!copy_number(text, digits)) {
        return false;
    }
    char *first = digits + (digits[0] == '-' || digits[0] == '+');
    const char prefix = first[0] == '0' ? (char)(first[1] | 0x20) : '\0';
    if ((prefix == 'o' && (base == 8 || base == 0)) ||
        (prefix == 'b' && (base == 2 || base == 0))) {
        memmove(first, first + 2, strlen(first + 2) + 1);
        base = prefix == 'o' ? 8 : 2;
    }
    errno = 0;
    *out = strtoll(digits, &end, base);
    return *end == '\0' && end != digits && errno == 0;
}

static berth_status truncate_real(double value, const berth_jinja_value *fallback,
                                  berth_jinja_value *out) {
    const bool fits = value > -0x1p63 && value < 0x1p63;
    *out = fits ? berth_jinja_integer((int64_t)value) : *fallback;
    return BERTH_OK;
}

// Why int and float refuse it and not fall back: Jinja's undefined raises what they do not catch.
static berth_status refuse_missing(berth_jinja *j, const berth_jinja_value *value) {
    return value->kind != BERTH_JINJA_UNDEFINED
               ? BERTH_OK
               : BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, BERTH_STR_FMT,
                                  BERTH_STR_ARG(value->as.string));
}

static berth_status to_integer(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    int64_t base = 10;
    int64_t integer;
    double real;
    BERTH_TRY(refuse_missing(j, &args->self));
    const berth_jinja_value fallback =
        args->values[0].kind == BERTH_JINJA_ABSENT ? berth_jinja_integer(0) : args->values[0];
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[1], &base));
    *out = fallback;
    if (args->self.kind == BERTH_JINJA_STRING) {
        if (base >= 0 && base <= 36 && base != 1 &&
            parse_integer(args->self.as.string, (int)base, &integer)) {
            *out = berth_jinja_integer(integer);
            return BERTH_OK;
        }
        return parse_real(args->self.as.string, &real) ? truncate_real(real, &fallback, out)
                                                       : BERTH_OK;
    }
    if (berth_jinja_as_integer(&args->self, &integer)) {
        *out = berth_jinja_integer(integer);
        return BERTH_OK;
    }
    return berth_jinja_as_real(&args->self, &real) ? truncate_real(real, &fallback, out) : BERTH_OK;
}

static berth_status to_real(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    double real;
    BERTH_TRY(refuse_missing(j, &args->self));
    const bool is_number = args->self.kind == BERTH_JINJA_STRING
                               ? parse_real(args->self.as.string, &real)
                               : berth_jinja_as_real(&args->self, &real);
    *out = is_number                                    ? berth_jinja_real(real)
           : args->values[0].kind == BERTH_JINJA_ABSENT ? berth_jinja_real(0)
                                                        : args->values[0];
    return BERTH_OK;
}

// float(): of a number, or of a text that is one.
static berth_status real_of(berth_jinja *j, const berth_jinja_value *value, double *out) {
    if (value->kind != BERTH_JINJA_STRING) {
        return berth_jinja_want_real(j, value, out);
    }
    return parse_real(value->as.string, out)
               ? BERTH_OK
               : BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "'" BERTH_STR_FMT "' is no number",
                                  BERTH_STR_ARG(value->as.string));
}

static berth_status absolute(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    double real;
    if (!berth_jinja_as_real(&args->self, &real)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "abs needs a number, not '%s'",
                                berth_jinja_type(&args->self));
    }
    *out = args->self;
    if (out->kind == BERTH_JINJA_REAL) {
        out->as.real = fabs(real);
        return BERTH_OK;
    }
    out->kind = BERTH_JINJA_INTEGER;
    return real < 0 ? berth_jinja_negate(j, &args->self, out)
                    : berth_jinja_want_integer(j, &args->self, &out->as.integer);
}

// To the nearest decimal, ties to the even one, judged by the exact value.
static double round_real(double value, int64_t precision) {
    char digits[NUMBER_BYTES];
    if (precision < 0) {
        const double unit = pow(10, (double)-precision);
        return nearbyint(value / unit) * unit;
    }
    if (precision > 20 || !isfinite(value)) {
        return value;
    }
    (void)snprintf(digits, sizeof(digits), "%.*f", (int)precision, value);
    return strtod(digits, NULL);
}

static berth_status round_towards(berth_jinja *j, berth_str method, double value,
                                  berth_jinja_value *out) {
    const bool is_up = berth_str_equal_cstr(method, "ceil");
    if (!is_up && !berth_str_equal_cstr(method, "floor")) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "round: the method is common, ceil or floor");
    }
    *out = berth_jinja_real(is_up ? ceil(value) : floor(value));
    return BERTH_OK;
}

static berth_status round_value(berth_jinja *j, const berth_jinja_args *args,
                                berth_jinja_value *out) {
    int64_t precision = 0;
    double value = 0;
    berth_str method = BERTH_STR("common");
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[0], &precision));
    BERTH_TRY(berth_jinja_want_str(j, &args->values[1], &method));
    BERTH_TRY(berth_jinja_want_real(j, &args->self, &value));
    if (!berth_str_equal_cstr(method, "common")) {
        const double unit = pow(10, (double)precision);
        BERTH_TRY(round_towards(j, method, value * unit, out));
        out->as.real /= unit;
        return BERTH_OK;
    }
    const double rounded = round_real(value, precision);
    *out = args->self.kind == BERTH_JINJA_REAL ? berth_jinja_real(rounded)
                                               : berth_jinja_integer((int64_t)rounded);
    const bool is_done = args->self.kind == BERTH_JINJA_REAL || precision < 0;
    return is_done ? BERTH_OK : berth_jinja_want_integer(j, &args->self, &out->as.integer);
}

// A number of bytes with its unit: "13 Bytes", "4.1 MB".
static berth_status file_size(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    static const char letters[] = "kMGTPEZY";
    const bool is_binary = berth_jinja_truth_or(&args->values[0], false);
    const long double base = is_binary ? 1024 : 1000;
    char shown[NUMBER_BYTES];
    double bytes = 0;
    BERTH_TRY(real_of(j, &args->self, &bytes));
    if (bytes < (double)base) {
        if (isinf(bytes)) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "filesizeformat: a size of -inf");
        }
        // Why + 0.0: there is no negative zero among Python's integers.
        (void)snprintf(shown, sizeof(shown), bytes == 1 ? "%.0f Byte" : "%.0f Bytes",
                       trunc(bytes) + 0.0);
        return berth_jinja_copy(j, berth_str_from(shown), out);
    }
    size_t at = 0;
    // Why long double: every power is exact in it, as Python's integers are.
    long double unit = base * base;
    for (; at + 2 < sizeof(letters) && !(bytes < unit); ++at) {
        unit *= base;
    }
    const char letter = is_binary && at == 0 ? 'K' : letters[at];
    (void)snprintf(shown, sizeof(shown), "%.1f %c%s", (double)base * bytes / (double)unit, letter,
                   is_binary ? "iB" : "B");
    return berth_jinja_copy(j, berth_str_from(shown), out);
}

// Why none: what a template prints is a function of its input, and of strftime_now's clock.
static berth_status choose_randomly(berth_jinja *j, const berth_jinja_args *args,
                                    berth_jinja_value *out) {
    (void)args;
    (void)out;
    return BERTH_JINJA_FAIL(j, UNSUPPORTED,
                            "the filter random is not supported: the same conversation must give "
                            "the same text; use first or an index");
}

// ---- JSON ----

static berth_status read_separators(berth_jinja *j, const berth_jinja_value *value,
                                    berth_jinja_json_style *style) {
    if (value->kind == BERTH_JINJA_ABSENT || value->kind == BERTH_JINJA_NONE) {
        style->item_separator = style->is_indented ? BERTH_STR(",") : BERTH_STR(", ");
        style->key_separator = BERTH_STR(": ");
        return BERTH_OK;
    }
    berth_jinja_list *items;
    BERTH_TRY(berth_jinja_items(j, value, &items));
    if (items->count != 2) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "tojson: separators are two strings");
    }
    BERTH_TRY(berth_jinja_want_str(j, &items->items[0], &style->item_separator));
    return berth_jinja_want_str(j, &items->items[1], &style->key_separator);
}

static berth_status read_indent(berth_jinja *j, const berth_jinja_value *value,
                                berth_jinja_json_style *style) {
    int64_t width = 0;
    if (value->kind == BERTH_JINJA_ABSENT || value->kind == BERTH_JINJA_NONE) {
        return BERTH_OK;
    }
    style->is_indented = true;
    if (value->kind == BERTH_JINJA_STRING) {
        style->indent = value->as.string;
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_want_integer(j, value, &width));
    if (width > INDENT_LIMIT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "tojson: an indent of %lld", (long long)width);
    }
    void *blanks;
    const size_t size = width < 0 ? 0 : (size_t)width;
    BERTH_TRY(berth_jinja_alloc(j, size + 1, 1, &blanks));
    memset(blanks, ' ', size);
    style->indent = (berth_str){.data = blanks, .size = size};
    return BERTH_OK;
}

static berth_status to_json(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_json_style style = {
        .is_ascii = berth_jinja_truth_or(&args->values[0], false),
        .is_sorted = berth_jinja_truth_or(&args->values[3], false),
    };
    berth_text text;
    BERTH_TRY(read_indent(j, &args->values[1], &style));
    BERTH_TRY(read_separators(j, &args->values[2], &style));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = berth_jinja_json(j, &args->self, &style, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

const berth_jinja_builtin berth_jinja_value_filters[] = {
    {.name = "default",                           .run = use_default, .parameters = {"default_value", "boolean"}},
    {.name = "d", .run = use_default, .parameters = {"default_value", "boolean"}},
    {.name = "string",                                 .run = to_string},
    {.name = "safe", .run = mark_safe},
    {.name = "escape",                            .run = escape},
    {.name = "e",                                           .run = escape},
    {.name = "forceescape",                           .run = force_escape},
    {.name = "length",                            .run = length},
    {.name = "count",                                           .run = length},
    {.name = "attr",.run = attr, .least = 1, .parameters = {"name"}},
    {.name = "int",                       .run = to_integer, .parameters = {"default", "base"}},
    {.name = "float",                                           .run = to_real, .parameters = {"default"}},
    {.name = "filesizeformat",   .run = file_size, .parameters = {"binary"}},
    {.name = "random",                             .run = choose_randomly},
    {.name = "abs",                                           .run = absolute},
    {.name = "round",                                             .run = round_value, .parameters = {"precision", "method"}},
    {
     .name = "tojson",
     .run = to_json,
     .parameters = {"ensure_ascii", "indent", "separators", "sort_keys"},
     },
    {.name = NULL                              },
};
