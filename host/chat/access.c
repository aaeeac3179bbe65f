// SPDX-License-Identifier: Apache-2.0
// Reaching into values: attributes, indices and slices, in the order in which Jinja looks: a method
// comes before a key after a dot, and behind it in brackets.
#include <string.h>

#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

// ---- attributes ----

static berth_status refuse_undefined(berth_jinja *j, const berth_jinja_value *value) {
    return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, BERTH_STR_FMT, BERTH_STR_ARG(value->as.string));
}

// A method with its object. False: there is none of this name.
static berth_status find_method(berth_jinja *j, const berth_jinja_value *value, berth_str name,
                                berth_jinja_value *out, bool *out_is_found) {
    const berth_jinja_builtin *method = berth_jinja_method(value->kind, name);
    *out_is_found = method;
    if (!method) {
        return BERTH_OK;
    }
    void *memory;
    BERTH_TRY(berth_jinja_alloc(j, 1, sizeof(berth_jinja_bound), &memory));
    *(berth_jinja_bound *)memory = (berth_jinja_bound){.builtin = method, .self = *value};
    *out = (berth_jinja_value){.kind = BERTH_JINJA_BUILTIN, .as.bound = memory};
    return BERTH_OK;
}

static berth_status neighbour(berth_jinja *j, const berth_jinja_loop *loop, bool is_next,
                              berth_jinja_value *out) {
    if (is_next ? loop->index + 1 < loop->items->count : loop->index > 0) {
        *out = loop->items->items[is_next ? loop->index + 1 : loop->index - 1];
        return BERTH_OK;
    }
    return berth_jinja_undefined(j, out, "there is no %s item", is_next ? "next" : "previous");
}

// Attributes of `loop`; false: it has none of this name.
static bool loop_number(const berth_jinja_loop *loop, berth_str name, berth_jinja_value *out) {
    const int64_t index = (int64_t)loop->index;
    const int64_t count = (int64_t)loop->items->count;
    const struct {
        const char *name;
        berth_jinja_value value;
    } rows[] = {
        {.name = "index",     .value = berth_jinja_integer(index + 1)               },
        {.name = "index0",    .value = berth_jinja_integer(index)                   },
        {.name = "revindex",  .value = berth_jinja_integer(count - index)           },
        {.name = "revindex0", .value = berth_jinja_integer(count - index - 1)       },
        {.name = "first",     .value = berth_jinja_bool(index == 0)                 },
        {.name = "last",      .value = berth_jinja_bool(index + 1 == count)         },
        {.name = "length",    .value = berth_jinja_integer(count)                   },
        {.name = "depth",     .value = berth_jinja_integer((int64_t)loop->depth + 1)},
        {.name = "depth0",    .value = berth_jinja_integer((int64_t)loop->depth)    },
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        if (berth_str_equal_cstr(name, rows[i].name)) {
            *out = rows[i].value;
            return true;
        }
    }
    return false;
}

// A pair of groupby names its members, too; false: this is none, or it has none of this name.
static bool group_member(const berth_jinja_value *value, berth_str name, berth_jinja_value *out) {
    const bool is_list = berth_str_equal_cstr(name, "list");
    if (value->kind != BERTH_JINJA_TUPLE || !value->as.list->name ||
        !(is_list || berth_str_equal_cstr(name, "grouper"))) {
        return false;
    }
    *out = value->as.list->items[is_list ? 1 : 0];
    return true;
}

static bool member_of(const berth_jinja_value *value, berth_str name, berth_jinja_value *out) {
    switch (value->kind) {
    case BERTH_JINJA_LOOP:
        return loop_number(value->as.loop, name, out);
    case BERTH_JINJA_MACRO:
        *out = berth_jinja_str(value->as.macro->node->name);
        return berth_str_equal_cstr(name, "name");
    case BERTH_JINJA_CYCLER:
        *out = value->as.list->items[value->as.list->at];
        return berth_str_equal_cstr(name, "current");
    default:
        return group_member(value, name, out);
    }
}

static berth_status attribute_of_object(berth_jinja *j, const berth_jinja_value *value,
                                        berth_str name, berth_jinja_value *out) {
    const bool is_next = berth_str_equal_cstr(name, "nextitem");
    if (value->kind == BERTH_JINJA_LOOP && (is_next || berth_str_equal_cstr(name, "previtem"))) {
        return neighbour(j, value->as.loop, is_next, out);
    }
    if (member_of(value, name, out)) {
        return BERTH_OK;
    }
    return berth_jinja_undefined(j, out, "'%s' object has no attribute '" BERTH_STR_FMT "'",
                                 berth_jinja_type(value), BERTH_STR_ARG(name));
}

