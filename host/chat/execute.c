// SPDX-License-Identifier: Apache-2.0
// Statements. A loop's every turn and the text of a block have scopes of their own, the branches of
// an if have not.
#include "chat/evaluate.h"

static berth_status execute_one(berth_jinja *j, const berth_jinja_node *node);

// ---- assigning ----

static berth_status assign(berth_jinja *j, const berth_jinja_node *target, berth_jinja_value value);

static berth_status unpack(berth_jinja *j, const berth_jinja_node *target,
                           const berth_jinja_value *value) {
    berth_jinja_list *items;
    size_t wanted = 0;
    BERTH_TRY(berth_jinja_items(j, value, &items));
    for (const berth_jinja_node *part = target->items; part; part = part->next) {
        ++wanted;
    }
    if (items->count != wanted) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "%zu values cannot be given to %zu names",
                                items->count, wanted);
    }
    size_t at = 0;
    for (const berth_jinja_node *part = target->items; part; part = part->next) {
        BERTH_TRY(assign(j, part, items->items[at++]));
    }
    return BERTH_OK;
}

static berth_status assign_member(berth_jinja *j, const berth_jinja_node *target,
                                  berth_jinja_value value) {
    berth_jinja_value object;
    BERTH_TRY(berth_jinja_evaluate(j, target->first, &object));
    if (object.kind != BERTH_JINJA_NAMESPACE) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                "cannot assign attribute '" BERTH_STR_FMT
                                "' of a '%s', which is no namespace",
                                BERTH_STR_ARG(target->name), berth_jinja_type(&object));
    }
    return berth_jinja_dict_set(j, object.as.dict, berth_jinja_str(target->name), value);
}

static berth_status assign(berth_jinja *j, const berth_jinja_node *target,
                           berth_jinja_value value) {
    j->line = target->line;
    switch (target->kind) {
    case BERTH_JINJA_NODE_NAME:
        return berth_jinja_frame_set(j, j->frame, target->name, value);
    case BERTH_JINJA_NODE_TUPLE:
    case BERTH_JINJA_NODE_LIST:
        return unpack(j, target, &value);
    case BERTH_JINJA_NODE_ATTRIBUTE:
        return assign_member(j, target, value);
    default:
        return BERTH_JINJA_FAIL(j, CORRUPT,
                                "cannot assign to this: a name, several names or a "
                                "member of a namespace can be set");
    }
}

// ---- capturing ----

static berth_status capture_into(berth_jinja *j, const berth_jinja_node *list, berth_text *text,
                                 berth_jinja_value *out) {
    berth_text *const around = j->out;
    j->out = text;
    const berth_status status = berth_jinja_execute(j, list);
    j->out = around;
    BERTH_TRY(status);
    return berth_jinja_take(j, text, out);
}

berth_status berth_jinja_capture(berth_jinja *j, const berth_jinja_node *list,
                                 berth_jinja_value *out) {
    berth_jinja_frame *const around = j->frame;
    berth_text text;
    BERTH_TRY(berth_jinja_frame_new(j, around, &j->frame));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    const berth_status status = capture_into(j, list, &text, out);
    berth_text_deinit(&text);
    j->frame = around;
    return status;
}

// Runs the chain of filters on a text, the innermost having nothing inside.
static berth_status filter_text(berth_jinja *j, const berth_jinja_node *filter,
                                berth_jinja_value *text) {
    if (!filter) {
        return BERTH_OK;
    }
    BERTH_TRY(filter_text(j, filter->first, text));
    berth_jinja_call call;
    berth_jinja_args args = {.self = *text, .call = &call};
    BERTH_TRY(berth_jinja_call_of(j, filter->items, &call));
    return berth_jinja_run_named(j, filter->builtin, filter->name, &args, text);
}

static berth_status block_set(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_value text;
    BERTH_TRY(berth_jinja_capture(j, node->body, &text));
    BERTH_TRY(filter_text(j, node->second, &text));
    return assign(j, node->first, text);
}

static berth_status filter_block(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_value text;
    BERTH_TRY(berth_jinja_capture(j, node->body, &text));
    BERTH_TRY(filter_text(j, node->first, &text));
    return berth_jinja_print(j, &text, j->out);
}

// ---- loops ----

