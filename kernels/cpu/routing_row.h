// SPDX-License-Identifier: Apache-2.0
// The scores of one token's logits as vector code, for topk_softmax and grouped_topk.
#ifndef BERTH_KERNELS_CPU_ROUTING_ROW_H
#define BERTH_KERNELS_CPU_ROUTING_ROW_H

#include <cpu/cpu.h>
#include <routing.h>

// Arrays of one token, of each as many as there are experts.
typedef struct routing_arrays {
    float *scores;
    float *choice;
    float *counts;
    char *chosen;
} routing_arrays;

static inline uint64_t routing_bytes(int64_t experts) {
    return (uint64_t)experts * (3 * sizeof(float) + 1);
}

static inline routing_arrays routing_arrays_of(const berth_op_args *args, int64_t experts) {
    float *memory = berth_data(args->workspace);
    float *const counts = memory + 2 * experts;
    return (routing_arrays){memory, memory + experts, counts, (char *)(counts + experts)};
}

static inline void routing_softmax(float *values, int64_t count) {
    float sum = 0;
    float largest = values[0];
    for (int64_t i = 1; i < count; ++i) {
        largest = values[i] > largest ? values[i] : largest;
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] = berth_exp_f32(values[i] - largest);
    }
    for (int64_t i = 0; i < count; ++i) {
        sum += values[i];
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] /= sum;
    }
}

// As berth_score.
static inline void routing_score(int scoring, float *values, int64_t count) {
    if (scoring == BERTH_SCORING_SOFTMAX) {
        routing_softmax(values, count);
        return;
    }
    if (scoring == BERTH_SCORING_SQRTSOFTPLUS) {
        berth_score(scoring, values, count);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] = berth_exp_f32(-values[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] = 1.0f / (1.0f + values[i]);
    }
}

static inline float routing_largest(const float *values, int64_t count) {
    float lanes[16];
    float largest = -INFINITY;
    for (int64_t lane = 0; lane < 16; ++lane) {
        lanes[lane] = -INFINITY;
    }
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (int64_t lane = 0; lane < 16; ++lane) {
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
        }
    }
    for (int64_t lane = 0; lane < 16; ++lane) {
        largest = lanes[lane] > largest ? lanes[lane] : largest;
    }
    for (; i < count; ++i) {
        largest = values[i] > largest ? values[i] : largest;
    }
    return largest;
}

// As berth_choose, taking what it chooses out of arrays->choice. Where nothing is left that is
// larger than minus infinity, the reference goes on.
static inline void routing_choose(const routing_arrays *arrays, int64_t count, int64_t k,
                                  int32_t *ids) {
    float *choice = arrays->choice;
    for (int64_t i = 0; i < k; ++i) {
        const float best = routing_largest(choice, count);
        int64_t at = 0;
        while (at < count && choice[at] != best) {
            ++at;
        }
        if (at == count || best == -INFINITY) {
            for (int64_t j = 0; j < i; ++j) {
                choice[ids[j]] = INFINITY; // again the first, whatever their order
            }
            berth_choose(choice, count, k, arrays->chosen, ids);
            return;
        }
        choice[at] = -INFINITY;
        ids[i] = (int32_t)at;
    }
}

// ---- instances ----------------------------------------------------------------------------------

enum { ROUTING_LOGITS, ROUTING_BIAS };
enum { ROUTING_WEIGHTS, ROUTING_IDS };

typedef struct routing {
    const berth_host *host;
    const berth_cpu *cpu;
    berth_routing routing;
    int64_t experts;
} routing;

static inline berth_status routing_create(const berth_op_site *site, const berth_device *device,
                                          void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(routing), out_self);
    if (status == BERTH_OK) {
        routing *self = *out_self;
        self->cpu = device->self;
        self->routing = berth_routing_read(site);
        self->experts = site->inputs[ROUTING_LOGITS]->dims[1].b;
    }
    return status;
}

// Scores of a token, not rounded.
static inline void routing_load(const routing *self, const berth_op_args *args, int64_t token,
                                const routing_arrays *arrays) {
    const berth_tensor *logits = args->inputs[ROUTING_LOGITS];
    berth_load(berth_row(logits, token), logits->dtype, 0, self->experts, arrays->scores);
    routing_score(self->routing.scoring, arrays->scores, self->experts);
}

static inline uint64_t routing_workspace(void *state, uint64_t tokens) {
    (void)tokens;
    return routing_bytes(((const routing *)state)->experts);
}

#endif
