// SPDX-License-Identifier: Apache-2.0
// Expressions: a function for each kind of node, and their table.
#include "chat/evaluate.h"

#include <string.h>

// ---- scopes ----

berth_status berth_jinja_frame_new(berth_jinja *j, berth_jinja_frame *outer,
                                   berth_jinja_frame **out) {
    void *memory;
    BERTH_TRY(berth_jinja_alloc(j, 1, sizeof(berth_jinja_frame), &memory));
    *out = memory;
    (*out)->outer = outer;
    return BERTH_OK;
}

static berth_status grow_frame(berth_jinja *j, berth_jinja_frame *frame) {
    const size_t capacity = frame->capacity < 4 ? 8 : 2 * frame->capacity;
    void *names, *values;
    BERTH_TRY(berth_jinja_alloc(j, capacity, sizeof(*frame->names), &names));
    BERTH_TRY(berth_jinja_alloc(j, capacity, sizeof(*frame->values), &values));
    if (frame->count > 0) {
        memcpy(names, frame->names, frame->count * sizeof(*frame->names));
        memcpy(values, frame->values, frame->count * sizeof(*frame->values));
    }
    frame->names = names;
    frame->values = values;
    frame->capacity = capacity;
    return BERTH_OK;
}

static berth_jinja_value *find_in(const berth_jinja_frame *frame, berth_str name) {
    for (size_t i = 0; i < frame->count; ++i) {
        if (berth_str_equal(frame->names[i], name)) {
            return &frame->values[i];
        }
    }
    return NULL;
}

berth_status berth_jinja_frame_set(berth_jinja *j, berth_jinja_frame *frame, berth_str name,
                                   berth_jinja_value value) {
    berth_jinja_value *found = find_in(frame, name);
    BERTH_TRY(berth_jinja_spend(j, 1 + frame->count / 8));
    if (found) {
        *found = value;
        return BERTH_OK;
    }
    if (frame->count == frame->capacity) {
        BERTH_TRY(grow_frame(j, frame));
    }
    frame->names[frame->count] = name;
    frame->values[frame->count++] = value;
    return BERTH_OK;
}

// ---- names and literals ----

static berth_status constant(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    (void)j;
    *out = node->constant;
    return BERTH_OK;
}

static berth_status function_of(berth_jinja *j, const berth_jinja_builtin *function,
                                berth_jinja_value *out) {
    void *memory;
    BERTH_TRY(berth_jinja_alloc(j, 1, sizeof(berth_jinja_bound), &memory));
    *(berth_jinja_bound *)memory = (berth_jinja_bound){.builtin = function};
    *out = (berth_jinja_value){.kind = BERTH_JINJA_BUILTIN, .as.bound = memory};
    return BERTH_OK;
}

static berth_status name(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    for (const berth_jinja_frame *frame = j->frame; frame; frame = frame->outer) {
        const berth_jinja_value *found = find_in(frame, node->name);
        BERTH_TRY(berth_jinja_spend(j, 1 + frame->count / 8));
        if (found) {
            *out = *found;
            return BERTH_OK;
        }
    }
    const berth_jinja_builtin *function = berth_jinja_function(node->name);
    return function ? function_of(j, function, out)
                    : berth_jinja_undefined(j, out, "'" BERTH_STR_FMT "' is undefined",
                                            BERTH_STR_ARG(node->name));
}

static berth_status sequence(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    const bool is_list = node->kind == BERTH_JINJA_NODE_LIST;
    BERTH_TRY(berth_jinja_list_new(j, is_list ? BERTH_JINJA_LIST : BERTH_JINJA_TUPLE, 0, out));
    for (const berth_jinja_node *item = node->items; item; item = item->next) {
        berth_jinja_value value;
        BERTH_TRY(berth_jinja_evaluate(j, item, &value));
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, value));
    }
    return BERTH_OK;
}

