// SPDX-License-Identifier: Apache-2.0
// Walking the double array: from a unit, a byte leads to the unit at its offset combined with the
// byte, if that unit is labelled with the byte. Nothing in the table is trusted: every index is
// compared with the table's size when it is used.
#include "tokenizer/charsmap.h"

#include <string.h>

#include "tokenizer/unicode.h"

#define GRAPHEME_BYTES 6 // those that are as long are never looked up as a whole
#define UNIT_BYTES     4

// ---- reading the file ----

// The value of a letter of base64, or -1.
static int letter_value(char letter) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *place = letter != '\0' ? strchr(letters, letter) : NULL;
    return place ? (int)(place - letters) : -1;
}

// Into at least 3 bytes for every 4 letters. False: that is no base64.
static bool decode_base64(berth_str text, uint8_t *out, size_t *out_size) {
    uint32_t bits = 0;
    unsigned count = 0;
    *out_size = 0;
    while (berth_str_ends_with(text, BERTH_STR("="))) {
        --text.size;
    }
    for (size_t i = 0; i < text.size; ++i) {
        const int value = letter_value(text.data[i]);
        if (value < 0) {
            return false;
        }
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[(*out_size)++] = (uint8_t)(bits >> count);
        }
    }
    return true;
}

static uint32_t read_unit(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

// The size of the double array in bytes, the array, the results.
static bool take_parts(berth_charsmap *map, berth_arena *arena, berth_str blob) {
    const uint8_t *bytes = (const uint8_t *)blob.data;
    const size_t size = blob.size >= UNIT_BYTES ? read_unit(bytes) : SIZE_MAX;
    if (size > blob.size - UNIT_BYTES || size == 0 || size % UNIT_BYTES != 0) {
        return false;
    }
    map->unit_count = size / UNIT_BYTES;
    map->results = berth_str_slice(blob, UNIT_BYTES + size, SIZE_MAX);
    uint32_t *units = BERTH_ARENA_ARRAY(arena, uint32_t, map->unit_count);
    for (size_t i = 0; units && i < map->unit_count; ++i) {
        units[i] = read_unit(bytes + UNIT_BYTES * (i + 1));
    }
    map->units = units;
    return true;
}

berth_status berth_charsmap_read(berth_charsmap *map, berth_arena *arena, const berth_json *json) {
    berth_str text;
    BERTH_TRY(berth_json_get_str(json, "precompiled_charsmap", &text));
    uint8_t *bytes = BERTH_ARENA_ARRAY(arena, uint8_t, text.size + 1);
    berth_str blob = {.data = (const char *)bytes};
    if (bytes && (!decode_base64(text, bytes, &blob.size) || !take_parts(map, arena, blob))) {
        return berth_json_fail(BERTH_CORRUPT, json, "this is no table of characters in base64");
    }
    return bytes && map->units ? BERTH_OK : berth_arena_exhausted(arena, "a table of characters");
}

// ---- looking up ----

typedef struct walk {
    const berth_charsmap *map;
    size_t place;
} walk;

// Where the unit at a place leads. Why two shifts: far offsets are stored without their last byte.
static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

static uint32_t unit_at(const walk *w) {
    return w->place < w->map->unit_count ? w->map->units[w->place] : 0;
}

// Follows a byte. False: no sequence goes on with it; `out_value` is -1 where none ends.
static bool follow(walk *w, uint8_t byte, int64_t *out_value) {
    w->place ^= byte;
    const uint32_t unit = unit_at(w);
    *out_value = -1;
    if (byte == 0 || (unit & 0x800000FF) != byte) {
        return false;
    }
    w->place ^= offset_of(unit);
    if (unit >> 8 & 1) {
        *out_value = unit_at(w) & 0x7FFFFFFF;
    }
    return true;
}

// The result for the longest, or for the shortest sequence that a text begins with, and the
// sequence's size. NULL data: the table knows none.
static berth_str look_up(const berth_charsmap *map, berth_str text, bool takes_longest,
                         size_t *out_size) {
    walk w = {.map = map};
    int64_t found = -1;
    int64_t value;
    w.place = offset_of(unit_at(&w));
    for (size_t i = 0; i < text.size && follow(&w, (uint8_t)text.data[i], &value); ++i) {
        if (value >= 0 && (takes_longest || found < 0)) {
            found = value;
            *out_size = i + 1;
        }
    }
    if (found < 0) {
        return (berth_str){0};
    }
    const berth_str rest = berth_str_slice(map->results, (size_t)found, SIZE_MAX);
    return berth_str_slice(rest, 0, berth_str_find(rest, '\0'));
}

static void run_longest(const berth_charsmap *map, berth_str text, berth_text *out) {
    size_t step;
    for (size_t at = 0; at < text.size; at += step) {
        (void)berth_unicode_char_at(text, at, &step);
        const berth_str character = berth_str_slice(text, at, step);
        const berth_str result = look_up(map, berth_str_slice(text, at, SIZE_MAX), true, &step);
        berth_text_add(out, result.data ? result : character);
    }
}

static void run_grapheme(const berth_charsmap *map, berth_str grapheme, berth_text *out) {
    berth_str result = {0};
    size_t step, unused;
    if (grapheme.size < GRAPHEME_BYTES) {
        result = look_up(map, grapheme, false, &unused);
    }
    if (result.data) {
        berth_text_add(out, result);
        return;
    }
    for (size_t at = 0; at < grapheme.size; at += step) {
        (void)berth_unicode_char_at(grapheme, at, &step);
        const berth_str character = berth_str_slice(grapheme, at, step);
        result = look_up(map, character, false, &unused);
        berth_text_add(out, result.data ? result : character);
    }
}

void berth_charsmap_run(const berth_charsmap *map, berth_charsmap_way way, berth_str text,
                        berth_text *out) {
    if (way == BERTH_CHARSMAP_LONGEST) {
        run_longest(map, text, out);
        return;
    }
    while (text.size > 0) {
        const size_t size = berth_unicode_grapheme_bytes(text);
        run_grapheme(map, berth_str_slice(text, 0, size), out);
        text = berth_str_slice(text, size, SIZE_MAX);
    }
}
