// SPDX-License-Identifier: Apache-2.0
// Mamba's recurrence on a GPU, for selective_scan and selective_state_update: sixteen lanes a
// channel of a sequence, each with every sixteenth element of its state, token by token; in f32.
#ifndef BERTH_KERNELS_GPU_SCAN_H
#define BERTH_KERNELS_GPU_SCAN_H

#include "activation.h"
#include "sequences.h"

#define GPU_SCAN_LANES   16
#define GPU_SCAN_THREADS 128
#define GPU_SCAN_MOST    256 // elements of a channel's state

// An element of a channel is at token · token + channel / inner · outer + channel % inner · step;
// strides in elements.
struct gpu_scan_field {
    void *data; // NULL: absent
    int64_t token;
    int64_t outer;
    int64_t step;
    int inner;
};

// B or C: element j of a group at token · token + group · group + j · step.
struct gpu_scan_selector {
    const void *data;
    int64_t token;
    int64_t group;
    int64_t step;
};

// A number a channel, NULL: absent.
struct gpu_scan_vector {
    const void *data;
    berth_dtype dtype;

    __device__ float at(int64_t i) const {
        return data ? gpu_load_any(data, dtype, i) : 0.0f;
    }
};

struct gpu_scan_call {
    gpu_sequences sequences;
    gpu_scan_field x;
    gpu_scan_field delta;
    gpu_scan_field z;
    gpu_scan_field y;
    gpu_scan_selector b;
    gpu_scan_selector c;
    gpu_scan_vector decay;  // A [channels, n]
    gpu_scan_vector direct; // D
    gpu_scan_vector bias;   // of delta
    void *state;            // [slots, channels, n]
    berth_dtype state_dtype;
    int64_t channels;
    int64_t channels_per_group;
    int states; // n
    int is_softplus;
};

template <typename T>
static __device__ inline T *gpu_scan_at(const gpu_scan_field &field, int64_t token,
                                        int64_t channel) {
    return static_cast<T *>(field.data) + token * field.token +
           channel / field.inner * field.outer + channel % field.inner * field.step;
}

// One token of one channel: renews h, gives y in every lane. Element j of h is state
// lane + 16 · j.
template <typename T, int PER>
static __device__ float gpu_scan_step(const gpu_scan_call &call, int64_t token, int64_t channel,
                                      const float *decay, float *h) {
    const int lane = threadIdx.x % GPU_SCAN_LANES;
    const int64_t group = channel / call.channels_per_group;
    const T *b = static_cast<const T *>(call.b.data) + token * call.b.token + group * call.b.group;
    const T *c = static_cast<const T *>(call.c.data) + token * call.c.token + group * call.c.group;
    const float x = gpu_float(*gpu_scan_at<const T>(call.x, token, channel));
    float delta = gpu_float(*gpu_scan_at<const T>(call.delta, token, channel));
    delta += call.bias.at(channel);
    delta = call.is_softplus ? gpu_softplus(delta) : delta;
    float y = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
        const int at = lane + GPU_SCAN_LANES * j;
        if (at < call.states) {
            h[j] = expf(delta * decay[j]) * h[j] + delta * x * gpu_float(b[at * call.b.step]);
            y += h[j] * gpu_float(c[at * call.c.step]);
        }
    }
    for (int mask = GPU_SCAN_LANES / 2; mask > 0; mask /= 2) {
        y += gpu_shuffle_xor(y, mask);
    }
    y += call.direct.at(channel) * x;
    return call.z.data
               ? y * gpu_silu<float>(gpu_float(*gpu_scan_at<const T>(call.z, token, channel)))
               : y;
}

// blockIdx.x: which channels; blockIdx.y: the sequence. Lanes behind the last channel do its work
// too, so that whole warps shuffle, and store nothing.
template <typename T, int PER> static __global__ void gpu_scan_kernel(gpu_scan_call call) {
    constexpr int CHANNELS = GPU_SCAN_THREADS / GPU_SCAN_LANES;
    const int lane = threadIdx.x % GPU_SCAN_LANES;
    const int64_t wanted =
        static_cast<int64_t>(blockIdx.x) * CHANNELS + threadIdx.x / GPU_SCAN_LANES;
    const bool is_own = wanted < call.channels;
    const int64_t channel = is_own ? wanted : call.channels - 1;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const gpu_sequence sequence = gpu_sequence_at(call.sequences, static_cast<int>(blockIdx.y));
    const bool has_slot = sequence.slot >= 0;
    const int64_t kept = (has_slot ? sequence.slot * call.channels + channel : 0) * call.states;
    float decay[PER];
    float h[PER];
#pragma unroll
    for (int j = 0; j < PER; ++j) {
        const int at = lane + GPU_SCAN_LANES * j;
        const bool is_there = at < call.states;
        decay[j] = is_there ? call.decay.at(channel * call.states + at) : 0.0f;
        h[j] = is_there && has_slot && sequence.has_state
                   ? gpu_load_any(call.state, call.state_dtype, kept + at)
                   : 0.0f;
    }
    for (int64_t token = sequence.first; token < sequence.end; ++token) {
        const float y = has_slot ? gpu_scan_step<T, PER>(call, token, channel, decay, h) : 0.0f;
        if (lane == 0 && is_own) {
            *gpu_scan_at<T>(call.y, token, channel) = gpu_round<T>(y);
        }
    }
#pragma unroll
    for (int j = 0; j < PER; ++j) {
        const int at = lane + GPU_SCAN_LANES * j;
        if (at < call.states && is_own && has_slot && sequence.end > sequence.first) {
            gpu_store_any(call.state, call.state_dtype, kept + at, h[j]);
        }
    }
}

// ---- the host's side ----------------------------------------------------------------------------

static inline gpu_scan_vector gpu_scan_vector_of(const berth_tensor *tensor) {
    return gpu_scan_vector{tensor ? berth_gpu_data(tensor) : nullptr,
                           tensor ? tensor->dtype : BERTH_DTYPE_F32};
}

static inline berth_status gpu_scan_check(const berth_op_site *site, uint64_t decay) {
    const berth_value_type *type = site->inputs[decay];
    return type->dims[type->ndim - 1].b <= GPU_SCAN_MOST
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "states of at most %d elements",
                                   GPU_SCAN_MOST);
}

static inline berth_status gpu_scan_run(const gpu_op *op, const gpu_scan_call &call,
                                        berth_dtype dtype) {
    if (call.sequences.count == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {dim3(gpu_ceil(call.channels, GPU_SCAN_THREADS / GPU_SCAN_LANES),
                                static_cast<unsigned>(call.sequences.count)),
                           dim3(GPU_SCAN_THREADS), 0};
    return gpu_with_type(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return call.states <= GPU_SCAN_LANES
                   ? gpu_run(op, "a selective scan", grid, gpu_scan_kernel<T, 1>, call)
               : call.states <= 8 * GPU_SCAN_LANES
                   ? gpu_run(op, "a selective scan", grid, gpu_scan_kernel<T, 8>, call)
                   : gpu_run(op, "a selective scan", grid, gpu_scan_kernel<T, 16>, call);
    });
}

#endif
