// SPDX-License-Identifier: Apache-2.0
// Cutting: every stage turns the list of words of the stage before into its own.
#include "tokenizer/splitter.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/alphabet.h"
#include "tokenizer/scripts.h"

void berth_splitter_spell(berth_splitter *splitter) {
    if (splitter->is_byte_level) {
        splitter->stages[splitter->count++] = (berth_split_stage){.kind = BERTH_SPLIT_SPELL};
        splitter->is_byte_level = false;
    }
}

void berth_splitter_deinit(berth_splitter *splitter) {
    for (size_t i = 0; i < splitter->count; ++i) {
        berth_pattern_destroy(splitter->stages[i].pattern);
    }
}

// ---- patterns ----

typedef struct cutter {
    const berth_split_stage *stage;
    berth_words *words;
    berth_stretch word; // the one that is cut
    size_t start, end;  // the piece at hand
    bool was_match;     // what its last part was
} cutter;

static berth_status close_piece(cutter *c) {
    if (c->start == c->end) {
        return BERTH_OK;
    }
    const berth_stretch piece = {
        .text = berth_str_slice(c->word.text, c->start, c->end - c->start),
        .is_first = c->word.is_first && c->start == 0,
    };
    return berth_array_push(c->words, piece);
}

static bool joins_piece(const cutter *c, bool is_match) {
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

// The next part of the word, from the end of the piece at hand to `end`.
static berth_status add_part(cutter *c, size_t end, bool is_match) {
    is_match ^= c->stage->is_inverted;
    if (!joins_piece(c, is_match)) {
        BERTH_TRY(close_piece(c));
        c->start = c->end;
    }
    c->end = end;
    c->was_match = is_match;
    if (is_match && c->stage->rule == BERTH_SPLIT_REMOVED) {
        c->start = end;
    }
    return BERTH_OK;
}

// An empty match parts the word where it stands.
static berth_status cut_word(const berth_split_stage *stage, berth_stretch word,
                             berth_splitter_scratch *scratch) {
    const size_t size = word.text.size;
    cutter c = {.stage = stage, .words = &scratch->words, .word = word};
    berth_matches matches = {
        .pattern = stage->pattern, .matcher = scratch->matcher, .text = word.text};
    berth_match match;
    BERTH_TRY(berth_pattern_next(&matches, &match));
    while (match.is_found) {
        if (match.start > c.end) {
            BERTH_TRY(add_part(&c, match.start, false));
        }
        BERTH_TRY(add_part(&c, match.end, true));
        BERTH_TRY(berth_pattern_next(&matches, &match));
    }
    if (c.end < size) {
        BERTH_TRY(add_part(&c, size, false));
    }
    return close_piece(&c);
}

// ---- scripts ----

// What has no script goes with what is before it; in front of all scripts it is dropped.
static berth_status cut_scripts(berth_stretch word, berth_words *words) {
    cutter c = {.words = words, .word = word};
    unsigned last = 0;
    size_t step;
    for (size_t at = 0; at < word.text.size; at += step) {
        uint32_t code = 0;
        step = berth_utf8_next(berth_str_slice(word.text, at, SIZE_MAX), &code);
        const unsigned script = berth_script_of(code);
        if (script != 0 && script != last) {
            c.end = last == 0 ? c.start : at;
            BERTH_TRY(close_piece(&c));
            c.start = at;
            last = script;
        }
    }
    c.end = last == 0 ? c.start : word.text.size;
    return close_piece(&c);
}

// ---- words that change ----

// Puts words together in memory that has room for them.
typedef struct builder {
    berth_words *words;
    char *data;
    size_t start, end; // the word at hand
    bool is_first;     // it is the text's first
} builder;

static void add_bytes(builder *b, berth_str bytes) {
    memcpy(b->data + b->end, bytes.data, bytes.size);
    b->end += bytes.size;
}

static berth_status finish_word(builder *b) {
    const berth_stretch word = {
        .text = {.data = b->data + b->start, .size = b->end - b->start},
        .is_first = b->is_first,
    };
    if (word.text.size == 0) {
        return BERTH_OK;
    }
    b->start = b->end;
    b->is_first = false;
    return berth_array_push(b->words, word);
}

static berth_status prefix_word(const berth_split_stage *stage, berth_str word, builder *b) {
    (void)stage;
    if (word.data[0] != ' ') {
        add_bytes(b, BERTH_STR(" "));
    }
    add_bytes(b, word);
    return finish_word(b);
}

static berth_status spell_word(const berth_split_stage *stage, berth_str word, builder *b) {
    (void)stage;
    b->end += berth_alphabet_spell(word, b->data + b->end);
    return finish_word(b);
}

static berth_status mark_word(const berth_split_stage *stage, berth_str word, builder *b) {
    const berth_metaspace *metaspace = &stage->metaspace;
    const berth_str mark = berth_metaspace_mark(metaspace);
    const bool takes_mark = metaspace->prepend == BERTH_METASPACE_ALWAYS ||
                            (metaspace->prepend == BERTH_METASPACE_FIRST && b->is_first);
    if (takes_mark && word.data[0] != ' ' && !berth_str_starts_with(word, mark)) {
        add_bytes(b, mark);
    }
    size_t step;
    for (size_t at = 0; at < word.size; at += step) {
        const berth_str rest = berth_str_slice(word, at, SIZE_MAX);
        step = berth_utf8_next(rest, NULL);
        const bool is_blank = rest.data[0] == ' ';
        if (metaspace->is_split && (is_blank || berth_str_starts_with(rest, mark))) {
            BERTH_TRY(finish_word(b));
        }
        add_bytes(b, is_blank ? mark : berth_str_slice(rest, 0, step));
    }
    return finish_word(b);
}

// How a kind of stage changes words, and how much longer they become.
typedef struct change {
    berth_status (*run)(const berth_split_stage *stage, berth_str word, builder *b);
    size_t bytes_per_word;  // in front
    size_t bytes_per_blank; // a blank becomes so many
    size_t bytes_per_byte;  // any other byte does
} change;

static size_t room_for(const change *how, const berth_words *words) {
    size_t room = 0;
    for (size_t i = 0; i < words->count; ++i) {
        const berth_str word = words->data[i].text;
        size_t blanks = 0;
        for (size_t k = 0; k < word.size; ++k) {
            blanks += word.data[k] == ' ';
        }
        room += how->bytes_per_word + blanks * how->bytes_per_blank +
                (word.size - blanks) * how->bytes_per_byte;
    }
    return room;
}

static berth_status change_words(const berth_split_stage *stage, const change *how,
                                 berth_splitter_scratch *scratch) {
    assert(how->run);
    scratch->turn ^= 1;
    BERTH_TRY(
        berth_array_reserve(&scratch->changed[scratch->turn], room_for(how, &scratch->previous)));
    builder b = {.words = &scratch->words, .data = scratch->changed[scratch->turn].data};
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        b.is_first = scratch->previous.data[i].is_first; // of its first piece
        BERTH_TRY(how->run(stage, scratch->previous.data[i].text, &b));
    }
    return BERTH_OK;
}

