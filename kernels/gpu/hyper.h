// SPDX-License-Identifier: Apache-2.0
// Hyper-connections on a GPU (formulas: native/mhc_rules.h): several residual streams of a token,
// how a block is entered from them and left for them. A block of threads a token.
#ifndef BERTH_KERNELS_GPU_HYPER_H
#define BERTH_KERNELS_GPU_HYPER_H

#include "each.h"

#define GPU_HYPER_THREADS 256
#define GPU_HYPER_STREAMS 8 // at most
#define GPU_HYPER_MIXES   (GPU_HYPER_STREAMS * (GPU_HYPER_STREAMS + 2))

// Attributes of the ops that enter a block.
struct gpu_hyper : gpu_op {
    float rms_eps;
    float pre_eps;
    float sinkhorn_eps;
    float post_mult;
    int repeat;
};

struct gpu_hyper_operands {
    const void *residual; // [tokens, streams, hidden], dense, as all are
    const float *fn;      // [rows, streams · hidden]
    const float *scale;
    const float *base; // [rows]
    float *post;       // [tokens, streams]
    float *comb;       // [tokens, streams, streams]
    void *input;       // [tokens, hidden]
    int streams;
    int64_t hidden;
};

static __device__ inline float gpu_hyper_sigmoid(float value) {
    return 1.0f / (1.0f + expf(-value));
}

// mix[i] = fn_i · x / sqrt(mean(x²) + eps), of all rows of fn; `room` has a float a warp.
template <typename T>
static __device__ inline void gpu_hyper_products(const gpu_hyper_operands &all, int rows, float eps,
                                                 float *room, float *mix) {
    const int64_t width = all.streams * all.hidden;
    const T *x = static_cast<const T *>(all.residual) + blockIdx.x * width;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += GPU_HYPER_THREADS) {
        squares += gpu_float(x[i]) * gpu_float(x[i]);
    }
    const float mean = gpu_block_sum(squares, room) / static_cast<float>(width);
    const float norm = 1.0f / sqrtf(mean + eps);
    const int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < rows; row += GPU_HYPER_THREADS / 32) {
        const float *weights = all.fn + row * width;
        float sum = 0;
        for (int64_t i = lane; i < width; i += 32) {
            sum += gpu_float(x[i]) * weights[i];
        }
        sum = gpu_warp_sum(sum);
        if (lane == 0) {
            mix[row] = sum * norm;
        }
    }
    __syncthreads();
}

// input = Σ factor_i · stream i.
template <typename T>
static __device__ inline void gpu_hyper_mix(const gpu_hyper_operands &all, const float *factors) {
    const T *x = static_cast<const T *>(all.residual) + blockIdx.x * all.streams * all.hidden;
    T *to = static_cast<T *>(all.input) + blockIdx.x * all.hidden;
    for (int64_t i = threadIdx.x; i < all.hidden; i += GPU_HYPER_THREADS) {
        float sum = 0;
        for (int stream = 0; stream < all.streams; ++stream) {
            sum += factors[stream] * gpu_float(x[stream * all.hidden + i]);
        }
        to[i] = gpu_round<T>(sum);
    }
}

// Divides each of the lines by its sum + eps; `step` is from element to element of one, `gap` from
// line to line.
static __device__ inline void gpu_hyper_divide(float *comb, int streams, int gap, int step,
                                               float eps) {
    for (int i = 0; i < streams; ++i) {
        float sum = eps;
        for (int j = 0; j < streams; ++j) {
            sum += comb[i * gap + j * step];
        }
        for (int j = 0; j < streams; ++j) {
            comb[i * gap + j * step] /= sum;
        }
    }
}

static __device__ inline void gpu_hyper_softmax(float *row, int streams, float eps) {
    float largest = row[0];
    float sum = 0;
    for (int i = 1; i < streams; ++i) {
        largest = fmaxf(largest, row[i]);
    }
    for (int i = 0; i < streams; ++i) {
        row[i] = expf(row[i] - largest);
        sum += row[i];
    }
    for (int i = 0; i < streams; ++i) {
        row[i] = row[i] / sum + eps;
    }
}

// Products to gates of the streams, what a block's output is multiplied by, and the streams' mix.
// One thread: there are a few dozen numbers.
static __device__ inline void gpu_hyper_gates(const gpu_hyper_operands &all, const gpu_hyper &op,
                                              float *mix) {
    const int streams = all.streams;
    float *comb = mix + 2 * streams;
    for (int i = 0; i < streams * (streams + 2); ++i) {
        const int kind = i < streams ? 0 : i < 2 * streams ? 1 : 2;
        mix[i] = mix[i] * all.scale[kind] + all.base[i];
    }
    for (int i = 0; i < streams; ++i) {
        mix[i] = gpu_hyper_sigmoid(mix[i]) + op.pre_eps;
        mix[streams + i] = gpu_hyper_sigmoid(mix[streams + i]) * op.post_mult;
        gpu_hyper_softmax(comb + i * streams, streams, op.sinkhorn_eps);
    }
    gpu_hyper_divide(comb, streams, 1, streams, op.sinkhorn_eps);
    for (int i = 1; i < op.repeat; ++i) {
        gpu_hyper_divide(comb, streams, streams, 1, op.sinkhorn_eps);
        gpu_hyper_divide(comb, streams, 1, streams, op.sinkhorn_eps);
    }
}

