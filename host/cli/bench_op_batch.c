// SPDX-License-Identifier: Apache-2.0
// Input: what a step is to be like. Output: its batch, as the engine would make it. Position p of
// the one sequence lies in block 1 + p / BERTH_OP_BLOCK.
#include "base/array.h"
#include "cli/bench_op.h"

#define IDS    BERTH_OP_TOKENS // rows of the table that tokens are looked up in
#define BLOCKS (BERTH_OP_CONTEXT / BERTH_OP_BLOCK)

enum {
    TOKEN_IDS,
    POSITIONS,
    STARTS,
    LENGTHS,
    ROWS,
    TABLE,
    SLOTS,
    ARRAYS,
};

struct berth_op_batch {
    berth_batch batch;
    berth_batch_view view;
    berth_tensor tensors[ARRAYS];
    const berth_tensor *table;
    const berth_tensor *slots;
    int64_t shapes[ARRAYS][2];
    int64_t strides[ARRAYS][2];
    int32_t ids[BERTH_OP_TOKENS];
    int32_t positions[BERTH_OP_TOKENS];
    int32_t starts[BERTH_OP_TOKENS + 1];
    int32_t lengths[BERTH_OP_TOKENS];
    int32_t rows[BERTH_OP_TOKENS];
    int32_t blocks[BERTH_OP_TOKENS * BLOCKS];
    int64_t slot_mapping[BERTH_OP_TOKENS];
};

static void describe(berth_op_batch *self, size_t array, void *data, int64_t count) {
    const bool is_table = array == TABLE;
    self->shapes[array][0] = count;
    self->shapes[array][1] = BLOCKS;
    self->strides[array][0] = is_table ? BLOCKS : 1;
    self->strides[array][1] = 1;
    self->tensors[array] = (berth_tensor){
        .size = sizeof(berth_tensor),
        .data = data,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = is_table ? 2 : 1,
        .dtype = array == SLOTS ? BERTH_DTYPE_I64 : BERTH_DTYPE_I32,
        .shape = self->shapes[array],
        .strides = self->strides[array],
    };
}

berth_status berth_op_batch_create(berth_arena *arena, berth_op_batch **out_batch) {
    berth_op_batch *self = BERTH_ARENA_NEW(arena, berth_op_batch);
    if (!self) {
        return berth_arena_exhausted(arena, "a batch");
    }
    self->table = &self->tensors[TABLE];
    self->slots = &self->tensors[SLOTS];
    self->view = (berth_batch_view){
        .size = sizeof self->view,
        .token_ids = &self->tensors[TOKEN_IDS],
        .positions = &self->tensors[POSITIONS],
        .query_start_loc = &self->tensors[STARTS],
        .seq_lens = &self->tensors[LENGTHS],
        .logits_rows = &self->tensors[ROWS],
        .block_tables = &self->table,
        .slot_mappings = &self->slots,
    };
    for (int64_t i = 0; i < BERTH_OP_TOKENS; ++i) {
        self->rows[i] = (int32_t)i;
        for (int64_t block = 0; block < BLOCKS; ++block) {
            self->blocks[i * BLOCKS + block] = (int32_t)(1 + block);
        }
    }
    *out_batch = self;
    return BERTH_OK;
}

// Tokens from position `first` on, `each` of them a sequence; each sequence ends with its last.
static const berth_batch *make(berth_op_batch *self, int64_t first, int64_t tokens, int64_t each) {
    const int64_t sequences = tokens / each;
    for (int64_t i = 0; i < tokens; ++i) {
        const int64_t position = first + i;
        self->ids[i] = (int32_t)((position * 37 + 11) % IDS);
        self->positions[i] = (int32_t)position;
        self->slot_mapping[i] = BERTH_OP_BLOCK + position;
    }
    for (int64_t i = 0; i <= sequences; ++i) {
        self->starts[i] = (int32_t)(i * each);
    }
    describe(self, TOKEN_IDS, self->ids, tokens);
    describe(self, POSITIONS, self->positions, tokens);
    describe(self, STARTS, self->starts, sequences + 1);
    describe(self, LENGTHS, self->lengths, sequences);
    describe(self, ROWS, self->rows, tokens);
    describe(self, TABLE, self->blocks, sequences);
    describe(self, SLOTS, self->slot_mapping, tokens);
    self->batch = (berth_batch){
        .size = sizeof self->batch,
        .host = &self->view,
        .token_count = tokens,
        .sequence_count = sequences,
        .logits_row_count = tokens,
        .group_count = 1,
        .max_query_len = each,
    };
    return &self->batch;
}

static const berth_batch *with_length(berth_op_batch *self, int64_t length) {
    for (int64_t i = 0; i < self->batch.sequence_count; ++i) {
        self->lengths[i] = (int32_t)length;
    }
    self->batch.max_seq_len = length;
    return &self->batch;
}

const berth_batch *berth_op_batch_prompt(berth_op_batch *self, int64_t tokens) {
    (void)make(self, 0, tokens, tokens);
    return with_length(self, tokens);
}

const berth_batch *berth_op_batch_decode(berth_op_batch *self, int64_t context) {
    (void)make(self, context, 1, 1);
    return with_length(self, context + 1);
}

const berth_batch *berth_op_batch_fill(berth_op_batch *self, int64_t first, int64_t tokens) {
    (void)make(self, first, tokens, 1);
    return with_length(self, 1);
}
