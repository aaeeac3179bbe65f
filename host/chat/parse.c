// SPDX-License-Identifier: Apache-2.0
// Expressions: Jinja's grammar, one function a level of precedence, the loosest last.
#include <assert.h>
#include <stdio.h>

#include "chat/builtin.h"
#include "chat/syntax.h"

// ---- tokens ----

const berth_jinja_token *berth_jinja_peek(const berth_jinja_parser *p) {
    return &p->tokens[p->at];
}

static bool is_at(const berth_jinja_parser *p, berth_jinja_token_kind kind, const char *text) {
    return p->tokens[p->at].kind == kind && berth_str_equal_cstr(p->tokens[p->at].text, text);
}

bool berth_jinja_at_op(const berth_jinja_parser *p, const char *op) {
    return is_at(p, BERTH_JINJA_TOKEN_OPERATOR, op);
}

bool berth_jinja_at_name(const berth_jinja_parser *p, const char *name) {
    return is_at(p, BERTH_JINJA_TOKEN_NAME, name);
}

bool berth_jinja_skip_op(berth_jinja_parser *p, const char *op) {
    const bool is_there = berth_jinja_at_op(p, op);
    p->at += is_there;
    return is_there;
}

bool berth_jinja_skip_name(berth_jinja_parser *p, const char *name) {
    const bool is_there = berth_jinja_at_name(p, name);
    p->at += is_there;
    return is_there;
}

berth_status berth_jinja_unexpected(berth_jinja_parser *p, const char *wanted) {
    const berth_jinja_token *token = berth_jinja_peek(p);
    p->j->line = token->line;
    if (token->kind == BERTH_JINJA_TOKEN_END || token->kind == BERTH_JINJA_TOKEN_DATA) {
        return BERTH_JINJA_FAIL(p->j, CORRUPT, "expected %s, found the end of the %s", wanted,
                                token->kind == BERTH_JINJA_TOKEN_END ? "template" : "tag");
    }
    return BERTH_JINJA_FAIL(p->j, CORRUPT, "expected %s, found '" BERTH_STR_FMT "'", wanted,
                            BERTH_STR_ARG(token->text));
}

berth_status berth_jinja_expect(berth_jinja_parser *p, const char *op) {
    char wanted[16];
    (void)snprintf(wanted, sizeof(wanted), "'%s'", op);
    return berth_jinja_skip_op(p, op) ? BERTH_OK : berth_jinja_unexpected(p, wanted);
}

berth_status berth_jinja_node_new(berth_jinja_parser *p, berth_jinja_node_kind kind,
                                  berth_jinja_node **out) {
    void *node;
    BERTH_TRY(berth_jinja_alloc(p->j, 1, sizeof(berth_jinja_node), &node));
    assert(node);
    *out = node;
    (*out)->kind = kind;
    (*out)->line = berth_jinja_peek(p)->line;
    p->j->line = (*out)->line;
    return BERTH_OK;
}

berth_status berth_jinja_parse_name(berth_jinja_parser *p, berth_str *out) {
    if (berth_jinja_peek(p)->kind != BERTH_JINJA_TOKEN_NAME) {
        return berth_jinja_unexpected(p, "a name");
    }
    *out = p->tokens[p->at++].text;
    return BERTH_OK;
}

// A node of two operands, the first of which was read.
static berth_status join(berth_jinja_parser *p, berth_jinja_node_kind kind, berth_jinja_node *first,
                         berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, kind, out));
    (*out)->first = first;
    return BERTH_OK;
}

// ---- the tightest: names, literals, brackets ----

static void note_name(berth_jinja_parser *p, berth_str name) {
    p->mentions |= berth_str_equal_cstr(name, "caller")    ? BERTH_JINJA_TAKES_CALLER
                   : berth_str_equal_cstr(name, "varargs") ? BERTH_JINJA_TAKES_REST
                   : berth_str_equal_cstr(name, "kwargs")  ? BERTH_JINJA_TAKES_NAMED
                                                           : 0;
}

