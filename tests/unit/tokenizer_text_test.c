// SPDX-License-Identifier: Apache-2.0
// Tokenizers whose words are characters: what normalizers make of a text, what becomes of a
// character without a token, and what text the decoders give back.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "support/recipe.h"
#include "support/test.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

#define MARK               "\u2581"
#define SEQ(list)          "{\"type\":\"Sequence\",\"normalizers\":[" list "]}"
#define KIND(name)         "{\"type\":\"" name "\"}"
#define PREPEND            "{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"}"
#define STRIP(left, right) "{\"type\":\"Strip\",\"strip_left\":" left ",\"strip_right\":" right "}"
#define REPLACE(kind, pattern, content)                                                            \
    "{\"type\":\"Replace\",\"pattern\":{\"" kind "\":\"" pattern "\"},\"content\":\"" content "\"" \
    "}"
#define LLAMA SEQ(PREPEND "," REPLACE("String", " ", MARK))

#define VOCAB                                                                                      \
    ",\"<unk>\":256,\"" MARK "\":257,\"a\":258,\"b\":259,\"" MARK "a\":260,\"" MARK                \
    "ab\":261,\"\u00E9\":262"
#define MERGES "[\"" MARK " a\",\"" MARK "a b\"]"

#define DECODERS(list) "{\"type\":\"Sequence\",\"decoders\":[" list "]}"
#define UNSTRIP(start) "{\"type\":\"Strip\",\"content\":\" \",\"start\":" start ",\"stop\":0}"
#define LLAMA_DECODER                                                                              \
    DECODERS(REPLACE("String", MARK,                                                               \
                     " ") ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}," UNSTRIP("1"))
#define METASPACE(scheme)                                                                          \
    "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"" scheme "\"}"
#define BPE(suffix) "{\"type\":\"BPEDecoder\",\"suffix\":\"" suffix "\"}"
#define CTC(cleanup)                                                                               \
    "{\"type\":\"CTC\",\"pad_token\":\"b\",\"word_delimiter_token\":\"" MARK                       \
    "\",\"cleanup\":" cleanup "}"

#define TEXT_LIMIT ((size_t)1 << 24)

// ---- normalizers ----

