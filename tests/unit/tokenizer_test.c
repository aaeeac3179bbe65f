// SPDX-License-Identifier: Apache-2.0
// The tokenizer against ids that its reference wrote down, and against itself: what is encoded
// decodes to the same text, a stream gives what the whole gives.
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "support/recipe.h"
#include "support/test.h"
#include "tokenizer/unicode.h"

#define VECTORS      "../shared/data/tokenizers/"
#define TEXT_LIMIT   ((size_t)1 << 24)
#define VECTOR_LIMIT ((size_t)1 << 20)

static const char *const models[] = {"llama", "qwen3", "shakespeare"};

static berth_tokenizer *open_model(const char *name) {
    char path[128];
    berth_tokenizer *tokenizer = NULL;
    (void)snprintf(path, sizeof(path), "tests/data/models/%s", name);
    CHECK_OK(berth_tokenizer_open(path, &tokenizer));
    return tokenizer;
}

// ---- checks ----

// What is encoded decodes to `expected`: the text, or its normal form.
static void check_return(const berth_tokenizer *tokenizer, berth_str text, berth_str expected) {
    berth_token_ids ids = {0};
    CHECK_OK(berth_tokenizer_encode(tokenizer, text, BERTH_ENCODE_PARSE_SPECIAL, &ids));
    check_text(tokenizer, ids.data, ids.count, expected);
    berth_array_free(&ids);
}

static void read_ids(const berth_json *list, berth_token_ids *ids) {
    berth_array_clear(ids);
    for (size_t i = 0; i < berth_json_size(list); ++i) {
        int64_t id;
        CHECK_OK(berth_json_get_i64(berth_json_at(list, i), "", &id));
        CHECK_OK(berth_array_push(ids, (int32_t)id));
    }
}

// xorshift64*: the same texts in every run.
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

// ---- what the reference wrote down ----

static void check_golden(const berth_tokenizer *tokenizer, const berth_json *prompt,
                         berth_token_ids *ids) {
    berth_str text, greedy;
    const berth_json *list;
    CHECK_OK(berth_json_get_str(prompt, "prompt", &text));
    CHECK_OK(berth_json_get_array(prompt, "prompt_ids", &list));
    read_ids(list, ids);
    berth_token_ids encoded = {0};
    CHECK_OK(berth_tokenizer_encode(tokenizer, text, BERTH_ENCODE_ADD_SPECIAL, &encoded));
    CHECK_UINT(encoded.count, ids->count);
    CHECK_BYTES(encoded.data, ids->data, ids->count * sizeof(int32_t));
    berth_array_free(&encoded);
    check_text(tokenizer, ids->data, ids->count, text);
    CHECK_OK(berth_json_get_str(prompt, "greedy_text", &greedy));
    CHECK_OK(berth_json_get_array(prompt, "greedy_ids", &list));
    read_ids(list, ids);
    check_text(tokenizer, ids->data, ids->count, greedy);
}

TEST(golden_prompts_give_their_ids_and_golden_ids_their_text) {
    for (size_t m = 0; m < BERTH_COUNT(models); ++m) {
        char path[128];
        berth_json *golden;
        const berth_json *prompts;
        berth_token_ids ids = {0};
        berth_tokenizer *tokenizer = open_model(models[m]);
        (void)snprintf(path, sizeof(path), "tests/data/models/%s/golden.json", models[m]);
        CHECK_OK(berth_json_load(path, NULL, &golden));
        CHECK_OK(berth_json_get_array(golden, "prompts", &prompts));
        CHECK(berth_json_size(prompts) > 0);
        for (size_t i = 0; i < berth_json_size(prompts); ++i) {
            check_golden(tokenizer, berth_json_at(prompts, i), &ids);
        }
        CHECK_INT(berth_tokenizer_bos(tokenizer), 0);
        CHECK_INT(berth_tokenizer_eos(tokenizer), 0);
        berth_array_free(&ids);
        berth_json_destroy(golden);
        berth_tokenizer_close(tokenizer);
    }
}

// Takes what stands before `mark` off `rest`.
static berth_str take_until(berth_str *rest, berth_str mark) {
    const char *end = memmem(rest->data, rest->size, mark.data, mark.size);
    const size_t size = end ? (size_t)(end - rest->data) : rest->size;
    const berth_str piece = berth_str_slice(*rest, 0, size);
    *rest = berth_str_slice(*rest, size + mark.size, SIZE_MAX);
    return piece;
}

