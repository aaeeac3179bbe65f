// SPDX-License-Identifier: Apache-2.0
// Tensors in host memory as rows of elements: where a row begins, and its elements as floats. For
// references and CPU kernels; a row runs over the last dimension, rows over all others.
#ifndef BERTH_KERNELS_TENSOR_H
#define BERTH_KERNELS_TENSOR_H

#include <berth/types.h>

#include <stdint.h>
#include <string.h>

// ---- elements -----------------------------------------------------------------------------------

static inline float berth_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t berth_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float berth_from_bf16(uint16_t half) {
    return berth_float_of_bits((uint32_t)half << 16);
}

// Rounds to nearest, ties to even, like every conversion to 16 bits here; a NaN stays one.
static inline uint16_t berth_to_bf16(float value) {
    const uint32_t bits = berth_bits_of_float(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// Why the product: it moves the exponent's bias and makes subnormals normal in one step.
static inline float berth_from_f16(uint16_t half) {
    const uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    const uint32_t finite = berth_bits_of_float(berth_float_of_bits(magnitude) * 0x1p112f);
    const uint32_t bits = (half & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : finite;
    return berth_float_of_bits((uint32_t)(half & 0x8000u) << 16 | bits);
}

static inline uint16_t berth_to_f16(float value) {
    const uint32_t bits = berth_bits_of_float(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477ff000u) { // 65520 and beyond: infinity, or NaN
        return (uint16_t)(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
    }
    if (magnitude < 0x38800000u) { // below 2^-14: one last place of 0.5f is one step of f16
        const float shifted = berth_float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (berth_bits_of_float(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

// Codes of f8_e4m3fn: subnormals in steps of 2^-9, no infinity, the largest value is 448.
#define BERTH_F8_MAX 448.0f

static inline float berth_from_f8(uint8_t code) {
    const uint32_t magnitude = (uint32_t)(code & 0x7fu) << 20;
    const float finite = berth_float_of_bits(magnitude) * 0x1p120f;
    const uint32_t bits =
        (code & 0x7fu) == 0x7fu ? UINT32_C(0x7fc00000) : berth_bits_of_float(finite);
    return berth_float_of_bits((uint32_t)(code & 0x80u) << 24 | bits);
}

// Rounds to nearest, ties to even; what is larger than 448 becomes 448, a NaN stays one.
static inline uint8_t berth_to_f8(float value) {
    const uint32_t bits = berth_bits_of_float(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t finite = magnitude < 0x43e00000u ? magnitude : 0x43e00000u;
    const uint32_t normal = (finite - 0x3c000000u + 0x7ffffu + (finite >> 20 & 1u)) >> 20;
    // Below 2^-6: one last place of 2^14 is one step of a subnormal.
    const uint32_t shifted = berth_bits_of_float(berth_float_of_bits(finite) + 0x1p14f);
    const uint32_t code = finite < 0x3c800000u ? shifted - 0x46800000u : normal;
    return (uint8_t)((bits >> 24 & 0x80u) | (magnitude > 0x7f800000u ? 0x7fu : code));
}

// The three dtypes that the functions below read and write.
static inline int berth_is_float(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32 || dtype == BERTH_DTYPE_BF16 || dtype == BERTH_DTYPE_F16;
}

// Elements [first, first + count) of a row as floats.
static inline void berth_load(const void *row, berth_dtype dtype, int64_t first, int64_t count,
                              float *to) {
    if (dtype == BERTH_DTYPE_F32) {
        memcpy(to, (const float *)row + first, (size_t)count * sizeof(float));
        return;
    }
    const uint16_t *from = (const uint16_t *)row + first;
    if (dtype == BERTH_DTYPE_BF16) {
        for (int64_t i = 0; i < count; ++i) {
            to[i] = berth_from_bf16(from[i]);
        }
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        to[i] = berth_from_f16(from[i]);
    }
}

static inline float berth_load_at(const void *row, berth_dtype dtype, int64_t index) {
    if (dtype == BERTH_DTYPE_F32) {
        return ((const float *)row)[index];
    }
    const uint16_t half = ((const uint16_t *)row)[index];
    return dtype == BERTH_DTYPE_BF16 ? berth_from_bf16(half) : berth_from_f16(half);
}

static inline void berth_store_at(void *row, berth_dtype dtype, int64_t index, float value) {
    if (dtype == BERTH_DTYPE_F32) {
        ((float *)row)[index] = value;
    } else {
        ((uint16_t *)row)[index] =
            dtype == BERTH_DTYPE_BF16 ? berth_to_bf16(value) : berth_to_f16(value);
    }
}

// Floats to elements [first, first + count) of a row.
static inline void berth_store(void *row, berth_dtype dtype, int64_t first, int64_t count,
                               const float *from) {
    if (dtype == BERTH_DTYPE_F32) {
        memcpy((float *)row + first, from, (size_t)count * sizeof(float));
        return;
    }
    uint16_t *to = (uint16_t *)row + first;
    if (dtype == BERTH_DTYPE_BF16) {
        for (int64_t i = 0; i < count; ++i) {
            to[i] = berth_to_bf16(from[i]);
        }
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        to[i] = berth_to_f16(from[i]);
    }
}

// The value that a store of that dtype would keep.
static inline float berth_round_to(berth_dtype dtype, float value) {
    if (dtype == BERTH_DTYPE_F32) {
        return value;
    }
    return dtype == BERTH_DTYPE_BF16 ? berth_from_bf16(berth_to_bf16(value))
                                     : berth_from_f16(berth_to_f16(value));
}

// Sixteen elements at once, in whatever registers there are.
typedef float berth_lanes __attribute__((vector_size(64)));
typedef uint32_t berth_lane_bits __attribute__((vector_size(64)));
typedef uint16_t berth_lane_halves __attribute__((vector_size(32)));

static inline void berth_lanes_from_halves(const uint16_t *from, berth_dtype dtype,
                                           berth_lanes *to) {
    berth_lane_halves halves;
    memcpy(&halves, from, sizeof halves);
    const berth_lane_bits bits = __builtin_convertvector(halves, berth_lane_bits);
    if (dtype == BERTH_DTYPE_BF16) {
        *to = (berth_lanes)(bits << 16);
        return;
    }
    const berth_lane_bits magnitude = (bits & 0x7fffu) << 13; // from here on as berth_from_f16
    const berth_lane_bits finite = (berth_lane_bits)((berth_lanes)magnitude * 0x1p112f);
    const berth_lane_bits is_finite = (berth_lane_bits)((bits & 0x7c00u) != 0x7c00u);
    const berth_lane_bits beyond = magnitude | 0x7f800000u;
    *to = (berth_lanes)((bits & 0x8000u) << 16 | (finite & is_finite) | (beyond & ~is_finite));
}

// Elements [first, first + 16) of a row of `length`; zeros behind its end.
static inline void berth_load_lanes(const void *row, berth_dtype dtype, int64_t first,
                                    int64_t length, berth_lanes *to) {
    if (length - first < 16) {
        float part[16] = {0};
        berth_load(row, dtype, first, length - first, part);
        memcpy(to, part, sizeof part);
    } else if (dtype == BERTH_DTYPE_F32) {
        memcpy(to, (const float *)row + first, sizeof *to);
    } else {
        berth_lanes_from_halves((const uint16_t *)row + first, dtype, to);
    }
}

// The inner product of two rows in f32. Sixteen partial sums, so that the rounding error grows
// slower than the length.
static inline float berth_dot(const void *a, berth_dtype a_dtype, const void *b,
                              berth_dtype b_dtype, int64_t length) {
    berth_lanes sums = {0};
    for (int64_t first = 0; first < length; first += 16) {
        berth_lanes a_part;
        berth_lanes b_part;
        berth_load_lanes(a, a_dtype, first, length, &a_part);
        berth_load_lanes(b, b_dtype, first, length, &b_part);
        sums += a_part * b_part;
    }
    float sum = 0;
    for (int64_t lane = 0; lane < 16; ++lane) {
        sum += sums[lane];
    }
    return sum;
}

// An index, position or row number: i32 or i64.
static inline int64_t berth_integer_at(const void *row, berth_dtype dtype, int64_t index) {
    return dtype == BERTH_DTYPE_I64 ? ((const int64_t *)row)[index] : ((const int32_t *)row)[index];
}

// ---- rows ---------------------------------------------------------------------------------------

static inline int64_t berth_row_length(const berth_tensor *tensor) {
    return tensor->ndim > 0 ? tensor->shape[tensor->ndim - 1] : 1;
}

static inline int64_t berth_row_count(const berth_tensor *tensor) {
    return berth_tensor_row_count(tensor);
}

// The first element of the tensor.
static inline void *berth_data(const berth_tensor *tensor) {
    return (char *)tensor->data + tensor->byte_offset;
}

// The first element of row `index`, counted in row-major order over all dimensions but the last.
static inline void *berth_row(const berth_tensor *tensor, int64_t index) {
    return (char *)berth_data(tensor) +
           berth_tensor_row_offset(tensor, index) * (int64_t)(BERTH_DTYPE_BITS(tensor->dtype) / 8);
}

#endif
