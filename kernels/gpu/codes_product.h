// SPDX-License-Identifier: Apache-2.0
// Products of experts' rows with matrices of codes on a GPU, of every code and group. Numbers of
// either side become floats on their way; what they are summed in is exact for i8. codes_few.h is
// for few rows, codes_tiles.h for many.
#ifndef BERTH_KERNELS_GPU_CODES_PRODUCT_H
#define BERTH_KERNELS_GPU_CODES_PRODUCT_H

#include "codes.h"
#include "experts.h"

#define GPU_CODES_WIDE 16 // codes that a lane takes at once

// y[p] = weight[expert of p] · x[p / rows_per_x] + bias[expert of p], rounded.
struct gpu_codes_product {
    berth_code code;
    const uint8_t *weight;  // [experts, outputs, depth], as codes lie
    gpu_code_scales scales; // [experts, down, scales.across]
    int64_t down;
    const uint8_t *zeros; // like the scales; NULL: the zero point of the code
    const void *bias;     // [experts, outputs], NULL: none
    berth_dtype bias_dtype;
    const float *factors; // of outputs, before the bias; NULL: 1
    gpu_rows x;
    int rows_per_x;
    const float *x_scales; // NULL: x has no codes
    int64_t x_scale_gap;   // from row to row, 0: one for all
    int64_t x_scale_step;  // from group to group, 0: one a row
    void *y;               // [rows, outputs]
    int outputs;
    int depth;
};

// What x has: floats, or codes of either type; and what its products are summed in.
template <typename T> struct gpu_codes_x_floats {
    using element = T;
    using sum = float;
    static __device__ float number(T value) {
        return gpu_float(value);
    }
};
struct gpu_codes_x_i8 {
    using element = uint8_t;
    using sum = int32_t;
    static __device__ float number(uint8_t code) {
        return static_cast<float>(static_cast<int8_t>(code));
    }
};
struct gpu_codes_x_e4m3 {
    using element = uint8_t;
    using sum = float;
    static __device__ float number(uint8_t code) {
        return gpu_from_f8_bits(code);
    }
};
// Twice the numbers of e2m1.
struct gpu_codes_x_e2m1 {
    using element = uint8_t;
    using sum = float;
    static __device__ float number(uint8_t code) {
        return static_cast<float>(static_cast<int8_t>(code));
    }
};

// ---- weights ------------------------------------------------------------------------------------

static __device__ inline bool gpu_code_is_half(berth_code code) {
    return code == BERTH_CODE_U4 || code == BERTH_CODE_E2M1;
}

// The codes of an output of an expert.
static __device__ inline const uint8_t *gpu_codes_row(const gpu_codes_product &all, int expert,
                                                      int output) {
    const int64_t row = static_cast<int64_t>(expert) * all.outputs + output;
    return all.weight + row * (gpu_code_is_half(all.code) ? all.depth / 2 : all.depth);
}

// Which scale and zero point are meant.
static __device__ inline int64_t gpu_codes_group(const gpu_codes_product &all, int expert,
                                                 int output, int group) {
    const int down = static_cast<int>(all.scales.rows); // a division takes as long as a load
    const int64_t row = expert * all.down + (down == 1 ? output : output / down);
    return row * all.scales.across + group;
}

static __device__ inline float gpu_codes_zero(const gpu_codes_product &all, int64_t group) {
    return all.zeros                   ? static_cast<float>(all.zeros[group])
           : all.code == BERTH_CODE_U4 ? 8.0f
           : all.code == BERTH_CODE_U8 ? 128.0f
                                       : 0.0f;
}

// Element k of an output's row, not scaled.
static __device__ inline float gpu_codes_at(const gpu_codes_product &all, int expert, int output,
                                            int k) {
    const uint8_t *row = gpu_codes_row(all, expert, output);
    const uint32_t bits = gpu_code_is_half(all.code) ? row[k / 2] >> (k % 2 * 4) & 15u : row[k];
    const int group = k / static_cast<int>(all.scales.columns);
    return gpu_code_value(all.code, bits) -
           gpu_codes_zero(all, gpu_codes_group(all, expert, output, group));
}

