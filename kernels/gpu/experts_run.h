// SPDX-License-Identifier: Apache-2.0
// The experts of a mixture on a GPU, the host's side: the steps of a call one after another, and
// the kernel that the whole mixtures share (unquantized_fused_moe and its like).
//
// Few choices, or few for each expert: a warp an output of every choice. More: choices are ordered
// by expert, and an expert's weights are read once for a tile of them. Which it is follows from
// sizes alone, and a token's result from nothing but the token.
#ifndef BERTH_KERNELS_GPU_EXPERTS_RUN_H
#define BERTH_KERNELS_GPU_EXPERTS_RUN_H

#include "each.h"
#include "experts.h"

#define GPU_EXPERTS_FEW_TOKENS 8
#define GPU_EXPERTS_MOST       65535 // choices: of a grid's second dimension

// ---- both products ------------------------------------------------------------------------------

// Weights of the experts of a layer, and what lies between the steps: [rows, …] of x's type.
struct gpu_experts {
    berth_moe moe;
    const berth_tensor *w13_weight;
    const berth_tensor *w2_weight;
    const berth_tensor *w13_bias; // NULL: none
    const berth_tensor *w2_bias;
    gpu_choices choices;
    gpu_ordered ordered;
    int64_t rows;
    bool is_few;
    char *inner;  // of the first product
    char *middle; // activated
    char *outer;  // of the second product; may be the memory of `inner`
};

static inline gpu_expert_product gpu_experts_product(const berth_tensor *weight,
                                                     const berth_tensor *bias) {
    gpu_expert_product out = {};
    out.rows_per_x = 1;
    out.weight = berth_gpu_data(weight);
    out.bias = bias ? berth_gpu_data(bias) : nullptr;
    out.bias_dtype = bias ? bias->dtype : weight->dtype;
    out.outputs = static_cast<int>(weight->shape[1]);
    out.depth = static_cast<int>(weight->shape[2]);
    return out;
}

// Tiles at most: what each expert fills, and one that it does not fill.
static inline int64_t gpu_experts_tiles(int64_t rows, int64_t experts) {
    return rows / GPU_TILE + (rows < experts ? rows : experts);
}

template <typename T, typename W>
static berth_status gpu_experts_multiply(const gpu_op *op, const gpu_experts &all,
                                         const gpu_expert_product &product) {
    if (all.is_few) {
        const gpu_grid grid = {
            dim3(gpu_ceil(product.outputs, GPU_EXPERTS_WARPS), static_cast<unsigned>(all.rows)),
            dim3(32, GPU_EXPERTS_WARPS), 0};
        return gpu_run(op, "experts of few rows", grid, gpu_expert_few_kernel<T, W>, all.choices,
                       product);
    }
    const int experts = static_cast<int>(all.w13_weight->shape[0]);
    const gpu_grid grid = {dim3(gpu_ceil(product.outputs, GPU_TILE),
                                static_cast<unsigned>(gpu_experts_tiles(all.rows, experts))),
                           dim3(GPU_TILE_THREADS), 0};
    return gpu_run(op, "experts", grid, gpu_expert_tiles_kernel<T, W>, all.ordered, experts,
                   product);
}

// A tensor of rows of x's type between two steps.
static inline berth_tensor gpu_experts_rows(void *data, berth_dtype dtype, int64_t *shape,
                                            int64_t *strides) {
    berth_tensor out = {};
    strides[0] = shape[1];
    strides[1] = 1;
    out.size = sizeof out;
    out.data = data;
    out.ndim = 2;
    out.dtype = dtype;
    out.shape = shape;
    out.strides = strides;
    return out;
}

// From x to `outer`. `x` is row p / per_token of choice p; `factors` of the choices, or NULL.
template <typename T, typename W>
static berth_status gpu_experts_compute(const gpu_op *op, const gpu_experts &all,
                                        const berth_tensor *x, int per_token,
                                        const float *factors) {
    int64_t shape[2] = {all.rows, all.w2_weight->shape[2]};
    int64_t strides[2];
    const berth_tensor middle = gpu_experts_rows(all.middle, x->dtype, shape, strides);
    gpu_expert_product first = gpu_experts_product(all.w13_weight, all.w13_bias);
    gpu_expert_product second = gpu_experts_product(all.w2_weight, all.w2_bias);
    first.x = gpu_rows_of(x);
    first.rows_per_x = per_token;
    first.factors = factors;
    first.y = all.inner;
    second.x = gpu_rows_of(&middle);
    second.y = all.outer;
    const gpu_expert_activation activation = {all.moe, all.inner, first.outputs, shape[1]};
    berth_status status = gpu_experts_multiply<T, W>(op, all, first);
    status = status == BERTH_OK ? gpu_each<T, T>(op, activation, &middle) : status;
    return status == BERTH_OK ? gpu_experts_multiply<T, W>(op, all, second) : status;
}

