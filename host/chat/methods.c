// SPDX-License-Identifier: Apache-2.0
// Python's methods of strings: cutting, searching, replacing, padding.
#include <string.h>

#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

#define WIDTH_LIMIT ((int64_t)1 << 24)

static berth_status add_str(berth_jinja *j, berth_jinja_list *list, berth_str piece) {
    return berth_jinja_list_add(j, list, berth_jinja_str(piece));
}

// ---- letter case ----

static berth_status in_case(berth_jinja *j, const berth_jinja_args *args, berth_jinja_case to,
                            berth_jinja_value *out) {
    berth_text text;
    BERTH_TRY(berth_jinja_spend(j, args->self.as.string.size / 16));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_jinja_change_case(args->self.as.string, to, &text);
    const berth_status status = berth_jinja_take(j, &text, out);
    berth_text_deinit(&text);
    return status;
}

static berth_status upper(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return in_case(j, args, BERTH_JINJA_UPPER, out);
}

static berth_status lower(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return in_case(j, args, BERTH_JINJA_LOWER, out);
}

static berth_status title(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return in_case(j, args, BERTH_JINJA_TITLE, out);
}

static berth_status capitalize(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    return in_case(j, args, BERTH_JINJA_CAPITALIZE, out);
}

static berth_status swapcase(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return in_case(j, args, BERTH_JINJA_SWAP, out);
}

// ---- ends ----

static berth_status strip_sides(berth_jinja *j, const berth_jinja_args *args, unsigned sides,
                                berth_jinja_value *out) {
    berth_str set = {0};
    if (args->values[0].kind > BERTH_JINJA_NONE) {
        BERTH_TRY(berth_jinja_want_str(j, &args->values[0], &set));
        set.data = set.data ? set.data : "";
    }
    BERTH_TRY(berth_jinja_spend(j, (set.size / 16 + 1) * (args->self.as.string.size / 16 + 1)));
    *out = berth_jinja_str(berth_jinja_strip(args->self.as.string, set, sides));
    return BERTH_OK;
}

static berth_status strip(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return strip_sides(j, args, BERTH_JINJA_STRIP_LEFT | BERTH_JINJA_STRIP_RIGHT, out);
}

static berth_status lstrip(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return strip_sides(j, args, BERTH_JINJA_STRIP_LEFT, out);
}

static berth_status rstrip(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return strip_sides(j, args, BERTH_JINJA_STRIP_RIGHT, out);
}

static berth_status removeprefix(berth_jinja *j, const berth_jinja_args *args,
                                 berth_jinja_value *out) {
    const berth_str self = args->self.as.string;
    berth_str prefix = {0};
    BERTH_TRY(berth_jinja_want_str(j, &args->values[0], &prefix));
    *out = args->self;
    if (berth_str_starts_with(self, prefix)) {
        out->as.string = berth_str_slice(self, prefix.size, SIZE_MAX);
    }
    return BERTH_OK;
}

static berth_status removesuffix(berth_jinja *j, const berth_jinja_args *args,
                                 berth_jinja_value *out) {
    const berth_str self = args->self.as.string;
    berth_str suffix = {0};
    BERTH_TRY(berth_jinja_want_str(j, &args->values[0], &suffix));
    *out = args->self;
    if (berth_str_ends_with(self, suffix)) {
        out->as.string = berth_str_slice(self, 0, self.size - suffix.size);
    }
    return BERTH_OK;
}

// ---- splitting ----

// The next piece between white space; false at the end.
static bool next_word(berth_str *rest, berth_str *out) {
    *rest = berth_jinja_strip(*rest, (berth_str){0}, BERTH_JINJA_STRIP_LEFT);
    size_t size = 0;
    for (size_t step; size < rest->size; size += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(*rest, size, 4), &code);
        if (berth_jinja_char_is(code, BERTH_JINJA_SPACE)) {
            break;
        }
    }
    *out = berth_str_slice(*rest, 0, size);
    *rest = berth_str_slice(*rest, size, SIZE_MAX);
    return size > 0;
}

static berth_status split_words(berth_jinja *j, berth_str text, int64_t most,
                                berth_jinja_list *out) {
    for (int64_t count = 0; most < 0 || count < most; ++count) {
        berth_str word;
        if (!next_word(&text, &word)) {
            return BERTH_OK;
        }
        BERTH_TRY(add_str(j, out, word));
    }
    text = berth_jinja_strip(text, (berth_str){0}, BERTH_JINJA_STRIP_LEFT);
    return text.size > 0 ? add_str(j, out, text) : BERTH_OK;
}