static void check_normal_return(const berth_tokenizer *tokenizer, berth_str text, bool is_nfc) {
    berth_text normal;
    berth_unicode_scratch scratch = {0};
    berth_text_init(&normal, TEXT_LIMIT);
    if (is_nfc) {
        CHECK_OK(berth_unicode_normalize(text, BERTH_UNICODE_NFC, &scratch, &normal));
    }
    check_return(tokenizer, text, is_nfc ? berth_text_str(&normal) : text);
    berth_unicode_scratch_deinit(&scratch);
    berth_text_deinit(&normal);
}

static void check_vectors(const berth_tokenizer *tokenizer, const char *name, berth_str input) {
    char path[128];
    char *outputs;
    size_t output_bytes;
    size_t count = 0;
    (void)snprintf(path, sizeof(path), VECTORS "%s/vectors.out", name);
    CHECK_OK(berth_file_read(path, VECTOR_LIMIT, &outputs, &output_bytes));
    berth_str output = {.data = outputs, .size = output_bytes};
    for (; output.size > 0; ++count) {
        char expected[4096];
        const berth_str text = take_until(&input, BERTH_STR("\n__ggml_vocab_test__\n"));
        const berth_str line = berth_str_trim(take_until(&output, BERTH_STR("\n")));
        (void)snprintf(expected, sizeof(expected), BERTH_STR_FMT, BERTH_STR_ARG(line));
        check_ids(tokenizer, text, 0, expected);
        check_normal_return(tokenizer, text, strcmp(name, "qwen2") == 0);
    }
    CHECK_UINT(count, 46);
    berth_free(outputs);
}

TEST(vectors_give_their_ids_and_come_back) {
    static const char *const names[] = {"gpt-2", "phi-3", "qwen2"};
    char *inputs;
    size_t input_bytes;
    if (!berth_path_is_dir(VECTORS)) {
        SKIP("needs " VECTORS);
    }
    CHECK_OK(berth_file_read(VECTORS "vectors.inp", VECTOR_LIMIT, &inputs, &input_bytes));
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        char path[128];
        berth_tokenizer *tokenizer;
        (void)snprintf(path, sizeof(path), VECTORS "%s", names[i]);
        CHECK_OK(berth_tokenizer_open(path, &tokenizer));
        check_vectors(tokenizer, names[i], (berth_str){.data = inputs, .size = input_bytes});
        berth_tokenizer_close(tokenizer);
    }
    berth_free(inputs);
}

// ---- encode ----

TEST(merges_apply_by_rank_and_then_from_the_left) {
    // "bc" comes first, so "abc" is a + bc and never ab + c; "aaa" joins its left pair.
    static const char *const forms[] = {
        "[\"b c\",\"a b\",\"a a\",\"a bc\"]",
        "[[\"b\",\"c\"],[\"a\",\"b\"],[\"a\",\"a\"],[\"a\",\"bc\"]]",
        "[\"#version: 0.2\",\"b c\",\"a b\",\"a a\",\"a bc\"]",
    };
    for (size_t i = 0; i < BERTH_COUNT(forms); ++i) {
        const recipe r = {.vocab = ",\"ab\":256,\"bc\":257,\"aa\":258,\"abc\":259",
                          .merges = forms[i]};
        berth_tokenizer *tokenizer = open_recipe(&r);
        check_ids(tokenizer, BERTH_STR("abc"), 0, "259");
        check_ids(tokenizer, BERTH_STR("abab"), 0, "256 256");
        check_ids(tokenizer, BERTH_STR("aaa"), 0, "258 97");
        check_ids(tokenizer, BERTH_STR("aaabc"), 0, "258 259");
        check_ids(tokenizer, BERTH_STR(""), 0, "");
        berth_tokenizer_close(tokenizer);
    }
}

