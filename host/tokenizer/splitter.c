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

static berth_status read_split(berth_splitter *splitter, const berth_json *split) {
    berth_split_stage stage = {0};
    BERTH_TRY(read_rule(split, &stage.rule));
    BERTH_TRY(berth_json_bool_or(split, "invert", false, &stage.is_inverted));
    BERTH_TRY(berth_pattern_read(split, &stage.pattern));
    return add_stage(splitter, split, stage);
}

static berth_status read_byte_level(berth_splitter *splitter, const berth_json *byte_level) {
    bool has_prefix, has_pattern;
    BERTH_TRY(berth_json_get_bool(byte_level, "add_prefix_space", &has_prefix));
    BERTH_TRY(berth_json_bool_or(byte_level, "use_regex", true, &has_pattern));
    if (has_prefix) {
        const berth_split_stage stage = {.kind = BERTH_SPLIT_PREFIX};
        BERTH_TRY(add_stage(splitter, byte_level, stage));
    }
    if (has_pattern) {
        berth_split_stage stage = {0};
        BERTH_TRY(berth_pattern_compile(BERTH_STR(GPT2_PATTERN), &stage.pattern));
        BERTH_TRY(add_stage(splitter, byte_level, stage));
    }
    splitter->last = "ByteLevel";
    splitter->is_byte_level = true;
    return BERTH_OK;
}

static berth_status read_metaspace(berth_splitter *splitter, const berth_json *metaspace) {
    berth_split_stage stage = {.kind = BERTH_SPLIT_METASPACE};
    BERTH_TRY(berth_metaspace_read(&stage.metaspace, metaspace));
    splitter->last = "Metaspace";
    splitter->marks_first = stage.metaspace.prepend == BERTH_METASPACE_FIRST;
    return add_stage(splitter, metaspace, stage);
}

static berth_status read_step(berth_splitter *splitter, const berth_json *step) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(step, "type", &type));
    if (splitter->last) {
        return berth_json_fail(BERTH_UNSUPPORTED, step,
                               "'" BERTH_STR_FMT "' after %s is not supported", BERTH_STR_ARG(type),
                               splitter->last);
    }
    if (berth_str_equal_cstr(type, "Split")) {
        return read_split(splitter, step);
    }
    if (berth_str_equal_cstr(type, "ByteLevel")) {
        return read_byte_level(splitter, step);
    }
    if (berth_str_equal_cstr(type, "Metaspace")) {
        return read_metaspace(splitter, step);
    }
    return berth_json_fail(BERTH_UNSUPPORTED, step,
                           "pre-tokenizer '" BERTH_STR_FMT "' is not supported: Split, ByteLevel, "
                           "Metaspace and a Sequence of these are",
                           BERTH_STR_ARG(type));
}

berth_status berth_splitter_read(berth_splitter *splitter, const berth_json *pre_tokenizer) {
    if (!pre_tokenizer || berth_json_kind_of(pre_tokenizer) == BERTH_JSON_NULL) {
        return BERTH_OK;
    }
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

// An empty match parts the text where it stands.
static berth_status cut_word(const berth_split_stage *stage, berth_str text, berth_matcher *matcher,
                             berth_words *words) {
    cutter c = {.stage = stage, .words = words, .text = text};
    berth_matches matches = {.pattern = stage->pattern, .matcher = matcher, .text = text};
    berth_match match;
    BERTH_TRY(berth_pattern_next(&matches, &match));
    while (match.is_found) {
        if (match.start > c.end) {
            BERTH_TRY(add_piece(&c, match.start, false));
        }
        BERTH_TRY(add_piece(&c, match.end, true));
        BERTH_TRY(berth_pattern_next(&matches, &match));
    }
    if (c.end < text.size) {
        BERTH_TRY(add_piece(&c, text.size, false));
    }
    return close_word(&c);
}

// Empties `changed` and makes room in it for all words of the stage before.
static berth_status begin_change(berth_splitter_scratch *scratch, size_t bytes_per_blank,
                                 size_t bytes_per_word) {
    size_t room = 0;
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        const berth_str word = scratch->previous.data[i];
        room += word.size + bytes_per_word;
        for (size_t k = 0; k < word.size && bytes_per_blank > 1; ++k) {
            room += word.data[k] == ' ' ? bytes_per_blank - 1 : 0;
        }
    }
    scratch->changed.count = 0;
    return berth_array_reserve(&scratch->changed, room);
}

