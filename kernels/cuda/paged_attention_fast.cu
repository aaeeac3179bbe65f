// SPDX-License-Identifier: Apache-2.0
// paged_attention on CUDA's tensor cores: 16-bit types, heads of 64 or 128, blocks of 16, 32,
// 64 … tokens. Decode stores the new key and value itself; where a sequence has several new tokens,
// all are stored first. Caches are of the same type or of f8_e4m3fn; others, alibi and chunks are
// left to gpu.paged_attention.
#include <cuda/attention/attention.h>

namespace {

enum { QUERY, KEY, VALUE, SINKS, ALIBI_SLOPES };

berth_status no(const berth_op_site *site, const char *why) {
    return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why);
}

berth_status make_room(cuda_attention *self) {
    const uint64_t pairs =
        static_cast<uint64_t>(self->max_sequences) * static_cast<uint64_t>(self->kv_heads);
    void *arrivals = nullptr;
    const berth_status status = gpu_keep(self, nullptr, pairs * sizeof(int), &arrivals);
    self->room.arrivals = static_cast<int *>(arrivals);
    return status;
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

bool is_plain(const gpu_attention_call &call, const berth_op_args *args) {
    return args->batch->max_query_len == 1 && call.tokens == call.sequences && call.slots;
}

berth_status run_fast(const cuda_attention *op, const gpu_attention_call &call,
                      const berth_op_args *args, const cuda_decode_room &room) {
    const berth_dtype dtype = args->inputs[QUERY]->dtype;
    const int longest = static_cast<int>(args->batch->max_query_len);
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

berth_status supports(const berth_op_site *site, const berth_device *device) {
    return cuda_attention_check(site, device);
}

void destroy(void *self) {
    cuda_attention_free(static_cast<cuda_attention *>(self));
    gpu_destroy(self);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<cuda_attention>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    status = cuda_attention_read(site, device, static_cast<cuda_attention *>(*out_self));
    if (status != BERTH_OK) {
        destroy(*out_self);
    }
    return status;
}

uint64_t workspace(void *self, uint64_t) {
    return cuda_attention_bytes(static_cast<const cuda_attention *>(self));
}

berth_status forward(void *self, const berth_op_args *args) {
    const cuda_attention *op = static_cast<const cuda_attention *>(self);
    gpu_attention_call call;
    const berth_status status = gpu_attention_begin(op, args, &call);
    return status == BERTH_OK ? cuda_attention_run(op, call, args, nullptr) : status;
}

} // namespace

berth_status cuda_attention_check(const berth_op_site *site, const berth_device *device) {
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

berth_status cuda_attention_read(const berth_op_site *site, const berth_device *device,
                                 cuda_attention *self) {
    gpu_attention_read(site, self);
    self->multiprocessors = self->gpu->multiprocessors[device->index];
    self->max_sequences = static_cast<int>(site->max_sequences);
    self->heads = static_cast<int>(site->inputs[QUERY]->dims[1].b);
    self->kv_heads = static_cast<int>(site->inputs[KEY]->dims[1].b);
    self->width = static_cast<int>(site->inputs[QUERY]->dims[2].b);
    self->encode =
        self->gpu->groups[device->index] && self->width == 128 ? cuda_find_tile_encode() : nullptr;
    return make_room(self);
}

void cuda_attention_free(const cuda_attention *self) {
    (void)gpuFree(self->room.arrivals);
}

uint64_t cuda_attention_bytes(const cuda_attention *self) {
    return cuda_decode_bytes(self->multiprocessors, self->max_sequences, self->heads,
                             self->kv_heads, self->width);
}

int cuda_attention_is_decode(const gpu_attention_call &call, const berth_op_args *args) {
    return is_plain(call, args) && is_fast(call, args->inputs[QUERY]->dtype);
}

berth_status cuda_attention_run(const cuda_attention *op, const gpu_attention_call &call,
                                const berth_op_args *args, const cuda_decode_turn *turn) {
    const berth_dtype dtype = args->inputs[QUERY]->dtype;
    if (call.tokens == 0) {
        return BERTH_OK;
    }
    if (is_fast(call, dtype)) {
        cuda_decode_room room = op->room;
        room.parts = static_cast<float *>(berth_gpu_data(args->workspace));
        room.splits = cuda_decode_splits(op->multiprocessors, call.sequences, call.kv_heads);
        room.is_plain = is_plain(call, args);
        room.turn = turn ? *turn : cuda_decode_turn{};
        return run_fast(op, call, args, room);
    }
    const berth_status status = gpu_attention_store(op, call, dtype);
    return status == BERTH_OK ? gpu_attention_run(op, call, dtype) : status;
}

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
