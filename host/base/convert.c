// SPDX-License-Identifier: Apache-2.0
// Input: stored floating numbers. Output: the same in another type, by way of f32, which holds
// every bf16 and f16 exactly, so that there is one rounding at most.
#include "base/convert.h"

#include <math.h>
#include <string.h>

#define CHUNK 1024 // elements widened at a time

bool berth_can_convert(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_BF16 || dtype == BERTH_DTYPE_F16 || dtype == BERTH_DTYPE_F32;
}

static float float_of_bits(uint32_t bits) {
    float value = 0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of_half(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1fu;
    const uint32_t fraction = half & 0x3ffu;
    if (exponent == 31) {
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) {
        const float magnitude = (float)fraction * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

// Cuts `shift` low bits off, rounding to nearest, ties to even.
static uint32_t round_off(uint32_t value, uint32_t shift) {
    const uint32_t half = UINT32_C(1) << (shift - 1);
    return (value + half - 1 + (value >> shift & 1)) >> shift;
}

static uint16_t half_of_float(float value) {
    const uint32_t bits = bits_of_float(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 0x477ff000u) { // rounds to 65536 or more
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude >= 0x38800000u) { // normal: exponent and fraction move as one number
        return (uint16_t)(sign | round_off(magnitude - 0x38000000u, 13));
    }
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { // below half of the smallest subnormal
        return (uint16_t)sign;
    }
    return (uint16_t)(sign | round_off((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent));
}

static uint16_t bfloat_of_float(float value) {
    const uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)(((uint64_t)bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static void widen(berth_dtype from, const uint8_t *source, float *values, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        uint16_t word = 0;
        memcpy(&word, source + 2 * i, sizeof word);
        values[i] =
            from == BERTH_DTYPE_F16 ? float_of_half(word) : float_of_bits((uint32_t)word << 16);
    }
}

static void narrow(const float *values, berth_dtype to, uint8_t *destination, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        const uint16_t word =
            to == BERTH_DTYPE_F16 ? half_of_float(values[i]) : bfloat_of_float(values[i]);
        memcpy(destination + 2 * i, &word, sizeof word);
    }
}

float berth_float_of_e4m3(uint8_t code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    const float sign = (code & 0x80) != 0 ? -1 : 1;
    if ((code & 0x7f) == 0x7f) {
        return NAN;
    }
    return sign * (exponent == 0 ? ldexpf((float)mantissa, -9)
                                 : ldexpf((float)(8 + mantissa), exponent - 10));
}

void berth_convert(berth_dtype from, const void *source, berth_dtype to, void *destination,
                   uint64_t count) {
    const uint64_t from_bytes = BERTH_DTYPE_BITS(from) / 8;
    const uint64_t to_bytes = BERTH_DTYPE_BITS(to) / 8;
    if (from == to) {
        memcpy(destination, source, count * from_bytes);
        return;
    }
    float values[CHUNK];
    for (uint64_t done = 0; done < count; done += CHUNK) {
        const uint64_t some = count - done < CHUNK ? count - done : CHUNK;
        const uint8_t *in = (const uint8_t *)source + done * from_bytes;
        uint8_t *out = (uint8_t *)destination + done * to_bytes;
        if (from == BERTH_DTYPE_F32) {
            memcpy(values, in, some * sizeof *values);
        } else {
            widen(from, in, values, some);
        }
        if (to == BERTH_DTYPE_F32) {
            memcpy(out, values, some * sizeof *values);
        } else {
            narrow(values, to, out, some);
        }
    }
}
