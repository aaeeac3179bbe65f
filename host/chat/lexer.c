// SPDX-License-Identifier: Apache-2.0
// Input: a template's text. Output: its tokens. Outside of tags the text is data, of which the tags
// beside it take white space away; inside, words are read until the tag's own end stands outside of
// all brackets.
#include <string.h>

#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/token.h"

#define BRACKETS 128 // open ones at once

typedef struct lexer {
    berth_jinja *j;
    berth_str source;
    size_t at;
    bool is_line_start; // the last thing read ended with a newline
    char open[BRACKETS];
    size_t open_count;
    berth_jinja_tokens *tokens;
} lexer;

static const char *const operators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                        "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                        ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// The byte `ahead` of the current one; NUL behind the end.
static char peek(const lexer *l, size_t ahead) {
    return l->at + ahead < l->source.size ? l->source.data[l->at + ahead] : '\0';
}

static bool looks_at(const lexer *l, const char *text) {
    return berth_str_starts_with(berth_str_slice(l->source, l->at, SIZE_MAX), berth_str_from(text));
}

// Goes on by so many bytes and counts the lines.
static void advance(lexer *l, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        l->j->line += l->source.data[l->at + i] == '\n';
    }
    l->is_line_start = size > 0 ? l->source.data[l->at + size - 1] == '\n' : l->is_line_start;
    l->at += size;
}

// Bytes of white space from `ahead` on.
static size_t space_at(const lexer *l, size_t ahead) {
    size_t size = 0;
    for (;;) {
        uint32_t code = BERTH_UTF8_BAD;
        const berth_str rest = berth_str_slice(l->source, l->at + ahead + size, 4);
        const size_t step = berth_utf8_next(rest, &code);
        if (step == 0 || !berth_jinja_char_is(code, BERTH_JINJA_SPACE)) {
            return size;
        }
        size += step;
    }
}

static berth_status add_token(lexer *l, berth_jinja_token_kind kind, size_t size) {
    const berth_jinja_token token = {
        .kind = kind,
        .line = l->j->line,
        .text = berth_str_slice(l->source, l->at, size),
    };
    BERTH_TRY(berth_array_push(l->tokens, token));
    advance(l, size);
    return BERTH_OK;
}

// ---- data ----

// The text before a tag: "-" takes all white space off its end, no sign what stands before the tag
// on its line, and "+" nothing; a "{{" only heeds "-".
static berth_str strip_before(berth_str text, char sign, bool is_variable, bool is_line_start) {
    if (sign == '-') {
        return berth_jinja_strip(text, (berth_str){0}, BERTH_JINJA_STRIP_RIGHT);
    }
    if (sign == '+' || is_variable) {
        return text;
    }
    size_t line = text.size;
    while (line > 0 && text.data[line - 1] != '\n') {
        --line;
    }
    const berth_str last = berth_str_slice(text, line, SIZE_MAX);
    const bool is_blank = berth_jinja_strip(last, (berth_str){0}, BERTH_JINJA_STRIP_LEFT).size == 0;
    return (line > 0 || is_line_start) && is_blank ? berth_str_slice(text, 0, line) : text;
}

static char sign_at(const lexer *l, size_t ahead) {
    const char sign = peek(l, ahead);
    return sign == '-' || sign == '+' ? sign : '\0';
}

// The text up to `size`, before a tag whose sign is at `sign_ahead` from there.
static berth_status add_data(lexer *l, size_t size, char sign, bool is_variable) {
    const berth_str whole = berth_str_slice(l->source, l->at, size);
    const berth_str text = strip_before(whole, sign, is_variable, l->is_line_start);
    const berth_jinja_token token = {
        .kind = BERTH_JINJA_TOKEN_DATA,
        .line = l->j->line,
        .text = text,
    };
    if (text.size > 0) {
        BERTH_TRY(berth_array_push(l->tokens, token));
    }
    advance(l, size);
    return BERTH_OK;
}

// The bytes of a block's end from `ahead` on, white space that it takes along included; 0: none.
static size_t block_end_at(const lexer *l, size_t ahead, const char *end) {
    const char sign = sign_at(l, ahead);
    const size_t at = ahead + (sign ? 1 : 0);
    if (peek(l, at) != end[0] || peek(l, at + 1) != end[1]) {
        return 0;
    }
    const size_t size = at + 2 - ahead;
    if (sign == '-') {
        return size + space_at(l, ahead + size);
    }
    return size + (!sign && peek(l, ahead + size) == '\n' ? 1 : 0);
}

