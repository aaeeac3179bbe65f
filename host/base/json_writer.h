// SPDX-License-Identifier: Apache-2.0
// JSON to write: a stream of calls that becomes text, for every --json output and report. Like the
// text below it, it is sticky: no call can fail by itself, one check at berth_text_finish. Misuse
// of the order (a value without its key, an end that matches nothing) is a defect and asserted.
#ifndef BERTH_BASE_JSON_WRITER_H
#define BERTH_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "base/text.h"

#define BERTH_JSON_WRITER_DEPTH 32

typedef struct berth_json_writer {
    berth_text *text; // borrowed
    uint32_t indent;  // blanks per level; 0 writes all on one line
    uint32_t depth;
    bool has_key; // a key waits for its value
    bool is_object[BERTH_JSON_WRITER_DEPTH];
    bool has_items[BERTH_JSON_WRITER_DEPTH];
} berth_json_writer;

void berth_json_writer_init(berth_json_writer *writer, berth_text *text, uint32_t indent);
void berth_json_begin_object(berth_json_writer *writer);
void berth_json_end_object(berth_json_writer *writer);
void berth_json_begin_array(berth_json_writer *writer);
void berth_json_end_array(berth_json_writer *writer);
void berth_json_put_key(berth_json_writer *writer, const char *key);
// Bytes that are not UTF-8 become U+FFFD.
void berth_json_put_str(berth_json_writer *writer, berth_str value);
// NULL writes null.
void berth_json_put_cstr(berth_json_writer *writer, const char *value);
void berth_json_put_i64(berth_json_writer *writer, int64_t value);
void berth_json_put_u64(berth_json_writer *writer, uint64_t value);
// The shortest decimal that reads back the same; null for infinities and NaN, which JSON lacks.
void berth_json_put_f64(berth_json_writer *writer, double value);
void berth_json_put_bool(berth_json_writer *writer, bool value);
void berth_json_put_null(berth_json_writer *writer);

#endif
