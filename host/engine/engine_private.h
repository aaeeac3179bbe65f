// SPDX-License-Identifier: Apache-2.0
// Private to engine/: requests, the pools of KV blocks and state slots, and the flattened batch of
// a step.
#ifndef BERTH_ENGINE_ENGINE_PRIVATE_H
#define BERTH_ENGINE_ENGINE_PRIVATE_H

#include "base/arena.h"
#include "base/array.h"
#include "engine/engine.h"

typedef struct berth_block {
    int32_t users;         // sequences that hold it; 0: it is free
    int32_t before, after; // in the list of free blocks
    int32_t next;          // in its bucket, 0: none
    uint64_t link;         // what it holds, as a number of its own; 0: nothing that can be found
    uint64_t parent;       // link of the block before it, 0: it begins a sequence
} berth_block;

// Block 0 is the null block, never handed out; it stands for both ends of the list of free ones.
typedef struct berth_block_pool {
    berth_block *blocks; // [num_blocks]
    int64_t num_blocks;
    int64_t free_count;
    int64_t block_size; // tokens
    // Of the prefix cache, NULL without one.
    int32_t *buckets; // [bucket_mask + 1], first block of each
    uint64_t bucket_mask;
    int32_t *tokens; // [num_blocks, block_size], of blocks with a link
    uint64_t last_link;
} berth_block_pool;

// Slots of what layers keep of a sequence as a whole; slot 0 is the null slot, never handed out.
typedef struct berth_slot_pool {
    int32_t *free; // [free_count]
    int64_t free_count;
    int64_t num_slots; // 0: the model keeps nothing of the kind, and nobody has a slot
} berth_slot_pool;

// A stop string, found byte by byte in the text as it comes (Knuth, Morris and Pratt).
typedef struct berth_stop {
    berth_str text;
    uint32_t *fallback; // [text.size], matched bytes that remain when the next one is wrong
    uint32_t matched;   // bytes at the end of the text so far
} berth_stop;

// The text of one output.
typedef struct berth_reply {
    berth_detokenizer *detokenizer; // owned, NULL: nobody wants text
    berth_stop *stops;
    size_t stop_count;
    int64_t unstoppable; // tokens to come in which no stop string counts
    char *buffer;        // what is certain since berth_reply_next, then what waits
    size_t size;         // of both
    size_t certain;
} berth_reply;

// A request in the engine. Everything it can ever hold is reserved when it is added, so that a step
// allocates nothing.
typedef struct berth_sequence {
    uint64_t id;
    int32_t *tokens; // prompt, then output
    int64_t token_count;
    int64_t prompt_count;
    int64_t token_limit; // token_count never exceeds it
    int64_t min_tokens;
    int64_t computed;  // tokens whose keys and values are in the cache
    int64_t scheduled; // tokens of the step under way
    int64_t first_row; // its first logits row in that step
    int64_t row_count;
    int32_t *blocks;
    int64_t block_count;
    int32_t slot;   // of its states, 0: none
    int64_t stored; // so many of its first blocks are in the prefix cache
    uint64_t link;  // of the last of these
    int32_t *stop_ids;
    size_t stop_count;
    berth_sampling sampling;
    berth_reply reply;
    bool skips_prefix_cache;
    bool wants_logits;
    berth_arena *arena; // owned: what the pointers above point to
} berth_sequence;

// Cache groups of a batch: blocks of tokens, and slots of states.
enum { BERTH_GROUP_BLOCKS, BERTH_GROUP_SLOTS, BERTH_ENGINE_GROUPS };

// The arrays behind a berth_batch, for the largest step.
typedef struct berth_batch_arrays {
    int32_t *token_ids;
    int32_t *positions;
    int32_t *query_start_loc;
    int32_t *seq_lens;
    int32_t *logits_rows;
    int32_t *block_table; // [sequences, table_width]
    int64_t *slot_mapping;
    int32_t *state_table;   // [sequences, 1]
    int64_t *state_mapping; // -1: of states nothing is stored by token
    int64_t table_width;
    const berth_sampling **sampling; // per logits row
    int64_t shapes[9][2];
    int64_t strides[9][2];
    berth_tensor tensors[9];
    const berth_tensor *block_tables[BERTH_ENGINE_GROUPS];
    const berth_tensor *slot_mappings[BERTH_ENGINE_GROUPS];
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
    berth_slot_pool slots;
    // In order of arrival. The first `running` hold blocks and slots: admission takes the next one,
    // preemption gives back the last one.
    berth_array(berth_sequence) sequences;
    size_t running;
    uint64_t next_id;
    berth_batch_arrays arrays;
    berth_output *outputs; // [max_sequences]
    size_t output_count;
    berth_arena **ended; // [max_sequences], owned: of sequences that the last step ended
    size_t ended_count;
    berth_engine_stats stats;
};

