// SPDX-License-Identifier: Apache-2.0
// Parts of decode attention put together: those of a block's warps in shared memory, then those of
// the blocks that share a sequence, by the block that comes last. Only decode.cu includes this.
#ifndef BERTH_KERNELS_CUDA_ATTENTION_DECODE_PARTS_H
#define BERTH_KERNELS_CUDA_ATTENTION_DECODE_PARTS_H

#include <cuda/attention/decode_sums.h>
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

// Elements `at` and on of [group][WIDTH] of `count` parts, in the order of the parts, so that the
// sum is always the same. Several parts are loaded at once: a sum waits for memory seldom.
template <int WIDTH>
__device__ common put_together(const head_parts &parts, int count, int group, int at) {
    constexpr int BATCH = 8;
    const int head = at / WIDTH;
    common all = {
        {0, 0, 0, 0},
        -INFINITY, 0
    };
    for (int first = 0; first < count; first += BATCH) {
        float2 stats[BATCH];
        float4 outs[BATCH];
        float most = all.largest;
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int64_t part = first + i;
            const bool is_there = part < count;
            stats[i] = is_there ? parts.stats[part * group + head] : float2{-INFINITY, 0};
            outs[i] =
                is_there ? *reinterpret_cast<const float4 *>(parts.outs + part * group * WIDTH + at)
                         : float4{0, 0, 0, 0};
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
__device__ void write_out(const gpu_attention_call &call, int token, int group,
                          const head_parts &parts, int count) {
    const int number = threadIdx.y * 32 + threadIdx.x;
    for (int at = number * 4; at < group * WIDTH; at += warps() * 32 * 4) {
        const int head = own_head() * group + at / WIDTH;
        const common all = put_together<WIDTH>(parts, count, group, at);
        float factor;
        const float total = with_sink(call, head, all, &factor);
        const float4 sum = scaled(all.sum, factor * gpu_cache_scale(call.value_scale));
        const gpu_pack<T, 4> out = {gpu_round<T>(sum.x / total), gpu_round<T>(sum.y / total),
                                    gpu_round<T>(sum.z / total), gpu_round<T>(sum.w / total)};
        const int64_t row = static_cast<int64_t>(token) * call.heads + head;
        gpu_store<T, 4>(gpu_row<T>(call.out, row), at % WIDTH, out);
    }
}

// This block's part, its warps' together, to memory; true in the last block of the sequence, which
// sees all parts.
template <int WIDTH>
__device__ bool hand_in(const head_parts &mine, const head_parts &to, int group, int parts,
                        int *arrivals) {
    __shared__ int is_last;
    const int number = threadIdx.y * 32 + threadIdx.x;
    for (int at = number * 4; at < group * WIDTH; at += warps() * 32 * 4) {
        const common all = put_together<WIDTH>(mine, warps(), group, at);
        const int64_t head = own_share() * group + at / WIDTH;
        *reinterpret_cast<float4 *>(to.outs + head * WIDTH + at % WIDTH) = all.sum;
        if (at % WIDTH == 0) {
            to.stats[head] = float2{all.largest, all.total};
        }
    }
    __syncthreads();
    if (number == 0) {
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
