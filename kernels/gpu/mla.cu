// SPDX-License-Identifier: Apache-2.0
// mla on a GPU, always the absorbed form: queries are brought into the space of the latent rows,
// attend to them as they are kept, and what comes out is brought to the space of the values. What
// the forms of the reference round to the query's dtype stays f32, which is nearer to both. Some
// hundred tokens at once, so that the memory between the kernels does not grow with a prompt.
#include "latent_run.h"

namespace {

enum { QUERY, C_KV, K_PE, KV_B_PROJ_WEIGHT, QUERY_PE, QUERY_START_LOC, SEQ_LENS };

constexpr int THREADS = 128;
constexpr int WARPS = 8;
constexpr int ROWS = 8; // tokens of a block of the products, which read a weight once

struct mla : gpu_op {
    uint64_t group; // of caches
    int64_t heads;
    int64_t nope;
    int64_t latent;
    int64_t values;
    float scale;
};

// ---- storing ------------------------------------------------------------------------------------

struct storing {
    gpu_rows latent;
    gpu_rows rotated;
    const int64_t *slots;
    void *cache; // rows of both
    int latents;
    int ropes;
};

// A block a row.
template <typename T, typename C> __global__ void store_kernel(storing all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t slot = all.slots[blockIdx.x];
    if (slot < 0) {
        return;
    }
    const T *latent = gpu_row<const T>(all.latent, blockIdx.x);
    const T *rotated = gpu_row<const T>(all.rotated, blockIdx.x);
    C *to = static_cast<C *>(all.cache) + slot * (all.latents + all.ropes);
    for (int i = threadIdx.x; i < all.latents; i += THREADS) {
        to[i] = gpu_round<C>(gpu_float(latent[i]));
    }
    for (int i = threadIdx.x; i < all.ropes; i += THREADS) {
        to[all.latents + i] = gpu_round<C>(gpu_float(rotated[i]));
    }
}

// ---- products -----------------------------------------------------------------------------------

// Of kv_b_proj: head h has the rows h · (nope + values) on, first those of its keys.
struct projection {
    const void *weight; // [heads · (nope + values), latent]
    gpu_latent_field query;
    gpu_latent_field absorbed; // f32, [tokens, heads, latent]
    gpu_latent_field y;
    int tokens;
    int nope;
    int values;
    int latent;
};

// absorbed[t] = Σ query[t][i] · weight[i]. blockIdx.x: which columns; .y: the head; .z: the tokens.
template <typename T, typename W> __global__ void absorb_kernel(projection all) {
    const int column = static_cast<int>(blockIdx.x) * THREADS + threadIdx.x;
    const int head = static_cast<int>(blockIdx.y);
    const int first = static_cast<int>(blockIdx.z) * ROWS;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (column >= all.latent) {
        return;
    }
    const W *weight = static_cast<const W *>(all.weight) +
                      static_cast<int64_t>(head) * (all.nope + all.values) * all.latent + column;
    float sums[ROWS] = {};
    for (int i = 0; i < all.nope; ++i) {
        const float w = gpu_float(weight[static_cast<int64_t>(i) * all.latent]);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (first + row < all.tokens) {
                sums[row] += w * gpu_float(gpu_latent_at<const T>(all.query, first + row, head)[i]);
            }
        }
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        if (first + row < all.tokens) {
            gpu_latent_at<float>(all.absorbed, first + row, head)[column] = sums[row];
        }
    }
}

