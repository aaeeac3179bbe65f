// SPDX-License-Identifier: Apache-2.0
// A worker from its loaded model to its first step: size of the KV cache, warm-up.
#include "engine/engine_private.h"

#include <stdio.h>

#include "base/log.h"

// What the layers keep of one sequence as a whole, and how the rest is cut.
typedef struct cache_shape {
    uint64_t slot_bytes;  // over all layers; 0: none keeps a state
    uint64_t block_bytes; // of one block of every group; 0: none has keys and values
    int64_t block_size;
    int64_t longest; // blocks of the longest sequence
} cache_shape;

#define NUMBERS_MAX (INT64_C(1) << 20) // of blocks that are only numbers

// ---- groups -------------------------------------------------------------------------------------

// A worker may be a plugin's own: what it says is divided by.
static berth_status check_spec(const berth_kv_cache_spec *spec) {
    const char *layer = spec->layer ? spec->layer : "?";
    const bool is_known = spec->is_state ? spec->group == BERTH_CACHE_GROUP_STATES
                                         : spec->group != BERTH_CACHE_GROUP_STATES;
    if (!is_known || spec->group >= BERTH_CACHE_GROUPS_MAX) {
        return BERTH_FAIL(UNSUPPORTED,
                          "the worker's cache of layer '%s' is in group %u; all states are in "
                          "group %u, and the others in the rest of the %u",
                          layer, (unsigned)spec->group, BERTH_CACHE_GROUP_STATES,
                          BERTH_CACHE_GROUPS_MAX);
    }
    if (spec->page_bytes == 0 || spec->sliding_window < 0 || spec->chunk_size < 0 ||
        (!spec->is_state && spec->block_size < 1)) {
        return BERTH_FAIL(INTERNAL,
                          "the worker's cache of layer '%s' has blocks of %lld tokens and %llu "
                          "bytes; get_kv_cache_spec must fill in every spec that it counts",
                          layer, (long long)spec->block_size, (unsigned long long)spec->page_bytes);
    }
    return BERTH_OK;
}

// A group keeps what that one of its layers needs which sees furthest.
static void widen(berth_token_group *group, int64_t window, int64_t chunk) {
    const bool has_windows = group->window > 0 && window > 0;
    if (group->window != window || group->chunk != chunk) {
        group->window = !has_windows ? 0 : window > group->window ? window : group->window;
        group->chunk = 0;
    }
}

static berth_status add_tokens(berth_engine *engine, cache_shape *shape,
                               const berth_kv_cache_spec *spec) {
    berth_token_groups *groups = &engine->groups;
    // Who sees that far sees all there is.
    const int64_t window = spec->sliding_window < engine->max_model_len ? spec->sliding_window : 0;
    const int64_t chunk =
        window == 0 && spec->chunk_size < engine->max_model_len ? spec->chunk_size : 0;
    if (shape->block_bytes > 0 && spec->block_size != shape->block_size) {
        return BERTH_FAIL(UNSUPPORTED,
                          "the worker's cache of layer '%s' has blocks of %lld tokens, that of "
                          "another layer of %lld; one size for all is needed",
                          spec->layer ? spec->layer : "?", (long long)spec->block_size,
                          (long long)shape->block_size);
    }
    size_t at = 1; // the first place is left to the group that keeps all tokens
    while (at < groups->count && groups->all[at].number != spec->group) {
        ++at;
    }
    berth_token_group *group = &groups->all[at];
    if (at == groups->count) {
        *group = (berth_token_group){.number = spec->group, .window = window, .chunk = chunk};
        ++groups->count;
    }
    widen(group, window, chunk);
    group->block_bytes += spec->page_bytes;
    shape->block_bytes += spec->page_bytes;
    shape->block_size = spec->block_size;
    return BERTH_OK;
}

static berth_status add_spec(berth_engine *engine, cache_shape *shape,
                             const berth_kv_cache_spec *spec) {
    BERTH_TRY(check_spec(spec));
    if (spec->is_state) {
        shape->slot_bytes += spec->page_bytes;
        return BERTH_OK;
    }
    return add_tokens(engine, shape, spec);
}

// The one that keeps all tokens goes to the first place. Without one that is a group of numbers.
static void order_groups(berth_engine *engine, cache_shape *shape) {
    berth_token_groups *groups = &engine->groups;
    const int64_t step = engine->chunk < engine->max_tokens ? engine->chunk : engine->max_tokens;
    groups->all[0] = (berth_token_group){.number = BERTH_CACHE_GROUPS_MAX};
    // Without keys and values a block is only a number: one of them holds the longest sequence.
    shape->block_size = groups->count > 1 ? shape->block_size : engine->max_model_len;
    for (size_t i = 1; i < groups->count; ++i) {
        if (groups->all[i].window == 0 && groups->all[i].chunk == 0) {
            groups->all[0] = groups->all[i];
            groups->all[i] = groups->all[--groups->count];
            break;
        }
    }
    const int64_t size = shape->block_size;
    shape->longest = (engine->max_model_len + size - 1) / size;
    for (size_t i = 0; i < groups->count; ++i) {
        berth_token_group *group = &groups->all[i];
        const int64_t seen = group->window > 0 ? group->window : group->chunk;
        // What the first token of a step sees, and the step; both ends may cut a block.
        const int64_t most = (seen - 1 + step + size - 1) / size + 1;
        group->most = seen > 0 && most < shape->longest ? most : shape->longest;
    }
}