// What the sandbox keeps from templates because it would change what they were given.
static bool is_mutator(berth_jinja_kind kind, berth_str name) {
    static const char *const names[] = {"append", "extend",  "insert",    "pop",
                                        "remove", "reverse", "sort",      "clear",
                                        "update", "popitem", "setdefault"};
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        if ((kind == BERTH_JINJA_LIST || kind == BERTH_JINJA_DICT) &&
            berth_str_equal_cstr(name, names[i])) {
            // A dict has neither of a list's alone.
            return kind == BERTH_JINJA_LIST ? i <= 7 : i == 3 || i >= 7;
        }
    }
    return false;
}

static berth_status unsafe(berth_jinja *j, const berth_jinja_value *value, berth_str name,
                           berth_jinja_value *out) {
    return berth_jinja_undefined(j, out,
                                 "access to attribute '" BERTH_STR_FMT
                                 "' of a '%s' is not safe, a template must not change it",
                                 BERTH_STR_ARG(name), berth_jinja_type(value));
}

berth_status berth_jinja_attribute(berth_jinja *j, const berth_jinja_value *value, berth_str name,
                                   berth_jinja_value *out) {
    bool is_found = false;
    if (value->kind == BERTH_JINJA_UNDEFINED) {
        return refuse_undefined(j, value);
    }
    if (is_mutator(value->kind, name)) {
        return unsafe(j, value, name, out);
    }
    BERTH_TRY(find_method(j, value, name, out, &is_found));
    if (is_found) {
        return BERTH_OK;
    }
    if (value->kind == BERTH_JINJA_DICT || value->kind == BERTH_JINJA_NAMESPACE) {
        const berth_jinja_value *found = berth_jinja_dict_str(value->as.dict, name);
        BERTH_TRY(berth_jinja_spend(j, 1 + value->as.dict->count / 8));
        if (found) {
            *out = *found;
            return BERTH_OK;
        }
    }
    return attribute_of_object(j, value, name, out);
}

// ---- indices ----

// The place of a Python index, or SIZE_MAX.
static size_t place_of(int64_t index, size_t count) {
    if (index < 0) {
        index += (int64_t)count;
    }
    return index >= 0 && (size_t)index < count ? (size_t)index : SIZE_MAX;
}

static berth_status element(berth_jinja *j, const berth_jinja_value *value, int64_t index,
                            berth_jinja_value *out, bool *out_is_found) {
    size_t count = 0;
    *out_is_found = false;
    if (!berth_jinja_is_sequence(value) && value->kind != BERTH_JINJA_STRING) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_size(j, value, &count));
    const size_t place = place_of(index, count);
    if (place == SIZE_MAX) {
        return BERTH_OK;
    }
    *out_is_found = true;
    if (value->kind != BERTH_JINJA_STRING) {
        *out = value->as.list->items[place];
        return BERTH_OK;
    }
    const berth_str text = value->as.string;
    const size_t at = berth_jinja_char_offset(text, place);
    *out = *value;
    out->as.string = berth_str_slice(text, at, berth_utf8_next(berth_str_slice(text, at, 4), NULL));
    return BERTH_OK;
}

static berth_status no_item(berth_jinja *j, const berth_jinja_value *value,
                            const berth_jinja_value *index, berth_jinja_value *out) {
    berth_str shown;
    BERTH_TRY(berth_jinja_to_str(j, index, &shown));
    return berth_jinja_undefined(j, out, "'%s' object has no element '" BERTH_STR_FMT "'",
                                 berth_jinja_type(value),
                                 BERTH_STR_ARG(berth_str_slice(shown, 0, 64)));
}

berth_status berth_jinja_item(berth_jinja *j, const berth_jinja_value *value,
                              const berth_jinja_value *index, berth_jinja_value *out) {
    int64_t number;
    bool is_found = false;
    if (value->kind == BERTH_JINJA_UNDEFINED) {
        return refuse_undefined(j, value);
    }
    if (value->kind == BERTH_JINJA_DICT) {
        berth_jinja_value *found;
        BERTH_TRY(berth_jinja_dict_find(j, value->as.dict, index, &found));
        if (found) {
            *out = *found;
            return BERTH_OK;
        }
    }
    if (index->kind == BERTH_JINJA_STRING) {
        return berth_jinja_attribute(j, value, index->as.string, out);
    }
    if (berth_jinja_as_integer(index, &number)) {
        BERTH_TRY(element(j, value, number, out, &is_found));
    }
    return is_found ? BERTH_OK : no_item(j, value, index, out);
}