static berth_status run_stage(const berth_split_stage *stage, berth_splitter_scratch *scratch) {
    static const change changes[] = {
        [BERTH_SPLIT_PREFIX] = {.run = prefix_word,
                                .bytes_per_word = 1,
                                .bytes_per_blank = 1,
                                .bytes_per_byte = 1},
        [BERTH_SPLIT_METASPACE] = {.run = mark_word,
                                .bytes_per_word = BERTH_METASPACE_BYTES,
                                .bytes_per_blank = BERTH_METASPACE_BYTES,
                                .bytes_per_byte = 1},
        [BERTH_SPLIT_SPELL] = {.run = spell_word, .bytes_per_blank = 2, .bytes_per_byte = 2},
    };
    const berth_words done = scratch->previous;
    scratch->previous = scratch->words;
    scratch->words = done;
    scratch->words.count = 0;
    if (stage->kind != BERTH_SPLIT_PATTERN && stage->kind != BERTH_SPLIT_SCRIPTS) {
        return change_words(stage, &changes[stage->kind], scratch);
    }
    for (size_t i = 0; i < scratch->previous.count; ++i) {
        const berth_stretch word = scratch->previous.data[i];
        BERTH_TRY(stage->kind == BERTH_SPLIT_SCRIPTS ? cut_scripts(word, &scratch->words)
                                                     : cut_word(stage, word, scratch));
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
        BERTH_TRY(berth_array_push(&scratch->words, stretch));
    }
    for (size_t i = 0; i < splitter->count; ++i) {
        BERTH_TRY(run_stage(&splitter->stages[i], scratch));
    }
    return BERTH_OK;
}

void berth_splitter_scratch_deinit(berth_splitter_scratch *scratch) {
    berth_array_free(&scratch->words);
    berth_array_free(&scratch->previous);
    for (size_t i = 0; i < BERTH_COUNT(scratch->changed); ++i) {
        berth_array_free(&scratch->changed[i]);
    }
    berth_matcher_destroy(scratch->matcher);
}
