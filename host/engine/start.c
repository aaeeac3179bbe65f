// SPDX-License-Identifier: Apache-2.0
// A worker from its loaded model to its first step: size of the KV cache, warm-up.
#include "engine/engine_private.h"

#include "base/log.h"

// What the layers' caches cost, and how many tokens a block of them holds.
typedef struct cache_shape {
    uint64_t block_bytes; // over all layers; 0: none has keys and values
    uint64_t slot_bytes;  // over all layers; 0: none keeps a state
    int64_t block_size;
} cache_shape;

// A worker may be a plugin's own: what it says is divided by.
static berth_status check_spec(const berth_kv_cache_spec *spec) {
    const char *layer = spec->layer ? spec->layer : "?";
    const uint32_t group = spec->is_state ? BERTH_GROUP_SLOTS : BERTH_GROUP_BLOCKS;
    if (spec->group != group) {
        return BERTH_FAIL(UNSUPPORTED,
                          "the worker's cache of layer '%s' is in group %u; all caches are in "
                          "group %d, all states in group %d",
                          layer, (unsigned)spec->group, BERTH_GROUP_BLOCKS, BERTH_GROUP_SLOTS);
    }
    if (spec->page_bytes == 0 || (!spec->is_state && spec->block_size < 1)) {
        return BERTH_FAIL(INTERNAL,
                          "the worker's cache of layer '%s' has blocks of %lld tokens and %llu "
                          "bytes; get_kv_cache_spec must fill in every spec that it counts",
                          layer, (long long)spec->block_size, (unsigned long long)spec->page_bytes);
    }
    return BERTH_OK;
}

static void add_spec(cache_shape *shape, const berth_kv_cache_spec *spec) {
    if (spec->is_state) {
        shape->slot_bytes += spec->page_bytes;
    } else {
        shape->block_bytes += spec->page_bytes;
        shape->block_size = spec->block_size;
    }
}

static berth_status read_specs(berth_worker *worker, cache_shape *out) {
    uint64_t count = 0;
    BERTH_TRY(berth_worker_get_kv_cache_spec(worker, NULL, 0, &count));
    if (count > BERTH_CONFIG_LAYER_MAX) {
        return BERTH_FAIL(INTERNAL, "the worker has caches of %llu layers, the limit is %lld",
                          (unsigned long long)count, (long long)BERTH_CONFIG_LAYER_MAX);
    }
    berth_array(berth_kv_cache_spec) specs = {0};
    berth_array(berth_kv_cache_spec *) pointers = {0};
    berth_status status = BERTH_OK;
    for (uint64_t i = 0; i < count && status == BERTH_OK; ++i) {
        status =
            berth_array_push(&specs, (berth_kv_cache_spec){.size = sizeof(berth_kv_cache_spec)});
    }
    for (uint64_t i = 0; i < count && status == BERTH_OK; ++i) {
        status = berth_array_push(&pointers, &specs.data[i]);
    }
    if (status == BERTH_OK) {
        status = berth_worker_get_kv_cache_spec(worker, pointers.data, count, &count);
    }
    for (uint64_t i = 0; i < specs.count && status == BERTH_OK; ++i) {
        status = check_spec(&specs.data[i]);
        add_spec(out, &specs.data[i]);
    }
    berth_array_free(&pointers);
    berth_array_free(&specs);
    return status;
}

// As many blocks as can ever be used, if the memory has them; never fewer than one full sequence
// needs.
static berth_status choose_blocks(const berth_config *config, const cache_shape *shape,
                                  int64_t max_model_len, uint64_t available, int64_t *out_blocks) {
    const int64_t per_sequence = (max_model_len + shape->block_size - 1) / shape->block_size;
    const int64_t needed = per_sequence + 1; // and the null block
    const int64_t useful = per_sequence * config->max_num_seqs + 1;
    const uint64_t fitting = available / shape->block_bytes;
    int64_t blocks = fitting < (uint64_t)useful ? (int64_t)fitting : useful;
    if (config->kv_cache_blocks > 0) {
        blocks = config->kv_cache_blocks;
    }
    if (blocks < needed) {
        return BERTH_FAIL(OUT_OF_MEMORY,
                          "KV cache: one sequence of %lld tokens needs %lld blocks of %llu bytes, "
                          "there are %lld (%llu bytes free): lower --max-model-len, or raise "
                          "--memory-utilization or --kv-cache-blocks",
                          (long long)max_model_len, (long long)needed,
                          (unsigned long long)shape->block_bytes, (long long)blocks,
                          (unsigned long long)available);
    }
    *out_blocks = blocks;
    return BERTH_OK;
}

