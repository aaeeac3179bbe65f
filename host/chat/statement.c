// SPDX-License-Identifier: Apache-2.0
// Statements: what stands in "{% … %}", and the texts between.
#include <assert.h>
#include <string.h>

#include "chat/syntax.h"

#define ENDS 4 // words that may end a body

// The words at which a body ends, NULL behind the last.
typedef struct endings {
    const char *words[ENDS];
} endings;

typedef berth_status (*statement_fn)(berth_jinja_parser *p, berth_jinja_node **out);

static berth_status parse_body(berth_jinja_parser *p, const endings *ends, berth_jinja_node **out);

// ---- pieces ----

static berth_status expect_close(berth_jinja_parser *p) {
    if (berth_jinja_peek(p)->kind != BERTH_JINJA_TOKEN_CLOSE) {
        return berth_jinja_unexpected(p, "the end of the tag");
    }
    ++p->at;
    return BERTH_OK;
}

// "%}", the body, and the word that ends it, with its own "%}" where there is but one.
static berth_status parse_to(berth_jinja_parser *p, const char *end, berth_jinja_node **out) {
    const endings ends = {.words = {end}};
    BERTH_TRY(expect_close(p));
    BERTH_TRY(parse_body(p, &ends, out));
    ++p->at;
    return expect_close(p);
}

// A list of statements as a statement of its own, in a scope of its own.
static berth_status parse_scope(berth_jinja_parser *p, const char *end, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_SCOPE, out));
    return parse_to(p, end, &(*out)->body);
}

// ---- tags ----

static berth_status parse_if(berth_jinja_parser *p, berth_jinja_node **out) {
    static const endings ends = {
        .words = {"endif", "elif", "else"}
    };
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_IF, out));
    berth_jinja_node **last = &(*out)->items;
    do {
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_PART, last));
        BERTH_TRY(berth_jinja_tuple_of(p, BERTH_JINJA_TUPLE_NO_CONDITION, &(*last)->first));
        BERTH_TRY(expect_close(p));
        BERTH_TRY(parse_body(p, &ends, &(*last)->body));
        last = &(*last)->next;
    } while (berth_jinja_skip_name(p, "elif"));
    if (berth_jinja_skip_name(p, "else")) {
        return parse_to(p, "endif", &(*out)->otherwise);
    }
    ++p->at;
    return expect_close(p);
}

static berth_status parse_for(berth_jinja_parser *p, berth_jinja_node **out) {
    static const endings ends = {
        .words = {"endfor", "else"}
    };
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_FOR, out));
    BERTH_TRY(berth_jinja_tuple_of(p, BERTH_JINJA_TUPLE_LOOP_TARGETS, &(*out)->first));
    if (!berth_jinja_skip_name(p, "in")) {
        return berth_jinja_unexpected(p, "'in'");
    }
    BERTH_TRY(berth_jinja_tuple_of(p, BERTH_JINJA_TUPLE_NO_CONDITION, &(*out)->second));
    if (berth_jinja_skip_name(p, "if")) {
        BERTH_TRY(berth_jinja_expression(p, &(*out)->third));
    }
    (*out)->op = berth_jinja_skip_name(p, "recursive");
    BERTH_TRY(expect_close(p));
    ++p->loops;
    BERTH_TRY(parse_body(p, &ends, &(*out)->body));
    --p->loops;
    if (berth_jinja_skip_name(p, "else")) {
        return parse_to(p, "endfor", &(*out)->otherwise);
    }
    ++p->at;
    return expect_close(p);
}

static berth_status parse_set(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_SET, out));
    BERTH_TRY(berth_jinja_tuple_of(p, BERTH_JINJA_TUPLE_TARGETS, &(*out)->first));
    if (berth_jinja_skip_op(p, "=")) {
        BERTH_TRY(berth_jinja_tuple_of(p, BERTH_JINJA_TUPLE_FULL, &(*out)->second));
        return expect_close(p);
    }
    (*out)->kind = BERTH_JINJA_NODE_BLOCK_SET;
    BERTH_TRY(berth_jinja_filters(p, NULL, false, &(*out)->second));
    return parse_to(p, "endset", &(*out)->body);
}

