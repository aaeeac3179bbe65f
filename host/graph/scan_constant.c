// SPDX-License-Identifier: Apache-2.0
// Constants of a graph's text: what stands behind an attribute's '='.
#include "graph/scan.h"

#include <string.h>

#include "base/array.h"

// "-" and a number: an integer, or a real when it has a point or an exponent.
static berth_status scan_numeric(berth_scan *scan, berth_attribute *out) {
    const bool is_negative = berth_scan_is_mark(scan, '-');
    const size_t at = scan->word_at;
    if (is_negative) {
        BERTH_TRY(berth_scan_next(scan));
    }
    if (scan->kind != BERTH_WORD_NUMBER || (is_negative && scan->word_at != at + 1)) {
        return berth_scan_fail(scan, at, "a constant is a number, a string, true, false or a list");
    }
    const berth_str whole = berth_str_slice(scan->source, at, scan->word_at + scan->word.size - at);
    const bool is_real =
        berth_str_find(whole, '.') < whole.size || berth_str_find(whole, 'e') < whole.size;
    out->kind = is_real ? BERTH_ATTRIBUTE_F64 : BERTH_ATTRIBUTE_I64;
    const berth_status status =
        is_real ? berth_str_parse_f64(whole, &out->f64) : berth_str_parse_i64(whole, &out->i64);
    if (status != BERTH_OK) {
        return berth_scan_fail(scan, at, "%s", berth_status_message());
    }
    return berth_scan_next(scan);
}

typedef berth_array(int64_t) word_array; // integers, or the bits of reals

static berth_status scan_items(berth_scan *scan, word_array *items, berth_attribute *out) {
    bool has_more = true;
    while (has_more) {
        const size_t at = scan->word_at;
        berth_attribute item = {0};
        BERTH_TRY(scan_numeric(scan, &item));
        const uint64_t kind =
            item.kind == BERTH_ATTRIBUTE_I64 ? BERTH_ATTRIBUTE_I64S : BERTH_ATTRIBUTE_F64S;
        if (items->count > 0 && kind != out->kind) {
            return berth_scan_fail(scan, at, "a list of integers and reals");
        }
        out->kind = kind;
        int64_t word = item.i64;
        if (kind == BERTH_ATTRIBUTE_F64S) {
            memcpy(&word, &item.f64, sizeof(word));
        }
        BERTH_TRY(berth_array_push(items, word));
        BERTH_TRY(berth_scan_accept(scan, ",", &has_more));
    }
    return berth_scan_expect(scan, "]");
}

// Behind the '['. An empty list has the kind that the op declares.
static berth_status scan_list(berth_scan *scan, berth_arena *arena, uint64_t declared,
                              berth_attribute *out) {
    bool is_empty = false;
    out->kind = declared;
    BERTH_TRY(berth_scan_accept(scan, "]", &is_empty));
    if (is_empty) {
        return BERTH_OK;
    }
    word_array items = {0};
    berth_status status = scan_items(scan, &items, out);
    void *list = status == BERTH_OK ? berth_arena_array(arena, items.count, sizeof(int64_t)) : NULL;
    if (list != NULL) {
        memcpy(list, items.data, items.count * sizeof(int64_t));
        out->count = items.count;
        out->i64s = out->kind == BERTH_ATTRIBUTE_I64S ? list : NULL;
        out->f64s = out->kind == BERTH_ATTRIBUTE_F64S ? list : NULL;
    } else if (status == BERTH_OK) {
        status = berth_arena_exhausted(arena, "lists of a graph text");
    }
    berth_array_free(&items);
    return status;
}

berth_status berth_scan_constant(berth_scan *scan, berth_arena *arena, uint64_t declared,
                                 berth_attribute *out) {
    bool is_list = false;
    if (scan->kind == BERTH_WORD_STRING) {
        out->kind = BERTH_ATTRIBUTE_STR;
        return berth_scan_string(scan, arena, &out->str);
    }
    if (berth_scan_is_name(scan, "true") || berth_scan_is_name(scan, "false")) {
        out->kind = BERTH_ATTRIBUTE_BOOL;
        out->i64 = berth_scan_is_name(scan, "true");
        return berth_scan_next(scan);
    }
    BERTH_TRY(berth_scan_accept(scan, "[", &is_list));
    return is_list ? scan_list(scan, arena, declared, out) : scan_numeric(scan, out);
}
