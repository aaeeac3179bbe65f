// SPDX-License-Identifier: Apache-2.0
// Input: a parameter declared in a layer's outputs and inputs, of which an element stands for
// several: codes in a word, rows that share a scale. Output: the same in elements, which is what
// tensors have.
#include "model/parameters.h"

#include <inttypes.h>

#include "base/arena.h"
#include "model/pieces.h"

static int64_t factor_of(int64_t factor) {
    return factor > 1 ? factor : 1;
}

static int64_t divide_up(int64_t count, int64_t factor) {
    return (count + factor - 1) / factor;
}

static berth_status not_whole(const berth_parameter *given, const char *shard, int64_t at,
                              int64_t factor) {
    return BERTH_FAIL(CORRUPT,
                      "parameter '%s': %s%s%s begins or ends at %" PRId64
                      ", inside of one of the %" PRId64 " that share an element",
                      given->name, shard == NULL ? "a rank's part" : "shard '",
                      shard == NULL ? "" : shard, shard == NULL ? "" : "'", at, factor);
}

// Where the last shard ends, and with it its tensor, may be inside of the last element.
static berth_status divide_shard(const berth_parameter *given, uint64_t index, int64_t factor,
                                 berth_shard *out) {
    *out = berth_shard_at(given, index);
    const bool is_end =
        out->stored_extent == 0 || out->stored_offset + out->extent == out->stored_extent;
    const bool is_last = is_end && index + 1 == given->shard_count;
    if (out->offset % factor != 0 || out->stored_offset % factor != 0) {
        return not_whole(given, out->id,
                         out->offset % factor != 0 ? out->offset : out->stored_offset, factor);
    }
    if (!is_last && (out->extent % factor != 0 || out->stored_extent % factor != 0)) {
        return not_whole(given, out->id, out->offset + out->extent, factor);
    }
    out->offset /= factor;
    out->extent = divide_up(out->extent, factor);
    out->stored_offset /= factor;
    out->stored_extent = divide_up(out->stored_extent, factor);
    return BERTH_OK;
}

static berth_status divide_shards(const berth_parameter *given, int64_t factor, berth_arena *arena,
                                  berth_parameter *out) {
    berth_shard *shards = BERTH_ARENA_ARRAY(arena, berth_shard, given->shard_count);
    const berth_shard **list = BERTH_ARENA_ARRAY(arena, const berth_shard *, given->shard_count);
    if (shards == NULL || list == NULL) {
        return berth_arena_exhausted(arena, "shards");
    }
    for (uint64_t i = 0; i < given->shard_count; ++i) {
        list[i] = &shards[i];
        if (given->is_per_tensor != 0) {
            shards[i] = (berth_shard){
                .size = sizeof shards[i],
                .id = given->shards[i]->id,
                .offset = (int64_t)i,
                .extent = 1,
            };
        } else {
            BERTH_TRY(divide_shard(given, i, factor, &shards[i]));
        }
    }
    out->shards = list;
    return BERTH_OK;
}

static berth_status divide_part(const berth_parameter *given, int64_t factor, int64_t *offset,
                                int64_t *extent) {
    const bool is_odd = *extent > 0 && *offset % factor != 0;
    if (is_odd) {
        return not_whole(given, NULL, *offset, factor);
    }
    *offset /= factor;
    *extent = divide_up(*extent, factor);
    return BERTH_OK;
}

static berth_status divide_dims(const berth_parameter *given, berth_arena *arena,
                                berth_parameter *out) {
    int64_t *shape = BERTH_ARENA_ARRAY(arena, int64_t, BERTH_MAX_DIMS);
    if (shape == NULL) {
        return berth_arena_exhausted(arena, "shapes");
    }
    for (uint64_t i = 0; i < given->ndim; ++i) {
        const bool is_output = given->output_dim == (int64_t)i;
        const bool is_input = given->input_dim == (int64_t)i;
        shape[i] = divide_up(given->shape[i], is_output  ? factor_of(given->output_factor)
                                              : is_input ? factor_of(given->input_factor)
                                                         : 1);
    }
    out->shape = shape;
    BERTH_TRY(divide_part(given, factor_of(given->output_factor), &out->stored_output_offset,
                          &out->stored_output_extent));
    return divide_part(given, factor_of(given->input_factor), &out->stored_input_offset,
                       &out->stored_input_extent);
}

// One number for each shard, of a stack for each shard of each layer.
static berth_status per_tensor(berth_arena *arena, berth_parameter *out) {
    int64_t *shape = BERTH_ARENA_ARRAY(arena, int64_t, 2);
    if (shape == NULL) {
        return berth_arena_exhausted(arena, "shapes");
    }
    const bool is_stack = out->output_dim == 1;
    shape[0] = is_stack ? out->shape[0] : 1;
    shape[is_stack] = out->shard_count > 0 ? (int64_t)out->shard_count : 1;
    out->shape = shape;
    out->ndim = is_stack ? 2 : 1;
    out->output_dim = is_stack;
    out->input_dim = -1;
    out->stored_output_extent = 0;
    out->stored_input_extent = 0;
    return BERTH_OK;
}

berth_status berth_parameter_divide(const berth_parameter *given, berth_arena *arena,
                                    berth_parameter *out) {
    *out = *given;
    const bool is_per_tensor = given->is_per_tensor != 0;
    const bool is_divided = given->output_factor > 1 || given->input_factor > 1;
    if (!is_per_tensor && !is_divided) {
        return BERTH_OK;
    }
    if (given->shard_count > 0) {
        BERTH_TRY(divide_shards(given, factor_of(given->output_factor), arena, out));
    }
    return is_per_tensor ? per_tensor(arena, out) : divide_dims(given, arena, out);
}
