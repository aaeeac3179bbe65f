// SPDX-License-Identifier: Apache-2.0
// The flattened batch of a step: scheduled tokens of all sequences, one after another, in arrays
// that are reserved once for the largest step.
#include "engine/engine_private.h"

enum { TOKEN_IDS, POSITIONS, QUERY_START_LOC, SEQ_LENS, LOGITS_ROWS };
enum { TABLE, MAPPING };

// ---- once ---------------------------------------------------------------------------------------

static berth_status reserve(berth_engine *engine) {
    berth_batch_arrays *arrays = &engine->arrays;
    const size_t tokens = (size_t)engine->max_tokens;
    const size_t sequences = (size_t)engine->max_sequences;
    const size_t rows = (size_t)engine->max_rows;
    arrays->token_ids = BERTH_ARENA_ARRAY(engine->arena, int32_t, tokens);
    arrays->positions = BERTH_ARENA_ARRAY(engine->arena, int32_t, tokens);
    arrays->query_start_loc = BERTH_ARENA_ARRAY(engine->arena, int32_t, sequences + 1);
    arrays->seq_lens = BERTH_ARENA_ARRAY(engine->arena, int32_t, sequences);
    arrays->logits_rows = BERTH_ARENA_ARRAY(engine->arena, int32_t, rows);
    arrays->sampling = BERTH_ARENA_ARRAY(engine->arena, const berth_sampling *, rows);
    return arrays->sampling ? BERTH_OK : berth_arena_exhausted(engine->arena, "a batch's arrays");
}

static berth_tensor tensor_of(void *data, berth_dtype dtype, const int64_t *shape,
                              const int64_t *strides) {
    return (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = 1,
        .dtype = dtype,
        .shape = shape,
        .strides = strides,
    };
}

static void describe(berth_batch_arrays *arrays, int which, int32_t *data) {
    static const int64_t one = 1;
    arrays->tensors[which] = tensor_of(data, BERTH_DTYPE_I32, &arrays->shapes[which], &one);
}

// The group of tokens with that number in a batch; SIZE_MAX: there is none.
static size_t find_tokens(const berth_token_groups *groups, size_t number) {
    for (size_t i = 0; i < groups->count; ++i) {
        if (groups->all[i].number == number) {
            return i;
        }
    }
    return SIZE_MAX;
}

static berth_status init_group(berth_engine *engine, size_t number) {
    berth_batch_arrays *arrays = &engine->arrays;
    berth_batch_group *group = &arrays->groups[number];
    const size_t tokens = (size_t)engine->max_tokens;
    group->tokens = find_tokens(&engine->groups, number);
    group->width =
        group->tokens == SIZE_MAX
            ? 1
            : berth_pool_blocks(&engine->groups.all[group->tokens].pool, engine->max_model_len);
    group->table = BERTH_ARENA_ARRAY(engine->arena, int32_t,
                                     (size_t)engine->max_sequences * (size_t)group->width);
    group->mapping = BERTH_ARENA_ARRAY(engine->arena, int64_t, tokens);
    if (!group->table || !group->mapping) {
        return berth_arena_exhausted(engine->arena, "a batch's arrays");
    }
    for (size_t i = 0; i < tokens; ++i) {
        group->mapping[i] = -1;
    }
    group->strides[TABLE][0] = group->width;
    group->strides[TABLE][1] = 1;
    group->strides[MAPPING][0] = 1;
    for (int i = TABLE; i <= MAPPING; ++i) {
        void *data = i == TABLE ? (void *)group->table : group->mapping;
        group->tensors[i] = tensor_of(data, i == TABLE ? BERTH_DTYPE_I32 : BERTH_DTYPE_I64,
                                      group->shapes[i], group->strides[i]);
    }
    group->tensors[TABLE].ndim = 2;
    arrays->block_tables[number] = &group->tensors[TABLE];
    arrays->slot_mappings[number] = &group->tensors[MAPPING];
    return BERTH_OK;
}

