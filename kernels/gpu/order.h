// SPDX-License-Identifier: Apache-2.0
// Places in the order of a row of logits on a GPU, without sorting it: which element it is with
// which the weights of all up to it, one after the other in ascending order, come to more than a
// target. A block has the row. It narrows an interval, an eighth of it in each sweep, until as few
// are inside as the block has threads; only these are sorted. Sums depend on the row alone, never
// on which thread was first.
//
// A measure says what is ordered and what it weighs:
//
//   logit(i)         element i of the row
//   key(i, logit)    0 to 2^32 − 2, ascending, else it is not in the order; of equal ones the lower
//                    i comes first
//   weight(logit)    S, not below 0
//   value(key)       a float that ascends with the key, and
//   of(value)        its inverse: by them an interval is divided while that is of use
#ifndef BERTH_KERNELS_GPU_ORDER_H
#define BERTH_KERNELS_GPU_ORDER_H

#include "order_row.h"

// What is still looked at: keys [low, high), or of one key the ids.
template <typename S> struct gpu_order_interval {
    uint32_t low;
    uint32_t high;
    S before; // weight of all below it
    bool has_ids;
    uint32_t key; // that all have then

    // False: it is not inside.
    template <typename M>
    __device__ bool place(const M &of, int i, float logit, uint32_t *out) const {
        const uint32_t own = of.key(i, logit);
        *out = has_ids ? static_cast<uint32_t>(i) : own;
        return *out >= low && *out < high && (!has_ids || own == key);
    }
};

// Where the interval's parts end, ascending; the last one at its own end.
template <typename S, typename M>
static __device__ inline void gpu_order_divide(const M &of, const gpu_order_interval<S> &all,
                                               int sweep, uint32_t *ends) {
    const float low = all.has_ids ? 0.0f : of.value(all.low);
    const float width = all.has_ids ? 0.0f : of.value(all.high - 1) - low;
    const bool has_values = sweep < GPU_ORDER_SWEEPS && width > 0 && width < INFINITY;
    const uint64_t size = all.high - all.low;
    uint32_t before = all.low;
#pragma unroll
    for (int part = 0; part < GPU_ORDER_PARTS - 1; ++part) {
        const uint32_t end =
            has_values ? of.of(low + width * (static_cast<float>(part + 1) / GPU_ORDER_PARTS))
                       : all.low + static_cast<uint32_t>(size * (part + 1) / GPU_ORDER_PARTS);
        before = min(max(end, before), all.high);
        ends[part] = before;
    }
    ends[GPU_ORDER_PARTS - 1] = all.high;
}

// What lies before the end of each part: weights and numbers, the same in all threads.
template <typename S, typename M>
static __device__ inline void
gpu_order_sweep(const M &of, int count, const gpu_order_interval<S> &all, const uint32_t *ends,
                gpu_order_room<S> *room, S *sums, int *counts) {
#pragma unroll
    for (int part = 0; part < GPU_ORDER_PARTS; ++part) {
        sums[part] = 0;
        counts[part] = 0;
    }
    gpu_order_each(of, count, [&](int i, float logit) {
        uint32_t place = 0;
        if (!all.place(of, i, logit, &place)) {
            return;
        }
        const S weight = of.weight(logit);
#pragma unroll
        for (int part = 0; part < GPU_ORDER_PARTS; ++part) {
            sums[part] += place < ends[part] ? weight : S{0};
            counts[part] += place < ends[part];
        }
    });
#pragma unroll
    for (int part = 0; part < GPU_ORDER_PARTS; ++part) {
        for (int mask = 16; mask > 0; mask /= 2) {
            sums[part] += gpu_shuffle_xor(sums[part], mask);
            counts[part] += gpu_shuffle_xor(counts[part], mask);
        }
        if (threadIdx.x % 32 == 0) {
            room->sums[threadIdx.x / 32][part] = sums[part];
            room->counts[threadIdx.x / 32][part] = counts[part];
        }
    }
    __syncthreads();
#pragma unroll
    for (int part = 0; part < GPU_ORDER_PARTS; ++part) {
        sums[part] = room->sums[threadIdx.x % 32][part];
        counts[part] = room->counts[threadIdx.x % 32][part];
        for (int mask = 16; mask > 0; mask /= 2) {
            sums[part] += gpu_shuffle_xor(sums[part], mask);
            counts[part] += gpu_shuffle_xor(counts[part], mask);
        }
    }
    __syncthreads();
}

// Narrows the interval to the part in which the target is passed, or, where it is not, to the last
// one that is not empty; returns how many are in it.
template <typename S>
static __device__ inline int gpu_order_narrow(gpu_order_interval<S> *all, S target,
                                              const uint32_t *ends, const S *sums,
                                              const int *counts) {
    const gpu_order_interval<S> whole = *all;
    bool is_found = false;
    int inside = 0;
#pragma unroll
    for (int part = 0; part < GPU_ORDER_PARTS; ++part) {
        const int before = part == 0 ? 0 : counts[part - (part > 0)];
        if (is_found || counts[part] == before) {
            continue;
        }
        all->low = part == 0 ? whole.low : ends[part - (part > 0)];
        all->high = ends[part];
        all->before = whole.before + (part == 0 ? S{0} : sums[part - (part > 0)]);
        inside = counts[part] - before;
        is_found = whole.before + sums[part] > target;
    }
    return inside;
}