// Sizes the worker's cache and warms it up: max_model_len, vocab_size, pool and slots are set.
BERTH_MUST_CHECK berth_status berth_engine_start(berth_engine *engine, const berth_config *config);

// ---- requests -----------------------------------------------------------------------------------

// Checks the request; the sequence, zeroed before, has everything that it can ever hold.
BERTH_MUST_CHECK berth_status berth_sequence_create(const berth_engine *engine,
                                                    const berth_request *request,
                                                    berth_sequence *out_sequence);
// Frees all but the arena, which holds the text of the last output: the caller's now.
berth_arena *berth_sequence_end(berth_sequence *sequence);
void berth_sequence_destroy(berth_sequence *sequence);

// ---- text ---------------------------------------------------------------------------------------

BERTH_MUST_CHECK berth_status berth_reply_init(const berth_request *request, berth_arena *arena,
                                               berth_reply *out_reply);
// Forgets what was given.
void berth_reply_next(berth_reply *reply);
// Adds a token's text. Returns the stop string that it completes, of several the one that is
// complete first, then the first in the list; the text ends before it. NULL: none.
const berth_stop *berth_reply_push(berth_reply *reply, int32_t token);
// Nothing comes any more: what waits is text after all.
void berth_reply_finish(berth_reply *reply);
// What became certain since berth_reply_next; the bytes stay until the next one.
berth_str berth_reply_text(const berth_reply *reply);
void berth_reply_deinit(berth_reply *reply);

// ---- blocks -------------------------------------------------------------------------------------

BERTH_MUST_CHECK berth_status berth_pool_init(berth_block_pool *pool, int64_t num_blocks,
                                              int64_t block_size, berth_arena *arena);
int64_t berth_pool_blocks(const berth_block_pool *pool, int64_t tokens); // that these fill
// Gives the sequence blocks for `tokens` tokens in all. False, with no change, when there are not
// enough.
bool berth_pool_cover(berth_block_pool *pool, berth_sequence *sequence, int64_t tokens);
void berth_pool_retain(berth_block_pool *pool, int32_t block);
void berth_pool_release(berth_block_pool *pool, int32_t block);
void berth_pool_return(berth_block_pool *pool, berth_sequence *sequence);

BERTH_MUST_CHECK berth_status berth_prefix_init(berth_block_pool *pool, berth_arena *arena);
// Gives a sequence without blocks those that hold the beginning of its tokens. False, with no
// change, when the free blocks but for the `promised` ones do not hold the rest of them.
bool berth_prefix_admit(berth_block_pool *pool, berth_sequence *sequence, int64_t promised);
// Leaves the sequence's full computed blocks to others.
void berth_prefix_store(berth_block_pool *pool, berth_sequence *sequence);
// The block is about to hold something else.
void berth_prefix_forget(berth_block_pool *pool, int32_t block);

// ---- slots --------------------------------------------------------------------------------------

BERTH_MUST_CHECK berth_status berth_slots_init(berth_slot_pool *pool, int64_t num_slots,
                                               berth_arena *arena);
bool berth_slots_have(const berth_slot_pool *pool); // one more, or nobody needs any
void berth_slots_take(berth_slot_pool *pool, berth_sequence *sequence);
void berth_slots_return(berth_slot_pool *pool, berth_sequence *sequence);

// ---- scheduling and batching --------------------------------------------------------------------

// Chooses `scheduled` for every running sequence; returns the tokens of the step.
int64_t berth_engine_schedule(berth_engine *engine);
BERTH_MUST_CHECK berth_status berth_batch_init(berth_engine *engine);
// Fills the arrays from what was scheduled.
void berth_batch_fill(berth_engine *engine);

#endif
