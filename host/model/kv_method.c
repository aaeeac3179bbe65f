// SPDX-License-Identifier: Apache-2.0
// Input: the cache that an attention layer declares, the scheme of the checkpoint, the user's wish.
// Output: of which type the cache is, and the scales of its codes. The only place that calls
// methods of caches before weights are loaded.
#include <string.h>

#include "base/log.h"
#include "model/building.h"

#define WANTED "fp8_e4m3" // the one type that --kv-cache-dtype knows, by either name

// ---- which method -------------------------------------------------------------------------------

static berth_status describe(const berth_building *building, const berth_kv_cache *cache,
                             berth_processing **out) {
    berth_processing *own = BERTH_ARENA_NEW(building->arena, berth_processing);
    if (own == NULL) {
        return berth_arena_exhausted(building->arena, "layers");
    }
    own->cache = *cache;
    own->cache.layer = berth_arena_strdup(building->arena, cache->layer);
    if (own->cache.layer == NULL) {
        return berth_arena_exhausted(building->arena, "layers");
    }
    own->name = own->cache.layer;
    own->kv_layer = (berth_kv_cache_layer){
        .size = sizeof own->kv_layer,
        .cache = &own->cache,
        .config = building->quant_config,
        .wanted = building->config->kv_cache_dtype == 0 ? NULL : WANTED,
    };
    *out = own;
    return BERTH_OK;
}

static berth_status ask(const berth_building *building, const berth_quant_entry *entry,
                        berth_processing *layer, const berth_kv_cache_method **out_method) {
    *out_method = NULL;
    if (entry == NULL || !BERTH_HAS(&entry->config, get_kv_cache_method)) {
        return BERTH_OK;
    }
    layer->scheme = entry;
    layer->kv_layer.is_unquantized = 0;
    berth_plugin_enter(entry->owner, "get_kv_cache_method");
    *out_method = entry->config.get_kv_cache_method(building->face.host, &layer->kv_layer);
    const bool is_answer = *out_method != NULL || layer->kv_layer.is_unquantized != 0;
    const berth_status status = berth_plugin_leave(is_answer ? BERTH_OK : BERTH_UNSUPPORTED);
    if (status != BERTH_OK) {
        berth_processing_note(layer, "building");
    }
    return status;
}

static berth_status check_method(const berth_processing *layer,
                                 const berth_kv_cache_method *method) {
    const char *missing = !BERTH_HAS(method, name)             ? "name"
                          : !BERTH_HAS(method, create_weights) ? "create_weights"
                                                               : NULL;
    return missing == NULL
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL,
                            "plugin %s: berth_kv_cache_method of scheme '%s' for layer '%s': the "
                            "required slot '%s' is not set",
                            layer->scheme->owner->id, layer->scheme->config.name, layer->name,
                            missing);
}

// The scheme's, else that of what is not quantized; name NULL: nobody has one.
static berth_status get_method(const berth_building *building, berth_processing *layer) {
    const berth_kv_cache_method *method = NULL;
    BERTH_TRY(ask(building, building->quantization, layer, &method));
    if (method == NULL) {
        BERTH_TRY(ask(building, berth_quantization_plain(building->registry), layer, &method));
    }
    if (method == NULL) {
        return layer->kv_layer.wanted == NULL
                   ? BERTH_OK
                   : BERTH_FAIL(UNSUPPORTED,
                                "layer '%s': no plugin has a method for a cache in %s; use "
                                "--kv-cache-dtype auto",
                                layer->name, layer->kv_layer.wanted);
    }
    BERTH_TRY(check_method(layer, method));
    memcpy(&layer->kv_method, method,
           method->size < sizeof layer->kv_method ? method->size : sizeof layer->kv_method);
    layer->kv_method.size = sizeof layer->kv_method;
    return BERTH_OK;
}

// ---- what it declares ---------------------------------------------------------------------------

