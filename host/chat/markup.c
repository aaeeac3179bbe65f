// SPDX-License-Identifier: Apache-2.0
// Filters that write and read what the web is made of: addresses, attributes and tags.
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

#define NAME_BYTES     32 // of an entity, its semicolon not counted
#define FIRST_LATIN    0xA0
#define FIRST_WINDOWS  0x80
#define LAST_CODE      0x10FFFFu
#define CODE_SATURATED 0x110000u

// ---- addresses ----

static bool is_letter_or_digit(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9');
}

// In a query a blank is a plus and a slash is escaped; in a path it is the other way round.
static void write_url(berth_str url, bool is_query, berth_text *text) {
    for (size_t i = 0; i < url.size; ++i) {
        const char byte = url.data[i];
        if (is_letter_or_digit(byte) ||
            (byte != '\0' && strchr(is_query ? "_.-~" : "_.-~/", byte))) {
            berth_text_add_char(text, byte);
        } else if (is_query && byte == ' ') {
            berth_text_add_char(text, '+');
        } else {
            berth_text_add_format(text, "%%%02X", (unsigned)(uint8_t)byte);
        }
    }
}

static berth_status write_parameter(berth_jinja *j, const berth_jinja_value *key,
                                    const berth_jinja_value *value, berth_text *text) {
    berth_str name, shown;
    BERTH_TRY(berth_jinja_to_str(j, key, &name));
    BERTH_TRY(berth_jinja_to_str(j, value, &shown));
    berth_text_add_cstr(text, text->size > 0 ? "&" : "");
    write_url(name, true, text);
    berth_text_add_cstr(text, "=");
    write_url(shown, true, text);
    return berth_jinja_spend(j, 1 + (name.size + shown.size) / 16);
}

static berth_status write_pairs(berth_jinja *j, const berth_jinja_value *value, berth_text *text) {
    berth_jinja_list *pairs, *pair;
    BERTH_TRY(berth_jinja_items(j, value, &pairs));
    for (size_t i = 0; i < pairs->count; ++i) {
        BERTH_TRY(berth_jinja_items(j, &pairs->items[i], &pair));
        if (pair->count != 2) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "urlencode needs pairs, not %zu values",
                                    pair->count);
        }
        BERTH_TRY(write_parameter(j, &pair->items[0], &pair->items[1], text));
    }
    return BERTH_OK;
}

static berth_status write_query(berth_jinja *j, const berth_jinja_value *value, berth_text *text) {
    if (value->kind != BERTH_JINJA_DICT) {
        return write_pairs(j, value, text);
    }
    const berth_jinja_dict *dict = value->as.dict;
    for (size_t i = 0; i < dict->count; ++i) {
        BERTH_TRY(write_parameter(j, &dict->keys[i], &dict->values[i], text));
    }
    return BERTH_OK;
}

// A text becomes a path, a dict or pairs become a query.
static berth_status write_encoded(berth_jinja *j, const berth_jinja_args *args, berth_text *text) {
    berth_str url;
    if (args->self.kind >= BERTH_JINJA_LIST) {
        return write_query(j, &args->self, text);
    }
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &url));
    write_url(url, false, text);
    return berth_jinja_spend(j, url.size / 16);
}

// ---- attributes ----

static void write_escaped(const berth_jinja_value *value, berth_str shown, berth_text *text) {
    if (value->is_markup) {
        berth_text_add(text, shown);
    } else {
        berth_jinja_escape(shown, text);
    }
}

static berth_status check_name(berth_jinja *j, const berth_jinja_value *key) {
    berth_str name = {0};
    BERTH_TRY(berth_jinja_want_str(j, key, &name));
    for (size_t i = 0; i < name.size; ++i) {
        if (name.data[i] != '\0' && strchr(" \t\n\v\f\r/>=", name.data[i])) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                    "xmlattr: '" BERTH_STR_FMT "' cannot be the name of an "
                                    "attribute",
                                    BERTH_STR_ARG(name));
        }
    }
    return BERTH_OK;
}

