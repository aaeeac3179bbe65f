// SPDX-License-Identifier: Apache-2.0
// Normalizing: every step turns the text of the step before into its own; a step with nothing to do
// leaves it where it is.
//
// Why a stretch may lose its being first: to the reference that is whatever comes of the character
// at the start of the original text, and that may be gone.
#include "tokenizer/normalizer.h"

#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "tokenizer/alphabet.h"

#define TEXT_BYTES_LEAST 4096              // what even an empty text may grow to
#define TEXT_BYTES_MOST  ((size_t)1 << 30) // BPE counts the symbols of a word in an int32_t

// SentencePiece is what a tokenizer.model asks for; no tokenizer.json has it.
static const char *const kind_names[] = {
    [BERTH_NORMALIZE_NFC] = "NFC",
    [BERTH_NORMALIZE_NFD] = "NFD",
    [BERTH_NORMALIZE_NFKC] = "NFKC",
    [BERTH_NORMALIZE_NFKD] = "NFKD",
    [BERTH_NORMALIZE_PREPEND] = "Prepend",
    [BERTH_NORMALIZE_REPLACE] = "Replace",
    [BERTH_NORMALIZE_LOWERCASE] = "Lowercase",
    [BERTH_NORMALIZE_STRIP] = "Strip",
    [BERTH_NORMALIZE_SPELL] = "ByteLevel",
    [BERTH_NORMALIZE_GRAPHEMES] = "Precompiled",
    [BERTH_NORMALIZE_LONGEST] = "SentencePiece",
    [BERTH_NORMALIZE_DROP_MARKS] = "StripAccents",
    [BERTH_NORMALIZE_NMT] = "Nmt",
};

// ---- reading the file ----

static berth_status read_text(const berth_json *json, const char *key, berth_arena *arena,
                              berth_str *out_text) {
    berth_str text;
    BERTH_TRY(berth_json_get_str(json, key, &text));
    *out_text = (berth_str){.data = berth_arena_copy(arena, text), .size = text.size};
    return out_text->data ? BERTH_OK : berth_arena_exhausted(arena, "a normalizer");
}

static berth_status read_members(berth_normalize_step *step, berth_arena *arena,
                                 const berth_json *json) {
    switch (step->kind) {
    case BERTH_NORMALIZE_PREPEND:
        return read_text(json, "prepend", arena, &step->content);
    case BERTH_NORMALIZE_REPLACE:
        BERTH_TRY(read_text(json, "content", arena, &step->content));
        return berth_pattern_read(json, &step->pattern);
    case BERTH_NORMALIZE_STRIP:
        BERTH_TRY(berth_json_get_bool(json, "strip_left", &step->strips_left));
        return berth_json_get_bool(json, "strip_right", &step->strips_right);
    case BERTH_NORMALIZE_GRAPHEMES:
    case BERTH_NORMALIZE_LONGEST:
        return berth_charsmap_read(&step->charsmap, arena, json);
    default:
        return BERTH_OK;
    }
}

// What every character stays, if not what it was; all others make characters of none, or none.
static bool keeps_characters(berth_normalize_kind kind) {
    return kind <= BERTH_NORMALIZE_NFKD || kind == BERTH_NORMALIZE_LOWERCASE ||
           kind == BERTH_NORMALIZE_SPELL || kind == BERTH_NORMALIZE_STRIP;
}

static void note_changes(berth_normalizer *normalizer, const berth_normalize_step *step) {
    normalizer->loses_first |=
        !keeps_characters(step->kind) || (step->strips_left && normalizer->changes_characters);
    normalizer->changes_characters |= step->kind != BERTH_NORMALIZE_STRIP;
}

static berth_status add_step(berth_normalizer *normalizer, const berth_json *json,
                             berth_normalize_step step) {
    if (normalizer->count == BERTH_NORMALIZER_STEPS) {
        berth_pattern_destroy(step.pattern);
        return berth_json_fail(BERTH_UNSUPPORTED, json, "more than %d normalizers",
                               BERTH_NORMALIZER_STEPS);
    }
    note_changes(normalizer, &step);
    normalizer->steps[normalizer->count++] = step;
    return BERTH_OK;
}

static berth_status read_kind(berth_normalizer *normalizer, berth_arena *arena,
                              const berth_json *json, size_t kind) {
    berth_normalize_step step = {.kind = (berth_normalize_kind)kind};
    BERTH_TRY(read_members(&step, arena, json));
    return add_step(normalizer, json, step);
}