static berth_status split_at(berth_jinja *j, berth_str text, berth_str mark, int64_t most,
                             berth_jinja_list *out) {
    for (int64_t count = 0; most < 0 || count < most; ++count) {
        const size_t found = berth_jinja_find(text, mark, 0);
        if (found == SIZE_MAX) {
            break;
        }
        BERTH_TRY(add_str(j, out, berth_str_slice(text, 0, found)));
        text = berth_str_slice(text, found + mark.size, SIZE_MAX);
    }
    return add_str(j, out, text);
}

static bool last_word(berth_str *rest, berth_str *out) {
    *rest = berth_jinja_strip(*rest, (berth_str){0}, BERTH_JINJA_STRIP_RIGHT);
    size_t start = rest->size;
    for (size_t before; start > 0; start = before) {
        const uint32_t code = berth_jinja_char_before(*rest, start, &before);
        if (berth_jinja_char_is(code, BERTH_JINJA_SPACE)) {
            break;
        }
    }
    *out = berth_str_slice(*rest, start, SIZE_MAX);
    rest->size = start;
    return out->size > 0;
}

// What a search from behind may cost: it compares at every place.
static berth_status pay_for_search(berth_jinja *j, berth_str text, berth_str part) {
    return berth_jinja_spend(j, (text.size / 64 + 1) * (part.size / 64 + 1));
}

// The last place of `part` that ends at `end` or before, or SIZE_MAX.
static size_t find_last(berth_str text, berth_str part, size_t end) {
    for (size_t at = end < part.size ? SIZE_MAX : end - part.size; at != SIZE_MAX; --at) {
        if (berth_str_equal(berth_str_slice(text, at, part.size), part)) {
            return at;
        }
    }
    return SIZE_MAX;
}

static berth_status rsplit_pieces(berth_jinja *j, berth_str text, const berth_str *mark,
                                  int64_t most, berth_jinja_list *out) {
    berth_str piece;
    int64_t count = 0;
    for (; most < 0 || count < most; ++count) {
        if (!mark) {
            if (!last_word(&text, &piece)) {
                return BERTH_OK;
            }
        } else {
            const size_t found = find_last(text, *mark, text.size);
            if (found == SIZE_MAX) {
                break;
            }
            piece = berth_str_slice(text, found + mark->size, SIZE_MAX);
            text.size = found;
        }
        BERTH_TRY(add_str(j, out, piece));
    }
    text = mark ? text : berth_jinja_strip(text, (berth_str){0}, BERTH_JINJA_STRIP_RIGHT);
    return mark || text.size > 0 ? add_str(j, out, text) : BERTH_OK;
}

static berth_status read_split(berth_jinja *j, const berth_jinja_args *args, berth_str *mark,
                               int64_t *most) {
    if (args->values[0].kind > BERTH_JINJA_NONE) {
        BERTH_TRY(berth_jinja_want_str(j, &args->values[0], mark));
        if (mark->size == 0) {
            return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "split: an empty separator");
        }
    }
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[1], most));
    return pay_for_search(j, args->self.as.string, *mark);
}

static berth_status split(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_str mark = {0};
    int64_t most = -1;
    BERTH_TRY(read_split(j, args, &mark, &most));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, out));
    return mark.size > 0 ? split_at(j, args->self.as.string, mark, most, out->as.list)
                         : split_words(j, args->self.as.string, most, out->as.list);
}

static berth_status rsplit(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_str mark = {0};
    int64_t most = -1;
    BERTH_TRY(read_split(j, args, &mark, &most));
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, out));
    berth_jinja_list *list = out->as.list;
    BERTH_TRY(rsplit_pieces(j, args->self.as.string, mark.size > 0 ? &mark : NULL, most, list));
    for (size_t i = 0; i < list->count / 2; ++i) {
        const berth_jinja_value other = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = list->items[i];
        list->items[i] = other;
    }
    return BERTH_OK;
}

static bool ends_line(uint32_t code) {
    return (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

static berth_status splitlines(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    const bool keeps = berth_jinja_truth_or(&args->values[0], false);
    const berth_str text = args->self.as.string;
    size_t start = 0;
    size_t step;
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_LIST, 0, out));
    for (size_t at = 0; at < text.size; at += step) {
        uint32_t code;
        step = berth_utf8_next(berth_str_slice(text, at, 4), &code);
        if (!ends_line(code)) {
            continue;
        }
        step += code == '\r' && at + 1 < text.size && text.data[at + 1] == '\n';
        const size_t end = keeps ? at + step : at;
        BERTH_TRY(add_str(j, out->as.list, berth_str_slice(text, start, end - start)));
        start = at + step;
    }
    return start < text.size ? add_str(j, out->as.list, berth_str_slice(text, start, SIZE_MAX))
                             : BERTH_OK;
}

