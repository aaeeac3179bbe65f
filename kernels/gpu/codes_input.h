// SPDX-License-Identifier: Apache-2.0
// Rows of numbers that become codes before a product of codes on a GPU, by the rules of quant_fp8
// and quant_int8: one scale a row, one for each group of its columns, or one that is given. Numbers
// come from a formula, as in each.h, and are rounded to its type T; it is asked twice for each.
// Every step is one correctly rounded operation, so codes and scales are the reference's bits.
#ifndef BERTH_KERNELS_GPU_CODES_INPUT_H
#define BERTH_KERNELS_GPU_CODES_INPUT_H

#include "quant_rows.h"

#include <fp8.h>

#include <string.h>

#define GPU_CODES_INPUT_THREADS 256

// How an input becomes codes, by the attribute `input` of ops that quantise their own.
enum gpu_codes_kind {
    GPU_CODES_FLOAT, // it is left as it is
    GPU_CODES_STATIC,
    GPU_CODES_TOKEN,
    GPU_CODES_GROUP,
    GPU_CODES_NVFP4, // groups of 16, below a divisor of each expert
};

static inline gpu_codes_kind gpu_codes_kind_of(const char *name) {
    return strcmp(name, "static") == 0  ? GPU_CODES_STATIC
           : strcmp(name, "token") == 0 ? GPU_CODES_TOKEN
           : strcmp(name, "group") == 0 ? GPU_CODES_GROUP
                                        : GPU_CODES_FLOAT;
}

struct gpu_codes_rule {
    gpu_codes_kind kind;
    int is_e4m3;        // else i8
    const float *given; // of static inputs, NULL: scales are made
};

// Codes [rows, width] and their scales. A scale is for `group` columns, the last perhaps for fewer.
struct gpu_codes_input {
    gpu_codes_rule rule;
    uint8_t *codes;
    float *scales; // [rows, groups]; not written where the scale is given
    int64_t width;
    int64_t group;
};

static __device__ inline float gpu_codes_larger(const gpu_codes_rule &rule, float value,
                                                float largest) {
    const float size = fabsf(value);
    return rule.is_e4m3 ? gpu_larger(size, largest) : size > largest ? size : largest;
}

static __device__ inline float gpu_codes_scale_of(const gpu_codes_rule &rule, float largest) {
    const float scale = gpu_div_rn(largest, rule.is_e4m3 ? BERTH_F8_MAX : 127.0f);
    return rule.is_e4m3 && scale < BERTH_F8_LEAST_SCALE ? BERTH_F8_LEAST_SCALE : scale;
}

// Whether a value is divided by its scale, and not multiplied by a factor.
static __device__ inline bool gpu_codes_divides(const gpu_codes_rule &rule) {
    return rule.kind == (rule.is_e4m3 ? GPU_CODES_GROUP : GPU_CODES_STATIC);
}

// What a value is multiplied by.
static __device__ inline float gpu_codes_factor(const gpu_codes_rule &rule, float largest,
                                                float scale) {
    return rule.is_e4m3  ? gpu_div_rn(1.0f, scale)
           : largest > 0 ? gpu_mul_rn(gpu_div_rn(1.0f, largest), 127.0f)
                         : 0.0f;
}

template <typename T, typename F>
static __device__ inline float gpu_codes_number(const F &formula, int64_t i) {
    return gpu_rounded<T>(formula.template at<T>(blockIdx.x, i));
}

// blockIdx.x: the row; blockIdx.y: the group.
template <typename T, typename F>
static __global__ void gpu_codes_input_kernel(F formula, gpu_codes_input all) {
    __shared__ float room[GPU_CODES_INPUT_THREADS / 32];
    const int64_t begin = blockIdx.y * all.group;
    const int64_t end = begin + all.group < all.width ? begin + all.group : all.width;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    float largest = 0;
    for (int64_t i = begin + threadIdx.x; i < end && !all.rule.given; i += blockDim.x) {
        largest = gpu_codes_larger(all.rule, gpu_codes_number<T>(formula, i), largest);
    }
    if (!all.rule.given) {
        largest = gpu_block_max(largest, room);
    }
    const float scale = all.rule.given ? *all.rule.given : gpu_codes_scale_of(all.rule, largest);
    const float factor = gpu_codes_factor(all.rule, largest, scale);
    const bool divides = gpu_codes_divides(all.rule);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const float value = gpu_codes_number<T>(formula, i);
        const float scaled = divides ? gpu_div_rn(value, scale) : gpu_mul_rn(value, factor);
        all.codes[blockIdx.x * all.width + i] =
            all.rule.is_e4m3 ? gpu_to_f8_bits(scaled) : gpu_to_i8_bits(scaled);
    }
    if (threadIdx.x == 0 && !all.rule.given) {
        all.scales[static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = scale;
    }
}

template <typename T, typename F>
static inline berth_status gpu_codes_input_run(const gpu_op *op, const F &formula, int64_t rows,
                                               const gpu_codes_input &all) {
    const unsigned threads = all.group <= GPU_CODES_INPUT_THREADS ? 64 : GPU_CODES_INPUT_THREADS;
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows), gpu_ceil(all.width, all.group)),
                           dim3(threads), 0};
    return gpu_run(op, "a quantiser of experts' rows", grid, gpu_codes_input_kernel<T, F>, formula,
                   all);
}

#endif