// BERT's: up to five steps. Where nothing is said of accents, they go with the capitals.
static berth_status read_bert(berth_normalizer *normalizer, const berth_json *json) {
    bool cleans, spaces_han, lowers, strips;
    BERTH_TRY(berth_json_bool_or(json, "clean_text", true, &cleans));
    BERTH_TRY(berth_json_bool_or(json, "handle_chinese_chars", true, &spaces_han));
    BERTH_TRY(berth_json_bool_or(json, "lowercase", true, &lowers));
    BERTH_TRY(berth_json_bool_or(json, "strip_accents", lowers, &strips));
    const struct {
        bool is_wanted;
        berth_normalize_kind kind;
    } steps[] = {
        {.is_wanted = cleans,     .kind = BERTH_NORMALIZE_CLEAN          },
        {.is_wanted = spaces_han, .kind = BERTH_NORMALIZE_SPACE_HAN      },
        {.is_wanted = strips,     .kind = BERTH_NORMALIZE_NFD            },
        {.is_wanted = strips,     .kind = BERTH_NORMALIZE_DROP_FLAT_MARKS},
        {.is_wanted = lowers,     .kind = BERTH_NORMALIZE_LOWERCASE      },
    };
    for (size_t i = 0; i < BERTH_COUNT(steps); ++i) {
        const berth_normalize_step step = {.kind = steps[i].kind};
        if (steps[i].is_wanted) {
            BERTH_TRY(add_step(normalizer, json, step));
        }
    }
    return BERTH_OK;
}

static berth_status read_steps(berth_normalizer *normalizer, berth_arena *arena,
                               const berth_json *json) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(json, "type", &type));
    for (size_t i = 0; i < BERTH_COUNT(kind_names); ++i) {
        if (berth_str_equal_cstr(type, kind_names[i])) {
            return read_kind(normalizer, arena, json, i);
        }
    }
    if (berth_str_equal_cstr(type, "BertNormalizer")) {
        return read_bert(normalizer, json);
    }
    if (!berth_str_equal_cstr(type, "Sequence")) {
        return berth_json_fail(BERTH_UNSUPPORTED, json,
                               "normalizer '" BERTH_STR_FMT "' is not supported",
                               BERTH_STR_ARG(type));
    }
    const berth_json *steps;
    BERTH_TRY(berth_json_get_array(json, "normalizers", &steps));
    for (size_t i = 0; i < berth_json_size(steps); ++i) {
        BERTH_TRY(read_steps(normalizer, arena, berth_json_at(steps, i)));
    }
    return BERTH_OK;
}

berth_status berth_normalizer_read(berth_normalizer *normalizer, berth_arena *arena,
                                   const berth_json *json) {
    const bool has_steps = json && berth_json_kind_of(json) != BERTH_JSON_NULL;
    return has_steps ? read_steps(normalizer, arena, json) : BERTH_OK;
}

void berth_normalizer_deinit(berth_normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->count; ++i) {
        berth_pattern_destroy(normalizer->steps[i].pattern);
    }
}

// ---- normalizing ----

typedef struct runner {
    berth_normalizer_scratch *scratch;
    berth_stretch *stretch;
    size_t next; // the scratch text that a step may write
} runner;

static berth_text *begin_text(runner *r) {
    berth_text *out = &r->scratch->texts[r->next];
    berth_text_clear(out);
    return out;
}

static berth_status take_text(runner *r) {
    const berth_text *out = &r->scratch->texts[r->next];
    r->next ^= 1;
    r->stretch->text = berth_text_str(out);
    return berth_text_finish(out, NULL);
}

static berth_status prepend(const berth_normalize_step *step, runner *r) {
    berth_text *out = begin_text(r);
    berth_text_add(out, step->content);
    berth_text_add(out, r->stretch->text);
    return take_text(r);
}

static berth_status replace(const berth_normalize_step *step, runner *r) {
    if (!r->scratch->matcher) {
        BERTH_TRY(berth_matcher_create(&r->scratch->matcher));
    }
    berth_matches matches = {
        .pattern = step->pattern,
        .matcher = r->scratch->matcher,
        .text = r->stretch->text,
    };
    BERTH_TRY(berth_pattern_replace(&matches, step->content, begin_text(r)));
    return take_text(r);
}

static berth_status normalize(berth_unicode_form form, runner *r) {
    if (berth_unicode_is_normal(r->stretch->text, form)) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_unicode_normalize(r->stretch->text, form, &r->scratch->unicode, begin_text(r)));
    return take_text(r);
}

static berth_status lower(runner *r) {
    berth_unicode_lower(r->stretch->text, begin_text(r));
    return take_text(r);
}

static void strip(const berth_normalize_step *step, berth_stretch *stretch) {
    const berth_str text = stretch->text;
    size_t start = 0;
    size_t end = text.size;
    size_t size;
    while (step->strips_left && berth_unicode_is_space(berth_unicode_char_at(text, start, &size))) {
        start += size;
    }
    while (step->strips_right && end > start &&
           berth_unicode_is_space(berth_unicode_char_before(text, end, &size))) {
        end -= size;
    }
    stretch->text = berth_str_slice(text, start, end - start);
    stretch->is_first &= start == 0;
}

static berth_status map_characters(const berth_normalize_step *step, berth_charsmap_way way,
                                   runner *r) {
    berth_charsmap_run(&step->charsmap, way, r->stretch->text, begin_text(r));
    return take_text(r);
}

