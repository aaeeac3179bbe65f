// SPDX-License-Identifier: Apache-2.0
// Private to engine/: requests, the pool of KV blocks, and the flattened batch of a step.
#ifndef BERTH_ENGINE_ENGINE_PRIVATE_H
#define BERTH_ENGINE_ENGINE_PRIVATE_H

#include "base/arena.h"
#include "base/array.h"
#include "engine/engine.h"

// Free blocks as a stack. Block 0 is the null block and never handed out.
typedef struct berth_block_pool {
    int32_t *free; // [capacity]
    int64_t free_count;
    int64_t block_size; // tokens
} berth_block_pool;

// A request in the engine. Everything it can ever hold is reserved when it is added, so that a step
// allocates nothing.
typedef struct berth_sequence {
    uint64_t id;
    int32_t *tokens; // owned: prompt, then output
    int64_t token_count;
    int64_t prompt_count;
    int64_t token_limit; // token_count never exceeds it
    int64_t computed;    // tokens whose keys and values are in the cache
    int64_t scheduled;   // tokens of the step under way
    int64_t first_row;   // its first logits row in that step
    int64_t row_count;
    int32_t *blocks; // owned
    int64_t block_count;
    int32_t *stop_ids; // owned
    size_t stop_count;
    berth_sampling sampling;
    bool wants_logits;
    berth_arena *arena; // owned: what the pointers above point to
} berth_sequence;

// The arrays behind a berth_batch, for the largest step.
typedef struct berth_batch_arrays {
    int32_t *token_ids;
    int32_t *positions;
    int32_t *query_start_loc;
    int32_t *seq_lens;
    int32_t *logits_rows;
    int32_t *block_table; // [sequences, table_width]
    int64_t *slot_mapping;
    int64_t table_width;
    const berth_sampling **sampling; // per logits row
    int64_t shapes[7][2];
    int64_t strides[7][2];
    berth_tensor tensors[7];
    const berth_tensor *block_tables[1];
    const berth_tensor *slot_mappings[1];
    berth_batch_view view;
    berth_batch batch;
} berth_batch_arrays;

struct berth_engine {
    berth_arena *arena; // owned
    berth_worker *worker;
    int64_t max_tokens; // of one step
    int64_t max_sequences;
    int64_t max_rows;
    int64_t max_model_len;
    int64_t vocab_size;
    int64_t chunk; // most tokens of one sequence in a step
    berth_block_pool pool;
    // In order of arrival. The first `running` hold blocks: admission takes the next one,
    // preemption gives back the last one.
    berth_array(berth_sequence) sequences;
    size_t running;
    uint64_t next_id;
    berth_batch_arrays arrays;
    berth_output *outputs; // [max_sequences]
    size_t output_count;
};

// Sizes the worker's cache and warms it up: max_model_len, vocab_size and pool are set.
BERTH_MUST_CHECK berth_status berth_engine_start(berth_engine *engine, const berth_config *config);

// ---- blocks -------------------------------------------------------------------------------------

BERTH_MUST_CHECK berth_status berth_pool_init(berth_block_pool *pool, int64_t num_blocks,
                                              int64_t block_size, berth_arena *arena);
// Gives the sequence blocks for `tokens` tokens in all. False, with no change, when there are not
// enough.
bool berth_pool_cover(berth_block_pool *pool, berth_sequence *sequence, int64_t tokens);
void berth_pool_return(berth_block_pool *pool, berth_sequence *sequence);

// ---- scheduling and batching
// ----------------------------------------------------------------------

// Chooses `scheduled` for every running sequence; returns the tokens of the step.
int64_t berth_engine_schedule(berth_engine *engine);
BERTH_MUST_CHECK berth_status berth_batch_init(berth_engine *engine);
// Fills the arrays from what was scheduled.
void berth_batch_fill(berth_engine *engine);

#endif
