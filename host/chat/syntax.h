// SPDX-License-Identifier: Apache-2.0
// A template as a tree. One kind of node for all: which members count stands beside each kind.
#ifndef BERTH_CHAT_SYNTAX_H
#define BERTH_CHAT_SYNTAX_H

#include "chat/token.h"
#include "chat/value.h"

typedef enum berth_jinja_node_kind {
    // expressions
    BERTH_JINJA_NODE_CONSTANT,  // constant
    BERTH_JINJA_NODE_NAME,      // name
    BERTH_JINJA_NODE_LIST,      // items
    BERTH_JINJA_NODE_TUPLE,     // items
    BERTH_JINJA_NODE_DICT,      // items: first is the key, second the value
    BERTH_JINJA_NODE_NOT,       // first
    BERTH_JINJA_NODE_NEGATIVE,  // first
    BERTH_JINJA_NODE_POSITIVE,  // first
    BERTH_JINJA_NODE_BINARY,    // first op second
    BERTH_JINJA_NODE_AND,       // first, second
    BERTH_JINJA_NODE_OR,        // first, second
    BERTH_JINJA_NODE_COMPARE,   // first, items: op first
    BERTH_JINJA_NODE_CONDITION, // second if first else third, which may be NULL
    BERTH_JINJA_NODE_CONCAT,    // items
    BERTH_JINJA_NODE_ATTRIBUTE, // first.name
    BERTH_JINJA_NODE_ITEM,      // first[second]
    BERTH_JINJA_NODE_SLICE,     // [first:second:third], each may be NULL
    BERTH_JINJA_NODE_CALL,      // first(items)
    BERTH_JINJA_NODE_FILTER,    // first | name(items); first NULL: of the text of a block
    BERTH_JINJA_NODE_TEST,      // first is name(items)
    // parts of the above
    BERTH_JINJA_NODE_ARGUMENT, // name= or "", first; op: how many stars stand before it
    BERTH_JINJA_NODE_PART,     // of a dict, a comparison; of an if: first is the test, body
    // statements
    BERTH_JINJA_NODE_DATA,       // name: the text
    BERTH_JINJA_NODE_OUTPUT,     // first
    BERTH_JINJA_NODE_IF,         // items: the branches, otherwise
    BERTH_JINJA_NODE_FOR,        // for first in second if third: body, otherwise; op: is recursive
    BERTH_JINJA_NODE_SET,        // first = second
    BERTH_JINJA_NODE_BLOCK_SET,  // first = body through the filter second, which may be NULL
    BERTH_JINJA_NODE_MACRO,      // name(items: name, first is the default or NULL), body; op
    BERTH_JINJA_NODE_CALL_BLOCK, // first: the call; second: the caller, a MACRO
    BERTH_JINJA_NODE_FILTER_BLOCK, // first: the filter, body
    BERTH_JINJA_NODE_WITH,         // items: first = second; body
    BERTH_JINJA_NODE_SCOPE,        // body in a scope of its own, as inside of {% generation %}
    BERTH_JINJA_NODE_BREAK,
    BERTH_JINJA_NODE_CONTINUE,
    BERTH_JINJA_NODE_KINDS,
} berth_jinja_node_kind;

typedef enum berth_jinja_op {
    BERTH_JINJA_OP_NONE,
    BERTH_JINJA_OP_ADD,
    BERTH_JINJA_OP_SUBTRACT,
    BERTH_JINJA_OP_MULTIPLY,
    BERTH_JINJA_OP_DIVIDE,
    BERTH_JINJA_OP_FLOOR,
    BERTH_JINJA_OP_MODULO,
    BERTH_JINJA_OP_POWER,
    BERTH_JINJA_OP_EQUAL,
    BERTH_JINJA_OP_UNEQUAL,
    BERTH_JINJA_OP_LESS,
    BERTH_JINJA_OP_LESS_EQUAL,
    BERTH_JINJA_OP_GREATER,
    BERTH_JINJA_OP_GREATER_EQUAL,
    BERTH_JINJA_OP_IN,
    BERTH_JINJA_OP_NOT_IN,
} berth_jinja_op;

