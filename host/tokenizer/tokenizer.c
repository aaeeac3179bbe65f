// SPDX-License-Identifier: Apache-2.0
// A tokenizer from its files, and a text to ids: added tokens are found first, what lies between
// them is normalized, searched again, and cut into words, and every word goes through
// the model.
#include "tokenizer/tokenizer.h"

#include "base/utf8.h"
#include "tokenizer/parts.h"
#include "tokenizer/sentencepiece.h"

#define ARENA_BLOCK ((size_t)1 << 16)
#define ARENA_LIMIT ((size_t)1 << 30) // a vocabulary of 250,000 tokens needs 20 MiB

// ---- open and close ----

static berth_status create(const berth_source *source, berth_tokenizer **out_tokenizer) {
    berth_arena *arena;
    BERTH_TRY(berth_arena_create(ARENA_BLOCK, ARENA_LIMIT, &arena));
    berth_tokenizer *t = BERTH_ARENA_NEW(arena, berth_tokenizer);
    if (!t) {
        const berth_status status = berth_arena_exhausted(arena, "a tokenizer");
        berth_arena_destroy(arena);
        return status;
    }
    t->arena = arena;
    t->bos_id = -1;
    t->eos_id = -1;
    const berth_status status = berth_tokenizer_read(t, source);
    if (status != BERTH_OK) {
        berth_tokenizer_close(t);
        return status;
    }
    *out_tokenizer = t;
    return BERTH_OK;
}

// A value that is missing or of another type is a file that contradicts its format.
static berth_status as_corrupt(berth_status status) {
    if (status != BERTH_NOT_FOUND && status != BERTH_INVALID_ARGUMENT) {
        return status;
    }
    berth_status_report report;
    berth_status_take(&report);
    report.code = BERTH_CORRUPT;
    return berth_status_restore(&report);
}

// Takes over the source, whose loading ended as `status` says.
static berth_status create_from(berth_source *source, berth_status status,
                                berth_tokenizer **out_tokenizer) {
    *out_tokenizer = NULL;
    if (status == BERTH_OK) {
        status = as_corrupt(create(source, out_tokenizer));
    }
    berth_source_deinit(source);
    return status;
}

berth_status berth_tokenizer_open(const char *directory, berth_tokenizer **out_tokenizer) {
    berth_source source = {0};
    const berth_status status = berth_source_load(&source, directory);
    return create_from(&source, status, out_tokenizer);
}

berth_status berth_tokenizer_parse(berth_str tokenizer_json, berth_str config_json,
                                   berth_tokenizer **out_tokenizer) {
    berth_source source = {0};
    berth_status status = berth_json_parse(tokenizer_json, "tokenizer.json", NULL, &source.file);
    if (status == BERTH_OK && config_json.size > 0) {
        status = berth_json_parse(config_json, "tokenizer_config.json", NULL, &source.config);
    }
    return create_from(&source, status, out_tokenizer);
}

berth_status berth_tokenizer_parse_model(berth_str model, berth_tokenizer **out_tokenizer) {
    berth_source source = {.is_made = true};
    const berth_status status =
        berth_sentencepiece_read(model, "tokenizer.model", NULL, &source.file);
    return create_from(&source, status, out_tokenizer);
}

void berth_tokenizer_close(berth_tokenizer *t) {
    if (!t) {
        return;
    }
    berth_template_deinit(&t->template);
    berth_splitter_deinit(&t->splitter);
    berth_normalizer_deinit(&t->normalizer);
    berth_added_deinit(&t->added);
    berth_vocabulary_deinit(&t->vocabulary);
    berth_arena_destroy(t->arena);
}

// ---- encode ----

typedef struct encoder {
    const berth_tokenizer *tokenizer;
    uint32_t flags;
    berth_token_ids *ids;
    berth_normalizer_scratch normalizer;
    berth_splitter_scratch splitter;
    berth_bpe_scratch bpe;
    berth_unigram_scratch unigram;
    berth_wordpiece_scratch wordpiece;
} encoder;

static berth_status encode_word(encoder *e, berth_str word) {
    const berth_tokenizer *t = e->tokenizer;
    switch (t->kind) {
    case BERTH_TOKENIZER_BPE:
        return berth_bpe_encode(&t->bpe, word, &e->bpe, e->ids);
    case BERTH_TOKENIZER_UNIGRAM:
        return berth_unigram_encode(&t->unigram, word, &e->unigram, e->ids);
    case BERTH_TOKENIZER_WORD_LEVEL:
    case BERTH_TOKENIZER_WORDPIECE:
        return berth_wordpiece_encode(&t->wordpiece, word, &e->wordpiece, e->ids);
    }
    return BERTH_FAIL(INTERNAL, "a model of kind %d", (int)t->kind);
}

