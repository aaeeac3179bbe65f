// SPDX-License-Identifier: Apache-2.0
// The vocabulary: from the file's object of spelling: id to two tables, one by id, one by spelling.
#include "tokenizer/vocabulary.h"

#include <string.h>

static berth_status make_room(berth_vocabulary *vocabulary, size_t count) {
    if (count <= vocabulary->tokens.count) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_array_reserve(&vocabulary->tokens, count));
    memset(vocabulary->tokens.data + vocabulary->tokens.count, 0,
           (count - vocabulary->tokens.count) * sizeof(berth_token));
    vocabulary->tokens.count = count;
    return BERTH_OK;
}

berth_status berth_vocabulary_add(berth_vocabulary *vocabulary, berth_arena *arena,
                                  berth_str content, int64_t id, const berth_json *where) {
    if (id < 0 || id >= BERTH_VOCABULARY_LIMIT) {
        return berth_json_fail(BERTH_CORRUPT, where,
                               "id %lld of token '" BERTH_STR_FMT "' is out of range: ids are 0 to "
                               "%d",
                               (long long)id, BERTH_STR_ARG(content), BERTH_VOCABULARY_LIMIT - 1);
    }
    BERTH_TRY(make_room(vocabulary, (size_t)id + 1));
    berth_token *token = &vocabulary->tokens.data[id];
    const int32_t known = berth_vocabulary_find(vocabulary, content);
    if (known >= 0 && known != id) {
        return berth_json_fail(BERTH_CORRUPT, where,
                               "token '" BERTH_STR_FMT "' has id %lld here and %d before",
                               BERTH_STR_ARG(content), (long long)id, known);
    }
    if (known < 0 && token->content.data) {
        return berth_json_fail(BERTH_CORRUPT, where,
                               "id %lld is given to '" BERTH_STR_FMT "' and to '" BERTH_STR_FMT "'",
                               (long long)id, BERTH_STR_ARG(token->content),
                               BERTH_STR_ARG(content));
    }
    if (known >= 0) {
        return BERTH_OK;
    }
    token->content = (berth_str){.data = berth_arena_copy(arena, content), .size = content.size};
    if (!token->content.data) {
        return berth_arena_exhausted(arena, "token spellings");
    }
    if (content.size > vocabulary->longest) {
        vocabulary->longest = content.size;
    }
    return berth_map_add(&vocabulary->ids, token->content, (uint32_t)id);
}

berth_status berth_vocabulary_read(berth_vocabulary *vocabulary, berth_arena *arena,
                                   const berth_json *vocab) {
    const size_t count = berth_json_size(vocab);
    BERTH_TRY(berth_map_reserve(&vocabulary->ids, count));
    BERTH_TRY(berth_array_reserve(&vocabulary->tokens, count));
    for (size_t i = 0; i < count; ++i) {
        const berth_json *value = berth_json_at(vocab, i);
        int64_t id;
        BERTH_TRY(berth_json_get_i64(value, "", &id));
        BERTH_TRY(berth_vocabulary_add(vocabulary, arena, berth_json_key_at(vocab, i), id, value));
        vocabulary->tokens.data[id].is_of_model = true;
    }
    return BERTH_OK;
}

int32_t berth_vocabulary_find(const berth_vocabulary *vocabulary, berth_str content) {
    const uint32_t *id = berth_map_find(&vocabulary->ids, content);
    return id ? (int32_t)*id : -1;
}

int32_t berth_vocabulary_find_model(const berth_vocabulary *vocabulary, berth_str content) {
    const int32_t id = berth_vocabulary_find(vocabulary, content);
    return id >= 0 && vocabulary->tokens.data[id].is_of_model ? id : -1;
}

const berth_token *berth_vocabulary_get(const berth_vocabulary *vocabulary, int32_t id) {
    if (id < 0 || (size_t)id >= vocabulary->tokens.count) {
        return NULL;
    }
    const berth_token *token = &vocabulary->tokens.data[id];
    return token->content.data ? token : NULL;
}

void berth_vocabulary_deinit(berth_vocabulary *vocabulary) {
    berth_array_free(&vocabulary->tokens);
    berth_map_deinit(&vocabulary->ids);
}
