// SPDX-License-Identifier: Apache-2.0
// The scalar functions of the recurrences: selective scan, SSD, the gated delta rule.
#ifndef BERTH_KERNELS_RECURRENCE_H
#define BERTH_KERNELS_RECURRENCE_H

#include <math.h>

static inline float berth_silu(float x) {
    return x / (1.0f + expf(-x));
}

static inline float berth_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

// ln(1 + e^x); from 20 on x itself, as PyTorch has it.
static inline float berth_softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

#endif
