// SPDX-License-Identifier: Apache-2.0
// Scales of groups of 16 numbers that become codes of e2m1, for the references and kernels that
// quantise: every step is one correctly rounded float operation, so scales are the same bits
// wherever they are computed.
#ifndef BERTH_KERNELS_NVFP4_H
#define BERTH_KERNELS_NVFP4_H

#include <fp8.h>

#define BERTH_NVFP4_GROUP 16

// The scale of a group whose largest magnitude is `largest`, a number of e4m3; `global` is the
// divisor of all groups.
static inline float berth_nvfp4_local(float largest, float global) {
    const float wanted = global * (largest * (1.0f / 6.0f));
    return berth_from_f8(berth_to_f8(wanted < BERTH_F8_MAX ? wanted : BERTH_F8_MAX));
}

// What numbers of the group are multiplied by to be codes.
static inline float berth_nvfp4_factor(float local, float global) {
    return local > 0 ? 1.0f / (local * (1.0f / global)) : 0.0f;
}

#endif
