// SPDX-License-Identifier: Apache-2.0
// Filters that ask something of every item: map, select, reject, selectattr, rejectattr.
#include "chat/pick.h"

#include "chat/characters.h"
#include "chat/evaluate.h"

// ---- paths ----

static bool is_index(berth_str part, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < part.size; ++i) {
        if (part.data[i] < '0' || part.data[i] > '9' || i > 9) {
            return false;
        }
        *out = *out * 10 + (part.data[i] - '0');
    }
    return part.size > 0;
}

static berth_status follow(berth_jinja *j, const berth_jinja_path *path, berth_jinja_value *item) {
    berth_str rest = path->path->as.string;
    for (berth_str part; berth_str_split_first(&rest, '.', &part);) {
        int64_t number;
        const berth_jinja_value index =
            is_index(part, &number) ? berth_jinja_integer(number) : berth_jinja_str(part);
        berth_jinja_value found;
        BERTH_TRY(berth_jinja_item(j, item, &index, &found));
        *item = found.kind == BERTH_JINJA_UNDEFINED && path->fallback ? *path->fallback : found;
    }
    return BERTH_OK;
}

static berth_status to_small(berth_jinja *j, berth_jinja_value *value) {
    berth_text text;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_jinja_change_case(value->as.string, BERTH_JINJA_LOWER, &text);
    const berth_status status = berth_jinja_take(j, &text, value);
    berth_text_deinit(&text);
    return status;
}

berth_status berth_jinja_pick(berth_jinja *j, const berth_jinja_path *path,
                              const berth_jinja_value *item, berth_jinja_value *out) {
    berth_jinja_value value = *item;
    if (path->path->kind == BERTH_JINJA_STRING) {
        BERTH_TRY(follow(j, path, &value));
    } else if (path->path->kind > BERTH_JINJA_NONE) {
        BERTH_TRY(berth_jinja_item(j, item, path->path, &value));
    }
    *out = value;
    return path->ignores_case && value.kind == BERTH_JINJA_STRING ? to_small(j, out) : BERTH_OK;
}

// ---- map ----

// The arguments of a call from its `from`-th on.
static berth_jinja_call rest_of(const berth_jinja_call *call, size_t from) {
    berth_jinja_call rest = *call;
    from = from < call->count ? from : call->count;
    rest.items = call->items + from;
    rest.count = call->count - from;
    return rest;
}

static const berth_jinja_value *named(const berth_jinja_call *call, const char *name) {
    for (size_t i = 0; i < call->named_count; ++i) {
        if (berth_str_equal_cstr(call->names[i], name)) {
            return &call->named[i];
        }
    }
    return NULL;
}

static berth_status map_attribute(berth_jinja *j, const berth_jinja_args *args,
                                  const berth_jinja_list *items, berth_jinja_list *results) {
    const berth_jinja_path path = {
        .path = named(args->call, "attribute"),
        .fallback = named(args->call, "default"),
    };
    if (!path.path) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "map needs a filter's name or attribute=");
    }
    for (size_t i = 0; i < items->count; ++i) {
        berth_jinja_value value;
        BERTH_TRY(berth_jinja_pick(j, &path, &items->items[i], &value));
        BERTH_TRY(berth_jinja_list_add(j, results, value));
    }
    return BERTH_OK;
}

static berth_status map_filter(berth_jinja *j, const berth_jinja_args *args,
                               const berth_jinja_list *items, berth_jinja_list *results) {
    const berth_jinja_call rest = rest_of(args->call, 1);
    berth_str name = {0};
    BERTH_TRY(berth_jinja_want_str(j, &args->call->items[0], &name));
    const berth_jinja_builtin *filter = berth_jinja_filter(name);
    for (size_t i = 0; i < items->count; ++i) {
        const berth_jinja_args each = {.self = items->items[i], .call = &rest};
        berth_jinja_value value;
        BERTH_TRY(berth_jinja_run_named(j, filter, name, &each, &value));
        BERTH_TRY(berth_jinja_list_add(j, results, value));
    }
    return BERTH_OK;
}