static const struct {
    const char *normalizer, *text, *normalized;
    bool is_first; // for a stretch that was
} normalized[] = {
    {"null",                          " a",                             " a",                                true},
    {SEQ(""),                         " a",                             " a",                                true},
    {KIND("NFC"),                     "plain, \u00E9\u6F22\u5B57",      "plain, \u00E9\u6F22\u5B57",         true},
    {KIND("NFC"),                     "e\u0301 C\u031B\u0309",          "\u00E9 C\u031B\u0309",              true},
    {KIND("NFC"),                     "u\u031B\u0309a\u0315\u0300",     "\u1EED\u00E0\u0315",                true},
    {KIND("NFC"),                     "\u1112\u1161\u11AB\uAC00\u11A8", "\uD55C\uAC01",                      true},
    {KIND("NFC"),                     "\u2126\u0958",                   "\u03A9\u0915\u093C",                true},
    {KIND("NFC"),                     "\u0301\u0301",                   "\u0301\u0301",                      true},
    {KIND("NFC"),                     "\u09C7\u09BE\u0B47\u0B56",       "\u09CB\u0B48",                      true},
    {KIND("NFD"),                     "\u00E9\uD55C",                   "e\u0301\u1112\u1161\u11AB",         true},
    {KIND("NFD"),                     "a\u0315\u0300\u05AE\u0301b",     "a\u05AE\u0300\u0301\u0315b",        true},
    {KIND("NFKC"),                    "\uFB01\u2460\uFF21e\u0301",      "fi1A\u00E9",                        true},
    {KIND("NFKD"),                    "\uFDFA\u1E9B\u0323",
     "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 "
     "\u0639\u0644\u064A\u0647 \u0648\u0633\u0644\u0645s\u0323\u0307",                                       true},
    {KIND("Lowercase"),               "aB\u00C0\u0130\u03A3",           "ab\u00E0i\u0307\u03C3",             true},
    {STRIP("true",                    "true"),                          "\u3000 a b\n\xC2\x85",              "a b",false},
    {STRIP("true",                               "false"),                                                    "a ",                                                 "a ",true},
    {STRIP("false",                           "true"),                                                           " a ",                                                                                  " a",                                                        true},
    {STRIP("true",                           "true"),                                                       " \t ",         "",false},
    {KIND("StripAccents"),                         "e\u0301\u0903\u20DDx", "ex",                       true                                                                                },
    {KIND("Nmt"),"a\001\tb\u200Bc\uFEFF",             "a b c ",                      true},
    {KIND("ByteLevel"),                        "a \u00E9",                                    "a\u0120\u00C3\u00A9",                                              true                                                                                                        },
    {KIND("BertNormalizer"),"\u00C9\ta\u200B\u6F22\uFFFDb","e a \u6F22 b",true},
    {KIND("BertNormalizer\",\"lowercase\":false,\"handle_chinese_chars\":false,\"x\":\""),
     "\u00C9\u6F22\u200B",                                                 "\u00C9\u6F22",                                                                                                                         true                                                                                                                                                                                                                                                                         },
    {PREPEND,            "a",MARK "a",true},
    {PREPEND,                 "",                                                            "",                                                                                                                                                                                                       true                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           },
    {REPLACE("String",             ".","dot"),"a.b.","adotbdot", true},
    {REPLACE("Regex",                " {2,}",                                                           "_"),                                                                                                                                                                                                                                                                                "  a b   c",                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "_a b_c", true},
    {REPLACE("Regex",                               "\\\\d",                                                 ""),                                                              "1a2","a", true},
    {REPLACE("Regex",                       "\\\\d",                                                   "n"),                                                                                      "1a2","nan", true},
    {REPLACE("Regex",                            "x*",       "-"),"axb","-a-b-", true},
    {SEQ(SEQ(KIND("NFKC") "," KIND("Lowercase")) "," LLAMA),                 "\u2168 \uFF22",                    MARK "ix" MARK "b",
     true},
};

TEST(normalizers_give_what_the_reference_gives) {
    for (size_t i = 0; i < BERTH_COUNT(normalized); ++i) {
        berth_json *json;
        berth_arena *arena;
        berth_normalizer normalizer = {0};
        berth_normalizer_scratch scratch = {0};
        berth_stretch stretch = {.text = berth_str_from(normalized[i].text), .is_first = true};
        char shown[256];
        CHECK_OK(berth_arena_create(4096, 65536, &arena));
        CHECK_OK(berth_json_parse(berth_str_from(normalized[i].normalizer), "case", NULL, &json));
        CHECK_OK(berth_normalizer_read(&normalizer, arena, json));
        CHECK_OK(berth_normalizer_run(&normalizer, &scratch, &stretch));
        (void)snprintf(shown, sizeof(shown), BERTH_STR_FMT, BERTH_STR_ARG(stretch.text));
        CHECK_STR(shown, normalized[i].normalized);
        CHECK_INT(stretch.is_first, normalized[i].is_first);
        berth_normalizer_scratch_deinit(&scratch);
        berth_normalizer_deinit(&normalizer);
        berth_json_destroy(json);
        berth_arena_destroy(arena);
    }
}

// xorshift64*: the same texts in every run.
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

// Mostly what takes part in compositions: letters, marks, Indic vowels and Hangul.
static void print_marked_text(uint64_t *seed, berth_text *text) {
    static const uint32_t ranges[][2] = {
        {'a',     26   },
        {0xC0,    64   },
        {0x300,   112  },
        {0x300,   112  },
        {0x5B0,   24   },
        {0x900,   0x480},
        {0xF40,   0x80 },
        {0x1100,  0x100},
        {0x1E00,  0x200},
        {0x2126,  6    },
        {0x3040,  0x60 },
        {0xAC00,  200  },
        {0xF900,  0x100},
        {0xFB00,  0x50 },
        {0x1D150, 0x80 },
        {0x11090, 0x300},
    };
    const size_t length = next_random(seed) % 24;
    berth_text_clear(text);
    for (size_t i = 0; i < length; ++i) {
        char bytes[4];
        const uint32_t *range = ranges[next_random(seed) % BERTH_COUNT(ranges)];
        const size_t size =
            berth_utf8_encode(range[0] + (uint32_t)(next_random(seed) % range[1]), bytes);
        berth_text_add(text, (berth_str){.data = bytes, .size = size});
    }
}

