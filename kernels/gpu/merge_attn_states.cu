// SPDX-License-Identifier: Apache-2.0
// merge_attn_states on a GPU: attention over two disjoint sets of keys put together; a warp a token
// and head, in f32, one rounding.
#include "launch.h"

#include <math.h>

namespace {

enum { PREFIX_OUTPUT, PREFIX_LSE, SUFFIX_OUTPUT, SUFFIX_LSE };
enum { OUTPUT, OUTPUT_LSE };

struct operands {
    gpu_rows prefix;
    gpu_rows suffix;
    gpu_rows output;
    gpu_rows prefix_lse; // [heads, tokens]
    gpu_rows suffix_lse;
    gpu_rows output_lse;
    int64_t width;
};

// An empty side, +infinity, counts as −infinity.
__device__ float lse_at(const gpu_rows &rows, int64_t head, int64_t token) {
    const float lse = gpu_row<const float>(rows, head)[token];
    return lse == INFINITY ? -INFINITY : lse;
}

// blockIdx.x: the token; blockIdx.y: the head.
template <typename T> __global__ void merge_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t token = blockIdx.x;
    const int64_t head = blockIdx.y;
    const int64_t row = token * gridDim.y + head;
    const float prefix_lse = lse_at(all.prefix_lse, head, token);
    const float suffix_lse = lse_at(all.suffix_lse, head, token);
    const float largest = fmaxf(prefix_lse, suffix_lse);
    const bool is_empty = largest == -INFINITY;
    const float prefix_weight = is_empty ? 0.0f : expf(prefix_lse - largest);
    const float suffix_weight = is_empty ? 0.0f : expf(suffix_lse - largest);
    const float total = prefix_weight + suffix_weight;
    const T *prefix = gpu_row<const T>(all.prefix, row);
    const T *suffix = gpu_row<const T>(all.suffix, row);
    for (int64_t i = threadIdx.x; i < all.width; i += 32) {
        // Why the questions: an empty side may hold anything, NaN included.
        const float from_prefix =
            prefix_weight > 0 ? gpu_float(prefix[i]) * (prefix_weight / total) : 0.0f;
        const float from_suffix =
            suffix_weight > 0 ? gpu_float(suffix[i]) * (suffix_weight / total) : 0.0f;
        gpu_row<T>(all.output, row)[i] =
            gpu_round<T>(total != total ? total : from_prefix + from_suffix);
    }
    if (threadIdx.x == 0) {
        gpu_row<float>(all.output_lse, head)[token] = logf(total) + largest;
    }
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *prefix = args->inputs[PREFIX_OUTPUT];
    const operands all = {gpu_rows_of(prefix),
                          gpu_rows_of(args->inputs[SUFFIX_OUTPUT]),
                          gpu_rows_of(args->outputs[OUTPUT]),
                          gpu_rows_of(args->inputs[PREFIX_LSE]),
                          gpu_rows_of(args->inputs[SUFFIX_LSE]),
                          gpu_rows_of(args->outputs[OUTPUT_LSE]),
                          prefix->shape[2]};
    const gpu_grid grid = {
        dim3(static_cast<unsigned>(prefix->shape[0]), static_cast<unsigned>(prefix->shape[1])),
        dim3(32), 0};
    if (prefix->shape[0] == 0 || prefix->shape[1] == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(prefix->dtype, [&](auto type) {
        return gpu_run(op, "merge_attn_states", grid, merge_kernel<typename decltype(type)::type>,
                       all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_merge_attn_states;
const berth_op_impl berth_kernel_merge_attn_states = {
    BERTH_GPU_KERNEL("merge_attn_states"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