template <typename T>
static __global__ void gpu_hyper_enter_kernel(gpu_hyper_operands all, gpu_hyper op) {
    __shared__ float mix[GPU_HYPER_MIXES];
    __shared__ float room[GPU_HYPER_THREADS / 32];
    const int streams = all.streams;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_hyper_products<T>(all, streams * (streams + 2), op.rms_eps, room, mix);
    if (threadIdx.x == 0) {
        gpu_hyper_gates(all, op, mix);
    }
    __syncthreads();
    const int64_t token = blockIdx.x;
    for (int i = threadIdx.x; i < streams * (streams + 1); i += GPU_HYPER_THREADS) {
        if (i < streams) {
            all.post[token * streams + i] = mix[streams + i];
        } else {
            all.comb[token * streams * streams + i - streams] = mix[streams + i];
        }
    }
    gpu_hyper_mix<T>(all, mix);
}

// Element i of stream `row` % streams: what the block made, and the streams before it.
struct gpu_hyper_left {
    const void *x;        // [tokens, hidden]
    const void *residual; // [tokens, streams, hidden]
    const float *post;
    const float *comb;
    int streams;
    int64_t hidden;

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const int64_t token = row / streams;
        const T *from = static_cast<const T *>(residual) + token * streams * hidden + i;
        float sum = post[row] * gpu_float(static_cast<const T *>(x)[token * hidden + i]);
        for (int stream = 0; stream < streams; ++stream) {
            sum += comb[(token * streams + stream) * streams + row % streams] *
                   gpu_float(from[stream * hidden]);
        }
        return sum;
    }
};

// ---- the host's side ----------------------------------------------------------------------------

static inline berth_status gpu_hyper_supports(const berth_op_site *site, uint64_t residual) {
    const berth_value_type *type = site->inputs[residual];
    return type->dims[type->ndim - 2].b <= GPU_HYPER_STREAMS
               ? gpu_check_rank(site, residual)
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "at most %d streams",
                                   GPU_HYPER_STREAMS);
}

static inline berth_status gpu_hyper_create(const berth_op_site *site, const berth_device *device,
                                            void **out_self) {
    const berth_status status = gpu_new<gpu_hyper>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_hyper *self = static_cast<gpu_hyper *>(*out_self);
        const auto number = [site](const char *name) {
            return static_cast<float>(berth_site_attribute(site, name)->f64);
        };
        self->rms_eps = number("rms_eps");
        self->pre_eps = number("hc_pre_eps");
        self->sinkhorn_eps = number("hc_sinkhorn_eps");
        self->post_mult = number("hc_post_mult_value");
        self->repeat = static_cast<int>(berth_site_attribute(site, "sinkhorn_repeat")->i64);
    }
    return status;
}

static inline const float *gpu_hyper_floats(const berth_tensor *tensor) {
    return static_cast<const float *>(berth_gpu_data(tensor));
}

// `weights`: fn, scale and base.
static inline gpu_hyper_operands gpu_hyper_operands_of(const berth_tensor *residual,
                                                       const berth_tensor *const *weights) {
    gpu_hyper_operands all = {};
    all.residual = berth_gpu_data(residual);
    all.fn = gpu_hyper_floats(weights[0]);
    all.scale = gpu_hyper_floats(weights[1]);
    all.base = gpu_hyper_floats(weights[2]);
    all.streams = static_cast<int>(residual->shape[residual->ndim - 2]);
    all.hidden = residual->shape[residual->ndim - 1];
    return all;
}

// `out`: post_mix, comb_mix, layer_input.
static inline berth_status gpu_hyper_enter(const gpu_hyper *op, const berth_tensor *residual,
                                           const berth_tensor *const *weights,
                                           berth_tensor *const *out) {
    gpu_hyper_operands all = gpu_hyper_operands_of(residual, weights);
    all.post = static_cast<float *>(berth_gpu_data(out[0]));
    all.comb = static_cast<float *>(berth_gpu_data(out[1]));
    all.input = berth_gpu_data(out[2]);
    const int64_t tokens = berth_tensor_row_count(out[2]);
    const gpu_grid grid = {dim3(static_cast<unsigned>(tokens)), dim3(GPU_HYPER_THREADS), 0};
    return tokens == 0 ? BERTH_OK : gpu_with_type(residual->dtype, [&](auto type) {
        return gpu_run(op, "streams entered", grid,
                       gpu_hyper_enter_kernel<typename decltype(type)::type>, all, *op);
    });
}

// `operands`: x, residual, post_layer_mix, comb_res_mix.
static inline berth_status gpu_hyper_leave(const gpu_op *op, const berth_tensor *const *operands,
                                           const berth_tensor *y) {
    const gpu_hyper_left all = {berth_gpu_data(operands[0]),
                                berth_gpu_data(operands[1]),
                                gpu_hyper_floats(operands[2]),
                                gpu_hyper_floats(operands[3]),
                                static_cast<int>(y->shape[y->ndim - 2]),
                                y->shape[y->ndim - 1]};
    return gpu_with_type(y->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return gpu_each<T, T>(op, all, y);
    });
}

#endif
