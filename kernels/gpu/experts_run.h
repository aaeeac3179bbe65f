// SPDX-License-Identifier: Apache-2.0
// Both products of the experts of a mixture on a GPU, the host's side. Few rows, or few for each
// expert: a warp an output of every row. More: rows are ordered by expert, and an expert's weights
// are read once for a tile of them.
#ifndef BERTH_KERNELS_GPU_EXPERTS_RUN_H
#define BERTH_KERNELS_GPU_EXPERTS_RUN_H

#include "each.h"
#include "experts.h"

struct gpu_experts;

// A product of many rows by a faster kernel. x, its rows and the weight are aligned to 16 bytes,
// and rows of the weight are made of 16 bytes.
typedef berth_status (*gpu_experts_faster)(const gpu_op *op, const gpu_experts &all,
                                           const gpu_expert_product &product);

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
    char *inner;               // of the first product
    char *middle;              // activated
    char *outer;               // of the second product; may be the memory of `inner`
    gpu_experts_faster faster; // NULL: none
};

// Weights and biases of a call, w2's behind w13's.
static inline gpu_experts gpu_experts_of(const berth_op_args *args, int weight, int bias) {
    gpu_experts all = {};
    all.w13_weight = args->inputs[weight];
    all.w2_weight = args->inputs[weight + 1];
    all.w13_bias = args->inputs[bias];
    all.w2_bias = args->inputs[bias + 1];
    return all;
}

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
    const bool is_wide = product.depth % gpu_wide<W> == 0 && gpu_is_aligned(product.x) &&
                         reinterpret_cast<uintptr_t>(product.weight) % 16 == 0;
    if (all.is_few) {
        const gpu_grid grid = {
            dim3(gpu_ceil(product.outputs, GPU_EXPERTS_WARPS), static_cast<unsigned>(all.rows)),
            dim3(32, GPU_EXPERTS_WARPS), 0};
        constexpr int N = gpu_wide<W> < gpu_wide<T> ? gpu_wide<W> : gpu_wide<T>;
        const char *name = "experts of few rows";
        return is_wide
                   ? gpu_run(op, name, grid, gpu_expert_few_kernel<T, W, N>, all.choices, product)
                   : gpu_run(op, name, grid, gpu_expert_few_kernel<T, W, 1>, all.choices, product);
    }
    if (all.faster && is_wide) {
        return all.faster(op, all, product);
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

#endif