// "(a, b=1)" of a macro or a call block.
static berth_status parse_parameters(berth_jinja_parser *p, berth_jinja_node **out) {
    berth_jinja_node **last = out;
    BERTH_TRY(berth_jinja_expect(p, "("));
    while (!berth_jinja_at_op(p, ")")) {
        if (*out) {
            BERTH_TRY(berth_jinja_expect(p, ","));
            if (berth_jinja_at_op(p, ")")) {
                break;
            }
        }
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_ARGUMENT, last));
        assert(*last);
        BERTH_TRY(berth_jinja_parse_name(p, &(*last)->name));
        if (berth_jinja_skip_op(p, "=")) {
            BERTH_TRY(berth_jinja_expression(p, &(*last)->first));
        }
        last = &(*last)->next;
    }
    return berth_jinja_expect(p, ")");
}

// The body of a macro: a loop around it is not its own, and what it names it takes.
static berth_status parse_macro_body(berth_jinja_parser *p, const char *end,
                                     berth_jinja_node *macro) {
    const unsigned mentions = p->mentions;
    const uint32_t loops = p->loops;
    p->mentions = 0;
    p->loops = 0;
    BERTH_TRY(parse_to(p, end, &macro->body));
    macro->op = (int)p->mentions;
    p->mentions |= mentions;
    p->loops = loops;
    return BERTH_OK;
}

static berth_status parse_macro(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_MACRO, out));
    BERTH_TRY(berth_jinja_parse_name(p, &(*out)->name));
    BERTH_TRY(parse_parameters(p, &(*out)->items));
    return parse_macro_body(p, "endmacro", *out);
}

static berth_status parse_call_block(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_CALL_BLOCK, out));
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_MACRO, &(*out)->second));
    (*out)->second->name = BERTH_STR("caller");
    if (berth_jinja_at_op(p, "(")) {
        BERTH_TRY(parse_parameters(p, &(*out)->second->items));
    }
    BERTH_TRY(berth_jinja_expression(p, &(*out)->first));
    if ((*out)->first->kind != BERTH_JINJA_NODE_CALL) {
        return berth_jinja_unexpected(p, "a call");
    }
    return parse_macro_body(p, "endcall", (*out)->second);
}

static berth_status parse_filter_block(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_FILTER_BLOCK, out));
    BERTH_TRY(berth_jinja_filters(p, NULL, true, &(*out)->first));
    return parse_to(p, "endfilter", &(*out)->body);
}

static berth_status parse_with(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_WITH, out));
    for (berth_jinja_node **last = &(*out)->items;
         berth_jinja_peek(p)->kind != BERTH_JINJA_TOKEN_CLOSE; last = &(*last)->next) {
        if ((*out)->items) {
            BERTH_TRY(berth_jinja_expect(p, ","));
        }
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_PART, last));
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_NAME, &(*last)->first));
        BERTH_TRY(berth_jinja_parse_name(p, &(*last)->first->name));
        BERTH_TRY(berth_jinja_expect(p, "="));
        BERTH_TRY(berth_jinja_expression(p, &(*last)->second));
    }
    return parse_to(p, "endwith", &(*out)->body);
}

// What transformers marks for training; it prints like what stands inside.
static berth_status parse_generation(berth_jinja_parser *p, berth_jinja_node **out) {
    return parse_scope(p, "endgeneration", out);
}

static berth_status parse_print(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_OUTPUT, out));
    BERTH_TRY(berth_jinja_tuple_of(p, BERTH_JINJA_TUPLE_FULL, &(*out)->first));
    return expect_close(p);
}

static berth_status parse_jump(berth_jinja_parser *p, berth_jinja_node_kind kind,
                               berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, kind, out));
    if (p->loops == 0) {
        return BERTH_JINJA_FAIL(p->j, CORRUPT, "a break or continue outside of a loop");
    }
    return expect_close(p);
}

static berth_status parse_break(berth_jinja_parser *p, berth_jinja_node **out) {
    return parse_jump(p, BERTH_JINJA_NODE_BREAK, out);
}

static berth_status parse_continue(berth_jinja_parser *p, berth_jinja_node **out) {
    return parse_jump(p, BERTH_JINJA_NODE_CONTINUE, out);
}

// ---- bodies ----

