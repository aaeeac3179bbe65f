// SPDX-License-Identifier: Apache-2.0
// Merges as a hash table of id pairs, and a word as a linked list of symbols with a heap of the
// pairs that can be joined, so that a word of a million letters takes no longer per letter than a
// short one.
#include "tokenizer/bpe.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/alphabet.h"

#define AFFIXED_BYTES ((size_t)1 << 16) // of a character with what the model puts around it

// ---- the table of merges ----

// Where a pair is, or the free place where it belongs.
static berth_merge *find_place(const berth_bpe *bpe, int32_t left, int32_t right) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const uint64_t mask = ((uint64_t)1 << bpe->merge_bits) - 1;
    uint64_t place = pair * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bpe->merge_bits);
    while (bpe->merges[place].rank > 0 &&
           (bpe->merges[place].left != left || bpe->merges[place].right != right)) {
        place = (place + 1) & mask;
    }
    return &bpe->merges[place];
}

static const berth_merge *find_merge(const berth_bpe *bpe, int32_t left, int32_t right) {
    const berth_merge *place = find_place(bpe, left, right);
    return place->rank > 0 ? place : NULL;
}

// ---- reading the file ----

// A merge is "a b" in older files and ["a", "b"] in newer ones.
static berth_status read_halves(const berth_json *merge, berth_str *out_left,
                                berth_str *out_right) {
    if (berth_json_kind_of(merge) == BERTH_JSON_ARRAY) {
        if (berth_json_size(merge) != 2) {
            return berth_json_fail(BERTH_CORRUPT, merge, "a merge needs two tokens, found %zu",
                                   berth_json_size(merge));
        }
        BERTH_TRY(berth_json_get_str(merge, "0", out_left));
        return berth_json_get_str(merge, "1", out_right);
    }
    berth_str text;
    BERTH_TRY(berth_json_get_str(merge, "", &text));
    const size_t blank = berth_str_find(text, ' ');
    *out_left = berth_str_slice(text, 0, blank);
    *out_right = berth_str_slice(text, blank + 1, SIZE_MAX);
    if (blank == text.size || berth_str_find(*out_right, ' ') < out_right->size) {
        return berth_json_fail(BERTH_CORRUPT, merge,
                               "merge '" BERTH_STR_FMT "' is not two tokens with one blank between",
                               BERTH_STR_ARG(text));
    }
    return BERTH_OK;
}

static bool is_version_line(const berth_json *merge) {
    berth_str text;
    return berth_json_kind_of(merge) == BERTH_JSON_STRING &&
           berth_json_get_str(merge, "", &text) == BERTH_OK &&
           berth_str_starts_with(text, BERTH_STR("#version"));
}

static berth_status find_token(const berth_bpe *bpe, berth_str content, const berth_json *merge,
                               int32_t *out_id) {
    *out_id = content.size > 0 ? berth_vocabulary_find_model(bpe->vocabulary, content) : -1;
    if (*out_id < 0) {
        return berth_json_fail(BERTH_CORRUPT, merge,
                               "a merge of or into '" BERTH_STR_FMT
                               "', which is no token of the vocabulary",
                               BERTH_STR_ARG(content));
    }
    return BERTH_OK;
}

// Why a repeated pair counts where it stands last, and a first line of merges.txt that slipped in
// counts nowhere: so the reference reader has it.
static berth_status read_merge(berth_bpe *bpe, const berth_json *json, uint32_t rank,
                               berth_text *joined) {
    berth_str left = {0};
    berth_str right = {0};
    if (is_version_line(json)) {
        return BERTH_OK;
    }
    BERTH_TRY(read_halves(json, &left, &right));
    berth_text_clear(joined);
    berth_text_add(joined, left);
    berth_text_add(joined, berth_str_slice(right, bpe->prefix.size, SIZE_MAX));
    BERTH_TRY(berth_text_finish(joined, NULL));
    berth_merge merge = {.rank = rank};
    BERTH_TRY(find_token(bpe, left, json, &merge.left));
    BERTH_TRY(find_token(bpe, right, json, &merge.right));
    BERTH_TRY(find_token(bpe, berth_text_str(joined), json, &merge.joined));
    *find_place(bpe, merge.left, merge.right) = merge;
    return BERTH_OK;
}