static berth_status keep_if(berth_jinja *j, const berth_jinja_node *node,
                            const berth_jinja_list *items, berth_jinja_list *kept) {
    for (size_t i = 0; i < items->count; ++i) {
        berth_jinja_value holds;
        j->frame->count = 0;
        BERTH_TRY(assign(j, node->first, items->items[i]));
        BERTH_TRY(berth_jinja_evaluate(j, node->third, &holds));
        if (berth_jinja_truth(&holds)) {
            BERTH_TRY(berth_jinja_list_add(j, kept, items->items[i]));
        }
    }
    return BERTH_OK;
}

// What the loop walks: those items for which the condition behind `if` holds.
static berth_status choose(berth_jinja *j, const berth_jinja_node *node, berth_jinja_list **items) {
    berth_jinja_value kept;
    berth_jinja_frame *const around = j->frame;
    if (!node->third) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, &kept));
    BERTH_TRY(berth_jinja_frame_new(j, around, &j->frame));
    const berth_status status = keep_if(j, node, *items, kept.as.list);
    j->frame = around;
    *items = kept.as.list;
    return status;
}

static berth_status take_turns(berth_jinja *j, berth_jinja_loop *loop) {
    const berth_jinja_value self = {.kind = BERTH_JINJA_LOOP, .as.loop = loop};
    for (loop->index = 0; loop->index < loop->items->count; ++loop->index) {
        j->frame->count = 0; // Every turn begins without the names of the one before.
        BERTH_TRY(berth_jinja_frame_set(j, j->frame, BERTH_STR("loop"), self));
        BERTH_TRY(assign(j, loop->node->first, loop->items->items[loop->index]));
        BERTH_TRY(berth_jinja_execute(j, loop->node->body));
        const bool is_over = j->flow == BERTH_JINJA_BREAK;
        j->flow = BERTH_JINJA_GO_ON;
        if (is_over) {
            return BERTH_OK;
        }
    }
    return BERTH_OK;
}

// `made` has its node, the scope around it and its depth.
static berth_status run_loop(berth_jinja *j, berth_jinja_loop made, const berth_jinja_value *over) {
    void *memory;
    BERTH_TRY(berth_jinja_items(j, over, &made.items));
    BERTH_TRY(choose(j, made.node, &made.items));
    BERTH_TRY(berth_jinja_alloc(j, 1, sizeof(berth_jinja_loop), &memory));
    *(berth_jinja_loop *)memory = made;
    BERTH_TRY(berth_jinja_frame_new(j, made.frame, &j->frame));
    return made.items->count > 0 ? take_turns(j, memory)
                                 : berth_jinja_execute(j, made.node->otherwise);
}

static berth_status enter_loop(berth_jinja *j, berth_jinja_loop made,
                               const berth_jinja_value *over) {
    berth_jinja_frame *const around = j->frame;
    j->frame = made.frame;
    const berth_status status = run_loop(j, made, over);
    j->frame = around;
    return status;
}

static berth_status for_each(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_value over;
    BERTH_TRY(berth_jinja_evaluate(j, node->second, &over));
    return enter_loop(j, (berth_jinja_loop){.node = node, .frame = j->frame}, &over);
}

berth_status berth_jinja_loop_again(berth_jinja *j, const berth_jinja_loop *loop,
                                    const berth_jinja_value *over, berth_jinja_value *out) {
    berth_text text;
    berth_text *const around = j->out;
    if (!loop->node->op) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                "a loop is called that has no `recursive` behind it");
    }
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    j->out = &text;
    const berth_jinja_loop made = {
        .node = loop->node,
        .frame = loop->frame,
        .depth = loop->depth + 1,
    };
    berth_status status = enter_loop(j, made, over);
    j->out = around;
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

// ---- the others ----

static berth_status output(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_value value;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &value));
    return berth_jinja_print(j, &value, j->out);
}

static berth_status choose_branch(berth_jinja *j, const berth_jinja_node *node) {
    for (const berth_jinja_node *branch = node->items; branch; branch = branch->next) {
        berth_jinja_value holds;
        BERTH_TRY(berth_jinja_evaluate(j, branch->first, &holds));
        if (berth_jinja_truth(&holds)) {
            return berth_jinja_execute(j, branch->body);
        }
    }
    return berth_jinja_execute(j, node->otherwise);
}

static berth_status set(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_value value;
    BERTH_TRY(berth_jinja_evaluate(j, node->second, &value));
    return assign(j, node->first, value);
}

static berth_status macro_of(berth_jinja *j, const berth_jinja_node *node, berth_jinja_value *out) {
    void *memory;
    BERTH_TRY(berth_jinja_alloc(j, 1, sizeof(berth_jinja_macro), &memory));
    *(berth_jinja_macro *)memory = (berth_jinja_macro){.node = node, .frame = j->frame};
    *out = (berth_jinja_value){.kind = BERTH_JINJA_MACRO, .as.macro = memory};
    return BERTH_OK;
}