static statement_fn find_tag(berth_str name) {
    static const struct {
        const char *name;
        statement_fn parse;
    } tags[] = {
        {.name = "if",         .parse = parse_if          },
        {.name = "for",        .parse = parse_for         },
        {.name = "set",        .parse = parse_set         },
        {.name = "macro",      .parse = parse_macro       },
        {.name = "call",       .parse = parse_call_block  },
        {.name = "filter",     .parse = parse_filter_block},
        {.name = "with",       .parse = parse_with        },
        {.name = "generation", .parse = parse_generation  },
        {.name = "print",      .parse = parse_print       },
        {.name = "break",      .parse = parse_break       },
        {.name = "continue",   .parse = parse_continue    },
    };
    for (size_t i = 0; i < BERTH_COUNT(tags); ++i) {
        if (berth_str_equal_cstr(name, tags[i].name)) {
            return tags[i].parse;
        }
    }
    return NULL;
}

static berth_status parse_tag(berth_jinja_parser *p, berth_jinja_node **out) {
    berth_str name;
    BERTH_TRY(berth_jinja_parse_name(p, &name));
    const statement_fn parse = find_tag(name);
    p->j->line = p->tokens[p->at - 1].line;
    if (!parse && berth_str_starts_with(name, BERTH_STR("end"))) {
        return BERTH_JINJA_FAIL(p->j, CORRUPT, "unexpected {%% " BERTH_STR_FMT " %%}",
                                BERTH_STR_ARG(name));
    }
    if (!parse) {
        return BERTH_JINJA_FAIL(p->j, UNSUPPORTED,
                                "the tag {%% " BERTH_STR_FMT " %%} is not supported: if, for, set, "
                                "macro, call, filter, with, raw, generation, break and continue "
                                "are",
                                BERTH_STR_ARG(name));
    }
    BERTH_TRY(berth_jinja_enter(p->j));
    const berth_status status = parse(p, out);
    berth_jinja_leave(p->j);
    return status;
}

static berth_status parse_statement(berth_jinja_parser *p, berth_jinja_node **out) {
    const berth_jinja_token *token = berth_jinja_peek(p);
    if (token->kind == BERTH_JINJA_TOKEN_DATA) {
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_DATA, out));
        (*out)->name = token->text;
        ++p->at;
        return BERTH_OK;
    }
    ++p->at;
    return token->kind == BERTH_JINJA_TOKEN_VARIABLE ? parse_print(p, out) : parse_tag(p, out);
}

static bool is_ending(const berth_jinja_parser *p, const endings *ends) {
    const berth_jinja_token *next = berth_jinja_peek(p);
    if (next->kind != BERTH_JINJA_TOKEN_BLOCK || next[1].kind != BERTH_JINJA_TOKEN_NAME) {
        return false;
    }
    for (size_t i = 0; i < ENDS && ends->words[i]; ++i) {
        if (berth_str_equal_cstr(next[1].text, ends->words[i])) {
            return true;
        }
    }
    return false;
}

// Statements up to one of the words, which is at hand then. Without words, up to the end.
static berth_status parse_body(berth_jinja_parser *p, const endings *ends, berth_jinja_node **out) {
    const uint32_t line = berth_jinja_peek(p)->line;
    for (; !is_ending(p, ends); out = &(*out)->next) {
        if (berth_jinja_peek(p)->kind == BERTH_JINJA_TOKEN_END) {
            p->j->line = line;
            return !ends->words[0] ? BERTH_OK
                                   : BERTH_JINJA_FAIL(p->j, CORRUPT,
                                                      "the body that begins here has no {%% %s %%}",
                                                      ends->words[0]);
        }
        BERTH_TRY(parse_statement(p, out));
    }
    ++p->at; // "{%"
    return BERTH_OK;
}

berth_status berth_jinja_parse(berth_jinja *j, berth_str source, berth_jinja_node **out) {
    static const endings none = {0};
    berth_jinja_tokens tokens = {0};
    *out = NULL;
    berth_status status = berth_jinja_lex(j, source, &tokens);
    if (status == BERTH_OK) {
        berth_jinja_parser p = {.j = j, .tokens = tokens.data};
        status = parse_body(&p, &none, out);
    }
    berth_array_free(&tokens);
    return status;
}
