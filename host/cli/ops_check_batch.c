// SPDX-License-Identifier: Apache-2.0
// Input: a case. Output: the batch of the step that runs it: the case's own arrays where it has
// them, one sequence of all tokens where not.
#include <string.h>

#include "cli/ops_check_run.h"

// ---- the batch ----------------------------------------------------------------------------------

static void describe(berth_check_run *run, size_t which, void *data, berth_dtype dtype,
                     const int64_t *shape) {
    int64_t *strides = run->strides[which];
    memcpy(run->shapes[which], shape, sizeof run->shapes[which]);
    strides[0] = shape[1] > 0 ? shape[1] : 1;
    strides[1] = 1;
    run->arrays[which] = (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = shape[1] > 0 ? 2 : 1,
        .dtype = dtype,
        .shape = run->shapes[which],
        .strides = strides,
    };
}

// The case's array as i32, else the given one.
static berth_status take_array(berth_check_run *run, size_t which, const berth_check_tensor *tensor,
                               int32_t *other, int64_t count) {
    if (!tensor) {
        describe(run, which, other, BERTH_DTYPE_I32, (int64_t[2]){count, 0});
        return BERTH_OK;
    }
    const int64_t elements = berth_check_elements(tensor);
    int32_t *values = BERTH_ARENA_ARRAY(run->at->arena, int32_t, (size_t)elements + 1);
    if (!values) {
        return berth_arena_exhausted(run->at->arena, "the batch");
    }
    for (int64_t i = 0; i < elements; ++i) {
        values[i] = (int32_t)berth_check_at(tensor, i);
    }
    describe(run, which, values, BERTH_DTYPE_I32,
             (int64_t[2]){tensor->shape[0], tensor->ndim > 1 ? tensor->shape[1] : 0});
    return BERTH_OK;
}

int64_t berth_check_rows_of(berth_check_run *run) {
    const berth_check_tensor *starts = berth_check_input(run->at, "query_start_loc");
    const int64_t tokens =
        starts ? (int64_t)berth_check_at(starts, berth_check_elements(starts) - 1) : 1;
    int64_t most = tokens > 1 ? tokens : 1;
    for (size_t i = 0; i < run->at->input_count; ++i) {
        const berth_check_tensor *tensor = &run->at->inputs[i];
        const int64_t width = tensor->ndim > 0 ? tensor->shape[tensor->ndim - 1] : 1;
        const int64_t rows = width > 0 ? berth_check_elements(tensor) / width : 0;
        most = rows > most ? rows : most;
    }
    return most;
}

static int64_t count_tokens(berth_check_run *run, const berth_check_tensor *starts) {
    const berth_check_tensor *ids = berth_check_input(run->at, "token_ids");
    const char *operand = run->at->row->operands[0];
    const berth_check_tensor *first = operand ? berth_check_input(run->at, operand) : NULL;
    if (starts) {
        return (int64_t)berth_check_at(starts, berth_check_elements(starts) - 1);
    }
    return ids ? ids->shape[0] : first && first->ndim > 0 ? first->shape[0] : run->max_tokens;
}

// What the case does not say: ids and rows 0, 1, 2 …, lengths of sequences that begin in this step.
static berth_status make_defaults(berth_check_run *run, const berth_check_tensor *starts,
                                  int64_t tokens, berth_check_defaults *out) {
    berth_arena *arena = run->at->arena;
    const size_t room = (size_t)(tokens > run->max_tokens ? tokens : run->max_tokens) + 2;
    const int64_t sequences = starts && starts->shape[0] > 1 ? starts->shape[0] - 1 : 1;
    out->numbers = BERTH_ARENA_ARRAY(arena, int32_t, room);
    out->lengths = BERTH_ARENA_ARRAY(arena, int32_t, (size_t)sequences);
    out->slots = BERTH_ARENA_ARRAY(arena, int64_t, room);
    if (!out->numbers || !out->lengths || !out->slots) {
        return berth_arena_exhausted(arena, "the batch");
    }
    for (size_t i = 0; i < room; ++i) {
        out->numbers[i] = (int32_t)i;
        out->slots[i] = -1; // nothing is stored
    }
    for (int64_t i = 0; i < sequences; ++i) {
        out->lengths[i] = starts && starts->shape[0] > 1
                              ? (int32_t)(berth_check_at(starts, i + 1) - berth_check_at(starts, i))
                              : (int32_t)tokens;
    }
    out->bounds[0] = 0;
    out->bounds[1] = (int32_t)tokens;
    out->sequences = sequences;
    return BERTH_OK;
}

