// SPDX-License-Identifier: Apache-2.0
// moe_experts on a GPU: every expert on its own rows, which stand together already.
#include "mixture.h"

namespace {

enum { EXPERT_X, EXPERT_FIRST, W13_WEIGHT, W2_WEIGHT, W13_BIAS, W2_BIAS };

// One thread: an expert's tiles begin where those of the one before it end.
__global__ void tiles_kernel(gpu_ordered ordered, int experts) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    int tiles = 0;
    for (int e = 0; e < experts; ++e) {
        ordered.tiles[e] = tiles;
        tiles += (ordered.first[e + 1] - ordered.first[e] + GPU_TILE - 1) / GPU_TILE;
    }
    ordered.tiles[experts] = tiles;
}

// Behind the last expert's rows; a block a row.
template <typename T>
__global__ void zeros_kernel(gpu_ordered ordered, int experts, gpu_rows y, int64_t width) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t i = threadIdx.x; i < width && blockIdx.x >= ordered.first[experts];
         i += GPU_CHOICES_THREADS) {
        gpu_row<T>(y, blockIdx.x)[i] = gpu_round<T>(0.0f);
    }
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return site->inputs[W2_WEIGHT]->dtype == site->inputs[W13_WEIGHT]->dtype
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "weights of one type");
}

// Tiles, in a whole number of the widest loads; then both steps' rows.
int64_t tiles_bytes(const gpu_expert_rows *op) {
    return (op->experts + 1 + 63) / 64 * 256;
}

gpu_experts begin(const gpu_expert_rows *op, const berth_op_args *args) {
    char *room = static_cast<char *>(berth_gpu_data(args->workspace));
    gpu_experts all = gpu_experts_of(args, W13_WEIGHT, W13_BIAS);
    all.moe = op->moe;
    all.faster = op->faster;
    all.rows = args->inputs[EXPERT_X]->shape[0];
    all.ordered.first = static_cast<int32_t *>(berth_gpu_data(args->inputs[EXPERT_FIRST]));
    all.ordered.tiles = reinterpret_cast<int32_t *>(room);
    all.inner = room + tiles_bytes(op);
    all.middle = all.inner + all.rows * op->inner * op->bytes;
    all.outer = static_cast<char *>(berth_gpu_data(args->outputs[0]));
    return all;
}

template <typename T>
berth_status run(const gpu_expert_rows *op, const berth_op_args *args, const gpu_experts &all) {
    const berth_tensor *x = args->inputs[EXPERT_X];
    const int experts = static_cast<int>(op->experts);
    const gpu_grid rows = {dim3(static_cast<unsigned>(all.rows)), dim3(GPU_CHOICES_THREADS), 0};
    const berth_status status = gpu_with_type(all.w13_weight->dtype, [&](auto weight) {
        using W = typename decltype(weight)::type;
        return gpu_experts_compute<T, W>(op, all, x, 1, nullptr);
    });
    return status == BERTH_OK ? gpu_run(op, "rows of no expert", rows, zeros_kernel<T>, all.ordered,
                                        experts, gpu_rows_of(args->outputs[0]), x->shape[1])
                              : status;
}

} // namespace

berth_status gpu_expert_rows_create(const berth_op_site *site, const berth_device *device,
                                    void **out_self) {
    const berth_status status = gpu_new<gpu_expert_rows>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_expert_rows *self = static_cast<gpu_expert_rows *>(*out_self);
        self->moe = berth_moe_read(site);
        self->moe.activation = berth_moe_gated(self->moe.activation);
        self->rows = site->inputs[EXPERT_X]->dims[0];
        self->experts = site->inputs[W13_WEIGHT]->dims[0].b;
        self->inner = site->inputs[W13_WEIGHT]->dims[1].b;
        self->width = site->inputs[W2_WEIGHT]->dims[2].b;
        self->bytes = BERTH_DTYPE_BITS(site->inputs[EXPERT_X]->dtype) / 8;
    }
    return status;
}

uint64_t gpu_expert_rows_workspace(void *self, uint64_t tokens) {
    const gpu_expert_rows *op = static_cast<const gpu_expert_rows *>(self);
    const int64_t rows = static_cast<int64_t>(gpu_extent(op->rows, tokens));
    return static_cast<uint64_t>(tiles_bytes(op) + rows * (op->inner + op->width) * op->bytes);
}

berth_status gpu_expert_rows_forward(void *self, const berth_op_args *args) {
    const gpu_expert_rows *op = static_cast<const gpu_expert_rows *>(self);
    const gpu_experts all = begin(op, args);
    const gpu_grid one = {dim3(1), dim3(1), 0};
    if (all.rows == 0) {
        return BERTH_OK;
    }
    const berth_status status = gpu_run(op, "the experts' tiles", one, tiles_kernel, all.ordered,
                                        static_cast<int>(op->experts));
    return status != BERTH_OK ? status
                              : gpu_with_type(args->inputs[EXPERT_X]->dtype, [&](auto type) {
                                    return run<typename decltype(type)::type>(op, args, all);
                                });
}

extern "C" {
extern const berth_op_impl berth_kernel_moe_experts;
const berth_op_impl berth_kernel_moe_experts = {
    BERTH_GPU_KERNEL("moe_experts"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_expert_rows_create,
    .workspace = gpu_expert_rows_workspace,
    .forward = gpu_expert_rows_forward,
    .destroy = gpu_destroy,
};
}
