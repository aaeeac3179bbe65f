// SPDX-License-Identifier: Apache-2.0
// Calls: arguments, macros, and the binding of builtins' parameters.
#include "chat/evaluate.h"

#include "base/array.h"

// ---- arguments ----

typedef struct collector {
    berth_jinja_value items; // a LIST
    berth_jinja_value named; // a DICT of strings
} collector;

static berth_status add_named(berth_jinja *j, collector *c, berth_str name,
                              berth_jinja_value value) {
    if (berth_jinja_dict_str(c->named.as.dict, name)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "argument '" BERTH_STR_FMT "' is given twice",
                                BERTH_STR_ARG(name));
    }
    return berth_jinja_dict_set(j, c->named.as.dict, berth_jinja_str(name), value);
}

static berth_status add_dict(berth_jinja *j, collector *c, const berth_jinja_value *value) {
    if (value->kind != BERTH_JINJA_DICT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "** needs a dict, not '%s'",
                                berth_jinja_type(value));
    }
    for (size_t i = 0; i < value->as.dict->count; ++i) {
        const berth_jinja_value *key = &value->as.dict->keys[i];
        if (key->kind != BERTH_JINJA_STRING) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "** needs strings as keys, not '%s'",
                                    berth_jinja_type(key));
        }
        BERTH_TRY(add_named(j, c, key->as.string, value->as.dict->values[i]));
    }
    return BERTH_OK;
}

static berth_status add_argument(berth_jinja *j, collector *c, const berth_jinja_node *node) {
    berth_jinja_value value;
    BERTH_TRY(berth_jinja_evaluate(j, node->first, &value));
    if (node->op == 2) {
        return add_dict(j, c, &value);
    }
    if (node->op == 0) {
        return node->name.size > 0 ? add_named(j, c, node->name, value)
                                   : berth_jinja_list_add(j, c->items.as.list, value);
    }
    berth_jinja_list *items;
    BERTH_TRY(berth_jinja_items(j, &value, &items));
    for (size_t i = 0; i < items->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, c->items.as.list, items->items[i]));
    }
    return BERTH_OK;
}

berth_status berth_jinja_call_of(berth_jinja *j, const berth_jinja_node *items,
                                 berth_jinja_call *out) {
    collector c;
    void *names;
    *out = (berth_jinja_call){0};
    if (!items) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 2, &c.items));
    BERTH_TRY(berth_jinja_dict_new(j, BERTH_JINJA_DICT, 0, &c.named));
    for (const berth_jinja_node *node = items; node; node = node->next) {
        BERTH_TRY(add_argument(j, &c, node));
    }
    const berth_jinja_dict *named = c.named.as.dict;
    BERTH_TRY(berth_jinja_alloc(j, named->count, sizeof(berth_str), &names));
    for (size_t i = 0; i < named->count; ++i) {
        ((berth_str *)names)[i] = named->keys[i].as.string;
    }
    *out = (berth_jinja_call){
        .items = c.items.as.list->items,
        .count = c.items.as.list->count,
        .names = names,
        .named = named->values,
        .named_count = named->count,
    };
    return BERTH_OK;
}

static const berth_jinja_value *find_named(const berth_jinja_call *call, berth_str name) {
    for (size_t i = 0; i < call->named_count; ++i) {
        if (berth_str_equal(call->names[i], name)) {
            return &call->named[i];
        }
    }
    return NULL;
}

// ---- macros ----

static berth_status bind_parameter(berth_jinja *j, const berth_jinja_node *parameter,
                                   const berth_jinja_call *call, size_t at) {
    const berth_jinja_value *named = find_named(call, parameter->name);
    berth_jinja_value value;
    if (named && at < call->count) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "argument '" BERTH_STR_FMT "' is given twice",
                                BERTH_STR_ARG(parameter->name));
    }
    if (named) {
        value = *named;
    } else if (at < call->count) {
        value = call->items[at];
    } else if (parameter->first) {
        BERTH_TRY(berth_jinja_evaluate(j, parameter->first, &value));
    } else {
        BERTH_TRY(berth_jinja_undefined(j, &value, "parameter '" BERTH_STR_FMT "' was not provided",
                                        BERTH_STR_ARG(parameter->name)));
    }
    return berth_jinja_frame_set(j, j->frame, parameter->name, value);
}

static bool has_parameter(const berth_jinja_node *macro, berth_str name) {
    for (const berth_jinja_node *p = macro->items; p; p = p->next) {
        if (berth_str_equal(p->name, name)) {
            return true;
        }
    }
    return berth_str_equal_cstr(name, "caller") && (macro->op & BERTH_JINJA_TAKES_CALLER);
}

