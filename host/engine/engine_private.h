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
    uint64_t link;         // what it holds, as a number; 0: nothing that can be found
    uint64_t parent;       // link of the block before it, 0: it begins a sequence
    uint64_t bucket;       // where it stands when it has a link
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
    int32_t *tokens; // [num_blocks, block_size], of blocks with a link; NULL but in the first group
    uint64_t last_link;
} berth_block_pool;

// What one sequence has of one pool: block i holds its tokens from i * block_size on.
typedef struct berth_block_list {
    int32_t *ids;
    int64_t count;
    int64_t dropped; // so many of the first were given back; the null block stands for them
} berth_block_list;

// Layers that keep the same tokens of a sequence, and so share a block table. A query at position i
// sees what is less than `window` tokens behind it and in its own chunk of `chunk` tokens; what no
// query to come can see is given back while the sequence goes on.
typedef struct berth_token_group {
    uint32_t number;      // in a batch
    int64_t window;       // 0: none
    int64_t chunk;        // 0: none; never beside a window
    int64_t most;         // blocks that a sequence of any length has at once, at most
    uint64_t block_bytes; // over all layers; 0: it has none, and a block is only a number
    int64_t promised;     // blocks that running sequences will take for the tokens that they have
    berth_block_pool pool;
} berth_token_group;

// The first one keeps all tokens. What the other ones' blocks hold is told by the first one's of
// the same place, so it is there even when no layer is in it.
typedef struct berth_token_groups {
    berth_token_group all[BERTH_CACHE_GROUPS_MAX + 1];
    size_t count;
} berth_token_groups;

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
    berth_block_list *blocks; // per group of tokens
    int32_t slot;             // of its states, 0: none
    int64_t stored;           // so many of its first blocks are in the prefix cache
    uint64_t link;            // of the last of these
    int32_t *stop_ids;
    size_t stop_count;
    berth_sampling sampling;
    berth_reply reply;
    bool skips_prefix_cache;
    bool wants_logits;
    berth_arena *arena; // owned: what the pointers above point to
} berth_sequence;

// What a batch has of one cache group: blocks of tokens, or the slots of states.
typedef struct berth_batch_group {
    size_t tokens;    // index of its group of tokens; SIZE_MAX: it has slots
    int32_t *table;   // [sequences, width]
    int64_t *mapping; // [tokens]; -1: of states nothing is stored by token
    int64_t width;
    int64_t shapes[2][2]; // of table and mapping
    int64_t strides[2][2];
    berth_tensor tensors[2];
} berth_batch_group;

// The arrays behind a berth_batch, for the largest step.
typedef struct berth_batch_arrays {
    int32_t *token_ids;
    int32_t *positions;
    int32_t *query_start_loc;
    int32_t *seq_lens;
    int32_t *logits_rows;
    const berth_sampling **sampling; // per logits row
    int64_t shapes[5];
    berth_tensor tensors[5];
    berth_batch_group groups[BERTH_CACHE_GROUPS_MAX];
    size_t group_count;
    const berth_tensor *block_tables[BERTH_CACHE_GROUPS_MAX];
    const berth_tensor *slot_mappings[BERTH_CACHE_GROUPS_MAX];
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
    berth_token_groups groups;
    size_t group_count; // of a batch
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

// Sizes the worker's cache and warms it up: max_model_len, vocab_size, groups and slots are set.
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
// Gives the list blocks for `tokens` tokens in all. False, with no change, when there are not
// enough.
bool berth_pool_cover(berth_block_pool *pool, berth_block_list *list, int64_t tokens);
void berth_pool_retain(berth_block_pool *pool, int32_t block);
void berth_pool_release(berth_block_pool *pool, int32_t block);
// Gives back the first `count` blocks of the list, as far as it still has them.
void berth_pool_drop(berth_block_pool *pool, berth_block_list *list, int64_t count);
void berth_pool_return(berth_block_pool *pool, berth_block_list *list); // all

// ---- groups of tokens ---------------------------------------------------------------------------

// Blocks at the beginning of a sequence that nobody sees who is at `position` or behind it.
int64_t berth_group_skips(const berth_token_group *group, int64_t position);
// Blocks that a sequence of that many tokens has at once, at most.
int64_t berth_group_needs(const berth_token_group *group, int64_t tokens);
// Gives the sequence blocks of every group for its first `tokens` tokens, after taking back what
// the next of its tokens do not see. False when there are not enough; then nothing is taken.
bool berth_groups_cover(berth_token_groups *groups, berth_sequence *sequence, int64_t tokens);
// Counts what the sequence will take for the tokens that it has.
void berth_groups_promise(berth_token_groups *groups, const berth_sequence *sequence);
void berth_groups_return(berth_token_groups *groups, berth_sequence *sequence);

// ---- the prefix cache ---------------------------------------------------------------------------

BERTH_MUST_CHECK berth_status berth_prefix_init(berth_token_groups *groups, berth_arena *arena);
// Gives a sequence without blocks those that hold the beginning of its tokens: of every group the
// ones that the rest of them sees. False, with no change, when in some group the free blocks but
// for the promised ones do not hold what it needs besides.
bool berth_prefix_admit(berth_token_groups *groups, berth_sequence *sequence);
// Leaves the sequence's full computed blocks to others.
void berth_prefix_store(berth_token_groups *groups, berth_sequence *sequence);
// The block is about to hold something else.
void berth_prefix_forget(berth_block_pool *pool, int32_t block);
void berth_prefix_reset(berth_token_groups *groups); // no block holds anything any more

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
