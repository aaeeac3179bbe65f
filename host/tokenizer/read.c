// SPDX-License-Identifier: Apache-2.0
// From the files to the parts of a tokenizer. The order is that of need: ids first, then what
// refers to them.
//
// What is read past, because it changes neither ids nor text here: truncation and padding (the
// engine's limits decide), trim_offsets (there are no offsets), a pair template (there is one
// text).
#include "base/str.h"
#include "tokenizer/parts.h"

static const char *const kind_names[] = {
    [BERTH_TOKENIZER_BPE] = "BPE",
    [BERTH_TOKENIZER_UNIGRAM] = "Unigram",
    [BERTH_TOKENIZER_WORD_LEVEL] = "WordLevel",
    [BERTH_TOKENIZER_WORDPIECE] = "WordPiece",
};

// Why a missing type is BPE: files of the first years do not say it.
static berth_status read_kind(berth_tokenizer *t, const berth_json *file) {
    berth_str type;
    BERTH_TRY(berth_json_str_or(file, "model.type", BERTH_STR("BPE"), &type));
    for (size_t i = 0; i < BERTH_COUNT(kind_names); ++i) {
        if (berth_str_equal_cstr(type, kind_names[i])) {
            t->kind = (berth_tokenizer_kind)i;
            return BERTH_OK;
        }
    }
    return berth_json_fail(BERTH_UNSUPPORTED, berth_json_find(file, "model"),
                           "model '" BERTH_STR_FMT "' is not supported", BERTH_STR_ARG(type));
}

static berth_status read_vocabulary(berth_tokenizer *t, const berth_source *source) {
    const berth_json *file = source->file;
    const berth_json *vocab = source->vocab;
    BERTH_TRY(read_kind(t, file));
    if (t->kind == BERTH_TOKENIZER_UNIGRAM) {
        BERTH_TRY(berth_json_get_array(file, "model.vocab", &vocab));
        return berth_unigram_vocabulary(&t->vocabulary, t->arena, vocab);
    }
    BERTH_TRY(berth_json_get_object(vocab ? vocab : file, vocab ? "" : "model.vocab", &vocab));
    return berth_vocabulary_read(&t->vocabulary, t->arena, vocab);
}

static berth_status read_added_tokens(berth_tokenizer *t, const berth_json *file) {
    if (!berth_json_has(file, "added_tokens")) {
        return BERTH_OK;
    }
    const berth_json *list;
    BERTH_TRY(berth_json_get_array(file, "added_tokens", &list));
    for (size_t i = 0; i < berth_json_size(list); ++i) {
        const berth_json *entry = berth_json_at(list, i);
        int64_t id;
        BERTH_TRY(berth_json_get_i64(entry, "id", &id));
        BERTH_TRY(berth_added_read(&t->added, &t->vocabulary, t->arena, id, entry));
    }
    return BERTH_OK;
}

// Why these count as well: a checkpoint's own loader adds them over those of tokenizer.json.
static berth_status read_added_tokens_decoder(berth_tokenizer *t, const berth_json *config) {
    if (!berth_json_has(config, "added_tokens_decoder")) {
        return BERTH_OK;
    }
    const berth_json *entries;
    BERTH_TRY(berth_json_get_object(config, "added_tokens_decoder", &entries));
    for (size_t i = 0; i < berth_json_size(entries); ++i) {
        const berth_json *entry = berth_json_at(entries, i);
        int64_t id;
        BERTH_TRY_NOTE(berth_str_parse_i64(berth_json_key_at(entries, i), &id),
                       "reading added_tokens_decoder of %s", berth_json_file(config));
        BERTH_TRY(berth_added_read(&t->added, &t->vocabulary, t->arena, id, entry));
    }
    return BERTH_OK;
}

// A token that is named as text or as {"content": text}; it becomes a special one. A class names
// those that tokenizer_config.json does not speak of.
static berth_status read_named(berth_tokenizer *t, const berth_source *source, const char *key,
                               int32_t *out_id) {
    const berth_json *value = source->config ? berth_json_find(source->config, key) : NULL;
    if (!value && source->is_made) {
        value = berth_json_find(source->file, key);
    }
    berth_str content;
    if (!value || berth_json_kind_of(value) == BERTH_JSON_NULL) {
        return BERTH_OK;
    }
    const char *path = berth_json_kind_of(value) == BERTH_JSON_OBJECT ? "content" : "";
    BERTH_TRY(berth_json_get_str(value, path, &content));
    *out_id = berth_vocabulary_find(&t->vocabulary, content);
    if (*out_id < 0) {
        return berth_json_fail(BERTH_CORRUPT, value,
                               "'" BERTH_STR_FMT "' is no token of the vocabulary",
                               BERTH_STR_ARG(content));
    }
    return berth_added_name(&t->added, &t->vocabulary, *out_id);
}

