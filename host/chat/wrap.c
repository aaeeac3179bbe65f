// SPDX-License-Identifier: Apache-2.0
// wordwrap: lines of at most so many characters, as Python's textwrap breaks them. A line is cut
// into chunks, white space and words and the parts of hyphenated words, which are then packed.
#include <string.h>

#include "base/utf8.h"
#include "chat/characters.h"
#include "chat/evaluate.h"

typedef struct wrapper {
    berth_jinja *j;
    size_t width; // characters
    bool breaks_words, breaks_hyphens;
    berth_str separator;
    berth_text *text;
    berth_str source; // the paragraph at hand
    size_t lines;     // written of it
    size_t at;        // what is not packed yet
    size_t rest;      // bytes of the chunk there, when it was asked before
} wrapper;

// ---- chunks ----

// textwrap knows the white space of ASCII only.
static bool is_blank(uint32_t code) {
    return code == ' ' || (code >= '\t' && code <= '\r');
}

static bool is_word(uint32_t code) {
    return code == '_' || berth_jinja_char_is(code, BERTH_JINJA_ALPHABETIC) ||
           berth_jinja_char_is(code, BERTH_JINJA_NUMERIC);
}

static bool is_letter(uint32_t code) {
    return is_word(code) && !berth_jinja_char_is(code, BERTH_JINJA_DIGIT);
}

static uint32_t char_at(berth_str line, size_t at) {
    uint32_t code = BERTH_UTF8_BAD;
    (void)berth_utf8_next(berth_str_slice(line, at, 4), &code);
    return at < line.size ? code : BERTH_UTF8_BAD;
}

static uint32_t char_before(berth_str line, size_t end) {
    size_t start;
    return berth_jinja_char_before(line, end, &start);
}

// Two or more hyphens at `at` between a word, or what may end one, and a word. Returns their bytes.
static size_t dash_size(berth_str line, size_t at) {
    const uint32_t before = char_before(line, at);
    size_t size = 0;
    // Why first: a long run of hyphens is then counted once, not from each of them.
    if (!is_word(before) && !(before < 128 && before > 0 && strchr("!\"'&.,?", (int)before))) {
        return 0;
    }
    while (at + size < line.size && line.data[at + size] == '-') {
        ++size;
    }
    return size >= 2 && is_word(char_at(line, at + size)) ? size : 0;
}

// Whether a word may be broken behind the hyphen that ends at `end`: two letters, or a letter, a
// hyphen and a letter stand before it, and two letters follow, with or without a hyphen between.
static bool is_soft_hyphen(berth_str line, size_t end) {
    size_t first, second;
    const size_t hyphen = end - 1;
    const bool is_behind_letter = is_letter(berth_jinja_char_before(line, hyphen, &first));
    const uint32_t before = berth_jinja_char_before(line, first, &second);
    if (!is_behind_letter ||
        !(is_letter(before) || (before == '-' && is_letter(char_before(line, second))))) {
        return false;
    }
    if (!is_letter(char_at(line, end))) {
        return false;
    }
    size_t next = end + berth_utf8_next(berth_str_slice(line, end, 4), NULL);
    next += char_at(line, next) == '-';
    return is_letter(char_at(line, next));
}

static size_t blanks_size(berth_str line, size_t at) {
    size_t end = at;
    while (end < line.size && is_blank((uint8_t)line.data[end])) {
        ++end;
    }
    return end - at;
}

// The bytes of the chunk at `at`.
static size_t chunk_size(const wrapper *w, berth_str line, size_t at) {
    const size_t blanks = blanks_size(line, at);
    const size_t dash = w->breaks_hyphens ? dash_size(line, at) : 0;
    if (blanks > 0 || dash > 0) {
        return blanks > 0 ? blanks : dash;
    }
    size_t end = at;
    do {
        const bool is_hyphen = line.data[end] == '-';
        end += berth_utf8_next(berth_str_slice(line, end, 4), NULL);
        if (w->breaks_hyphens &&
            ((is_hyphen && is_soft_hyphen(line, end)) || dash_size(line, end) > 0)) {
            break;
        }
    } while (end < line.size && !is_blank((uint8_t)line.data[end]));
    return end - at;
}

// ---- lines ----

// The bytes of a word too long for any line that still go into `room` characters of this one.
static size_t break_word(const wrapper *w, berth_str word, size_t room) {
    const size_t size = berth_jinja_char_offset(word, room);
    bool has_other = false;
    size_t best = size;
    for (size_t i = 0; i < size && w->breaks_hyphens; ++i) {
        if (word.data[i] == '-' && has_other) {
            best = i + 1;
        }
        has_other |= word.data[i] != '-';
    }
    return best;
}