static berth_status parse_word(berth_jinja_parser *p, berth_jinja_node **out) {
    const berth_str name = berth_jinja_peek(p)->text;
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_CONSTANT, out));
    ++p->at;
    if (berth_str_equal_cstr(name, "true") || berth_str_equal_cstr(name, "True")) {
        (*out)->constant = berth_jinja_bool(true);
    } else if (berth_str_equal_cstr(name, "false") || berth_str_equal_cstr(name, "False")) {
        (*out)->constant = berth_jinja_bool(false);
    } else if (berth_str_equal_cstr(name, "none") || berth_str_equal_cstr(name, "None")) {
        (*out)->constant = berth_jinja_none();
    } else {
        (*out)->kind = BERTH_JINJA_NODE_NAME;
        (*out)->name = name;
        note_name(p, name);
    }
    return BERTH_OK;
}

// Several strings in a row are one.
static berth_status parse_strings(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_CONSTANT, out));
    (*out)->constant = berth_jinja_str(p->tokens[p->at++].text);
    if (berth_jinja_peek(p)->kind != BERTH_JINJA_TOKEN_STRING) {
        return BERTH_OK;
    }
    berth_text text;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_text_add(&text, (*out)->constant.as.string);
    while (berth_jinja_peek(p)->kind == BERTH_JINJA_TOKEN_STRING) {
        berth_text_add(&text, p->tokens[p->at++].text);
    }
    const berth_status status = berth_jinja_take(p->j, &text, &(*out)->constant);
    berth_text_deinit(&text);
    return status;
}

static berth_status parse_number(berth_jinja_parser *p, berth_jinja_node **out) {
    const berth_jinja_token *token = berth_jinja_peek(p);
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_CONSTANT, out));
    (*out)->constant = token->kind == BERTH_JINJA_TOKEN_REAL ? berth_jinja_real(token->real)
                                                             : berth_jinja_integer(token->integer);
    ++p->at;
    return BERTH_OK;
}

static berth_status parse_list(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_LIST, out));
    ++p->at;
    for (berth_jinja_node **last = &(*out)->items; !berth_jinja_at_op(p, "]");
         last = &(*last)->next) {
        if ((*out)->items) {
            BERTH_TRY(berth_jinja_expect(p, ","));
            if (berth_jinja_at_op(p, "]")) {
                break;
            }
        }
        BERTH_TRY(berth_jinja_expression(p, last));
        assert(*last);
    }
    return berth_jinja_expect(p, "]");
}

static berth_status parse_dict(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_DICT, out));
    ++p->at;
    for (berth_jinja_node **last = &(*out)->items; !berth_jinja_at_op(p, "}");
         last = &(*last)->next) {
        if ((*out)->items) {
            BERTH_TRY(berth_jinja_expect(p, ","));
            if (berth_jinja_at_op(p, "}")) {
                break;
            }
        }
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_PART, last));
        assert(*last);
        BERTH_TRY(berth_jinja_expression(p, &(*last)->first));
        BERTH_TRY(berth_jinja_expect(p, ":"));
        BERTH_TRY(berth_jinja_expression(p, &(*last)->second));
    }
    return berth_jinja_expect(p, "}");
}

static berth_status parse_brackets(berth_jinja_parser *p, berth_jinja_node **out) {
    if (berth_jinja_at_op(p, "[")) {
        return parse_list(p, out);
    }
    if (berth_jinja_at_op(p, "{")) {
        return parse_dict(p, out);
    }
    if (!berth_jinja_skip_op(p, "(")) {
        return berth_jinja_unexpected(p, "a value");
    }
    if (berth_jinja_skip_op(p, ")")) {
        return berth_jinja_node_new(p, BERTH_JINJA_NODE_TUPLE, out);
    }
    BERTH_TRY(berth_jinja_tuple_of(p, BERTH_JINJA_TUPLE_FULL, out));
    return berth_jinja_expect(p, ")");
}

static berth_status parse_primary(berth_jinja_parser *p, berth_jinja_node **out) {
    switch (berth_jinja_peek(p)->kind) {
    case BERTH_JINJA_TOKEN_NAME:
        return parse_word(p, out);
    case BERTH_JINJA_TOKEN_STRING:
        return parse_strings(p, out);
    case BERTH_JINJA_TOKEN_INTEGER:
    case BERTH_JINJA_TOKEN_REAL:
        return parse_number(p, out);
    default:
        return parse_brackets(p, out);
    }
}

// ---- what follows a value: attributes, indices, calls, filters, tests ----

