// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer: what its patterns mean and where they cut. The expected pieces are those of
// the reference implementation.
#include "tokenizer/splitter.h"

#include "base/dialect.h"
#include "base/text.h"
#include "support/test.h"

#define BYTES      "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define GPT2       "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define PREFIX     "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"
#define SEQ(list)  "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define REGEX(r)   "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" r "\"},\"behavior\":\"Isolated\"}"
#define KIND(name) "{\"type\":\"" name "\"}"
#define META(more) "{\"type\":\"Metaspace\",\"replacement\":\"_\"" more "}"
#define DASH(kind, rule, invert)                                                                   \
    SEQ("{\"type\":\"Split\",\"pattern\":{\"" kind "\":\"-\"},\"behavior\":\"" rule                \
        "\",\"invert\":" invert "}," BYTES)

#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"          \
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|"               \
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

static const struct {
    const char *pre_tokenizer, *text, *words;
} cuts[] = {
    {GPT2,                                                             "I'll  take 12 apples,\n\nok?  ",                              "I|'ll| | take| 12| apples|,|\n|\n|ok|?|  "                                       },
 // U+180E is no white space, U+00A0 and U+3000 are.
    {GPT2,                                                             "x\u180Ey \u180E",                                             "x|\u180E|y| \u180E"                                                              },
    {GPT2,                                                             " \u00A0\u3000\u00E9\u65E5\u672C \u00BD",                      " \u00A0|\u3000|\u00E9\u65E5\u672C| \u00BD"                                       },
    {GPT2,                                                             "",                                                            ""                                                                                },
    {PREFIX,                                                           "a b",                                                         " a| b"                                                                           },
    {PREFIX,                                                           " a",                                                          " a"                                                                              },
    {SEQ(REGEX("b") "," PREFIX),                                       "abc",                                                         " a| b| c"                                                                        },
    {BYTES,                                                            "a b, c",                                                      "a b, c"                                                                          },
    {SEQ(REGEX(LLAMA3) "," BYTES),                                     "I'LL take 12345!!\n\n  x",                                    "I|'LL| take| |123|45|!!\n\n| | x"                                                },
    {SEQ(REGEX(QWEN2) "," BYTES),                                      "12 3\r\n",                                                    "1|2| |3|\r\n"                                                                    },
    {SEQ(REGEX("\\\\p{Han}+") "," BYTES),                              "a\u6F22\u5B57\u3001b",                                        "a|\u6F22\u5B57|\u3001b"                                                          },
    {DASH("Regex",                                                     "Isolated",                                                    "false"),                                                                           "-ab--c-", "-|ab|-|-|c|-"},
    {DASH("String",                                                  "Isolated",                                                                                                               "true"),                                                                                                                                                                                     "-ab--c-", "-|ab|-|-|c|-"},
    {DASH("Regex",                                                         "Removed","false"),"-ab--c-", "ab|c"},
    {DASH("String",                                                     "Removed",                                                 "true"),                                                                                                                             "-ab--c-", "-|-|-|-"},
    {DASH("Regex",                                                          "Contiguous",                                                                                                                       "false"),                                                                                                                                                                                             "-ab--c-", "-|ab|--|c|-"},
    {DASH("Regex",                                                         "Contiguous",                                                             "true"),          "-ab--c-", "-|ab|--|c|-"},
    {DASH("Regex",                                                     "MergedWithPrevious",                                             "false"), "-ab--c-", "-|ab-|-|c-"},
    {DASH("Regex",                                                   "MergedWithPrevious",                                                                                                                "true"),                                                                                                                                                                                       "-ab--c-", "-ab|-|-c|-"},
    {DASH("Regex",                                                         "MergedWithNext",                                                 "false"),                                                                                                             "-ab--c-", "-ab|-|-c|-"},
    {DASH("Regex",                                                     "MergedWithNext",                                          "true"),                                                                        "-ab--c-", "-|ab-|-|c-"},
 // Without ByteLevel a word is what the stages leave; without stages it is the text.
    {SEQ(""),                                                    "a b",                                                                                                                 "a b"                                                                                                                                                                                       },
    {"null",                                                         "a b","a b"},
    {REGEX(" "),                                                     "a b",                                          "a| |b"                                                                   },
 // Every mark begins a word; a text that begins with one gets no other.
    {META(""),                                                    "a b  c_d",                                                                                                                 "_a|_b|_|_c|_d"                                                                                                                                                                                       },
    {META(""),                                                         " a",                                                                    "_a"                                                                  },
    {META(""),                                                          "_a",                                                               "_a"                           },
    {META(",\"split\":false"),                                                           "a b ",                                                           "_a_b_"                                                                                                                                          },
    {META(",\"add_prefix_space\":true"),                                                       "a",                                                           "_a"                                                                                            },
    {META(",\"prepend_scheme\":\"never\",\"add_prefix_space\":false"),                                                         "a b",                                                         "a|_b"           },
    {SEQ(REGEX("[0-9]") "," META("")),                                                         "1 a2",                                                          "_1|_a|_2"                                                                    },
    {SEQ(REGEX("[0-9]") "," META(",\"prepend_scheme\":\"first\"")),                                                         "1 a2",                                                         "_1|_a|2"                                                                        },
 // What follows ByteLevel sees the alphabet; components that are patterns by their names.
    {SEQ(GPT2 "," REGEX("\u0120")),                                         "a b",                                      "a|\u0120|b"                                                      },
    {SEQ(KIND("Punctuation") "," GPT2),                               "a,$ b",                                   "a|,|$| b"                                                      },
    {KIND("Digits"), "a12b\u00BD", "a|12|b|\u00BD"                    },
    {KIND("Digits\",\"individual_digits\":true,\"x\":\""),                                 "a12b",                                "a|1|2|b"                                              },
    {KIND("Punctuation\",\"behavior\":\"Removed"),    "a,.b",   "a|b"                   },
    {KIND("Whitespace"),                                    "a_1 b\u200D, ,;",                                                    "a_1|b\u200D|,|,;"                                                                                    },
    {KIND("WhitespaceSplit"),                                " a\u3000 b,",                                                        "a|b,"                                                                                             },
    {KIND("BertPreTokenizer"),                                                   "a b,^c",                                                                                                    "a|b|,|^|c"                                                                                                                                                                      },
    {KIND("CharDelimiterSplit\",\"delimiter\":\"\u00E9"),             "a\u00E9b\u00E9",                                    "a|b"                                                                             },
    {KIND("FixedLength\",\"length\":2,\"x\":\""),                     "a\u00E9\nbc",                                                                         "a\u00E9|\nb|c"                                                                                                                                                   },
 // Raised digits and fractions of Latin-1 are of words, but not in classes; others are not.
    {REGEX("\\\\w+"),                                               "a\u00B2-\u00BD\u2460",                                                        "a\u00B2|-|\u00BD|\u2460"                                                                    },
    {REGEX("[\\\\w]+"),                                          "a\u00B2",                                                           "a|\u00B2"                                                                               },
 // A blank and what Unicode 9 does not know go with what is before them.
    {KIND("UnicodeScripts"),                                         " a \u65E5\u3042\u30FC\u30A2 \u0378 b1",
     "a |\u65E5\u3042\u30FC\u30A2 \u0378 |b|1"               },
    {KIND("UnicodeScripts"),              "\u00E9\u0301x\u0589\u0860\u0631",
     "\u00E9|\u0301|x|\u0589\u0860|\u0631"                                                                                        },
    {KIND("UnicodeScripts"),                      "  \u0378",                                                  ""                                            },
    {SEQ(META("") "," KIND("Digits")),                                                  "1 a2",                                           "_|1|_a|2"                                            },
    {REGEX("^.|\\\\w$"),                                                "ab\ncd",                                                           "a|b|\n|c|d"                                                                        },
 // An empty match cuts too.
    {SEQ(REGEX("(?=b)|-*") "," BYTES),                                           "ab--bc",                         "a|b|--|b|c"                                                                                                                                                                          },
};

