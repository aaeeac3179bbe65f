// SPDX-License-Identifier: Apache-2.0
// paged_attention on CUDA's tensor cores: 16-bit types, heads of 64 or 128, blocks of 16, 32,
// 64 … tokens. Decode stores the new key and value itself; where a sequence has several new tokens,
// all are stored first. Caches are of the same type or of f8_e4m3fn; others, alibi and chunks are
// left to gpu.paged_attention.
#include <cuda/attention/attention.h>

namespace {

enum { QUERY, KEY, VALUE, SINKS, ALIBI_SLOPES };

struct fast_attention : gpu_attention {
    cuda_decode_room room;
    int multiprocessors;
    int max_sequences;
    int heads;
    int kv_heads;
    int width;
    cuda_tile_encode encode; // NULL: prefill without groups
};

berth_status no(const berth_op_site *site, const char *why) {
    return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why);
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    const berth_value_type *query = site->inputs[QUERY];
    const berth_value_type *key = site->inputs[KEY];
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    const int64_t width = query->dims[2].b;
    if (gpu->multiprocessors[device->index] == 0) {
        return no(site, "the device is not open");
    }
    if (query->dtype != BERTH_DTYPE_BF16 && query->dtype != BERTH_DTYPE_F16) {
        return no(site, "only bf16 and f16");
    }
    if (width != 64 && width != 128) {
        return no(site, "only heads of 64 and 128 elements");
    }
    if (!key || site->inputs[ALIBI_SLOPES]) {
        return no(site, "no alibi, and no cache that is only read");
    }
    const berth_attribute *chunk = berth_site_attribute(site, "chunk_size");
    if (chunk && chunk->kind != BERTH_ATTRIBUTE_NONE) {
        return no(site, "no chunks");
    }
    if (query->dims[1].b / key->dims[1].b > CUDA_DECODE_HEADS) {
        return no(site, "more query heads to a key head than fit into a product");
    }
    if (!(berth_site_attribute(site, "scale")->f64 > 0)) {
        return no(site, "only a scale above 0");
    }
    const uint64_t block = site->block_size;
    return block >= 16 && (block & (block - 1)) == 0
               ? gpu_attention_check(site)
               : no(site, "only blocks of 16, 32, 64 … tokens");
}

berth_status make_room(fast_attention *self) {
    const uint64_t pairs =
        static_cast<uint64_t>(self->max_sequences) * static_cast<uint64_t>(self->kv_heads);
    void *arrivals = nullptr;
    const berth_status status = gpu_keep(self, nullptr, pairs * sizeof(int), &arrivals);
    self->room.arrivals = static_cast<int *>(arrivals);
    return status;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<fast_attention>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    fast_attention *self = static_cast<fast_attention *>(*out_self);
    gpu_attention_read(site, self);
    self->multiprocessors = self->gpu->multiprocessors[device->index];
    self->max_sequences = static_cast<int>(site->max_sequences);
    self->heads = static_cast<int>(site->inputs[QUERY]->dims[1].b);
    self->kv_heads = static_cast<int>(site->inputs[KEY]->dims[1].b);
    self->width = static_cast<int>(site->inputs[QUERY]->dims[2].b);
    self->encode =
        self->gpu->groups[device->index] && self->width == 128 ? cuda_find_tile_encode() : nullptr;
    status = make_room(self);
    if (status != BERTH_OK) {
        gpu_destroy(self);
    }
    return status;
}

void destroy(void *self) {
    (void)gpuFree(static_cast<fast_attention *>(self)->room.arrivals);
    gpu_destroy(self);
}

uint64_t workspace(void *self, uint64_t) {
    const fast_attention *op = static_cast<const fast_attention *>(self);
    return cuda_decode_bytes(op->multiprocessors, op->max_sequences, op->heads, op->kv_heads,
                             op->width);
}

// Whether the fast kernels take what the call's memory looks like.
bool is_fast(const gpu_attention_call &call, berth_dtype dtype) {
    const bool has_codes = call.cache_dtype == BERTH_DTYPE_F8_E4M3FN;
    return (call.cache_dtype == dtype || has_codes) && gpu_is_aligned(call.query) &&
           gpu_is_aligned(call.key) && gpu_is_aligned(call.value) && gpu_is_aligned(call.out) &&
           (reinterpret_cast<uintptr_t>(call.key_cache) |
            reinterpret_cast<uintptr_t>(call.value_cache)) %
                   16 ==
               0;
}

berth_status run_fast(const fast_attention *op, const gpu_attention_call &call,
                      const berth_op_args *args, berth_dtype dtype) {
    const int longest = static_cast<int>(args->batch->max_query_len);
    cuda_decode_room room = op->room;
    room.parts = static_cast<float *>(berth_gpu_data(args->workspace));
    room.splits = cuda_decode_splits(op->multiprocessors, call.sequences, call.kv_heads);
    room.is_plain = longest == 1 && call.tokens == call.sequences && call.slots;
    if (room.is_plain) {
        return cuda_decode(op, call, room, dtype);
    }
    berth_status status = gpu_attention_store(op, call, dtype);
    if (status == BERTH_OK && longest > 1) {
        const cuda_prefill_call prefill = {&call, longest, op->encode};
        status = op->encode && call.cache_dtype == dtype ? cuda_prefill_group(op, prefill, dtype)
                                                         : cuda_prefill(op, call, longest, dtype);
    }
    if (status != BERTH_OK || (longest > 1 && call.sequences == 1)) {
        return status;
    }
    return cuda_decode(op, call, room, dtype);
}

berth_status forward(void *self, const berth_op_args *args) {
    const fast_attention *op = static_cast<const fast_attention *>(self);
    const berth_dtype dtype = args->inputs[QUERY]->dtype;
    gpu_attention_call call;
    berth_status status = gpu_attention_begin(op, args, &call);
    if (status != BERTH_OK || call.tokens == 0) {
        return status;
    }
    if (is_fast(call, dtype)) {
        return run_fast(op, call, args, dtype);
    }
    status = gpu_attention_store(op, call, dtype);
    return status == BERTH_OK ? gpu_attention_run(op, call, dtype) : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_paged_attention_fast;
const berth_op_impl berth_kernel_paged_attention_fast = {
    .size = sizeof(berth_op_impl),
    .op = "paged_attention",
    .name = "cuda.paged_attention",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 4,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
};
}