static berth_status read_merges(berth_bpe *bpe, berth_arena *arena, const berth_json *merges) {
    const size_t count = berth_json_size(merges);
    bpe->merge_bits = 4;
    while (((size_t)1 << bpe->merge_bits) < 2 * count) {
        ++bpe->merge_bits;
    }
    bpe->merges = BERTH_ARENA_ARRAY(arena, berth_merge, (size_t)1 << bpe->merge_bits);
    if (!bpe->merges) {
        return berth_arena_exhausted(arena, "merges");
    }
    berth_text joined;
    berth_text_init(&joined, SIZE_MAX / 2);
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < count && status == BERTH_OK; ++i) {
        status = read_merge(bpe, berth_json_at(merges, i), (uint32_t)i + 1, &joined);
    }
    berth_text_deinit(&joined);
    return status;
}

// False: some byte has no token.
static bool find_bytes(berth_bpe *bpe) {
    bool is_complete = true;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const char raw = (char)byte;
        char spelling[2];
        const size_t size = berth_alphabet_spell((berth_str){.data = &raw, .size = 1}, spelling);
        bpe->byte_ids[byte] = berth_vocabulary_find_model(
            bpe->vocabulary, (berth_str){.data = spelling, .size = size});
        is_complete &= bpe->byte_ids[byte] >= 0;
    }
    return is_complete;
}

// The tokens that stand for single bytes of characters which have none. True: no byte lacks one.
static bool find_fallbacks(berth_bpe *bpe) {
    bool is_complete = true;
    for (unsigned byte = 0; byte < 256; ++byte) {
        char name[8];
        (void)snprintf(name, sizeof(name), "<0x%02X>", byte);
        bpe->byte_ids[byte] = berth_vocabulary_find_model(bpe->vocabulary, berth_str_from(name));
        is_complete &= bpe->byte_ids[byte] >= 0;
    }
    return is_complete;
}

static berth_status read_unknown(berth_bpe *bpe, const berth_json *model) {
    bool has_fallback;
    BERTH_TRY(berth_json_bool_or(model, "byte_fallback", false, &has_fallback));
    BERTH_TRY(berth_json_bool_or(model, "fuse_unk", false, &bpe->fuses_unknown));
    memset(bpe->byte_ids, -1, sizeof(bpe->byte_ids));
    const bool is_complete = has_fallback && find_fallbacks(bpe);
    bpe->unknown_id = -1;
    if (!berth_json_has(model, "unk_token")) {
        return BERTH_OK;
    }
    berth_str name;
    BERTH_TRY(berth_json_get_str(model, "unk_token", &name));
    bpe->unknown_id = berth_vocabulary_find_model(bpe->vocabulary, name);
    if (bpe->unknown_id < 0 && !is_complete) {
        return berth_json_fail(BERTH_CORRUPT, berth_json_find(model, "unk_token"),
                               "'" BERTH_STR_FMT "' is no token of the vocabulary",
                               BERTH_STR_ARG(name));
    }
    return BERTH_OK;
}

static berth_status read_affix(const berth_json *model, const char *key, berth_arena *arena,
                               berth_str *out_affix) {
    berth_str affix;
    BERTH_TRY(berth_json_str_or(model, key, BERTH_STR(""), &affix));
    *out_affix = (berth_str){.data = berth_arena_copy(arena, affix), .size = affix.size};
    return out_affix->data ? BERTH_OK : berth_arena_exhausted(arena, "a model");
}

static berth_status read_options(berth_bpe *bpe, berth_arena *arena, const berth_json *model) {
    double dropout;
    BERTH_TRY(berth_json_f64_or(model, "dropout", 0, &dropout));
    if (dropout != 0) {
        return berth_json_fail(BERTH_UNSUPPORTED, model, "dropout is not supported");
    }
    BERTH_TRY(berth_json_bool_or(model, "ignore_merges", false, &bpe->takes_whole_words));
    BERTH_TRY(read_affix(model, "continuing_subword_prefix", arena, &bpe->prefix));
    return read_affix(model, "end_of_word_suffix", arena, &bpe->suffix);
}