static bool is_only_space(berth_str text) {
    return berth_jinja_strip(text, (berth_str){0}, BERTH_JINJA_STRIP_LEFT).size == 0;
}

// The next chunk. Why it is remembered: what is left of a broken word is one, and is not looked at
// again for hyphens.
static berth_str peek(wrapper *w) {
    if (w->rest == 0 && w->at < w->source.size) {
        w->rest = chunk_size(w, w->source, w->at);
    }
    return berth_str_slice(w->source, w->at, w->rest);
}

static void take(wrapper *w, size_t size) {
    w->at += size;
    w->rest -= size;
}

// Takes what fits on one line. Returns where its last piece begins.
static size_t fill_line(wrapper *w) {
    const size_t start = w->at;
    size_t last = start;
    size_t used = 0;
    berth_str piece = peek(w);
    size_t count = berth_jinja_char_count(piece);
    while (piece.size > 0 && used + count <= w->width) {
        last = w->at;
        used += count;
        take(w, piece.size);
        piece = peek(w);
        count = berth_jinja_char_count(piece);
    }
    if (count > w->width && w->breaks_words) {
        last = w->at;
        take(w, break_word(w, piece, w->width - used));
    } else if (count > w->width && w->at == start) {
        take(w, piece.size);
    }
    return last;
}

// White space is neither at the end of a line nor, but for the first, at its beginning.
static void pack_line(wrapper *w) {
    if (w->lines > 0 && is_only_space(peek(w))) {
        take(w, w->rest);
    }
    const size_t start = w->at;
    const size_t last = fill_line(w);
    const bool ends_blank =
        w->at > last && is_only_space(berth_str_slice(w->source, last, w->at - last));
    const size_t size = (ends_blank ? last : w->at) - start;
    if (size > 0) {
        berth_text_add(w->text, w->lines > 0 ? w->separator : (berth_str){0});
        berth_text_add(w->text, berth_str_slice(w->source, start, size));
        ++w->lines;
    }
}

static berth_status wrap_paragraphs(wrapper *w, const berth_jinja_value *self) {
    static const berth_jinja_call none = {0};
    berth_jinja_value lines;
    BERTH_TRY(berth_jinja_run(w->j, berth_jinja_method(BERTH_JINJA_STRING, BERTH_STR("splitlines")),
                              self, &none, &lines));
    for (size_t i = 0; i < lines.as.list->count; ++i) {
        berth_text_add(w->text, i > 0 ? w->separator : (berth_str){0});
        w->source = lines.as.list->items[i].as.string;
        w->at = w->lines = w->rest = 0;
        BERTH_TRY(berth_jinja_spend(w->j, 1 + w->source.size / 8));
        while (w->at < w->source.size) {
            pack_line(w);
            // A word longer than a line is counted again for each line of it.
            BERTH_TRY(berth_jinja_spend(w->j, 1 + w->rest / 16));
        }
    }
    return BERTH_OK;
}

static berth_status wordwrap(berth_jinja *j, const berth_jinja_args *args, berth_jinja_value *out) {
    int64_t width = 79;
    berth_text text;
    wrapper w = {
        .j = j,
        .breaks_words = berth_jinja_truth_or(&args->values[1], true),
        .breaks_hyphens = berth_jinja_truth_or(&args->values[3], true),
        .separator = BERTH_STR("\n"),
        .text = &text,
    };
    BERTH_TRY(berth_jinja_want_integer(j, &args->values[0], &width));
    if (args->values[2].kind != BERTH_JINJA_NONE) {
        BERTH_TRY(berth_jinja_want_str(j, &args->values[2], &w.separator));
    }
    if (args->self.kind != BERTH_JINJA_STRING || width <= 0) {
        return BERTH_JINJA_FAIL(j, INVALID_ARGUMENT,
                                "wordwrap needs a str and a width above 0, not '%s' and %lld",
                                berth_jinja_type(&args->self), (long long)width);
    }
    w.width = (size_t)width;
    berth_text_init(&text, BERTH_JINJA_OUTPUT);
    berth_status status = wrap_paragraphs(&w, &args->self);
    if (status == BERTH_OK) {
        status = berth_jinja_take(j, &text, out);
    }
    berth_text_deinit(&text);
    return status;
}

const berth_jinja_builtin berth_jinja_wrap_filters[] = {
    {
     .name = "wordwrap",
     .run = wordwrap,
     .parameters = {"width", "break_long_words", "wrapstring", "break_on_hyphens"},
     },
    {.name = NULL},
};
