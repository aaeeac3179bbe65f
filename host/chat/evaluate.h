// SPDX-License-Identifier: Apache-2.0
// Running a tree: expressions give values, statements print.
#ifndef BERTH_CHAT_EVALUATE_H
#define BERTH_CHAT_EVALUATE_H

#include "chat/builtin.h"
#include "chat/syntax.h"

// A scope: what is not in it is looked for in the one around it.
struct berth_jinja_frame {
    berth_jinja_frame *outer;
    berth_str *names;
    berth_jinja_value *values;
    size_t count, capacity;
};

struct berth_jinja_macro {
    const berth_jinja_node *node;
    berth_jinja_frame *frame; // where it was defined
};

struct berth_jinja_loop {
    const berth_jinja_node *node;
    berth_jinja_frame *frame; // around the loop
    berth_jinja_list *items;
    size_t index;
    size_t depth;           // of recursive loops, from 0
    berth_jinja_value seen; // what `changed` was last asked of; ABSENT: never
};

BERTH_MUST_CHECK berth_status berth_jinja_frame_new(berth_jinja *j, berth_jinja_frame *outer,
                                                    berth_jinja_frame **out);
BERTH_MUST_CHECK berth_status berth_jinja_frame_set(berth_jinja *j, berth_jinja_frame *frame,
                                                    berth_str name, berth_jinja_value value);

BERTH_MUST_CHECK berth_status berth_jinja_evaluate(berth_jinja *j, const berth_jinja_node *node,
                                                   berth_jinja_value *out);
// Fills a call with the values of ARGUMENTs.
BERTH_MUST_CHECK berth_status berth_jinja_call_of(berth_jinja *j, const berth_jinja_node *items,
                                                  berth_jinja_call *out);
// value.name, value[index] and value[a:b:c]: UNDEFINED where there is nothing.
BERTH_MUST_CHECK berth_status berth_jinja_attribute(berth_jinja *j, const berth_jinja_value *value,
                                                    berth_str name, berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_item(berth_jinja *j, const berth_jinja_value *value,
                                               const berth_jinja_value *index,
                                               berth_jinja_value *out);
// The bounds are three values, NONE where nothing stands.
BERTH_MUST_CHECK berth_status berth_jinja_slice(berth_jinja *j, const berth_jinja_value *value,
                                                const berth_jinja_value bounds[3],
                                                berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_binary(berth_jinja *j, berth_jinja_op op,
                                                 const berth_jinja_value operands[2],
                                                 berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_negate(berth_jinja *j, const berth_jinja_value *value,
                                                 berth_jinja_value *out);
// Calls a macro, a function, a method, a loop.
BERTH_MUST_CHECK berth_status berth_jinja_invoke(berth_jinja *j, const berth_jinja_value *callee,
                                                 const berth_jinja_call *call,
                                                 berth_jinja_value *out);

// Runs a list of statements.
BERTH_MUST_CHECK berth_status berth_jinja_execute(berth_jinja *j, const berth_jinja_node *list);
// The same in a scope of its own; what it prints becomes a value.
BERTH_MUST_CHECK berth_status berth_jinja_capture(berth_jinja *j, const berth_jinja_node *list,
                                                  berth_jinja_value *out);
BERTH_MUST_CHECK berth_status berth_jinja_loop_again(berth_jinja *j, const berth_jinja_loop *loop,
                                                     const berth_jinja_value *over,
                                                     berth_jinja_value *out);

#endif