static berth_status write_attributes(berth_jinja *j, const berth_jinja_args *args,
                                     berth_text *text) {
    const bool has_blank = berth_jinja_truth_or(&args->values[0], true);
    if (args->self.kind != BERTH_JINJA_DICT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "xmlattr needs a dict, not '%s'",
                                berth_jinja_type(&args->self));
    }
    for (size_t i = 0; i < args->self.as.dict->count; ++i) {
        const berth_jinja_value *key = &args->self.as.dict->keys[i];
        const berth_jinja_value *value = &args->self.as.dict->values[i];
        berth_str shown;
        if (value->kind == BERTH_JINJA_NONE || value->kind == BERTH_JINJA_UNDEFINED) {
            continue;
        }
        BERTH_TRY(check_name(j, key));
        BERTH_TRY(berth_jinja_to_str(j, value, &shown));
        berth_text_add_cstr(text, has_blank || text->size > 0 ? " " : "");
        write_escaped(key, key->as.string, text);
        berth_text_add_cstr(text, "=\"");
        write_escaped(value, shown, text);
        berth_text_add_cstr(text, "\"");
        BERTH_TRY(berth_jinja_spend(j, 1 + shown.size / 16));
    }
    return BERTH_OK;
}

// ---- entities ----

// Those that HTML also reads without a semicolon, from U+00A0 on.
static const char *const latin_names[] = {
    "nbsp",   "iexcl",  "cent",   "pound",  "curren", "yen",    "brvbar", "sect",   "uml",
    "copy",   "ordf",   "laquo",  "not",    "shy",    "reg",    "macr",   "deg",    "plusmn",
    "sup2",   "sup3",   "acute",  "micro",  "para",   "middot", "cedil",  "sup1",   "ordm",
    "raquo",  "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc",  "Atilde",
    "Auml",   "Aring",  "AElig",  "Ccedil", "Egrave", "Eacute", "Ecirc",  "Euml",   "Igrave",
    "Iacute", "Icirc",  "Iuml",   "ETH",    "Ntilde", "Ograve", "Oacute", "Ocirc",  "Otilde",
    "Ouml",   "times",  "Oslash", "Ugrave", "Uacute", "Ucirc",  "Uuml",   "Yacute", "THORN",
    "szlig",  "agrave", "aacute", "acirc",  "atilde", "auml",   "aring",  "aelig",  "ccedil",
    "egrave", "eacute", "ecirc",  "euml",   "igrave", "iacute", "icirc",  "iuml",   "eth",
    "ntilde", "ograve", "oacute", "ocirc",  "otilde", "ouml",   "divide", "oslash", "ugrave",
    "uacute", "ucirc",  "uuml",   "yacute", "thorn",  "yuml",
};

typedef struct entity {
    const char *name; // NULL ends a table
    uint32_t code;
} entity;

static const entity short_names[] = {
    {.name = "amp",  .code = '&' },
    {.name = "AMP",  .code = '&' },
    {.name = "lt",   .code = '<' },
    {.name = "LT",   .code = '<' },
    {.name = "gt",   .code = '>' },
    {.name = "GT",   .code = '>' },
    {.name = "quot", .code = '"' },
    {.name = "QUOT", .code = '"' },
    {.name = "COPY", .code = 0xA9},
    {.name = "REG",  .code = 0xAE},
    {.name = NULL,   .code = 0   },
};

// Of those that need their semicolon, what English pages write.
static const entity long_names[] = {
    {.name = "apos",   .code = '\''  },
    {.name = "ndash",  .code = 0x2013},
    {.name = "mdash",  .code = 0x2014},
    {.name = "lsquo",  .code = 0x2018},
    {.name = "rsquo",  .code = 0x2019},
    {.name = "ldquo",  .code = 0x201C},
    {.name = "rdquo",  .code = 0x201D},
    {.name = "bull",   .code = 0x2022},
    {.name = "hellip", .code = 0x2026},
    {.name = "euro",   .code = 0x20AC},
    {.name = "trade",  .code = 0x2122},
    {.name = "larr",   .code = 0x2190},
    {.name = "rarr",   .code = 0x2192},
    {.name = NULL,     .code = 0     },
};

