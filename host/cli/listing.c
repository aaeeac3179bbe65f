// SPDX-License-Identifier: Apache-2.0
// Listings: aligned columns for people, and the frame of every --json output.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/cli_private.h"

#define CELL_BYTES 1024

static size_t width_of(const char *cell) {
    berth_str rest = berth_str_from(cell);
    size_t width = 0;
    while (rest.size > 0) {
        rest = berth_str_slice(rest, berth_utf8_next(rest, NULL), rest.size);
        ++width;
    }
    return width;
}

void berth_listing_begin(berth_listing *table, berth_session *session, const char *const *headings,
                         size_t count) {
    *table = (berth_listing){.text = &session->out, .arena = session->arena, .column_count = count};
    for (size_t i = 0; i < count; ++i) {
        berth_listing_add(table, headings[i]);
    }
}

void berth_listing_add(berth_listing *table, const char *cell) {
    const char *copy = berth_arena_strdup(table->arena, cell && cell[0] ? cell : "-");
    if (!copy || berth_array_push(&table->cells, copy) != BERTH_OK) {
        table->has_failed = true;
    }
}

void berth_listing_add_format(berth_listing *table, const char *format, ...) {
    char cell[CELL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cell, sizeof cell, format, arguments);
    va_end(arguments);
    berth_listing_add(table, cell);
}

static void print_row(const berth_listing *table, const char *const *cells, const size_t *widths) {
    for (size_t column = 0; column < table->column_count; ++column) {
        berth_text_add_cstr(table->text, cells[column]);
        if (column + 1 < table->column_count) {
            const size_t pad = widths[column] - width_of(cells[column]) + 2;
            berth_text_add_format(table->text, "%*s", (int)pad, "");
        }
    }
    berth_text_add_char(table->text, '\n');
}

berth_status berth_listing_end(berth_listing *table) {
    size_t widths[BERTH_LISTING_COLUMNS] = {0};
    for (size_t i = 0; i < table->cells.count; ++i) {
        const size_t width = width_of(table->cells.data[i]);
        size_t *widest = &widths[i % table->column_count];
        *widest = width > *widest ? width : *widest;
    }
    for (size_t i = 0; i < table->cells.count && !table->has_failed; i += table->column_count) {
        print_row(table, table->cells.data + i, widths);
    }
    const bool has_failed = table->has_failed;
    berth_array_free(&table->cells);
    return has_failed ? BERTH_FAIL(OUT_OF_MEMORY, "the table is too large to print") : BERTH_OK;
}

void berth_session_json(berth_session *session, berth_json_writer *writer) {
    berth_json_writer_init(writer, &session->out, 2);
}

void berth_session_json_end(berth_session *session) {
    if (!berth_str_ends_with(berth_text_str(&session->out), BERTH_STR("\n"))) {
        berth_text_add_char(&session->out, '\n');
    }
}

void berth_cli_put(berth_json_writer *json, const char *key, const char *value) {
    berth_json_put_key(json, key);
    berth_json_put_cstr(json, value);
}

void berth_cli_put_bool(berth_json_writer *json, const char *key, bool value) {
    berth_json_put_key(json, key);
    berth_json_put_bool(json, value);
}

void berth_cli_put_u64(berth_json_writer *json, const char *key, uint64_t value) {
    berth_json_put_key(json, key);
    berth_json_put_u64(json, value);
}

void berth_cli_put_f64(berth_json_writer *json, const char *key, double value) {
    berth_json_put_key(json, key);
    berth_json_put_f64(json, value);
}
