// SPDX-License-Identifier: Apache-2.0
// Input: calls in document order. Output: JSON in the text. One function places commas, blanks and
// colons before every value, so that no caller has to.
#include "base/json_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

void berth_json_writer_init(berth_json_writer *writer, berth_text *text, uint32_t indent) {
    *writer = (berth_json_writer){.text = text, .indent = indent};
}

static void start_line(berth_json_writer *writer) {
    if (writer->indent == 0) {
        return;
    }
    berth_text_add_char(writer->text, '\n');
    for (uint32_t i = 0; i < writer->depth * writer->indent; ++i) {
        berth_text_add_char(writer->text, ' ');
    }
}

// What stands before an element or a key.
static void separate(berth_json_writer *writer) {
    if (writer->depth == 0) {
        return;
    }
    bool *has_items = &writer->has_items[writer->depth - 1];
    if (*has_items) {
        berth_text_add_cstr(writer->text, writer->indent == 0 ? ", " : ",");
    }
    *has_items = true;
    start_line(writer);
}

static void before_value(berth_json_writer *writer) {
    if (writer->has_key) {
        writer->has_key = false;
        return;
    }
    assert(writer->depth == 0 || !writer->is_object[writer->depth - 1]);
    separate(writer);
}

static void begin(berth_json_writer *writer, char bracket) {
    before_value(writer);
    assert(writer->depth < BERTH_JSON_WRITER_DEPTH);
    writer->is_object[writer->depth] = bracket == '{';
    writer->has_items[writer->depth] = false;
    ++writer->depth;
    berth_text_add_char(writer->text, bracket);
}

static void end(berth_json_writer *writer, char bracket) {
    assert(writer->depth > 0 && !writer->has_key);
    --writer->depth;
    assert(writer->is_object[writer->depth] == (bracket == '}'));
    if (writer->has_items[writer->depth]) {
        start_line(writer);
    }
    berth_text_add_char(writer->text, bracket);
    if (writer->depth == 0 && writer->indent > 0) {
        berth_text_add_char(writer->text, '\n');
    }
}

void berth_json_begin_object(berth_json_writer *writer) {
    begin(writer, '{');
}

void berth_json_end_object(berth_json_writer *writer) {
    end(writer, '}');
}

void berth_json_begin_array(berth_json_writer *writer) {
    begin(writer, '[');
}

void berth_json_end_array(berth_json_writer *writer) {
    end(writer, ']');
}

static void put_quoted(berth_json_writer *writer, berth_str value) {
    berth_text_add_char(writer->text, '"');
    berth_text_add_json(writer->text, value);
    berth_text_add_char(writer->text, '"');
}

void berth_json_put_key(berth_json_writer *writer, const char *key) {
    assert(writer->depth > 0 && writer->is_object[writer->depth - 1] && !writer->has_key);
    separate(writer);
    put_quoted(writer, berth_str_from(key));
    berth_text_add_cstr(writer->text, ": ");
    writer->has_key = true;
}

void berth_json_put_str(berth_json_writer *writer, berth_str value) {
    before_value(writer);
    put_quoted(writer, value);
}

void berth_json_put_cstr(berth_json_writer *writer, const char *value) {
    if (value == NULL) {
        berth_json_put_null(writer);
    } else {
        berth_json_put_str(writer, berth_str_from(value));
    }
}

void berth_json_put_i64(berth_json_writer *writer, int64_t value) {
    before_value(writer);
    berth_text_add_format(writer->text, "%" PRId64, value);
}

void berth_json_put_u64(berth_json_writer *writer, uint64_t value) {
    before_value(writer);
    berth_text_add_format(writer->text, "%" PRIu64, value);
}

void berth_json_put_f64(berth_json_writer *writer, double value) {
    if (!isfinite(value)) {
        berth_json_put_null(writer);
        return;
    }
    before_value(writer);
    berth_text_add_f64(writer->text, value);
}

void berth_json_put_bool(berth_json_writer *writer, bool value) {
    before_value(writer);
    berth_text_add_cstr(writer->text, value ? "true" : "false");
}

void berth_json_put_null(berth_json_writer *writer) {
    before_value(writer);
    berth_text_add_cstr(writer->text, "null");
}
