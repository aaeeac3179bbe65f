// SPDX-License-Identifier: Apache-2.0
// base/str: views, strict numbers, the nearest name.
#include "base/str.h"

#include <float.h>
#include <string.h>

#include "base/array.h"
#include "support/test.h"

static void check_view(berth_str actual, const char *expected) {
    CHECK_UINT(actual.size, strlen(expected));
    CHECK(berth_str_equal_cstr(actual, expected));
}

TEST(str_compares_by_bytes) {
    CHECK(berth_str_equal(BERTH_STR(""), berth_str_from(NULL)));
    CHECK(!berth_str_equal(BERTH_STR("a"), BERTH_STR("ab")));
    CHECK(berth_str_compare(BERTH_STR("a"), BERTH_STR("ab")) < 0);
    CHECK(berth_str_compare(BERTH_STR("b"), BERTH_STR("ab")) > 0);
    CHECK(berth_str_compare(BERTH_STR("\xff"), BERTH_STR("a")) > 0);
    CHECK_INT(berth_str_compare(BERTH_STR("a"), BERTH_STR("a")), 0);
}

TEST(str_knows_prefix_and_suffix) {
    CHECK(berth_str_starts_with(BERTH_STR("model.layers"), BERTH_STR("model.")));
    CHECK(!berth_str_starts_with(BERTH_STR("mod"), BERTH_STR("model.")));
    CHECK(berth_str_ends_with(BERTH_STR("x.plugin.yaml"), BERTH_STR(".plugin.yaml")));
    CHECK(!berth_str_ends_with(BERTH_STR("yaml"), BERTH_STR(".yaml")));
    CHECK(berth_str_ends_with(berth_str_from(NULL), BERTH_STR("")));
}

TEST(str_slices_are_clamped) {
    check_view(berth_str_slice(BERTH_STR("abcd"), 1, 2), "bc");
    check_view(berth_str_slice(BERTH_STR("abcd"), 3, 9), "d");
    check_view(berth_str_slice(BERTH_STR("abcd"), 9, 9), "");
    check_view(berth_str_slice(berth_str_from(NULL), 0, 1), "");
    check_view(berth_str_trim(BERTH_STR(" \t a b\r\n")), "a b");
    check_view(berth_str_trim(BERTH_STR(" \n ")), "");
    CHECK_UINT(berth_str_find(BERTH_STR("abc"), 'c'), 2);
    CHECK_UINT(berth_str_find(BERTH_STR("abc"), 'x'), 3);
}

static size_t count_pieces(berth_str rest) {
    size_t count = 0;
    for (berth_str piece; berth_str_split_first(&rest, ',', &piece);) {
        ++count;
    }
    return count;
}

TEST(str_split_gives_every_piece_once) {
    berth_str rest = BERTH_STR("a,,b");
    berth_str piece = {0};
    CHECK(berth_str_split_first(&rest, ',', &piece));
    check_view(piece, "a");
    CHECK(berth_str_split_first(&rest, ',', &piece));
    check_view(piece, "");
    CHECK(berth_str_split_first(&rest, ',', &piece));
    check_view(piece, "b");
    CHECK(!berth_str_split_first(&rest, ',', &piece));
    CHECK_NULL(rest.data);
    CHECK_UINT(count_pieces(BERTH_STR("")), 1);
    CHECK_UINT(count_pieces(BERTH_STR("a,")), 2);
}

TEST(str_parses_whole_numbers_at_their_limits) {
    int64_t value = 0;
    uint64_t large = 0;
    CHECK_OK(berth_str_parse_i64(BERTH_STR("-9223372036854775808"), &value));
    CHECK_INT(value, INT64_MIN);
    CHECK_OK(berth_str_parse_i64(BERTH_STR("0007"), &value));
    CHECK_INT(value, 7);
    CHECK_OK(berth_str_parse_u64(BERTH_STR("18446744073709551615"), &large));
    CHECK_UINT(large, UINT64_MAX);
    CHECK_STATUS(berth_str_parse_i64(BERTH_STR("9223372036854775808"), &value),
                 BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "out of range");
    CHECK_STATUS(berth_str_parse_u64(BERTH_STR("18446744073709551616"), &large),
                 BERTH_INVALID_ARGUMENT);
    CHECK_INT(value, 7);
}

TEST(str_refuses_what_is_no_whole_number) {
    const char *const words[] = {"", "-", "+1", " 1", "1 ", "1.0", "0x1", "1e3", "--1", "1-", "٣"};
    int64_t value = 5;
    uint64_t large = 5;
    for (size_t i = 0; i < BERTH_COUNT(words); ++i) {
        CHECK_STATUS(berth_str_parse_i64(berth_str_from(words[i]), &value), BERTH_INVALID_ARGUMENT);
        CHECK_STATUS(berth_str_parse_u64(berth_str_from(words[i]), &large), BERTH_INVALID_ARGUMENT);
    }
    CHECK_STATUS(berth_str_parse_u64(BERTH_STR("-1"), &large), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "'-1' is not a whole number of at least 0");
    CHECK_INT(value, 5);
    CHECK_UINT(large, 5);
    const berth_str inside = {.data = "12345", .size = 2};
    CHECK_OK(berth_str_parse_i64(inside, &value));
    CHECK_INT(value, 12);
}

TEST(str_parses_decimals) {
    double value = 0;
    CHECK_OK(berth_str_parse_f64(BERTH_STR("-1.25e-2"), &value));
    CHECK_NEAR(value, -0.0125, 0);
    CHECK_OK(berth_str_parse_f64(BERTH_STR(".5"), &value));
    CHECK_NEAR(value, 0.5, 0);
    CHECK_OK(berth_str_parse_f64(BERTH_STR("1.7976931348623157e308"), &value));
    CHECK_NEAR(value, DBL_MAX, 0);
    CHECK_OK(berth_str_parse_f64(BERTH_STR("1e-999"), &value));
    CHECK_NEAR(value, 0, 0);
    const char *const words[] = {"",    ".",  "1e",     "1e+", "nan", "inf", "0x",
                                 "1,5", "1 ", "1e1000", "+1",  "1.e", "-.e1"};
    for (size_t i = 0; i < BERTH_COUNT(words); ++i) {
        CHECK_STATUS(berth_str_parse_f64(berth_str_from(words[i]), &value), BERTH_INVALID_ARGUMENT);
    }
    char many[2000];
    memset(many, '1', sizeof(many));
    CHECK_STATUS(berth_str_parse_f64((berth_str){.data = many, .size = sizeof(many)}, &value),
                 BERTH_INVALID_ARGUMENT);
}

TEST(str_nearest_finds_what_was_meant) {
    const char *const names[] = {"platform", NULL, "plugin-dir", "prompt", "prompts", "n"};
    const size_t count = BERTH_COUNT(names);
    CHECK_STR(berth_str_nearest(BERTH_STR("platfrom"), names, count), "platform");
    CHECK_STR(berth_str_nearest(BERTH_STR("PLATFORM"), names, count), "platform");
    CHECK_STR(berth_str_nearest(BERTH_STR("plugins-dir"), names, count), "plugin-dir");
    CHECK_STR(berth_str_nearest(BERTH_STR("promt"), names, count), "prompt");
    CHECK_NULL(berth_str_nearest(BERTH_STR("temperature"), names, count));
    CHECK_NULL(berth_str_nearest(BERTH_STR("x"), names, count));
    CHECK_NULL(berth_str_nearest(BERTH_STR(""), names, count));
    CHECK_NULL(berth_str_nearest(BERTH_STR("platform"), names, 0));
}