static berth_status parse_argument(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_ARGUMENT, out));
    (*out)->op = berth_jinja_skip_op(p, "**") ? 2 : berth_jinja_skip_op(p, "*") ? 1 : 0;
    const berth_jinja_token *next = berth_jinja_peek(p);
    if (next->kind == BERTH_JINJA_TOKEN_NAME && next[1].kind == BERTH_JINJA_TOKEN_OPERATOR &&
        berth_str_equal_cstr(next[1].text, "=") && (*out)->op == 0) {
        (*out)->name = next->text;
        p->at += 2;
    }
    return berth_jinja_expression(p, &(*out)->first);
}

berth_status berth_jinja_arguments(berth_jinja_parser *p, berth_jinja_node **out) {
    berth_jinja_node *first = NULL;
    BERTH_TRY(berth_jinja_expect(p, "("));
    for (berth_jinja_node **last = &first; !berth_jinja_at_op(p, ")"); last = &(*last)->next) {
        if (first) {
            BERTH_TRY(berth_jinja_expect(p, ","));
            if (berth_jinja_at_op(p, ")")) {
                break;
            }
        }
        BERTH_TRY(parse_argument(p, last));
        assert(*last);
    }
    *out = first;
    return berth_jinja_expect(p, ")");
}

static bool ends_slice(const berth_jinja_parser *p) {
    return berth_jinja_at_op(p, ":") || berth_jinja_at_op(p, "]") || berth_jinja_at_op(p, ",");
}

// "2", "1:", ":n:2": an index or a slice.
static berth_status parse_index(berth_jinja_parser *p, berth_jinja_node **out) {
    berth_jinja_node *first = NULL;
    if (!berth_jinja_at_op(p, ":")) {
        BERTH_TRY(berth_jinja_expression(p, &first));
    }
    if (!berth_jinja_skip_op(p, ":")) {
        *out = first;
        return BERTH_OK;
    }
    BERTH_TRY(join(p, BERTH_JINJA_NODE_SLICE, first, out));
    if (!ends_slice(p)) {
        BERTH_TRY(berth_jinja_expression(p, &(*out)->second));
    }
    if (berth_jinja_skip_op(p, ":") && !ends_slice(p)) {
        BERTH_TRY(berth_jinja_expression(p, &(*out)->third));
    }
    return BERTH_OK;
}

static berth_status parse_item(berth_jinja_parser *p, berth_jinja_node *of,
                               berth_jinja_node **out) {
    BERTH_TRY(join(p, BERTH_JINJA_NODE_ITEM, of, out));
    ++p->at;
    BERTH_TRY(parse_index(p, &(*out)->second));
    if (berth_jinja_at_op(p, ",")) {
        return BERTH_JINJA_FAIL(p->j, UNSUPPORTED,
                                "several indices in one pair of brackets are "
                                "not supported");
    }
    return berth_jinja_expect(p, "]");
}

// ".name", or ".0", which is an index.
static berth_status parse_dot(berth_jinja_parser *p, berth_jinja_node *of, berth_jinja_node **out) {
    ++p->at;
    if (berth_jinja_peek(p)->kind == BERTH_JINJA_TOKEN_INTEGER) {
        BERTH_TRY(join(p, BERTH_JINJA_NODE_ITEM, of, out));
        return parse_number(p, &(*out)->second);
    }
    BERTH_TRY(join(p, BERTH_JINJA_NODE_ATTRIBUTE, of, out));
    return berth_jinja_parse_name(p, &(*out)->name);
}

static berth_status parse_call(berth_jinja_parser *p, berth_jinja_node *of,
                               berth_jinja_node **out) {
    BERTH_TRY(join(p, BERTH_JINJA_NODE_CALL, of, out));
    return berth_jinja_arguments(p, &(*out)->items);
}

static berth_status parse_postfix(berth_jinja_parser *p, berth_jinja_node **node) {
    for (;;) {
        if (berth_jinja_at_op(p, ".")) {
            BERTH_TRY(parse_dot(p, *node, node));
        } else if (berth_jinja_at_op(p, "[")) {
            BERTH_TRY(parse_item(p, *node, node));
        } else if (berth_jinja_at_op(p, "(")) {
            BERTH_TRY(parse_call(p, *node, node));
        } else {
            return BERTH_OK;
        }
    }
}

// "name" or "name.of.several.words", which no builtin has.
static berth_status parse_dotted(berth_jinja_parser *p, berth_str *out) {
    BERTH_TRY(berth_jinja_parse_name(p, out));
    while (berth_jinja_skip_op(p, ".")) {
        berth_str part = {0};
        BERTH_TRY(berth_jinja_parse_name(p, &part));
        out->size = (size_t)(part.data + part.size - out->data);
    }
    return BERTH_OK;
}

