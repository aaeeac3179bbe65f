// SPDX-License-Identifier: Apache-2.0
// Parts of decode attention put together: those of a block's warps in shared memory, then those of
// the blocks that share a sequence, by the block that comes last, or a slice each by the blocks of
// a cluster. Only decode.cu and decode_many.cu include this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_PARTS_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_PARTS_H

#include <cuda/attention/decode_sums.h>
#include <cuda/cluster.h>
#include <cuda/order.h>

namespace {

// Of some warps or blocks, in shared memory or in the device's.
struct head_parts {
    float *outs;   // [part][group][width], not scaled
    float2 *stats; // [part][group]: the largest score and the total
};

// The shared memory of a warp that replaces its ring after the last key.
template <int WIDTH>
constexpr uint32_t PARTS_BYTES = CUDA_DECODE_HEADS *(WIDTH + 2) * sizeof(float);

// The own warp's result to part threadIdx.y.
template <int WIDTH, bool IS_DEEP>
__device__ void write_part(const heads_sum<WIDTH> &sum, const head_parts &to, int group) {
    const int g = threadIdx.x / 4;
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int row = 0; row < (IS_DEEP ? 2 : 1); ++row) {
        const float total = row_sum(sum.total[row]);
        const int head = static_cast<int>(threadIdx.y) * group + g + 8 * row;
        if (g + 8 * row >= group) {
            continue;
        }
        // Column n of product i is element 8n + i % 8 of half i / 8.
#pragma unroll
        for (int four = 0; four < WIDTH / 16; ++four) {
            const int first = four / 4 * 8 + four % 2 * 4;
            const int column = 2 * row + four / 2 % 2;
            *reinterpret_cast<float4 *>(to.outs + head * WIDTH + four / 4 * 64 + 16 * c +
                                        four % 4 * 4) =
                float4{sum.out[first][column], sum.out[first + 1][column],
                       sum.out[first + 2][column], sum.out[first + 3][column]};
        }
        to.stats[head] = float2{sum.largest[row], total};
    }
}

// Four elements of a head's common sum, its largest score and its total.
struct common {
    float4 sum;
    float largest;
    float total;
};

__device__ float4 scaled(const float4 &value, float by) {
    return float4{value.x * by, value.y * by, value.z * by, value.w * by};
}

// Fours of elements of parts, and what is known of them, those of a part so far behind the last's.
struct parts_of_four {
    const float4 *outs;
    const float2 *stats;
    int outs_gap;
    int stats_gap;
};

// `count` parts in their order, so that the sum is always the same. BATCH of them are loaded at
// once: a sum waits for memory seldom.
template <int BATCH> __device__ common put_together(const parts_of_four &parts, int count) {
    common all = {
        {0, 0, 0, 0},
        -INFINITY, 0
    };
#pragma unroll 1
    for (int first = 0; first < count; first += BATCH) {
        float2 stats[BATCH];
        float4 outs[BATCH];
        float most = all.largest;
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const bool is_there = first + i < count;
            stats[i] = is_there ? parts.stats[(first + i) * parts.stats_gap] : float2{-INFINITY, 0};
            outs[i] = is_there ? parts.outs[(first + i) * parts.outs_gap] : float4{0, 0, 0, 0};
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            most = fmaxf(most, stats[i].x);
        }
        const float base = most == -INFINITY ? 0 : most; // nothing seen yet
        const float old = cuda_exp2(all.largest - base);
        all = common{scaled(all.sum, old), most, all.total * old};
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const float share = cuda_exp2(stats[i].x - base);
            const float4 out = scaled(outs[i], share);
            all.sum =
                float4{all.sum.x + out.x, all.sum.y + out.y, all.sum.z + out.z, all.sum.w + out.w};
            all.total += stats[i].y * share;
        }
    }
    return all;
}

// Four number `four` of a key head's.
template <int WIDTH>
__device__ parts_of_four four_of(const head_parts &parts, int group, int four) {
    return parts_of_four{reinterpret_cast<const float4 *>(parts.outs) + four,
                         parts.stats + four * 4 / WIDTH, group * WIDTH / 4, group};
}

