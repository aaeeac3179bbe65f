// SPDX-License-Identifier: Apache-2.0
// base/json: what is JSON, where a value is, what a failure says, and that nothing leaks.
#include "base/json.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "support/test.h"

#define SUITE "../shared/data/conformance/json/test_parsing"

static const char config_text[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"hidden_size\": 64, \"eps\": 1e-6,\n"
    " \"tied\": true, \"rope_scaling\": null, \"rope_parameters\": {\"rope_theta\": 10000},\n"
    " \"layers\": [{\"type\": \"full\"}, {\"type\": 3}], \"with.dot\": 1}";

static berth_json *parse(const char *text) {
    berth_json *root = NULL;
    CHECK_OK(berth_json_parse(berth_str_from(text), "config.json", NULL, &root));
    return root;
}

TEST(json_values_are_reached_by_path) {
    berth_json *root = parse(config_text);
    int64_t integer = 0;
    double real = 0;
    bool flag = false;
    berth_str str = {0};
    CHECK_OK(berth_json_get_i64(root, "hidden_size", &integer));
    CHECK_INT(integer, 64);
    CHECK_OK(berth_json_get_f64(root, "eps", &real));
    CHECK_NEAR(real, 1e-6, 0);
    CHECK_OK(berth_json_get_f64(root, "rope_parameters.rope_theta", &real));
    CHECK_NEAR(real, 10000, 0);
    CHECK_OK(berth_json_get_bool(root, "tied", &flag));
    CHECK(flag);
    CHECK_OK(berth_json_get_str(root, "architectures.0", &str));
    CHECK_STR(str.data, "Qwen3ForCausalLM");
    CHECK_OK(berth_json_get_str(root, "layers.0.type", &str));
    CHECK_STR(str.data, "full");
    CHECK(berth_json_member(root, BERTH_STR("with.dot")) != NULL);
    CHECK_NULL(berth_json_find(root, "with.dot"));
    CHECK_NULL(berth_json_find(root, "architectures.1"));
    CHECK_NULL(berth_json_find(root, "architectures.-1"));
    CHECK_NULL(berth_json_find(root, "architectures.99999999999999999999"));
    CHECK_NULL(berth_json_find(root, "hidden_size.x"));
    CHECK_PTR(berth_json_find(root, ""), root);
    CHECK(berth_json_has(root, "tied"));
    CHECK(!berth_json_has(root, "rope_scaling"));
    CHECK(berth_json_find(root, "rope_scaling") != NULL);
    berth_json_destroy(root);
}

TEST(json_children_keep_their_order) {
    berth_json *root = parse("{\"z\": 1, \"a\": [true, null, -0.5], \"m\": {}}");
    CHECK_UINT(berth_json_size(root), 3);
    CHECK_STR(berth_json_key_at(root, 0).data, "z");
    CHECK_STR(berth_json_key_at(root, 1).data, "a");
    CHECK_STR(berth_json_key_at(root, 2).data, "m");
    const berth_json *array = berth_json_at(root, 1);
    CHECK_INT(berth_json_kind_of(array), BERTH_JSON_ARRAY);
    CHECK_INT(berth_json_kind_of(berth_json_at(array, 1)), BERTH_JSON_NULL);
    double real = 0;
    CHECK(berth_json_as_f64(berth_json_at(array, 2), &real));
    CHECK_NEAR(real, -0.5, 0);
    CHECK_UINT(berth_json_size(berth_json_at(root, 0)), 0);
    CHECK_UINT(berth_json_size(berth_json_at(root, 2)), 0);
    CHECK_STR(berth_json_file(array), "config.json");
    berth_json_destroy(root);
    berth_json_destroy(NULL);
}

TEST(json_large_objects_are_found_by_key) {
    berth_text text;
    berth_text_init(&text, 1 << 20);
    berth_json_writer writer;
    berth_json_writer_init(&writer, &text, 0);
    berth_json_begin_object(&writer);
    for (int i = 0; i < 5000; ++i) {
        char key[24];
        snprintf(key, sizeof(key), "token%d", i);
        berth_json_put_key(&writer, key);
        berth_json_put_i64(&writer, i);
    }
    berth_json_end_object(&writer);
    const char *cstr = NULL;
    CHECK_OK(berth_text_finish(&text, &cstr));
    berth_json *root = parse(cstr);
    for (int64_t i = 0; i < 5000; ++i) {
        char key[24];
        int64_t value = -1;
        snprintf(key, sizeof(key), "token%d", (int)i);
        CHECK_OK(berth_json_get_i64(root, key, &value));
        CHECK_INT(value, i);
        CHECK_STR(berth_json_key_at(root, (size_t)i).data, key);
    }
    CHECK_NULL(berth_json_find(root, "token5000"));
    berth_json_destroy(root);
    berth_text_deinit(&text);
}

TEST(json_failures_name_file_and_place) {
    berth_json *root = parse(config_text);
    int64_t integer = 5;
    double real = 5;
    bool flag = false;
    berth_str str = {0};
    const berth_json *found = NULL;
    CHECK_STATUS(berth_json_get_i64(root, "num_layers", &integer), BERTH_NOT_FOUND);
    CHECK_STR(berth_status_message(), "config.json: num_layers: missing, an integer is needed");
    CHECK_STATUS(berth_json_get_f64(root, "rope_scaling", &real), BERTH_NOT_FOUND);
    CHECK_STATUS(berth_json_get_i64(root, "eps", &integer), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "config.json: eps: is 9.9999999999999995e-07, needed");
    CHECK_STATUS(berth_json_get_f64(root, "tied", &real), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "config.json: tied: is true or false, needed is a number");
    CHECK_STATUS(berth_json_get_str(root, "layers.1.type", &str), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "config.json: layers.1.type: is 3, needed is a string");
    CHECK_STATUS(berth_json_get_bool(root, "architectures.0", &flag), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "is the string \"Qwen3ForCausalLM\", needed is true");
    const berth_json *layer = berth_json_find(root, "layers.1");
    CHECK_STATUS(berth_json_get_str(layer, "name", &str), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "config.json: layers.1.name: missing");
    CHECK_STATUS(berth_json_get_array(root, "rope_parameters", &found), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "is an object, needed is an array");
    CHECK_OK(berth_json_get_object(root, "rope_parameters", &found));
    CHECK_STATUS(berth_json_fail(BERTH_UNSUPPORTED, layer, "no layer of type %d", 3),
                 BERTH_UNSUPPORTED);
    CHECK_STR(berth_status_message(), "config.json: layers.1: no layer of type 3");
    CHECK_STATUS(berth_json_fail(BERTH_UNSUPPORTED, root, "no"), BERTH_UNSUPPORTED);
    CHECK_STR(berth_status_message(), "config.json: no");
    CHECK_INT(integer, 5);
    CHECK_NEAR(real, 5, 0);
    berth_json_destroy(root);
}

TEST(json_fallbacks_are_for_missing_values_only) {
    berth_json *root = parse(config_text);
    int64_t integer = 0;
    double real = 0;
    bool flag = false;
    berth_str str = {0};
    CHECK_OK(berth_json_i64_or(root, "hidden_size", 7, &integer));
    CHECK_INT(integer, 64);
    CHECK_OK(berth_json_i64_or(root, "none", 7, &integer));
    CHECK_INT(integer, 7);
    CHECK_STATUS(berth_json_i64_or(root, "tied", 7, &integer), BERTH_INVALID_ARGUMENT);
    CHECK_OK(berth_json_f64_or(root, "rope_scaling", 2.5, &real));
    CHECK_NEAR(real, 2.5, 0);
    CHECK_OK(berth_json_bool_or(root, "none", true, &flag));
    CHECK(flag);
    CHECK_OK(berth_json_str_or(root, "none", BERTH_STR("x"), &str));
    CHECK(berth_str_equal_cstr(str, "x"));
    CHECK_STATUS(berth_json_str_or(root, "eps", BERTH_STR("x"), &str), BERTH_INVALID_ARGUMENT);
    berth_json_destroy(root);
}

TEST(json_place_is_cut_to_the_buffer) {
    berth_json *root = parse("{\"a\": {\"long key\": [0, [1]]}}");
    const berth_json *node = berth_json_find(root, "a.long key.1.0");
    char place[64];
    CHECK_STR(berth_json_place(node, place, sizeof(place)), "a.long key.1.0");
    CHECK_STR(berth_json_place(node, place, 5), "a.lo");
    CHECK_STR(berth_json_place(root, place, 1), "");
    berth_json_destroy(root);
}

static void check_refused(const char *text, berth_status status, const char *part) {
    berth_json *root = NULL;
    CHECK_STATUS(berth_json_parse(berth_str_from(text), "x.json", NULL, &root), status);
    CHECK_CONTAINS(berth_status_message(), part);
    CHECK_NULL(root);
}

TEST(json_refuses_with_line_and_column) {
    check_refused("", BERTH_CORRUPT, "x.json:1:0: not valid JSON: ");
    check_refused("{\"a\": 1,\n \"b\" 2}", BERTH_CORRUPT, "x.json:2:6: not valid JSON: ");
    check_refused("{\"a\": 1, \"a\": 2}", BERTH_CORRUPT, "duplicate");
    check_refused("[1] 2", BERTH_CORRUPT, "x.json:1:5:");
    check_refused("[1e999]", BERTH_CORRUPT, "x.json:1:");
    check_refused("[NaN]", BERTH_CORRUPT, "x.json:1:");
    check_refused("\"\xff\"", BERTH_CORRUPT, "x.json:1:");
}

TEST(json_reads_an_integer_beyond_64_bits_as_a_real) {
    berth_json *root = parse("[1000000000000000019884624838656, 7, -9007199254740991, 2.5]");
    double real = 0;
    int64_t integer = 0;
    CHECK_INT(berth_json_kind_of(berth_json_at(root, 0)), BERTH_JSON_REAL);
    CHECK_OK(berth_json_get_f64(root, "0", &real));
    CHECK(real == 1e30);
    CHECK_OK(berth_json_get_i64(root, "1", &integer));
    CHECK_INT(integer, 7);
    CHECK_OK(berth_json_get_i64(root, "2", &integer));
    CHECK_INT(integer, -9007199254740991);
    CHECK_STATUS(berth_json_get_i64(root, "3", &integer), BERTH_INVALID_ARGUMENT);
    berth_json_destroy(root);
}

TEST(json_keeps_its_limits) {
    char text[1200];
    berth_json *root = NULL;
    memset(text, '[', 600);
    memset(text + 600, ']', 600);
    const berth_str nested = {.data = text, .size = sizeof(text)};
    CHECK_STATUS(berth_json_parse(nested, "x", NULL, &root), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "nested deeper than the limit of 64 levels");
    const berth_str at_limit = {.data = text + 600 - 3, .size = 6};
    const berth_json_limits three = {.depth = 3};
    const berth_json_limits two = {.depth = 2};
    CHECK_OK(berth_json_parse(at_limit, "x", &three, &root));
    berth_json_destroy(root);
    CHECK_STATUS(berth_json_parse(at_limit, "x", &two, &root), BERTH_OUT_OF_MEMORY);
    const berth_json_limits five_bytes = {.bytes = 5};
    CHECK_STATUS(berth_json_parse(at_limit, "x", &five_bytes, &root), BERTH_OUT_OF_MEMORY);
    CHECK_STR(berth_status_message(), "x: has 6 bytes, the limit is 5");
    CHECK_STATUS(berth_json_load("build/no such.json", NULL, &root), BERTH_NOT_FOUND);
    CHECK_STATUS(berth_json_load("build", NULL, &root), BERTH_INVALID_ARGUMENT);
}

TEST(json_strings_may_hold_any_character) {
    berth_json *root = parse("[\"\\u0000\\u00e4\\ud83d\\ude00\\/\"]");
    berth_str str = {0};
    CHECK_OK(berth_json_get_str(root, "0", &str));
    CHECK_UINT(str.size, 8);
    CHECK_BYTES(str.data, "\0\xc3\xa4\xf0\x9f\x98\x80/", 9);
    berth_json_destroy(root);
}

TEST(json_survives_every_failed_allocation) {
    for (uint64_t n = 1;; ++n) {
        berth_json *root = NULL;
        berth_memory_fail_after(n);
        const berth_status status =
            berth_json_parse(berth_str_from("{\"a\":1,\"b\":[1,2,\"x\\u00e4y\"],\"c\":{},\"d\":4,"
                                            "\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9.5}"),
                             "x.json", NULL, &root);
        if (berth_memory_fail_after(0) > 0) {
            CHECK_OK(status);
            berth_json_destroy(root);
            return;
        }
        CHECK_STATUS(status, BERTH_OUT_OF_MEMORY);
        CHECK_NULL(root);
    }
}

TEST(json_key_may_have_a_nul_in_it) {
    berth_json *root = NULL;
    const berth_str json = BERTH_STR("{\"a\\u0000b\":\"c\\u0000\",\"\\\\u0000\":1}");
    CHECK_OK(berth_json_parse(json, "x.json", NULL, &root));
    const berth_str key = berth_json_key_at(root, 0);
    berth_str value = {0};
    CHECK_UINT(key.size, 3);
    CHECK_BYTES(key.data, "a\0b", 4);
    CHECK_OK(berth_json_get_str(berth_json_at(root, 0), "", &value));
    CHECK_UINT(value.size, 2);
    CHECK_BYTES(value.data, "c\0", 3);
    CHECK_STR(berth_json_key_at(root, 1).data, "\\u0000");
    berth_json_destroy(root);
    root = NULL;
    CHECK_STATUS(
        berth_json_parse(BERTH_STR("{\"\\u0000\":\"\\udbff\\udffe\"}"), "x.json", NULL, &root),
        BERTH_CORRUPT);
}

// The suite's names begin with y (must parse), n (must not) or i (either).
static void check_suite_file(berth_arena *arena, const char *name) {
    berth_json *root = NULL;
    const berth_json_limits limits = {.depth = 512};
    const berth_status status =
        berth_json_load(berth_path_join(arena, SUITE, name), &limits, &root);
    // Stricter than the suite: duplicate keys.
    const bool is_stricter = strncmp(name, "y_object_duplicated_key", 23) == 0;
    if (name[0] == 'y' && !is_stricter) {
        CHECK_OK(status);
    } else if (name[0] == 'n' || is_stricter) {
        CHECK(status == BERTH_CORRUPT || status == BERTH_OUT_OF_MEMORY);
        CHECK_CONTAINS(berth_status_message(), name);
    }
    berth_json_destroy(root);
}

TEST(json_passes_the_conformance_suite) {
    if (!berth_path_is_dir(SUITE)) {
        SKIP(SUITE " is not here");
    }
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(1 << 16, 1 << 24, &arena));
    berth_dir_listing listing = {0};
    CHECK_OK(berth_dir_list(SUITE, arena, &listing));
    CHECK(listing.count > 300);
    for (size_t i = 0; i < listing.count; ++i) {
        check_suite_file(arena, listing.names[i]);
    }
    berth_arena_destroy(arena);
}
