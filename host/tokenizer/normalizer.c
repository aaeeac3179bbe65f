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

#define TEXT_BYTES_LEAST 4096              // what even an empty text may grow to
#define TEXT_BYTES_MOST  ((size_t)1 << 30) // BPE counts the symbols of a word in an int32_t

static const struct {
    const char *name;
    berth_normalize_kind kind;
    berth_unicode_form form;
} kinds[] = {
    {.name = "Prepend",             .kind = BERTH_NORMALIZE_PREPEND},
    {.name = "Replace",             .kind = BERTH_NORMALIZE_REPLACE},
    {.name = "NFC",                 .kind = BERTH_NORMALIZE_FORM,    .form = BERTH_UNICODE_NFC},
    {.name = "NFD",                             .kind = BERTH_NORMALIZE_FORM,                                                .form = BERTH_UNICODE_NFD},
    {.name = "NFKC",    .kind = BERTH_NORMALIZE_FORM,.form = BERTH_UNICODE_NFKC},
    {.name = "NFKD",.kind = BERTH_NORMALIZE_FORM,                .form = BERTH_UNICODE_NFKD},
    {.name = "Lowercase",                .kind = BERTH_NORMALIZE_LOWERCASE                     },
    {.name = "Strip",                             .kind = BERTH_NORMALIZE_STRIP                                         },
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
    default:
        return BERTH_OK;
    }
}

// Prepending and replacing make characters of others, or of none.
static void note_changes(berth_normalizer *normalizer, const berth_normalize_step *step) {
    const bool is_strip = step->kind == BERTH_NORMALIZE_STRIP;
    normalizer->loses_first |= step->kind == BERTH_NORMALIZE_PREPEND ||
                               step->kind == BERTH_NORMALIZE_REPLACE ||
                               (step->strips_left && normalizer->changes_characters);
    normalizer->changes_characters |= !is_strip;
}

static berth_status add_step(berth_normalizer *normalizer, berth_arena *arena,
                             const berth_json *json, size_t kind) {
    berth_normalize_step step = {.kind = kinds[kind].kind, .form = kinds[kind].form};
    if (normalizer->count == BERTH_NORMALIZER_STEPS) {
        return berth_json_fail(BERTH_UNSUPPORTED, json, "more than %d normalizers",
                               BERTH_NORMALIZER_STEPS);
    }
    BERTH_TRY(read_members(&step, arena, json));
    note_changes(normalizer, &step);
    normalizer->steps[normalizer->count++] = step;
    return BERTH_OK;
}

static berth_status read_steps(berth_normalizer *normalizer, berth_arena *arena,
                               const berth_json *json) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(json, "type", &type));
    for (size_t i = 0; i < BERTH_COUNT(kinds); ++i) {
        if (berth_str_equal_cstr(type, kinds[i].name)) {
            return add_step(normalizer, arena, json, i);
        }
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

static berth_status normalize(const berth_normalize_step *step, runner *r) {
    if (berth_unicode_is_normal(r->stretch->text, step->form)) {
        return BERTH_OK;
    }
    BERTH_TRY(
        berth_unicode_normalize(r->stretch->text, step->form, &r->scratch->unicode, begin_text(r)));
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

static berth_status run_step(const berth_normalize_step *step, runner *r) {
    switch (step->kind) {
    case BERTH_NORMALIZE_PREPEND:
        return prepend(step, r);
    case BERTH_NORMALIZE_REPLACE:
        return replace(step, r);
    case BERTH_NORMALIZE_FORM:
        return normalize(step, r);
    case BERTH_NORMALIZE_LOWERCASE:
        return lower(r);
    case BERTH_NORMALIZE_STRIP:
        strip(step, r->stretch);
        return BERTH_OK;
    }
    return BERTH_FAIL(INTERNAL, "a normalizer of kind %d", (int)step->kind);
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