static berth_status read_specs(berth_engine *engine, cache_shape *out) {
    berth_worker *worker = engine->worker;
    uint64_t count = 0;
    BERTH_TRY(berth_worker_get_kv_cache_spec(worker, NULL, 0, &count));
    if (count > BERTH_CONFIG_LAYER_MAX) {
        return BERTH_FAIL(INTERNAL, "the worker has caches of %llu layers, the limit is %lld",
                          (unsigned long long)count, (long long)BERTH_CONFIG_LAYER_MAX);
    }
    engine->groups.count = 1;
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
        status = add_spec(engine, out, &specs.data[i]);
    }
    order_groups(engine, out);
    berth_array_free(&pointers);
    berth_array_free(&specs);
    return status;
}

// ---- how many -----------------------------------------------------------------------------------

// Blocks for as many sequences as may run, if each has `each`; never fewer than the longest needs.
static int64_t blocks_for(const berth_token_group *group, int64_t each, int64_t sequences) {
    const int64_t held = each < group->most ? each : group->most;
    return (held * sequences > group->most ? held * sequences : group->most) + 1; // the null block
}

static uint64_t bytes_for(const berth_token_groups *groups, int64_t each, int64_t sequences) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < groups->count; ++i) {
        const berth_token_group *group = &groups->all[i];
        bytes += (uint64_t)blocks_for(group, each, sequences) * group->block_bytes;
    }
    return bytes;
}

static berth_status refuse_blocks(const berth_token_groups *groups, int64_t max_model_len,
                                  int64_t blocks, uint64_t available) {
    return BERTH_FAIL(OUT_OF_MEMORY,
                      "KV cache: one sequence of %lld tokens needs %lld blocks, %llu bytes over "
                      "all layers; there are %lld (%llu bytes free): lower --max-model-len, or "
                      "raise --memory-utilization or --kv-cache-blocks",
                      (long long)max_model_len, (long long)groups->all[0].most + 1,
                      (unsigned long long)bytes_for(groups, 1, 1), (long long)blocks,
                      (unsigned long long)available);
}

// What the user said: of every group, but no more than a group with a window can ever use.
static berth_status take_blocks(const berth_engine *engine, const berth_config *config,
                                uint64_t available, int64_t *out_blocks) {
    const berth_token_groups *groups = &engine->groups;
    const int64_t longest = groups->all[0].most;
    for (size_t i = 0; i < groups->count; ++i) {
        const berth_token_group *group = &groups->all[i];
        const int64_t useful = blocks_for(group, longest, config->max_num_seqs);
        out_blocks[i] =
            i > 0 && useful < config->kv_cache_blocks ? useful : config->kv_cache_blocks;
        if (group->block_bytes > 0 && out_blocks[i] < group->most + 1) {
            return refuse_blocks(groups, engine->max_model_len, out_blocks[i], available);
        }
    }
    return BERTH_OK;
}

// As many blocks as can ever be used, if the memory has them. Else those of sequences as long as
// they all can be at once; and what that leaves goes to the first group that has a use for it.
static berth_status choose_blocks(const berth_engine *engine, const berth_config *config,
                                  uint64_t available, int64_t *out_blocks) {
    const berth_token_groups *groups = &engine->groups;
    const int64_t sequences = config->max_num_seqs;
    const int64_t longest = groups->all[0].most;
    int64_t low = 0; // its blocks fit
    int64_t high = longest;
    if (bytes_for(groups, 0, sequences) > available) {
        const uint64_t each = bytes_for(groups, 1, 1) / (uint64_t)(longest + 1);
        return refuse_blocks(groups, engine->max_model_len, (int64_t)(available / each), available);
    }
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        const bool fits = bytes_for(groups, middle, sequences) <= available;
        low = fits ? middle : low;
        high = fits ? high : middle - 1;
    }
    uint64_t left = available - bytes_for(groups, low, sequences);
    for (size_t i = 0; i < groups->count; ++i) {
        const berth_token_group *group = &groups->all[i];
        const int64_t useful = blocks_for(group, longest, sequences);
        out_blocks[i] = blocks_for(group, low, sequences);
        if (group->block_bytes > 0) {
            const uint64_t more = left / group->block_bytes;
            const uint64_t wanted = (uint64_t)(useful - out_blocks[i]);
            out_blocks[i] += (int64_t)(more < wanted ? more : wanted);
            left -= (more < wanted ? more : wanted) * group->block_bytes;
        }
    }
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

