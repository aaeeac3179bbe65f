// SPDX-License-Identifier: Apache-2.0
// Filters of sequences.
#include <string.h>

#include "chat/evaluate.h"
#include "chat/pick.h"
#include "chat/sort.h"

#define BATCH_LIMIT ((int64_t)1 << 20)

// ---- ends ----

static berth_status first(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_list *items;
    if (args->self.kind == BERTH_JINJA_ITERATOR) {
        items = args->self.as.list;
        if (items->at < items->count) {
            *out = items->items[items->at++];
            return BERTH_OK;
        }
        return berth_jinja_undefined(j, out, "no first item, the sequence is empty");
    }
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    if (items->count > 0) {
        *out = items->items[0];
        return BERTH_OK;
    }
    return berth_jinja_undefined(j, out, "no first item, the sequence is empty");
}

static berth_status last(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_list *items;
    if (args->self.kind == BERTH_JINJA_ITERATOR) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                "a generator has no last item, use | list before");
    }
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    if (items->count > 0) {
        *out = items->items[items->count - 1];
        return BERTH_OK;
    }
    return berth_jinja_undefined(j, out, "no last item, the sequence is empty");
}

static berth_status to_list(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_list *items;
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, items->count, out));
    for (size_t i = 0; i < items->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, items->items[i]));
    }
    return BERTH_OK;
}

static berth_status reverse(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_list *items;
    if (args->self.kind == BERTH_JINJA_STRING) {
        const berth_jinja_value bounds[3] = {berth_jinja_none(), berth_jinja_none(),
                                             berth_jinja_integer(-1)};
        return berth_jinja_slice(j, &args->self, bounds, out);
    }
    const bool is_iterator = args->self.kind == BERTH_JINJA_ITERATOR;
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    BERTH_TRY(berth_jinja_list_new(j, is_iterator ? BERTH_JINJA_LIST : BERTH_JINJA_ITERATOR,
                                   items->count, out));
    for (size_t i = items->count; i-- > 0;) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, items->items[i]));
    }
    return BERTH_OK;
}

// ---- joining and summing ----

static berth_status join_items(berth_jinja *j, const berth_jinja_args *args,
                               const berth_jinja_list *items, berth_text *text) {
    const berth_jinja_path path = {.path = &args->values[1]};
    berth_str between = {0};
    if (args->values[0].kind != BERTH_JINJA_ABSENT) {
        BERTH_TRY(berth_jinja_to_str(j, &args->values[0], &between));
    }
    for (size_t i = 0; i < items->count; ++i) {
        berth_jinja_value value;
        BERTH_TRY(berth_jinja_pick(j, &path, &items->items[i], &value));
        berth_text_add(text, i > 0 ? between : (berth_str){0});
        BERTH_TRY(berth_jinja_print(j, &value, text));
    }
    return BERTH_OK;
}

static berth_status join(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_list *items;
    berth_text text;
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = join_items(j, args, items, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status sum(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_path path = {.path = &args->values[0]};
    const bool has_start = args->values[1].kind != BERTH_JINJA_ABSENT;
    berth_jinja_value operands[2] = {has_start ? args->values[1] : berth_jinja_integer(0)};
    berth_jinja_list *items;
    if (operands[0].kind == BERTH_JINJA_STRING) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "sum does not work on strings, use join");
    }
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    for (size_t i = 0; i < items->count; ++i) {
        BERTH_TRY(berth_jinja_pick(j, &path, &items->items[i], &operands[1]));
        BERTH_TRY(berth_jinja_binary(j, BERTH_JINJA_OP_ADD, operands, &operands[0]));
    }
    *out = operands[0];
    return BERTH_OK;
}

// ---- order ----

static berth_status finish_sort(berth_jinja *j, berth_jinja_sorter *s, berth_jinja_value *out) {
    BERTH_TRY(berth_jinja_sort(s));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, s->count, out));
    for (size_t i = 0; i < s->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, s->items[i].item));
    }
    return BERTH_OK;
}

// The key of an item by one path or by several with commas between: always a list, because lists
// ask whether items are equal before they ask for their order.
static berth_status key_of(berth_jinja *j, const berth_jinja_path *path,
                           const berth_jinja_value *item, berth_jinja_value *out) {
    berth_jinja_value value;
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 1, out));
    if (path->path->kind != BERTH_JINJA_STRING) {
        BERTH_TRY(berth_jinja_pick(j, path, item, &value));
        return berth_jinja_list_add(j, out->as.list, value);
    }
    berth_str rest = path->path->as.string;
    for (berth_str part; berth_str_split_first(&rest, ',', &part);) {
        const berth_jinja_value text = berth_jinja_str(part);
        const berth_jinja_path one = {.path = &text, .ignores_case = path->ignores_case};
        BERTH_TRY(berth_jinja_pick(j, &one, item, &value));
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, value));
    }
    return BERTH_OK;
}

