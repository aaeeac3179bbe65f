// SPDX-License-Identifier: Apache-2.0
// Codes of quantized weights and activations, and where their scales are: what the references and
// kernels of scaled_linear, packed_linear and the experts share.
//
// Of weights [n, k] the codes are one to a byte, or two with the even k in the lower half. A scale
// is for `rows` rows and `columns` columns, the last of each perhaps for fewer.
#ifndef BERTH_KERNELS_CODES_H
#define BERTH_KERNELS_CODES_H

#include <berth/op.h>

#include <tensor.h>

typedef enum berth_code {
    BERTH_CODE_NONE,
    BERTH_CODE_U4,   // 0 to 15, less a zero point of 8
    BERTH_CODE_U8,   // 0 to 255, less a zero point of 128
    BERTH_CODE_E2M1, // sign, then an index into 0, .5, 1, 1.5, 2, 3, 4, 6
    BERTH_CODE_I8,
    BERTH_CODE_E4M3,
} berth_code;

// By the attribute `code` under these names: "u4", "u8", "e2m1"; "i8" and "e4m3" have dtypes of
// their own.
static inline berth_code berth_code_of(const char *name) {
    return strcmp(name, "u4") == 0     ? BERTH_CODE_U4
           : strcmp(name, "u8") == 0   ? BERTH_CODE_U8
           : strcmp(name, "e2m1") == 0 ? BERTH_CODE_E2M1
           : strcmp(name, "i8") == 0   ? BERTH_CODE_I8
           : strcmp(name, "e4m3") == 0 ? BERTH_CODE_E4M3
                                       : BERTH_CODE_NONE;
}

static inline int berth_code_is_half(berth_code code) {
    return code == BERTH_CODE_U4 || code == BERTH_CODE_E2M1;
}

static inline berth_dtype berth_code_dtype(berth_code code) {
    return code == BERTH_CODE_I8     ? BERTH_DTYPE_I8
           : code == BERTH_CODE_E4M3 ? BERTH_DTYPE_F8_E4M3FN
                                     : BERTH_DTYPE_U8;
}

// Half of the value of e2m1 would be no integer; twice it always is.
static inline int berth_e2m1_twice(uint8_t code) {
    static const int8_t twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return (code & 8) != 0 ? -twice[code & 7] : twice[code & 7];
}

// Rounds to nearest, ties to the even code; saturates at 6. A NaN becomes 6.
static inline uint8_t berth_to_e2m1(float value) {
    static const float middles[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    const float magnitude = value < 0 ? -value : value;
    uint8_t code = 0;
    for (int i = 0; i < 7; ++i) { // a middle itself belongs to the even one of its neighbours
        const int is_below = i % 2 == 0 ? magnitude <= middles[i] : magnitude < middles[i];
        code = (uint8_t)(code + !is_below);
    }
    return (uint8_t)(code | (value < 0 ? 8 : 0));
}

// The number of element k of a row of codes, without zero point and scale.
static inline float berth_code_value(berth_code code, const void *row, int64_t k) {
    const uint8_t byte = ((const uint8_t *)row)[berth_code_is_half(code) ? k / 2 : k];
    const uint8_t half = (uint8_t)(k % 2 == 0 ? byte & 15 : byte >> 4);
    switch (code) {
    case BERTH_CODE_U4:
        return (float)half;
    case BERTH_CODE_U8:
        return (float)byte;
    case BERTH_CODE_E2M1:
        return 0.5f * (float)berth_e2m1_twice(half);
    case BERTH_CODE_I8:
        return (float)(int8_t)byte;
    default:
        return berth_from_f8(byte);
    }
}

static inline float berth_code_zero(berth_code code) {
    return code == BERTH_CODE_U4 ? 8.0f : code == BERTH_CODE_U8 ? 128.0f : 0.0f;
}

// Scales [groups of rows, groups of columns] of weights [n, k].
typedef struct berth_code_scales {
    const berth_tensor *tensor;
    int64_t rows; // that share one
    int64_t columns;
} berth_code_scales;

// By the attribute `group_shape`, where −1 is all.
static inline berth_code_scales
berth_code_scales_of(const berth_op_site *site, const berth_tensor *tensor, int64_t n, int64_t k) {
    const int64_t *shape = berth_site_attribute(site, "group_shape")->i64s;
    return (berth_code_scales){
        .tensor = tensor,
        .rows = shape[0] < 1 ? n : shape[0],
        .columns = shape[1] < 1 ? k : shape[1],
    };
}

static inline float berth_code_scale(const berth_code_scales *scales, int64_t n, int64_t group) {
    return berth_load_at(berth_row(scales->tensor, n / scales->rows), scales->tensor->dtype, group);
}

#endif
