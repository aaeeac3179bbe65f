// SPDX-License-Identifier: Apache-2.0
// Cutting: every stage turns the list of words of the stage before into its own.
#include "tokenizer/splitter.h"

#include <string.h>

#include "base/utf8.h"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static const char *const rule_names[] = {
    [BERTH_SPLIT_ISOLATED] = "Isolated",
    [BERTH_SPLIT_REMOVED] = "Removed",
    [BERTH_SPLIT_CONTIGUOUS] = "Contiguous",
    [BERTH_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [BERTH_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
};

// ---- reading the file ----

// Takes over the stage's pattern.
static berth_status add_stage(berth_splitter *splitter, const berth_json *where,
                              berth_split_stage stage) {
    if (splitter->count == BERTH_SPLITTER_STAGES) {
        berth_pattern_destroy(stage.pattern);
        return berth_json_fail(BERTH_UNSUPPORTED, where, "more than %d pre-tokenizers",
                               BERTH_SPLITTER_STAGES);
    }
    splitter->stages[splitter->count++] = stage;
    return BERTH_OK;
}

static berth_status read_rule(const berth_json *split, berth_split_rule *out_rule) {
    berth_str name;
    BERTH_TRY(berth_json_get_str(split, "behavior", &name));
    for (size_t i = 0; i < BERTH_COUNT(rule_names); ++i) {
        if (berth_str_equal_cstr(name, rule_names[i])) {
            *out_rule = (berth_split_rule)i;
            return BERTH_OK;
        }
    }
    return berth_json_fail(BERTH_UNSUPPORTED, split,
                           "behavior '" BERTH_STR_FMT "' is not supported", BERTH_STR_ARG(name));
}

static berth_status read_pattern(const berth_json *split, berth_pattern **out_pattern) {
    berth_str pattern;
    if (berth_json_has(split, "pattern.String")) {
        BERTH_TRY(berth_json_get_str(split, "pattern.String", &pattern));
        return berth_pattern_literal(pattern, out_pattern);
    }
    BERTH_TRY(berth_json_get_str(split, "pattern.Regex", &pattern));
    BERTH_TRY_NOTE(berth_pattern_compile(pattern, out_pattern), "reading the pre_tokenizer of %s",
                   berth_json_file(split));
    return BERTH_OK;
}

static berth_status read_split(berth_splitter *splitter, const berth_json *split) {
    berth_split_stage stage = {0};
    BERTH_TRY(read_rule(split, &stage.rule));
    BERTH_TRY(berth_json_bool_or(split, "invert", false, &stage.is_inverted));
    BERTH_TRY(read_pattern(split, &stage.pattern));
    return add_stage(splitter, split, stage);
}

static berth_status read_byte_level(berth_splitter *splitter, const berth_json *byte_level) {
    bool has_prefix, has_pattern;
    BERTH_TRY(berth_json_get_bool(byte_level, "add_prefix_space", &has_prefix));
    BERTH_TRY(berth_json_bool_or(byte_level, "use_regex", true, &has_pattern));
    berth_split_stage stage = {0};
    if (has_prefix) {
        BERTH_TRY(add_stage(splitter, byte_level, stage));
    }
    if (has_pattern) {
        BERTH_TRY(berth_pattern_compile(BERTH_STR(GPT2_PATTERN), &stage.pattern));
        BERTH_TRY(add_stage(splitter, byte_level, stage));
    }
    splitter->is_complete = true;
    return BERTH_OK;
}

static berth_status read_step(berth_splitter *splitter, const berth_json *step) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(step, "type", &type));
    if (splitter->is_complete) {
        return berth_json_fail(BERTH_UNSUPPORTED, step,
                               "'" BERTH_STR_FMT "' after ByteLevel is not supported",
                               BERTH_STR_ARG(type));
    }
    if (berth_str_equal_cstr(type, "Split")) {
        return read_split(splitter, step);
    }
    if (berth_str_equal_cstr(type, "ByteLevel")) {
        return read_byte_level(splitter, step);
    }
    return berth_json_fail(BERTH_UNSUPPORTED, step,
                           "pre-tokenizer '" BERTH_STR_FMT "' is not supported: Split, ByteLevel "
                           "and a Sequence of these are",
                           BERTH_STR_ARG(type));
}

static berth_status read_steps(berth_splitter *splitter, const berth_json *pre_tokenizer) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(pre_tokenizer, "type", &type));
    if (!berth_str_equal_cstr(type, "Sequence")) {
        return read_step(splitter, pre_tokenizer);
    }
    const berth_json *steps;
    BERTH_TRY(berth_json_get_array(pre_tokenizer, "pretokenizers", &steps));
    for (size_t i = 0; i < berth_json_size(steps); ++i) {
        BERTH_TRY(read_step(splitter, berth_json_at(steps, i)));
    }
    return BERTH_OK;
}