static berth_status read_config(berth_tokenizer *t, const berth_source *source) {
    const berth_json *config = source->config;
    if (config) {
        BERTH_TRY(berth_json_get_object(config, "", &config));
        BERTH_TRY(read_added_tokens_decoder(t, config));
    }
    BERTH_TRY(read_named(t, source, "bos_token", &t->bos_id));
    return read_named(t, source, "eos_token", &t->eos_id);
}

// Why the switches beat the file's template: they are what a checkpoint's own loader goes by.
static berth_status read_switches(berth_tokenizer *t, const berth_json *config) {
    bool has_bos, has_eos;
    BERTH_TRY(berth_json_bool_or(config, "add_bos_token", false, &has_bos));
    BERTH_TRY(berth_json_bool_or(config, "add_eos_token", false, &has_eos));
    if (!berth_json_has(config, "add_bos_token") && !berth_json_has(config, "add_eos_token")) {
        return BERTH_OK;
    }
    return berth_template_replace(&t->template, has_bos ? t->bos_id : -1, has_eos ? t->eos_id : -1);
}

// Why so much is refused: which words come of a text's first character, and so take the mark, could
// only be told by tracing every character through the normalizer.
static bool can_tell_first(const berth_tokenizer *t) {
    const bool has_pieces = t->splitter.count > 1 || t->added.counts[BERTH_ADDED_NORMALIZED] > 0;
    return !t->normalizer.loses_first && !(has_pieces && t->normalizer.changes_characters);
}

static berth_status read_splitter(berth_tokenizer *t, const berth_json *file) {
    const berth_json *pre_tokenizer = berth_json_find(file, "pre_tokenizer");
    BERTH_TRY(berth_splitter_read(&t->splitter, pre_tokenizer));
    if (t->splitter.marks_first && !can_tell_first(t)) {
        return berth_json_fail(BERTH_UNSUPPORTED, pre_tokenizer,
                               "Metaspace with prepend_scheme 'first' is not supported behind this "
                               "normalizer: which word is the first could not be told");
    }
    return BERTH_OK;
}

static berth_status read_bpe(berth_tokenizer *t, const berth_source *source) {
    const berth_json *model;
    const berth_json *merges = source->merges;
    BERTH_TRY(berth_json_get_object(source->file, "model", &model));
    BERTH_TRY(berth_json_get_array(merges ? merges : model, merges ? "" : "merges", &merges));
    t->bpe.vocabulary = &t->vocabulary;
    t->bpe.is_byte_level = t->splitter.is_byte_level;
    return berth_bpe_read(&t->bpe, t->arena, model, merges);
}

static berth_status read_model(berth_tokenizer *t, const berth_source *source) {
    const berth_json *model = berth_json_find(source->file, "model");
    switch (t->kind) {
    case BERTH_TOKENIZER_BPE:
        return read_bpe(t, source);
    case BERTH_TOKENIZER_UNIGRAM:
        t->unigram.vocabulary = &t->vocabulary;
        return berth_unigram_read(&t->unigram, t->arena, model);
    case BERTH_TOKENIZER_WORD_LEVEL:
    case BERTH_TOKENIZER_WORDPIECE:
        t->wordpiece.vocabulary = &t->vocabulary;
        return berth_wordpiece_read(&t->wordpiece, t->arena, model,
                                    t->kind == BERTH_TOKENIZER_WORDPIECE);
    }
    return BERTH_FAIL(INTERNAL, "a model of kind %d", (int)t->kind);
}

berth_status berth_tokenizer_read(berth_tokenizer *t, const berth_source *source) {
    const berth_json *file = source->file;
    BERTH_TRY(read_vocabulary(t, source));
    BERTH_TRY(read_added_tokens(t, file));
    BERTH_TRY(read_config(t, source));
    BERTH_TRY(berth_normalizer_read(&t->normalizer, t->arena, berth_json_find(file, "normalizer")));
    BERTH_TRY(berth_added_finish(&t->added, &t->vocabulary, t->arena, &t->normalizer));
    BERTH_TRY(read_splitter(t, file));
    BERTH_TRY(read_model(t, source));
    if (!t->bpe.is_byte_level) {
        berth_splitter_spell(&t->splitter);
    }
    BERTH_TRY(berth_decoding_read(&t->decoding, t->arena, &t->vocabulary,
                                  berth_json_find(file, "decoder")));
    BERTH_TRY(
        berth_template_read(&t->template, &t->vocabulary, berth_json_find(file, "post_processor")));
    return source->config ? read_switches(t, source->config) : BERTH_OK;
}