// N codes of a row from k on as they lie, in the first half of the words where two are a byte.
template <int N> using gpu_codes_words = gpu_pack<uint32_t, N / 4>;

template <int N>
static __device__ inline gpu_codes_words<N> gpu_codes_load(berth_code code, const uint8_t *row,
                                                           int k) {
    const uint32_t *words = reinterpret_cast<const uint32_t *>(row);
    gpu_codes_words<N> codes = {};
    if (gpu_code_is_half(code)) {
        const gpu_pack<uint32_t, N / 8> half = gpu_load<uint32_t, N / 8>(words, k / 8);
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            codes.at[j] = half.at[j];
        }
    } else {
        codes = gpu_load<uint32_t, N / 4>(words, k / 4);
    }
    return codes;
}

// N codes of so many bits, in words: out[j] = value(code j).
template <int N, int BITS, typename F>
static __device__ inline void gpu_codes_each(const uint32_t *words, float *out, F value) {
    constexpr int PER_WORD = 32 / BITS;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        out[j] = value(words[j / PER_WORD] >> (j % PER_WORD * BITS) & ((1u << BITS) - 1));
    }
}

// What they are, not scaled; all are of one group. The code is asked for once. Why in words: of
// bytes each step of a code would be an instruction of its own, of words most are one together.
template <int N>
static __device__ inline void gpu_codes_widen(berth_code code, const gpu_codes_words<N> &from,
                                              float zero, float *out) {
    const uint32_t *words = from.at;
    const auto take = [zero](uint32_t bits) { return static_cast<float>(bits) - zero; };
    if (code == BERTH_CODE_E4M3) {
        gpu_codes_each<N, 8>(words, out, gpu_from_f8_bits);
    } else if (code == BERTH_CODE_E2M1) {
        gpu_codes_each<N, 4>(words, out, gpu_from_e2m1_bits);
    } else if (code == BERTH_CODE_I8) {
        gpu_codes_each<N, 8>(words, out, [](uint32_t b) { return gpu_codes_x_i8::number(b); });
    } else if (code == BERTH_CODE_U4) {
        gpu_codes_each<N, 4>(words, out, take);
    } else {
        gpu_codes_each<N, 8>(words, out, take);
    }
}

// ---- scales and the end -------------------------------------------------------------------------

// What a group's sum is multiplied by.
static __device__ inline float gpu_codes_weight_scale(const gpu_codes_product &all, int expert,
                                                      int output, int group) {
    return gpu_load_any(all.scales.data, all.scales.dtype,
                        gpu_codes_group(all, expert, output, group));
}
static __device__ inline float gpu_codes_x_scale(const gpu_codes_product &all, int64_t row,
                                                 int group) {
    return all.x_scales ? all.x_scales[row * all.x_scale_gap + group * all.x_scale_step] : 1.0f;
}

// An output of a choice.
struct gpu_codes_place {
    int expert;
    int64_t p;
    int output;
};

// `sum`: groups that are scaled already, or without groups the sum of products of numbers. Rounded
// once: an activation's code may depend on the last bit.
template <typename T, typename S>
static __device__ inline void gpu_codes_store(const gpu_codes_product &all,
                                              const gpu_codes_place &at, S sum, bool is_scaled) {
    double value = sum;
    if (!is_scaled) {
        value = value * gpu_codes_x_scale(all, at.p / all.rows_per_x, 0) *
                gpu_codes_weight_scale(all, at.expert, at.output, 0);
    }
    const int64_t row = static_cast<int64_t>(at.expert) * all.outputs;
    value *= all.factors ? all.factors[row + at.output] : 1.0f;
    value += all.bias ? gpu_load_any(all.bias, all.bias_dtype, row + at.output) : 0.0f;
    static_cast<T *>(all.y)[at.p * all.outputs + at.output] =
        gpu_round<T>(static_cast<float>(value));
}

#endif