berth_status berth_jinja_filters(berth_jinja_parser *p, berth_jinja_node *first, bool is_started,
                                 berth_jinja_node **out) {
    *out = first;
    while (is_started || berth_jinja_skip_op(p, "|")) {
        is_started = false;
        BERTH_TRY(join(p, BERTH_JINJA_NODE_FILTER, *out, out));
        BERTH_TRY(parse_dotted(p, &(*out)->name));
        (*out)->builtin = berth_jinja_filter((*out)->name);
        if (berth_jinja_at_op(p, "(")) {
            BERTH_TRY(berth_jinja_arguments(p, &(*out)->items));
        }
    }
    return BERTH_OK;
}

// A test's one argument may stand without brackets, unless a word comes that goes on otherwise.
static bool has_plain_argument(const berth_jinja_parser *p) {
    switch (berth_jinja_peek(p)->kind) {
    case BERTH_JINJA_TOKEN_STRING:
    case BERTH_JINJA_TOKEN_INTEGER:
    case BERTH_JINJA_TOKEN_REAL:
        return true;
    case BERTH_JINJA_TOKEN_OPERATOR:
        return berth_jinja_at_op(p, "[") || berth_jinja_at_op(p, "{");
    case BERTH_JINJA_TOKEN_NAME:
        return !berth_jinja_at_name(p, "else") && !berth_jinja_at_name(p, "or") &&
               !berth_jinja_at_name(p, "and");
    default:
        return false;
    }
}

static berth_status parse_plain_argument(berth_jinja_parser *p, berth_jinja_node **out) {
    if (berth_jinja_at_name(p, "is")) {
        return BERTH_JINJA_FAIL(p->j, CORRUPT, "several tests with `is` in a row");
    }
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_ARGUMENT, out));
    BERTH_TRY(parse_primary(p, &(*out)->first));
    return parse_postfix(p, &(*out)->first);
}

static berth_status parse_test(berth_jinja_parser *p, berth_jinja_node *of,
                               berth_jinja_node **out) {
    berth_jinja_node *test;
    ++p->at;
    const bool is_negated = berth_jinja_skip_name(p, "not");
    BERTH_TRY(join(p, BERTH_JINJA_NODE_TEST, of, &test));
    BERTH_TRY(parse_dotted(p, &test->name));
    test->builtin = berth_jinja_test(test->name);
    if (berth_jinja_at_op(p, "(")) {
        BERTH_TRY(berth_jinja_arguments(p, &test->items));
    } else if (has_plain_argument(p)) {
        BERTH_TRY(parse_plain_argument(p, &test->items));
    }
    *out = test;
    return is_negated ? join(p, BERTH_JINJA_NODE_NOT, test, out) : BERTH_OK;
}

static berth_status parse_filters_and_tests(berth_jinja_parser *p, berth_jinja_node **node) {
    for (;;) {
        if (berth_jinja_at_op(p, "|")) {
            BERTH_TRY(berth_jinja_filters(p, *node, false, node));
        } else if (berth_jinja_at_name(p, "is")) {
            BERTH_TRY(parse_test(p, *node, node));
        } else if (berth_jinja_at_op(p, "(")) {
            BERTH_TRY(parse_call(p, *node, node));
        } else {
            return BERTH_OK;
        }
    }
}

// ---- operators ----

// Why the operand of a sign takes no filter: "-1|abs" is (-1)|abs.
static berth_status parse_signed(berth_jinja_parser *p, bool takes_filters,
                                 berth_jinja_node **out) {
    const bool is_negative = berth_jinja_at_op(p, "-");
    if (is_negative || berth_jinja_at_op(p, "+")) {
        berth_jinja_node *operand = NULL;
        BERTH_TRY(berth_jinja_enter(p->j));
        ++p->at;
        BERTH_TRY(parse_signed(p, false, &operand));
        berth_jinja_leave(p->j);
        BERTH_TRY(join(p, is_negative ? BERTH_JINJA_NODE_NEGATIVE : BERTH_JINJA_NODE_POSITIVE,
                       operand, out));
    } else {
        BERTH_TRY(parse_primary(p, out));
    }
    BERTH_TRY(parse_postfix(p, out));
    return takes_filters ? parse_filters_and_tests(p, out) : BERTH_OK;
}