// What the parameters did not take: varargs, kwargs and caller, where the body names them.
static berth_status bind_rest(berth_jinja *j, const berth_jinja_node *macro,
                              const berth_jinja_call *call, size_t taken) {
    berth_jinja_value rest, named;
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_TUPLE, 0, &rest));
    BERTH_TRY(berth_jinja_dict_new(j, BERTH_JINJA_DICT, 0, &named));
    for (size_t i = taken; i < call->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, rest.as.list, call->items[i]));
    }
    for (size_t i = 0; i < call->named_count; ++i) {
        if (!has_parameter(macro, call->names[i])) {
            BERTH_TRY(berth_jinja_dict_set(j, named.as.dict, berth_jinja_str(call->names[i]),
                                           call->named[i]));
        }
    }
    if ((rest.as.list->count > 0 && !(macro->op & BERTH_JINJA_TAKES_REST)) ||
        (named.as.dict->count > 0 && !(macro->op & BERTH_JINJA_TAKES_NAMED))) {
        return BERTH_JINJA_FAIL(
            j, INVALID_ARGUMENT, "macro '" BERTH_STR_FMT "' takes no %s '" BERTH_STR_FMT "'",
            BERTH_STR_ARG(macro->name), rest.as.list->count > 0 ? "further argument" : "argument",
            BERTH_STR_ARG(named.as.dict->count > 0 ? named.as.dict->keys[0].as.string
                                                   : BERTH_STR("…")));
    }
    if (macro->op & BERTH_JINJA_TAKES_REST) {
        BERTH_TRY(berth_jinja_frame_set(j, j->frame, BERTH_STR("varargs"), rest));
    }
    if (macro->op & BERTH_JINJA_TAKES_NAMED) {
        BERTH_TRY(berth_jinja_frame_set(j, j->frame, BERTH_STR("kwargs"), named));
    }
    return BERTH_OK;
}

static berth_status bind_caller(berth_jinja *j, const berth_jinja_node *macro,
                                const berth_jinja_call *call) {
    const berth_jinja_value *caller = find_named(call, BERTH_STR("caller"));
    berth_jinja_value none;
    if (!(macro->op & BERTH_JINJA_TAKES_CALLER)) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_undefined(j, &none, "no caller defined"));
    return berth_jinja_frame_set(j, j->frame, BERTH_STR("caller"), caller ? *caller : none);
}

static berth_status run_macro(berth_jinja *j, const berth_jinja_node *macro,
                              const berth_jinja_call *call, berth_jinja_value *out) {
    size_t at = 0;
    BERTH_TRY(bind_caller(j, macro, call));
    for (const berth_jinja_node *p = macro->items; p; p = p->next) {
        BERTH_TRY(bind_parameter(j, p, call, at++));
    }
    BERTH_TRY(bind_rest(j, macro, call, at));
    return berth_jinja_capture(j, macro->body, out);
}

static berth_status call_macro(berth_jinja *j, const berth_jinja_macro *macro,
                               const berth_jinja_call *call, berth_jinja_value *out) {
    berth_jinja_frame *const around = j->frame;
    BERTH_TRY(berth_jinja_frame_new(j, macro->frame, &j->frame));
    const berth_status status = run_macro(j, macro->node, call, out);
    j->frame = around;
    return status;
}

// ---- builtins ----

static berth_status bind_names(berth_jinja *j, const berth_jinja_builtin *builtin,
                               const berth_jinja_call *call, berth_jinja_args *args) {
    for (size_t i = 0; i < call->named_count; ++i) {
        size_t at = 0;
        while (at < BERTH_JINJA_PARAMETERS && builtin->parameters[at] &&
               !berth_str_equal_cstr(call->names[i], builtin->parameters[at])) {
            ++at;
        }
        if (at == BERTH_JINJA_PARAMETERS || !builtin->parameters[at] ||
            args->values[at].kind != BERTH_JINJA_ABSENT) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                    "%s() got the argument '" BERTH_STR_FMT
                                    "' twice, or does not know it",
                                    builtin->name, BERTH_STR_ARG(call->names[i]));
        }
        args->values[at] = call->named[i];
    }
    return BERTH_OK;
}