static berth_status spell(runner *r) {
    const berth_str text = r->stretch->text;
    berth_text *out = begin_text(r);
    for (size_t i = 0; i < text.size; ++i) {
        char spelling[2];
        const size_t size = berth_alphabet_spell(berth_str_slice(text, i, 1), spelling);
        berth_text_add(out, (berth_str){.data = spelling, .size = size});
    }
    return take_text(r);
}

static bool is_nmt_control(uint32_t code) {
    return (code >= 0x01 && code <= 0x08) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
           code == 0x7F || code == 0x8F || code == 0x9F;
}

static bool is_nmt_space(uint32_t code) {
    return code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
}

// What a character becomes: another, or 0 for nothing.
static uint32_t clean(uint32_t code) {
    const bool is_kept = code == '\t' || code == '\n' || code == '\r';
    if (code == 0xFFFD || (berth_unicode_is_control(code) && !is_kept)) {
        return 0;
    }
    return berth_unicode_is_space(code) ? ' ' : code;
}

static uint32_t convert(berth_normalize_kind kind, uint32_t code) {
    switch (kind) {
    case BERTH_NORMALIZE_CLEAN:
        return clean(code);
    case BERTH_NORMALIZE_DROP_MARKS:
        return berth_unicode_is_mark(code) ? 0 : code;
    case BERTH_NORMALIZE_DROP_FLAT_MARKS:
        return berth_unicode_is_flat_mark(code) ? 0 : code;
    case BERTH_NORMALIZE_NMT:
        return is_nmt_control(code) ? 0 : is_nmt_space(code) ? ' ' : code;
    default:
        return code;
    }
}

static berth_status convert_all(berth_normalize_kind kind, runner *r) {
    const berth_str text = r->stretch->text;
    berth_text *out = begin_text(r);
    size_t step;
    for (size_t at = 0; at < text.size; at += step) {
        const uint32_t code = berth_unicode_char_at(text, at, &step);
        const uint32_t result = convert(kind, code);
        const bool is_spaced = kind == BERTH_NORMALIZE_SPACE_HAN && berth_unicode_is_han(code);
        berth_text_add_cstr(out, is_spaced ? " " : "");
        if (result != 0 || (code == 0 && kind != BERTH_NORMALIZE_CLEAN)) {
            berth_unicode_add(out, result);
        }
        berth_text_add_cstr(out, is_spaced ? " " : "");
    }
    return take_text(r);
}

static berth_status run_step(const berth_normalize_step *step, runner *r) {
    switch (step->kind) {
    case BERTH_NORMALIZE_PREPEND:
        return prepend(step, r);
    case BERTH_NORMALIZE_REPLACE:
        return replace(step, r);
    case BERTH_NORMALIZE_NFC:
    case BERTH_NORMALIZE_NFD:
    case BERTH_NORMALIZE_NFKC:
    case BERTH_NORMALIZE_NFKD:
        return normalize((berth_unicode_form)(step->kind - BERTH_NORMALIZE_NFC), r);
    case BERTH_NORMALIZE_LOWERCASE:
        return lower(r);
    case BERTH_NORMALIZE_STRIP:
        strip(step, r->stretch);
        return BERTH_OK;
    case BERTH_NORMALIZE_GRAPHEMES:
        return map_characters(step, BERTH_CHARSMAP_GRAPHEMES, r);
    case BERTH_NORMALIZE_LONGEST:
        return map_characters(step, BERTH_CHARSMAP_LONGEST, r);
    case BERTH_NORMALIZE_SPELL:
        return spell(r);
    default:
        return convert_all(step->kind, r);
    }
}

berth_status berth_normalizer_run(const berth_normalizer *normalizer,
                                  berth_normalizer_scratch *scratch, berth_stretch *stretch) {
    const size_t size = stretch->text.size;
    const size_t grown = TEXT_BYTES_LEAST + size * BERTH_NORMALIZER_GROWTH;
    for (size_t i = 0; i < BERTH_COUNT(scratch->texts); ++i) {
        scratch->texts[i].limit = grown < TEXT_BYTES_MOST ? grown : TEXT_BYTES_MOST;
    }
    runner r = {.scratch = scratch, .stretch = stretch};
    for (size_t i = 0; i < normalizer->count && stretch->text.size > 0; ++i) {
        BERTH_TRY_NOTE(run_step(&normalizer->steps[i], &r), "normalizing a text of %zu bytes",
                       size);
    }
    return BERTH_OK;
}

void berth_normalizer_scratch_deinit(berth_normalizer_scratch *scratch) {
    for (size_t i = 0; i < BERTH_COUNT(scratch->texts); ++i) {
        berth_text_deinit(&scratch->texts[i]);
    }
    berth_unicode_scratch_deinit(&scratch->unicode);
    berth_matcher_destroy(scratch->matcher);
}