static void print_words(const char *pre_tokenizer, const char *text, berth_text *out) {
    berth_json *json;
    berth_splitter splitter = {0};
    berth_splitter_scratch scratch = {0};
    const berth_stretch whole = {.text = berth_str_from(text), .is_first = true};
    CHECK_OK(berth_json_parse(berth_str_from(pre_tokenizer), "case", NULL, &json));
    CHECK_OK(berth_splitter_read(&splitter, json));
    CHECK_OK(berth_splitter_cut(&splitter, whole, &scratch));
    for (size_t i = 0; i < scratch.words.count; ++i) {
        berth_text_add_cstr(out, i > 0 ? "|" : "");
        berth_text_add(out, scratch.words.data[i].text);
    }
    berth_splitter_scratch_deinit(&scratch);
    berth_splitter_deinit(&splitter);
    berth_json_destroy(json);
}

TEST(pre_tokenizers_cut_where_the_reference_cuts) {
    for (size_t i = 0; i < BERTH_COUNT(cuts); ++i) {
        berth_text words;
        berth_text_init(&words, 4096);
        print_words(cuts[i].pre_tokenizer, cuts[i].text, &words);
        CHECK_STR(words.data ? words.data : "", cuts[i].words);
        berth_text_deinit(&words);
    }
}