static berth_status part_at(berth_jinja *j, const berth_jinja_args *args, bool is_last,
                            berth_jinja_value *out) {
    const berth_str text = args->self.as.string;
    berth_str mark = {0};
    BERTH_TRY(berth_jinja_want_str(j, &args->values[0], &mark));
    if (mark.size == 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "partition: an empty separator");
    }
    BERTH_TRY(pay_for_search(j, text, mark));
    const size_t found =
        is_last ? find_last(text, mark, text.size) : berth_jinja_find(text, mark, 0);
    const bool is_there = found != SIZE_MAX;
    const size_t at = is_there ? found : is_last ? 0 : text.size;
    BERTH_TRY(berth_jinja_list_new(j, BERTH_JINJA_TUPLE, 3, out));
    BERTH_TRY(add_str(j, out->as.list, berth_str_slice(text, 0, at)));
    BERTH_TRY(add_str(j, out->as.list, is_there ? mark : (berth_str){0}));
    return add_str(j, out->as.list,
                   berth_str_slice(text, is_there ? at + mark.size : at, SIZE_MAX));
}

static berth_status partition(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    return part_at(j, args, false, out);
}

static berth_status rpartition(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    return part_at(j, args, true, out);
}

// ---- searching ----

// The bytes between the characters that two arguments name.
typedef struct window {
    berth_str text;
    size_t start;  // in the whole text
    bool is_valid; // false: the arguments name none
} window;

static berth_status window_of(berth_jinja *j, const berth_jinja_args *args, window *out) {
    const berth_str text = args->self.as.string;
    const int64_t count = (int64_t)berth_jinja_char_count(text);
    int64_t bounds[2] = {0, count};
    for (size_t i = 0; i < 2; ++i) {
        if (args->values[1 + i].kind > BERTH_JINJA_NONE) {
            BERTH_TRY(berth_jinja_want_integer(j, &args->values[1 + i], &bounds[i]));
        }
        bounds[i] = bounds[i] < -count ? 0 : bounds[i] < 0 ? bounds[i] + count : bounds[i];
    }
    bounds[1] = bounds[1] > count ? count : bounds[1];
    out->is_valid = bounds[0] <= bounds[1];
    out->start = out->is_valid ? berth_jinja_char_offset(text, (size_t)bounds[0]) : 0;
    const size_t end = out->is_valid ? berth_jinja_char_offset(text, (size_t)bounds[1]) : 0;
    out->text = berth_str_slice(text, out->start, end - out->start);
    return berth_jinja_spend(j, text.size / 16);
}

// What is looked for, and where.
static berth_status search_of(berth_jinja *j, const berth_jinja_args *args, berth_str *out_part,
                              window *out_in) {
    BERTH_TRY(berth_jinja_want_str(j, &args->values[0], out_part));
    return window_of(j, args, out_in);
}

typedef bool (*affix_fn)(berth_str str, berth_str affix);

static berth_status has_affix(berth_jinja *j, const berth_jinja_args *args, affix_fn holds,
                              berth_jinja_value *out) {
    const berth_jinja_value *affix = &args->values[0];
    window in;
    const berth_jinja_list one = {.items = (berth_jinja_value[]){*affix}, .count = 1};
    const berth_jinja_list *list = affix->kind == BERTH_JINJA_TUPLE ? affix->as.list : &one;
    BERTH_TRY(window_of(j, args, &in));
    *out = berth_jinja_bool(false);
    for (size_t i = 0; i < list->count; ++i) {
        berth_str text = {0};
        BERTH_TRY(berth_jinja_want_str(j, &list->items[i], &text));
        out->as.boolean |= in.is_valid && holds(in.text, text);
    }
    return BERTH_OK;
}

static berth_status startswith(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    return has_affix(j, args, berth_str_starts_with, out);
}

static berth_status endswith(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return has_affix(j, args, berth_str_ends_with, out);
}

