// SPDX-License-Identifier: Apache-2.0
// Unigram models, and tokenizer.model read directly: the best way through a word, what is unknown,
// and what is refused.
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"

#define IDS_MOST   16
#define FILE_LIMIT ((size_t)1 << 20)

typedef struct row {
    const char *text;
    int32_t ids[IDS_MOST];
    size_t count;
} row;

static const char unigram_json[] =
    "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\u2581a\",-1],"
    "[\"b\",-2],[\"ab\",-2.5],[\"\u2581\",-3],[\"a\",-1.5],[\"\u2581abc\",-9],[\"c\",-2]]},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":"
    "\"always\",\"split\":true},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\","
    "\"prepend_scheme\":\"always\",\"split\":true}}";

static void check_rows(const berth_tokenizer *tokenizer, const row *rows, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        berth_token_ids ids = {0};
        CHECK_OK(berth_tokenizer_encode(tokenizer, berth_str_from(rows[i].text),
                                        BERTH_ENCODE_PARSE_SPECIAL, &ids));
        CHECK_UINT(ids.count, rows[i].count);
        for (size_t k = 0; k < ids.count; ++k) {
            CHECK_INT(ids.data[k], rows[i].ids[k]);
        }
        berth_array_free(&ids);
    }
}

static void check_text(const berth_tokenizer *tokenizer, const row *r, const char *expected) {
    berth_text text;
    berth_text_init(&text, 256);
    CHECK_OK(berth_tokenizer_decode(tokenizer, r->ids, r->count, 0, &text));
    CHECK_STR(text.data, expected);
    berth_text_deinit(&text);
}

TEST(unigram_takes_the_way_of_the_highest_score) {
    static const row rows[] = {
        {.text = "ab",      .ids = {1, 2},    .count = 2}, // -3 beats -5.5
        {.text = "abc",                 .ids = {1, 2, 7},                     .count = 3}, // -5 beats -9
        {.text = "a ab",       .ids = {1, 1, 2},   .count = 3}, // every mark begins a word
        {.text = "axyb",.ids = {1, 0, 2},.count = 3}, // unknown characters in a row are one
        {.text = "\u65E5",    .ids = {4, 0},          .count = 2}, // the mark alone, then the unknown
        {.text = "",                 .count = 0                 },
    };
    berth_tokenizer *tokenizer;
    CHECK_OK(berth_tokenizer_parse(berth_str_from(unigram_json), (berth_str){0}, &tokenizer));
    check_rows(tokenizer, rows, BERTH_COUNT(rows));
    check_text(tokenizer, &rows[2], "a ab");
    berth_tokenizer_close(tokenizer);
}

TEST(unigram_refuses_what_contradicts_itself) {
    static const struct {
        const char *json, *message;
    } cases[] = {
        {.json = "{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}",                       .message = "model.vocab"},
        {.json = "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}",
         .message = "model.vocab.0"                                                                               },
        {.json = "{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}",
         .message = "model.unk_id"                                                                                },
        {.json = "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]]}}",
         .message = "model.vocab.1"                                                                               },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        berth_tokenizer *tokenizer;
        CHECK_STATUS(
            berth_tokenizer_parse(berth_str_from(cases[i].json), (berth_str){0}, &tokenizer),
            BERTH_CORRUPT);
        CHECK_CONTAINS(berth_status_message(), cases[i].message);
    }
}

// ---- tokenizer.model ----

// A protocol buffer that is being written; sizes stay below 128.
typedef struct writer {
    char bytes[512];
    size_t size;
} writer;

static void put_byte(writer *w, unsigned byte) {
    CHECK(w->size < sizeof(w->bytes));
    w->bytes[w->size++] = (char)byte;
}

static void put_number(writer *w, unsigned field, unsigned value) {
    if (field >= 16) {
        put_byte(w, ((field << 3) & 0x7F) | 0x80);
        put_byte(w, field >> 4);
    } else {
        put_byte(w, field << 3);
    }
    put_byte(w, value);
}

static void put_bytes(writer *w, unsigned field, const char *bytes, size_t size) {
    put_byte(w, (field << 3) | 2);
    put_byte(w, (unsigned)size);
    for (size_t i = 0; i < size; ++i) {
        put_byte(w, (uint8_t)bytes[i]);
    }
}

static void put_piece(writer *w, const char *text, float score, unsigned type) {
    writer piece = {.size = 0};
    uint8_t bits[4];
    memcpy(bits, &score, sizeof(bits));
    put_bytes(&piece, 1, text, strlen(text));
    put_byte(&piece, (2 << 3) | 5);
    for (size_t i = 0; i < sizeof(bits); ++i) {
        put_byte(&piece, bits[i]);
    }
    put_number(&piece, 3, type);
    put_bytes(w, 1, piece.bytes, piece.size);
}

