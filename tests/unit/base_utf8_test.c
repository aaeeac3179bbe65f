// SPDX-License-Identifier: Apache-2.0
// base/utf8: strict decoding, replacement as Unicode recommends, incomplete tails.
#include "base/utf8.h"

#include <stdio.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "support/test.h"

#define SUITE "../shared/data/conformance/utf8/utf8tests.txt"

TEST(utf8_decodes_what_it_encodes) {
    for (uint32_t code = 0; code <= 0x110001; ++code) {
        char bytes[4];
        const size_t size = berth_utf8_encode(code, bytes);
        if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
            CHECK_UINT(size, 0);
            continue;
        }
        uint32_t decoded = 0;
        CHECK_UINT(berth_utf8_next((berth_str){.data = bytes, .size = size}, &decoded), size);
        CHECK_UINT(decoded, code);
    }
}

TEST(utf8_refuses_what_is_not) {
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\xaf",
        "\xc1\xbf",
        "\xe0\x80\xaf",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x80\x80\xaf",
        "\xf0\x8f\xbf\xbf",
        "\xf5",
        "\xff",
        "\xf4\x90\x80\x80",
        "\xc3",
        "\xe2\x82",
        "\xf0\x9f\x98",
        "\xc3(",
        "\xe2(\xa1",
    };
    for (size_t i = 0; i < BERTH_COUNT(bad); ++i) {
        char text[16];
        const int size = snprintf(text, sizeof(text), "ok%s", bad[i]);
        const berth_str whole = {.data = text, .size = (size_t)size};
        CHECK_UINT(berth_utf8_valid_bytes(whole), 2);
        CHECK_STATUS(berth_utf8_check(whole, "the prompt"), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(berth_status_message(), "the prompt is not UTF-8: wrong byte 0x");
        CHECK_CONTAINS(berth_status_message(), " at offset 2;");
    }
    CHECK_OK(berth_utf8_check(BERTH_STR("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"), "the prompt"));
    CHECK_OK(berth_utf8_check((berth_str){0}, "the prompt"));
    CHECK_UINT(berth_utf8_next((berth_str){0}, NULL), 0);
}

TEST(utf8_tail_is_what_may_still_become_a_character) {
    static const struct {
        const char *text;
        size_t tail;
    } cases[] = {
        {"",                 0},
        {"a",                0},
        {"a\xc3",            1},
        {"a\xc3\xa4",        0},
        {"\xe2",             1},
        {"\xe2\x82",         2},
        {"\xe2\x82\xac",     0},
        {"\xf0\x9f\x98",     3},
        {"\xf0\x9f",         2},
        {"\xed\xa0",         0},
        {"\xff",             0},
        {"\x80\x80\x80",     0},
        {"\xe0\x80",         0},
        {"a\xe2\x82(",       0},
        {"\xf4\x90",         0},
        {"\xf0\x9f\x98\x80", 0},
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        CHECK_UINT(berth_utf8_tail_bytes(berth_str_from(cases[i].text)), cases[i].tail);
    }
}

// The bytes of "c2 a9 EFBFBD" or, without "hex", of the text itself; "nothing" is none.
static berth_str read_bytes(berth_str text, bool is_hex, char buffer[256]) {
    if (!is_hex) {
        return text;
    }
    size_t count = 0;
    for (size_t i = 0; i + 1 < text.size; ++i) {
        unsigned value = 0;
        if (text.data[i] != ' ' && sscanf(text.data + i, "%2x", &value) == 1) {
            buffer[count++] = (char)value;
            ++i;
        }
    }
    return (berth_str){.data = buffer, .size = count};
}

// Decodes with every wrong piece replaced by U+FFFD.
static void add_replaced(berth_str bytes, berth_text *out) {
    while (bytes.size > 0) {
        uint32_t code = 0;
        const size_t size = berth_utf8_next(bytes, &code);
        if (code == BERTH_UTF8_BAD) {
            berth_text_add_cstr(out, "\xef\xbf\xbd");
        } else {
            berth_text_add(out, berth_str_slice(bytes, 0, size));
        }
        bytes = berth_str_slice(bytes, size, bytes.size);
    }
}

// A line is "number:kind:bytes" or "number:invalid hex:bytes:skipped:replaced".
static void check_line(berth_str line) {
    berth_str field[5] = {{0}};
    for (size_t i = 0; i < BERTH_COUNT(field); ++i) {
        berth_str_split_first(&line, ':', &field[i]);
        field[i] = berth_str_trim(field[i]);
    }
    char buffer[256];
    char expected_buffer[256];
    const bool is_hex = berth_str_ends_with(field[1], BERTH_STR("hex"));
    const berth_str bytes = read_bytes(field[2], is_hex, buffer);
    const bool is_valid = berth_str_starts_with(field[1], BERTH_STR("valid"));
    const berth_str expected = is_valid ? bytes : read_bytes(field[4], true, expected_buffer);
    CHECK_INT(berth_utf8_valid_bytes(bytes) == bytes.size, is_valid);
    berth_text replaced;
    berth_text_init(&replaced, 1024);
    add_replaced(bytes, &replaced);
    CHECK_OK(berth_text_finish(&replaced, NULL));
    CHECK_UINT(replaced.size, expected.size);
    CHECK_BYTES(berth_text_str(&replaced).data, expected.data, expected.size);
    berth_text_deinit(&replaced);
}

TEST(utf8_replaces_as_the_conformance_suite_does) {
    if (!berth_path_exists(SUITE)) {
        SKIP(SUITE " is not here");
    }
    char *data = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read(SUITE, 1 << 20, &data, &size));
    berth_str rest = {.data = data, .size = size};
    size_t count = 0;
    for (berth_str line; berth_str_split_first(&rest, '\n', &line);) {
        if (line.size > 0 && line.data[0] != '#') {
            check_line(line);
            ++count;
        }
    }
    CHECK(count > 100);
    berth_free(data);
}
