// SPDX-License-Identifier: Apache-2.0
// Functions that every template may call: Jinja's, and the two that transformers adds.
#include <string.h>
#include <time.h>

#include "chat/evaluate.h"

#define RANGE_LIMIT 100000 // the sandbox's own
#define TIME_BYTES  1024

static berth_status too_long(berth_jinja *j) {
    return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "a range of more than %d numbers", RANGE_LIMIT);
}

static berth_status fill_range(berth_jinja *j, const int64_t bounds[3], berth_jinja_value *out) {
    const __int128 distance = (__int128)bounds[1] - bounds[0];
    const __int128 count = distance == 0 || (distance > 0) != (bounds[2] > 0)
                               ? 0
                               : (distance - (bounds[2] > 0 ? 1 : -1)) / bounds[2] + 1;
    if (count > RANGE_LIMIT) {
        return too_long(j);
    }
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_RANGE, (size_t)count, out));
    out->as.list->start = bounds[0];
    out->as.list->stop = bounds[1];
    out->as.list->step = bounds[2];
    for (int64_t i = 0; i < (int64_t)count; ++i) {
        BERTH_TRY(
            berth_jinja_list_add(j, out->as.list, berth_jinja_integer(bounds[0] + i * bounds[2])));
    }
    return BERTH_OK;
}

static berth_status range(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    int64_t bounds[3] = {0, 0, 1};
    if (args->values[1].kind == BERTH_JINJA_ABSENT) {
        BERTH_TRY(berth_jinja_want_integer(j, &args->values[0], &bounds[1]));
    } else {
        for (size_t i = 0; i < 3; ++i) {
            BERTH_TRY(berth_jinja_want_integer(j, &args->values[i], &bounds[i]));
        }
    }
    if (bounds[2] == 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "range: the step must not be zero");
    }
    return fill_range(j, bounds, out);
}

// ---- dicts and namespaces ----

static berth_status add_pairs(berth_jinja *j, const berth_jinja_value *from,
                              berth_jinja_dict *dict) {
    if (from->kind == BERTH_JINJA_DICT || from->kind == BERTH_JINJA_NAMESPACE) {
        for (size_t i = 0; i < from->as.dict->count; ++i) {
            BERTH_TRY(
                berth_jinja_dict_set(j, dict, from->as.dict->keys[i], from->as.dict->values[i]));
        }
        return BERTH_OK;
    }
    berth_jinja_list *pairs, *pair;
    BERTH_TRY(berth_jinja_items(j, from, &pairs));
    for (size_t i = 0; i < pairs->count; ++i) {
        BERTH_TRY(berth_jinja_items(j, &pairs->items[i], &pair));
        if (pair->count != 2) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "dict() needs pairs, not %zu values",
                                    pair->count);
        }
        BERTH_TRY(berth_jinja_dict_set(j, dict, pair->items[0], pair->items[1]));
    }
    return BERTH_OK;
}

static berth_status make_dict(berth_jinja *j, const berth_jinja_args *args, berth_jinja_kind kind,
                              berth_jinja_value *out) {
    const berth_jinja_call *call = args->call;
    if (call->count > 1) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                "dict() and namespace() take one value and "
                                "named ones");
    }
    BERTH_TRY(berth_jinja_dict_new(j, kind, 0, out));
    if (call->count == 1) {
        BERTH_TRY(add_pairs(j, &call->items[0], out->as.dict));
    }
    for (size_t i = 0; i < call->named_count; ++i) {
        BERTH_TRY(
            berth_jinja_dict_set(j, out->as.dict, berth_jinja_str(call->names[i]), call->named[i]));
    }
    return BERTH_OK;
}

static berth_status dict(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return make_dict(j, args, BERTH_JINJA_DICT, out);
}

static berth_status new_namespace(berth_jinja *j, const berth_jinja_args *args,
                                  berth_jinja_value *out) {
    return make_dict(j, args, BERTH_JINJA_NAMESPACE, out);
}

// ---- what changes from call to call ----

static berth_status cycler(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    if (args->call->count == 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "cycler needs values to choose from");
    }
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_CYCLER, args->call->count, out));
    for (size_t i = 0; i < args->call->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, out->as.list, args->call->items[i]));
    }
    return BERTH_OK;
}

static berth_status joiner(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    const bool has_text = args->values[0].kind != BERTH_JINJA_ABSENT;
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_JOINER, 1, out));
    return berth_jinja_list_add(j, out->as.list,
                                has_text ? args->values[0] : berth_jinja_str(BERTH_STR(", ")));
}

// ---- transformers' own ----

static berth_status raise_exception(berth_jinja *j, const berth_jinja_args *args,
                                    berth_jinja_value *out) {
    berth_str message;
    (void)out;
    BERTH_TRY(berth_jinja_to_str(j, &args->values[0], &message));
    return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "the template refuses: " BERTH_STR_FMT,
                            BERTH_STR_ARG(message));
}

static berth_status strftime_now(berth_jinja *j, const berth_jinja_args *args,
                                 berth_jinja_value *out) {
    char format[TIME_BYTES / 4];
    char result[TIME_BYTES];
    berth_str text = {0};
    struct tm now;
    const time_t seconds = (time_t)j->now;
    BERTH_TRY(berth_jinja_want_str(j, &args->values[0], &text));
    if (text.size >= sizeof(format) || !localtime_r(&seconds, &now)) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "strftime_now: a format of %zu bytes",
                                text.size);
    }
    memcpy(format, text.size > 0 ? text.data : "", text.size);
    format[text.size] = '\0';
    const size_t size = strftime(result, sizeof(result), format, &now);
    return berth_jinja_copy(j, (berth_str){.data = result, .size = size}, out);
}

const berth_jinja_builtin berth_jinja_functions[] = {
    {.name = "range",       .run = range, .least = 1, .parameters = {"start", "stop", "step"}},
    {.name = "dict",           .run = dict, .is_free = true},
    {.name = "namespace",                     .run = new_namespace, .is_free = true},
    {.name = "cycler",.run = cycler, .is_free = true},
    {.name = "joiner",                     .run = joiner, .parameters = {"sep"}},
    {.name = "raise_exception",.run = raise_exception, .least = 1, .parameters = {"message"}},
    {.name = "strftime_now",                     .run = strftime_now, .least = 1, .parameters = {"format"}},
    {.name = NULL        },
};
