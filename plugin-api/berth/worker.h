// SPDX-License-Identifier: Apache-2.0
// The worker vtable: one worker drives one device. The engine reaches a model only through it.
//
// A platform gives a table in which every slot may be NULL: a NULL slot inherits the host's default
// worker, which is complete for any platform that has a device runtime. An overriding method calls
// the inherited one with `worker->host->worker_base->slot(worker, …)`; the base calls other slots
// through the merged table, so an override is seen by everybody. Overridden together or refused:
// {execute_model, sample_tokens}, {sleep, wake_up}, {get_kv_cache_spec, initialize_from_config}.
//
// Order, enforced by the host: init_device, load_model, get_kv_cache_spec,
// determine_available_memory, initialize_from_config, compile_or_warm_up_model, then any number of
// steps (execute_model, and sample_tokens when that was pending), shutdown at any time. Another
// order is BERTH_WRONG_STATE.
//
// A host of ABI 1.0 calls none of these itself: sleep, wake_up, LoRA, take_draft_token_ids,
// profile, update_max_model_len, check_health, reset_caches. They are here so that a table has one
// layout for ever; an overriding plugin may call them through the merged table. From ABI 1.1 on the
// host calls sleep with level 1 (weights are kept in host memory) or 2 (they are discarded, and
// wake_up loads them again), the KV cache being discarded by both, and wake_up with one tag at a
// time; its own worker has both slots, for every device runtime.
#ifndef BERTH_WORKER_H
#define BERTH_WORKER_H

#include <berth/batch.h>
#include <berth/host.h>
#include <berth/status.h>
#include <berth/types.h>

typedef struct berth_worker berth_worker;

typedef struct berth_model_info {
    uint64_t size;
    const char *architecture;
    int64_t vocab_size;
    int64_t max_model_len; // tokens, prompt and output together
    int64_t layer_count;   // layers with a state
    uint64_t parameter_count;
    uint64_t parameter_bytes;     // resident
    const char *activation_dtype; // between ops: "f32", "f16" or "bf16"
} berth_model_info;

// The cache that one layer needs.
typedef struct berth_kv_cache_spec {
    uint64_t size;
    const char *layer;
    int64_t num_heads; // query heads
    int64_t num_kv_heads;
    int64_t head_size;
    int64_t block_size;     // tokens per block
    int64_t sliding_window; // 0: none
    berth_dtype dtype;
    uint32_t group;      // layers of one group share a block table
    uint64_t page_bytes; // one block of this layer, keys and values
    uint64_t is_latent;  // 1: one row of head_size serves as both
    // 1: what the layer keeps of every sequence (berth_layer_state), in group 1; caches of keys and
    // values are in the others. A block is one slot, however long its sequence: block_size is 0,
    // and a block table of the group has one column.
    uint64_t is_state;
    int64_t chunk_size; // tokens are seen by those of their own chunk only, 0: by all
} berth_kv_cache_spec;

// From ABI 1.1 on a group keeps of a sequence what that one of its layers needs which sees
// furthest; blocks before that are given to others while the sequence goes on. The host's own
// worker has a group for every sliding_window and chunk_size of the model.
#define BERTH_CACHE_GROUPS_MAX   16u
#define BERTH_CACHE_GROUP_STATES 1u

typedef struct berth_kv_cache_config {
    uint64_t size;
    int64_t num_blocks; // of group 0, the null block included
    int64_t group_count;
    int64_t state_slots; // of group 1, the null slot included; 0: the model keeps no states
    // [group_count], blocks or slots of every group, the null one included; NULL: as the members
    // above say. From ABI 1.1 on
    const int64_t *group_blocks;
} berth_kv_cache_config;

// How the token after one row is chosen. A member that is 0 does nothing. The steps, in this order:
//  1. logprobs are those of the row as the model gave it;
//  2. banned ids can no longer be chosen;
//  3. penalties, in float32: an id of prompt or output is divided by repetition_penalty where its
//     logit is positive and multiplied by it elsewhere; then an id that the output holds n times
//     loses n × frequency_penalty, then presence_penalty;
//  4. temperature 0 takes the largest logit; else logits are divided by it and become
//     probabilities;
//  5. min_p keeps what is at least min_p times as probable as the likeliest;
//  6. top_k keeps that many of the likeliest;
//  7. top_p keeps the fewest of the likeliest that have at least that share of what is left;
//  8. a random number u in [0, 1) picks the first whose probabilities add up to more than u.
// Likelier means a larger logit, and of equal ones the lower id; NaN is as good as -inf. u is the
// first word of Philox4x32-10(key = seed, counter = index) / 2^32: a request's text never depends
// on its neighbours. Ids outside of the vocabulary are passed over.
typedef struct berth_sampling {
    uint64_t size;
    double temperature;
    uint64_t seed;
    uint64_t index; // of the token in the request's output, from 0
    uint64_t top_k;
    double top_p;
    double min_p;
    double presence_penalty;
    double frequency_penalty;
    double repetition_penalty;
    uint64_t logprobs;         // entries wanted, the chosen id's first; <= BERTH_LOGPROBS_MAX
    const int32_t *prompt_ids; // [prompt_count], like the next two borrowed for the step
    uint64_t prompt_count;
    const int32_t *output_ids; // [output_count]
    uint64_t output_count;
    const int32_t *banned_ids; // [banned_count]
    uint64_t banned_count;
} berth_sampling;