TEST(ignore_merges_takes_a_word_that_the_model_has) {
    const recipe r = {
        .vocab = ",\"ab\":256,\"\xC4\xA0zz\":257",
        .merges = "[\"a b\"]",
        .options = ",\"ignore_merges\":true",
        .added_tokens = "[{\"id\":258,\"content\":\"yy\",\"special\":true}]",
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    check_ids(tokenizer, BERTH_STR("ab zz zza"), 0, "256 257 32 122 122 97");
    // An added token is no word of the model: as plain text it is two bytes.
    check_ids(tokenizer, BERTH_STR("yy"), 0, "121 121");
    check_ids(tokenizer, BERTH_STR("yy"), BERTH_ENCODE_PARSE_SPECIAL, "258");
    berth_tokenizer_close(tokenizer);
}

TEST(added_tokens_honour_their_flags) {
    const recipe r = {
        .added_tokens = "[{\"id\":256,\"content\":\"<s>\",\"special\":true},"
                        "{\"id\":257,\"content\":\"<l>\",\"lstrip\":true,\"normalized\":false},"
                        "{\"id\":258,\"content\":\"<r>\",\"rstrip\":true},"
                        "{\"id\":259,\"content\":\"zz\",\"single_word\":true},"
                        "{\"id\":260,\"content\":\"<s>>\"},"
                        "{\"id\":261,\"content\":\"<l\",\"special\":false},"
                        "{\"id\":262,\"content\":\"\\t\",\"lstrip\":true,\"rstrip\":true},"
                        "{\"id\":263,\"content\":\"\\n\"}]",
    };
    static const struct {
        const char *text;
        uint32_t flags;
        const char *ids;
    } cases[] = {
        {.text = "a<s>b",                      .flags = BERTH_ENCODE_PARSE_SPECIAL, .ids = "97 256 98"},
        {.text = "<s>",                                    .flags = 0,                                                           .ids = "60 115 62"},
 // What is found as written comes before what is found in the normalized text.
        {.text = "<s>>",                  .flags = BERTH_ENCODE_PARSE_SPECIAL,.ids = "256 62"},
        {.text = "a \n<l> b",.flags = 0,          .ids = "97 257 32 98"},
        {.text = "a<r> \xC2\xA0"
                 "b",                  .flags = 0,
         .ids = "97 258 98"},
        {.text = "<r> <r>",                                    .flags = 0,                                                    .ids = "258 258"},
        {.text = "<l <l>",                   .flags = 0,                                                      .ids = "261 257"},
        {.text = "zz zzz zz.zz \xC3\xA9zz",
         .ids = "259 32 122 122 122 32 259 46 259 32 195 169 122 122"},
        {.text = "zz",                     .ids = "259"                           },
 // The blanks that a token swallows hold none that swallows blanks, too.
        {.text = "a \t\t\t b",                                    .ids = "97 262 98"                                      },
        {.text = "\t \n",                                    .ids = "262 263"                                                                                                     },
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        check_ids(tokenizer, berth_str_from(cases[i].text), cases[i].flags, cases[i].ids);
    }
    CHECK(berth_tokenizer_is_special(tokenizer, 256));
    CHECK(!berth_tokenizer_is_special(tokenizer, 257));
    CHECK(!berth_tokenizer_is_special(tokenizer, 4096));
    CHECK_UINT(berth_tokenizer_size(tokenizer), 264);
    CHECK_INT(berth_tokenizer_find(tokenizer, BERTH_STR("<r>")), 258);
    CHECK_INT(berth_tokenizer_find(tokenizer, BERTH_STR("nothing")), -1);
    CHECK_STR(berth_tokenizer_token(tokenizer, 32).data, "\xC4\xA0");
    CHECK_NULL(berth_tokenizer_token(tokenizer, -1).data);
    berth_tokenizer_close(tokenizer);
}

TEST(the_template_frames_a_text_when_asked) {
    static const struct {
        const char *post_processor, *config, *ids;
    } cases[] = {
        {
         .post_processor = FRAME,
         .config = "",
         .ids = "256 97 257 256",
         },
        {
         .post_processor =
                "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," FRAME "]}",
         .config = "",
         .ids = "256 97 257 256",
         },
        {
         .post_processor = "{\"type\":\"ByteLevel\"}",
         .config = "",
         .ids = "97",
         },
 // The switches of tokenizer_config.json replace it.
        {
         .post_processor = FRAME,
         .config = "{\"bos_token\":\"</s>\",\"add_bos_token\":true}",
         .ids = "257 97",
         },
        {
         .post_processor = FRAME,
         .config = "{\"eos_token\":{\"content\":\"</s>\"},\"add_eos_token\":true}",
         .ids = "97 257",
         },
        {
         .post_processor = FRAME,
         .config = "{\"add_bos_token\":false}",
         .ids = "97",
         },
        {
         .post_processor = FRAME,
         .config = "{\"bos_token\":\"<s>\"}",
         .ids = "256 97 257 256",
         },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        const recipe r = {.added_tokens = SPECIALS,
                          .post_processor = cases[i].post_processor,
                          .config = cases[i].config};
        berth_tokenizer *tokenizer = open_recipe(&r);
        check_ids(tokenizer, BERTH_STR("a"), BERTH_ENCODE_ADD_SPECIAL, cases[i].ids);
        check_ids(tokenizer, BERTH_STR("a"), 0, "97");
        berth_tokenizer_close(tokenizer);
    }
}

TEST(tokenizer_config_names_and_adds_special_tokens) {
    const recipe r = {
        .vocab = ",\"zz\":256",
        .config = "{\"model_max_length\":1000000000000000019884624838656,\"bos_token\":\"zz\","
                  "\"eos_token\":\"<e>\",\"added_tokens_decoder\":"
                  "{\"257\":{\"content\":\"<e>\",\"special\":true,\"rstrip\":true}}}",
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    CHECK_INT(berth_tokenizer_bos(tokenizer), 256);
    CHECK_INT(berth_tokenizer_eos(tokenizer), 257);
    check_ids(tokenizer, BERTH_STR("zz<e> a"), BERTH_ENCODE_PARSE_SPECIAL, "256 257 97");
    berth_tokenizer_close(tokenizer);
}

TEST(a_million_letters_are_one_word) {
    enum { LETTERS = 1 << 20 };
    const recipe r = {.vocab = ",\"aa\":256,\"aaaa\":257", .merges = "[\"a a\",\"aa aa\"]"};
    berth_arena *arena;
    berth_token_ids ids = {0};
    CHECK_OK(berth_arena_create(LETTERS, 4 * (size_t)LETTERS, &arena));
    char *letters = berth_arena_alloc(arena, LETTERS, 1);
    memset(letters, 'a', LETTERS);
    berth_tokenizer *tokenizer = open_recipe(&r);
    const berth_str text = {.data = letters, .size = LETTERS - 1};
    CHECK_OK(berth_tokenizer_encode(tokenizer, text, 0, &ids));
    CHECK_UINT(ids.count, LETTERS / 4 + 1);
    CHECK_INT(ids.data[ids.count - 3], 257);
    CHECK_INT(ids.data[ids.count - 2], 256);
    CHECK_INT(ids.data[ids.count - 1], 97);
    berth_array_free(&ids);
    berth_tokenizer_close(tokenizer);
    berth_arena_destroy(arena);
}

TEST(text_that_is_not_utf8_is_refused_with_the_offset) {
    const recipe r = {0};
    berth_token_ids ids = {0};
    berth_tokenizer *tokenizer = open_recipe(&r);
    CHECK_OK(berth_tokenizer_encode(tokenizer, BERTH_STR("a"), 0, &ids));
    CHECK_STATUS(berth_tokenizer_encode(tokenizer, BERTH_STR("abc\xC3("), 0, &ids),
                 BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "3");
    CHECK_UINT(ids.count, 1);
    berth_array_free(&ids);
    berth_tokenizer_close(tokenizer);
}

// ---- decode ----

TEST(ids_without_a_token_are_refused) {
    const recipe r = {.vocab = ",\"far\":300"};
    static const int32_t ids[] = {-1, 256, 299, 301, INT32_MAX};
    berth_tokenizer *tokenizer = open_recipe(&r);
    for (size_t i = 0; i < BERTH_COUNT(ids); ++i) {
        berth_text text;
        berth_text_init(&text, TEXT_LIMIT);
        CHECK_STATUS(berth_tokenizer_decode(tokenizer, &ids[i], 1, 0, &text),
                     BERTH_INVALID_ARGUMENT);
        berth_text_deinit(&text);
    }
    check_text(tokenizer, (const int32_t[]){300, 97}, 2, BERTH_STR("fara"));
    berth_tokenizer_close(tokenizer);
}

TEST(a_stream_gives_whole_characters_and_marks_broken_ones) {
    const recipe r = {.added_tokens = SPECIALS};
    static const struct {
        int32_t id;
        const char *text;
    } steps[] = {
        {.id = 'a',  .text = "a"           },
        {.id = 0xF0, .text = ""            },
        {.id = 0x9F, .text = ""            },
        {.id = 256,  .text = "\xEF\xBF\xBD"}, // a special token, left out, would not part it
        {.id = 0xE2, .text = ""            },
        {.id = 0x82, .text = ""            },
        {.id = 0xAC, .text = "\xE2\x82\xAC"},
        {.id = 0x80, .text = "\xEF\xBF\xBD"},
        {.id = 0xE2, .text = ""            },
    };
    berth_tokenizer *tokenizer = open_recipe(&r);
    berth_detokenizer *detokenizer;
    CHECK_OK(berth_detokenizer_create(tokenizer, 0, &detokenizer));
    for (size_t i = 0; i < BERTH_COUNT(steps); ++i) {
        berth_str text;
        char shown[16];
        CHECK_OK(berth_detokenizer_push(detokenizer, steps[i].id, &text));
        (void)snprintf(shown, sizeof(shown), BERTH_STR_FMT, BERTH_STR_ARG(text));
        CHECK_STR(shown, steps[i].id == 256 ? "\xEF\xBF\xBD<s>" : steps[i].text);
        CHECK_STATUS(berth_detokenizer_push(detokenizer, 4096, &text), BERTH_INVALID_ARGUMENT);
    }
    CHECK(berth_str_equal_cstr(berth_detokenizer_finish(detokenizer), "\xEF\xBF\xBD"));
    CHECK_UINT(berth_detokenizer_finish(detokenizer).size, 0);
    berth_detokenizer_destroy(detokenizer);

    CHECK_OK(berth_detokenizer_create(tokenizer, BERTH_DECODE_SKIP_SPECIAL, &detokenizer));
    static const int32_t parted[] = {0xC3, 256, 0xA9};
    berth_str text;
    for (size_t i = 0; i < BERTH_COUNT(parted); ++i) {
        CHECK_OK(berth_detokenizer_push(detokenizer, parted[i], &text));
    }
    CHECK(berth_str_equal_cstr(text, "\xC3\xA9"));
    berth_detokenizer_destroy(detokenizer);
    berth_tokenizer_close(tokenizer);
}

static void stream(berth_detokenizer *detokenizer, const int32_t *ids, size_t count,
                   berth_text *text) {
    berth_text_clear(text);
    for (size_t i = 0; i < count; ++i) {
        berth_str piece;
        CHECK_OK(berth_detokenizer_push(detokenizer, ids[i], &piece));
        CHECK_UINT(berth_utf8_valid_bytes(piece), piece.size);
        berth_text_add(text, piece);
    }
    berth_text_add(text, berth_detokenizer_finish(detokenizer));
}

TEST(a_stream_is_the_whole_decode_for_every_prefix) {
    berth_tokenizer *tokenizer = open_model("shakespeare");
    berth_detokenizer *detokenizer;
    berth_text text;
    uint64_t seed = 7;
    int32_t ids[300];
    berth_text_init(&text, TEXT_LIMIT);
    for (size_t i = 0; i < BERTH_COUNT(ids); ++i) {
        // Mostly single bytes, so that most characters are broken and some are whole.
        ids[i] = (int32_t)(next_random(&seed) % (i % 3 == 0 ? 1024 : 257));
    }
    CHECK_OK(berth_detokenizer_create(tokenizer, 0, &detokenizer));
    const uint64_t allocations = berth_memory_allocations();
    berth_str unused;
    CHECK_OK(berth_detokenizer_push(detokenizer, ids[0], &unused));
    (void)berth_detokenizer_finish(detokenizer);
    CHECK_UINT(berth_memory_allocations(), allocations);
    for (size_t count = 0; count <= BERTH_COUNT(ids); ++count) {
        stream(detokenizer, ids, count, &text);
        check_text(tokenizer, ids, count, berth_text_str(&text));
    }
    berth_text_deinit(&text);
    berth_detokenizer_destroy(detokenizer);
    berth_tokenizer_close(tokenizer);
}

static void print_random_text(uint64_t *seed, berth_text *text) {
    static const uint32_t limits[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
    const size_t length = next_random(seed) % 64;
    berth_text_clear(text);
    for (size_t i = 0; i < length; ++i) {
        char bytes[4];
        const uint32_t limit = limits[next_random(seed) % BERTH_COUNT(limits)];
        const size_t size = berth_utf8_encode((uint32_t)(next_random(seed) % limit), bytes);
        berth_text_add(text, (berth_str){.data = bytes, .size = size});
    }
}

TEST(what_is_encoded_decodes_to_the_same_text) {
    for (size_t m = 0; m < BERTH_COUNT(models); ++m) {
        berth_tokenizer *tokenizer = open_model(models[m]);
        uint64_t seed = 42 + m;
        berth_text text;
        berth_text_init(&text, TEXT_LIMIT);
        for (int i = 0; i < 2000; ++i) {
            print_random_text(&seed, &text);
            check_return(tokenizer, berth_text_str(&text), berth_text_str(&text));
        }
        berth_text_deinit(&text);
        berth_tokenizer_close(tokenizer);
    }
}
