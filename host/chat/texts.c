// SPDX-License-Identifier: Apache-2.0
// Filters of strings. What is no string becomes one first.
#include <string.h>

#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

#define WIDTH_LIMIT ((int64_t)1 << 20)

typedef berth_status (*writer_fn)(berth_jinja *j, const berth_jinja_args *args, berth_str self,
                                  berth_text *text);

// Runs a function that writes a text made of the filtered one.
static berth_status write_with(berth_jinja *j, const berth_jinja_args *args, writer_fn write,
                               berth_jinja_value *out) {
    berth_str self;
    berth_text text;
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &self));
    BERTH_TRY(berth_jinja_spend(j, self.size / 16));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = write(j, args, self, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

// Calls the method of strings of the same meaning.
static berth_status call_method(berth_jinja *j, const berth_jinja_args *args, const char *name,
                                berth_jinja_value *out) {
    berth_str text;
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &text));
    const berth_jinja_value self = berth_jinja_str(text);
    const berth_jinja_builtin *method =
        berth_jinja_method(BERTH_JINJA_STRING, berth_str_from(name));
    return berth_jinja_run(j, method, &self, args->call, out);
}

static berth_status upper(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return call_method(j, args, "upper", out);
}

static berth_status lower(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return call_method(j, args, "lower", out);
}

static berth_status capitalize(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    return call_method(j, args, "capitalize", out);
}

static berth_status trim(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_call call = {.items = (berth_jinja_value[]){args->values[0]}, .count = 1};
    berth_jinja_args each = {.self = args->self, .call = &call};
    call.count = args->values[0].kind == BERTH_JINJA_ABSENT ? 0 : 1;
    return call_method(j, &each, "strip", out);
}

static berth_status replace(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_value items[3];
    berth_jinja_call call = {.items = items, .count = 2};
    const berth_jinja_args each = {.self = args->self, .call = &call};
    for (size_t i = 0; i < 2; ++i) {
        berth_str text;
        BERTH_TRY(berth_jinja_to_str(j, &args->values[i], &text));
        items[i] = berth_jinja_str(text);
    }
    if (args->values[2].kind > BERTH_JINJA_NONE) {
        items[call.count++] = args->values[2];
    }
    return call_method(j, &each, "replace", out);
}

static berth_status center(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_jinja_value width = berth_jinja_integer(80);
    berth_jinja_call call = {.items = &width, .count = 1};
    const berth_jinja_args each = {.self = args->self, .call = &call};
    width = args->values[0].kind == BERTH_JINJA_ABSENT ? width : args->values[0];
    return call_method(j, &each, "center", out);
}

// ---- title ----

static bool begins_word(uint32_t before) {
    return before == '-' || before == '(' || before == '{' || before == '[' || before == '<' ||
           berth_jinja_char_is(before, BERTH_JINJA_SPACE);
}

static berth_status write_title(berth_jinja *j, const berth_jinja_args *args, berth_str self,
                                berth_text *text) {
    (void)j;
    (void)args;
    size_t start = 0;
    size_t step;
    for (size_t at = 0; at < self.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(self, at, 4), &code);
        if (!begins_word(code) && at + step < self.size) {
            continue;
        }
        const size_t end = at + step;
        const berth_str word = berth_str_slice(self, start, end - start);
        const size_t first = berth_utf8_next(word, NULL);
        berth_jinja_change_case(berth_str_slice(word, 0, first), BERTH_JINJA_UPPER, text);
        berth_jinja_change_case(berth_str_slice(word, first, SIZE_MAX), BERTH_JINJA_LOWER, text);
        start = end;
    }
    return BERTH_OK;
}

static berth_status title(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return write_with(j, args, write_title, out);
}

// ---- indent ----

static berth_status indent_of(berth_jinja *j, const berth_jinja_value *width, berth_str *out) {
    int64_t count = 4;
    void *blanks;
    if (width->kind == BERTH_JINJA_STRING) {
        *out = width->as.string;
        return BERTH_OK;
    }
    BERTH_TRY(berth_jinja_want_integer(j, width, &count));
    if (count > WIDTH_LIMIT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "an indent of %lld", (long long)count);
    }
    const size_t size = count < 0 ? 0 : (size_t)count;
    BERTH_TRY(berth_jinja_alloc(j, size + 1, 1, &blanks));
    memset(blanks, ' ', size);
    *out = (berth_str){.data = blanks, .size = size};
    return BERTH_OK;
}

static berth_status write_indented(berth_jinja *j, const berth_jinja_args *args, berth_str self,
                                   berth_text *text) {
    static const berth_jinja_call none = {0};
    const bool has_first = berth_jinja_truth_or(&args->values[1], false);
    const bool has_blank = berth_jinja_truth_or(&args->values[2], false);
    const berth_jinja_value value = berth_jinja_str(self);
    berth_str indent;
    berth_jinja_value split;
    BERTH_TRY(indent_of(j, &args->values[0], &indent));
    BERTH_TRY(berth_jinja_run(j, berth_jinja_method(BERTH_JINJA_STRING, BERTH_STR("splitlines")),
                              &value, &none, &split));
    const berth_jinja_list *lines = split.as.list;
    // A newline at the end is followed by one more line, which is empty.
    const bool has_last = self.size == 0 || self.data[self.size - 1] == '\n';
    const size_t count = lines->count + (has_last ? 1 : 0);
    berth_text_add(text, has_first ? indent : (berth_str){0});
    for (size_t i = 0; i < count; ++i) {
        const berth_str line = i < lines->count ? lines->items[i].as.string : (berth_str){0};
        berth_text_add_cstr(text, i > 0 ? "\n" : "");
        berth_text_add(text, i > 0 && (has_blank || line.size > 0) ? indent : (berth_str){0});
        berth_text_add(text, line);
    }
    return BERTH_OK;
}