static berth_status dict(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    BERTH_TRY(berth_jinja_dict_new(j, BERTH_JINJA_DICT, 0, out));
    for (const berth_jinja_node *item = node->items; item; item = item->next) {
        berth_jinja_value key, value;
        BERTH_TRY(berth_jinja_evaluate(j, item->first, &key));
        BERTH_TRY(berth_jinja_evaluate(j, item->second, &value));
        BERTH_TRY(berth_jinja_dict_set(j, out->as.dict, key, value));
    }
    return BERTH_OK;
}

// ---- logic ----

static berth_status negation(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    berth_jinja_value value;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &value));
    *out = berth_jinja_bool(!berth_jinja_truth(&value));
    return BERTH_OK;
}

// `and` and `or` give the operand that decides.
static berth_status either(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    BERTH_TRY(berth_jinja_evaluate(j, node->first, out));
    const bool is_decided = berth_jinja_truth(out) == (node->kind == BERTH_JINJA_NODE_OR);
    return is_decided ? BERTH_OK : berth_jinja_evaluate(j, node->second, out);
}

static berth_status condition(berth_jinja *j, const berth_jinja_node *node,
                              berth_jinja_value *out) {
    berth_jinja_value test;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &test));
    if (berth_jinja_truth(&test)) {
        return berth_jinja_evaluate(j, node->second, out);
    }
    return node->third ? berth_jinja_evaluate(j, node->third, out)
                       : berth_jinja_undefined(j, out,
                                               "the inline if expression evaluated to false and "
                                               "no else section was defined");
}

static berth_status order(berth_jinja *j, int op, const berth_jinja_value operands[2], bool *out) {
    int sign;
    BERTH_TRY(berth_jinja_compare(j, &operands[0], &operands[1], &sign));
    const bool is_ordered = sign != 2;
    switch (op) {
    case BERTH_JINJA_OP_LESS:
        *out = sign < 0;
        return BERTH_OK;
    case BERTH_JINJA_OP_LESS_EQUAL:
        *out = sign <= 0;
        return BERTH_OK;
    case BERTH_JINJA_OP_GREATER:
        *out = is_ordered && sign > 0;
        return BERTH_OK;
    default:
        *out = is_ordered && sign >= 0;
        return BERTH_OK;
    }
}

static berth_status compare(berth_jinja *j, int op, const berth_jinja_value operands[2],
                            bool *out) {
    const bool is_negated = op == BERTH_JINJA_OP_UNEQUAL || op == BERTH_JINJA_OP_NOT_IN;
    switch (op) {
    case BERTH_JINJA_OP_EQUAL:
    case BERTH_JINJA_OP_UNEQUAL:
        BERTH_TRY(berth_jinja_equal(j, &operands[0], &operands[1], out));
        break;
    case BERTH_JINJA_OP_IN:
    case BERTH_JINJA_OP_NOT_IN:
        BERTH_TRY(berth_jinja_contains(j, &operands[1], &operands[0], out));
        break;
    default:
        return order(j, op, operands, out);
    }
    *out ^= is_negated;
    return BERTH_OK;
}

// "a < b < c" is a < b and b < c.
static berth_status comparison(berth_jinja *j, const berth_jinja_node *node,
                               berth_jinja_value *out) {
    berth_jinja_value operands[2];
    bool holds = true;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &operands[0]));
    for (const berth_jinja_node *part = node->items; part && holds; part = part->next) {
        BERTH_TRY(berth_jinja_evaluate(j, part->first, &operands[1]));
        BERTH_TRY(compare(j, part->op, operands, &holds));
        operands[0] = operands[1];
    }
    *out = berth_jinja_bool(holds);
    return BERTH_OK;
}

// ---- operators ----

static berth_status sign(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    berth_jinja_value value;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &value));
    BERTH_TRY(berth_jinja_negate(j, &value, out));
    return node->kind == BERTH_JINJA_NODE_NEGATIVE ? BERTH_OK : berth_jinja_negate(j, out, out);
}

static berth_status binary(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    berth_jinja_value operands[2];
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &operands[0]));
    BERTH_TRY(berth_jinja_evaluate(j, node->second, &operands[1]));
    j->line = node->line;
    return berth_jinja_binary(j, (berth_jinja_op)node->op, operands, out);
}