static berth_status find_place(berth_jinja *j, const berth_jinja_args *args, bool is_last,
                               berth_jinja_value *out) {
    window in;
    berth_str part = {0};
    BERTH_TRY(search_of(j, args, &part, &in));
    BERTH_TRY(pay_for_search(j, in.text, part));
    const size_t found = !in.is_valid ? SIZE_MAX
                         : is_last    ? find_last(in.text, part, in.text.size)
                                      : berth_jinja_find(in.text, part, 0);
    const berth_str before = berth_str_slice(args->self.as.string, 0, in.start + found);
    *out = berth_jinja_integer(found == SIZE_MAX ? -1 : (int64_t)berth_jinja_char_count(before));
    return BERTH_OK;
}

static berth_status find(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return find_place(j, args, false, out);
}

static berth_status rfind(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return find_place(j, args, true, out);
}

static berth_status must_find(berth_jinja *j, const berth_jinja_value *found) {
    return found->as.integer < 0 ? BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "substring not found")
                                 : BERTH_OK;
}

static berth_status index_of(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    BERTH_TRY(find_place(j, args, false, out));
    return must_find(j, out);
}

static berth_status rindex_of(berth_jinja *j, const berth_jinja_args *args,
                              berth_jinja_value *out) {
    BERTH_TRY(find_place(j, args, true, out));
    return must_find(j, out);
}

static berth_status count(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    window in;
    berth_str part = {0};
    BERTH_TRY(search_of(j, args, &part, &in));
    *out = berth_jinja_integer(0);
    if (part.size == 0) {
        out->as.integer = in.is_valid ? (int64_t)berth_jinja_char_count(in.text) + 1 : 0;
        return BERTH_OK;
    }
    for (size_t at = 0; in.is_valid && (at = berth_jinja_find(in.text, part, at)) != SIZE_MAX;
         at += part.size) {
        ++out->as.integer;
    }
    return BERTH_OK;
}

// ---- replacing and joining ----

// Blanks up to the next multiple of the width, in place of each tab.
static berth_status expandtabs(berth_jinja *j, const berth_jinja_args *args,
                               berth_jinja_value *out) {
    const berth_str self = args->self.as.string;
    int64_t width = 8;
    int64_t column = 0;
    berth_text text;
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[0], &width));
    width = width < 0 ? 0 : width > WIDTH_LIMIT ? WIDTH_LIMIT : width;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    for (size_t i = 0; i < self.size; ++i) {
        const char byte = self.data[i];
        if (byte != '\t') {
            berth_text_add_char(&text, byte);
            column = byte == '\n' || byte == '\r' ? 0 : column + (((uint8_t)byte & 0xC0) != 0x80);
            continue;
        }
        for (int64_t left = width > 0 ? width - column % width : 0; left > 0; --left, ++column) {
            berth_text_add_char(&text, ' ');
        }
    }
    const berth_status status = berth_jinja_take(j, &text, out);
    berth_text_deinit(&text);
    return status;
}

// An empty `old` stands before every character and at the end.
static void replace_into(berth_str text, const berth_str parts[2], int64_t most, berth_text *out) {
    for (; most != 0; --most) {
        const size_t found = berth_jinja_find(text, parts[0], 0);
        if (found == SIZE_MAX) {
            break;
        }
        berth_text_add(out, berth_str_slice(text, 0, found));
        berth_text_add(out, parts[1]);
        text = berth_str_slice(text, found + parts[0].size, SIZE_MAX);
        if (parts[0].size == 0) {
            const size_t step = berth_utf8_next(text, NULL);
            berth_text_add(out, berth_str_slice(text, 0, step));
            text = berth_str_slice(text, step, SIZE_MAX);
            if (step == 0) {
                break;
            }
        }
    }
    berth_text_add(out, text);
}

static berth_status replace(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_str parts[2] = {{0}};
    int64_t most = -1;
    berth_text text;
    for (size_t i = 0; i < 2; ++i) {
        BERTH_TRY(berth_jinja_want_str(j, &args->values[i], &parts[i]));
    }
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[2], &most));
    BERTH_TRY(berth_jinja_spend(j, args->self.as.string.size / 16));
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    replace_into(args->self.as.string, parts, most, &text);
    const berth_status status = berth_jinja_take(j, &text, out);
    berth_text_deinit(&text);
    return status;
}

static berth_status join_strings(berth_jinja *j, const berth_jinja_args *args, berth_text *text) {
    berth_jinja_list *items;
    BERTH_TRY(berth_jinja_items(j, &args->values[0], &items));
    for (size_t i = 0; i < items->count; ++i) {
        berth_str piece = {0};
        BERTH_TRY(berth_jinja_want_str(j, &items->items[i], &piece));
        berth_text_add(text, i > 0 ? args->self.as.string : (berth_str){0});
        berth_text_add(text, piece);
    }
    return BERTH_OK;
}

