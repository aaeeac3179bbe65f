// SPDX-License-Identifier: Apache-2.0
// How the ranks of a tensor-parallel world divide a model: the arithmetic of vLLM's linear and
// vocabulary layers, for layers that build one rank's part and for whoever replaces them. Needs no
// communication: every rank computes its own part from the sizes, the world and its number.
#ifndef BERTH_PARALLEL_H
#define BERTH_PARALLEL_H

#include <stdint.h>

// `size` ranks, of which this is number `rank`, from 0.
typedef struct berth_world {
    int64_t size;
    int64_t rank;
} berth_world;

// Rows, columns or heads [offset, offset + extent) of a whole.
typedef struct berth_part {
    int64_t offset;
    int64_t extent;
} berth_part;

// The rank's equal part; extent 0 when the world does not divide the whole.
static inline berth_part berth_part_of(int64_t whole, berth_world world) {
    const int64_t extent = whole % world.size == 0 ? whole / world.size : 0;
    return (berth_part){.offset = world.rank * extent, .extent = extent};
}

// ---- attention heads ----------------------------------------------------------------------------

// The heads of a rank. Where there are more ranks than key heads, `replicas` neighbours have the
// same key head.
typedef struct berth_head_part {
    berth_part queries;
    berth_part keys;
    int64_t replicas; // 1: every key head belongs to one rank
} berth_head_part;

// An extent is 0 where the world neither divides the heads nor is a multiple of them.
static inline berth_head_part berth_heads_of(int64_t heads, int64_t kv_heads, berth_world world) {
    berth_head_part out = {.queries = berth_part_of(heads, world), .replicas = 1};
    if (world.size < kv_heads || world.size == 1) {
        out.keys = berth_part_of(kv_heads, world);
    } else if (kv_heads > 0 && world.size % kv_heads == 0) {
        out.replicas = world.size / kv_heads;
        out.keys = (berth_part){.offset = world.rank / out.replicas, .extent = 1};
    }
    return out;
}

// ---- vocabularies -------------------------------------------------------------------------------

// The tokens of a model, and those added behind them for adapters, each filled up to a multiple of
// `padding`. A rank's table holds its part of the tokens, their padding, its part of the added
// ones, their padding. Ids of added tokens follow those of the model without a gap; padding has
// none.
typedef struct berth_vocabulary {
    int64_t tokens; // of the model
    int64_t added;
    int64_t padding;
} berth_vocabulary;

typedef struct berth_vocab_part {
    int64_t tokens_padded; // of all ranks, without the added ones
    int64_t total_padded;  // of all ranks, with them
    int64_t rows;          // of this rank's table; 0: the world does not divide the whole
    berth_part org_padded; // ids of this rank, padding included
    berth_part added_padded;
    berth_part org; // ids of this rank that there are
    berth_part added;
    int64_t org_padding; // rows between them
} berth_vocab_part;

static inline berth_part berth_part_clip(berth_part part, int64_t end) {
    const int64_t offset = part.offset < end ? part.offset : end;
    const int64_t last = part.offset + part.extent < end ? part.offset + part.extent : end;
    return (berth_part){.offset = offset, .extent = last - offset};
}

static inline berth_vocab_part berth_vocabulary_of(berth_vocabulary whole, berth_world world) {
    const int64_t padding = whole.padding > 0 ? whole.padding : 1;
    berth_vocab_part out = {
        .tokens_padded = (whole.tokens + padding - 1) / padding * padding,
    };
    out.total_padded = (out.tokens_padded + whole.added + padding - 1) / padding * padding;
    out.org_padded = berth_part_of(out.tokens_padded, world);
    out.added_padded = berth_part_of(out.total_padded - out.tokens_padded, world);
    if (out.tokens_padded % world.size == 0 && out.total_padded % world.size == 0) {
        out.rows = out.total_padded / world.size;
    }
    out.added_padded.offset += whole.tokens;
    out.org = berth_part_clip(out.org_padded, whole.tokens);
    out.added = berth_part_clip(out.added_padded, whole.tokens + whole.added);
    out.org_padding = out.org_padded.extent - out.org.extent;
    return out;
}

#endif