static berth_status print_all(berth_jinja *j, const berth_jinja_node *node, berth_text *text) {
    for (; node; node = node->next) {
        berth_jinja_value value;
        BERTH_TRY(berth_jinja_evaluate(j, node, &value));
        BERTH_TRY(berth_jinja_print(j, &value, text));
    }
    return BERTH_OK;
}

static berth_status concat(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    berth_text text;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = print_all(j, node->items, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

// ---- reaching into values ----

static berth_status attribute(berth_jinja *j, const berth_jinja_node *node,
                              berth_jinja_value *out) {
    berth_jinja_value value;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &value));
    j->line = node->line;
    return berth_jinja_attribute(j, &value, node->name, out);
}

static berth_status sliced(berth_jinja *j, const berth_jinja_value *value,
                           const berth_jinja_node *node, berth_jinja_value *out) {
    const berth_jinja_node *const parts[3] = {node->first, node->second, node->third};
    berth_jinja_value bounds[3];
    for (size_t i = 0; i < 3; ++i) {
        bounds[i] = berth_jinja_none();
        if (parts[i]) {
            BERTH_TRY(berth_jinja_evaluate(j, parts[i], &bounds[i]));
        }
    }
    return berth_jinja_slice(j, value, bounds, out);
}

static berth_status item(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    berth_jinja_value value, index;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &value));
    if (node->second->kind == BERTH_JINJA_NODE_SLICE) {
        return sliced(j, &value, node->second, out);
    }
    BERTH_TRY(berth_jinja_evaluate(j, node->second, &index));
    j->line = node->line;
    return berth_jinja_item(j, &value, &index, out);
}

// ---- calls ----

static berth_status call(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    berth_jinja_value callee;
    berth_jinja_call arguments;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &callee));
    BERTH_TRY(berth_jinja_call_of(j, node->items, &arguments));
    j->line = node->line;
    return berth_jinja_invoke(j, &callee, &arguments, out);
}

static berth_status filter_or_test(berth_jinja *j, const berth_jinja_node *node,
                                   berth_jinja_value *out) {
    berth_jinja_call arguments;
    berth_jinja_args args = {.call = &arguments};
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &args.self));
    BERTH_TRY(berth_jinja_call_of(j, node->items, &arguments));
    j->line = node->line;
    return berth_jinja_run_named(j, node->builtin, node->name, &args, out);
}

static berth_status (*const evaluators[BERTH_JINJA_NODE_KINDS])(berth_jinja *j,
                                                                const berth_jinja_node *node,
                                                                berth_jinja_value *out) = {
    [BERTH_JINJA_NODE_CONSTANT] = constant,   [BERTH_JINJA_NODE_NAME] = name,
    [BERTH_JINJA_NODE_LIST] = sequence,       [BERTH_JINJA_NODE_TUPLE] = sequence,
    [BERTH_JINJA_NODE_DICT] = dict,           [BERTH_JINJA_NODE_NOT] = negation,
    [BERTH_JINJA_NODE_NEGATIVE] = sign,       [BERTH_JINJA_NODE_POSITIVE] = sign,
    [BERTH_JINJA_NODE_BINARY] = binary,       [BERTH_JINJA_NODE_AND] = either,
    [BERTH_JINJA_NODE_OR] = either,           [BERTH_JINJA_NODE_COMPARE] = comparison,
    [BERTH_JINJA_NODE_CONDITION] = condition, [BERTH_JINJA_NODE_CONCAT] = concat,
    [BERTH_JINJA_NODE_ATTRIBUTE] = attribute, [BERTH_JINJA_NODE_ITEM] = item,
    [BERTH_JINJA_NODE_CALL] = call,           [BERTH_JINJA_NODE_FILTER] = filter_or_test,
    [BERTH_JINJA_NODE_TEST] = filter_or_test,
};

berth_status berth_jinja_evaluate(berth_jinja *j, const berth_jinja_node *node,
                                  berth_jinja_value *out) {
    j->line = node->line;
    BERTH_TRY(berth_jinja_spend(j, 1));
    BERTH_TRY(berth_jinja_enter(j));
    const berth_status status = evaluators[node->kind](j, node, out);
    berth_jinja_leave(j);
    return status;
}
