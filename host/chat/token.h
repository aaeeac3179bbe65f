// SPDX-License-Identifier: Apache-2.0
// The text of a template as tokens: what stands between the tags, and the words inside of them.
#ifndef BERTH_CHAT_TOKEN_H
#define BERTH_CHAT_TOKEN_H

#include "base/array.h"
#include "base/str.h"
#include "chat/machine.h"

typedef enum berth_jinja_token_kind {
    BERTH_JINJA_TOKEN_DATA,     // text to print
    BERTH_JINJA_TOKEN_VARIABLE, // "{{"
    BERTH_JINJA_TOKEN_BLOCK,    // "{%"
    BERTH_JINJA_TOKEN_CLOSE,    // "}}" or "%}"
    BERTH_JINJA_TOKEN_NAME,
    BERTH_JINJA_TOKEN_STRING, // its content, escapes replaced
    BERTH_JINJA_TOKEN_INTEGER,
    BERTH_JINJA_TOKEN_REAL,
    BERTH_JINJA_TOKEN_OPERATOR,
    BERTH_JINJA_TOKEN_END,
} berth_jinja_token_kind;

typedef struct berth_jinja_token {
    berth_jinja_token_kind kind;
    uint32_t line;
    berth_str text; // borrowed from the template or of its arena
    int64_t integer;
    double real;
} berth_jinja_token;

typedef berth_array(berth_jinja_token) berth_jinja_tokens;

// Appends all tokens, END last. `j` is for failures and memory; the source stays borrowed. White
// space goes as Hugging Face asks of Jinja: trim_blocks and lstrip_blocks.
BERTH_MUST_CHECK berth_status berth_jinja_lex(berth_jinja *j, berth_str source,
                                              berth_jinja_tokens *tokens);
// What stands between the quotes of a literal, with its escapes replaced (literal.c).
BERTH_MUST_CHECK berth_status berth_jinja_unescape(berth_jinja *j, berth_str literal,
                                                   berth_str *out);
// The value of a number's digits, whose underscores may stay.
BERTH_MUST_CHECK berth_status berth_jinja_number(berth_jinja *j, berth_jinja_token *token);

#endif
