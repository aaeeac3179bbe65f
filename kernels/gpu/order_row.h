// SPDX-License-Identifier: Apache-2.0
// A row of logits that a block of a GPU looks for places in (order.h): the keys that order its
// elements, a sweep over all of them, shared memory.
#ifndef BERTH_KERNELS_GPU_ORDER_ROW_H
#define BERTH_KERNELS_GPU_ORDER_ROW_H

#include "launch.h"

#include <math.h>

#define GPU_ORDER_THREADS 1024
#define GPU_ORDER_WARPS   (GPU_ORDER_THREADS / 32)
#define GPU_ORDER_PARTS   8 // of an interval
#define GPU_ORDER_SWEEPS  4 // that divide by values; later ones by keys
#define GPU_ORDER_LOADS   8 // of a thread that are under way together

// A float's place among floats; −0 is 0.
static __device__ inline uint32_t gpu_order_key(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
static __device__ inline float gpu_order_value(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

struct gpu_order_place {
    uint32_t key;
    uint32_t id;
};

template <typename S> struct gpu_order_room {
    S sums[GPU_ORDER_WARPS][GPU_ORDER_PARTS];
    int counts[GPU_ORDER_WARPS][GPU_ORDER_PARTS];
    uint64_t inside[GPU_ORDER_THREADS]; // key, id
    S weights[2][GPU_ORDER_THREADS];
    int count;
    int found;
};

// Every element of the row, call(i, logit), by all threads. Why so many at once: one after the
// other each would wait for its own load.
template <typename M, typename F>
static __device__ inline void gpu_order_each(const M &of, int count, F call) {
    for (int first = threadIdx.x; first < count; first += GPU_ORDER_LOADS * GPU_ORDER_THREADS) {
        float logits[GPU_ORDER_LOADS];
#pragma unroll
        for (int k = 0; k < GPU_ORDER_LOADS; ++k) {
            const int i = first + k * GPU_ORDER_THREADS;
            logits[k] = i < count ? of.logit(i) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < GPU_ORDER_LOADS; ++k) {
            const int i = first + k * GPU_ORDER_THREADS;
            if (i < count) {
                call(i, logits[k]);
            }
        }
    }
}

#endif