TEST(pre_tokenizers_that_are_broken_or_not_supported_are_refused) {
    static const struct {
        const char *json;
        berth_status status;
        const char *message;
    } cases[] = {
        {META(",\"prepend_scheme\":\"last\""),              BERTH_UNSUPPORTED, "prepend_scheme 'last'"                                                                   },
        {META(",\"add_prefix_space\":false"),               BERTH_CORRUPT,     "add_prefix_space"                                                                        },
        {"{\"type\":\"Metaspace\",\"replacement\":\"__\"}", BERTH_CORRUPT,     "'__'"                                                                                    },
        {"{\"type\":\"Metaspace\",\"replacement\":\"\"}",   BERTH_CORRUPT,     "''"                                                                                      },
        {"{\"type\":\"Metaspace\"}",                        BERTH_NOT_FOUND,   "replacement"                                                                             },
        {SEQ("{\"type\":\"SidewaysScripts\"}"),             BERTH_UNSUPPORTED, "'SidewaysScripts'"                                                                       },
        {SEQ("7"),                                          BERTH_NOT_FOUND,   "pretokenizers.0"                                                                         },
        {"{\"type\":\"Sequence\"}",                         BERTH_NOT_FOUND,   "pretokenizers"                                                                           },
        {"{\"type\":\"ByteLevel\"}",                        BERTH_NOT_FOUND,   "add_prefix_space"                                                                        },
        {"{\"type\":\"Split\",\"behavior\":\"Isolated\"}",  BERTH_NOT_FOUND,   "pattern.Regex"                                                                           },
        {DASH("Regex",                                      "Sideways",        "false"),                                                                                   BERTH_UNSUPPORTED, "'Sideways'"},
        {SEQ(REGEX("(a") "," BYTES),                                     BERTH_UNSUPPORTED,                                                      "'(a'"                                                                                                                      },
        {SEQ(REGEX("a") "," REGEX("a") "," REGEX("a") "," REGEX("a") "," REGEX("a") "," REGEX(
             "a")                                                                       //
             "," REGEX("a") "," REGEX("a") "," REGEX("a") "," REGEX("a") "," REGEX("a") //
             "," REGEX("a") "," REGEX("a") "," REGEX("a") "," REGEX("a") "," REGEX("a") "," GPT2),
         BERTH_UNSUPPORTED,       "more than 16"},
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        berth_json *json;
        berth_splitter splitter = {0};
        CHECK_OK(berth_json_parse(berth_str_from(cases[i].json), "case", NULL, &json));
        CHECK_STATUS(berth_splitter_read(&splitter, json), cases[i].status);
        CHECK_CONTAINS(berth_status_message(), cases[i].message);
        berth_splitter_deinit(&splitter);
        berth_json_destroy(json);
    }
}

static const char *const foreign_patterns[] = {
    "[\\W]",  "\\b",     "\\h",     "\\1",     "\\",      "\\x41", "[[a]]",   "[[:alpha:]]",
    "[a&&b]", "[]a]",    "[^]a]",   "[a-\\d]", "[\\s-a]", "\\pL",  "\\p{^L}", "\\p{L",
    "(?x:a)", "(?<n>a)", "(*FAIL)", "a{,2}",   "a{2",     "a{2}+", "a{2}?",   "{",
};

TEST(patterns_keep_their_meaning) {
    static const struct {
        const char *pattern, *translated;
    } cases[] = {
        {"a.b?c*d+e|f",                               "a.b?c*d+e|f"                              },
        {"a++b*?c?+",                                 "a++b*?c?+"                                },
        {"(?:a)(?i:b)(?=c)(?!d)(?<=e)(?<!f)(?>g)(h)", "(?:a)(?i:b)(?=c)(?!d)(?<=e)(?<!f)(?>g)(h)"},
        {"\\p{L}\\P{Lu}\\p{Han}",                     "\\p{L}\\P{Lu}\\p{sc:Han}"                 },
        {"[^\\p{L}\\r\\n\\-\\]]",                     "[^\\p{L}\\r\\n\\-\\]]"                    },
        {"\\d[\\d]",                                  "[\\p{Nd}][\\p{Nd}]"                       },
        {"a{2}b{2,}c{2,3}",                           "a{2}b{2,}c{2,3}"                          },
        {"[a-z-]&[&]",                                "[a-z-]&[&]"                               },
        {"\\.\\[\\(",                                 "\\.\\[\\("                                },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        berth_text text;
        berth_text_init(&text, 4096);
        CHECK_OK(berth_dialect_translate(berth_str_from(cases[i].pattern), &text));
        CHECK_STR(text.data, cases[i].translated);
        berth_text_deinit(&text);
    }
}

TEST(patterns_that_pcre_may_read_otherwise_are_refused) {
    for (size_t i = 0; i < BERTH_COUNT(foreign_patterns); ++i) {
        berth_text text;
        berth_text_init(&text, 4096);
        CHECK_STATUS(berth_dialect_translate(berth_str_from(foreign_patterns[i]), &text),
                     BERTH_UNSUPPORTED);
        CHECK_CONTAINS(berth_status_message(), foreign_patterns[i]);
        berth_text_deinit(&text);
    }
}