typedef struct operator_row {
    const char *text;
    berth_jinja_op op;
} operator_row;

static berth_jinja_op skip_operator(berth_jinja_parser *p, const operator_row *rows) {
    for (; rows->text; ++rows) {
        if (berth_jinja_skip_op(p, rows->text)) {
            return rows->op;
        }
    }
    return BERTH_JINJA_OP_NONE;
}

static berth_status parse_power(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(parse_signed(p, true, out));
    while (berth_jinja_skip_op(p, "**")) {
        BERTH_TRY(join(p, BERTH_JINJA_NODE_BINARY, *out, out));
        (*out)->op = BERTH_JINJA_OP_POWER;
        BERTH_TRY(parse_signed(p, true, &(*out)->second));
    }
    return BERTH_OK;
}

static berth_status parse_product(berth_jinja_parser *p, berth_jinja_node **out) {
    static const operator_row rows[] = {
        {.text = "*",                 .op = BERTH_JINJA_OP_MULTIPLY},
        {.text = "//",                           .op = BERTH_JINJA_OP_FLOOR},
        {.text = "/",.op = BERTH_JINJA_OP_DIVIDE},
        {.text = "%",                 .op = BERTH_JINJA_OP_MODULO},
        {.text = NULL                          },
    };
    BERTH_TRY(parse_power(p, out));
    for (berth_jinja_op op; (op = skip_operator(p, rows)) != BERTH_JINJA_OP_NONE;) {
        BERTH_TRY(join(p, BERTH_JINJA_NODE_BINARY, *out, out));
        (*out)->op = op;
        BERTH_TRY(parse_power(p, &(*out)->second));
    }
    return BERTH_OK;
}

static berth_status parse_concat(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(parse_product(p, out));
    if (!berth_jinja_at_op(p, "~")) {
        return BERTH_OK;
    }
    berth_jinja_node *first = *out;
    berth_jinja_node **last = &first->next;
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_CONCAT, out));
    (*out)->items = first;
    while (berth_jinja_skip_op(p, "~")) {
        BERTH_TRY(parse_product(p, last));
        assert(*last);
        last = &(*last)->next;
    }
    return BERTH_OK;
}

static berth_status parse_sum(berth_jinja_parser *p, berth_jinja_node **out) {
    static const operator_row rows[] = {
        {.text = "+",                    .op = BERTH_JINJA_OP_ADD},
        {.text = "-",                              .op = BERTH_JINJA_OP_SUBTRACT},
        {.text = NULL},
    };
    BERTH_TRY(parse_concat(p, out));
    for (berth_jinja_op op; (op = skip_operator(p, rows)) != BERTH_JINJA_OP_NONE;) {
        BERTH_TRY(join(p, BERTH_JINJA_NODE_BINARY, *out, out));
        (*out)->op = op;
        BERTH_TRY(parse_concat(p, &(*out)->second));
    }
    return BERTH_OK;
}

static berth_jinja_op skip_comparison(berth_jinja_parser *p) {
    static const operator_row rows[] = {
        {.text = "==",                     .op = BERTH_JINJA_OP_EQUAL},
        {.text = "!=",                                .op = BERTH_JINJA_OP_UNEQUAL},
        {.text = "<",.op = BERTH_JINJA_OP_LESS},
        {.text = "<=",                      .op = BERTH_JINJA_OP_LESS_EQUAL},
        {.text = ">",                                .op = BERTH_JINJA_OP_GREATER},
        {.text = ">=",.op = BERTH_JINJA_OP_GREATER_EQUAL},
        {.text = NULL                     },
    };
    const berth_jinja_op op = skip_operator(p, rows);
    if (op != BERTH_JINJA_OP_NONE) {
        return op;
    }
    if (berth_jinja_skip_name(p, "in")) {
        return BERTH_JINJA_OP_IN;
    }
    const berth_jinja_token *next = berth_jinja_peek(p);
    if (berth_jinja_at_name(p, "not") && next[1].kind == BERTH_JINJA_TOKEN_NAME &&
        berth_str_equal_cstr(next[1].text, "in")) {
        p->at += 2;
        return BERTH_JINJA_OP_NOT_IN;
    }
    return BERTH_JINJA_OP_NONE;
}

