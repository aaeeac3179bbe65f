// SPDX-License-Identifier: Apache-2.0
// sampling_top_k_top_p on a GPU: a block a row (sampling.h), which finds the least likely one that
// each of the two leaves (order.h) and then cuts the row there. NaN is in no order and stays.
#include "order.h"
#include "sampling.h"

namespace {

static_assert(GPU_SAMPLING_THREADS == GPU_ORDER_THREADS, "one block does both");

constexpr float NO_WEIGHT = 104.0f; // so far below the largest logit e^x is 0

enum { LOGITS, K, P };

struct operands {
    gpu_sampling_rows rows;
    const void *k; // NULL: absent
    berth_dtype k_dtype;
    const float *p; // NULL: absent
};

// Logits in ascending order, each counted once.
struct numbers {
    const float *logits;

    __device__ float logit(int i) const {
        return logits[i];
    }
    __device__ uint32_t key(int, float logit) const {
        return gpu_order_key(logit);
    }
    __device__ float value(uint32_t key) const {
        return gpu_order_value(key);
    }
    __device__ uint32_t of(float value) const {
        return gpu_order_key(value);
    }
    __device__ float weight(float) const {
        return 1;
    }
};

// By their probability, but for a factor.
struct weights : numbers {
    float largest;

    __device__ float weight(float logit) const {
        return expf(logit - largest);
    }
};

// Of the logits above minus infinity.
struct facts {
    float largest;
    float least;
    int count;
};

__device__ facts facts_of(const numbers &of, int count, float *room) {
    float largest = -INFINITY;
    float negative = -INFINITY; // of the least one
    float above = 0;
    gpu_order_each(of, count, [&](int, float logit) {
        if (logit > -INFINITY) {
            largest = fmaxf(largest, logit);
            negative = fmaxf(negative, -logit);
            above += 1;
        }
    });
    facts out;
    out.largest = gpu_block_max(largest, room);
    __syncthreads();
    out.least = -gpu_block_max(negative, room);
    __syncthreads();
    out.count = static_cast<int>(gpu_block_sum(above, room));
    __syncthreads();
    return out;
}

// The k-th largest; minus infinity where nothing is cut.
__device__ float find_kth(const numbers &of, int count, const facts &row, int64_t k,
                          gpu_order_room<float> *room) {
    if (k < 1 || k >= count || k > row.count) {
        return -INFINITY;
    }
    const float target = static_cast<float>(row.count - static_cast<int>(k));
    return gpu_order_value(gpu_order_find<false>(
                               of, count, gpu_order_key(row.least), gpu_order_key(row.largest),
                               [target](float) { return target; }, room)
                               .key);
}

// The first that top-p leaves of the logits from `least` on.
__device__ gpu_order_place find_first(const weights &of, int count, float least, float p,
                                      gpu_order_room<float> *room) {
    const float from = fmaxf(least, of.largest - NO_WEIGHT);
    const float rest = 1.0f - p;
    // Why so: nothing is cut where p is above 1 or NaN, or the largest has no weight.
    if (!(rest >= 0) || !(of.largest < INFINITY)) {
        return gpu_order_place{0, 0};
    }
    return gpu_order_find<true>(
        of, count, gpu_order_key(from), gpu_order_key(of.largest),
        [rest](float sum) { return rest * sum; }, room);
}

__global__ void __launch_bounds__(GPU_ORDER_THREADS) cut_kernel(operands all) {
    __shared__ gpu_order_room<float> room;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const float *from = gpu_sampling_from(all.rows);
    float *to = gpu_sampling_to(all.rows);
    const int count = static_cast<int>(all.rows.count);
    const facts row = facts_of(numbers{from}, count, &room.sums[0][0]);
    float least = -INFINITY;
    gpu_order_place first = {0, 0};
    if (all.k) {
        least =
            find_kth(numbers{from}, count, row, gpu_integer(all.k, all.k_dtype, blockIdx.x), &room);
    }
    if (all.p && row.count > 0) {
        first = find_first(weights{{from}, row.largest}, count, least, all.p[blockIdx.x], &room);
    }
    for (int i = threadIdx.x; i < count; i += GPU_ORDER_THREADS) {
        const uint32_t key = gpu_order_key(from[i]);
        const bool is_before =
            key < first.key || (key == first.key && static_cast<uint32_t>(i) < first.id);
        const bool is_cut = from[i] < least || (is_before && from[i] == from[i]);
        to[i] = is_cut ? -INFINITY : from[i];
    }
}

berth_status forward(void *self, const berth_op_args *args) {
    const berth_tensor *k = args->inputs[K];
    const operands all = {gpu_sampling_rows_of(args), k ? berth_gpu_data(k) : nullptr,
                          k ? k->dtype : BERTH_DTYPE_I32, gpu_sampling_option(args, P)};
    return gpu_sampling_run(static_cast<const gpu_op *>(self), args, cut_kernel, all);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_sampling_top_k_top_p;
const berth_op_impl berth_kernel_sampling_top_k_top_p = {
    BERTH_GPU_KERNEL("sampling_top_k_top_p"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