TEST(normal_forms_by_stretches_are_those_of_the_whole) {
    static utf8proc_uint8_t *(*const wholes[])(const utf8proc_uint8_t *text) = {
        [BERTH_UNICODE_NFC] = utf8proc_NFC,
        [BERTH_UNICODE_NFD] = utf8proc_NFD,
        [BERTH_UNICODE_NFKC] = utf8proc_NFKC,
        [BERTH_UNICODE_NFKD] = utf8proc_NFKD,
    };
    uint64_t seed = 11;
    berth_text text, result;
    berth_unicode_scratch scratch = {0};
    berth_text_init(&text, TEXT_LIMIT);
    berth_text_init(&result, TEXT_LIMIT);
    berth_text_add_char(&text, 'a');
    for (int i = 0; i < 20000; ++i) {
        const size_t form = next_random(&seed) % BERTH_COUNT(wholes);
        print_marked_text(&seed, &text);
        berth_text_add_char(&text, 'z');
        utf8proc_uint8_t *whole = wholes[form]((const utf8proc_uint8_t *)text.data);
        berth_text_clear(&result);
        CHECK_OK(berth_unicode_normalize(berth_text_str(&text), (berth_unicode_form)form, &scratch,
                                         &result));
        CHECK_STR(result.data, (const char *)whole);
        if (berth_unicode_is_normal(berth_text_str(&text), (berth_unicode_form)form)) {
            CHECK_STR(text.data, (const char *)whole);
        }
        free(whole);
    }
    berth_unicode_scratch_deinit(&scratch);
    berth_text_deinit(&result);
    berth_text_deinit(&text);
}

TEST(a_million_marks_are_ordered_in_time) {
    enum { PAIRS = 1 << 19 };
    berth_text text, result;
    berth_unicode_scratch scratch = {0};
    berth_text_init(&text, TEXT_LIMIT);
    berth_text_init(&result, TEXT_LIMIT);
    for (int i = 0; i < PAIRS; ++i) {
        berth_text_add_cstr(&text, "\u0301\u0316"); // class 230 before class 220
    }
    CHECK_OK(berth_unicode_normalize(berth_text_str(&text), BERTH_UNICODE_NFC, &scratch, &result));
    CHECK_UINT(result.size, text.size);
    CHECK_BYTES(result.data, "\u0316\u0316", 4);
    CHECK_BYTES(result.data + result.size - 4, "\u0301\u0301", 4);
    berth_unicode_scratch_deinit(&scratch);
    berth_text_deinit(&result);
    berth_text_deinit(&text);
}

TEST(a_text_that_a_normalizer_blows_up_is_refused) {
    const recipe r = {
        .normalizer = SEQ(REPLACE("String", "a", "aaaaaaaaaaaaaaaa") "," REPLACE(
            "String", "a", "aaaaaaaaaaaaaaaa") "," REPLACE("String", "a", "aaaaaaaaaaaaaaaa"))};
    berth_tokenizer *tokenizer = open_recipe(&r);
    berth_token_ids ids = {0};
    CHECK_STATUS(berth_tokenizer_encode(tokenizer, BERTH_STR("aaaa"), 0, &ids),
                 BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "normalizing a text of 4 bytes");
    berth_array_free(&ids);
    berth_tokenizer_close(tokenizer);
}

// ---- encode ----

