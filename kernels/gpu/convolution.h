// SPDX-License-Identifier: Apache-2.0
// conv2d and conv3d on a GPU: an element of y a thread, sums in f32. What of the kernel lies in the
// padding is passed over (kernels/conv.h).
#ifndef BERTH_KERNELS_GPU_CONVOLUTION_H
#define BERTH_KERNELS_GPU_CONVOLUTION_H

#include "launch.h"

#include <conv.h>

#define GPU_CONVOLUTION_THREADS 256

struct gpu_convolution : gpu_op {
    berth_conv conv;
};

struct gpu_convolution_operands {
    berth_conv conv;
    const void *x; // all dense
    const void *weight;
    berth_dtype weight_dtype;
    const void *bias; // NULL: none
    berth_dtype bias_dtype;
    void *y;
    int64_t count; // elements of y
};

// Taps [begin, end) of a dimension that meet x at a position of y, whose first tap is at `at`.
struct gpu_convolution_taps {
    int64_t at;
    int64_t begin;
    int64_t end;
};

static __device__ inline gpu_convolution_taps gpu_convolution_taps_of(const berth_conv &conv,
                                                                      int dim, int64_t position) {
    const int64_t step = conv.dilation[dim];
    gpu_convolution_taps out;
    out.at = position * conv.stride[dim] - conv.padding[dim];
    out.begin = out.at < 0 ? (-out.at + step - 1) / step : 0;
    const int64_t most = (conv.size[dim] - out.at + step - 1) / step;
    out.end = most < conv.kernel[dim] ? most : conv.kernel[dim];
    return out;
}

// One channel of x by its part of a kernel.
template <typename T>
static __device__ inline float gpu_convolution_channel(const gpu_convolution_operands &all,
                                                       const gpu_convolution_taps *taps, int64_t x,
                                                       int64_t weight) {
    const berth_conv &conv = all.conv;
    float sum = 0;
    for (int64_t i = taps[0].begin; i < taps[0].end; ++i) {
        const int64_t plane = (taps[0].at + i * conv.dilation[0]) * conv.size[1];
        for (int64_t j = taps[1].begin; j < taps[1].end; ++j) {
            const int64_t line = (plane + taps[1].at + j * conv.dilation[1]) * conv.size[2];
            const int64_t tap = (i * conv.kernel[1] + j) * conv.kernel[2];
            for (int64_t k = taps[2].begin; k < taps[2].end; ++k) {
                const int64_t from = x + line + taps[2].at + k * conv.dilation[2];
                sum += gpu_float(static_cast<const T *>(all.x)[from]) *
                       gpu_load_any(all.weight, all.weight_dtype, weight + tap + k);
            }
        }
    }
    return sum;
}

template <typename T> static __global__ void gpu_convolution_kernel(gpu_convolution_operands all) {
    const berth_conv &conv = all.conv;
    const int64_t size = conv.size[0] * conv.size[1] * conv.size[2];
    const int64_t kernel = conv.kernel[0] * conv.kernel[1] * conv.kernel[2];
    const int64_t channels = conv.channels;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * GPU_CONVOLUTION_THREADS + threadIdx.x;
         i < all.count; i += static_cast<int64_t>(gridDim.x) * GPU_CONVOLUTION_THREADS) {
        gpu_convolution_taps taps[3];
        int64_t rest = i;
#pragma unroll
        for (int dim = 2; dim >= 0; --dim) {
            taps[dim] = gpu_convolution_taps_of(conv, dim, rest % conv.positions[dim]);
            rest /= conv.positions[dim];
        }
        const int64_t output = rest % conv.out;
        const int64_t first =
            rest / conv.out * conv.in + output / (conv.out / conv.groups) * channels;
        float sum = all.bias ? gpu_load_any(all.bias, all.bias_dtype, output) : 0.0f;
        for (int64_t c = 0; c < channels; ++c) {
            sum += gpu_convolution_channel<T>(all, taps, (first + c) * size,
                                              (output * channels + c) * kernel);
        }
        static_cast<T *>(all.y)[i] = gpu_round<T>(sum);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

static inline berth_status gpu_convolution_supports(const berth_op_site *site,
                                                    const berth_device *) {
    return gpu_check_floats(site, 0);
}

template <int RANK>
static berth_status gpu_convolution_create(const berth_op_site *site, const berth_device *device,
                                           void **out_self) {
    const berth_status status = gpu_new<gpu_convolution>(site, device, out_self);
    if (status == BERTH_OK) {
        berth_conv_read(site, RANK, &static_cast<gpu_convolution *>(*out_self)->conv);
    }
    return status;
}

static berth_status gpu_convolution_forward(void *self, const berth_op_args *args) {
    constexpr int64_t MOST = 65535; // blocks
    const gpu_convolution *op = static_cast<const gpu_convolution *>(self);
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *weight = args->inputs[1];
    const berth_tensor *bias = args->inputs[2];
    gpu_convolution_operands all = {};
    all.conv = op->conv;
    all.x = berth_gpu_data(x);
    all.weight = berth_gpu_data(weight);
    all.weight_dtype = weight->dtype;
    all.bias = bias ? berth_gpu_data(bias) : nullptr;
    all.bias_dtype = bias ? bias->dtype : x->dtype;
    all.y = berth_gpu_data(args->outputs[0]);
    all.count = x->shape[0] * op->conv.out * berth_conv_volume(op->conv.positions);
    if (all.count == 0) {
        return BERTH_OK;
    }
    const int64_t blocks = gpu_ceil(all.count, GPU_CONVOLUTION_THREADS);
    const gpu_grid grid = {dim3(static_cast<unsigned>(blocks < MOST ? blocks : MOST)),
                           dim3(GPU_CONVOLUTION_THREADS), 0};
    return gpu_with_type(x->dtype, [&](auto type) {
        return gpu_run(op, "a convolution", grid,
                       gpu_convolution_kernel<typename decltype(type)::type>, all);
    });
}

#define GPU_CONVOLUTION_SLOTS(rank)                                                                \
    .revision = 1, .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,                      \
    .supports = gpu_convolution_supports, .create = gpu_convolution_create<rank>,                  \
    .forward = gpu_convolution_forward, .destroy = gpu_destroy

#endif
