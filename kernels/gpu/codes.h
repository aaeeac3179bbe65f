// SPDX-License-Identifier: Apache-2.0
// Codes of quantized weights in device code: the numbers that kernels/codes.h says they are, and
// where their scales are.
#ifndef BERTH_KERNELS_GPU_CODES_H
#define BERTH_KERNELS_GPU_CODES_H

#include "launch.h"

#include <codes.h>

// Exact; 0x7f and 0xff are NaN. A smaller exponent's bits are where a float's are: what is left is
// the distance of the two biases.
static __device__ inline float gpu_from_f8_bits(uint32_t bits) {
    const float value = __uint_as_float((bits & 0x7fu) << 20 | (bits & 0x80u) << 24) * 0x1p120f;
    return (bits & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : value;
}

// As an element, where rows of one type or another are read and written.
struct gpu_f8 {
    uint8_t bits;
};
static __device__ inline float gpu_float(gpu_f8 value) {
    return gpu_from_f8_bits(value.bits);
}
template <> __device__ inline gpu_f8 gpu_round<gpu_f8>(float value) {
    return gpu_f8{gpu_to_f8_bits(value)};
}

static __device__ inline float gpu_from_e2m1_bits(uint32_t bits) {
    return __uint_as_float((bits & 7u) << 22 | (bits & 8u) << 28) * 0x1p126f;
}

// The number of a code without zero point and scale; `bits` has nothing but the code.
static __device__ inline float gpu_code_value(berth_code code, uint32_t bits) {
    return code == BERTH_CODE_E4M3   ? gpu_from_f8_bits(bits)
           : code == BERTH_CODE_E2M1 ? gpu_from_e2m1_bits(bits)
           : code == BERTH_CODE_I8   ? static_cast<float>(static_cast<int8_t>(bits))
                                     : static_cast<float>(bits);
}

// Scales [groups of rows, groups of columns] of weights, dense.
struct gpu_code_scales {
    const void *data;
    berth_dtype dtype;
    int64_t across; // groups of columns
    int64_t rows;   // that share one
    int64_t columns;
};

// What a site says of them; `across` too, but not where they are.
static inline gpu_code_scales gpu_code_scales_of(const berth_op_site *site, int64_t outputs,
                                                 int64_t depth) {
    const berth_code_scales of = berth_code_scales_of(site, nullptr, outputs, depth);
    return gpu_code_scales{nullptr, BERTH_DTYPE_NONE, (depth + of.columns - 1) / of.columns,
                           of.rows, of.columns};
}

static inline gpu_code_scales gpu_code_scales_at(gpu_code_scales scales,
                                                 const berth_tensor *tensor) {
    scales.data = berth_gpu_data(tensor);
    scales.dtype = tensor->dtype;
    return scales;
}

// Whether a row of so many codes is made of runs of `codes`, each of one group.
static inline bool gpu_code_scales_fit(const gpu_code_scales &scales, int64_t depth,
                                       int64_t codes) {
    return depth % codes == 0 && (scales.across == 1 || scales.columns % codes == 0);
}

static __device__ inline float gpu_code_scale(const gpu_code_scales &scales, int64_t output,
                                              int64_t group) {
    return gpu_load_any(scales.data, scales.dtype, output / scales.rows * scales.across + group);
}

#endif
