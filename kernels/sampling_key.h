// SPDX-License-Identifier: Apache-2.0
// Logits as integers that order as they do, for what puts them in order by their digits.
#ifndef BERTH_KERNELS_SAMPLING_KEY_H
#define BERTH_KERNELS_SAMPLING_KEY_H

#include <tensor.h>

// Adding 0 makes −0 the 0 that it equals.
static inline uint32_t sampling_key_of(float logit) {
    const uint32_t bits = berth_bits_of_float(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline float sampling_logit_of(uint32_t key) {
    return berth_float_of_bits(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

#endif
