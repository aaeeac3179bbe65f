// SPDX-License-Identifier: Apache-2.0
// The flattened batch of a step: scheduled tokens of all sequences, one after another, in arrays
// that are reserved once for the largest step.
#include "engine/engine_private.h"

enum {
    TOKEN_IDS,
    POSITIONS,
    QUERY_START_LOC,
    SEQ_LENS,
    LOGITS_ROWS,
    BLOCK_TABLE,
    SLOT_MAPPING,
    STATE_TABLE,
    STATE_MAPPING,
};

static void describe(berth_batch_arrays *arrays, int which, void *data, berth_dtype dtype) {
    const bool is_table = which == BLOCK_TABLE || which == STATE_TABLE;
    const int64_t width = which == BLOCK_TABLE ? arrays->table_width : 1;
    arrays->strides[which][0] = width;
    arrays->strides[which][1] = 1;
    arrays->shapes[which][1] = width;
    arrays->tensors[which] = (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = is_table ? 2 : 1,
        .dtype = dtype,
        .shape = arrays->shapes[which],
        .strides = arrays->strides[which],
    };
}

static berth_status reserve(berth_engine *engine) {
    berth_batch_arrays *arrays = &engine->arrays;
    const size_t tokens = (size_t)engine->max_tokens;
    const size_t sequences = (size_t)engine->max_sequences;
    const size_t rows = (size_t)engine->max_rows;
    arrays->token_ids = BERTH_ARENA_ARRAY(engine->arena, int32_t, tokens);
    arrays->positions = BERTH_ARENA_ARRAY(engine->arena, int32_t, tokens);
    arrays->slot_mapping = BERTH_ARENA_ARRAY(engine->arena, int64_t, tokens);
    arrays->query_start_loc = BERTH_ARENA_ARRAY(engine->arena, int32_t, sequences + 1);
    arrays->seq_lens = BERTH_ARENA_ARRAY(engine->arena, int32_t, sequences);
    arrays->block_table =
        BERTH_ARENA_ARRAY(engine->arena, int32_t, sequences * (size_t)arrays->table_width);
    arrays->state_table = BERTH_ARENA_ARRAY(engine->arena, int32_t, sequences);
    arrays->state_mapping = BERTH_ARENA_ARRAY(engine->arena, int64_t, tokens);
    arrays->logits_rows = BERTH_ARENA_ARRAY(engine->arena, int32_t, rows);
    arrays->sampling = BERTH_ARENA_ARRAY(engine->arena, const berth_sampling *, rows);
    return arrays->sampling ? BERTH_OK : berth_arena_exhausted(engine->arena, "a batch's arrays");
}

berth_status berth_batch_init(berth_engine *engine) {
    berth_batch_arrays *arrays = &engine->arrays;
    const int64_t block = engine->pool.block_size;
    arrays->table_width = (engine->max_model_len + block - 1) / block;
    BERTH_TRY(reserve(engine));
    describe(arrays, TOKEN_IDS, arrays->token_ids, BERTH_DTYPE_I32);
    describe(arrays, POSITIONS, arrays->positions, BERTH_DTYPE_I32);
    describe(arrays, QUERY_START_LOC, arrays->query_start_loc, BERTH_DTYPE_I32);
    describe(arrays, SEQ_LENS, arrays->seq_lens, BERTH_DTYPE_I32);
    describe(arrays, LOGITS_ROWS, arrays->logits_rows, BERTH_DTYPE_I32);
    describe(arrays, BLOCK_TABLE, arrays->block_table, BERTH_DTYPE_I32);
    describe(arrays, SLOT_MAPPING, arrays->slot_mapping, BERTH_DTYPE_I64);
    describe(arrays, STATE_TABLE, arrays->state_table, BERTH_DTYPE_I32);
    describe(arrays, STATE_MAPPING, arrays->state_mapping, BERTH_DTYPE_I64);
    arrays->block_tables[BERTH_GROUP_BLOCKS] = &arrays->tensors[BLOCK_TABLE];
    arrays->slot_mappings[BERTH_GROUP_BLOCKS] = &arrays->tensors[SLOT_MAPPING];
    arrays->block_tables[BERTH_GROUP_SLOTS] = &arrays->tensors[STATE_TABLE];
    arrays->slot_mappings[BERTH_GROUP_SLOTS] = &arrays->tensors[STATE_MAPPING];
    for (int64_t i = 0; i < engine->max_tokens; ++i) {
        arrays->state_mapping[i] = -1;
    }
    arrays->view = (berth_batch_view){
        .size = sizeof(berth_batch_view),
        .token_ids = &arrays->tensors[TOKEN_IDS],
        .positions = &arrays->tensors[POSITIONS],
        .query_start_loc = &arrays->tensors[QUERY_START_LOC],
        .seq_lens = &arrays->tensors[SEQ_LENS],
        .logits_rows = &arrays->tensors[LOGITS_ROWS],
        .block_tables = arrays->block_tables,
        .slot_mappings = arrays->slot_mappings,
    };
    return BERTH_OK;
}