// ---- slices ----

typedef struct range {
    int64_t start, stop, step;
} range;

// A bound as Python reads it: from the end when negative, inside of the sequence.
static berth_status read_bound(berth_jinja *j, const berth_jinja_value *value, int64_t count,
                               const range *limits, int64_t *out) {
    if (value->kind == BERTH_JINJA_NONE) {
        return BERTH_OK;
    }
    if (!berth_jinja_as_integer(value, out)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "a slice needs integers, not '%s'",
                                berth_jinja_type(value));
    }
    if (*out < 0) {
        *out = *out < -count ? limits->start : *out + count;
    }
    *out = *out < limits->start ? limits->start : *out > limits->stop ? limits->stop : *out;
    return BERTH_OK;
}

static berth_status read_range(berth_jinja *j, const berth_jinja_value bounds[3], int64_t count,
                               range *out) {
    int64_t step = 1;
    if (bounds[2].kind != BERTH_JINJA_NONE &&
        (!berth_jinja_as_integer(&bounds[2], &step) || step == 0)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                "the step of a slice is an integer and not zero");
    }
    const bool is_forward = step > 0;
    const range limits = {
        .start = is_forward ? 0 : -1,
        .stop = is_forward ? count : count - 1,
    };
    *out = (range){
        .start = is_forward ? 0 : count - 1,
        .stop = is_forward ? count : -1,
        .step = step > count    ? count + 1
                : step < -count ? -count - 1
                                : step,
    };
    BERTH_TRY(read_bound(j, &bounds[0], count, &limits, &out->start));
    return read_bound(j, &bounds[1], count, &limits, &out->stop);
}

static bool is_inside(const range *r, int64_t at) {
    return r->step > 0 ? at < r->stop : at > r->stop;
}

static berth_status slice_string(berth_jinja *j, const berth_jinja_value *value, const range *r,
                                 berth_jinja_value *out) {
    const berth_str whole = value->as.string;
    *out = *value;
    if (r->step == 1) {
        const size_t from = berth_jinja_char_offset(whole, (size_t)r->start);
        const size_t count = r->stop > r->start ? (size_t)(r->stop - r->start) : 0;
        const berth_str rest = berth_str_slice(whole, from, SIZE_MAX);
        out->as.string = berth_str_slice(rest, 0, berth_jinja_char_offset(rest, count));
        return BERTH_OK;
    }
    berth_jinja_list *characters;
    berth_text text;
    BERTH_TRY(berth_jinja_items(j, value, &characters));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    for (int64_t at = r->start; is_inside(r, at); at += r->step) {
        berth_text_add(&text, characters->items[at].as.string);
    }
    const berth_status status = berth_jinja_take(j, &text, out);
    berth_text_deinit(&text);
    return status;
}

berth_status berth_jinja_slice(berth_jinja *j, const berth_jinja_value *value,
                               const berth_jinja_value bounds[3], berth_jinja_value *out) {
    size_t count;
    range r;
    if (value->kind == BERTH_JINJA_UNDEFINED) {
        return refuse_undefined(j, value);
    }
    if (!berth_jinja_is_sequence(value) && value->kind != BERTH_JINJA_STRING) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "a '%s' cannot be sliced",
                                berth_jinja_type(value));
    }
    BERTH_TRY(berth_jinja_size(j, value, &count));
    BERTH_TRY(read_range(j, bounds, (int64_t)count, &r));
    if (value->kind == BERTH_JINJA_STRING) {
        return slice_string(j, value, &r, out);
    }
    BERTH_TRY(berth_jinja_list_new(j, value->kind, 0, out));
    for (int64_t at = r.start; is_inside(&r, at); at += r.step) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, value->as.list->items[at]));
    }
    if (value->kind == BERTH_JINJA_RANGE) {
        out->as.list->start = value->as.list->start + r.start * value->as.list->step;
        out->as.list->stop = value->as.list->start + r.stop * value->as.list->step;
        out->as.list->step = value->as.list->step * r.step;
    }
    return BERTH_OK;
}