// `kind` 1 is unigram, 2 is BPE; `extra` is remove_extra_whitespaces.
static writer make_model(unsigned kind, unsigned extra) {
    writer w = {.size = 0};
    writer trainer = {.size = 0};
    writer normalizer = {.size = 0};
    put_piece(&w, "<unk>", 0, 2);
    put_piece(&w, "<s>", 0, 3);
    put_piece(&w, "</s>", 0, 3);
    put_piece(&w, "\u2581t", -1, 1);
    put_piece(&w, "he", -2, 1);
    put_piece(&w, "\u2581the", -3, 1);
    put_piece(&w, "\u2581", -10, 1);
    put_piece(&w, "t", -11, 1);
    put_piece(&w, "h", -12, 1);
    put_piece(&w, "e", -13, 1);
    put_piece(&w, "<|u|>", 0, 4);
    put_number(&trainer, 3, kind);
    put_bytes(&w, 2, trainer.bytes, trainer.size);
    put_number(&normalizer, 4, extra);
    put_bytes(&w, 3, normalizer.bytes, normalizer.size);
    return w;
}

static berth_status parse_model(const writer *w, berth_tokenizer **out_tokenizer) {
    return berth_tokenizer_parse_model((berth_str){.data = w->bytes, .size = w->size},
                                       out_tokenizer);
}

TEST(a_tokenizer_model_gives_the_ids_of_its_kind) {
    static const row rows[] = {
        {.text = "the",         .ids = {5},                 .count = 1},
        {.text = "he the",      .ids = {6, 4, 5},           .count = 3},
        {.text = "<s>he<|u|>e", .ids = {1, 6, 4, 10, 6, 9}, .count = 6},
        {.text = "xx",          .ids = {6, 0},              .count = 2},
    };
    for (unsigned kind = 1; kind <= 2; ++kind) {
        const writer w = make_model(kind, 0);
        berth_tokenizer *tokenizer;
        CHECK_OK(parse_model(&w, &tokenizer));
        check_rows(tokenizer, rows, BERTH_COUNT(rows));
        check_text(tokenizer, &rows[1], "he the");
        CHECK_INT(berth_tokenizer_bos(tokenizer), 1);
        CHECK_INT(berth_tokenizer_eos(tokenizer), 2);
        berth_tokenizer_close(tokenizer);
    }
}

TEST(a_tokenizer_model_that_is_broken_is_refused) {
    writer w = make_model(2, 0);
    berth_tokenizer *tokenizer;
    for (size_t size = 0; size < w.size; ++size) {
        const berth_str cut = {.data = w.bytes, .size = size};
        if (berth_tokenizer_parse_model(cut, &tokenizer) == BERTH_OK) {
            berth_tokenizer_close(tokenizer); // Cut between two fields it is a model.
        }
    }
    w.bytes[1] = 127;
    CHECK_STATUS(parse_model(&w, &tokenizer), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "tokenizer.model: ");
    w = make_model(3, 0);
    CHECK_STATUS(parse_model(&w, &tokenizer), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "neither unigram nor bpe");
    w = make_model(1, 0);
    put_bytes(&w, 2, "\xC0\x01\x01", 3);
    CHECK_STATUS(parse_model(&w, &tokenizer), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "treat_whitespace_as_suffix");
}

TEST(a_tokenizer_model_may_drop_blanks_that_are_too_many) {
    static const row rows[] = {
        {.text = "  he   the  ", .ids = {6, 4, 5}, .count = 3},
        {.text = "   ",          .ids = {0},       .count = 0},
    };
    for (unsigned kind = 1; kind <= 2; ++kind) {
        const writer w = make_model(kind, 1);
        berth_tokenizer *tokenizer;
        CHECK_OK(parse_model(&w, &tokenizer));
        check_rows(tokenizer, rows, BERTH_COUNT(rows));
        berth_tokenizer_close(tokenizer);
    }
}

// ---- what the fuzzer starts from ----

TEST(the_fuzzers_models_are_read_or_refused) {
    berth_arena *arena;
    berth_dir_listing files;
    CHECK_OK(berth_arena_create(1 << 16, FILE_LIMIT, &arena));
    CHECK_OK(berth_dir_list("tests/fuzz/tokenizer_model", arena, &files));
    CHECK(files.count > 0);
    for (size_t i = 0; i < files.count; ++i) {
        char *data;
        size_t size;
        berth_tokenizer *tokenizer;
        const char *path = berth_path_join(arena, "tests/fuzz/tokenizer_model", files.names[i]);
        CHECK_OK(berth_file_read(path, FILE_LIMIT, &data, &size));
        const berth_str model = {.data = data, .size = size};
        if (berth_tokenizer_parse_model(model, &tokenizer) == BERTH_OK) {
            berth_token_ids ids = {0};
            if (berth_tokenizer_encode(tokenizer, BERTH_STR(" It  is\n<s>"), 2, &ids) != BERTH_OK) {
                CHECK_CONTAINS(berth_status_message(), "no unk_id");
            }
            berth_array_free(&ids);
            berth_tokenizer_close(tokenizer);
        } else {
            CHECK_CONTAINS(berth_status_message(), "tokenizer.model");
        }
        berth_free(data);
    }
    berth_arena_destroy(arena);
}
