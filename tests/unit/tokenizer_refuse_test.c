// SPDX-License-Identifier: Apache-2.0
// The tokenizer against files that are broken, hostile or ask for what is not there, and against a
// machine without memory.
#include "tokenizer/tokenizer.h"

#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/memory.h"
#include "support/recipe.h"
#include "support/test.h"

#define FILE_LIMIT ((size_t)1 << 20)

#define DECODERS(list) "{\"type\":\"Sequence\",\"decoders\":[" list "]}"
#define FUSE           "{\"type\":\"Fuse\"}"
#define FALLBACK       "{\"type\":\"ByteFallback\"}"
#define BPE(suffix)    "{\"type\":\"BPEDecoder\",\"suffix\":\"" suffix "\"}"
#define CTC(pad, cleanup)                                                                          \
    "{\"type\":\"CTC\",\"pad_token\":\"" pad                                                       \
    "\",\"word_delimiter_token\":\"|\",\"cleanup\":" cleanup "}"
#define STRIP(start, stop)                                                                         \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":" start ",\"stop\":" stop "}"

static const struct {
    recipe recipe;
    berth_status status;
    const char *message;
} refusals[] = {
    {.recipe = {.vocab = ",\"x1\":97"},
     .status = BERTH_CORRUPT,
     .message = "id 97 is given to 'a' and to 'x1'"                                                                                                                     },
    {.recipe = {.vocab = ",\"x1\":-1"},                                                                  .status = BERTH_CORRUPT,     .message = "out of range"         },
    {.recipe = {.vocab = ",\"x1\":2097152"},                                                             .status = BERTH_CORRUPT,     .message = "out of range"         },
    {.recipe = {.vocab = ",\"x1\":1e300"},                                                               .status = BERTH_CORRUPT,     .message = "model.vocab.x1"       },
    {.recipe = {.vocab = ",\"x1\":99999999999999999999"},
     .status = BERTH_CORRUPT,
     .message = "model.vocab.x1"                                                                                                                                        },
    {.recipe = {.vocab = ",\"x1\":\"7\""},                                                               .status = BERTH_CORRUPT,     .message = "model.vocab.x1"       },
    {.recipe = {.vocab = ",\"a\":300"},                                                                  .status = BERTH_CORRUPT,     .message = "tokenizer.json"       },
    {.recipe = {.merges = "{}"},                                                                         .status = BERTH_CORRUPT,     .message = "model.merges"         },
    {.recipe = {.merges = "null"},                                                                       .status = BERTH_CORRUPT,     .message = "model.merges"         },
    {.recipe = {.merges = "[\"ab\"]"},                                                                   .status = BERTH_CORRUPT,     .message = "model.merges.0"       },
    {.recipe = {.merges = "[\"a b c\"]"},                                                                .status = BERTH_CORRUPT,     .message = "model.merges.0"       },
    {.recipe = {.merges = "[[\"a\"]]"},                                                                  .status = BERTH_CORRUPT,     .message = "model.merges.0"       },
    {.recipe = {.merges = "[[\"a\",7]]"},                                                                .status = BERTH_CORRUPT,     .message = "model.merges.0.1"     },
    {.recipe = {.merges = "[7]"},                                                                        .status = BERTH_CORRUPT,     .message = "model.merges.0"       },
    {.recipe = {.merges = "[\"a b\"]"},                                                                  .status = BERTH_CORRUPT,     .message = "'ab'"                 },
    {.recipe = {.vocab = ",\"ab\":256", .merges = "[\"a b\",\"ab nope\"]"},
     .status = BERTH_CORRUPT,
     .message = "merges.1"                                                                                                                                              },
 // An empty token would join with its neighbour into that neighbour, for ever.
    {.recipe = {.vocab = ",\"\":256", .merges = "[[\"\",\"a\"]]"},
     .status = BERTH_CORRUPT,
     .message = "merges.0"                                                                                                                                              },
    {.recipe = {.options = ",\"dropout\":0.1"},                                                          .status = BERTH_UNSUPPORTED, .message = "dropout"              },
    {.recipe = {.options = ",\"ignore_merges\":1"},
     .status = BERTH_CORRUPT,
     .message = "ignore_merges"                                                                                                                                         },
    {.recipe = {.added_tokens = "{}"},                                                                   .status = BERTH_CORRUPT,     .message = "added_tokens"         },
    {.recipe = {.added_tokens = "[7]"},                                                                  .status = BERTH_CORRUPT,     .message = "added_tokens.0"       },
    {.recipe = {.added_tokens = "[{\"content\":\"x\"}]"},
     .status = BERTH_CORRUPT,
     .message = "added_tokens.0"                                                                                                                                        },
    {.recipe = {.added_tokens = "[{\"id\":256,\"content\":\"\"}]"},
     .status = BERTH_CORRUPT,
     .message = "added_tokens.0"                                                                                                                                        },
    {.recipe = {.added_tokens = "[{\"id\":97,\"content\":\"<s>\"}]"},
     .status = BERTH_CORRUPT,
     .message = "id 97"                                                                                                                                                 },
    {.recipe = {.added_tokens = "[{\"id\":256,\"content\":\"a\"}]"},
     .status = BERTH_CORRUPT,
     .message = "id 256"                                                                                                                                                },
    {.recipe = {.added_tokens = "[{\"id\":4294967296,\"content\":\"<s>\"}]"},
     .status = BERTH_CORRUPT,
     .message = "out of range"                                                                                                                                          },
    {.recipe = {.normalizer = "{\"type\":\"Sideways\"}"},
     .status = BERTH_UNSUPPORTED,
     .message = "normalizer 'Sideways'"                                                                                                                                 },
    {.recipe = {.pre_tokenizer = "{\"type\":\"SidewaysScripts\"}"},
     .status = BERTH_UNSUPPORTED,
     .message = "'SidewaysScripts'"                                                                                                                                     },
    {.recipe = {.post_processor = "{\"type\":\"SidewaysProcessing\"}"},
     .status = BERTH_UNSUPPORTED,
     .message = "'SidewaysProcessing'"                                                                                                                                  },
    {.recipe = {.post_processor = FRAME},
     .status = BERTH_CORRUPT,
     .message = "id 256 has no token"                                                                                                                                   },
    {.recipe = {.post_processor =
                    "{\"type\":\"TemplateProcessing\",\"single\":[],\"special_tokens\":{}}"},
     .status = BERTH_UNSUPPORTED,
     .message = "post_processor.single"                                                                                                                                 },
    {.recipe = {.decoder = "{\"type\":\"Sideways\"}"},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'Sideways'"                                                                                                                                    },
    {.recipe = {.decoder = "{\"type\":\"BPEDecoder\"}"},
     .status = BERTH_CORRUPT,
     .message = "suffix"                                                                                                                                                },
    {.recipe = {.decoder = BPE("")},                                                                     .status = BERTH_UNSUPPORTED, .message = "an empty suffix"      },
    {.recipe = {.decoder = DECODERS(STRIP("1", "0") "," BPE("</w>"))},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'BPEDecoder' behind another"                                                                                                                   },
    {.recipe = {.decoder = DECODERS(BPE("</w>") "," CTC("<pad>", "true"))},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'CTC' behind BPEDecoder"                                                                                                                       },
    {.recipe = {.decoder = DECODERS(STRIP("1", "0") "," CTC("<pad>", "true"))},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'CTC' behind another"                                                                                                                          },
    {.recipe = {.decoder = CTC("", "true")},
     .status = BERTH_UNSUPPORTED,
     .message = "an empty pad_token"                                                                                                                                    },
    {.recipe = {.decoder = CTC("<pad>", "7")},                                                           .status = BERTH_CORRUPT,     .message = "cleanup"              },
    {.recipe = {.decoder = DECODERS(FUSE "," FALLBACK)},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'ByteFallback' behind Fuse"                                                                                                                    },
    {.recipe = {.decoder = DECODERS(FALLBACK ",{\"type\":\"Replace\"}")},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'Replace' behind ByteFallback"                                                                                                                 },
    {.recipe = {.decoder = DECODERS(FALLBACK "," STRIP("1", "0"))},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'Strip' behind ByteFallback"                                                                                                                   },
    {.recipe = {.decoder = DECODERS(FUSE "," STRIP("1", "1"))},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'Strip' with a stop"                                                                                                                           },
    {.recipe = {.decoder = DECODERS(FUSE "," STRIP("1", "0") "," STRIP("1", "0"))},
     .status = BERTH_UNSUPPORTED,
     .message = "decoder 'Strip' with a stop, or behind another"                                                                                                        },
    {.recipe = {.decoder = STRIP("-1", "0")},                                                            .status = BERTH_CORRUPT,     .message = "Strip needs"          },
    {.recipe = {.decoder =
                    "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"\\\\ba\"}}"},
     .status = BERTH_UNSUPPORTED,
     .message = "'\\b' at byte 0"                                                                                                                                       },
    {.recipe = {.decoder = "{\"type\":\"Sequence\"}"},
     .status = BERTH_CORRUPT,
     .message = "decoders"                                                                                                                                              },
    {.recipe = {.normalizer = "{\"type\":\"Sequence\"}"},
     .status = BERTH_CORRUPT,
     .message = "normalizers"                                                                                                                                           },
    {.recipe = {.normalizer = "{\"type\":\"Prepend\"}"},
     .status = BERTH_CORRUPT,
     .message = "normalizer.prepend"                                                                                                                                    },
    {.recipe = {.normalizer = "{\"type\":\"Strip\",\"strip_left\":true}"},
     .status = BERTH_CORRUPT,
     .message = "strip_right"                                                                                                                                           },
    {.recipe = {.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},"
                              "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}]}",
                .pre_tokenizer =
                    "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}"},
     .status = BERTH_UNSUPPORTED,
     .message = "'first' is not supported behind this normalizer"                                                                                                       },
    {.recipe = {.normalizer = "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}",
                .added_tokens = "[{\"id\":256,\"content\":\"  \"}]"},
     .status = BERTH_UNSUPPORTED,
     .message = "of which the normalizer leaves nothing"                                                                                                                },
    {.recipe = {.normalizer = "{\"type\":\"Lowercase\"}",
                .added_tokens =
                    "[{\"id\":256,\"content\":\"Xx\"},{\"id\":257,\"content\":\"xX\"}]"},
     .status = BERTH_UNSUPPORTED,
     .message = "which the normalizer makes one"                                                                                                                        },
    {.recipe = {.is_of_characters = true, .options = ",\"unk_token\":\"<unk>\""},
     .status = BERTH_CORRUPT,
     .message = "'<unk>' is no token of the vocabulary"                                                                                                                 },
    {.recipe = {.is_of_characters = true, .options = ",\"byte_fallback\":7"},
     .status = BERTH_CORRUPT,
     .message = "byte_fallback"                                                                                                                                         },
    {.recipe = {.config = "{\"bos_token\":\"<none>\"}"},
     .status = BERTH_CORRUPT,
     .message = "tokenizer_config.json: bos_token"                                                                                                                      },
    {.recipe = {.config = "{\"eos_token\":7}"},                                                          .status = BERTH_CORRUPT,     .message = "eos_token"            },
    {.recipe = {.config = "{\"add_bos_token\":\"yes\"}"},
     .status = BERTH_CORRUPT,
     .message = "add_bos_token"                                                                                                                                         },
    {.recipe = {.config = "{\"added_tokens_decoder\":{\"x\":{}}}"},
     .status = BERTH_CORRUPT,
     .message = "added_tokens_decoder"                                                                                                                                  },
    {.recipe = {.config = "[]"},                                                                         .status = BERTH_CORRUPT,     .message = "tokenizer_config.json"},
    {.recipe = {.config = "{"},                                                                          .status = BERTH_CORRUPT,     .message = "tokenizer_config.json"},
};

TEST(files_that_are_broken_or_not_supported_are_refused_in_one_line) {
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        berth_tokenizer *tokenizer = NULL;
        CHECK_STATUS(parse_recipe(&refusals[i].recipe, &tokenizer), refusals[i].status);
        CHECK_CONTAINS(berth_status_message(), refusals[i].message);
        CHECK_NULL(strchr(berth_status_message(), '\n'));
        CHECK_NULL(tokenizer);
    }
}

TEST(files_that_are_no_bpe_are_refused) {
    static const struct {
        const char *json;
        berth_status status;
        const char *message;
    } cases[] = {
        {.json = "",                                                                 .status = BERTH_CORRUPT,     .message = "tokenizer.json"},
        {.json = "7",                                                                .status = BERTH_CORRUPT,     .message = "model"         },
        {.json = "{}",                                                               .status = BERTH_CORRUPT,     .message = "model"         },
        {.json = "{\"model\":[]}",                                                   .status = BERTH_CORRUPT,     .message = "model"         },
        {.json = "{\"model\":{}}",                                                   .status = BERTH_CORRUPT,     .message = "model.vocab"   },
        {.json = "{\"model\":{\"type\":\"Sideways\",\"vocab\":[]}}",
         .status = BERTH_UNSUPPORTED,
         .message = "model 'Sideways'"                                                                                                       },
        {.json = "{\"model\":{\"type\":\"WordPiece\",\"vocab\":[]}}",
         .status = BERTH_CORRUPT,
         .message = "model.vocab"                                                                                                            },
        {.json = "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{},\"unk_token\":\"u\","
                 "\"max_input_chars_per_word\":1025}}",                     .status = BERTH_UNSUPPORTED,
         .message = "max_input_chars_per_word 1025"                                                                                          },
        {.json = "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}",
         .status = BERTH_CORRUPT,
         .message = "unk_token"                                                                                                              },
        {.json = "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":"
                 "\"Precompiled\",\"precompiled_charsmap\":\"AQAAAA==\"}}", .status = BERTH_CORRUPT,
         .message = "no table of characters"                                                                                                 },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        berth_tokenizer *tokenizer;
        CHECK_STATUS(
            berth_tokenizer_parse(berth_str_from(cases[i].json), (berth_str){0}, &tokenizer),
            cases[i].status);
        CHECK_CONTAINS(berth_status_message(), cases[i].message);
    }
}

TEST(a_directory_without_a_tokenizer_says_what_to_do) {
    berth_tokenizer *tokenizer;
    CHECK_STATUS(berth_tokenizer_open("tests/unit", &tokenizer), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "tests/unit/tokenizer.json");
    CHECK_STATUS(berth_tokenizer_open("tests/no-such-model", &tokenizer), BERTH_NOT_FOUND);
}

// ---- memory ----

static berth_status encode_framed(const berth_tokenizer *tokenizer, berth_token_ids *ids) {
    berth_text text;
    berth_text_init(&text, FILE_LIMIT);
    const uint32_t flags = BERTH_ENCODE_ADD_SPECIAL | BERTH_ENCODE_PARSE_SPECIAL;
    berth_status status = berth_tokenizer_encode(tokenizer, BERTH_STR("<s>ab"), flags, ids);
    if (status == BERTH_OK) {
        status = berth_tokenizer_decode(tokenizer, ids->data, ids->count, 0, &text);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status use_tokenizer(const recipe *r) {
    berth_tokenizer *tokenizer;
    berth_token_ids ids = {0};
    BERTH_TRY(parse_recipe(r, &tokenizer));
    const berth_status status = encode_framed(tokenizer, &ids);
    if (status == BERTH_OK) {
        CHECK_UINT(ids.count, 4);
        CHECK_INT(ids.data[3], 258);
    }
    berth_array_free(&ids);
    berth_tokenizer_close(tokenizer);
    return status;
}

static void fail_every_allocation(const recipe *r) {
    bool is_done = false;
    int harmless = 0;
    for (uint64_t n = 1; !is_done; ++n) {
        CHECK_UINT(berth_memory_fail_after(n), 0);
        const berth_status status = use_tokenizer(r);
        is_done = berth_memory_fail_after(0) > 0;
        CHECK_STATUS(status, status == BERTH_OK ? BERTH_OK : BERTH_OUT_OF_MEMORY);
        harmless += status == BERTH_OK && !is_done;
    }
    CHECK(harmless <= 16);
}

// Only the compiled form of a pattern may be missing: then the same ids come more slowly. Why both
// recipes have a long key early on: jansson 2.14 overruns its buffer when it cannot grow it at a
// string's closing quote, as it would for "post_processor".
TEST(every_failed_allocation_is_reported_or_does_no_harm) {
    const recipe of_bytes = {
        .vocab = ",\"ab\":258",
        .merges = "[\"a b\"]",
        .options = ",\"ignore_merges\":true",
        .added_tokens = SPECIALS,
        .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
        .post_processor = FRAME,
        .config = "{\"bos_token\":\"<s>\",\"add_bos_token\":true}",
    };
    const recipe of_characters = {
        .is_of_characters = true,
        .vocab = ",\"a\":259,\"\u0301\":260,\"_\":261,\"ab\":258,\"b\":262",
        .merges = "[\"a b\"]",
        .options = ",\"byte_fallback\":true,\"continuing_subword_prefix\":null",
        .added_tokens = SPECIALS,
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},"
                      "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"\"}]}",
        .pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"split\":false}",
        .post_processor = FRAME,
        .decoder = "{\"type\":\"Metaspace\",\"replacement\":\"_\"}",
        .config = "{\"bos_token\":\"<s>\",\"add_bos_token\":true}",
    };
    fail_every_allocation(&of_bytes);
    fail_every_allocation(&of_characters);
}

// ---- what the fuzzer starts from ----

TEST(the_fuzzers_files_are_read_or_refused) {
    berth_arena *arena;
    berth_dir_listing files;
    CHECK_OK(berth_arena_create(1 << 16, FILE_LIMIT, &arena));
    CHECK_OK(berth_dir_list("tests/fuzz/tokenizer_json", arena, &files));
    CHECK(files.count > 0);
    for (size_t i = 0; i < files.count; ++i) {
        char *data;
        size_t size;
        berth_tokenizer *tokenizer;
        const char *path = berth_path_join(arena, "tests/fuzz/tokenizer_json", files.names[i]);
        CHECK_OK(berth_file_read(path, FILE_LIMIT, &data, &size));
        const berth_str json = {.data = data, .size = size};
        if (berth_tokenizer_parse(json, (berth_str){0}, &tokenizer) == BERTH_OK) {
            berth_token_ids ids = {0};
            const berth_str text = BERTH_STR("It is <s> the east");
            // A file may have no token for what it does not know.
            if (berth_tokenizer_encode(tokenizer, text, 2, &ids) != BERTH_OK) {
                CHECK_CONTAINS(berth_status_message(), "the vocabulary has no token for");
            }
            berth_array_free(&ids);
            berth_tokenizer_close(tokenizer);
        } else {
            CHECK(berth_status_message()[0] != '\0');
        }
        berth_free(data);
    }
    berth_arena_destroy(arena);
}