berth_status berth_batch_init(berth_engine *engine) {
    berth_batch_arrays *arrays = &engine->arrays;
    BERTH_TRY(reserve(engine));
    describe(arrays, TOKEN_IDS, arrays->token_ids);
    describe(arrays, POSITIONS, arrays->positions);
    describe(arrays, QUERY_START_LOC, arrays->query_start_loc);
    describe(arrays, SEQ_LENS, arrays->seq_lens);
    describe(arrays, LOGITS_ROWS, arrays->logits_rows);
    for (size_t i = 0; i < engine->group_count; ++i) {
        BERTH_TRY(init_group(engine, i));
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

// ---- a step -------------------------------------------------------------------------------------

// Appends one sequence's scheduled tokens as rows `first` and on.
static void append(berth_batch_arrays *arrays, const berth_sequence *sequence, int64_t first) {
    for (int64_t i = 0; i < sequence->scheduled; ++i) {
        const int64_t position = sequence->computed + i;
        arrays->token_ids[first + i] = sequence->tokens[position];
        arrays->positions[first + i] = (int32_t)position;
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

// Blocks of a sequence, the batch's `at`-th, and where its tokens from row `first` on go.
static void append_blocks(const berth_batch_group *group, int64_t block_size,
                          const berth_sequence *sequence, int64_t at, int64_t first) {
    const berth_block_list *list = &sequence->blocks[group->tokens];
    int32_t *row = group->table + at * group->width;
    for (int64_t i = 0; i < group->shapes[TABLE][1]; ++i) {
        row[i] = i < list->count ? list->ids[i] : 0;
    }
    for (int64_t i = 0; i < sequence->scheduled; ++i) {
        const int64_t position = sequence->computed + i;
        group->mapping[first + i] =
            list->ids[position / block_size] * block_size + position % block_size;
    }
}

static void append_groups(berth_engine *engine, const berth_sequence *sequence) {
    berth_batch_arrays *arrays = &engine->arrays;
    const int64_t at = arrays->batch.sequence_count;
    for (size_t i = 0; i < engine->group_count; ++i) {
        const berth_batch_group *group = &arrays->groups[i];
        if (group->tokens == SIZE_MAX) {
            group->table[at] = sequence->slot;
        } else {
            append_blocks(group, engine->groups.all[group->tokens].pool.block_size, sequence, at,
                          arrays->batch.token_count);
        }
    }
}

static void append_sequence(berth_engine *engine, berth_sequence *sequence) {
    berth_batch_arrays *arrays = &engine->arrays;
    berth_batch *batch = &arrays->batch;
    const int64_t length = sequence->computed + sequence->scheduled;
    append(arrays, sequence, batch->token_count);
    append_groups(engine, sequence);
    batch->token_count += sequence->scheduled;
    append_rows(arrays, sequence, batch->token_count);
    arrays->seq_lens[batch->sequence_count++] = (int32_t)length;
    arrays->query_start_loc[batch->sequence_count] = (int32_t)batch->token_count;
    batch->max_seq_len = length > batch->max_seq_len ? length : batch->max_seq_len;
    batch->max_query_len =
        sequence->scheduled > batch->max_query_len ? sequence->scheduled : batch->max_query_len;
}

// A table has as many columns as the step's longest list has blocks; its rows stay where they are.
static void size_tables(berth_engine *engine) {
    for (size_t i = 0; i < engine->group_count; ++i) {
        berth_batch_group *group = &engine->arrays.groups[i];
        int64_t columns = 1;
        for (size_t j = 0; group->tokens != SIZE_MAX && j < engine->running; ++j) {
            const berth_sequence *sequence = &engine->sequences.data[j];
            const int64_t count = sequence->blocks[group->tokens].count;
            columns = sequence->scheduled > 0 && count > columns ? count : columns;
        }
        group->shapes[TABLE][1] = columns;
    }
}

void berth_batch_fill(berth_engine *engine) {
    berth_batch_arrays *arrays = &engine->arrays;
    berth_batch *batch = &arrays->batch;
    *batch = (berth_batch){
        .size = sizeof *batch,
        .host = &arrays->view,
        .group_count = (int64_t)engine->group_count,
    };
    arrays->query_start_loc[0] = 0;
    size_tables(engine);
    for (size_t i = 0; i < engine->running; ++i) {
        if (engine->sequences.data[i].scheduled > 0) {
            append_sequence(engine, &engine->sequences.data[i]);
        }
    }
    arrays->shapes[TOKEN_IDS] = batch->token_count;
    arrays->shapes[POSITIONS] = batch->token_count;
    arrays->shapes[QUERY_START_LOC] = batch->sequence_count + 1;
    arrays->shapes[SEQ_LENS] = batch->sequence_count;
    arrays->shapes[LOGITS_ROWS] = batch->logits_row_count;
    for (size_t i = 0; i < engine->group_count; ++i) {
        arrays->groups[i].shapes[TABLE][0] = batch->sequence_count;
        arrays->groups[i].shapes[MAPPING][0] = batch->token_count;
    }
}