static berth_status encode_words(encoder *e, berth_stretch stretch) {
    BERTH_TRY(berth_splitter_cut(&e->tokenizer->splitter, stretch, &e->splitter));
    for (size_t i = 0; i < e->splitter.words.count; ++i) {
        BERTH_TRY(encode_word(e, e->splitter.words.data[i].text));
    }
    return BERTH_OK;
}

// Finds the added tokens from list `list` on and encodes what lies between them.
static berth_status encode_stretch(encoder *e, berth_stretch stretch, size_t list) {
    if (stretch.text.size == 0 || list == BERTH_ADDED_LISTS) {
        return encode_words(e, stretch);
    }
    if (list == BERTH_ADDED_NORMALIZED) {
        BERTH_TRY(berth_normalizer_run(&e->tokenizer->normalizer, &e->normalizer, &stretch));
    }
    berth_added_search search = {
        .added = &e->tokenizer->added,
        .list = list,
        .skips_special = !(e->flags & BERTH_ENCODE_PARSE_SPECIAL),
        .text = stretch.text,
    };
    berth_stretch piece = {.is_first = stretch.is_first};
    size_t done = 0;
    size_t start;
    for (const berth_added_token *token; (token = berth_added_next(&search, &start));) {
        if (done < start) {
            piece.text = berth_str_slice(stretch.text, done, start - done);
            BERTH_TRY(encode_stretch(e, piece, list + 1));
        }
        BERTH_TRY(berth_array_push(e->ids, token->id));
        done = search.end;
        piece.is_first = false;
    }
    piece.text = berth_str_slice(stretch.text, done, SIZE_MAX);
    return encode_stretch(e, piece, list + 1);
}

static berth_status push_all(berth_token_ids *ids, const berth_token_ids *more) {
    for (size_t i = 0; i < more->count; ++i) {
        BERTH_TRY(berth_array_push(ids, more->data[i]));
    }
    return BERTH_OK;
}

static berth_status encode(encoder *e, berth_str text) {
    const bool is_framed = e->flags & BERTH_ENCODE_ADD_SPECIAL;
    if (is_framed) {
        BERTH_TRY(push_all(e->ids, &e->tokenizer->template.before));
    }
    BERTH_TRY(encode_stretch(e, (berth_stretch){.text = text, .is_first = true}, 0));
    return is_framed ? push_all(e->ids, &e->tokenizer->template.behind) : BERTH_OK;
}

berth_status berth_tokenizer_encode(const berth_tokenizer *tokenizer, berth_str text,
                                    uint32_t flags, berth_token_ids *ids) {
    if (text.size > BERTH_TOKENIZER_TEXT_BYTES) {
        return BERTH_FAIL(INVALID_ARGUMENT, "the text has %zu bytes: at most %zu can be tokenized",
                          text.size, BERTH_TOKENIZER_TEXT_BYTES);
    }
    BERTH_TRY(berth_utf8_check(text, "the text"));
    encoder e = {.tokenizer = tokenizer, .flags = flags, .ids = ids};
    const size_t count = ids->count;
    const berth_status status = encode(&e, text);
    if (status != BERTH_OK) {
        ids->count = count;
    }
    berth_normalizer_scratch_deinit(&e.normalizer);
    berth_splitter_scratch_deinit(&e.splitter);
    berth_bpe_scratch_deinit(&e.bpe);
    berth_unigram_scratch_deinit(&e.unigram);
    berth_wordpiece_scratch_deinit(&e.wordpiece);
    return status;
}

// ---- inspect ----

size_t berth_tokenizer_size(const berth_tokenizer *tokenizer) {
    return tokenizer->vocabulary.tokens.count;
}

berth_str berth_tokenizer_token(const berth_tokenizer *tokenizer, int32_t id) {
    const berth_token *token = berth_vocabulary_get(&tokenizer->vocabulary, id);
    return token ? token->content : (berth_str){0};
}

int32_t berth_tokenizer_find(const berth_tokenizer *tokenizer, berth_str content) {
    return berth_vocabulary_find(&tokenizer->vocabulary, content);
}

bool berth_tokenizer_is_special(const berth_tokenizer *tokenizer, int32_t id) {
    const berth_token *token = berth_vocabulary_get(&tokenizer->vocabulary, id);
    return token && token->is_special;
}

int32_t berth_tokenizer_bos(const berth_tokenizer *tokenizer) {
    return tokenizer->bos_id;
}

int32_t berth_tokenizer_eos(const berth_tokenizer *tokenizer) {
    return tokenizer->eos_id;
}
