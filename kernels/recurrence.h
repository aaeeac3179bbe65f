// SPDX-License-Identifier: Apache-2.0
// The scalar functions of the recurrences: selective scan, SSD, the gated delta rule.
#ifndef BERTH_KERNELS_RECURRENCE_H
#define BERTH_KERNELS_RECURRENCE_H

#include <berth/op.h>

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

// Between what a time step of SSD lies, by its attribute dt_limit; without it above 0.
typedef struct berth_step_range {
    float low;
    float high;
} berth_step_range;

static inline berth_step_range berth_step_range_of(const berth_op_site *site) {
    const berth_attribute *limit = berth_site_attribute(site, "dt_limit");
    const int has_limit = limit && limit->kind == BERTH_ATTRIBUTE_F64S && limit->count == 2;
    return (berth_step_range){
        .low = has_limit ? (float)limit->f64s[0] : 0,
        .high = has_limit ? (float)limit->f64s[1] : INFINITY,
    };
}

static inline float berth_step_within(berth_step_range range, float step) {
    return fminf(fmaxf(step, range.low), range.high);
}

#endif
