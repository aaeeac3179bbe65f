// SPDX-License-Identifier: Apache-2.0
// Causal convolutions on a GPU, for causal_conv1d and causal_conv1d_update: a thread an element of
// the result, then a thread a channel of a sequence's state, which is read before it is renewed.
// Sums in f32, rounded before the activation and after it.
#ifndef BERTH_KERNELS_GPU_CONV1D_H
#define BERTH_KERNELS_GPU_CONV1D_H

#include "activation.h"
#include "sequences.h"

#define GPU_CONV1D_THREADS 128

// An element is at token · token + channel · channel; strides in elements.
struct gpu_conv1d_field {
    void *data;
    int64_t token;
    int64_t channel;
};

struct gpu_conv1d_call {
    gpu_sequences sequences;
    gpu_conv1d_field x;
    gpu_conv1d_field y;
    void *state; // [slots, channels, width − 1], or with the last two exchanged
    berth_dtype state_dtype;
    int64_t state_channel;
    int64_t state_age;
    const void *weight; // [channels, width]
    berth_dtype weight_dtype;
    const void *bias; // NULL: none
    berth_dtype bias_dtype;
    int64_t tokens;
    int channels;
    int width;
    int is_silu;
};

static __device__ inline int64_t gpu_conv1d_kept(const gpu_conv1d_call &call, int64_t slot,
                                                 int channel, int64_t age) {
    return slot * call.channels * (call.width - 1) + channel * call.state_channel +
           age * call.state_age;
}

// The input at `time`, counted from the sequence's first new row; below 0 from the state.
template <typename T>
static __device__ float gpu_conv1d_input(const gpu_conv1d_call &call, const gpu_sequence &sequence,
                                         int channel, int64_t time) {
    if (time >= 0) {
        return gpu_float(static_cast<const T *>(
            call.x.data)[(sequence.first + time) * call.x.token + channel * call.x.channel]);
    }
    return sequence.has_state
               ? gpu_load_any(call.state, call.state_dtype,
                              gpu_conv1d_kept(call, sequence.slot, channel, call.width - 1 + time))
               : 0.0f;
}

// blockIdx.x: which channels; blockIdx.y: which rows.
template <typename T> static __global__ void gpu_conv1d_kernel(gpu_conv1d_call call) {
    const int channel = static_cast<int>(blockIdx.x) * GPU_CONV1D_THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t row = blockIdx.y; row < call.tokens && channel < call.channels; row += gridDim.y) {
        const gpu_sequence sequence =
            gpu_sequence_at(call.sequences, gpu_sequence_of(call.sequences, row));
        if (row >= sequence.end) {
            continue; // nobody's
        }
        float sum = call.bias ? gpu_load_any(call.bias, call.bias_dtype, channel) : 0.0f;
        for (int k = 0; k < call.width && sequence.slot >= 0; ++k) {
            const int64_t time = row - sequence.first - call.width + 1 + k;
            sum += gpu_load_any(call.weight, call.weight_dtype,
                                static_cast<int64_t>(channel) * call.width + k) *
                   gpu_conv1d_input<T>(call, sequence, channel, time);
        }
        sum = sequence.slot < 0 ? 0.0f : gpu_rounded<T>(sum);
        static_cast<T *>(call.y.data)[row * call.y.token + channel * call.y.channel] =
            gpu_round<T>(call.is_silu ? gpu_silu<float>(sum) : sum);
    }
}

// blockIdx.x: which channels; blockIdx.y: the sequence. Reads ahead of where it writes, since there
// is at least one new row.
template <typename T> static __global__ void gpu_conv1d_keep_kernel(gpu_conv1d_call call) {
    const int channel = static_cast<int>(blockIdx.x) * GPU_CONV1D_THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const gpu_sequence sequence = gpu_sequence_at(call.sequences, static_cast<int>(blockIdx.y));
    const int64_t count = sequence.end - sequence.first;
    if (channel >= call.channels || count == 0 || sequence.slot < 0) {
        return;
    }
    for (int64_t age = 0; age < call.width - 1; ++age) {
        const float value =
            gpu_conv1d_input<T>(call, sequence, channel, count - call.width + 1 + age);
        gpu_store_any(call.state, call.state_dtype,
                      gpu_conv1d_kept(call, sequence.slot, channel, age), value);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

struct gpu_conv1d : gpu_op {
    uint64_t group; // of caches
    int is_silu;
    int is_last; // channels_last
};

static inline berth_status gpu_conv1d_create(const berth_op_site *site, const berth_device *device,
                                             void **out_self) {
    const berth_status status = gpu_new<gpu_conv1d>(site, device, out_self);
    if (status == BERTH_OK) {
        const berth_attribute *is_last = berth_site_attribute(site, "channels_last");
        gpu_conv1d *self = static_cast<gpu_conv1d *>(*out_self);
        self->group = site->cache_group;
        self->is_silu = berth_site_attribute(site, "activation")->str[0] != 0;
        self->is_last = is_last && is_last->i64;
    }
    return status;
}

static inline gpu_conv1d_field gpu_conv1d_field_of(const berth_tensor *tensor, int is_by_token) {
    return gpu_conv1d_field{berth_gpu_data(tensor), is_by_token ? tensor->strides[0] : 1,
                            is_by_token ? 1 : tensor->strides[0]};
}

// What x, weight and bias, the first three inputs, say of a call whose x is by token or by channel.
static inline gpu_conv1d_call gpu_conv1d_begin(const gpu_conv1d *op, const berth_op_args *args,
                                               int is_by_token) {
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *weight = args->inputs[1];
    const berth_tensor *bias = args->inputs[2];
    gpu_conv1d_call call = {};
    call.x = gpu_conv1d_field_of(x, is_by_token);
    call.y = gpu_conv1d_field_of(args->outputs[0], is_by_token);
    call.channels = static_cast<int>(weight->shape[0]);
    call.width = static_cast<int>(weight->shape[weight->ndim - 1]);
    call.tokens = x->shape[is_by_token ? 0 : 1];
    call.state = berth_gpu_data(args->states[0]);
    call.state_dtype = args->states[0]->dtype;
    call.state_channel = op->is_last ? 1 : call.width - 1;
    call.state_age = op->is_last ? call.channels : 1;
    call.weight = berth_gpu_data(weight);
    call.weight_dtype = weight->dtype;
    call.bias = bias ? berth_gpu_data(bias) : nullptr;
    call.bias_dtype = bias ? bias->dtype : weight->dtype;
    call.is_silu = op->is_silu;
    return call;
}

static inline berth_status gpu_conv1d_run(const gpu_conv1d *op, const gpu_conv1d_call &call,
                                          berth_dtype dtype) {
    constexpr int64_t MOST = 65535; // of a grid's second dimension
    if (call.tokens == 0 || call.sequences.count == 0) {
        return BERTH_OK;
    }
    const unsigned tiles = gpu_ceil(call.channels, GPU_CONV1D_THREADS);
    const gpu_grid rows = {
        dim3(tiles, static_cast<unsigned>(call.tokens < MOST ? call.tokens : MOST)),
        dim3(GPU_CONV1D_THREADS), 0};
    const gpu_grid states = {dim3(tiles, static_cast<unsigned>(call.sequences.count)),
                             dim3(GPU_CONV1D_THREADS), 0};
    return gpu_with_type(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const berth_status status =
            gpu_run(op, "a causal convolution", rows, gpu_conv1d_kernel<T>, call);
        return status == BERTH_OK && call.width > 1
                   ? gpu_run(op, "a convolution's state", states, gpu_conv1d_keep_kernel<T>, call)
                   : status;
    });
}

#endif