berth_status berth_splitter_read(berth_splitter *splitter, const berth_json *pre_tokenizer) {
    BERTH_TRY(read_steps(splitter, pre_tokenizer));
    if (!splitter->is_complete) {
        return berth_json_fail(BERTH_UNSUPPORTED, pre_tokenizer,
                               "a pre_tokenizer without ByteLevel is not supported");
    }
    return BERTH_OK;
}

void berth_splitter_deinit(berth_splitter *splitter) {
    for (size_t i = 0; i < splitter->count; ++i) {
        berth_pattern_destroy(splitter->stages[i].pattern);
    }
}

// ---- cutting ----

typedef struct cutter {
    const berth_split_stage *stage;
    berth_words *words;
    berth_str text;
    size_t start, end; // the word at hand
    bool was_match;    // what its last piece was
} cutter;

static berth_status close_word(cutter *c) {
    if (c->start == c->end) {
        return BERTH_OK;
    }
    return berth_array_push(c->words, berth_str_slice(c->text, c->start, c->end - c->start));
}

static bool joins_word(const cutter *c, bool is_match) {
    switch (c->stage->rule) {
    case BERTH_SPLIT_CONTIGUOUS:
        return is_match == c->was_match;
    case BERTH_SPLIT_MERGED_WITH_PREVIOUS:
        return is_match && !c->was_match;
    case BERTH_SPLIT_MERGED_WITH_NEXT:
        return !is_match && c->was_match;
    default:
        return false;
    }
}

// The next piece of the text, from the end of the word at hand to `end`.
static berth_status add_piece(cutter *c, size_t end, bool is_match) {
    is_match ^= c->stage->is_inverted;
    if (!joins_word(c, is_match)) {
        BERTH_TRY(close_word(c));
        c->start = c->end;
    }
    c->end = end;
    c->was_match = is_match;
    if (is_match && c->stage->rule == BERTH_SPLIT_REMOVED) {
        c->start = end;
    }
    return BERTH_OK;
}

// Why an empty match counts: it parts the text where it stands, unless a match ends there.
static berth_status cut_word(const berth_split_stage *stage, berth_str text, berth_matcher *matcher,
                             berth_words *words) {
    cutter c = {.stage = stage, .words = words, .text = text};
    size_t from = 0;
    size_t last_end = SIZE_MAX;
    while (from <= text.size) {
        berth_match match;
        BERTH_TRY(berth_pattern_find(stage->pattern, matcher, text, from, &match));
        if (!match.is_found) {
            break;
        }
        const bool is_empty = match.start == match.end;
        if (!is_empty || match.start != last_end) {
            if (match.start > c.end) {
                BERTH_TRY(add_piece(&c, match.start, false));
            }
            BERTH_TRY(add_piece(&c, match.end, true));
            last_end = match.end;
        }
        const berth_str rest = berth_str_slice(text, match.end, SIZE_MAX);
        from = match.end + (!is_empty ? 0 : rest.size > 0 ? berth_utf8_next(rest, NULL) : 1);
    }
    if (c.end < text.size) {
        BERTH_TRY(add_piece(&c, text.size, false));
    }
    return close_word(&c);
}

static berth_status prefix_words(berth_splitter_scratch *scratch) {
    size_t room = 0;
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        room += scratch->previous.data[i].size + 1;
    }
    scratch->prefixed.count = 0;
    BERTH_TRY(berth_array_reserve(&scratch->prefixed, room));
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        berth_str word = scratch->previous.data[i];
        if (word.data[0] != ' ') {
            char *copy = scratch->prefixed.data + scratch->prefixed.count;
            copy[0] = ' ';
            memcpy(copy + 1, word.data, word.size);
            word = (berth_str){.data = copy, .size = word.size + 1};
            scratch->prefixed.count += word.size;
        }
        BERTH_TRY(berth_array_push(&scratch->words, word));
    }
    return BERTH_OK;
}

static berth_status run_stage(const berth_split_stage *stage, berth_splitter_scratch *scratch) {
    const berth_words done = scratch->previous;
    scratch->previous = scratch->words;
    scratch->words = done;
    scratch->words.count = 0;
    if (!stage->pattern) {
        return prefix_words(scratch);
    }
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        BERTH_TRY(cut_word(stage, scratch->previous.data[i], scratch->matcher, &scratch->words));
    }
    return BERTH_OK;
}

berth_status berth_splitter_cut(const berth_splitter *splitter, berth_str text,
                                berth_splitter_scratch *scratch) {
    if (!scratch->matcher) {
        BERTH_TRY(berth_matcher_create(&scratch->matcher));
    }
    scratch->words.count = 0;
    if (text.size > 0) {
        BERTH_TRY(berth_array_push(&scratch->words, text));
    }
    for (size_t i = 0; i < splitter->count; ++i) {
        BERTH_TRY(run_stage(&splitter->stages[i], scratch));
    }
    return BERTH_OK;
}

void berth_splitter_scratch_deinit(berth_splitter_scratch *scratch) {
    berth_array_free(&scratch->words);
    berth_array_free(&scratch->previous);
    berth_array_free(&scratch->prefixed);
    berth_matcher_destroy(scratch->matcher);
}