#define BERTH_LOGPROBS_MAX 21u // entries of one row: the chosen id and the 20 likeliest

typedef struct berth_scheduler_output {
    uint64_t size;
    const berth_batch *batch; // host view set, device view NULL: the worker fills it
    // One per logits row, an entry NULL: that row is not sampled. NULL: no row is.
    const berth_sampling *const *sampling;
    uint64_t want_logits; // 1: `logits` of the output is wanted
} berth_scheduler_output;

#define BERTH_OUTPUT_READY   0u // the output is filled
#define BERTH_OUTPUT_ASYNC   1u // the output is filled once wait(completion) has returned
#define BERTH_OUTPUT_PENDING 2u // sample_tokens must follow; nothing is filled yet

// Pointers belong to the worker and stay valid until its next step.
typedef struct berth_model_output {
    uint64_t size;
    uint64_t state; // BERTH_OUTPUT_*
    uint64_t row_count;
    uint64_t vocab_size;
    const int32_t *token_ids; // [row_count], -1: row not sampled; NULL: no row is
    const float *logits;      // [row_count, vocab_size] in host memory, NULL unless wanted
    berth_status (*wait)(void *completion);
    void *completion;
    // Logarithms of probabilities, NULL when no row wanted any. Entry 0 of a row is the chosen id,
    // the others are the likeliest, in order; an id of -1 is no entry.
    const float *logprobs;       // [row_count, logprob_stride]
    const int32_t *logprob_ids;  // [row_count, logprob_stride]
    const int32_t *chosen_ranks; // [row_count], ids at least as likely as the chosen one
    uint64_t logprob_stride;
} berth_model_output;

typedef struct berth_lora_request {
    uint64_t size;
    int64_t id; // > 0
    const char *path;
} berth_lora_request;

#define BERTH_SLEEP_WEIGHTS  1u // tags of wake_up
#define BERTH_SLEEP_KV_CACHE 2u

// Features a table claims; a bit whose slots are NULL, or slots whose bit is missing, is a load
// error.
#define BERTH_WORKER_SLEEP   1u // sleep, wake_up
#define BERTH_WORKER_LORA    2u // add_lora, remove_lora, list_loras, pin_lora
#define BERTH_WORKER_DRAFT   4u // take_draft_token_ids
#define BERTH_WORKER_PROFILE 8u // profile

struct berth_worker_api {
    uint64_t size;
    uint64_t features; // BERTH_WORKER_*

    berth_status (*init_device)(berth_worker *worker);                      // [inherit][startup]
    berth_status (*load_model)(berth_worker *worker);                       // [inherit][startup]
    berth_status (*get_model)(berth_worker *worker, berth_model_info *out); // [inherit][any]
    // [inherit][startup] Writes at most `capacity` specs, and how many there are.
    berth_status (*get_kv_cache_spec)(berth_worker *worker, berth_kv_cache_spec *const *specs,
                                      uint64_t capacity, uint64_t *out_count);
    berth_status (*determine_available_memory)(berth_worker *worker,
                                               uint64_t *out_bytes); // [inherit][startup]
    berth_status (*initialize_from_config)(
        berth_worker *worker, const berth_kv_cache_config *config); // [inherit][startup]
    // [inherit][startup] Block counts as vLLM's; the default checks them against the config.
    berth_status (*initialize_cache)(berth_worker *worker, int64_t device_blocks,
                                     int64_t host_blocks);
    berth_status (*compile_or_warm_up_model)(berth_worker *worker); // [inherit][startup]
    berth_status (*execute_model)(berth_worker *worker, const berth_scheduler_output *input,
                                  berth_model_output *out); // [inherit][engine]
    berth_status (*sample_tokens)(berth_worker *worker, const berth_scheduler_output *input,
                                  berth_model_output *out); // [inherit][engine]
    berth_status (*take_draft_token_ids)(berth_worker *worker,
                                         berth_model_output *out); // [optional][engine]
    berth_status (*execute_dummy_batch)(berth_worker *worker);     // [inherit][engine]
    berth_status (*sleep)(berth_worker *worker, uint64_t level);   // [optional][engine]
    berth_status (*wake_up)(berth_worker *worker, uint64_t tags);  // [optional][engine]
    berth_status (*add_lora)(berth_worker *worker,
                             const berth_lora_request *request);   // [optional][engine]
    berth_status (*remove_lora)(berth_worker *worker, int64_t id); // [optional][engine]
    berth_status (*list_loras)(berth_worker *worker, int64_t *ids, uint64_t capacity,
                               uint64_t *out_count);            // [optional][engine]
    berth_status (*pin_lora)(berth_worker *worker, int64_t id); // [optional][engine]
    berth_status (*update_max_model_len)(berth_worker *worker,
                                         int64_t max_model_len);      // [inherit][startup]
    berth_status (*profile)(berth_worker *worker, uint64_t is_start); // [optional][engine]
    berth_status (*check_health)(berth_worker *worker);               // [inherit][any]
    berth_status (*reset_caches)(berth_worker *worker);               // [inherit][engine]
    void (*shutdown)(berth_worker *worker);                           // [inherit][startup]
};

struct berth_worker {
    uint64_t size;
    const berth_worker_api *api; // merged: no slot is NULL
    const berth_host *host;
    void *platform; // the platform's self
    void *plugin;   // for the overriding plugin: its own state of this worker
    void *base;     // the default worker's state, opaque
};

#endif