// "%} " and so on of a word that has a tag of its own, such as raw; 0: it is another tag.
static size_t word_tag_at(const lexer *l, size_t ahead, const char *word, bool trims) {
    const size_t length = strlen(word);
    if (peek(l, ahead) != '{' || peek(l, ahead + 1) != '%') {
        return 0;
    }
    size_t at = ahead + 2 + (sign_at(l, ahead + 2) ? 1 : 0);
    at += space_at(l, at);
    if (!berth_str_equal_cstr(berth_str_slice(l->source, l->at + at, length), word)) {
        return 0;
    }
    at += length;
    at += space_at(l, at);
    if (trims || sign_at(l, at) == '-') {
        const size_t end = block_end_at(l, at, "%}");
        return end ? at + end - ahead : 0;
    }
    return peek(l, at) == '%' && peek(l, at + 1) == '}' ? at + 2 - ahead : 0;
}

static berth_status read_raw(lexer *l, size_t opening) {
    advance(l, opening);
    for (size_t size = 0; l->at + size < l->source.size; ++size) {
        const size_t closing = word_tag_at(l, size, "endraw", true);
        if (closing) {
            BERTH_TRY(add_data(l, size, sign_at(l, size + 2), false));
            advance(l, closing);
            return BERTH_OK;
        }
    }
    return BERTH_JINJA_FAIL(l->j, CORRUPT, "{%% raw %%} without its {%% endraw %%}");
}

static berth_status skip_comment(lexer *l) {
    advance(l, sign_at(l, 2) ? 3 : 2);
    const size_t end = berth_jinja_find(l->source, BERTH_STR("#}"), l->at);
    if (l->at == l->source.size) {
        return BERTH_OK; // jinja2 lets the very last characters of a template open a comment
    }
    if (end == SIZE_MAX) {
        return BERTH_JINJA_FAIL(l->j, CORRUPT, "a comment without its #}");
    }
    const bool has_sign =
        end > l->at && (l->source.data[end - 1] == '-' || l->source.data[end - 1] == '+');
    advance(l, end - l->at - (has_sign ? 1 : 0));
    advance(l, block_end_at(l, 0, "#}"));
    return BERTH_OK;
}

// ---- inside of tags ----

