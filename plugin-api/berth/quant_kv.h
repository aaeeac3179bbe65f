// SPDX-License-Identifier: Apache-2.0
// Quantized KV caches: how a scheme has the keys and values of an attention layer kept, as codes of
// one byte times a scale. From ABI 1.1 on.
//
// The method of a layer's cache is asked for when the layer declares the cache; the host makes the
// cache of the method's type, and the layer hands the scales to the op that uses it
// (berth_builder.kv_scale). Quantizing what enters and reading what is there is the op's.
#ifndef BERTH_QUANT_KV_H
#define BERTH_QUANT_KV_H

#include <berth/builder.h>

// The attention layer that a scheme is asked about.
typedef struct berth_kv_cache_layer {
    uint64_t size;
    const berth_kv_cache *cache;
    const berth_json *config; // the document that the scheme recognised, as in berth_quant_layer
    const char *wanted;       // --kv-cache-dtype: "fp8_e4m3"; NULL: as the checkpoint has it
    // get_kv_cache_method sets it and returns NULL: the scheme has nothing to say about this cache.
    uint64_t is_unquantized;
} berth_kv_cache_layer;

typedef struct berth_kv_cache_method {
    uint64_t size;
    const char *name;  // [required] for reports
    const char *dtype; // of the codes, "f8_e4m3fn"; NULL: the cache is of the activations' type
    // [required][startup] Declares the layer's parameters (names begin with cache->layer, or with
    // that of a module around it) and writes the scales of keys and values, f32 [1] each; without
    // a dtype none.
    void (*create_weights)(berth_builder *builder, const berth_kv_cache_layer *layer,
                           berth_value scales[2]);
    // [inherit][startup] As of berth_quant_method.
    berth_status (*process_weights_after_loading)(const berth_host *host,
                                                  const berth_kv_cache_layer *layer,
                                                  const berth_tensor *const *stored,
                                                  const berth_tensor *const *made);
} berth_kv_cache_method;

#endif