static berth_status sort(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_path path = {
        .path = &args->values[2],
        .ignores_case = !berth_jinja_truth_or(&args->values[1], false),
    };
    berth_jinja_list *items;
    berth_jinja_sorter s;
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    BERTH_TRY(berth_jinja_sorter_init(j, items->count, &s));
    s.is_reversed = berth_jinja_truth_or(&args->values[0], false);
    for (size_t i = 0; i < s.count; ++i) {
        s.items[i].item = items->items[i];
        BERTH_TRY(key_of(j, &path, &items->items[i], &s.items[i].key));
    }
    return finish_sort(j, &s, out);
}

static berth_status dictsort(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    static const berth_jinja_value itself = {.kind = BERTH_JINJA_NONE};
    const berth_jinja_path path = {
        .path = &itself,
        .ignores_case = !berth_jinja_truth_or(&args->values[0], false),
    };
    berth_str by = BERTH_STR("key");
    berth_jinja_sorter s;
    BERTH_TRY(berth_jinja_want_str(j, &args->values[1], &by));
    const bool is_by_value = berth_str_equal_cstr(by, "value");
    if (args->self.kind != BERTH_JINJA_DICT || (!is_by_value && !berth_str_equal_cstr(by, "key"))) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                "dictsort sorts a dict by 'key' or 'value', not a '%s' by "
                                "'" BERTH_STR_FMT "'",
                                berth_jinja_type(&args->self), BERTH_STR_ARG(by));
    }
    const berth_jinja_dict *dict = args->self.as.dict;
    BERTH_TRY(berth_jinja_sorter_init(j, dict->count, &s));
    s.is_reversed = berth_jinja_truth_or(&args->values[2], false);
    for (size_t i = 0; i < s.count; ++i) {
        BERTH_TRY(berth_jinja_pair(j, dict->keys[i], dict->values[i], &s.items[i].item));
        BERTH_TRY(berth_jinja_pick(j, &path, is_by_value ? &dict->values[i] : &dict->keys[i],
                                   &s.items[i].key));
    }
    return finish_sort(j, &s, out);
}

static berth_status extreme(berth_jinja *j, const berth_jinja_args *args, int wanted,
                            berth_jinja_value *out) {
    const berth_jinja_path path = {
        .path = &args->values[1],
        .ignores_case = !berth_jinja_truth_or(&args->values[0], false),
    };
    berth_jinja_list *items;
    berth_jinja_value best, key;
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    if (items->count == 0) {
        return berth_jinja_undefined(j, out, "no aggregated item, the sequence is empty");
    }
    *out = items->items[0];
    BERTH_TRY(berth_jinja_pick(j, &path, out, &best));
    for (size_t i = 1; i < items->count; ++i) {
        int sign;
        BERTH_TRY(berth_jinja_pick(j, &path, &items->items[i], &key));
        BERTH_TRY(berth_jinja_compare(j, &key, &best, &sign));
        if (sign * wanted > 0 && sign != 2) {
            best = key;
            *out = items->items[i];
        }
    }
    return BERTH_OK;
}

static berth_status smallest(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return extreme(j, args, -1, out);
}

static berth_status largest(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return extreme(j, args, 1, out);
}

// ---- parts ----

static berth_status unique(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const berth_jinja_path path = {
        .path = &args->values[1],
        .ignores_case = !berth_jinja_truth_or(&args->values[0], false),
    };
    berth_jinja_list *items;
    berth_jinja_value seen;
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    BERTH_TRY(berth_jinja_dict_new(j, BERTH_JINJA_DICT, 0, &seen));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_ITERATOR, 0, out));
    for (size_t i = 0; i < items->count; ++i) {
        berth_jinja_value key;
        BERTH_TRY(berth_jinja_pick(j, &path, &items->items[i], &key));
        const size_t count = seen.as.dict->count;
        BERTH_TRY(berth_jinja_dict_set(j, seen.as.dict, key, berth_jinja_none()));
        if (seen.as.dict->count > count) {
            BERTH_TRY(berth_jinja_list_add(j, out->as.list, items->items[i]));
        }
    }
    return BERTH_OK;
}

static berth_status want_count(berth_jinja *j, const berth_jinja_value *value, int64_t *out) {
    BERTH_TRY(berth_jinja_want_integer(j, value, out));
    if (*out <= 0 || *out > BATCH_LIMIT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "%lld parts", (long long)*out);
    }
    return BERTH_OK;
}

static bool has_filling(const berth_jinja_value *value) {
    return value->kind != BERTH_JINJA_ABSENT && value->kind != BERTH_JINJA_NONE;
}

static berth_status batch(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    int64_t size = 0;
    berth_jinja_list *items;
    berth_jinja_value part;
    BERTH_TRY(want_count(j, &args->values[0], &size));
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_ITERATOR, 0, out));
    for (size_t i = 0; i < items->count; ++i) {
        if (i % (size_t)size == 0) {
            BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, &part));
            BERTH_TRY(berth_jinja_list_add(j, out->as.list, part));
        }
        BERTH_TRY(berth_jinja_list_add(j, part.as.list, items->items[i]));
    }
    for (;
         has_filling(&args->values[1]) && items->count > 0 && part.as.list->count < (size_t)size;) {
        BERTH_TRY(berth_jinja_list_add(j, part.as.list, args->values[1]));
    }
    return BERTH_OK;
}

