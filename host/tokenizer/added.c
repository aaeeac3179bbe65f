// SPDX-License-Identifier: Apache-2.0
// Searching for added tokens. The spellings are sorted, so that those that begin with the bytes
// read so far are one range, and every further byte narrows it: no automaton has to be built.
#include "tokenizer/added.h"

#include <stdlib.h>

#include "tokenizer/unicode.h"

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
    return berth_str_compare(((const berth_added_token *)a)->spelling,
                             ((const berth_added_token *)b)->spelling);
}

// What the normalizer makes of the content, as the search will meet it.
static berth_status normalize_content(berth_added_token *token, berth_vocabulary *vocabulary,
                                      berth_arena *arena, const berth_normalizer *normalizer) {
    berth_normalizer_scratch scratch = {0};
    berth_stretch stretch = {.text = token->content, .is_first = true};
    berth_status status = berth_normalizer_run(normalizer, &scratch, &stretch);
    if (status == BERTH_OK && !berth_str_equal(stretch.text, token->content)) {
        token->spelling.data = berth_arena_copy(arena, stretch.text);
        token->spelling.size = stretch.text.size;
        vocabulary->tokens.data[token->id].bytes = token->spelling;
        status = token->spelling.data ? BERTH_OK : berth_arena_exhausted(arena, "added tokens");
    }
    berth_normalizer_scratch_deinit(&scratch);
    return status;
}

static berth_status spell_tokens(berth_added *added, berth_vocabulary *vocabulary,
                                 berth_arena *arena, const berth_normalizer *normalizer) {
    for (size_t i = 0; i < added->tokens.count; ++i) {
        berth_added_token *token = &added->tokens.data[i];
        token->spelling = token->content;
        if (token->is_normalized) {
            BERTH_TRY(normalize_content(token, vocabulary, arena, normalizer));
        }
        if (token->spelling.size == 0) {
            return BERTH_FAIL(UNSUPPORTED,
                              "added token '" BERTH_STR_FMT "', of which the normalizer leaves "
                              "nothing, is not supported",
                              BERTH_STR_ARG(token->content));
        }
    }
    return BERTH_OK;
}

// Sorts one list. Why no two may be alike: which of them a text means would be anyone's guess.
static berth_status sort_list(const berth_added *added, size_t list) {
    berth_added_token *tokens = added->lists[list];
    qsort(tokens, added->counts[list], sizeof(*tokens), compare_tokens);
    for (size_t i = 1; i < added->counts[list]; ++i) {
        if (berth_str_equal(tokens[i - 1].spelling, tokens[i].spelling)) {
            return BERTH_FAIL(UNSUPPORTED,
                              "added tokens '" BERTH_STR_FMT "' and '" BERTH_STR_FMT
                              "', which the normalizer makes one, are not supported",
                              BERTH_STR_ARG(tokens[i - 1].content),
                              BERTH_STR_ARG(tokens[i].content));
        }
    }
    return BERTH_OK;
}

berth_status berth_added_finish(berth_added *added, berth_vocabulary *vocabulary,
                                berth_arena *arena, const berth_normalizer *normalizer) {
    BERTH_TRY(spell_tokens(added, vocabulary, arena, normalizer));
    for (size_t list = 0; list < BERTH_ADDED_LISTS; ++list) {
        added->lists[list] = BERTH_ARENA_ARRAY(arena, berth_added_token, added->tokens.count);
        if (!added->lists[list]) {
            return berth_arena_exhausted(arena, "added tokens");
        }
    }
    for (size_t i = 0; i < added->tokens.count; ++i) {
        const berth_added_token *token = &added->tokens.data[i];
        const size_t list = token->is_normalized ? BERTH_ADDED_NORMALIZED : BERTH_ADDED_WRITTEN;
        added->lists[list][added->counts[list]++] = *token;
        added->starts[list][(uint8_t)token->spelling.data[0]] = true;
    }
    for (size_t list = 0; list < BERTH_ADDED_LISTS; ++list) {
        BERTH_TRY(sort_list(added, list));
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
        const berth_str spelling = tokens[middle].spelling;
        if (spelling.size <= depth || (uint8_t)spelling.data[depth] < byte) {
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
        if (low < high && tokens[low].spelling.size == depth + 1) {
            longest = &tokens[low];
        }
    }
    return longest;
}

static bool is_allowed(const berth_added_search *search, const berth_added_token *token,
                       size_t start) {
    if (token->is_special && search->skips_special) {
        return false;
    }
    size_t unused;
    const size_t end = start + token->spelling.size;
    return !token->is_whole_word ||
           (!berth_unicode_is_word(berth_unicode_char_before(search->text, start, &unused)) &&
            !berth_unicode_is_word(berth_unicode_char_at(search->text, end, &unused)));
}

static size_t spaces_before(berth_str text, size_t at, size_t least) {
    size_t size;
    while (at > least && berth_unicode_is_space(berth_unicode_char_before(text, at, &size))) {
        at -= size;
    }
    return at > least ? at : least;
}

static size_t spaces_behind(berth_str text, size_t at) {
    size_t size;
    while (berth_unicode_is_space(berth_unicode_char_at(text, at, &size))) {
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
        search->at += token ? token->spelling.size : 1;
        if (!token || !is_allowed(search, token, start)) {
            continue;
        }
        // What the token before has swallowed whole is none.
        const size_t end =
            token->takes_right ? spaces_behind(search->text, search->at) : search->at;
        *out_start = token->takes_left ? spaces_before(search->text, start, search->end) : start;
        if (*out_start < end) {
            search->end = end;
            return token;
        }
    }
    return NULL;
}