static void add_bytes(berth_splitter_scratch *scratch, berth_str bytes) {
    memcpy(scratch->changed.data + scratch->changed.count, bytes.data, bytes.size);
    scratch->changed.count += bytes.size;
}

// The word that was put together in `changed` from `start` on.
static berth_status add_changed(berth_splitter_scratch *scratch, size_t start) {
    const berth_str word = {
        .data = scratch->changed.data + start,
        .size = scratch->changed.count - start,
    };
    return word.size > 0 ? berth_array_push(&scratch->words, word) : BERTH_OK;
}

static berth_status prefix_words(berth_splitter_scratch *scratch) {
    BERTH_TRY(begin_change(scratch, 1, 1));
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        const berth_str word = scratch->previous.data[i];
        const size_t start = scratch->changed.count;
        if (word.data[0] == ' ') {
            BERTH_TRY(berth_array_push(&scratch->words, word));
            continue;
        }
        add_bytes(scratch, BERTH_STR(" "));
        add_bytes(scratch, word);
        BERTH_TRY(add_changed(scratch, start));
    }
    return BERTH_OK;
}

static berth_status mark_word(const berth_metaspace *metaspace, berth_str word, bool is_first,
                              berth_splitter_scratch *scratch) {
    const berth_str mark = berth_metaspace_mark(metaspace);
    const bool takes_mark = metaspace->prepend == BERTH_METASPACE_ALWAYS ||
                            (metaspace->prepend == BERTH_METASPACE_FIRST && is_first);
    size_t start = scratch->changed.count;
    if (takes_mark && word.data[0] != ' ' && !berth_str_starts_with(word, mark)) {
        add_bytes(scratch, mark);
    }
    size_t step;
    for (size_t at = 0; at < word.size; at += step) {
        const berth_str rest = berth_str_slice(word, at, SIZE_MAX);
        step = berth_utf8_next(rest, NULL);
        const bool is_blank = rest.data[0] == ' ';
        if (metaspace->is_split && (is_blank || berth_str_starts_with(rest, mark))) {
            BERTH_TRY(add_changed(scratch, start));
            start = scratch->changed.count;
        }
        add_bytes(scratch, is_blank ? mark : berth_str_slice(rest, 0, step));
    }
    return add_changed(scratch, start);
}

// Only the word that begins where the stretch begins can be the first of the text.
static berth_status mark_words(const berth_metaspace *metaspace, berth_stretch stretch,
                               berth_splitter_scratch *scratch) {
    BERTH_TRY(begin_change(scratch, metaspace->mark_size, metaspace->mark_size));
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        const berth_str word = scratch->previous.data[i];
        const bool is_first = stretch.is_first && word.data == stretch.text.data;
        BERTH_TRY(mark_word(metaspace, word, is_first, scratch));
    }
    return BERTH_OK;
}

static berth_status run_stage(const berth_split_stage *stage, berth_stretch stretch,
                              berth_splitter_scratch *scratch) {
    const berth_words done = scratch->previous;
    scratch->previous = scratch->words;
    scratch->words = done;
    scratch->words.count = 0;
    if (stage->kind == BERTH_SPLIT_PREFIX) {
        return prefix_words(scratch);
    }
    if (stage->kind == BERTH_SPLIT_METASPACE) {
        return mark_words(&stage->metaspace, stretch, scratch);
    }
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        BERTH_TRY(cut_word(stage, scratch->previous.data[i], scratch->matcher, &scratch->words));
    }
    return BERTH_OK;
}

berth_status berth_splitter_cut(const berth_splitter *splitter, berth_stretch stretch,
                                berth_splitter_scratch *scratch) {
    if (!scratch->matcher) {
        BERTH_TRY(berth_matcher_create(&scratch->matcher));
    }
    scratch->words.count = 0;
    if (stretch.text.size > 0) {
        BERTH_TRY(berth_array_push(&scratch->words, stretch.text));
    }
    for (size_t i = 0; i < splitter->count; ++i) {
        BERTH_TRY(run_stage(&splitter->stages[i], stretch, scratch));
    }
    return BERTH_OK;
}

void berth_splitter_scratch_deinit(berth_splitter_scratch *scratch) {
    berth_array_free(&scratch->words);
    berth_array_free(&scratch->previous);
    berth_array_free(&scratch->changed);
    berth_matcher_destroy(scratch->matcher);
}
