// SPDX-License-Identifier: Apache-2.0
// Attention backends: implementations of the op `paged_attention` that also say how the KV cache
// lies.
//
// A platform chooses one per layer (platform.h, get_attn_backend). The bound function is the
// backend's `impl`; its dispatch key is not looked at.
#ifndef BERTH_ATTENTION_H
#define BERTH_ATTENTION_H

#include <berth/op.h>

// What a layer asks of a backend.
typedef struct berth_attention_query {
    uint64_t size;
    const char *layer;
    int64_t num_heads;
    int64_t num_kv_heads;
    int64_t head_size;
    int64_t block_size;     // tokens per block
    int64_t sliding_window; // 0: none
    berth_dtype dtype;      // of the query
    berth_dtype kv_dtype;   // of the cache
} berth_attention_query;

typedef struct berth_attention_backend {
    uint64_t size;
    const char *name;          // [required]
    const berth_op_impl *impl; // [required] of "paged_attention"
    // [inherit][startup] BERTH_UNSUPPORTED with a text gives the reason to pass this backend over.
    berth_status (*validate)(const berth_host *host, const berth_attention_query *query);
    // [inherit][startup] Elements of one cache state (0 keys, 1 values): writes up to
    // BERTH_MAX_DIMS extents. NULL: [num_blocks, block_size, num_kv_heads, head_size].
    berth_status (*kv_cache_shape)(const berth_attention_query *query, uint64_t state,
                                   int64_t num_blocks, int64_t *out_shape, uint64_t *out_ndim);
} berth_attention_backend;

#endif