// A sink is one more score without a value.
__device__ float with_sink(const gpu_attention_call &call, int head, const common &all,
                           float *factor) {
    *factor = 1;
    if (!call.sinks) {
        return all.total;
    }
    const float sink = gpu_load_any(call.sinks, call.sink_dtype, head) * LOG2E;
    const float most = fmaxf(all.largest, sink);
    *factor = cuda_exp2(all.largest - most);
    return all.total * *factor + cuda_exp2(sink - most);
}

template <typename T, int WIDTH>
__device__ void write_four(const gpu_attention_call &call, const task &job, int four,
                           const common &all) {
    const int head = job.head * job.group + four * 4 / WIDTH;
    float factor;
    const float total = with_sink(call, head, all, &factor);
    const float4 sum = scaled(all.sum, factor * gpu_cache_scale(call.value_scale) / total);
    const gpu_pack<T, 4> out = {gpu_round<T>(sum.x), gpu_round<T>(sum.y), gpu_round<T>(sum.z),
                                gpu_round<T>(sum.w)};
    const int64_t row = static_cast<int64_t>(job.token) * call.heads + head;
    gpu_store<T, 4>(gpu_row<T>(call.out, row), four * 4 % WIDTH, out);
}

// ---- a cluster ----------------------------------------------------------------------------------

// Where each block of a cluster gets a slice of the parts of all that have keys: a barrier whose
// phase 0 ends when all bytes are there, and room. The same places in every block.
struct meeting {
    unsigned char *room;
    uint32_t barrier;
    int parts;
    int fours; // of a part
    int shift; // of a slice's fours, a power of two

    __device__ meeting(unsigned char *at, const uint64_t *signal, int count, int all)
        : room(at), barrier(static_cast<uint32_t>(__cvta_generic_to_shared(signal))), parts(count),
          fours(all), shift(0) {
        while (max(count, 1) << shift < all) {
            ++shift;
        }
    }
    __device__ int first() const {
        return own_share() << shift;
    }
    // Of the fours; the last blocks may have none.
    __device__ int own() const {
        return max(0, min(1 << shift, fours - first()));
    }
    // Of the part that is `part`th and the four that is `i`th of a slice.
    __device__ float4 *sums(int part, int i) const {
        return reinterpret_cast<float4 *>(room) + (part << shift) + i;
    }
    __device__ float2 *stats(int part, int i) const {
        return reinterpret_cast<float2 *>(sums(parts, 0)) + (part << shift) + i;
    }
    // By all threads of the blocks that have keys, before the first part is sent.
    __device__ void open() const {
        if (threadIdx.x == 0 && threadIdx.y == 0) {
            cuda_barrier_init(barrier, 1);
            cuda_barrier_publish();
            cuda_barrier_expect(barrier, static_cast<uint32_t>(own() * parts) *
                                             (sizeof(float4) + sizeof(float2)));
        }
        __syncwarp();
        cuda_cluster_arrive();
    }
    __device__ void send(int four, const common &part) const {
        const int to = four >> shift;
        const int i = four - (to << shift);
        const uint32_t signal = cuda_place_in(barrier, to);
        const auto place = [&](const void *at) {
            return cuda_place_in(static_cast<uint32_t>(__cvta_generic_to_shared(at)), to);
        };
        cuda_send(place(sums(own_share(), i)), part.sum, signal);
        cuda_send(place(stats(own_share(), i)), float2{part.largest, part.total}, signal);
    }
    __device__ parts_of_four received(int i) const {
        return parts_of_four{sums(0, i), stats(0, i), 1 << shift, 1 << shift};
    }
};

// ---- memory -------------------------------------------------------------------------------------

template <int WIDTH>
__device__ void store_part(const head_parts &to, int group, int four, const common &part) {
    constexpr int FOURS = WIDTH / 4;
    reinterpret_cast<float4 *>(to.outs)[own_share() * group * FOURS + four] = part.sum;
    if (four % FOURS == 0) {
        to.stats[own_share() * group + four / FOURS] = float2{part.largest, part.total};
    }
}

// After the own part is stored: true in the last block of a sequence, which sees all parts.
__device__ bool is_last_of(int parts, int *arrivals) {
    __shared__ int is_last;
    __syncthreads();
    if (thread_number() == 0) {
        is_last = cuda_arrive(arrivals) == parts - 1;
        if (is_last) {
            *arrivals = 0;
        }
    }
    __syncthreads();
    return is_last != 0;
}

} // namespace

#endif