// y[t][j] = weight[nope + j] · absorbed[t]. A warp an output; blocks as above.
template <typename T, typename W> __global__ void project_kernel(projection all) {
    const int output = static_cast<int>(blockIdx.x) * WARPS + threadIdx.y;
    const int head = static_cast<int>(blockIdx.y);
    const int first = static_cast<int>(blockIdx.z) * ROWS;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (output >= all.values) {
        return; // the whole warp
    }
    const int64_t line = static_cast<int64_t>(head) * (all.nope + all.values) + all.nope + output;
    const W *weight = static_cast<const W *>(all.weight) + line * all.latent;
    float sums[ROWS] = {};
    for (int k = threadIdx.x; k < all.latent; k += 32) {
        const float w = gpu_float(weight[k]);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (first + row < all.tokens) {
                sums[row] += w * gpu_latent_at<const float>(all.absorbed, first + row, head)[k];
            }
        }
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        const float sum = gpu_warp_sum(sums[row]);
        if (first + row < all.tokens && threadIdx.x == 0) {
            gpu_latent_at<T>(all.y, first + row, head)[output] = gpu_round<T>(sum);
        }
    }
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_latent_check(site, site->inputs[C_KV]->dims[1].b, site->inputs[K_PE]->dims[1].b);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<mla>(site, device, out_self);
    if (status == BERTH_OK) {
        mla *self = static_cast<mla *>(*out_self);
        const int64_t width = site->inputs[QUERY]->dims[2].b;
        self->group = site->cache_group;
        self->heads = site->inputs[QUERY]->dims[1].b;
        self->nope = site->inputs[QUERY_PE] ? width : width - site->inputs[K_PE]->dims[1].b;
        self->latent = site->inputs[C_KV]->dims[1].b;
        self->values = berth_site_attribute(site, "v_head_dim")->i64;
        self->scale = static_cast<float>(berth_site_attribute(site, "scale")->f64);
    }
    return status;
}

// Absorbed queries of one part of a prompt; then what lies between the kernels of latent.h.
uint64_t absorbed_bytes(const mla *op) {
    return static_cast<uint64_t>(GPU_LATENT_ROWS * op->heads * op->latent) * sizeof(float);
}

uint64_t workspace(void *self, uint64_t) {
    const mla *op = static_cast<const mla *>(self);
    return absorbed_bytes(op) + gpu_latent_bytes(op->heads, op->latent);
}

berth_status store(const mla *op, const berth_op_args *args) {
    const berth_tensor *latent = args->inputs[C_KV];
    const berth_tensor *rotated = args->inputs[K_PE];
    const berth_tensor *cache = args->states[0];
    const berth_tensor *slots = args->batch->device->slot_mappings[op->group];
    const storing all = {gpu_rows_of(latent),
                         gpu_rows_of(rotated),
                         static_cast<const int64_t *>(berth_gpu_data(slots)),
                         berth_gpu_data(cache),
                         static_cast<int>(latent->shape[1]),
                         static_cast<int>(rotated->shape[1])};
    const gpu_grid grid = {dim3(static_cast<unsigned>(latent->shape[0])), dim3(THREADS), 0};
    return gpu_with_type(latent->dtype, [&](auto type) {
        return gpu_with_type(cache->dtype, [&](auto kept) {
            return gpu_run(
                op, "mla's store", grid,
                store_kernel<typename decltype(type)::type, typename decltype(kept)::type>, all);
        });
    });
}

// Keys of the cache, else those of the call.
berth_status begin(const mla *op, const berth_op_args *args, gpu_latent_call *all) {
    const berth_tensor *lengths = args->inputs[SEQ_LENS];
    const berth_tensor *cache = args->states[0];
    const berth_status status = gpu_sequences_open(
        op, args->batch, 0, {args->inputs[QUERY_START_LOC], nullptr, nullptr}, &all->sequences);
    if (status != BERTH_OK) {
        return status;
    }
    if (cache && lengths) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_INVALID_ARGUMENT,
                                 "mla: a cache goes with the sequences of a batch, not with "
                                 "'query_start_loc'");
    }
    lengths = lengths ? lengths : args->batch->device->seq_lens;
    all->lengths = berth_gpu_data(lengths);
    all->lengths_dtype = lengths->dtype;
    all->heads = static_cast<int>(op->heads);
    all->latent = static_cast<int>(op->latent);
    all->rope = static_cast<int>(args->inputs[K_PE]->shape[1]);
    all->scale = op->scale;
    if (cache) {
        gpu_latent_cached(all, cache, args->batch->device->block_tables[op->group]);
        return args->inputs[C_KV]->shape[0] > 0 ? store(op, args) : BERTH_OK;
    }
    all->keys = berth_gpu_data(args->inputs[C_KV]);
    all->rotated = berth_gpu_data(args->inputs[K_PE]);
    all->key_gap = args->inputs[C_KV]->strides[0];
    all->rotated_gap = args->inputs[K_PE]->strides[0];
    return BERTH_OK;
}

