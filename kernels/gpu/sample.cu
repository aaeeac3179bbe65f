// SPDX-License-Identifier: Apache-2.0
// sample on a GPU: a block a row, which asks order.h for three places: the last of the first top_k,
// the last of the nucleus, and the one that the random number points to. Weights and their sums are
// f64, as the reference's.
#include "order.h"

#include <float.h>

namespace {

constexpr double DEPTH = 40.0; // powers of e below the likeliest
constexpr uint32_t NOWHERE = 0xffffffffu;

enum { LOGITS, TEMPERATURE, TOP_P, MIN_P, TOP_K, SEED, INDEX };

struct operands {
    gpu_rows logits;
    int count;
    const double *temperature;
    const double *top_p;
    const double *min_p;
    const int64_t *top_k;
    const int64_t *seed;
    const int64_t *index;
    int32_t *y;
};

// ---- what is ordered ----------------------------------------------------------------------------

// A row's logits, the largest first, up to the last that may be drawn.
template <typename T> struct candidates {
    const T *logits;
    gpu_order_place last;

    __device__ float logit(int i) const {
        return gpu_float(logits[i]);
    }
    __device__ uint32_t key(int i, float logit) const {
        const uint32_t own = ~gpu_order_key(logit);
        const bool is_in =
            own < last.key || (own == last.key && static_cast<uint32_t>(i) <= last.id);
        return is_in && logit == logit ? own : NOWHERE;
    }
    __device__ float value(uint32_t key) const {
        return -gpu_order_value(~key);
    }
    __device__ uint32_t of(float value) const {
        return ~gpu_order_key(-value);
    }
    __device__ double weight(float) const {
        return 1;
    }
};

template <typename T> struct weighed : candidates<T> {
    double largest;
    double temperature;

    __device__ double weight(float logit) const {
        return exp((static_cast<double>(logit) - largest) / temperature);
    }
};

// ---- the likeliest ------------------------------------------------------------------------------

// The least over a block, the same in all threads.
__device__ uint32_t block_least(uint32_t value, gpu_order_room<double> *room) {
    uint32_t *least = reinterpret_cast<uint32_t *>(&room->weights[0][0]);
    for (int mask = 16; mask > 0; mask /= 2) {
        value = min(value, gpu_shuffle_xor(value, mask));
    }
    if (threadIdx.x % 32 == 0) {
        least[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = least[threadIdx.x % 32];
    __syncthreads();
    for (int mask = 16; mask > 0; mask /= 2) {
        value = min(value, gpu_shuffle_xor(value, mask));
    }
    return value;
}

// The largest logit and the first place that has it.
template <typename T>
__device__ gpu_order_place first_of(const candidates<T> &of, int count,
                                    gpu_order_room<double> *room) {
    float largest = -INFINITY;
    uint32_t id = 0;
    gpu_order_each(of, count, [&](int i, float logit) {
        if (logit > largest) {
            largest = logit;
            id = static_cast<uint32_t>(i);
        }
    });
    gpu_order_place out;
    out.key = block_least(~gpu_order_key(largest), room);
    out.id = block_least(~gpu_order_key(largest) == out.key ? id : NOWHERE, room);
    return out;
}

// The key of the least float that is not too far below the largest: rounding may have put it to
// either side.
__device__ uint32_t last_key(double largest, double lowest) {
    float least = fmaxf(static_cast<float>(largest + lowest), -FLT_MAX);
    while (static_cast<double>(least) - largest < lowest) {
        least = nextafterf(least, INFINITY);
    }
    float next = nextafterf(least, -INFINITY);
    while (next > -INFINITY && static_cast<double>(next) - largest >= lowest) {
        least = next;
        next = nextafterf(next, -INFINITY);
    }
    return ~gpu_order_key(least);
}

// ---- a row --------------------------------------------------------------------------------------

// The first word of Philox4x32-10: Salmon et al., SC 2011.
__device__ uint32_t random_word(uint64_t key, uint64_t counter) {
    uint32_t a = static_cast<uint32_t>(counter);
    uint32_t b = static_cast<uint32_t>(counter >> 32);
    uint32_t c = 0;
    uint32_t d = 0;
#pragma unroll
    for (uint32_t round = 0; round < 10; ++round) {
        const uint64_t left = uint64_t{0xD2511F53} * a;
        const uint64_t right = uint64_t{0xCD9E8D57} * c;
        a = static_cast<uint32_t>(right >> 32) ^ b ^
            (static_cast<uint32_t>(key) + round * 0x9E3779B9u);
        b = static_cast<uint32_t>(right);
        c = static_cast<uint32_t>(left >> 32) ^ d ^
            (static_cast<uint32_t>(key >> 32) + round * 0xBB67AE85u);
        d = static_cast<uint32_t>(left);
    }
    return a;
}

template <typename T>
__device__ int32_t draw_row(const operands &all, const T *logits, gpu_order_room<double> *room) {
    const int row = static_cast<int>(blockIdx.x);
    const double temperature = all.temperature[row];
    const double top_p = all.top_p[row];
    const int64_t top_k = all.top_k[row];
    const candidates<T> whole = {
        logits, {NOWHERE, NOWHERE}
    };
    const gpu_order_place first = first_of(whole, all.count, room);
    const float largest = gpu_order_value(~first.key);
    if (!isfinite(largest) || !(temperature > 0)) {
        return isfinite(largest) ? static_cast<int32_t>(first.id) : -1;
    }
    const double lowest = fmin(log(fmax(all.min_p[row], exp(-DEPTH))), 0.0) * temperature;
    const uint32_t last = last_key(static_cast<double>(largest), lowest);
    weighed<T> of = {
        {logits, {last, NOWHERE}},
        static_cast<double>(largest), temperature
    };
    if (top_k > 0 && top_k < all.count) {
        const candidates<T> counted = of;
        const double before = static_cast<double>(top_k - 1);
        of.last = gpu_order_find<true>(
            counted, all.count, first.key, last, [before](double) { return before; }, room);
    }
    if (top_p > 0 && top_p < 1) {
        of.last = gpu_order_find<true>(
            of, all.count, first.key, of.last.key,
            [top_p](double sum) { return nextafter(top_p * sum, 0.0); }, room);
    }
    const double share =
        random_word(static_cast<uint64_t>(all.seed[row]), static_cast<uint64_t>(all.index[row])) *
        0x1p-32;
    const gpu_order_place drawn = gpu_order_find<true>(
        of, all.count, first.key, of.last.key, [share](double sum) { return share * sum; }, room);
    return static_cast<int32_t>(drawn.id);
}

template <typename T>
__global__ void __launch_bounds__(GPU_ORDER_THREADS) sample_kernel(operands all) {
    __shared__ gpu_order_room<double> room;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int32_t token = draw_row(all, gpu_row<const T>(all.logits, blockIdx.x), &room);
    if (threadIdx.x == 0) {
        all.y[blockIdx.x] = token;
    }
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename T> const T *option(const berth_op_args *args, int input) {
    return static_cast<const T *>(berth_gpu_data(args->inputs[input]));
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_op *op = static_cast<const gpu_op *>(self);
    const berth_tensor *logits = args->inputs[LOGITS];
    const operands all = {gpu_rows_of(logits),
                          static_cast<int>(logits->shape[1]),
                          option<double>(args, TEMPERATURE),
                          option<double>(args, TOP_P),
                          option<double>(args, MIN_P),
                          option<int64_t>(args, TOP_K),
                          option<int64_t>(args, SEED),
                          option<int64_t>(args, INDEX),
                          static_cast<int32_t *>(berth_gpu_data(args->outputs[0]))};
    const gpu_grid grid = {dim3(static_cast<unsigned>(logits->shape[0])), dim3(GPU_ORDER_THREADS),
                           0};
    if (logits->shape[0] == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(logits->dtype, [&](auto type) {
        return gpu_run(op, "sample", grid, sample_kernel<typename decltype(type)::type>, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_sample;
const berth_op_impl berth_kernel_sample = {
    BERTH_GPU_KERNEL("sample"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = gpu_create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