static berth_status slice(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    int64_t count = 0;
    berth_jinja_list *items;
    BERTH_TRY(want_count(j, &args->values[0], &count));
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_ITERATOR, 0, out));
    const size_t each = items->count / (size_t)count;
    const size_t extra = items->count % (size_t)count;
    size_t at = 0;
    for (size_t i = 0; i < (size_t)count; ++i) {
        berth_jinja_value part;
        const size_t end = at + each + (i < extra ? 1 : 0);
        BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, each + 1, &part));
        for (; at < end; ++at) {
            BERTH_TRY(berth_jinja_list_add(j, part.as.list, items->items[at]));
        }
        if (has_filling(&args->values[1]) && i >= extra) {
            BERTH_TRY(berth_jinja_list_add(j, part.as.list, args->values[1]));
        }
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, part));
    }
    return BERTH_OK;
}

static berth_status items_of(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_ITERATOR, 0, out));
    if (args->self.kind == BERTH_JINJA_UNDEFINED) {
        return BERTH_OK;
    }
    if (args->self.kind != BERTH_JINJA_DICT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "items needs a dict, not '%s'",
                                berth_jinja_type(&args->self));
    }
    const berth_jinja_dict *dict = args->self.as.dict;
    for (size_t i = 0; i < dict->count; ++i) {
        berth_jinja_value pair;
        BERTH_TRY(berth_jinja_pair(j, dict->keys[i], dict->values[i], &pair));
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, pair));
    }
    return BERTH_OK;
}

// ---- groups ----

static berth_status add_to_group(berth_jinja *j, const berth_jinja_path *real,
                                 const berth_jinja_value *item, bool is_new,
                                 berth_jinja_list *groups) {
    if (is_new) {
        berth_jinja_value key, members, pair;
        BERTH_TRY(berth_jinja_pick(j, real, item, &key));
        BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, &members));
        BERTH_TRY(berth_jinja_pair(j, key, members, &pair));
        pair.as.list->name = "group";
        BERTH_TRY(berth_jinja_list_add(j, groups, pair));
    }
    const berth_jinja_value *group = &groups->items[groups->count - 1];
    return berth_jinja_list_add(j, group->as.list->items[1].as.list, *item);
}

static berth_status groupby(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const bool has_default = has_filling(&args->values[1]);
    const berth_jinja_path path = {
        .path = &args->values[0],
        .fallback = has_default ? &args->values[1] : NULL,
        .ignores_case = !berth_jinja_truth_or(&args->values[2], false),
    };
    berth_jinja_path real = path;
    real.ignores_case = false;
    berth_jinja_list *items;
    berth_jinja_sorter s;
    BERTH_TRY(berth_jinja_items(j, &args->self, &items));
    BERTH_TRY(berth_jinja_sorter_init(j, items->count, &s));
    for (size_t i = 0; i < s.count; ++i) {
        s.items[i].item = items->items[i];
        BERTH_TRY(berth_jinja_pick(j, &path, &items->items[i], &s.items[i].key));
    }
    BERTH_TRY(berth_jinja_sort(&s));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, out));
    for (size_t i = 0; i < s.count; ++i) {
        bool is_same = false;
        if (i > 0) {
            BERTH_TRY(berth_jinja_equal(j, &s.items[i].key, &s.items[i - 1].key, &is_same));
        }
        BERTH_TRY(add_to_group(j, &real, &s.items[i].item, !is_same, out->as.list));
    }
    return BERTH_OK;
}

const berth_jinja_builtin berth_jinja_list_filters[] = {
    {.name = "first",                                           .run = first},
    {.name = "last",                                                         .run = last},
    {.name = "list",.run = to_list},
    {.name = "reverse",                                            .run = reverse},
    {.name = "join",                                                         .run = join, .parameters = {"d", "attribute"}},
    {.name = "sum",.run = sum, .parameters = {"attribute", "start"}},
    {.name = "sort",                                            .run = sort, .parameters = {"reverse", "case_sensitive", "attribute"}},
    {.name = "dictsort",                         .run = dictsort, .parameters = {"case_sensitive", "by", "reverse"}},
    {.name = "min",                                             .run = smallest, .parameters = {"case_sensitive", "attribute"}},
    {.name = "max",                     .run = largest, .parameters = {"case_sensitive", "attribute"}},
    {.name = "unique",                                            .run = unique, .parameters = {"case_sensitive", "attribute"}},
    {.name = "batch", .run = batch, .least = 1, .parameters = {"linecount", "fill_with"}},
    {.name = "slice",                                        .run = slice, .least = 1, .parameters = {"slices", "fill_with"}},
    {.name = "items",        .run = items_of},
    {
     .name = "groupby",
     .run = groupby,
     .least = 1,
     .parameters = {"attribute", "default", "case_sensitive"},
     },
    {.name = NULL           },
};