// Where a layer keeps a cache and the case has none, its sequences begin in this step: each has
// blocks of its own, behind the null block.
static berth_status lay_out(berth_check_run *run, const berth_check_tensor *starts,
                            int64_t tokens) {
    berth_check_defaults *other = &run->defaults;
    const int64_t size = run->caches[0].block_size;
    const int64_t width = tokens / size + 1;
    int32_t *table = BERTH_ARENA_ARRAY(run->at->arena, int32_t, (size_t)(other->sequences * width));
    int32_t next = 1;
    if (!table) {
        return berth_arena_exhausted(run->at->arena, "the batch");
    }
    for (int64_t i = 0; i < other->sequences; ++i) {
        const int64_t first = starts ? (int64_t)berth_check_at(starts, i) : 0;
        int32_t *row = table + i * width;
        for (int64_t k = 0; k < width; ++k) {
            row[k] = k * size < other->lengths[i] ? next++ : 0;
        }
        for (int64_t k = 0; k < other->lengths[i]; ++k) {
            other->slots[first + k] = row[k / size] * size + k % size;
        }
    }
    describe(run, 5, table, BERTH_DTYPE_I32, (int64_t[2]){other->sequences, width});
    return BERTH_OK;
}

static berth_status describe_all(berth_check_run *run, const berth_check_tensor *starts,
                                 int64_t tokens) {
    berth_check_case *at = run->at;
    berth_check_defaults *other = &run->defaults;
    const int64_t rows = run->has_rows ? tokens : 0;
    BERTH_TRY(take_array(run, 0, berth_check_input(at, "token_ids"), other->numbers, tokens));
    BERTH_TRY(take_array(run, 1, berth_check_input(at, "positions"), other->numbers, tokens));
    BERTH_TRY(take_array(run, 2, starts, other->bounds, 2));
    BERTH_TRY(
        take_array(run, 3, berth_check_input(at, "seq_lens"), other->lengths, other->sequences));
    describe(run, 4, other->numbers, BERTH_DTYPE_I32, (int64_t[2]){rows, 0});
    if (run->model && run->cache_count > 0 && !run->table) {
        BERTH_TRY(lay_out(run, starts, tokens));
    } else {
        BERTH_TRY(take_array(run, 5, run->table, other->numbers, 1));
    }
    describe(run, 6, other->slots, BERTH_DTYPE_I64, (int64_t[2]){tokens, 0});
    run->array_pointers[0] = &run->arrays[5];
    run->array_pointers[1] = &run->arrays[6];
    return BERTH_OK;
}

berth_status berth_check_batch(berth_check_run *run) {
    const berth_check_tensor *starts = berth_check_input(run->at, "query_start_loc");
    const int64_t tokens = count_tokens(run, starts);
    BERTH_TRY(make_defaults(run, starts, tokens, &run->defaults));
    BERTH_TRY(describe_all(run, starts, tokens));
    run->view = (berth_batch_view){
        .size = sizeof run->view,
        .token_ids = &run->arrays[0],
        .positions = &run->arrays[1],
        .query_start_loc = &run->arrays[2],
        .seq_lens = &run->arrays[3],
        .logits_rows = &run->arrays[4],
        .block_tables = &run->array_pointers[0],
        .slot_mappings = &run->array_pointers[1],
    };
    run->batch = (berth_batch){
        .size = sizeof run->batch,
        .host = &run->view,
        .token_count = tokens < 1 ? 1 : tokens,
        .sequence_count = run->defaults.sequences,
        .logits_row_count = run->has_rows ? tokens : 0,
        .group_count = 1,
        .max_query_len = tokens,
        .max_seq_len = run->max_seq_len,
    };
    return BERTH_OK;
}
