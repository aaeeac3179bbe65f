// SPDX-License-Identifier: Apache-2.0
// Checkpoints without tokenizer.json: vocab.json, merges.txt and the class that reads them.
#include "base/text.h"
#include "support/recipe.h"
#include "support/sandbox.h"
#include "support/test.h"
#include "tokenizer/alphabet.h"

// The bytes as ids 0 to 255, then `more`.
static void write_vocab(const sandbox *box, const char *more) {
    berth_text json;
    berth_text_init(&json, 65536);
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char raw = (char)byte;
        char spelling[2];
        const size_t size = berth_alphabet_spell((berth_str){.data = &raw, .size = 1}, spelling);
        berth_text_add_cstr(&json, byte > 0 ? ",\"" : "{\"");
        berth_text_add_json(&json, (berth_str){.data = spelling, .size = size});
        berth_text_add_format(&json, "\":%u", byte);
    }
    berth_text_add_format(&json, "%s}", more);
    (void)sandbox_write(box, "vocab.json", json.data);
    berth_text_deinit(&json);
}

#define END    ",\"<|endoftext|>\":256"
#define PAIRS  ",\"ab\":257,\"\u0120ab\":258,\"11\":259"
#define MERGES "#version: 0.2\na b\r\n\n\u0120 ab\n1 1"
#define ADDED(id)                                                                                  \
    "\"added_tokens_decoder\":{\"" id "\":{\"content\":\"<|endoftext|>\",\"special\":true}}"

static const struct {
    const char *vocab, *merges, *config, *text, *ids;
    int32_t bos, eos;
} opened[] = {
    {
     .vocab = END PAIRS,
     .merges = MERGES,
     .config = "{\"tokenizer_class\":\"GPT2Tokenizer\"}",
     .text = "ab ab11e\u0301<|endoftext|>",
     .ids = "257 258 259 101 204 129 256",
     .bos = 256,
     .eos = 256,
     },
    {
     .vocab = END PAIRS,
     .merges = MERGES,
     .config = "{\"tokenizer_class\":\"GPT2TokenizerFast\",\"add_prefix_space\":true,"
                  "\"bos_token\":null,\"eos_token\":\"ab\"}",                                  .text = "ab",
     .ids = "257", // a special token is found before it takes a blank
        .bos = -1,
     .eos = 257,
     },
    {
     .vocab = END PAIRS,
     .merges = MERGES,
     .config = "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true}",
     .text = "ab",
     .ids = "258",
     .bos = 256,
     .eos = 256,
     },
 // Digits stand alone, and a letter and its mark are one character.
    {
     .vocab = PAIRS,
     .merges = MERGES,
     .config = "{\"tokenizer_class\":\"Qwen2Tokenizer\"," ADDED("300") "}",
     .text = "ab ab11e\u0301<|endoftext|>",
     .ids = "257 258 49 49 195 169 300",
     .bos = -1,
     .eos = 300,
     },
};

TEST(a_class_reads_its_vocabulary_and_merges) {
    for (size_t i = 0; i < BERTH_COUNT(opened); ++i) {
        sandbox box;
        berth_tokenizer *tokenizer;
        sandbox_make(&box);
        write_vocab(&box, opened[i].vocab);
        (void)sandbox_write(&box, "merges.txt", opened[i].merges);
        (void)sandbox_write(&box, "tokenizer_config.json", opened[i].config);
        CHECK_OK(berth_tokenizer_open(box.dir, &tokenizer));
        check_ids(tokenizer, berth_str_from(opened[i].text), BERTH_ENCODE_PARSE_SPECIAL,
                  opened[i].ids);
        CHECK_INT(berth_tokenizer_bos(tokenizer), opened[i].bos);
        CHECK_INT(berth_tokenizer_eos(tokenizer), opened[i].eos);
        berth_tokenizer_close(tokenizer);
        sandbox_remove(&box);
    }
}

static const struct {
    const char *merges, *config;
    berth_status status;
    const char *message;
} refused[] = {
    {MERGES,       NULL,                                                             BERTH_UNSUPPORTED, "tokenizer class ''"},
    {MERGES,       "{}",                                                             BERTH_UNSUPPORTED, "tokenizer class ''"},
    {MERGES,       "{\"tokenizer_class\":\"LlamaTokenizer\"}",                       BERTH_UNSUPPORTED, "'LlamaTokenizer'"  },
    {MERGES,       "{\"tokenizer_class\":7}",                                        BERTH_CORRUPT,     "tokenizer_class"   },
    {MERGES,       "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":1}", BERTH_CORRUPT,
     "add_prefix_space"                                                                                                     },
    {MERGES,       "{\"tokenizer_class\":\"GPT2Tokenizer\"}",                        BERTH_CORRUPT,
     "'<|endoftext|>' is no token"                                                                                          },
    {NULL,         "{\"tokenizer_class\":\"GPT2Tokenizer\"}",                        BERTH_NOT_FOUND,   "merges.txt"        },
    {"a b\na c d", "{\"tokenizer_class\":\"Qwen2Tokenizer\"," ADDED("300") "}",      BERTH_CORRUPT,
     "merges.txt: 1"                                                                                                        },
    {"a \xFF",     "{\"tokenizer_class\":\"Qwen2Tokenizer\"," ADDED("300") "}",      BERTH_CORRUPT,
     "merges.txt: 0"                                                                                                        },
};

TEST(files_that_no_class_can_read_are_refused) {
    for (size_t i = 0; i < BERTH_COUNT(refused); ++i) {
        sandbox box;
        berth_tokenizer *tokenizer;
        sandbox_make(&box);
        write_vocab(&box, PAIRS);
        if (refused[i].merges) {
            (void)sandbox_write(&box, "merges.txt", refused[i].merges);
        }
        if (refused[i].config) {
            (void)sandbox_write(&box, "tokenizer_config.json", refused[i].config);
        }
        CHECK_STATUS(berth_tokenizer_open(box.dir, &tokenizer), refused[i].status);
        CHECK_CONTAINS(berth_status_message(), refused[i].message);
        CHECK_NULL(tokenizer);
        sandbox_remove(&box);
    }
}

TEST(a_tokenizer_json_counts_before_a_class) {
    sandbox box;
    berth_tokenizer *tokenizer;
    sandbox_make(&box);
    write_vocab(&box, PAIRS);
    (void)sandbox_write(&box, "merges.txt", MERGES);
    (void)sandbox_write(&box, "tokenizer_config.json", "{\"tokenizer_class\":\"Any\"}");
    (void)sandbox_write(&box, "tokenizer.json",
                        "{\"model\":{\"vocab\":{\"a\":7},\"merges\":[]},\"decoder\":"
                        "{\"type\":\"Fuse\"}}");
    CHECK_OK(berth_tokenizer_open(box.dir, &tokenizer));
    check_ids(tokenizer, BERTH_STR("aba"), 0, "7 7");
    berth_tokenizer_close(tokenizer);
    sandbox_remove(&box);
}
