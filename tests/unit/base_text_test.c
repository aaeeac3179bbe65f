// SPDX-License-Identifier: Apache-2.0
// base/text and base/json_writer: growth, the sticky limit, escapes, and exact output.
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "support/test.h"

static const char *finished(const berth_text *text) {
    const char *cstr = NULL;
    CHECK_OK(berth_text_finish(text, &cstr));
    return cstr;
}

TEST(text_joins_what_is_added) {
    berth_text text;
    berth_text_init(&text, 1000);
    CHECK_STR(finished(&text), "");
    berth_text_add_cstr(&text, "a");
    berth_text_add(&text, BERTH_STR("bc"));
    berth_text_add_char(&text, '-');
    berth_text_add_format(&text, "%05d|%s", 42, "x");
    CHECK_STR(finished(&text), "abc-00042|x");
    CHECK_UINT(berth_text_str(&text).size, 11);
    berth_text_clear(&text);
    CHECK_STR(finished(&text), "");
    berth_text_deinit(&text);
}

TEST(text_grows_to_its_limit_and_no_further) {
    berth_text text;
    berth_text_init(&text, 300);
    for (int i = 0; i < 300; ++i) {
        berth_text_add_char(&text, 'x');
    }
    CHECK_UINT(strlen(finished(&text)), 300);
    berth_text_add_char(&text, 'y');
    berth_text_clear(&text);
    CHECK_OK(berth_text_finish(&text, NULL));
    berth_text_deinit(&text);
}

TEST(text_failure_sticks_until_cleared) {
    berth_text text;
    berth_text_init(&text, 4);
    berth_text_add_cstr(&text, "abc");
    berth_text_add_cstr(&text, "de");
    berth_text_add_char(&text, 'f');
    CHECK_STATUS(berth_text_finish(&text, NULL), BERTH_OUT_OF_MEMORY);
    CHECK_STR(berth_status_message(), "text of 5 bytes or more: its limit is 4");
    CHECK_UINT(text.size, 3);
    berth_text_clear(&text);
    berth_text_add_cstr(&text, "wxyz");
    CHECK_STR(finished(&text), "wxyz");
    berth_text_deinit(&text);
}

TEST(text_survives_every_failed_allocation) {
    bool is_done = false;
    for (uint64_t n = 1; !is_done; ++n) {
        berth_text text;
        berth_text_init(&text, 10000);
        berth_memory_fail_after(n);
        for (int i = 0; i < 500; ++i) {
            berth_text_add_format(&text, "%d ", i);
        }
        is_done = berth_memory_fail_after(0) > 0;
        const berth_status wanted = is_done ? BERTH_OK : BERTH_OUT_OF_MEMORY;
        CHECK_STATUS(berth_text_finish(&text, NULL), wanted);
        berth_text_deinit(&text);
    }
}

TEST(text_prints_the_shortest_decimal_that_reads_back) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.1,       "0.1"                },
        {1,         "1.0"                },
        {-0.0,      "-0.0"               },
        {1e300,     "1e+300"             },
        {1e-6,      "1e-06"              },
        {0.1 + 0.2, "0.30000000000000004"},
        {1e15,      "1e+15"              },
        {123456.0,  "123456.0"           },
        {1.0 / 3,   "0.3333333333333333" },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        berth_text text;
        berth_text_init(&text, 100);
        berth_text_add_f64(&text, cases[i].value);
        CHECK_STR(finished(&text), cases[i].text);
        CHECK_NEAR(strtod(finished(&text), NULL), cases[i].value, 0);
        berth_text_deinit(&text);
    }
}

TEST(text_escapes_json) {
    berth_text text;
    berth_text_init(&text, 1000);
    const char bytes[] = "a\"b\\c\n\t\b\f\r\x01\x7f\0/\xc3\xa4\xf0\x9f\x98\x80\xff\xe2\x82!";
    berth_text_add_json(&text, (berth_str){.data = bytes, .size = sizeof(bytes) - 1});
    CHECK_STR(finished(&text),
              "a\\\"b\\\\c\\n\\t\\b\\f\\r\\u0001\\u007f\\u0000/\xc3\xa4\xf0\x9f\x98\x80"
              "\xef\xbf\xbd\xef\xbf\xbd!");
    berth_text_deinit(&text);
}

static void write_sample(berth_json_writer *writer) {
    berth_json_begin_object(writer);
    berth_json_put_key(writer, "id");
    berth_json_put_cstr(writer, "a\"b");
    berth_json_put_key(writer, "list");
    berth_json_begin_array(writer);
    berth_json_put_i64(writer, -1);
    berth_json_put_u64(writer, UINT64_MAX);
    berth_json_put_f64(writer, 0.5);
    berth_json_put_f64(writer, (double)INFINITY);
    berth_json_begin_object(writer);
    berth_json_end_object(writer);
    berth_json_end_array(writer);
    berth_json_put_key(writer, "none");
    berth_json_put_cstr(writer, NULL);
    berth_json_put_key(writer, "yes");
    berth_json_put_bool(writer, true);
    berth_json_end_object(writer);
}

TEST(json_writer_writes_one_line) {
    berth_text text;
    berth_text_init(&text, 1000);
    berth_json_writer writer;
    berth_json_writer_init(&writer, &text, 0);
    write_sample(&writer);
    CHECK_STR(finished(&text),
              "{\"id\": \"a\\\"b\", \"list\": [-1, 18446744073709551615, 0.5, null, "
              "{}], \"none\": null, \"yes\": true}");
    berth_text_deinit(&text);
}

TEST(json_writer_indents) {
    berth_text text;
    berth_text_init(&text, 1000);
    berth_json_writer writer;
    berth_json_writer_init(&writer, &text, 2);
    write_sample(&writer);
    CHECK_STR(finished(&text), "{\n"
                               "  \"id\": \"a\\\"b\",\n"
                               "  \"list\": [\n"
                               "    -1,\n"
                               "    18446744073709551615,\n"
                               "    0.5,\n"
                               "    null,\n"
                               "    {}\n"
                               "  ],\n"
                               "  \"none\": null,\n"
                               "  \"yes\": true\n"
                               "}\n");
    berth_text_deinit(&text);
}

TEST(json_writer_is_as_sticky_as_its_text) {
    berth_text text;
    berth_text_init(&text, 20);
    berth_json_writer writer;
    berth_json_writer_init(&writer, &text, 0);
    write_sample(&writer);
    CHECK_STATUS(berth_text_finish(&text, NULL), BERTH_OUT_OF_MEMORY);
    berth_text_deinit(&text);
}