// What a macro's body names, and so takes beyond its parameters: bits of a MACRO's op.
#define BERTH_JINJA_TAKES_CALLER 1
#define BERTH_JINJA_TAKES_REST   2 // varargs
#define BERTH_JINJA_TAKES_NAMED  4 // kwargs

struct berth_jinja_builtin;
typedef struct berth_jinja_node berth_jinja_node;

struct berth_jinja_node {
    berth_jinja_node_kind kind;
    uint32_t line;
    int op;
    berth_str name;
    berth_jinja_value constant;
    const struct berth_jinja_builtin *builtin; // of a FILTER or TEST; NULL: there is none
    berth_jinja_node *first, *second, *third;
    berth_jinja_node *items;            // a list by `next`
    berth_jinja_node *body, *otherwise; // statements, lists by `next`
    berth_jinja_node *next;
};

// The parser of both files: tokens, and where it is.
typedef struct berth_jinja_parser {
    berth_jinja *j; // memory, failures, depth
    const berth_jinja_token *tokens;
    size_t at;
    uint32_t loops;    // open ones, for break and continue
    unsigned mentions; // bits of BERTH_JINJA_TAKES_… that were seen
} berth_jinja_parser;

// The whole template as a list of statements. The tree borrows the source.
BERTH_MUST_CHECK berth_status berth_jinja_parse(berth_jinja *j, berth_str source,
                                                berth_jinja_node **out);

// ---- between the two files of the parser ----

const berth_jinja_token *berth_jinja_peek(const berth_jinja_parser *p);
// Whether the token at hand is this operator or this name; skip goes behind it then.
bool berth_jinja_at_op(const berth_jinja_parser *p, const char *op);
bool berth_jinja_at_name(const berth_jinja_parser *p, const char *name);
bool berth_jinja_skip_op(berth_jinja_parser *p, const char *op);
bool berth_jinja_skip_name(berth_jinja_parser *p, const char *name);
BERTH_MUST_CHECK berth_status berth_jinja_expect(berth_jinja_parser *p, const char *op);
// "expected X, found 'y'", CORRUPT.
BERTH_MUST_CHECK berth_status berth_jinja_unexpected(berth_jinja_parser *p, const char *wanted);
BERTH_MUST_CHECK berth_status berth_jinja_node_new(berth_jinja_parser *p,
                                                   berth_jinja_node_kind kind,
                                                   berth_jinja_node **out);
BERTH_MUST_CHECK berth_status berth_jinja_parse_name(berth_jinja_parser *p, berth_str *out);
BERTH_MUST_CHECK berth_status berth_jinja_expression(berth_jinja_parser *p, berth_jinja_node **out);
// An expression, or several with commas between as a tuple.
typedef enum berth_jinja_tuple {
    BERTH_JINJA_TUPLE_FULL,
    BERTH_JINJA_TUPLE_NO_CONDITION, // an `if` behind it belongs to the loop
    BERTH_JINJA_TUPLE_TARGETS,      // what `set` can assign to
    BERTH_JINJA_TUPLE_LOOP_TARGETS, // the same up to `in`
} berth_jinja_tuple;
BERTH_MUST_CHECK berth_status berth_jinja_tuple_of(berth_jinja_parser *p, berth_jinja_tuple what,
                                                   berth_jinja_node **out);
// "(a, *b, c=d)" of a call, as ARGUMENTs.
BERTH_MUST_CHECK berth_status berth_jinja_arguments(berth_jinja_parser *p, berth_jinja_node **out);
// "upper | trim" of a block: `first` of the innermost is NULL.
BERTH_MUST_CHECK berth_status berth_jinja_filters(berth_jinja_parser *p, berth_jinja_node *first,
                                                  bool is_started, berth_jinja_node **out);

#endif