// A slot for every sequence that may run, if the memory has them: half of it where there are
// blocks, too.
static berth_status choose_slots(const berth_config *config, const cache_shape *shape,
                                 uint64_t available, int64_t *out_slots) {
    const uint64_t share = shape->block_bytes > 0 ? available / 2 : available;
    const uint64_t fitting = share / shape->slot_bytes;
    const int64_t useful = config->max_num_seqs + 1; // and the null slot
    *out_slots = fitting < (uint64_t)useful ? (int64_t)fitting : useful;
    return *out_slots >= 2
               ? BERTH_OK
               : BERTH_FAIL(OUT_OF_MEMORY,
                            "states of one sequence need 2 slots of %llu bytes, %llu "
                            "bytes are for them: raise --memory-utilization",
                            (unsigned long long)shape->slot_bytes, (unsigned long long)share);
}

// Without keys and values a block is only a number: one of them holds the longest sequence.
static void count_sequences(const berth_engine *engine, const berth_config *config,
                            cache_shape *shape, berth_kv_cache_config *out) {
    shape->block_size = engine->max_model_len;
    out->num_blocks = config->max_num_seqs + 1;
}

static berth_status size_cache(const berth_engine *engine, const berth_config *config,
                               cache_shape *shape, berth_kv_cache_config *out) {
    uint64_t available = 0;
    *out = (berth_kv_cache_config){.size = sizeof *out};
    BERTH_TRY(read_specs(engine->worker, shape));
    BERTH_TRY(berth_worker_available_memory(engine->worker, &available));
    if (shape->slot_bytes > 0) {
        BERTH_TRY(choose_slots(config, shape, available, &out->state_slots));
        available -= (uint64_t)out->state_slots * shape->slot_bytes;
        out->group_count = BERTH_GROUP_SLOTS + 1;
        BERTH_INFO("engine", "states of %lld sequences, %llu bytes",
                   (long long)out->state_slots - 1,
                   (unsigned long long)((uint64_t)out->state_slots * shape->slot_bytes));
    }
    if (shape->block_bytes == 0) {
        count_sequences(engine, config, shape, out);
        return BERTH_OK;
    }
    out->group_count = shape->slot_bytes > 0 ? out->group_count : BERTH_GROUP_BLOCKS + 1;
    BERTH_TRY(choose_blocks(config, shape, engine->max_model_len, available, &out->num_blocks));
    BERTH_INFO("engine", "KV cache of %lld blocks, %lld tokens, %llu bytes",
               (long long)out->num_blocks, (long long)(out->num_blocks * shape->block_size),
               (unsigned long long)((uint64_t)out->num_blocks * shape->block_bytes));
    return BERTH_OK;
}

static berth_status create_pools(berth_engine *engine, const berth_config *config,
                                 const cache_shape *shape, const berth_kv_cache_config *cache) {
    BERTH_TRY(berth_pool_init(&engine->pool, cache->num_blocks, shape->block_size, engine->arena));
    if (cache->state_slots > 0) {
        return berth_slots_init(&engine->slots, cache->state_slots, engine->arena);
    }
    // Why not beside states: a prefix's blocks without the state behind them are of no use.
    return config->enable_prefix_caching && shape->block_bytes > 0
               ? berth_prefix_init(&engine->pool, engine->arena)
               : BERTH_OK;
}

berth_status berth_engine_start(berth_engine *engine, const berth_config *config) {
    berth_worker *worker = engine->worker;
    cache_shape shape = {.block_size = config->block_size};
    berth_kv_cache_config cache;
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(worker, &model));
    engine->max_model_len = model.max_model_len;
    engine->vocab_size = model.vocab_size;
    BERTH_TRY(size_cache(engine, config, &shape, &cache));
    BERTH_TRY(berth_worker_initialize_cache(worker, &cache));
    BERTH_TRY(berth_worker_warm_up(worker));
    return create_pools(engine, config, &shape, &cache);
}
