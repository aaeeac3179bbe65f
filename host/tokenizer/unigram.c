// SPDX-License-Identifier: Apache-2.0
// The tokens as a tree by their bytes, and Viterbi's way through a word: at every character the
// best way to it goes on with every token that begins there.
#include "tokenizer/unigram.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define ROOT            1u
#define UNKNOWN_PENALTY 10.0 // below the worst token
#define NODES_MOST      ((size_t)1 << 26)

// ---- the tree ----

// Where an edge is, or the free place where it belongs.
static berth_unigram_edge *find_place(const berth_unigram *u, uint32_t node, uint8_t byte) {
    const uint64_t key = (uint64_t)node << 8 | byte;
    const uint64_t mask = ((uint64_t)1 << u->edge_bits) - 1;
    uint64_t place = key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - u->edge_bits);
    while (u->edges[place].node != 0 &&
           (u->edges[place].node != node || u->edges[place].byte != byte)) {
        place = (place + 1) & mask;
    }
    return &u->edges[place];
}

static void add_token(berth_unigram *u, berth_str token, int32_t id, uint32_t *nodes) {
    uint32_t node = ROOT;
    for (size_t i = 0; i < token.size; ++i) {
        const uint8_t byte = (uint8_t)token.data[i];
        berth_unigram_edge *edge = find_place(u, node, byte);
        if (edge->node == 0) {
            *edge = (berth_unigram_edge){.node = node, .byte = byte, .child = ++*nodes};
            u->ids[*nodes] = -1;
        }
        node = edge->child;
    }
    u->ids[node] = id;
}

static berth_status build_tree(berth_unigram *u, berth_arena *arena, const berth_json *model) {
    const size_t count = u->vocabulary->tokens.count;
    uint32_t nodes = ROOT;
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
        bytes += u->vocabulary->tokens.data[i].content.size;
    }
    if (bytes > NODES_MOST) {
        return berth_json_fail(BERTH_UNSUPPORTED, model, "tokens of %zu bytes in all", bytes);
    }
    u->edge_bits = 4;
    while (((size_t)1 << u->edge_bits) < 2 * bytes) {
        ++u->edge_bits;
    }
    u->edges = BERTH_ARENA_ARRAY(arena, berth_unigram_edge, (size_t)1 << u->edge_bits);
    u->ids = BERTH_ARENA_ARRAY(arena, int32_t, bytes + 2);
    if (!u->edges || !u->ids) {
        return berth_arena_exhausted(arena, "tokens");
    }
    u->ids[ROOT] = -1;
    for (size_t i = 0; i < count; ++i) {
        if (u->vocabulary->tokens.data[i].is_of_model) {
            add_token(u, u->vocabulary->tokens.data[i].content, (int32_t)i, &nodes);
        }
    }
    u->ids[ROOT] = -1; // An empty token leads nowhere.
    return BERTH_OK;
}

// ---- reading the file ----

berth_status berth_unigram_vocabulary(berth_vocabulary *vocabulary, berth_arena *arena,
                                      const berth_json *vocab) {
    for (size_t i = 0; i < berth_json_size(vocab); ++i) {
        const berth_json *entry = berth_json_at(vocab, i);
        berth_str content;
        BERTH_TRY(berth_json_get_str(entry, "0", &content));
        BERTH_TRY(berth_vocabulary_add(vocabulary, arena, content, (int64_t)i, entry));
        vocabulary->tokens.data[i].is_of_model = true;
    }
    return BERTH_OK;
}

static berth_status read_scores(berth_unigram *u, berth_arena *arena, const berth_json *model) {
    const berth_json *vocab;
    BERTH_TRY(berth_json_get_array(model, "vocab", &vocab));
    const size_t count = berth_json_size(vocab);
    double *scores = BERTH_ARENA_ARRAY(arena, double, count);
    double least = INFINITY;
    if (!scores) {
        return berth_arena_exhausted(arena, "scores");
    }
    for (size_t i = 0; i < count; ++i) {
        BERTH_TRY(berth_json_get_f64(berth_json_at(vocab, i), "1", &scores[i]));
        least = scores[i] < least ? scores[i] : least;
    }
    u->scores = scores;
    u->unknown_score = least - UNKNOWN_PENALTY;
    return BERTH_OK;
}

static berth_status read_unknown(berth_unigram *u, const berth_json *model) {
    bool has_fallback;
    int64_t id;
    BERTH_TRY(berth_json_bool_or(model, "byte_fallback", false, &has_fallback));
    BERTH_TRY(berth_json_i64_or(model, "unk_id", -1, &id));
    if (id < -1 || id >= (int64_t)u->vocabulary->tokens.count) {
        return berth_json_fail(BERTH_CORRUPT, berth_json_find(model, "unk_id"),
                               "%lld is no token of the vocabulary", (long long)id);
    }
    u->unknown_id = (int32_t)id;
    for (unsigned byte = 0; byte < 256; ++byte) {
        char name[8];
        (void)snprintf(name, sizeof(name), "<0x%02X>", byte);
        u->byte_ids[byte] =
            has_fallback ? berth_vocabulary_find_model(u->vocabulary, berth_str_from(name)) : -1;
    }
    return BERTH_OK;
}