// The few that are inside, in order: one a thread.
template <typename S, typename M>
static __device__ inline void
gpu_order_sort(const M &of, int count, const gpu_order_interval<S> &all, gpu_order_room<S> *room) {
    const unsigned own = threadIdx.x;
    room->inside[own] = ~uint64_t{0};
    if (own == 0) {
        room->count = 0;
    }
    __syncthreads();
    gpu_order_each(of, count, [&](int i, float logit) {
        uint32_t place = 0;
        if (all.place(of, i, logit, &place)) {
            room->inside[atomicAdd(&room->count, 1)] =
                static_cast<uint64_t>(of.key(i, logit)) << 32 | static_cast<uint32_t>(i);
        }
    });
    __syncthreads();
    for (unsigned size = 2; size <= GPU_ORDER_THREADS; size *= 2) {
        for (unsigned step = size / 2; step > 0; step /= 2) {
            const unsigned other = own ^ step;
            const uint64_t low = room->inside[min(own, other)];
            const uint64_t high = room->inside[max(own, other)];
            const bool is_turned = (low > high) == ((own & size) == 0);
            __syncthreads();
            room->inside[own] = (own < other) == is_turned ? high : low;
            __syncthreads();
        }
    }
}

// What the few weigh, each with those before it; returned is where.
template <typename S, typename M>
static __device__ inline const S *gpu_order_add(const M &of, gpu_order_room<S> *room) {
    const int own = static_cast<int>(threadIdx.x);
    room->weights[0][own] =
        own < room->count ? of.weight(of.logit(static_cast<int>(room->inside[own] & 0xffffffffu)))
                          : S{0};
    __syncthreads();
    int turn = 0;
    for (int step = 1; step < GPU_ORDER_THREADS; step *= 2, turn ^= 1) {
        const S left = own >= step ? room->weights[turn][own - step] : S{0};
        room->weights[turn ^ 1][own] = room->weights[turn][own] + left;
        __syncthreads();
    }
    return room->weights[turn];
}

// The place among the few where the target is passed, else the last one.
template <typename S>
static __device__ inline gpu_order_place gpu_order_pick(const S *sums, S before, S target,
                                                        gpu_order_room<S> *room) {
    const int own = static_cast<int>(threadIdx.x);
    if (own == 0) {
        room->found = room->count - 1;
    }
    __syncthreads();
    const bool is_passed = before + sums[own] > target;
    const bool was_passed = own > 0 && before + sums[own - (own > 0)] > target;
    if (own < room->count && is_passed && !was_passed) {
        room->found = own;
    }
    __syncthreads();
    const uint64_t found = room->inside[room->found];
    __syncthreads();
    return gpu_order_place{static_cast<uint32_t>(found >> 32), static_cast<uint32_t>(found)};
}

// The first in order of those with keys [low, high] with which their weights come to more than
// target_of(weight of them all); where they do not, the last. There is one. HAS_IDS: of equal ones
// the right one matters.
template <bool HAS_IDS, typename S, typename M, typename R>
static __device__ inline gpu_order_place gpu_order_find(const M &of, int count, uint32_t low,
                                                        uint32_t high, R target_of,
                                                        gpu_order_room<S> *room) {
    gpu_order_interval<S> all = {low, high + 1, 0, false, 0};
    S target = 0;
    int inside = count;
    for (int sweep = 0; inside > GPU_ORDER_THREADS; ++sweep) {
        uint32_t ends[GPU_ORDER_PARTS];
        S sums[GPU_ORDER_PARTS];
        int counts[GPU_ORDER_PARTS];
        if (!all.has_ids && all.high - all.low == 1 && sweep > 0) {
            if (!HAS_IDS) {
                return gpu_order_place{all.low, 0};
            }
            all = gpu_order_interval<S>{0, static_cast<uint32_t>(count), all.before, true, all.low};
        }
        gpu_order_divide(of, all, sweep, ends);
        gpu_order_sweep(of, count, all, ends, room, sums, counts);
        target = sweep == 0 ? target_of(sums[GPU_ORDER_PARTS - 1]) : target;
        inside = gpu_order_narrow(&all, target, ends, sums, counts);
    }
    gpu_order_sort(of, count, all, room);
    const S *sums = gpu_order_add(of, room);
    target = count > GPU_ORDER_THREADS ? target : target_of(sums[GPU_ORDER_THREADS - 1]);
    return gpu_order_pick(sums, all.before, target, room);
}

#endif
