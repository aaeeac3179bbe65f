// SPDX-License-Identifier: Apache-2.0
// model/config_json: what transformers 4 and 5 write becomes one form, and nothing else changes.
#include "model/config_json.h"

#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "support/test.h"

static berth_json *parse(const char *text) {
    berth_json *config = NULL;
    CHECK_OK(berth_config_json_parse(berth_str_from(text), "config.json", &config));
    return config;
}

// Whether two trees hold the same values; members may stand in another order.
static bool is_equal(const berth_json *a, const berth_json *b) {
    if (b == NULL || berth_json_kind_of(a) != berth_json_kind_of(b) ||
        berth_json_size(a) != berth_json_size(b)) {
        return false;
    }
    double x = 0;
    double y = 0;
    bool p = false;
    bool q = false;
    berth_str s = {0};
    berth_str t = {0};
    bool is_same = true;
    switch (berth_json_kind_of(a)) {
    case BERTH_JSON_OBJECT:
        for (size_t i = 0; is_same && i < berth_json_size(a); ++i) {
            is_same = is_equal(berth_json_at(a, i), berth_json_member(b, berth_json_key_at(a, i)));
        }
        return is_same;
    case BERTH_JSON_ARRAY:
        for (size_t i = 0; is_same && i < berth_json_size(a); ++i) {
            is_same = is_equal(berth_json_at(a, i), berth_json_at(b, i));
        }
        return is_same;
    case BERTH_JSON_STRING:
        CHECK_OK(berth_json_get_str(a, "", &s));
        CHECK_OK(berth_json_get_str(b, "", &t));
        return berth_str_equal(s, t);
    case BERTH_JSON_BOOL:
        CHECK_OK(berth_json_get_bool(a, "", &p));
        CHECK_OK(berth_json_get_bool(b, "", &q));
        return p == q;
    case BERTH_JSON_NULL:
        return true;
    default:
        CHECK_OK(berth_json_get_f64(a, "", &x));
        CHECK_OK(berth_json_get_f64(b, "", &y));
        return x == y;
    }
}

// Checks that `old` becomes `wanted`, and that `wanted` is its own normal form.
static void check_becomes(const char *old, const char *wanted) {
    berth_json *have = parse(old);
    berth_json *again = parse(wanted);
    berth_json *plain = NULL;
    CHECK_OK(berth_json_parse(berth_str_from(wanted), "wanted", NULL, &plain));
    CHECK(is_equal(have, plain));
    CHECK(is_equal(again, plain));
    berth_json_destroy(have);
    berth_json_destroy(again);
    berth_json_destroy(plain);
}

typedef struct pair {
    const char *old;
    const char *wanted;
} pair;

#define PAIR(old_text, wanted_text)                                                                \
    { .old = (old_text), .wanted = (wanted_text) }

TEST(config_of_transformers_4_becomes_that_of_transformers_5) {
    static const pair rows[] = {
        PAIR("{\"torch_dtype\": \"bfloat16\"}", "{\"dtype\": \"bfloat16\"}"),
        PAIR("{\"torch_dtype\": \"float16\", \"dtype\": \"bfloat16\"}",
             "{\"dtype\": \"bfloat16\"}"),
        PAIR("{\"rope_theta\": 500000, \"rope_scaling\": null}",
             "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500000}}"),
        PAIR("{\"rope_theta\": 1e4, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}}",
             "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2.0, \"rope_theta\": "
             "1e4}}"),
        PAIR("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"type\": \"old\", \"factor\": 8}}",
             "{\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8}}"),
        PAIR("{\"rope_scaling\": {\"type\": \"su\", \"long_factor\": [1, 2.5]}, "
             "\"original_max_position_embeddings\": 4096}",
             "{\"rope_parameters\": {\"rope_type\": \"longrope\", \"long_factor\": [1, 2.5], "
             "\"original_max_position_embeddings\": 4096}, "
             "\"original_max_position_embeddings\": 4096}"),
        PAIR("{\"rope_theta\": 7, \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [1]}}",
             "{\"rope_parameters\": {\"rope_type\": \"default\", \"mrope_section\": [1], "
             "\"rope_theta\": 7}}"),
        PAIR("{\"rope_theta\": 7, \"partial_rotary_factor\": 0.5}",
             "{\"partial_rotary_factor\": 0.5, \"rope_parameters\": {\"rope_type\": \"default\", "
             "\"rope_theta\": 7, \"partial_rotary_factor\": 0.5}}"),
        PAIR("{\"rope_theta\": 7, \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": "
             "8}}",
             "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 8}}"),
        PAIR("{\"rotary_emb_base\": 9, \"rotary_pct\": 0.25}",
             "{\"rotary_emb_base\": 9, \"rotary_pct\": 0.25, \"rope_parameters\": {\"rope_type\": "
             "\"default\", \"rope_theta\": 9, \"partial_rotary_factor\": 0.25}}"),
        PAIR("{\"rope_theta\": 8, \"rope_local_base_freq\": 2, \"rope_scaling\": {\"type\": "
             "\"linear\", \"factor\": 4}}",
             "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": "
             "4, \"rope_theta\": 8}, \"sliding_attention\": {\"rope_type\": \"default\", "
             "\"rope_theta\": 2}}}"),
        PAIR("{\"rope_parameters\": null, \"rope_theta\": 8}",
             "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 8}}"),
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        check_becomes(rows[i].old, rows[i].wanted);
    }
}

