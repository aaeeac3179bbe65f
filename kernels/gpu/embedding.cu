// SPDX-License-Identifier: Apache-2.0
// embedding on a GPU: y[t] = weight[token_ids[t]], converted. A block a token.
//
// An id outside the vocabulary makes its row NaN: no distribution comes of it, and the step fails
// where a token is chosen.
#include "launch.h"

namespace {

constexpr int THREADS = 256;

enum { TOKEN_IDS, WEIGHT };

struct operands {
    const void *ids;
    berth_dtype id_dtype;
    const void *weight;
    int64_t vocabulary;
    int64_t width;
    void *y;
};

template <typename W, typename T, int N> __global__ void embedding_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t id = gpu_integer(all.ids, all.id_dtype, blockIdx.x);
    const bool is_known = id >= 0 && id < all.vocabulary;
    const W *from = static_cast<const W *>(all.weight) + (is_known ? id : 0) * all.width;
    T *to = static_cast<T *>(all.y) + blockIdx.x * all.width;
    for (int64_t i = threadIdx.x * N; i < all.width; i += THREADS * N) {
        const gpu_pack<W, N> pack = gpu_load<W, N>(from, i);
        gpu_pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            out.at[j] = gpu_round<T>(is_known ? gpu_float(pack.at[j]) : NAN);
        }
        gpu_store<T, N>(to, i, out);
    }
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_check_floats(site, WEIGHT);
}

template <typename W, typename T>
berth_status start(const gpu_op *op, const operands &all, int64_t tokens) {
    constexpr int N = gpu_wide<W> < gpu_wide<T> ? gpu_wide<W> : gpu_wide<T>;
    const uint64_t both =
        reinterpret_cast<uintptr_t>(all.weight) | reinterpret_cast<uintptr_t>(all.y);
    const gpu_grid grid = {dim3(static_cast<unsigned>(tokens)), dim3(THREADS), 0};
    return all.width % N == 0 && both % 16 == 0
               ? gpu_run(op, "embedding", grid, embedding_kernel<W, T, N>, all)
               : gpu_run(op, "embedding", grid, embedding_kernel<W, T, 1>, all);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *ids = args->inputs[TOKEN_IDS];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    if (y->shape[0] == 0) {
        return BERTH_OK;
    }
    const operands all = {berth_gpu_data(ids), ids->dtype,       berth_gpu_data(weight),
                          weight->shape[0],    weight->shape[1], berth_gpu_data(y)};
    return gpu_with_type(weight->dtype, [&](auto from) {
        return gpu_with_type(y->dtype, [&](auto to) {
            return start<typename decltype(from)::type, typename decltype(to)::type>(op, all,
                                                                                     y->shape[0]);
        });
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_embedding;
const berth_op_impl berth_kernel_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "embedding",
    .name = "gpu.embedding",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