// What the numbers 0x80 to 0x9F stand for, because pages meant Windows' letters by them.
static const uint16_t windows_codes[] = {
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178,
};

static void write_code(uint32_t code, berth_text *text) {
    char bytes[4];
    const size_t size = berth_utf8_encode(code, bytes);
    berth_text_add(text, (berth_str){.data = bytes, .size = size});
}

// No character at all, so that nothing is printed for it.
static bool is_no_character(uint32_t code) {
    return (code >= 0x01 && code <= 0x08) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
           code == 0x7F || (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFE) == 0xFFFE;
}

static void write_number(uint32_t code, berth_text *text) {
    if (code >= FIRST_WINDOWS && code - FIRST_WINDOWS < BERTH_COUNT(windows_codes)) {
        write_code(windows_codes[code - FIRST_WINDOWS], text);
    } else if (code == 0 || code > LAST_CODE || (code >= 0xD800 && code <= 0xDFFF)) {
        write_code(0xFFFD, text);
    } else if (!is_no_character(code)) {
        write_code(code, text);
    }
}

static unsigned digit_of(char byte) {
    return byte >= '0' && byte <= '9'   ? (unsigned)(byte - '0')
           : byte >= 'a' && byte <= 'f' ? (unsigned)(byte - 'a') + 10
           : byte >= 'A' && byte <= 'F' ? (unsigned)(byte - 'A') + 10
                                        : 16;
}

// "#65;" and "#x41;" behind an ampersand. Returns the bytes that it took; 0: it is no number.
static size_t read_number(berth_str rest, berth_text *text) {
    const bool is_hex = rest.size > 1 && (rest.data[1] | 0x20) == 'x';
    const unsigned base = is_hex ? 16 : 10;
    const size_t start = is_hex ? 2 : 1;
    size_t at = start;
    uint32_t code = 0;
    for (; at < rest.size && digit_of(rest.data[at]) < base; ++at) {
        code = code * base + digit_of(rest.data[at]);
        code = code > LAST_CODE ? CODE_SATURATED : code;
    }
    if (at == start) {
        return 0;
    }
    write_number(code, text);
    return at < rest.size && rest.data[at] == ';' ? at + 1 : at;
}

// 0: the table has no such entity.
static uint32_t find_code(const entity *rows, berth_str name) {
    while (rows->name && !berth_str_equal_cstr(name, rows->name)) {
        ++rows;
    }
    return rows->code;
}

static uint32_t code_of(berth_str name, bool has_semicolon) {
    for (size_t i = 0; i < BERTH_COUNT(latin_names); ++i) {
        if (berth_str_equal_cstr(name, latin_names[i])) {
            return (uint32_t)(FIRST_LATIN + i);
        }
    }
    const uint32_t code = find_code(short_names, name);
    return code == 0 && has_semicolon ? find_code(long_names, name) : code;
}

// "eacute;" behind an ampersand, or the longest beginning that is an entity: "notit" is "¬it".
// Why some are refused: HTML has two thousand more that need their semicolon.
static berth_status read_name(berth_jinja *j, berth_str rest, berth_text *text, size_t *out_size) {
    size_t size = 0;
    *out_size = 0;
    while (size < rest.size && size < NAME_BYTES && is_letter_or_digit(rest.data[size])) {
        ++size;
    }
    const berth_str name = berth_str_slice(rest, 0, size);
    const bool has_semicolon = size < rest.size && rest.data[size] == ';';
    if (has_semicolon && code_of(name, true) > 0) {
        write_code(code_of(name, true), text);
        *out_size = size + 1;
        return BERTH_OK;
    }
    if (has_semicolon && size > 0) {
        return BERTH_JINJA_FAIL(j, UNSUPPORTED,
                                "striptags: the entity '&" BERTH_STR_FMT ";' is not supported",
                                BERTH_STR_ARG(name));
    }
    for (; size > 1 && *out_size == 0; --size) {
        const uint32_t code = code_of(berth_str_slice(rest, 0, size), false);
        if (code > 0) {
            write_code(code, text);
            *out_size = size;
        }
    }
    return BERTH_OK;
}

