// SPDX-License-Identifier: Apache-2.0
// topk_softmax on a GPU: the experts of every token and their weights, in f32.
#include "routing.h"

namespace {

template <typename T> __global__ void topk_softmax_kernel(gpu_routing_call call) {
    extern __shared__ float shared[];
    const gpu_routing_room room = {shared, shared + call.experts};
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_score<T>(call, gpu_row<const T>(call.logits, blockIdx.x), room.scores);
    for (int i = threadIdx.x; i < call.experts; i += 32) {
        room.scores[i] = isfinite(room.scores[i]) ? room.scores[i] : 0.0f;
        room.choice[i] =
            room.scores[i] + (call.bias ? gpu_load_any(call.bias, call.bias_dtype, i) : 0.0f);
    }
    __syncthreads();
    gpu_choose<float, true>(call, room, blockIdx.x);
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_routing *op = static_cast<const gpu_routing *>(self);
    gpu_routing_call call;
    const gpu_grid grid = gpu_routing_begin(op, args, &call);
    if (grid.blocks.x == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(args->inputs[0]->dtype, [&](auto type) {
        return gpu_run(op, "topk_softmax", grid, topk_softmax_kernel<typename decltype(type)::type>,
                       call);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_topk_softmax;
const berth_op_impl berth_kernel_topk_softmax = {
    BERTH_GPU_KERNEL("topk_softmax"),
    .revision = 1,
    GPU_ROUTING_SLOTS,
};
}