static berth_status define(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_value macro;
    BERTH_TRY(macro_of(j, node, &macro));
    return berth_jinja_frame_set(j, j->frame, node->name, macro);
}

// The call with the block as one more argument, `caller`.
static berth_status call_block(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_value callee, result;
    berth_jinja_call call;
    void *names, *named;
    BERTH_TRY(berth_jinja_evaluate(j, node->first->first, &callee));
    BERTH_TRY(berth_jinja_call_of(j, node->first->items, &call));
    BERTH_TRY(berth_jinja_alloc(j, call.named_count + 1, sizeof(berth_str), &names));
    BERTH_TRY(berth_jinja_alloc(j, call.named_count + 1, sizeof(berth_jinja_value), &named));
    for (size_t i = 0; i < call.named_count; ++i) {
        ((berth_str *)names)[i] = call.names[i];
        ((berth_jinja_value *)named)[i] = call.named[i];
    }
    call.names = names;
    call.named = named;
    call.names[call.named_count] = BERTH_STR("caller");
    BERTH_TRY(macro_of(j, node->second, &call.named[call.named_count++]));
    BERTH_TRY(berth_jinja_invoke(j, &callee, &call, &result));
    return berth_jinja_print(j, &result, j->out);
}

static berth_status with(berth_jinja *j, const berth_jinja_node *node) {
    berth_jinja_frame *const around = j->frame;
    berth_jinja_frame *inner;
    BERTH_TRY(berth_jinja_frame_new(j, around, &inner));
    for (const berth_jinja_node *part = node->items; part; part = part->next) {
        berth_jinja_value value;
        BERTH_TRY(berth_jinja_evaluate(j, part->second, &value)); // in the scope around
        BERTH_TRY(berth_jinja_frame_set(j, inner, part->first->name, value));
    }
    j->frame = inner;
    const berth_status status = berth_jinja_execute(j, node->body);
    j->frame = around;
    return status;
}

static berth_status execute_any(berth_jinja *j, const berth_jinja_node *node) {
    switch (node->kind) {
    case BERTH_JINJA_NODE_DATA:
        berth_text_add(j->out, node->name);
        return BERTH_OK;
    case BERTH_JINJA_NODE_OUTPUT:
        return output(j, node);
    case BERTH_JINJA_NODE_IF:
        return choose_branch(j, node);
    case BERTH_JINJA_NODE_FOR:
        return for_each(j, node);
    case BERTH_JINJA_NODE_SET:
        return set(j, node);
    case BERTH_JINJA_NODE_BLOCK_SET:
        return block_set(j, node);
    case BERTH_JINJA_NODE_MACRO:
        return define(j, node);
    case BERTH_JINJA_NODE_CALL_BLOCK:
        return call_block(j, node);
    case BERTH_JINJA_NODE_FILTER_BLOCK:
        return filter_block(j, node);
    case BERTH_JINJA_NODE_WITH:
    case BERTH_JINJA_NODE_SCOPE:
        return with(j, node);
    case BERTH_JINJA_NODE_BREAK:
        j->flow = BERTH_JINJA_BREAK;
        return BERTH_OK;
    case BERTH_JINJA_NODE_CONTINUE:
        j->flow = BERTH_JINJA_CONTINUE;
        return BERTH_OK;
    default:
        return BERTH_JINJA_FAIL(j, INTERNAL, "a statement of kind %d", (int)node->kind);
    }
}

static berth_status execute_one(berth_jinja *j, const berth_jinja_node *node) {
    j->line = node->line;
    BERTH_TRY(berth_jinja_spend(j, 1));
    BERTH_TRY(berth_jinja_enter(j));
    const berth_status status = execute_any(j, node);
    berth_jinja_leave(j);
    return status;
}

berth_status berth_jinja_execute(berth_jinja *j, const berth_jinja_node *list) {
    for (const berth_jinja_node *node = list; node && j->flow == BERTH_JINJA_GO_ON;
         node = node->next) {
        BERTH_TRY(execute_one(j, node));
    }
    if (j->out->failed != BERTH_OK) {
        return BERTH_JINJA_FAIL(j, OUT_OF_MEMORY, "a text of more than %zu MiB",
                                BERTH_JINJA_OUTPUT >> 20);
    }
    return BERTH_OK;
}
