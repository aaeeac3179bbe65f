// SPDX-License-Identifier: Apache-2.0
// Tokenizers of whole words and of what BERT's kind of files ask for. The expected ids are those of
// the reference implementation.
#include "support/recipe.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"

// A table of characters that knows one: "A" becomes "bc".
#define CHARSMAP                                                                                   \
    "CAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAACAQQUAAGJjAA=="

#define WORDS                                                                                      \
    "\"vocab\":{\"[UNK]\":0,\"he\":1,\"hell\":2,\"##o\":3,\"##lo\":4,\"h\":5,\",\":6,\"[CLS]\":7," \
    "\"[SEP]\":8,\"hello\":9,\"##bc\":10,\"wor\":11}"
#define PARTS                                                                                      \
    "\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"                    \
    "\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\"},\"post_processor\":{\"type\":"     \
    "\"BertProcessing\",\"sep\":[\"[SEP]\",8],\"cls\":[\"[CLS]\",7]}"
#define FILE_OF(type, more) "{\"model\":{\"type\":\"" type "\"," WORDS more "}," PARTS "}"

static berth_tokenizer *open_file(const char *json) {
    berth_tokenizer *tokenizer;
    CHECK_OK(berth_tokenizer_parse(berth_str_from(json), (berth_str){0}, &tokenizer));
    return tokenizer;
}

TEST(wordpiece_takes_the_longest_pieces_from_the_left) {
    berth_tokenizer *tokenizer = open_file(FILE_OF("WordPiece", ",\"unk_token\":\"[UNK]\""));
    check_ids(tokenizer, BERTH_STR("H\u00C9LLOO, hehe hlo"), 0, "9 3 6 0 5 4");
    check_ids(tokenizer, BERTH_STR("h"), BERTH_ENCODE_ADD_SPECIAL, "7 5 8");
    check_text(tokenizer, (const int32_t[]){9, 3, 6, 5, 4}, 5, BERTH_STR("helloo, hlo"));
    berth_tokenizer_close(tokenizer);
}

TEST(wordpiece_does_not_cut_words_that_are_too_long) {
    berth_tokenizer *tokenizer =
        open_file(FILE_OF("WordPiece", ",\"unk_token\":\"[UNK]\",\"max_input_chars_per_word\":4"));
    check_ids(tokenizer, BERTH_STR("hell hello"), 0, "2 0");
    berth_tokenizer_close(tokenizer);
}

TEST(word_level_knows_whole_words) {
    berth_tokenizer *tokenizer = open_file(FILE_OF("WordLevel", ",\"unk_token\":\"[UNK]\""));
    check_ids(tokenizer, BERTH_STR("hello hellox,"), 0, "9 0 6");
    berth_tokenizer_close(tokenizer);
}

TEST(an_unknown_word_without_a_token_for_it_is_refused) {
    berth_tokenizer *tokenizer = open_file(FILE_OF("WordLevel", ",\"unk_token\":\"none\""));
    berth_token_ids ids = {0};
    CHECK_STATUS(berth_tokenizer_encode(tokenizer, BERTH_STR("he x"), 0, &ids),
                 BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "no token for 'x'");
    CHECK_INT(ids.count, 0);
    berth_array_free(&ids);
    berth_tokenizer_close(tokenizer);
}

TEST(bpe_spells_characters_by_where_they_stand) {
    berth_tokenizer *tokenizer =
        open_file("{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,"
                  "\"#b\":2,\"#c$\":3,\"a$\":4,\"ab\":5,\"abc$\":6},\"merges\":[[\"a\",\"#b\"],"
                  "[\"ab\",\"#c$\"]],\"continuing_subword_prefix\":\"#\",\"end_of_word_suffix\":"
                  "\"$\"},\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}}");
    check_ids(tokenizer, BERTH_STR("a abc ab bc"), 0, "4 6 1 0 0 3");
    check_text(tokenizer, (const int32_t[]){4, 6}, 2, BERTH_STR("a$ abc$")); // there is no decoder
    berth_tokenizer_close(tokenizer);
}

TEST(a_byte_level_vocabulary_may_lack_bytes) {
    berth_tokenizer *tokenizer =
        open_file("{\"model\":{\"vocab\":{\"a\":0,\"\u0120\":1,\"\u0120a\":2},\"merges\":"
                  "[\"\u0120 a\"]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                  "true},\"decoder\":{\"type\":\"ByteLevel\"}}");
    check_ids(tokenizer, BERTH_STR("a xa"), 0, "2 2");
    berth_tokenizer_close(tokenizer);
}

TEST(a_table_of_characters_replaces_them) {
    berth_tokenizer *tokenizer = open_file(
        "{\"model\":{\"type\":\"WordLevel\"," WORDS ",\"unk_token\":\"[UNK]\"},\"normalizer\":"
        "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" CHARSMAP "\"}}");
    check_ids(tokenizer, BERTH_STR("##A"), 0, "10");
    berth_tokenizer_close(tokenizer);
}
