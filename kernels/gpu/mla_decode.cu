// SPDX-License-Identifier: Apache-2.0
// mla_decode on a GPU: one query a sequence over a paged cache of latent rows (latent.h).
#include "latent_run.h"

namespace {

enum { QUERY, BLOCK_TABLE, SEQ_LENS };

struct decoder : gpu_op {
    uint64_t group; // of caches
    int64_t heads;
    int64_t latent;
    float scale;
};

berth_status supports(const berth_op_site *site, const berth_device *) {
    const int64_t latent = berth_site_attribute(site, "kv_lora_rank")->i64;
    return gpu_latent_check(site, latent, site->inputs[QUERY]->dims[2].b - latent);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<decoder>(site, device, out_self);
    if (status == BERTH_OK) {
        decoder *self = static_cast<decoder *>(*out_self);
        self->group = site->cache_group;
        self->heads = site->inputs[QUERY]->dims[1].b;
        self->latent = berth_site_attribute(site, "kv_lora_rank")->i64;
        self->scale = static_cast<float>(berth_site_attribute(site, "scale")->f64);
    }
    return status;
}

uint64_t workspace(void *self, uint64_t) {
    const decoder *op = static_cast<const decoder *>(self);
    return gpu_latent_bytes(op->heads, op->latent);
}

// Sequence i has row i of the query.
berth_status begin(const decoder *op, const berth_op_args *args, gpu_latent_call *all) {
    const berth_tensor *query = args->inputs[QUERY];
    const berth_batch_view *view = args->batch ? args->batch->device : nullptr;
    const berth_tensor *table = args->inputs[BLOCK_TABLE];
    const berth_tensor *lengths = args->inputs[SEQ_LENS];
    if (!table && !view) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_INVALID_ARGUMENT,
                                 "mla_decode: needs a batch or 'block_table' and 'seq_lens'");
    }
    table = table ? table : view->block_tables[op->group];
    lengths = lengths ? lengths : view->seq_lens;
    all->lengths = berth_gpu_data(lengths);
    all->lengths_dtype = lengths->dtype;
    all->heads = static_cast<int>(op->heads);
    all->latent = static_cast<int>(op->latent);
    all->rope = static_cast<int>(query->shape[2] - op->latent);
    all->scale = op->scale;
    gpu_latent_cached(all, args->states[0], table);
    return BERTH_OK;
}

template <typename T, typename C>
berth_status run(const decoder *op, const berth_op_args *args, gpu_latent_call all) {
    const gpu_latent_field query = gpu_latent_field_of(args->inputs[QUERY]);
    const gpu_latent_field y = gpu_latent_field_of(args->outputs[0]);
    const int64_t tokens = args->inputs[QUERY]->shape[0];
    const int most = gpu_latent_begin(&all, tokens, berth_gpu_data(args->workspace));
    berth_status status = BERTH_OK;
    for (int64_t first = 0; first < tokens && status == BERTH_OK; first += most) {
        const int count = static_cast<int>(tokens - first < most ? tokens - first : most);
        all.first = static_cast<int>(first);
        all.query = gpu_latent_from<T>(query, first);
        all.query_rotated = all.query;
        all.query_rotated.data = static_cast<T *>(all.query.data) + all.latent;
        status = gpu_latent_attend<T, T, C>(op, all, count);
        status = status == BERTH_OK
                     ? gpu_latent_merge<T>(op, all, count, gpu_latent_from<T>(y, first))
                     : status;
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const decoder *op = static_cast<const decoder *>(self);
    gpu_latent_call all = {};
    const berth_status status = begin(op, args, &all);
    if (status != BERTH_OK || args->inputs[QUERY]->shape[0] == 0) {
        return status;
    }
    return gpu_with_type(args->inputs[QUERY]->dtype, [&](auto type) {
        return gpu_with_type(args->states[0]->dtype, [&](auto cache) {
            return run<typename decltype(type)::type, typename decltype(cache)::type>(op, args,
                                                                                      all);
        });
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mla_decode;
const berth_op_impl berth_kernel_mla_decode = {
    BERTH_GPU_KERNEL("mla_decode"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