TEST(characters_merge_and_those_without_a_token_are_bytes) {
    static const struct {
        const char *text, *ids;
    } cases[] = {
        {"",        ""                      },
        {"ab",      "261"                   },
        {"ab ab",   "261 261"               },
        {"  a",     "257 257 260"           },
        {"\u00E9",  "257 262"               },
        {"\u65E5b", "257 230 151 165 259"   },
        {"<0x41>",  "257 60 48 120 52 49 62"},
    };
    const recipe r = {
        .is_of_characters = true, .vocab = VOCAB, .merges = MERGES, .normalizer = LLAMA};
    berth_tokenizer *tokenizer = open_recipe(&r);
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        check_ids(tokenizer, berth_str_from(cases[i].text), 0, cases[i].ids);
    }
    berth_tokenizer_close(tokenizer);
}

TEST(characters_without_a_token_are_unknown_or_left_out) {
    static const struct {
        const char *options, *text, *ids;
    } cases[] = {
        {",\"unk_token\":\"<unk>\",\"fuse_unk\":true",       "aXYb\u65E5", "258 256 259 256"    },
        {",\"unk_token\":\"<unk>\"",                         "aXYb\u65E5", "258 256 256 259 256"},
        {",\"fuse_unk\":true",                               "aXYb\u65E5", "258 259"            },
        {",\"unk_token\":\"<none>\",\"byte_fallback\":true", "aX",         "258 88"             },
        {",\"ignore_merges\":true",                          MARK "ab",    "261"                },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        const recipe r = {.is_of_characters = true, .vocab = VOCAB, .options = cases[i].options};
        berth_tokenizer *tokenizer = open_recipe(&r);
        check_ids(tokenizer, berth_str_from(cases[i].text), 0, cases[i].ids);
        berth_tokenizer_close(tokenizer);
    }
}

TEST(an_unknown_character_waits_for_the_next_that_has_a_token) {
    static const char json[] =
        "{\"model\":{\"vocab\":{\"<unk>\":0,\"a\":1,\"<0x58>\":2},\"merges\":[],\"unk_token\":"
        "\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true},\"decoder\":{\"type\":\"Fuse\"}}";
    berth_tokenizer *tokenizer;
    CHECK_OK(berth_tokenizer_parse(berth_str_from(json), (berth_str){0}, &tokenizer));
    check_ids(tokenizer, BERTH_STR("YXZa"), 0, "2 0 1");
    check_ids(tokenizer, BERTH_STR("YX"), 0, "2 0");
    berth_tokenizer_close(tokenizer);
}