static berth_status write_unescaped(berth_jinja *j, berth_str source, berth_text *text) {
    size_t taken;
    for (size_t at = 0; at < source.size; at += taken) {
        const berth_str rest = berth_str_slice(source, at + 1, SIZE_MAX);
        taken = 0;
        if (source.data[at] == '&' && rest.size > 0 && rest.data[0] == '#') {
            taken = read_number(rest, text);
        } else if (source.data[at] == '&') {
            BERTH_TRY(berth_jinja_spend(j, 1));
            BERTH_TRY(read_name(j, rest, text, &taken));
        }
        if (taken == 0) {
            berth_text_add_char(text, source.data[at]);
        }
        ++taken;
    }
    return BERTH_OK;
}

// ---- tags ----

// The byte behind the tag or comment that begins at `start`, SIZE_MAX where it does not end.
static size_t end_of_tag(berth_str source, size_t start) {
    const bool is_comment =
        berth_str_starts_with(berth_str_slice(source, start, 4), BERTH_STR("<!--"));
    const berth_str end = is_comment ? BERTH_STR("-->") : BERTH_STR(">");
    const size_t found = berth_jinja_find(source, end, is_comment ? start + 4 : start);
    return found == SIZE_MAX ? SIZE_MAX : found + end.size;
}

static void write_without_tags(berth_str source, berth_text *text) {
    size_t at = 0;
    for (;;) {
        const size_t start = berth_jinja_find(source, BERTH_STR("<"), at);
        const size_t end = start == SIZE_MAX ? SIZE_MAX : end_of_tag(source, start);
        if (end == SIZE_MAX) {
            break;
        }
        berth_text_add(text, berth_str_slice(source, at, start - at));
        at = end;
    }
    berth_text_add(text, berth_str_slice(source, at, SIZE_MAX));
}

// White space becomes one blank, and none at the ends.
static void write_collapsed(berth_str source, berth_text *text) {
    bool has_gap = false;
    size_t step;
    for (size_t at = 0; at < source.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(source, at, 4), &code);
        if (berth_jinja_char_is(code, BERTH_JINJA_SPACE)) {
            has_gap = true;
            continue;
        }
        berth_text_add_cstr(text, has_gap && text->size > 0 ? " " : "");
        berth_text_add(text, berth_str_slice(source, at, step));
        has_gap = false;
    }
}

static berth_status write_stripped(berth_jinja *j, const berth_jinja_args *args, berth_text *text) {
    berth_str source;
    berth_text plain, collapsed;
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &source));
    BERTH_TRY(berth_jinja_spend(j, source.size / 8));
    berth_text_init(&plain, BERTH_JINJA_OUTPUT);
    berth_text_init(&collapsed, BERTH_JINJA_OUTPUT);
    write_without_tags(source, &plain);
    write_collapsed(berth_text_str(&plain), &collapsed);
    berth_status status = berth_text_finish(&collapsed, NULL);
    if (status == BERTH_OK) {
        status = write_unescaped(j, berth_text_str(&collapsed), text);
    }
    berth_text_deinit(&collapsed);
    berth_text_deinit(&plain);
    return status;
}

// ---- the filters ----

typedef berth_status (*writer_fn)(berth_jinja *j, const berth_jinja_args *args, berth_text *text);

static berth_status made_by(writer_fn write, berth_jinja *j, const berth_jinja_args *args,
                            berth_jinja_value *out) {
    berth_text text;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = write(j, args, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status urlencode(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    return made_by(write_encoded, j, args, out);
}

static berth_status xmlattr(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return made_by(write_attributes, j, args, out);
}

static berth_status striptags(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    BERTH_TRY(made_by(write_stripped, j, args, out));
    out->is_markup = true;
    return BERTH_OK;
}

const berth_jinja_builtin berth_jinja_markup_filters[] = {
    {.name = "urlencode", .run = urlencode},
    {.name = "xmlattr",                   .run = xmlattr, .parameters = {"autospace"}},
    {.name = "striptags",.run = striptags},
    {.name = NULL                  },
};