// What these filters walk: none, 0 and false count as nothing.
static berth_status items_of(berth_jinja *j, const berth_jinja_value *from,
                             berth_jinja_list **out) {
    berth_jinja_value nothing;
    if (berth_jinja_truth(from)) {
        return berth_jinja_items(j, from, out);
    }
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, &nothing));
    *out = nothing.as.list;
    return BERTH_OK;
}

static berth_status map(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_list *items;
    BERTH_TRY(items_of(j, &args->self, &items));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_ITERATOR, items->count, out));
    return args->call->count > 0 ? map_filter(j, args, items, out->as.list)
                                 : map_attribute(j, args, items, out->as.list);
}

// ---- select and reject ----

typedef struct chooser {
    const berth_jinja_value *path; // of the attribute that is tested; NULL: the item itself
    berth_jinja_call call;         // the test and its arguments; none: whether it is true
    bool wants;
} chooser;

static berth_status is_chosen(berth_jinja *j, const chooser *c, const berth_jinja_value *item,
                              bool *out) {
    berth_jinja_value value = *item;
    if (c->path) {
        const berth_jinja_path path = {.path = c->path};
        BERTH_TRY(berth_jinja_pick(j, &path, item, &value));
    }
    if (c->call.count > 0) {
        const berth_jinja_call rest = rest_of(&c->call, 1);
        const berth_jinja_args args = {.self = value, .call = &rest};
        berth_str name = {0};
        BERTH_TRY(berth_jinja_want_str(j, &c->call.items[0], &name));
        BERTH_TRY(berth_jinja_run_named(j, berth_jinja_test(name), name, &args, &value));
    }
    *out = berth_jinja_truth(&value) == c->wants;
    return BERTH_OK;
}

static berth_status choose(berth_jinja *j, const berth_jinja_value *from, const chooser *c,
                           berth_jinja_value *out) {
    berth_jinja_list *items;
    BERTH_TRY(items_of(j, from, &items));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_ITERATOR, items->count, out));
    for (size_t i = 0; i < items->count; ++i) {
        bool is_in;
        BERTH_TRY(is_chosen(j, c, &items->items[i], &is_in));
        if (is_in) {
            BERTH_TRY(berth_jinja_list_add(j, out->as.list, items->items[i]));
        }
    }
    return BERTH_OK;
}

static berth_status choose_by_attribute(berth_jinja *j, const berth_jinja_args *args, bool wants,
                                        berth_jinja_value *out) {
    if (args->call->count == 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "%sattr needs the name of an attribute",
                                wants ? "select" : "reject");
    }
    const chooser c = {
        .path = &args->call->items[0],
        .call = rest_of(args->call, 1),
        .wants = wants,
    };
    return choose(j, &args->self, &c, out);
}

static berth_status select_items(berth_jinja *j, const berth_jinja_args *args,
                                 berth_jinja_value *out) {
    const chooser c = {.call = *args->call, .wants = true};
    return choose(j, &args->self, &c, out);
}

static berth_status reject_items(berth_jinja *j, const berth_jinja_args *args,
                                 berth_jinja_value *out) {
    const chooser c = {.call = *args->call, .wants = false};
    return choose(j, &args->self, &c, out);
}

static berth_status select_attribute(berth_jinja *j, const berth_jinja_args *args,
                                     berth_jinja_value *out) {
    return choose_by_attribute(j, args, true, out);
}

static berth_status reject_attribute(berth_jinja *j, const berth_jinja_args *args,
                                     berth_jinja_value *out) {
    return choose_by_attribute(j, args, false, out);
}

const berth_jinja_builtin berth_jinja_pick_filters[] = {
    {.name = "map",    .run = map, .is_free = true},
    {.name = "select", .run = select_items, .is_free = true},
    {.name = "reject", .run = reject_items, .is_free = true},
    {.name = "selectattr", .run = select_attribute, .is_free = true},
    {.name = "rejectattr", .run = reject_attribute, .is_free = true},
    {.name = NULL},
};
