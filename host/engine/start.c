// SPDX-License-Identifier: Apache-2.0
// A worker from its loaded model to its first step: size of the KV cache, warm-up.
#include "engine/engine_private.h"

#include "base/log.h"

// What one block costs over all layers, and how many tokens it holds.
typedef struct cache_shape {
    uint64_t block_bytes;
    int64_t block_size;
    int64_t group_count;
} cache_shape;

// A worker may be a plugin's own: what it says is divided by.
static berth_status check_spec(const berth_kv_cache_spec *spec) {
    if (spec->group != 0) {
        return BERTH_FAIL(UNSUPPORTED,
                          "the worker's cache of layer '%s' is in group %u; all caches are in one "
                          "group, 0",
                          spec->layer ? spec->layer : "?", (unsigned)spec->group);
    }
    if (spec->page_bytes == 0 || spec->block_size < 1) {
        return BERTH_FAIL(INTERNAL,
                          "the worker's cache of layer '%s' has blocks of %lld tokens and %llu "
                          "bytes; get_kv_cache_spec must fill in every spec that it counts",
                          spec->layer ? spec->layer : "?", (long long)spec->block_size,
                          (unsigned long long)spec->page_bytes);
    }
    return BERTH_OK;
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
        out->block_bytes += specs.data[i].page_bytes;
        out->block_size = specs.data[i].block_size;
        out->group_count = 1;
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

static berth_status size_cache(const berth_engine *engine, const berth_config *config,
                               berth_kv_cache_config *out, int64_t *out_block_size) {
    berth_worker *worker = engine->worker;
    cache_shape shape = {.block_size = config->block_size};
    uint64_t available = 0;
    BERTH_TRY(read_specs(worker, &shape));
    BERTH_TRY(berth_worker_available_memory(worker, &available));
    *out_block_size = shape.block_size;
    *out = (berth_kv_cache_config){.size = sizeof *out, .num_blocks = 2};
    if (shape.group_count == 0) {
        return BERTH_OK; // a model without attention
    }
    out->group_count = shape.group_count;
    BERTH_TRY(choose_blocks(config, &shape, engine->max_model_len, available, &out->num_blocks));
    BERTH_INFO("engine", "KV cache of %lld blocks, %lld tokens, %llu bytes",
               (long long)out->num_blocks, (long long)(out->num_blocks * shape.block_size),
               (unsigned long long)((uint64_t)out->num_blocks * shape.block_bytes));
    return BERTH_OK;
}

berth_status berth_engine_start(berth_engine *engine, const berth_config *config) {
    berth_worker *worker = engine->worker;
    berth_kv_cache_config cache;
    int64_t block_size = 0;
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(worker, &model));
    engine->max_model_len = model.max_model_len;
    engine->vocab_size = model.vocab_size;
    BERTH_TRY(size_cache(engine, config, &cache, &block_size));
    BERTH_TRY(berth_worker_initialize_cache(worker, &cache));
    BERTH_TRY(berth_worker_warm_up(worker));
    BERTH_TRY(berth_pool_init(&engine->pool, cache.num_blocks, block_size, engine->arena));
    return config->enable_prefix_caching && cache.group_count > 0
               ? berth_prefix_init(&engine->pool, engine->arena)
               : BERTH_OK;
}