TEST(config_of_a_part_for_text_takes_the_place_of_the_whole_s) {
    check_becomes("{\"architectures\": [\"A\"], \"model_type\": \"a\", \"hidden_size\": 1, "
                  "\"eos_token_id\": 3, \"text_config\": {\"model_type\": \"b\", "
                  "\"hidden_size\": 2, \"rope_theta\": 3, \"torch_dtype\": \"float16\"}}",
                  "{\"architectures\": [\"A\"], \"model_type\": \"a\", \"eos_token_id\": 3, "
                  "\"hidden_size\": 2, \"dtype\": \"float16\", \"text_model_type\": \"b\", "
                  "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 3}}");
    check_becomes("{\"text_config\": {\"model_type\": \"b\"}}",
                  "{\"model_type\": \"b\", \"text_model_type\": \"b\"}");
    // Whether the head is the table is the whole's to say.
    check_becomes("{\"tie_word_embeddings\": true, \"text_config\": "
                  "{\"tie_word_embeddings\": false}}",
                  "{\"tie_word_embeddings\": true}");
    check_becomes("{\"text_config\": {\"tie_word_embeddings\": false}}",
                  "{\"tie_word_embeddings\": false}");
}

TEST(config_keeps_everything_else) {
    static const char *const rows[] = {
        "{}",
        "{\"a\": null, \"b\": [true, false, [], {}], \"c\": -7, \"d\": 1.5e-300}",
        "{\"e\": \"\\u00e9\\n\"}",
        "{\"hidden_size\": 9007199254740993}",
        "{\"rope_parameters\": {\"full\": {\"rope_theta\": 1}, \"sliding\": {\"rope_theta\": 2}}}",
        "{\"text_config\": null, \"text_configs\": {\"rope_theta\": 3}}",
        "{\"key.with.dots\": 1, \"\": 2}",
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        check_becomes(rows[i], rows[i]);
    }
}

TEST(config_hands_a_rope_type_that_is_no_name_to_whoever_reads_it) {
    berth_json *config = parse("{\"rope_scaling\": {\"type\": 3}}");
    int64_t type = 0;
    CHECK_OK(berth_json_get_i64(config, "rope_parameters.rope_type", &type));
    CHECK_INT(type, 3);
    berth_json_destroy(config);
}

TEST(config_keeps_the_name_of_its_file_for_messages) {
    berth_json *config = parse("{\"rope_theta\": \"x\"}");
    double theta = 0;
    CHECK_STATUS(berth_json_get_f64(config, "rope_parameters.rope_theta", &theta),
                 BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "config.json: rope_parameters.rope_theta");
    berth_json_destroy(config);
}

TEST(config_that_is_no_object_of_bounded_depth_is_refused) {
    static char deep[4096];
    for (size_t i = 0; i < sizeof deep - 1; ++i) {
        deep[i] = i < 5 ? "{\"a\":"[i] : '[';
    }
    static const char *const rows[] = {
        "",
        "[]",
        "3",
        "{",
        "{\"a\":1}}",
        "{\"a\":1,\"a\":2}",
        "{\"rope_scaling\": 3}",
        "{\"rope_parameters\": [1]}",
        "{\"rope_scaling\": \"linear\"}",
        deep,
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        berth_json *config = NULL;
        CHECK(berth_config_json_parse(berth_str_from(rows[i]), "config.json", &config) != BERTH_OK);
        CHECK_NULL(config);
        CHECK_CONTAINS(berth_status_message(), "config.json");
        CHECK_NULL(strchr(berth_status_message(), '\n'));
    }
}

TEST(config_files_of_the_test_checkpoints_are_in_normal_form) {
    static const char *const paths[] = {
        "tests/data/models/llama/config.json",
        "tests/data/models/qwen3/config.json",
        "tests/data/models/shakespeare/config.json",
    };
    for (size_t i = 0; i < BERTH_COUNT(paths); ++i) {
        berth_json *config = NULL;
        berth_json *plain = NULL;
        CHECK_OK(berth_config_json_load(paths[i], &config));
        CHECK_OK(berth_json_load(paths[i], NULL, &plain));
        CHECK(is_equal(config, plain));
        berth_json_destroy(config);
        berth_json_destroy(plain);
    }
}

// What the fuzzer starts from: there is an answer, and a text when it is no.
TEST(config_files_of_the_fuzzer_are_read_or_refused) {
    berth_arena *arena = NULL;
    berth_dir_listing files = {0};
    CHECK_OK(berth_arena_create(4096, (size_t)1 << 20, &arena));
    CHECK_OK(berth_dir_list("tests/fuzz/config_json", arena, &files));
    CHECK(files.count > 0);
    for (size_t i = 0; i < files.count; ++i) {
        berth_json *config = NULL;
        const char *path = berth_path_join(arena, "tests/fuzz/config_json", files.names[i]);
        if (berth_config_json_load(path, &config) != BERTH_OK) {
            CHECK_CONTAINS(berth_status_message(), path);
        }
        berth_json_destroy(config);
    }
    berth_arena_destroy(arena);
}