// ---- whole mixtures -----------------------------------------------------------------------------

enum {
    GPU_MOE_X,
    GPU_MOE_W13_WEIGHT,
    GPU_MOE_W2_WEIGHT,
    GPU_MOE_TOPK_WEIGHTS,
    GPU_MOE_TOPK_IDS,
    GPU_MOE_W13_BIAS,
    GPU_MOE_W2_BIAS,
    GPU_MOE_EXPERT_MAP,
};

struct gpu_mixture : gpu_op {
    berth_moe moe;
    berth_dim tokens; // of x
    int64_t per_token;
    int64_t experts;
    int64_t widest; // of the rows of both products
    int64_t width;  // of the activated
    int64_t bytes;  // of an element
};

// Element i of token t: the sum over its choices in their order.
struct gpu_mixture_sum {
    gpu_choices choices;
    const void *rows; // [choices, width]
    int64_t width;
    int is_weighted; // already

    template <typename T> __device__ float at(int64_t token, int64_t i) const {
        float sum = 0;
        for (int c = 0; c < choices.per_token; ++c) {
            const int64_t p = token * choices.per_token + c;
            const int expert = gpu_expert_of(choices, p);
            if (expert >= 0) {
                sum += gpu_float(static_cast<const T *>(rows)[p * width + i]) *
                       (is_weighted ? 1.0f : choices.weights[p]);
            } else if (expert == -2) {
                sum = NAN; // so that the step fails where a token is chosen
            }
        }
        return sum;
    }
};

static inline berth_status gpu_mixture_create(const berth_op_site *site, const berth_device *device,
                                              void **out_self) {
    const berth_status status = gpu_new<gpu_mixture>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_mixture *self = static_cast<gpu_mixture *>(*out_self);
        const berth_value_type *w13 = site->inputs[GPU_MOE_W13_WEIGHT];
        const berth_value_type *w2 = site->inputs[GPU_MOE_W2_WEIGHT];
        self->moe = berth_moe_read(site);
        self->tokens = site->inputs[GPU_MOE_X]->dims[0];
        self->per_token = site->inputs[GPU_MOE_TOPK_IDS]->dims[1].b;
        self->experts = w13->dims[0].b;
        self->widest = w13->dims[1].b > w2->dims[1].b ? w13->dims[1].b : w2->dims[1].b;
        self->width = w2->dims[2].b;
        self->bytes = BERTH_DTYPE_BITS(site->inputs[GPU_MOE_X]->dtype) / 8;
    }
    return status;
}