berth_status berth_unigram_read(berth_unigram *unigram, berth_arena *arena,
                                const berth_json *model) {
    BERTH_TRY(read_scores(unigram, arena, model));
    BERTH_TRY(read_unknown(unigram, model));
    return build_tree(unigram, arena, model);
}

// ---- encoding a word ----

static void offer(berth_unigram_best *target, double score, size_t from, int32_t id) {
    if (target->from == SIZE_MAX || score > target->score) {
        *target = (berth_unigram_best){.score = score, .from = from, .id = id};
    }
}

// Goes on from a place with every token that begins there; true: one of them is the character.
static bool extend(const berth_unigram *u, berth_str word, size_t from, berth_unigram_best *best) {
    const size_t character = berth_utf8_next(berth_str_slice(word, from, 4), NULL);
    bool has_character = false;
    uint32_t node = ROOT;
    for (size_t at = from; at < word.size; ++at) {
        const berth_unigram_edge *edge = find_place(u, node, (uint8_t)word.data[at]);
        if (edge->node == 0) {
            break;
        }
        node = edge->child;
        const int32_t id = u->ids[node];
        if (id >= 0) {
            offer(&best[at + 1], best[from].score + u->scores[id], from, id);
            has_character |= at + 1 - from == character;
        }
    }
    return has_character;
}

static berth_status find_best(const berth_unigram *u, berth_str word,
                              berth_unigram_scratch *scratch) {
    BERTH_TRY(berth_array_reserve(&scratch->best, word.size + 1));
    berth_unigram_best *best = scratch->best.data;
    for (size_t i = 0; i <= word.size; ++i) {
        best[i] = (berth_unigram_best){.from = SIZE_MAX, .id = -1};
    }
    size_t step;
    for (size_t at = 0; at < word.size; at += step) {
        step = berth_utf8_next(berth_str_slice(word, at, 4), NULL);
        if (extend(u, word, at, best)) {
            continue;
        }
        if (u->unknown_id < 0) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "the vocabulary has no token for '" BERTH_STR_FMT "' and no unk_id",
                              BERTH_STR_ARG(berth_str_slice(word, at, step)));
        }
        offer(&best[at + step], best[at].score + u->unknown_score, at, u->unknown_id);
    }
    return BERTH_OK;
}

// The ends of the pieces, from the last; unknown ones in a row are one.
static berth_status trace_back(const berth_unigram *u, size_t size,
                               berth_unigram_scratch *scratch) {
    const berth_unigram_best *best = scratch->best.data;
    bool was_unknown = false;
    scratch->ends.count = 0;
    for (size_t end = size; end > 0; end = best[end].from) {
        const bool is_unknown = best[end].id == u->unknown_id;
        if (!is_unknown || !was_unknown) {
            BERTH_TRY(berth_array_push(&scratch->ends, end));
        }
        was_unknown = is_unknown;
    }
    return BERTH_OK;
}

static berth_status push_piece(const berth_unigram *u, berth_str piece, berth_token_ids *ids) {
    const int32_t id = berth_vocabulary_find_model(u->vocabulary, piece);
    bool has_bytes = true;
    if (id >= 0) {
        return berth_array_push(ids, id);
    }
    for (size_t i = 0; i < piece.size; ++i) {
        has_bytes &= u->byte_ids[(uint8_t)piece.data[i]] >= 0;
    }
    if (!has_bytes) {
        return berth_array_push(ids, u->unknown_id);
    }
    for (size_t i = 0; i < piece.size; ++i) {
        BERTH_TRY(berth_array_push(ids, u->byte_ids[(uint8_t)piece.data[i]]));
    }
    return BERTH_OK;
}

berth_status berth_unigram_encode(const berth_unigram *unigram, berth_str word,
                                  berth_unigram_scratch *scratch, berth_token_ids *ids) {
    size_t start = 0;
    BERTH_TRY(find_best(unigram, word, scratch));
    BERTH_TRY(trace_back(unigram, word.size, scratch));
    for (size_t i = scratch->ends.count; i-- > 0;) {
        const size_t end = scratch->ends.data[i];
        BERTH_TRY(push_piece(unigram, berth_str_slice(word, start, end - start), ids));
        start = end;
    }
    return BERTH_OK;
}

void berth_unigram_scratch_deinit(berth_unigram_scratch *scratch) {
    berth_array_free(&scratch->best);
    berth_array_free(&scratch->ends);
}