TEST(only_the_first_word_of_a_text_takes_a_mark_with_first) {
    const recipe r = {
        .is_of_characters = true,
        .vocab = VOCAB,
        .merges = MERGES,
        .added_tokens = "[{\"id\":300,\"content\":\"<s>\",\"special\":true}]",
        .pre_tokenizer = METASPACE("first"),
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    check_ids(tokenizer, BERTH_STR("a<s>a a"), BERTH_ENCODE_PARSE_SPECIAL, "260 300 258 260");
    check_ids(tokenizer, BERTH_STR("<s>a"), BERTH_ENCODE_PARSE_SPECIAL, "300 258");
    berth_tokenizer_close(tokenizer);
}

TEST(normalized_added_tokens_are_found_as_the_normalizer_spells_them) {
    const recipe r = {
        .is_of_characters = true,
        .vocab = VOCAB,
        .added_tokens = "[{\"id\":300,\"content\":\"A B\"},"
                        "{\"id\":301,\"content\":\"AB\",\"normalized\":false}]",
        .normalizer = SEQ(KIND("Lowercase") "," LLAMA),
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    // The mark of the token is that of the text's start, or a blank's.
    check_ids(tokenizer, BERTH_STR("a b a B"), 0, "300 300");
    check_ids(tokenizer, BERTH_STR("ba b"), 0, "257 259 258 257 259");
    check_ids(tokenizer, BERTH_STR("bABb"), 0, "257 259 301 257 259");
    check_text(tokenizer, (const int32_t[]){300, 301}, 2, BERTH_STR(MARK "a" MARK "bAB"));
    CHECK_INT(berth_tokenizer_find(tokenizer, BERTH_STR("A B")), 300);
    berth_tokenizer_close(tokenizer);
}

// ---- decode ----

static const struct {
    const char *decoder;
    int32_t ids[4];
    const char *text;
} decoded[] = {
    {LLAMA_DECODER,                                    {260, 259, 261, 262},         "ab ab\u00E9"                                                   },
    {LLAMA_DECODER,                                    {257, 257, 258, 257},         " a "                                                           },
    {LLAMA_DECODER,                                    {258, 260, 260, 260},         "a a a a"                                                       },
    {LLAMA_DECODER,                                    {230, 151, 165, 258},         "\u65E5a"                                                       },
    {LLAMA_DECODER,                                    {230, 151, 258, 0x80},        "\uFFFD\uFFFDa\uFFFD"                                           },
    {LLAMA_DECODER,                                    {32, 32, 230, 151},           " \uFFFD\uFFFD"                                                 },
    {DECODERS(REPLACE("Regex",                         "[ab]+",                      "x") "," UNSTRIP("1")),
     {258, 261, 261, 258},
     "x" MARK "x" MARK "xx"},
    {DECODERS(REPLACE("String",                           MARK,                                                       " ") "," UNSTRIP("1")),                                                                                               {260, 257, 261, 258}, "aaba"},
    {DECODERS("{\"type\":\"Fuse\"}," REPLACE("String",                          "a","b")),{0}, NULL},
    {METASPACE("always"), {260, 257, 260, 261}, "a  a ab"                                                                                },
    {METASPACE("first"),                                            {257, 260, 258, 257},                                                                        " aa "                                                                                                                     },
    {METASPACE("never"),                                       {260, 257, 260, 261},                                                                   " a  a ab"                                 },
    {"{\"type\":\"Fuse\"}",                                          {260, 65, 258, 259},MARK "a<0x41>ab"},
    {BPE("b"),                                      {261, 259, 258, 261},MARK "a  a" MARK "a"          },
    {BPE("b"),                                {258, 261, 261, 258},                                                              "a" MARK "a " MARK "a a"                                                                                                                                                                                              },
    {DECODERS(BPE("a") ",{\"type\":\"Fuse\"}," UNSTRIP("1")),                            {258, 258, 260, 258},                                                         " " MARK " "                                                                                                       },
    {CTC("true"),                        {260, 260, 259, 260}," a a"},
    {CTC("true"),                                    {259, 257, 257, 261},        "  a"},
    {CTC("false"),                                          {258, 259, 258, 260},                                                                                "aa" MARK "a"                                                                                                                                                                                                                                                                                                                                   },
    {"{\"type\":\"ByteLevel\"}",                                           {258, 262, 258, 259},                                                                "a\uFFFDab"                                                                                                                                                              },
    {DECODERS("{\"type\":\"ByteLevel\"}," UNSTRIP("2")),                                   {258, 258, 258, 259},"aaab"},
};

TEST(decoders_give_what_the_reference_gives) {
    for (size_t i = 0; i < BERTH_COUNT(decoded); ++i) {
        const recipe r = {.is_of_characters = true, .vocab = VOCAB, .decoder = decoded[i].decoder};
        berth_tokenizer *tokenizer;
        if (!decoded[i].text) {
            CHECK_STATUS(parse_recipe(&r, &tokenizer), BERTH_UNSUPPORTED);
            continue;
        }
        tokenizer = open_recipe(&r);
        check_text(tokenizer, decoded[i].ids, 4, berth_str_from(decoded[i].text));
        berth_tokenizer_close(tokenizer);
    }
}

static void check_step(berth_detokenizer *detokenizer, int32_t id, const char *text) {
    berth_str piece;
    char shown[32];
    CHECK_OK(berth_detokenizer_push(detokenizer, id, &piece));
    (void)snprintf(shown, sizeof(shown), BERTH_STR_FMT, BERTH_STR_ARG(piece));
    CHECK_STR(shown, text);
}

TEST(a_stream_strips_its_start_and_gives_characters_as_their_bytes_complete_them) {
    static const struct {
        int32_t id;
        const char *text;
    } steps[] = {
        {257,  ""               },
        {260,  " a"             },
        {0xE6, ""               },
        {0x97, ""               },
        {0xA5, "\u65E5"         },
        {0x97, "\uFFFD"         },
        {0xE6, ""               },
        {0x97, ""               },
        {261,  "\uFFFD\uFFFD ab"},
        {0xE6, ""               },
    };
    const recipe r = {.is_of_characters = true, .vocab = VOCAB, .decoder = LLAMA_DECODER};
    berth_tokenizer *tokenizer = open_recipe(&r);
    berth_detokenizer *detokenizer;
    CHECK_OK(berth_detokenizer_create(tokenizer, 0, &detokenizer));
    const uint64_t allocations = berth_memory_allocations();
    for (int round = 0; round < 2; ++round) {
        for (size_t i = 0; i < BERTH_COUNT(steps); ++i) {
            check_step(detokenizer, steps[i].id, steps[i].text);
        }
        CHECK(berth_str_equal_cstr(berth_detokenizer_finish(detokenizer), "\uFFFD"));
    }
    CHECK_UINT(berth_memory_allocations(), allocations);
    berth_detokenizer_destroy(detokenizer);
    berth_tokenizer_close(tokenizer);
}

TEST(a_stream_waits_for_the_next_token_where_the_last_differs) {
    const recipe r = {
        .is_of_characters = true,
        .vocab = VOCAB,
        .added_tokens = "[{\"id\":300,\"content\":\"<s>\",\"special\":true}]",
        .decoder = BPE("b"),
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    berth_detokenizer *detokenizer;
    CHECK_OK(berth_detokenizer_create(tokenizer, BERTH_DECODE_SKIP_SPECIAL, &detokenizer));
    for (int round = 0; round < 2; ++round) {
        check_step(detokenizer, 258, "a");
        check_step(detokenizer, 261, MARK "a");
        check_step(detokenizer, 300, "");
        check_step(detokenizer, 258, " a");
        check_step(detokenizer, 259, "");
        check_step(detokenizer, 261, " " MARK "a");
        CHECK(berth_str_equal_cstr(berth_detokenizer_finish(detokenizer), ""));
    }
    berth_detokenizer_destroy(detokenizer);
    berth_tokenizer_close(tokenizer);
}

TEST(a_special_token_between_two_equal_ones_does_not_part_them) {
    const recipe r = {
        .is_of_characters = true,
        .vocab = VOCAB,
        .added_tokens = "[{\"id\":300,\"content\":\"<s>\",\"special\":true}]",
        .decoder = CTC("true"),
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    berth_detokenizer *detokenizer;
    CHECK_OK(berth_detokenizer_create(tokenizer, BERTH_DECODE_SKIP_SPECIAL, &detokenizer));
    for (int round = 0; round < 2; ++round) {
        check_step(detokenizer, 258, "a");
        check_step(detokenizer, 300, "");
        check_step(detokenizer, 258, "");
        check_step(detokenizer, 259, "");
        check_step(detokenizer, 258, "a");
        CHECK(berth_str_equal_cstr(berth_detokenizer_finish(detokenizer), ""));
    }
    berth_detokenizer_destroy(detokenizer);
    berth_tokenizer_close(tokenizer);
}

TEST(a_special_token_that_is_left_out_does_not_begin_a_stream) {
    const recipe r = {
        .is_of_characters = true,
        .vocab = VOCAB,
        .added_tokens = "[{\"id\":300,\"content\":\"<s>\",\"special\":true}]",
        .decoder = METASPACE("always"),
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    berth_detokenizer *detokenizer;
    CHECK_OK(berth_detokenizer_create(tokenizer, BERTH_DECODE_SKIP_SPECIAL, &detokenizer));
    check_step(detokenizer, 300, "");
    check_step(detokenizer, 260, "a");
    check_step(detokenizer, 260, " a");
    berth_detokenizer_destroy(detokenizer);
    berth_tokenizer_close(tokenizer);
}
