// SPDX-License-Identifier: Apache-2.0
// What activations on a GPU share: the sweep over rows, the instance, the table. A kernel is its
// formula, a struct with
//   void read(const berth_op_site *site)                 its numbers, on the host
//   template <typename T> float at(float a, float b)     one element, on the device
// where T is the type of the result, which is rounded once, here; `b` is 0 where an op has one
// element of x for each of y. A NaN goes through.
#ifndef BERTH_KERNELS_GPU_ACTIVATION_H
#define BERTH_KERNELS_GPU_ACTIVATION_H

#include "launch.h"

#define GPU_ACTIVATION_THREADS 256

// Which elements of x belong to element i of y [..., d].
enum gpu_sides {
    GPU_UNARY,       // x[i]
    GPU_HALVES,      // x[i], x[d + i]
    GPU_INTERLEAVED, // x[2i], x[2i + 1]
};

// ---- functions that formulas are made of --------------------------------------------------------

template <typename T> static __device__ inline float gpu_silu(float x) {
    return x * gpu_sigmoid<T>(x);
}
static __device__ inline float gpu_gelu_erf(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
}
static __device__ inline float gpu_gelu_tanh(float x) {
    const float inner = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}
// Comparisons are written so that a NaN stays one.
static __device__ inline float gpu_at_most(float x, float limit) {
    return x > limit ? limit : x;
}
static __device__ inline float gpu_at_least(float x, float limit) {
    return x < limit ? limit : x;
}

// ---- sweep --------------------------------------------------------------------------------------

template <typename T, int N, gpu_sides SIDES, typename F>
static __device__ inline gpu_pack<T, N> gpu_activate(const F &formula, const T *x, int64_t i,
                                                     int64_t width) {
    gpu_pack<T, N> out;
    const gpu_pack<T, N> a = gpu_load<T, N>(x, SIDES == GPU_INTERLEAVED ? 2 * i : i);
    gpu_pack<T, N> b = {};
    if (SIDES != GPU_UNARY) {
        b = gpu_load<T, N>(x, SIDES == GPU_HALVES ? width + i : 2 * i + N);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
        float first = gpu_float(a.at[j]);
        float second = SIDES == GPU_UNARY ? 0.0f : gpu_float(b.at[j]);
        if (SIDES == GPU_INTERLEAVED && N > 1) {
            first = gpu_float(j < N / 2 ? a.at[2 * j % N] : b.at[2 * j % N]);
            second = gpu_float(j < N / 2 ? a.at[(2 * j + 1) % N] : b.at[(2 * j + 1) % N]);
        }
        out.at[j] = gpu_round<T>(formula.template at<T>(first, second));
    }
    return out;
}

// blockIdx.x: which packs of a row; blockIdx.y: which rows.
template <typename T, int N, gpu_sides SIDES, typename F>
static __global__ void gpu_activation_kernel(F formula, gpu_rows x, gpu_rows y, int64_t rows,
                                             int64_t width) {
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t row = blockIdx.y; row < rows && i < width; row += gridDim.y) {
        gpu_store<T, N>(gpu_row<T>(y, row), i,
                        gpu_activate<T, N, SIDES>(formula, gpu_row<const T>(x, row), i, width));
    }
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename F> struct gpu_activation : gpu_op { F formula; };

static inline berth_status gpu_activation_supports(const berth_op_site *site,
                                                   const berth_device *) {
    return gpu_check_floats(site, 0);
}

template <typename F>
static berth_status gpu_activation_create(const berth_op_site *site, const berth_device *device,
                                          void **out_self) {
    const berth_status status = gpu_new<gpu_activation<F>>(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<gpu_activation<F> *>(*out_self)->formula.read(site);
    }
    return status;
}

template <typename T, int N, gpu_sides SIDES, typename F>
static berth_status gpu_activation_start(const gpu_op *op, const F &formula, const gpu_rows &x,
                                         const gpu_rows &y, int64_t rows, int64_t width) {
    constexpr int64_t MOST = 65535; // of a grid's second dimension
    const int64_t packs = width / N;
    const int64_t threads =
        packs < GPU_ACTIVATION_THREADS ? (packs + 31) / 32 * 32 : int64_t{GPU_ACTIVATION_THREADS};
    const gpu_grid grid = {
        dim3(gpu_ceil(packs, threads), static_cast<unsigned>(rows < MOST ? rows : MOST)),
        dim3(static_cast<unsigned>(threads)), 0};
    return gpu_run(op, "an activation", grid, gpu_activation_kernel<T, N, SIDES, F>, formula, x, y,
                   rows, width);
}

// Of a number of rows of y that may be 0; x and y are of that dtype.
template <gpu_sides SIDES, typename F>
static berth_status gpu_activation_run(const gpu_op *op, const F &formula, berth_dtype dtype,
                                       const gpu_rows &x, const gpu_rows &y, int64_t rows,
                                       int64_t width) {
    if (rows == 0 || width == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = gpu_wide<T>;
        return width % N == 0 && gpu_is_aligned(x) && gpu_is_aligned(y)
                   ? gpu_activation_start<T, N, SIDES>(op, formula, x, y, rows, width)
                   : gpu_activation_start<T, 1, SIDES>(op, formula, x, y, rows, width);
    });
}

template <gpu_sides SIDES, typename F>
static berth_status gpu_activation_forward(void *self, const berth_op_args *args) {
    const gpu_activation<F> *op = static_cast<const gpu_activation<F> *>(self);
    const berth_tensor *out = args->outputs[0];
    const int64_t width = out->ndim > 0 ? out->shape[out->ndim - 1] : 1;
    return gpu_activation_run<SIDES>(op, op->formula, out->dtype, gpu_rows_of(args->inputs[0]),
                                     gpu_rows_of(out), berth_tensor_row_count(out), width);
}

// The number of an attribute, 0 where it is absent.
static inline float gpu_attribute_f32(const berth_op_site *site, const char *name) {
    const berth_attribute *found = berth_site_attribute(site, name);
    return found->kind == BERTH_ATTRIBUTE_NONE ? 0.0f : static_cast<float>(found->f64);
}

#define GPU_ACTIVATION_SLOTS(sides, formula)                                                       \
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,                                     \
    .supports = gpu_activation_supports, .create = gpu_activation_create<formula>,                 \
    .forward = gpu_activation_forward<sides, formula>, .destroy = gpu_destroy

#endif