static berth_status find_dtype(const berth_processing *layer, berth_dtype *out) {
    const berth_kv_cache_method *method = &layer->kv_method;
    if (method->name == NULL || method->dtype == NULL) {
        return BERTH_OK;
    }
    *out = berth_dtype_find(berth_str_from(method->dtype));
    if (BERTH_DTYPE_BITS(*out) != 8) {
        return BERTH_FAIL(INTERNAL, "plugin %s: method '%s': '%s' is no type of one byte",
                          layer->scheme->owner->id, method->name, method->dtype);
    }
    return layer->cache.is_latent == 0
               ? BERTH_OK
               : BERTH_FAIL(UNSUPPORTED,
                            "layer '%s': a cache of latent rows (MLA) cannot be kept in %s, as "
                            "scheme '%s' would have it",
                            layer->name, method->dtype, layer->scheme->config.name);
}

static berth_status create_weights(berth_building *building, berth_processing *layer,
                                   berth_value scales[2]) {
    building->processing = layer;
    berth_plugin_enter(layer->scheme->owner, "create_weights");
    layer->kv_method.create_weights(&building->face, &layer->kv_layer, scales);
    const berth_status status = berth_plugin_leave(BERTH_OK);
    building->processing = NULL;
    if (status != BERTH_OK || berth_graph_has_failed(building->graph)) {
        return status;
    }
    const bool has_scales = scales[0] != BERTH_VALUE_NONE && scales[1] != BERTH_VALUE_NONE;
    if (layer->kv_method.dtype != NULL && !has_scales) {
        return BERTH_FAIL(INTERNAL, "plugin %s: method '%s' gives layer '%s' codes and no scales",
                          layer->scheme->owner->id, layer->kv_method.name, layer->name);
    }
    return layer->made_count == 0 || layer->kv_method.process_weights_after_loading != NULL
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL,
                            "plugin %s: berth_kv_cache_method '%s' declares parameters that are "
                            "made, and process_weights_after_loading is not set",
                            layer->scheme->owner->id, layer->kv_method.name);
}

// ---- entry points -------------------------------------------------------------------------------

berth_status berth_kv_method_choose(berth_building *building, const berth_kv_cache *cache,
                                    berth_dtype *out_dtype) {
    berth_processing *layer = NULL;
    berth_value scales[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    *out_dtype = building->activation;
    BERTH_TRY(describe(building, cache, &layer));
    BERTH_TRY(get_method(building, layer));
    BERTH_TRY(find_dtype(layer, out_dtype));
    if (layer->kv_method.name == NULL) {
        return BERTH_OK;
    }
    BERTH_TRY(create_weights(building, layer, scales));
    return layer->kv_method.dtype == NULL
               ? BERTH_OK
               : berth_array_push(&building->kv_codes, (berth_kv_codes){
                                                           .layer = layer,
                                                           .scales = {scales[0], scales[1]},
    });
}

berth_value berth_kv_method_scale(const berth_building *building, const char *layer,
                                  uint64_t state) {
    for (size_t i = 0; i < building->kv_codes.count && state < 2; ++i) {
        if (strcmp(building->kv_codes.data[i].layer->name, layer) == 0) {
            return building->kv_codes.data[i].scales[state];
        }
    }
    return BERTH_VALUE_NONE;
}

static bool has_stored(const berth_processing *layer) {
    bool has = false;
    for (size_t i = 0; i < layer->stored_count; ++i) {
        has = has || layer->stored[i]->piece_count > 0;
    }
    return has;
}

void berth_kv_method_report(const berth_building *building) {
    size_t without = 0;
    for (size_t i = 0; i < building->kv_codes.count; ++i) {
        without += !has_stored(building->kv_codes.data[i].layer);
    }
    if (without > 0) {
        const berth_processing *first = building->kv_codes.data[0].layer;
        BERTH_WARN("model", "%zu of %zu KV caches in %s have no scales in the checkpoint: %s",
                   without, building->kv_codes.count, first->kv_method.dtype,
                   first->kv_method.name);
    }
}
