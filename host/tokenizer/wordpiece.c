// SPDX-License-Identifier: Apache-2.0
// Looking words up. A word of which one piece is unknown is unknown as a whole.
#include "tokenizer/wordpiece.h"

#include "tokenizer/unicode.h"

// Why a limit: the time that a word takes grows with the square of its length.
#define WORD_CHARS  1024
#define PIECE_BYTES ((size_t)1 << 20)

// ---- reading the file ----

static berth_status read_pieces(berth_wordpiece *w, berth_arena *arena, const berth_json *model) {
    berth_str prefix;
    int64_t longest;
    BERTH_TRY(berth_json_str_or(model, "continuing_subword_prefix", BERTH_STR("##"), &prefix));
    BERTH_TRY(berth_json_i64_or(model, "max_input_chars_per_word", 100, &longest));
    if (longest < 0 || longest > WORD_CHARS) {
        return berth_json_fail(BERTH_UNSUPPORTED, model,
                               "max_input_chars_per_word %lld is not supported: at most %d is",
                               (long long)longest, WORD_CHARS);
    }
    w->longest = (size_t)longest;
    w->prefix = (berth_str){.data = berth_arena_copy(arena, prefix), .size = prefix.size};
    return w->prefix.data ? BERTH_OK : berth_arena_exhausted(arena, "a model");
}

berth_status berth_wordpiece_read(berth_wordpiece *w, berth_arena *arena, const berth_json *model,
                                  bool is_cut) {
    berth_str unknown;
    w->is_cut = is_cut;
    BERTH_TRY(berth_json_get_str(model, "unk_token", &unknown));
    w->unknown_id = berth_vocabulary_find_model(w->vocabulary, unknown);
    return is_cut ? read_pieces(w, arena, model) : BERTH_OK;
}

// ---- encoding a word ----

static berth_status push_unknown(const berth_wordpiece *w, berth_str word, berth_token_ids *ids) {
    if (w->unknown_id < 0) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "the vocabulary has no token for '" BERTH_STR_FMT "' and no unk_token",
                          BERTH_STR_ARG(word));
    }
    return berth_array_push(ids, w->unknown_id);
}

// The longest token that a text of more than `least` bytes begins with, and its size; or -1.
static int32_t find_piece(const berth_wordpiece *w, berth_str *text, size_t least) {
    while (text->size > least) {
        const int32_t id = berth_vocabulary_find_model(w->vocabulary, *text);
        if (id >= 0) {
            return id;
        }
        do {
            --text->size;
        } while (((uint8_t)text->data[text->size] & 0xC0) == 0x80);
    }
    return -1;
}

// Takes a piece off the rest of a word, behind a prefix; id -1: there is none.
static berth_status cut_piece(const berth_wordpiece *w, berth_str *rest, berth_str prefix,
                              berth_wordpiece_scratch *scratch, int32_t *out_id) {
    berth_text *piece = &scratch->piece;
    piece->limit = PIECE_BYTES;
    berth_text_clear(piece);
    berth_text_add(piece, prefix);
    berth_text_add(piece, *rest);
    BERTH_TRY(berth_text_finish(piece, NULL));
    berth_str text = berth_text_str(piece);
    *out_id = find_piece(w, &text, prefix.size);
    if (*out_id >= 0) {
        *rest = berth_str_slice(*rest, text.size - prefix.size, SIZE_MAX);
    }
    return BERTH_OK;
}

static berth_status cut(const berth_wordpiece *w, berth_str word, berth_wordpiece_scratch *scratch,
                        berth_token_ids *ids) {
    const size_t count = ids->count;
    berth_str rest = word;
    while (rest.size > 0) {
        const berth_str prefix = rest.size < word.size ? w->prefix : (berth_str){0};
        int32_t id;
        BERTH_TRY(cut_piece(w, &rest, prefix, scratch, &id));
        if (id < 0) {
            ids->count = count;
            return push_unknown(w, word, ids);
        }
        BERTH_TRY(berth_array_push(ids, id));
    }
    return BERTH_OK;
}

berth_status berth_wordpiece_encode(const berth_wordpiece *wordpiece, berth_str word,
                                    berth_wordpiece_scratch *scratch, berth_token_ids *ids) {
    if (wordpiece->is_cut && berth_unicode_char_count(word) <= wordpiece->longest) {
        return cut(wordpiece, word, scratch, ids);
    }
    const int32_t id =
        wordpiece->is_cut ? -1 : berth_vocabulary_find_model(wordpiece->vocabulary, word);
    return id >= 0 ? berth_array_push(ids, id) : push_unknown(wordpiece, word, ids);
}

void berth_wordpiece_scratch_deinit(berth_wordpiece_scratch *scratch) {
    berth_text_deinit(&scratch->piece);
}