static berth_status join(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    berth_text text;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = join_strings(j, args, &text);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status format(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return berth_jinja_format(j, args->self.as.string, args->call, out);
}

// ---- padding ----

static void add_times(berth_text *text, berth_str piece, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
        berth_text_add(text, piece);
    }
}

// `left_share` of what is missing goes to the left: 0 none, 1 half, 2 all of it.
static berth_status pad(berth_jinja *j, const berth_jinja_args *args, int left_share,
                        berth_jinja_value *out) {
    const berth_str self = args->self.as.string;
    berth_str fill = BERTH_STR(" ");
    int64_t width = 0;
    berth_text text;
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[0], &width));
    BERTH_TRY(berth_jinja_want_str(j, &args->values[1], &fill));
    if (berth_jinja_char_count(fill) != 1 || width > WIDTH_LIMIT) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT, "padding to %lld with '" BERTH_STR_FMT "'",
                                (long long)width, BERTH_STR_ARG(fill));
    }
    const int64_t size = (int64_t)berth_jinja_char_count(self);
    const int64_t missing = width > size ? width - size : 0;
    const int64_t left = left_share == 2   ? missing
                         : left_share == 1 ? missing / 2 + (missing & width & 1)
                                           : 0;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    add_times(&text, fill, left);
    berth_text_add(&text, self);
    add_times(&text, fill, missing - left);
    const berth_status status = berth_jinja_take(j, &text, out);
    berth_text_deinit(&text);
    return status;
}

static berth_status center(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return pad(j, args, 1, out);
}

static berth_status ljust(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return pad(j, args, 0, out);
}

static berth_status rjust(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    return pad(j, args, 2, out);
}

const berth_jinja_builtin berth_jinja_str_methods[] = {
    {.name = "upper",                    .run = upper},
    {.name = "lower",                                  .run = lower},
    {.name = "casefold",.run = lower},
    {.name = "title",                 .run = title},
    {.name = "capitalize",                                  .run = capitalize},
    {.name = "swapcase",      .run = swapcase},
    {.name = "strip",               .run = strip, .parameters = {"chars"}},
    {.name = "lstrip",                                  .run = lstrip, .parameters = {"chars"}},
    {.name = "rstrip",              .run = rstrip, .parameters = {"chars"}},
    {.name = "removeprefix",                    .run = removeprefix, .least = 1, .parameters = {"prefix"}},
    {.name = "removesuffix",           .run = removesuffix, .least = 1, .parameters = {"suffix"}},
    {.name = "split",                   .run = split, .parameters = {"sep", "maxsplit"}},
    {.name = "rsplit",           .run = rsplit, .parameters = {"sep", "maxsplit"}},
    {.name = "splitlines",                   .run = splitlines, .parameters = {"keepends"}},
    {.name = "partition",           .run = partition, .least = 1, .parameters = {"sep"}},
    {.name = "rpartition",             .run = rpartition, .least = 1, .parameters = {"sep"}},
    {.name = "startswith",                        .run = startswith, .least = 1, .parameters = {"prefix", "start", "end"}},
    {.name = "endswith",                                  .run = endswith, .least = 1, .parameters = {"suffix", "start", "end"}},
    {.name = "find",     .run = find, .least = 1, .parameters = {"sub", "start", "end"}},
    {.name = "rfind",          .run = rfind, .least = 1, .parameters = {"sub", "start", "end"}},
    {.name = "index",                    .run = index_of, .least = 1, .parameters = {"sub", "start", "end"}},
    {.name = "rindex", .run = rindex_of, .least = 1, .parameters = {"sub", "start", "end"}},
    {.name = "count",                   .run = count, .least = 1, .parameters = {"sub", "start", "end"}},
    {.name = "replace", .run = replace, .least = 2, .parameters = {"old", "new", "count"}},
    {.name = "join",               .run = join, .least = 1, .parameters = {"iterable"}},
    {.name = "expandtabs",        .run = expandtabs, .parameters = {"tabsize"}},
    {.name = "format",                .run = format, .is_free = true},
    {.name = "center",                        .run = center, .least = 1, .parameters = {"width", "fillchar"}},
    {.name = "ljust",                                  .run = ljust, .least = 1, .parameters = {"width", "fillchar"}},
    {.name = "rjust",     .run = rjust, .least = 1, .parameters = {"width", "fillchar"}},
    {.name = NULL            },
};
