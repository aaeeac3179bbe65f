// SPDX-License-Identifier: Apache-2.0
// Prints a recipe as JSON and opens it; checks what a tokenizer gives.
#include "support/recipe.h"

#include "base/text.h"
#include "support/test.h"
#include "tokenizer/alphabet.h"

#define JSON_LIMIT ((size_t)1 << 20)
#define TEXT_LIMIT ((size_t)1 << 24)

static const char *text_or(const char *text, const char *fallback) {
    return text ? text : fallback;
}

static void print_byte(const recipe *r, unsigned byte, berth_text *out) {
    if (r->is_of_characters) {
        berth_text_add_format(out, "<0x%02X>", byte);
        return;
    }
    const char raw = (char)byte;
    char spelling[2];
    const size_t size = berth_alphabet_spell((berth_str){.data = &raw, .size = 1}, spelling);
    berth_text_add_json(out, (berth_str){.data = spelling, .size = size});
}

static void print_recipe(const recipe *r, berth_text *out) {
    static const char byte_level[] =
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}";
    static const char fallback[] = "{\"type\":\"ByteFallback\"}";
    berth_text_add_cstr(out, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned byte = 0; byte < 256; ++byte) {
        berth_text_add_cstr(out, byte > 0 ? ",\"" : "\"");
        print_byte(r, byte, out);
        berth_text_add_format(out, "\":%u", byte);
    }
    berth_text_add_format(
        out, "%s},\"merges\":%s%s}", text_or(r->vocab, ""), text_or(r->merges, "[]"),
        text_or(r->options, r->is_of_characters ? ",\"byte_fallback\":true" : ""));
    berth_text_add_format(out, ",\"added_tokens\":%s", text_or(r->added_tokens, "[]"));
    berth_text_add_format(out, ",\"normalizer\":%s", text_or(r->normalizer, "null"));
    berth_text_add_format(out, ",\"pre_tokenizer\":%s",
                          text_or(r->pre_tokenizer, r->is_of_characters ? "null" : byte_level));
    berth_text_add_format(out, ",\"post_processor\":%s", text_or(r->post_processor, "null"));
    berth_text_add_format(out, ",\"decoder\":%s}",
                          text_or(r->decoder, r->is_of_characters ? fallback : byte_level));
}

berth_status parse_recipe(const recipe *r, berth_tokenizer **out_tokenizer) {
    berth_text json;
    berth_text_init(&json, JSON_LIMIT);
    print_recipe(r, &json);
    berth_status status = berth_text_finish(&json, NULL);
    if (status == BERTH_OK) {
        status =
            berth_tokenizer_parse(berth_text_str(&json), berth_str_from(r->config), out_tokenizer);
    }
    berth_text_deinit(&json);
    return status;
}

berth_tokenizer *open_recipe(const recipe *r) {
    berth_tokenizer *tokenizer = NULL;
    CHECK_OK(parse_recipe(r, &tokenizer));
    return tokenizer;
}

void check_ids(const berth_tokenizer *tokenizer, berth_str text, uint32_t flags,
               const char *expected) {
    berth_token_ids ids = {0};
    berth_text line;
    berth_text_init(&line, TEXT_LIMIT);
    CHECK_OK(berth_tokenizer_encode(tokenizer, text, flags, &ids));
    for (size_t i = 0; i < ids.count; ++i) {
        berth_text_add_format(&line, i > 0 ? " %d" : "%d", ids.data[i]);
    }
    CHECK_STR(line.data ? line.data : "", expected);
    berth_text_deinit(&line);
    berth_array_free(&ids);
}

void check_text(const berth_tokenizer *tokenizer, const int32_t *ids, size_t count,
                berth_str expected) {
    berth_text text;
    berth_text_init(&text, TEXT_LIMIT);
    CHECK_OK(berth_tokenizer_decode(tokenizer, ids, count, 0, &text));
    CHECK_UINT(text.size, expected.size);
    if (expected.size > 0) {
        CHECK_BYTES(text.data, expected.data, expected.size);
    }
    berth_text_deinit(&text);
}