// Appends one sequence's scheduled tokens as rows `first` and on.
static void append(berth_engine *engine, berth_sequence *sequence, int64_t first) {
    berth_batch_arrays *arrays = &engine->arrays;
    const int64_t block = engine->pool.block_size;
    for (int64_t i = 0; i < sequence->scheduled; ++i) {
        const int64_t position = sequence->computed + i;
        arrays->token_ids[first + i] = sequence->tokens[position];
        arrays->positions[first + i] = (int32_t)position;
        arrays->slot_mapping[first + i] =
            sequence->blocks[position / block] * block + position % block;
    }
}

// The last `row_count` rows of the sequence want logits; the very last is sampled when no token is
// left to compute.
static void append_rows(berth_batch_arrays *arrays, berth_sequence *sequence, int64_t end) {
    const bool is_complete = sequence->computed + sequence->scheduled == sequence->token_count;
    int64_t *count = &arrays->batch.logits_row_count;
    sequence->first_row = *count;
    for (int64_t row = end - sequence->row_count; row < end; ++row) {
        arrays->logits_rows[*count] = (int32_t)row;
        arrays->sampling[*count] = is_complete && row == end - 1 ? &sequence->sampling : NULL;
        ++*count;
    }
}

static void append_blocks(berth_batch_arrays *arrays, const berth_sequence *sequence, int64_t at) {
    int32_t *row = arrays->block_table + at * arrays->table_width;
    for (int64_t i = 0; i < arrays->table_width; ++i) {
        row[i] = i < sequence->block_count ? sequence->blocks[i] : 0;
    }
}

void berth_batch_fill(berth_engine *engine) {
    berth_batch_arrays *arrays = &engine->arrays;
    berth_batch *batch = &arrays->batch;
    *batch = (berth_batch){
        .size = sizeof *batch,
        .host = &arrays->view,
        .group_count = engine->slots.num_slots > 0 ? BERTH_GROUP_SLOTS + 1 : BERTH_GROUP_BLOCKS + 1,
    };
    arrays->query_start_loc[0] = 0;
    for (size_t i = 0; i < engine->running; ++i) {
        berth_sequence *sequence = &engine->sequences.data[i];
        if (sequence->scheduled == 0) {
            continue;
        }
        const int64_t length = sequence->computed + sequence->scheduled;
        append(engine, sequence, batch->token_count);
        batch->token_count += sequence->scheduled;
        append_rows(arrays, sequence, batch->token_count);
        append_blocks(arrays, sequence, batch->sequence_count);
        arrays->state_table[batch->sequence_count] = sequence->slot;
        arrays->seq_lens[batch->sequence_count++] = (int32_t)length;
        arrays->query_start_loc[batch->sequence_count] = (int32_t)batch->token_count;
        batch->max_seq_len = length > batch->max_seq_len ? length : batch->max_seq_len;
        batch->max_query_len =
            sequence->scheduled > batch->max_query_len ? sequence->scheduled : batch->max_query_len;
    }
    arrays->shapes[TOKEN_IDS][0] = batch->token_count;
    arrays->shapes[POSITIONS][0] = batch->token_count;
    arrays->shapes[SLOT_MAPPING][0] = batch->token_count;
    arrays->shapes[QUERY_START_LOC][0] = batch->sequence_count + 1;
    arrays->shapes[SEQ_LENS][0] = batch->sequence_count;
    arrays->shapes[BLOCK_TABLE][0] = batch->sequence_count;
    arrays->shapes[STATE_TABLE][0] = batch->sequence_count;
    arrays->shapes[STATE_MAPPING][0] = batch->token_count;
    arrays->shapes[LOGITS_ROWS][0] = batch->logits_row_count;
}