berth_status berth_bpe_read(berth_bpe *bpe, berth_arena *arena, const berth_json *model,
                            const berth_json *merges) {
    BERTH_TRY(read_options(bpe, arena, model));
    // Only where every byte has a token is there no unknown one, and so nothing to be read of it.
    bpe->is_byte_level =
        bpe->is_byte_level && bpe->prefix.size + bpe->suffix.size == 0 && find_bytes(bpe);
    BERTH_TRY(bpe->is_byte_level ? BERTH_OK : read_unknown(bpe, model));
    return read_merges(bpe, arena, merges);
}

// ---- encoding a word ----

static bool comes_before(berth_candidate a, berth_candidate b) {
    return a.rank != b.rank ? a.rank < b.rank : a.left < b.left;
}

static void push_candidate(berth_bpe_scratch *scratch, berth_candidate candidate) {
    berth_candidate *heap = scratch->queue.data;
    size_t at = scratch->queue.count++;
    while (at > 0 && comes_before(candidate, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = candidate;
}

static berth_candidate pop_candidate(berth_bpe_scratch *scratch) {
    berth_candidate *heap = scratch->queue.data;
    const berth_candidate first = heap[0];
    const size_t count = --scratch->queue.count;
    const berth_candidate last = heap[count];
    size_t at = 0;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && comes_before(heap[child + 1], heap[child])) {
            ++child;
        }
        if (!comes_before(heap[child], last)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

// Puts the pair that begins at a symbol into the queue if the file merges it.
static void consider(const berth_bpe *bpe, berth_bpe_scratch *scratch, int32_t left) {
    const berth_symbol *symbols = scratch->symbols.data;
    if (left < 0 || symbols[left].next < 0) {
        return;
    }
    const berth_merge *merge = find_merge(bpe, symbols[left].id, symbols[symbols[left].next].id);
    if (merge) {
        push_candidate(scratch,
                       (berth_candidate){.rank = merge->rank, .left = left, .merge = merge});
    }
}

static void add_symbol(berth_bpe_scratch *scratch, int32_t id) {
    const int32_t at = (int32_t)scratch->symbols.count++;
    scratch->symbols.data[at] = (berth_symbol){.id = id, .previous = at - 1, .next = at + 1};
}

// Room for so many bytes more, each a symbol, and for an unknown one that waits.
static berth_status reserve_symbols(berth_bpe_scratch *scratch, size_t bytes) {
    return berth_array_reserve(&scratch->symbols, scratch->symbols.count + bytes + 1);
}

// The symbols of a character without a token. False: some of its bytes has none either.
static bool add_fallbacks(const berth_bpe *bpe, berth_str character, berth_bpe_scratch *scratch) {
    for (size_t i = 0; i < character.size; ++i) {
        if (bpe->byte_ids[(uint8_t)character.data[i]] < 0) {
            return false;
        }
    }
    for (size_t i = 0; i < character.size; ++i) {
        add_symbol(scratch, bpe->byte_ids[(uint8_t)character.data[i]]);
    }
    return true;
}

// A character as the vocabulary spells it where it stands, borrowed until the next call.
static berth_status spell_character(const berth_bpe *bpe, berth_str word, berth_str *character,
                                    berth_bpe_scratch *scratch) {
    const bool has_prefix = bpe->prefix.size > 0 && character->data != word.data;
    const bool has_suffix =
        bpe->suffix.size > 0 && character->data + character->size == word.data + word.size;
    if (!has_prefix && !has_suffix) {
        return BERTH_OK;
    }
    berth_text *spelling = &scratch->affixed;
    spelling->limit = AFFIXED_BYTES;
    berth_text_clear(spelling);
    berth_text_add(spelling, has_prefix ? bpe->prefix : (berth_str){0});
    berth_text_add(spelling, *character);
    berth_text_add(spelling, has_suffix ? bpe->suffix : (berth_str){0});
    *character = berth_text_str(spelling);
    return berth_text_finish(spelling, NULL);
}

// Why an unknown character waits: it may be fused with the next. That bytes do not end its waiting
// but overtake it is how the reference has it, and so what a model was trained on.
static berth_status add_characters(const berth_bpe *bpe, berth_str word,
                                   berth_bpe_scratch *scratch) {
    bool is_waiting = false;
    size_t step;
    for (size_t at = 0; at < word.size; at += step) {
        step = berth_utf8_next(berth_str_slice(word, at, 4), NULL);
        berth_str character = berth_str_slice(word, at, step);
        BERTH_TRY(spell_character(bpe, word, &character, scratch));
        BERTH_TRY(reserve_symbols(scratch, character.size));
        const int32_t id = berth_vocabulary_find_model(bpe->vocabulary, character);
        if (id < 0 && (add_fallbacks(bpe, character, scratch) || bpe->unknown_id < 0)) {
            continue;
        }
        if (is_waiting && (id >= 0 || !bpe->fuses_unknown)) {
            add_symbol(scratch, bpe->unknown_id);
        }
        is_waiting = id < 0;
        if (id >= 0) {
            add_symbol(scratch, id);
        }
    }
    if (is_waiting) {
        add_symbol(scratch, bpe->unknown_id);
    }
    return BERTH_OK;
}

// Every symbol but the last may begin a pair, and
// every join takes one pair off and brings at most two.
static berth_status start_word(const berth_bpe *bpe, berth_str word, berth_bpe_scratch *scratch) {
    scratch->symbols.count = 0;
    scratch->queue.count = 0;
    BERTH_TRY(reserve_symbols(scratch, word.size));
    if (bpe->is_byte_level) {
        for (size_t i = 0; i < word.size; ++i) {
            add_symbol(scratch, bpe->byte_ids[(uint8_t)word.data[i]]);
        }
    } else {
        BERTH_TRY(add_characters(bpe, word, scratch));
    }
    const size_t count = scratch->symbols.count;
    if (count == 0) {
        return BERTH_OK;
    }
    scratch->symbols.data[count - 1].next = -1;
    BERTH_TRY(berth_array_reserve(&scratch->queue, 2 * count));
    for (size_t i = 0; i + 1 < count; ++i) {
        consider(bpe, scratch, (int32_t)i);
    }
    return BERTH_OK;
}

static void join(const berth_bpe *bpe, berth_bpe_scratch *scratch, berth_candidate candidate) {
    berth_symbol *symbols = scratch->symbols.data;
    berth_symbol *left = &symbols[candidate.left];
    const int32_t right = left->next;
    const bool is_stale = left->id != candidate.merge->left || right < 0 ||
                          symbols[right].id != candidate.merge->right;
    if (is_stale) {
        return;
    }
    left->id = candidate.merge->joined;
    left->next = symbols[right].next;
    symbols[right].id = -1;
    if (left->next >= 0) {
        symbols[left->next].previous = candidate.left;
    }
    consider(bpe, scratch, left->previous);
    consider(bpe, scratch, candidate.left);
}

static berth_status find_whole_word(const berth_bpe *bpe, berth_str word,
                                    berth_bpe_scratch *scratch, int32_t *out_id) {
    if (bpe->is_byte_level) {
        BERTH_TRY(berth_array_reserve(&scratch->spelling, 2 * word.size));
        const size_t size = berth_alphabet_spell(word, scratch->spelling.data);
        word = (berth_str){.data = scratch->spelling.data, .size = size};
    }
    *out_id = berth_vocabulary_find_model(bpe->vocabulary, word);
    return BERTH_OK;
}

berth_status berth_bpe_encode(const berth_bpe *bpe, berth_str word, berth_bpe_scratch *scratch,
                              berth_token_ids *ids) {
    int32_t whole = -1;
    if (bpe->is_byte_level && word.size == 1) {
        whole = bpe->byte_ids[(uint8_t)word.data[0]];
    } else if (bpe->takes_whole_words && word.size <= bpe->vocabulary->longest) {
        BERTH_TRY(find_whole_word(bpe, word, scratch, &whole));
    }
    if (whole >= 0) {
        return berth_array_push(ids, whole);
    }
    BERTH_TRY(start_word(bpe, word, scratch));
    while (scratch->queue.count > 0) {
        join(bpe, scratch, pop_candidate(scratch));
    }
    for (size_t i = 0; i < scratch->symbols.count; ++i) {
        if (scratch->symbols.data[i].id >= 0) {
            BERTH_TRY(berth_array_push(ids, scratch->symbols.data[i].id));
        }
    }
    return BERTH_OK;
}

void berth_bpe_scratch_deinit(berth_bpe_scratch *scratch) {
    berth_array_free(&scratch->symbols);
    berth_array_free(&scratch->queue);
    berth_array_free(&scratch->spelling);
    berth_text_deinit(&scratch->affixed);
}