static berth_status bind(berth_jinja *j, const berth_jinja_builtin *builtin,
                         const berth_jinja_call *call, berth_jinja_args *args) {
    size_t most = 0;
    while (most < BERTH_JINJA_PARAMETERS && builtin->parameters[most]) {
        ++most;
    }
    if (call->count > most) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "%s() takes at most %zu arguments, not %zu",
                                builtin->name, most, call->count);
    }
    for (size_t i = 0; i < call->count; ++i) {
        args->values[i] = call->items[i];
    }
    BERTH_TRY(bind_names(j, builtin, call, args));
    for (size_t i = 0; i < builtin->least; ++i) {
        if (args->values[i].kind == BERTH_JINJA_ABSENT) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "%s() needs the argument '%s'",
                                    builtin->name, builtin->parameters[i]);
        }
    }
    return BERTH_OK;
}

berth_status berth_jinja_run(berth_jinja *j, const berth_jinja_builtin *builtin,
                             const berth_jinja_value *self, const berth_jinja_call *call,
                             berth_jinja_value *out) {
    berth_jinja_args args = {.self = *self, .call = call};
    BERTH_TRY(berth_jinja_spend(j, 1));
    if (!builtin->is_free) {
        BERTH_TRY(bind(j, builtin, call, &args));
    }
    return builtin->run(j, &args, out);
}

berth_status berth_jinja_run_named(berth_jinja *j, const berth_jinja_builtin *builtin,
                                   berth_str name, const berth_jinja_args *args,
                                   berth_jinja_value *out) {
    if (!builtin) {
        return BERTH_JINJA_FAIL(j, UNSUPPORTED,
                                "there is no filter or test '" BERTH_STR_FMT "' here",
                                BERTH_STR_ARG(name));
    }
    return berth_jinja_run(j, builtin, &args->self, args->call, out);
}

berth_status berth_jinja_invoke(berth_jinja *j, const berth_jinja_value *callee,
                                const berth_jinja_call *call, berth_jinja_value *out) {
    switch (callee->kind) {
    case BERTH_JINJA_MACRO:
        return call_macro(j, callee->as.macro, call, out);
    case BERTH_JINJA_BUILTIN:
        return berth_jinja_run(j, callee->as.bound->builtin, &callee->as.bound->self, call, out);
    case BERTH_JINJA_LOOP:
        if (call->count == 1) {
            return berth_jinja_loop_again(j, callee->as.loop, &call->items[0], out);
        }
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "loop() takes one argument");
    case BERTH_JINJA_JOINER:
        *out = callee->as.list->at > 0 ? callee->as.list->items[0] : berth_jinja_str(BERTH_STR(""));
        callee->as.list->at = 1;
        return BERTH_OK;
    case BERTH_JINJA_UNDEFINED:
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, BERTH_STR_FMT,
                                BERTH_STR_ARG(callee->as.string));
    default:
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "'%s' object is not callable",
                                berth_jinja_type(callee));
    }
}

// ---- looking up ----

static const berth_jinja_builtin *find_row(const berth_jinja_builtin *rows, berth_str name) {
    for (; rows->name; ++rows) {
        if (berth_str_equal_cstr(name, rows->name)) {
            return rows;
        }
    }
    return NULL;
}

const berth_jinja_builtin *berth_jinja_filter(berth_str name) {
    static const berth_jinja_builtin *const tables[] = {
        berth_jinja_value_filters, berth_jinja_list_filters,   berth_jinja_text_filters,
        berth_jinja_pick_filters,  berth_jinja_markup_filters, berth_jinja_wrap_filters,
        berth_jinja_pretty_filters};
    const berth_jinja_builtin *found = NULL;
    for (size_t i = 0; i < BERTH_COUNT(tables) && !found; ++i) {
        found = find_row(tables[i], name);
    }
    return found;
}

const berth_jinja_builtin *berth_jinja_test(berth_str name) {
    return find_row(berth_jinja_tests, name);
}

const berth_jinja_builtin *berth_jinja_function(berth_str name) {
    return find_row(berth_jinja_functions, name);
}

const berth_jinja_builtin *berth_jinja_method(berth_jinja_kind kind, berth_str name) {
    const berth_jinja_builtin *found;
    switch (kind) {
    case BERTH_JINJA_STRING:
        found = find_row(berth_jinja_str_methods, name);
        return found ? found : find_row(berth_jinja_class_methods, name);
    case BERTH_JINJA_LIST:
    case BERTH_JINJA_TUPLE:
    case BERTH_JINJA_RANGE:
        return find_row(berth_jinja_list_methods, name);
    case BERTH_JINJA_DICT:
        return find_row(berth_jinja_dict_methods, name);
    case BERTH_JINJA_LOOP:
        return find_row(berth_jinja_loop_methods, name);
    case BERTH_JINJA_CYCLER:
        return find_row(berth_jinja_cycler_methods, name);
    default:
        return NULL;
    }
}