static bool is_name_byte(char byte, bool is_first) {
    const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    return is_letter || byte == '_' || (uint8_t)byte >= 0x80 ||
           (!is_first && byte >= '0' && byte <= '9');
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

// Digits with single underscores between, from `ahead` on.
static size_t digits_at(const lexer *l, size_t ahead) {
    size_t size = 0;
    while (is_digit(peek(l, ahead + size)) ||
           (size > 0 && peek(l, ahead + size) == '_' && is_digit(peek(l, ahead + size + 1)))) {
        ++size;
    }
    return size;
}

// The bytes of a number with a point or an exponent; 0: it has none. Why not behind a point:
// "a.0.1" are two indices.
static size_t real_at(const lexer *l) {
    size_t size = digits_at(l, 0);
    bool is_real = false;
    if (l->at > 0 && l->source.data[l->at - 1] == '.') {
        return 0;
    }
    if (peek(l, size) == '.' && is_digit(peek(l, size + 1))) {
        size += 1 + digits_at(l, size + 1);
        is_real = true;
    }
    if ((peek(l, size) | 0x20) == 'e') {
        const size_t sign = sign_at(l, size + 1) ? 1 : 0;
        const size_t digits = digits_at(l, size + 1 + sign);
        is_real |= digits > 0;
        size += digits > 0 ? 1 + sign + digits : 0;
    }
    return is_real ? size : 0;
}

static size_t integer_at(const lexer *l) {
    const char base = (char)(peek(l, 1) | 0x20);
    if (peek(l, 0) != '0' || (base != 'x' && base != 'o' && base != 'b')) {
        return digits_at(l, 0);
    }
    size_t size = 2;
    while (is_name_byte(peek(l, size), false)) {
        ++size;
    }
    return size;
}

static berth_status read_number(lexer *l) {
    const size_t real = real_at(l);
    BERTH_TRY(add_token(l, real ? BERTH_JINJA_TOKEN_REAL : BERTH_JINJA_TOKEN_INTEGER,
                        real ? real : integer_at(l)));
    return berth_jinja_number(l->j, &l->tokens->data[l->tokens->count - 1]);
}

static berth_status read_string(lexer *l) {
    const char quote = peek(l, 0);
    size_t size = 1;
    while (l->at + size < l->source.size && peek(l, size) != quote) {
        size += peek(l, size) == '\\' ? 2 : 1;
    }
    if (l->at + size >= l->source.size) {
        return BERTH_JINJA_FAIL(l->j, CORRUPT, "a string without its closing %c", quote);
    }
    BERTH_TRY(add_token(l, BERTH_JINJA_TOKEN_STRING, size + 1));
    berth_jinja_token *token = &l->tokens->data[l->tokens->count - 1];
    return berth_jinja_unescape(l->j, berth_str_slice(token->text, 1, size - 1), &token->text);
}

static berth_status read_bracket(lexer *l, char byte) {
    static const char openings[] = "([{";
    static const char closings[] = ")]}";
    if (strchr(openings, byte)) {
        if (l->open_count == BRACKETS) {
            return BERTH_JINJA_FAIL(l->j, UNSUPPORTED, "more than %d open brackets", BRACKETS);
        }
        l->open[l->open_count++] = byte;
        return BERTH_OK;
    }
    const char *closing = strchr(closings, byte);
    if (closing &&
        (l->open_count == 0 || l->open[--l->open_count] != openings[closing - closings])) {
        return BERTH_JINJA_FAIL(l->j, CORRUPT, "unexpected '%c'", byte);
    }
    return BERTH_OK;
}

static berth_status read_operator(lexer *l) {
    for (size_t i = 0; i < BERTH_COUNT(operators); ++i) {
        if (looks_at(l, operators[i])) {
            BERTH_TRY(read_bracket(l, operators[i][0]));
            return add_token(l, BERTH_JINJA_TOKEN_OPERATOR, strlen(operators[i]));
        }
    }
    return BERTH_JINJA_FAIL(l->j, CORRUPT, "unexpected character '%c' inside of a tag", peek(l, 0));
}

static berth_status read_word(lexer *l) {
    const char byte = peek(l, 0);
    if (is_digit(byte)) {
        return read_number(l);
    }
    if (byte == '\'' || byte == '"') {
        return read_string(l);
    }
    if (!is_name_byte(byte, true)) {
        return read_operator(l);
    }
    size_t size = 1;
    while (is_name_byte(peek(l, size), false)) {
        ++size;
    }
    return add_token(l, BERTH_JINJA_TOKEN_NAME, size);
}

// The end of the tag at hand, outside of brackets; 0: not yet. "}}" takes no newline along.
static size_t tag_end_at(const lexer *l, bool is_variable) {
    if (l->open_count > 0) {
        return 0;
    }
    if (!is_variable) {
        return block_end_at(l, 0, "%}");
    }
    if (looks_at(l, "-}}")) {
        return 3 + space_at(l, 3);
    }
    return looks_at(l, "}}") ? 2 : 0;
}

static berth_status read_tag(lexer *l, bool is_variable) {
    const size_t sign = sign_at(l, 2) ? 1 : 0;
    l->open_count = 0;
    BERTH_TRY(
        add_token(l, is_variable ? BERTH_JINJA_TOKEN_VARIABLE : BERTH_JINJA_TOKEN_BLOCK, 2 + sign));
    for (;;) {
        advance(l, space_at(l, 0));
        const size_t end = tag_end_at(l, is_variable);
        if (end) {
            return add_token(l, BERTH_JINJA_TOKEN_CLOSE, end);
        }
        if (l->at == l->source.size) {
            return BERTH_JINJA_FAIL(l->j, CORRUPT, "the template ends inside of a tag");
        }
        BERTH_TRY(read_word(l));
    }
}

// ---- the whole ----

// Bytes up to the next tag, or to the end.
static size_t next_tag(const lexer *l) {
    const berth_str rest = berth_str_slice(l->source, l->at, SIZE_MAX);
    for (size_t i = 0; i + 1 < rest.size; ++i) {
        const char next = rest.data[i + 1];
        if (rest.data[i] == '{' && (next == '{' || next == '%' || next == '#')) {
            return i;
        }
    }
    return rest.size;
}

static berth_status lex_tag(lexer *l) {
    const size_t raw = word_tag_at(l, 0, "raw", false);
    if (raw) {
        return read_raw(l, raw);
    }
    return peek(l, 1) == '#' ? skip_comment(l) : read_tag(l, peek(l, 1) == '{');
}

berth_status berth_jinja_lex(berth_jinja *j, berth_str source, berth_jinja_tokens *tokens) {
    lexer l = {.j = j, .source = source, .is_line_start = true, .tokens = tokens};
    j->line = 1;
    while (l.at < source.size) {
        const size_t size = next_tag(&l);
        const bool is_tag = l.at + size < source.size;
        const bool is_variable = is_tag && peek(&l, size + 1) == '{';
        // At the end there is no tag that could take white space away.
        BERTH_TRY(add_data(&l, size, is_tag ? sign_at(&l, size + 2) : '+', is_variable));
        if (is_tag) {
            BERTH_TRY(lex_tag(&l));
        }
    }
    return add_token(&l, BERTH_JINJA_TOKEN_END, 0);
}