static berth_status indent(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    if (args->self.kind != BERTH_JINJA_STRING) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "indent needs a str, not '%s'",
                                berth_jinja_type(&args->self));
    }
    return write_with(j, args, write_indented, out);
}

// ---- the others ----

static berth_status wordcount(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    berth_str self;
    int64_t count = 0;
    bool was_word = false;
    size_t step;
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &self));
    for (size_t at = 0; at < self.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(self, at, 4), &code);
        const bool is_word = code == '_' || berth_jinja_char_is(code, BERTH_JINJA_ALPHABETIC) ||
                             berth_jinja_char_is(code, BERTH_JINJA_DIGIT);
        count += is_word && !was_word;
        was_word = is_word;
    }
    *out = berth_jinja_integer(count);
    return berth_jinja_spend(j, self.size / 16);
}

// What truncate keeps, its sign for what it cut, and by how much a text may be longer.
static berth_status read_limits(berth_jinja *j, const berth_jinja_args *args, berth_str *out_end,
                                int64_t *out_length, int64_t *out_leeway) {
    *out_end = BERTH_STR("...");
    *out_length = 255;
    *out_leeway = 5;
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[0], out_length));
    BERTH_TRY(berth_jinja_want_str(j, &args->values[2], out_end));
    if (args->values[3].kind > BERTH_JINJA_NONE) {
        BERTH_TRY(berth_jinja_want_integer(j, &args->values[3], out_leeway));
    }
    if (*out_length < (int64_t)berth_jinja_char_count(*out_end) || *out_leeway < 0 ||
        *out_leeway > INT64_MAX - *out_length) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "truncate: a length of %lld",
                                (long long)*out_length);
    }
    return BERTH_OK;
}

static berth_status write_truncated(berth_jinja *j, const berth_jinja_args *args, berth_str self,
                                    berth_text *text) {
    int64_t length, leeway;
    berth_str end;
    BERTH_TRY(read_limits(j, args, &end, &length, &leeway));
    if ((int64_t)berth_jinja_char_count(self) <= length + leeway) {
        berth_text_add(text, self);
        return BERTH_OK;
    }
    const size_t kept = (size_t)length - berth_jinja_char_count(end);
    berth_str front = berth_str_slice(self, 0, berth_jinja_char_offset(self, kept));
    const char *blank = front.size > 0 ? memrchr(front.data, ' ', front.size) : NULL;
    if (blank && !berth_jinja_truth_or(&args->values[1], false)) {
        front.size = (size_t)(blank - front.data);
    }
    berth_text_add(text, front);
    berth_text_add(text, end);
    return BERTH_OK;
}

// Whatever has a length passes while it is short enough; only a str can be cut.
static berth_status truncate(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    size_t size;
    int64_t length, leeway;
    berth_str end;
    if (args->self.kind == BERTH_JINJA_STRING || args->self.kind == BERTH_JINJA_UNDEFINED) {
        return write_with(j, args, write_truncated, out);
    }
    BERTH_TRY(read_limits(j, args, &end, &length, &leeway));
    BERTH_TRY(berth_jinja_size(j, &args->self, &size));
    if (size > (uint64_t)length + (uint64_t)leeway) {
        return BERTH_JINJA_FAIL(j, UNSUPPORTED, "truncate of a long '%s' is not supported",
                                berth_jinja_type(&args->self));
    }
    *out = args->self;
    return BERTH_OK;
}

// The values of "%s %s" stand behind it, or by name.
static berth_status format(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_str self;
    berth_jinja_value values;
    BERTH_TRY(berth_jinja_to_str(j, &args->self, &self));
    if (args->call->named_count > 0) {
        BERTH_TRY(berth_jinja_dict_new(j, BERTH_JINJA_DICT, 0, &values));
        for (size_t i = 0; i < args->call->named_count; ++i) {
            BERTH_TRY(berth_jinja_dict_set(j, values.as.dict, berth_jinja_str(args->call->names[i]),
                                           args->call->named[i]));
        }
        return berth_jinja_percent(j, self, &values, out);
    }
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_TUPLE, 0, &values));
    for (size_t i = 0; i < args->call->count; ++i) {
        BERTH_TRY(berth_jinja_list_add(j, values.as.list, args->call->items[i]));
    }
    return berth_jinja_percent(j, self, &values, out);
}

const berth_jinja_builtin berth_jinja_text_filters[] = {
    {.name = "upper",          .run = upper},
    {.name = "lower",                        .run = lower},
    {.name = "capitalize",.run = capitalize},
    {.name = "title",     .run = title},
    {.name = "trim",                        .run = trim, .parameters = {"chars"}},
    {.name = "replace",        .run = replace, .least = 2, .parameters = {"old", "new", "count"}},
    {.name = "center",           .run = center, .parameters = {"width"}},
    {.name = "indent", .run = indent, .parameters = {"width", "first", "blank"}},
    {.name = "wordcount",        .run = wordcount},
    {.name = "truncate",              .run = truncate, .parameters = {"length", "killwords", "end", "leeway"}},
    {.name = "format",                        .run = format, .is_free = true},
    {.name = NULL},
};
