// SPDX-License-Identifier: Apache-2.0
// What causal_conv1d and causal_conv1d_update share: an instance, and a vector of channels with
// their taps. Both ops have x, weight and bias as their first three inputs.
#ifndef BERTH_KERNELS_CPU_CAUSAL_LANES_H
#define BERTH_KERNELS_CPU_CAUSAL_LANES_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <cpu/recurrence_lanes.h>

#define BERTH_CAUSAL_TAPS 8 // at most

enum { BERTH_CAUSAL_X, BERTH_CAUSAL_WEIGHT, BERTH_CAUSAL_BIAS };

typedef struct berth_causal {
    const berth_host *host;
    const berth_cpu *cpu;
    uint64_t cache_group;
    int is_silu;
} berth_causal;

// The channels [first, end): their taps, and the rows before the next one.
typedef struct berth_causal_lanes {
    int64_t first;
    int64_t end;
    int64_t kept; // rows of the past: taps but one
    berth_vec bias;
    berth_vec taps[BERTH_CAUSAL_TAPS];
    berth_vec past[BERTH_CAUSAL_TAPS];
} berth_causal_lanes;

static inline berth_status berth_causal_supports(const berth_op_site *site,
                                                 const berth_device *device) {
    (void)device;
    const berth_value_type *weight = site->inputs[BERTH_CAUSAL_WEIGHT];
    return weight->dims[weight->ndim - 1].b <= BERTH_CAUSAL_TAPS
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than %d taps",
                                   BERTH_CAUSAL_TAPS);
}

static inline berth_status berth_causal_create(const berth_op_site *site,
                                               const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(berth_causal), out_self);
    if (status == BERTH_OK) {
        berth_causal *self = *out_self;
        self->cpu = device->self;
        self->cache_group = site->cache_group;
        self->is_silu = berth_site_attribute(site, "activation")->str[0] != 0;
    }
    return status;
}

// Block `block` of BERTH_LANES of the `dim` channels; the past is not set.
BERTH_INLINE berth_causal_lanes berth_causal_lanes_of(const berth_op_args *args, int64_t block,
                                                      int64_t dim) {
    const berth_tensor *weight = args->inputs[BERTH_CAUSAL_WEIGHT];
    const berth_tensor *bias = args->inputs[BERTH_CAUSAL_BIAS];
    const int64_t first = block * BERTH_LANES;
    berth_causal_lanes out = {
        .first = first,
        .end = first + BERTH_LANES < dim ? first + BERTH_LANES : dim,
        .kept = berth_row_length(weight) - 1,
    };
    out.bias =
        bias ? berth_vec_load_some(berth_data(bias), bias->dtype, first, dim) : berth_vec_of(0);
    berth_load_columns(weight, (berth_span){first, out.end}, out.kept + 1, out.taps);
    return out;
}

// The sum of the taps over the past and the new row x, which becomes the last of the past.
BERTH_INLINE berth_vec berth_causal_step(berth_causal_lanes *at, berth_vec x) {
    berth_vec sum = at->bias;
    for (int64_t k = 0; k < at->kept; ++k) {
        sum = berth_vec_fma(at->taps[k], at->past[k], sum);
        at->past[k] = k + 1 < at->kept ? at->past[k + 1] : x;
    }
    return berth_vec_fma(at->taps[at->kept], x, sum);
}

#endif