projection projection_of(const mla *op, const berth_op_args *args) {
    projection out = {};
    out.weight = berth_gpu_data(args->inputs[KV_B_PROJ_WEIGHT]);
    out.query = gpu_latent_field_of(args->inputs[QUERY]);
    out.absorbed =
        gpu_latent_field{berth_gpu_data(args->workspace), op->heads * op->latent, op->latent};
    out.y = gpu_latent_field_of(args->outputs[0]);
    out.nope = static_cast<int>(op->nope);
    out.values = static_cast<int>(op->values);
    out.latent = static_cast<int>(op->latent);
    return out;
}

template <typename T, typename W> berth_status absorb(const mla *op, const projection &all) {
    const gpu_grid grid = {dim3(gpu_ceil(all.latent, THREADS), static_cast<unsigned>(op->heads),
                                gpu_ceil(all.tokens, ROWS)),
                           dim3(THREADS), 0};
    return gpu_run(op, "mla's queries", grid, absorb_kernel<T, W>, all);
}

template <typename T, typename W> berth_status project(const mla *op, const projection &all) {
    const gpu_grid grid = {dim3(gpu_ceil(all.values, WARPS), static_cast<unsigned>(op->heads),
                                gpu_ceil(all.tokens, ROWS)),
                           dim3(32, WARPS), 0};
    return gpu_run(op, "mla's values", grid, project_kernel<T, W>, all);
}

// The tokens from all.first on. Their sums take the memory of their absorbed queries.
template <typename T, typename W>
berth_status run_part(const mla *op, const berth_op_args *args, const gpu_latent_call &all,
                      const projection &part) {
    const berth_dtype keys = args->states[0] ? args->states[0]->dtype : args->inputs[C_KV]->dtype;
    berth_status status = absorb<T, W>(op, part);
    status = status == BERTH_OK
                 ? gpu_with_type(keys,
                                 [&](auto kept) {
                                     using C = typename decltype(kept)::type;
                                     return gpu_latent_attend<float, T, C>(op, all, part.tokens);
                                 })
                 : status;
    status =
        status == BERTH_OK ? gpu_latent_merge<float>(op, all, part.tokens, part.absorbed) : status;
    return status == BERTH_OK ? project<T, W>(op, part) : status;
}

template <typename T, typename W>
berth_status run(const mla *op, const berth_op_args *args, gpu_latent_call all) {
    const projection whole = projection_of(op, args);
    const berth_tensor *apart = args->inputs[QUERY_PE];
    const int64_t tokens = args->inputs[QUERY]->shape[0];
    gpu_latent_field rotated = whole.query;
    rotated.data = static_cast<T *>(rotated.data) + op->nope;
    rotated = apart ? gpu_latent_field_of(apart) : rotated;
    const int most = gpu_latent_begin(
        &all, tokens, static_cast<char *>(berth_gpu_data(args->workspace)) + absorbed_bytes(op));
    berth_status status = BERTH_OK;
    for (int64_t first = 0; first < tokens && status == BERTH_OK; first += most) {
        projection part = whole;
        part.tokens = static_cast<int>(tokens - first < most ? tokens - first : most);
        part.query = gpu_latent_from<T>(whole.query, first);
        part.y = gpu_latent_from<T>(whole.y, first);
        all.first = static_cast<int>(first);
        all.query = part.absorbed;
        all.query_rotated = gpu_latent_from<T>(rotated, first);
        status = run_part<T, W>(op, args, all, part);
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const mla *op = static_cast<const mla *>(self);
    if (args->inputs[QUERY]->shape[0] == 0) {
        return BERTH_OK;
    }
    gpu_latent_call all = {};
    const berth_status status = begin(op, args, &all);
    if (status != BERTH_OK) {
        return status;
    }
    return gpu_with_type(args->inputs[QUERY]->dtype, [&](auto type) {
        return gpu_with_type(args->inputs[KV_B_PROJ_WEIGHT]->dtype, [&](auto weight) {
            return run<typename decltype(type)::type, typename decltype(weight)::type>(op, args,
                                                                                       all);
        });
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mla;
const berth_op_impl berth_kernel_mla = {
    BERTH_GPU_KERNEL("mla"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
