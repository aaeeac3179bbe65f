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
    int64_t most = 1;
    for (size_t i = 0; i < run->at->input_count; ++i) {
        const berth_check_tensor *tensor = &run->at->inputs[i];
        const int64_t width = tensor->ndim > 0 ? tensor->shape[tensor->ndim - 1] : 1;
        const int64_t rows = width > 0 ? berth_check_elements(tensor) / width : 0;
        most = rows > most ? rows : most;
    }
    return most;
}

static int64_t count_tokens(const berth_check_run *run, const berth_check_tensor *starts) {
    return starts ? (int64_t)berth_check_at(starts, berth_check_elements(starts) - 1)
                  : run->max_tokens;
}

berth_status berth_check_batch(berth_check_run *run) {
    berth_check_case *at = run->at;
    const berth_check_tensor *starts = berth_check_input(at, "query_start_loc");
    const berth_check_tensor *lengths = berth_check_input(at, "seq_lens");
    const int64_t tokens = count_tokens(run, starts);
    const int64_t sequences = starts ? starts->shape[0] - 1 : 1;
    int32_t *zeros = BERTH_ARENA_ARRAY(at->arena, int32_t, (size_t)run->max_tokens + 2);
    int64_t *slots = BERTH_ARENA_ARRAY(at->arena, int64_t, (size_t)run->max_tokens + 1);
    int32_t *bounds = BERTH_ARENA_ARRAY(at->arena, int32_t, 3);
    if (!zeros || !slots || !bounds) {
        return berth_arena_exhausted(at->arena, "the batch");
    }
    memset(zeros, 0, ((size_t)run->max_tokens + 2) * sizeof *zeros);
    memset(slots, 0xff, ((size_t)run->max_tokens + 1) * sizeof *slots); // -1: nothing is stored
    bounds[0] = 0;
    bounds[1] = bounds[2] = (int32_t)tokens;
    describe(run, 0, zeros, BERTH_DTYPE_I32, (int64_t[2]){tokens, 0});
    BERTH_TRY(take_array(run, 1, berth_check_input(at, "positions"), zeros, tokens));
    BERTH_TRY(take_array(run, 2, starts, bounds, 2));
    BERTH_TRY(take_array(run, 3, lengths, bounds + 1, 1));
    describe(run, 4, zeros, BERTH_DTYPE_I32, (int64_t[2]){0, 0});
    BERTH_TRY(take_array(run, 5, run->table, zeros, 1));
    describe(run, 6, slots, BERTH_DTYPE_I64, (int64_t[2]){tokens, 0});
    run->array_pointers[0] = &run->arrays[5];
    run->array_pointers[1] = &run->arrays[6];
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
        .sequence_count = sequences < 1 ? 1 : sequences,
        .group_count = 1,
        .max_query_len = tokens,
        .max_seq_len = run->max_seq_len,
    };
    return BERTH_OK;
}