static inline int64_t gpu_mixture_even(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// Lays the workspace of so many choices out; returns its bytes.
static inline int64_t gpu_mixture_lay_out(const gpu_mixture *op, int64_t choices, char *memory,
                                          gpu_experts *out) {
    const int64_t table = gpu_mixture_even((op->experts + 1) * 4);
    const int64_t order = gpu_mixture_even(choices * 4);
    const int64_t products = gpu_mixture_even(choices * op->widest * op->bytes);
    out->ordered.counts = reinterpret_cast<int32_t *>(memory);
    out->ordered.first = reinterpret_cast<int32_t *>(memory + table);
    out->ordered.tiles = reinterpret_cast<int32_t *>(memory + 2 * table);
    out->ordered.order = reinterpret_cast<int32_t *>(memory + 3 * table);
    out->inner = memory + 3 * table + order;
    out->outer = out->inner;
    out->middle = out->inner + products;
    return 3 * table + order + products + choices * op->width * op->bytes;
}

static inline uint64_t gpu_mixture_workspace(void *self, uint64_t tokens) {
    const gpu_mixture *op = static_cast<const gpu_mixture *>(self);
    gpu_experts unused;
    const int64_t rows = static_cast<int64_t>(gpu_extent(op->tokens, tokens));
    return static_cast<uint64_t>(gpu_mixture_lay_out(op, rows * op->per_token, nullptr, &unused));
}

static inline gpu_choices gpu_mixture_choices(const berth_op_args *args) {
    const berth_tensor *ids = args->inputs[GPU_MOE_TOPK_IDS];
    const berth_tensor *map = args->inputs[GPU_MOE_EXPERT_MAP];
    gpu_choices out = {};
    out.ids = berth_gpu_data(ids);
    out.ids_dtype = ids->dtype;
    out.map = map ? berth_gpu_data(map) : nullptr;
    out.map_dtype = map ? map->dtype : ids->dtype;
    out.mapped = map ? map->shape[0] : 0;
    out.weights = static_cast<const float *>(berth_gpu_data(args->inputs[GPU_MOE_TOPK_WEIGHTS]));
    out.count = static_cast<int>(ids->shape[0] * ids->shape[1]);
    out.per_token = static_cast<int>(ids->shape[1]);
    out.experts = static_cast<int>(args->inputs[GPU_MOE_W13_WEIGHT]->shape[0]);
    return out;
}

static inline gpu_experts gpu_mixture_begin(const gpu_mixture *op, const berth_op_args *args) {
    gpu_experts all = {};
    all.moe = op->moe;
    all.w13_weight = args->inputs[GPU_MOE_W13_WEIGHT];
    all.w2_weight = args->inputs[GPU_MOE_W2_WEIGHT];
    all.w13_bias = args->inputs[GPU_MOE_W13_BIAS];
    all.w2_bias = args->inputs[GPU_MOE_W2_BIAS];
    all.choices = gpu_mixture_choices(args);
    all.rows = all.choices.count;
    all.is_few = all.rows <= GPU_EXPERTS_MOST &&
                 (args->inputs[GPU_MOE_X]->shape[0] <= GPU_EXPERTS_FEW_TOKENS ||
                  all.rows <= 2 * op->experts);
    (void)gpu_mixture_lay_out(op, all.rows, static_cast<char *>(berth_gpu_data(args->workspace)),
                              &all);
    return all;
}

static inline berth_status gpu_mixture_order(const gpu_mixture *op, const gpu_experts &all) {
    const gpu_grid grid = {dim3(static_cast<unsigned>(op->experts)), dim3(GPU_EXPERTS_THREADS), 0};
    const berth_status status = gpu_run(op, "the experts' counts", grid, gpu_experts_count_kernel,
                                        all.choices, all.ordered);
    return status == BERTH_OK ? gpu_run(op, "the experts' order", grid, gpu_experts_order_kernel,
                                        all.choices, all.ordered)
                              : status;
}

static inline berth_status gpu_mixture_forward(void *self, const berth_op_args *args) {
    const gpu_mixture *op = static_cast<const gpu_mixture *>(self);
    const berth_tensor *x = args->inputs[GPU_MOE_X];
    if (x->shape[0] == 0) {
        return BERTH_OK;
    }
    const gpu_experts all = gpu_mixture_begin(op, args);
    const gpu_mixture_sum sum = {all.choices, all.outer, all.w2_weight->shape[1],
                                 op->moe.is_weighted_first};
    const float *factors = op->moe.is_weighted_first ? all.choices.weights : nullptr;
    const berth_status ordered = all.is_few ? BERTH_OK : gpu_mixture_order(op, all);
    if (ordered != BERTH_OK) {
        return ordered;
    }
    return gpu_with_type(x->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const berth_status status = gpu_with_type(all.w13_weight->dtype, [&](auto weight) {
            return gpu_experts_compute<T, typename decltype(weight)::type>(
                op, all, x, all.choices.per_token, factors);
        });
        return status == BERTH_OK ? gpu_each<T, T>(op, sum, args->outputs[0]) : status;
    });
}

// Both products run by one type of weights.
static inline berth_status gpu_mixture_supports(const berth_op_site *site, const berth_device *) {
    if (site->inputs[GPU_MOE_W2_WEIGHT]->dtype != site->inputs[GPU_MOE_W13_WEIGHT]->dtype) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "weights of one type");
    }
    return gpu_check_rank(site, GPU_MOE_X);
}

#define GPU_MIXTURE_SLOTS                                                                          \
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC, .supports = gpu_mixture_supports,   \
    .create = gpu_mixture_create, .workspace = gpu_mixture_workspace,                              \
    .forward = gpu_mixture_forward, .destroy = gpu_destroy

#endif