static berth_status parse_comparison(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(parse_sum(p, out));
    berth_jinja_op op = skip_comparison(p);
    if (op == BERTH_JINJA_OP_NONE) {
        return BERTH_OK;
    }
    BERTH_TRY(join(p, BERTH_JINJA_NODE_COMPARE, *out, out));
    berth_jinja_node **last = &(*out)->items;
    for (; op != BERTH_JINJA_OP_NONE; op = skip_comparison(p)) {
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_PART, last));
        (*last)->op = op;
        BERTH_TRY(parse_sum(p, &(*last)->first));
        last = &(*last)->next;
    }
    return BERTH_OK;
}

static berth_status parse_not(berth_jinja_parser *p, berth_jinja_node **out) {
    bool is_negated = false;
    bool has_not = false;
    while (berth_jinja_skip_name(p, "not")) {
        is_negated = !is_negated;
        has_not = true;
    }
    BERTH_TRY(parse_comparison(p, out));
    if (!has_not) {
        return BERTH_OK;
    }
    BERTH_TRY(join(p, BERTH_JINJA_NODE_NOT, *out, out));
    return is_negated ? BERTH_OK : join(p, BERTH_JINJA_NODE_NOT, *out, out);
}

static berth_status parse_and(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(parse_not(p, out));
    while (berth_jinja_skip_name(p, "and")) {
        BERTH_TRY(join(p, BERTH_JINJA_NODE_AND, *out, out));
        BERTH_TRY(parse_not(p, &(*out)->second));
    }
    return BERTH_OK;
}

static berth_status parse_or(berth_jinja_parser *p, berth_jinja_node **out) {
    BERTH_TRY(berth_jinja_enter(p->j));
    BERTH_TRY(parse_and(p, out));
    while (berth_jinja_skip_name(p, "or")) {
        BERTH_TRY(join(p, BERTH_JINJA_NODE_OR, *out, out));
        BERTH_TRY(parse_and(p, &(*out)->second));
    }
    berth_jinja_leave(p->j);
    return BERTH_OK;
}

berth_status berth_jinja_expression(berth_jinja_parser *p, berth_jinja_node **out) {
    berth_jinja_node *value = NULL;
    berth_jinja_node *condition;
    BERTH_TRY(parse_or(p, &value));
    while (berth_jinja_skip_name(p, "if")) {
        BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_CONDITION, &condition));
        condition->second = value;
        BERTH_TRY(parse_or(p, &condition->first));
        if (berth_jinja_skip_name(p, "else")) {
            BERTH_TRY(berth_jinja_enter(p->j));
            BERTH_TRY(berth_jinja_expression(p, &condition->third));
            berth_jinja_leave(p->j);
        }
        value = condition;
    }
    *out = value;
    return BERTH_OK;
}

// ---- tuples ----

static bool ends_tuple(const berth_jinja_parser *p, berth_jinja_tuple what) {
    return berth_jinja_peek(p)->kind == BERTH_JINJA_TOKEN_CLOSE || berth_jinja_at_op(p, ")") ||
           (what == BERTH_JINJA_TUPLE_LOOP_TARGETS && berth_jinja_at_name(p, "in")) ||
           (what == BERTH_JINJA_TUPLE_NO_CONDITION && berth_jinja_at_name(p, "recursive"));
}

static berth_status parse_element(berth_jinja_parser *p, berth_jinja_tuple what,
                                  berth_jinja_node **out) {
    switch (what) {
    case BERTH_JINJA_TUPLE_FULL:
        return berth_jinja_expression(p, out);
    case BERTH_JINJA_TUPLE_NO_CONDITION:
        return parse_or(p, out);
    default:
        break;
    }
    BERTH_TRY(parse_primary(p, out));
    return parse_postfix(p, out);
}

berth_status berth_jinja_tuple_of(berth_jinja_parser *p, berth_jinja_tuple what,
                                  berth_jinja_node **out) {
    berth_jinja_node *items = NULL;
    berth_jinja_node **last = &items;
    bool is_tuple = false;
    do {
        BERTH_TRY(parse_element(p, what, last));
        assert(*last);
        last = &(*last)->next;
        const bool has_comma = berth_jinja_skip_op(p, ",");
        is_tuple |= has_comma;
        if (!has_comma) {
            break;
        }
    } while (!ends_tuple(p, what));
    if (!is_tuple) {
        *out = items;
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_node_new(p, BERTH_JINJA_NODE_TUPLE, out));
    (*out)->items = items;
    return BERTH_OK;
}