// Where no layer keeps all tokens, the first group's blocks are only numbers, and cost the host 100
// bytes each.
static int64_t count_numbers(const berth_token_group *first, const berth_config *config) {
    const int64_t useful = blocks_for(first, first->most, config->max_num_seqs);
    const int64_t most = first->most + 1 > NUMBERS_MAX ? first->most + 1 : NUMBERS_MAX;
    return useful < most ? useful : most;
}

static void report_group(const berth_token_group *group, int64_t blocks) {
    const int64_t seen = group->window > 0 ? group->window : group->chunk;
    if (group->block_bytes == 0) {
        return;
    }
    char what[64] = "";
    if (seen > 0) {
        (void)snprintf(what, sizeof what, " for %s of %lld",
                       group->window > 0 ? "windows" : "chunks", (long long)seen);
    }
    BERTH_INFO("engine", "KV cache%s of %lld blocks, %lld tokens, %llu bytes", what,
               (long long)blocks, (long long)(blocks * group->pool.block_size),
               (unsigned long long)((uint64_t)blocks * group->block_bytes));
}

static berth_status size_blocks(berth_engine *engine, const berth_config *config,
                                const cache_shape *shape, uint64_t available) {
    berth_token_groups *groups = &engine->groups;
    int64_t blocks[BERTH_CACHE_GROUPS_MAX + 1] = {0};
    if (shape->block_bytes > 0) {
        BERTH_TRY((config->kv_cache_blocks > 0 ? take_blocks : choose_blocks)(engine, config,
                                                                              available, blocks));
    }
    if (groups->all[0].block_bytes == 0) {
        blocks[0] = count_numbers(&groups->all[0], config);
    }
    for (size_t i = 0; i < groups->count; ++i) {
        groups->all[i].pool.block_size = shape->block_size;
        groups->all[i].pool.num_blocks = blocks[i];
        report_group(&groups->all[i], blocks[i]);
    }
    return BERTH_OK;
}

static berth_status size_cache(berth_engine *engine, const berth_config *config, cache_shape *shape,
                               int64_t *out_slots) {
    uint64_t available = 0;
    *out_slots = 0;
    BERTH_TRY(read_specs(engine, shape));
    BERTH_TRY(berth_worker_available_memory(engine->worker, &available));
    if (shape->slot_bytes > 0) {
        BERTH_TRY(choose_slots(config, shape, available, out_slots));
        available -= (uint64_t)*out_slots * shape->slot_bytes;
        BERTH_INFO("engine", "states of %lld sequences, %llu bytes", (long long)*out_slots - 1,
                   (unsigned long long)((uint64_t)*out_slots * shape->slot_bytes));
    }
    return size_blocks(engine, config, shape, available);
}

static berth_status create_cache(berth_engine *engine, int64_t slots) {
    int64_t blocks[BERTH_CACHE_GROUPS_MAX] = {[BERTH_CACHE_GROUP_STATES] = slots};
    berth_kv_cache_config cache = {
        .size = sizeof cache,
        .num_blocks = engine->groups.all[0].pool.num_blocks,
        .group_count = slots > 0 ? BERTH_CACHE_GROUP_STATES + 1 : 0,
        .state_slots = slots,
        .group_blocks = blocks,
    };
    for (size_t i = 0; i < engine->groups.count; ++i) {
        const berth_token_group *group = &engine->groups.all[i];
        if (group->block_bytes > 0) {
            const int64_t behind = (int64_t)group->number + 1;
            blocks[group->number] = group->pool.num_blocks;
            cache.group_count = behind > cache.group_count ? behind : cache.group_count;
            cache.num_blocks = group->number == 0 ? group->pool.num_blocks : cache.num_blocks;
        }
    }
    engine->group_count = (size_t)(cache.group_count > 0 ? cache.group_count : 1);
    return berth_worker_initialize_cache(engine->worker, &cache);
}

static berth_status create_pools(berth_engine *engine, const berth_config *config,
                                 const cache_shape *shape, int64_t slots) {
    for (size_t i = 0; i < engine->groups.count; ++i) {
        berth_block_pool *pool = &engine->groups.all[i].pool;
        BERTH_TRY(berth_pool_init(pool, pool->num_blocks, pool->block_size, engine->arena));
    }
    if (slots > 0) {
        return berth_slots_init(&engine->slots, slots, engine->arena);
    }
    // Why not beside states: a prefix's blocks without the state behind them are of no use.
    return config->enable_prefix_caching && shape->block_bytes > 0
               ? berth_prefix_init(&engine->groups, engine->arena)
               : BERTH_OK;
}

berth_status berth_engine_start(berth_engine *engine, const berth_config *config) {
    berth_worker *worker = engine->worker;
    cache_shape shape = {.block_size = config->block_size};
    int64_t slots = 0;
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(worker, &model));
    engine->max_model_len = model.max_model_len;
    engine->vocab_size = model.vocab_size;
    BERTH_TRY(size_cache(engine, config, &shape, &slots));
    BERTH_TRY(create_cache(engine, slots));
    BERTH_TRY(berth_worker_warm_up(worker));
    return create_pools(engine, config, &shape, slots);
}
