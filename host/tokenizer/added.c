// SPDX-License-Identifier: Apache-2.0
// Searching for added tokens. The contents are sorted, so that those that begin with the bytes read
// so far are one range, and every further byte narrows it: no automaton has to be built.
#include "tokenizer/added.h"

#include <stdlib.h>

#include <utf8proc.h>

#include "base/utf8.h"

// ---- reading the file ----

static berth_status read_flags(const berth_json *entry, berth_added_token *token) {
    BERTH_TRY(berth_json_bool_or(entry, "special", false, &token->is_special));
    BERTH_TRY(berth_json_bool_or(entry, "normalized", !token->is_special, &token->is_normalized));
    BERTH_TRY(berth_json_bool_or(entry, "single_word", false, &token->is_whole_word));
    BERTH_TRY(berth_json_bool_or(entry, "lstrip", false, &token->takes_left));
    return berth_json_bool_or(entry, "rstrip", false, &token->takes_right);
}

static berth_status put_token(berth_added *added, berth_vocabulary *vocabulary,
                              const berth_added_token *token) {
    berth_token *entry = &vocabulary->tokens.data[token->id];
    entry->is_special = token->is_special;
    if (entry->added > 0) {
        added->tokens.data[entry->added - 1] = *token;
        return BERTH_OK;
    }
    BERTH_TRY(berth_array_push(&added->tokens, *token));
    entry->added = (uint32_t)added->tokens.count;
    return BERTH_OK;
}

berth_status berth_added_read(berth_added *added, berth_vocabulary *vocabulary, berth_arena *arena,
                              int64_t id, const berth_json *entry) {
    berth_added_token token = {0};
    berth_str content;
    BERTH_TRY(berth_json_get_str(entry, "content", &content));
    if (content.size == 0) {
        return berth_json_fail(BERTH_CORRUPT, entry, "an added token without content");
    }
    BERTH_TRY(read_flags(entry, &token));
    BERTH_TRY(berth_vocabulary_add(vocabulary, arena, content, id, entry));
    token.id = (int32_t)id;
    token.content = vocabulary->tokens.data[id].content;
    return put_token(added, vocabulary, &token);
}

berth_status berth_added_name(berth_added *added, berth_vocabulary *vocabulary, int32_t id) {
    const berth_token *entry = &vocabulary->tokens.data[id];
    berth_added_token token = {.id = id, .content = entry->content};
    if (entry->added > 0) {
        token = added->tokens.data[entry->added - 1];
    }
    token.is_special = true;
    return put_token(added, vocabulary, &token);
}

static int compare_tokens(const void *a, const void *b) {
    return berth_str_compare(((const berth_added_token *)a)->content,
                             ((const berth_added_token *)b)->content);
}

berth_status berth_added_finish(berth_added *added, berth_arena *arena) {
    for (size_t list = 0; list < BERTH_ADDED_LISTS; ++list) {
        added->lists[list] = BERTH_ARENA_ARRAY(arena, berth_added_token, added->tokens.count);
        if (!added->lists[list]) {
            return berth_arena_exhausted(arena, "added tokens");
        }
    }
    for (size_t i = 0; i < added->tokens.count; ++i) {
        const berth_added_token *token = &added->tokens.data[i];
        const size_t list = token->is_normalized ? 1 : 0;
        added->lists[list][added->counts[list]++] = *token;
        added->starts[list][(uint8_t)token->content.data[0]] = true;
    }
    for (size_t list = 0; list < BERTH_ADDED_LISTS; ++list) {
        qsort(added->lists[list], added->counts[list], sizeof(berth_added_token), compare_tokens);
    }
    berth_array_free(&added->tokens);
    return BERTH_OK;
}

void berth_added_deinit(berth_added *added) {
    berth_array_free(&added->tokens);
}

// ---- searching ----

// The first token of [low, high) whose byte at `depth` is at least `byte`; all of them agree in the
// bytes before `depth`.
static size_t first_from(const berth_added_token *tokens, size_t low, size_t high, size_t depth,
                         unsigned byte) {
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const berth_str content = tokens[middle].content;
        if (content.size <= depth || (uint8_t)content.data[depth] < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static const berth_added_token *longest_at(const berth_added_search *search, size_t at) {
    const berth_added_token *tokens = search->added->lists[search->list];
    const berth_added_token *longest = NULL;
    size_t low = 0;
    size_t high = search->added->counts[search->list];
    for (size_t depth = 0; low < high && at + depth < search->text.size; ++depth) {
        const unsigned byte = (uint8_t)search->text.data[at + depth];
        low = first_from(tokens, low, high, depth, byte);
        high = first_from(tokens, low, high, depth, byte + 1);
        if (low < high && tokens[low].content.size == depth + 1) {
            longest = &tokens[low];
        }
    }
    return longest;
}

// The character before or behind a place; BERTH_UTF8_BAD at the ends of the text.
static uint32_t char_before(berth_str text, size_t at) {
    size_t start = at;
    while (start > 0 && at - start < 4) {
        --start;
        if (((uint8_t)text.data[start] & 0xC0) != 0x80) {
            break;
        }
    }
    uint32_t code = BERTH_UTF8_BAD;
    (void)berth_utf8_next(berth_str_slice(text, start, at - start), &code);
    return at > 0 ? code : BERTH_UTF8_BAD;
}

static uint32_t char_at(berth_str text, size_t at, size_t *out_size) {
    uint32_t code;
    *out_size = berth_utf8_next(berth_str_slice(text, at, 4), &code);
    return *out_size > 0 ? code : BERTH_UTF8_BAD;
}

static bool is_space(uint32_t code) {
    if (code == BERTH_UTF8_BAD) {
        return false;
    }
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return (code >= '\t' && code <= '\r') || code == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

// A character of a word after Unicode's UTS 18: alphabetic, mark, decimal digit, connector or
// joiner. The ranges are the alphabetic characters that are neither letters nor marks.
static bool is_word(uint32_t code) {
    switch (code == BERTH_UTF8_BAD ? UTF8PROC_CATEGORY_CN
                                   : utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
               (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
               (code >= 0x1F170 && code <= 0x1F189);
    }
}

static bool is_allowed(const berth_added_search *search, const berth_added_token *token,
                       size_t start) {
    if (token->is_special && search->skips_special) {
        return false;
    }
    size_t unused;
    return !token->is_whole_word ||
           (!is_word(char_before(search->text, start)) &&
            !is_word(char_at(search->text, start + token->content.size, &unused)));
}

static size_t spaces_before(berth_str text, size_t at, size_t least) {
    while (at > least && is_space(char_before(text, at))) {
        do {
            --at;
        } while (((uint8_t)text.data[at] & 0xC0) == 0x80);
    }
    return at > least ? at : least;
}

static size_t spaces_behind(berth_str text, size_t at) {
    size_t size;
    while (is_space(char_at(text, at, &size))) {
        at += size;
    }
    return at;
}

const berth_added_token *berth_added_next(berth_added_search *search, size_t *out_start) {
    const bool *starts = search->added->starts[search->list];
    while (search->at < search->text.size) {
        const size_t start = search->at;
        const berth_added_token *token = NULL;
        if (starts[(uint8_t)search->text.data[start]]) {
            token = longest_at(search, start);
        }
        search->at += token ? token->content.size : 1;
        if (!token || !is_allowed(search, token, start)) {
            continue;
        }
        *out_start = token->takes_left ? spaces_before(search->text, start, search->end) : start;
        search->end = token->takes_right ? spaces_behind(search->text, search->at) : search->at;
        return token;
    }
    return NULL;
}
