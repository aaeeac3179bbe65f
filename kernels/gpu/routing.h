// SPDX-License-Identifier: Apache-2.0
// How tokens choose their experts on a GPU, for topk_softmax and grouped_topk: a warp a token,
// whose scores lie in shared memory. kernels/routing.h has the rules; sums here are f32.
#ifndef BERTH_KERNELS_GPU_ROUTING_H
#define BERTH_KERNELS_GPU_ROUTING_H

#include "launch.h"

#include <math.h>

#include <routing.h>

#define GPU_MAX_EXPERTS 2048 // a lane marks those that it has given away in 64 bits

enum { GPU_ROUTING_LOGITS, GPU_ROUTING_BIAS };

struct gpu_routing : gpu_op {
    berth_routing rules;
};

struct gpu_routing_call {
    berth_routing rules;
    gpu_rows logits;
    const void *bias; // [experts], NULL: absent
    berth_dtype bias_dtype;
    gpu_rows weights; // f32
    gpu_rows ids;     // i32
    int experts;
};

// Shared memory: [experts] each.
struct gpu_routing_room {
    float *scores;
    float *choice;
};

static __device__ inline float gpu_warp_max(float value) {
    for (int mask = 16; mask > 0; mask /= 2) {
        value = fmaxf(value, gpu_shuffle_xor(value, mask));
    }
    return value;
}

// The scores of a row of logits; a lane has every 32nd, and touches no other.
template <typename T>
static __device__ void gpu_score(const gpu_routing_call &call, const T *logits, float *scores) {
    float largest = -INFINITY;
    float sum = 0;
    for (int i = threadIdx.x; i < call.experts; i += 32) {
        const float x = gpu_float(logits[i]);
        largest = fmaxf(largest, x);
        scores[i] = call.rules.scoring == BERTH_SCORING_SOFTMAX   ? x
                    : call.rules.scoring == BERTH_SCORING_SIGMOID ? 1 / (1 + expf(-x))
                                                                  : sqrtf(gpu_softplus(x));
    }
    if (call.rules.scoring != BERTH_SCORING_SOFTMAX) {
        return;
    }
    largest = gpu_warp_max(largest);
    for (int i = threadIdx.x; i < call.experts; i += 32) {
        scores[i] = expf(scores[i] - largest);
        sum += scores[i];
    }
    sum = gpu_warp_sum(sum);
    for (int i = threadIdx.x; i < call.experts; i += 32) {
        scores[i] /= sum;
    }
}

// Whether expert a comes before b; b below 0 is none. A NaN comes last.
static __device__ inline bool gpu_is_better(float value_a, int a, float value_b, int b) {
    if (b < 0 || a < 0) {
        return b < 0 && a >= 0;
    }
    if (value_a != value_a || value_b != value_b) {
        return value_a == value_a || (value_b != value_b && a < b);
    }
    return value_a > value_b || (value_a == value_b && a < b);
}

// The best expert that no lane has given away, the same in all lanes.
static __device__ inline int gpu_best(const float *choice, int experts, uint64_t given) {
    int best = -1;
    float value = 0;
    for (int i = threadIdx.x, turn = 0; i < experts; i += 32, ++turn) {
        if (!(given >> turn & 1) && gpu_is_better(choice[i], i, value, best)) {
            best = i;
            value = choice[i];
        }
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        const int other = gpu_shuffle_xor(best, mask);
        const float its_value = gpu_shuffle_xor(value, mask);
        if (gpu_is_better(its_value, other, value, best)) {
            best = other;
            value = its_value;
        }
    }
    return best;
}

// The chosen and their weights, every step rounded to R. A sum of zero divides nothing where
// KEEPS_ZERO.
template <typename R, bool KEEPS_ZERO>
static __device__ void gpu_choose(const gpu_routing_call &call, const gpu_routing_room &room,
                                  int64_t token) {
    int32_t *ids = gpu_row<int32_t>(call.ids, token);
    float *weights = gpu_row<float>(call.weights, token);
    uint64_t given = 0;
    float sum = 0;
    for (int k = 0; k < call.rules.topk; ++k) {
        const int best = gpu_best(room.choice, call.experts, given);
        given |= best % 32 == static_cast<int>(threadIdx.x) ? UINT64_C(1) << best / 32 : 0;
        sum += room.scores[best];
        if (threadIdx.x == 0) {
            ids[k] = best;
        }
    }
    sum = gpu_float(gpu_round<R>(sum));
    const bool divides = call.rules.is_renormalised && !(KEEPS_ZERO && sum == 0);
    for (int k = 0; threadIdx.x == 0 && k < call.rules.topk; ++k) {
        const float score = room.scores[ids[k]];
        const float share = divides ? gpu_float(gpu_round<R>(score / sum)) : score;
        weights[k] = gpu_float(gpu_round<R>(share * call.rules.factor));
    }
}

// ---- the host's side ----------------------------------------------------------------------------

static inline berth_status gpu_routing_supports(const berth_op_site *site, const berth_device *) {
    const berth_value_type *logits = site->inputs[GPU_ROUTING_LOGITS];
    if (logits->dims[1].b > GPU_MAX_EXPERTS) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "more than %d experts",
                                 GPU_MAX_EXPERTS);
    }
    return gpu_check_floats(site, 0);
}

static inline berth_status gpu_routing_create(const berth_op_site *site, const berth_device *device,
                                              void **out_self) {
    const berth_status status = gpu_new<gpu_routing>(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<gpu_routing *>(*out_self)->rules = berth_routing_read(site);
    }
    return status;
}

// The call of a step, and its grid: a warp a token.
static inline gpu_grid gpu_routing_begin(const gpu_routing *op, const berth_op_args *args,
                                         gpu_routing_call *out) {
    const berth_tensor *logits = args->inputs[GPU_ROUTING_LOGITS];
    const berth_tensor *bias = args->inputs[GPU_ROUTING_BIAS];
    *out = gpu_routing_call{};
    out->rules = op->rules;
    out->logits = gpu_rows_of(logits);
    out->bias = bias ? berth_gpu_data(bias) : nullptr;
    out->bias_dtype = bias ? bias->dtype : logits->dtype;
    out->weights = gpu_rows_of(args->outputs[0]);
    out->ids = gpu_rows_of(args->outputs[1]);
    out->experts = static_cast<int>(logits->shape[1]);
    return gpu_grid{dim3(static_cast<unsigned>(logits->shape[0])), dim3(32),
                    static_cast<uint32_t>(out->experts) * 2 * static_cast<uint32_t>(sizeof(float))};
}

#define GPU_ROUTING_SLOTS                                                                          \
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC, .supports = gpu_routing_supports,   \
    .create = gpu_routing_create, .forward = forward, .destroy = gpu_destroy

#endif
