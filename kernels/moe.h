// SPDX-License-Identifier: Apache-2.0
// What an expert of a mixture computes, for the references and kernels of the MoE ops:
//
//   h = W13 · x + b13      a = activation(h)      y = W2 · a + b2
//
// W13 [2 · inter, hidden] holds the gate's rows, then the up projection's; one half only where the
// activation has no gate. `swigluoai` takes them in turns: even rows are the gate's.
#ifndef BERTH_KERNELS_MOE_H
#define BERTH_KERNELS_MOE_H

#include <berth/op.h>

#include <tensor.h>

#include <math.h>
#include <string.h>

// By `activation`, under vLLM's names; NONE for a text that is none of them.
enum {
    BERTH_MOE_NONE,
    BERTH_MOE_SILU,
    BERTH_MOE_GELU,
    BERTH_MOE_GELU_TANH,
    BERTH_MOE_RELU2,
    BERTH_MOE_SWIGLUOAI, // in turns
    BERTH_MOE_SWIGLUOAI_UNINTERLEAVE,
    BERTH_MOE_SWIGLUSTEP,
    BERTH_MOE_SITU,
    BERTH_MOE_SILU_NO_MUL, // the first without a gate
    BERTH_MOE_GELU_NO_MUL,
    BERTH_MOE_GELU_TANH_NO_MUL,
    BERTH_MOE_RELU2_NO_MUL,
};

typedef struct berth_moe {
    int activation;
    int is_weighted_first; // `apply_router_weight_on_input`
    float limit;
    float alpha;
    float beta;
    float linear_beta; // of situ; 0: none
} berth_moe;

static inline int berth_moe_activation(const char *name) {
    static const struct {
        int activation;
        const char *name;
    } names[] = {
        {BERTH_MOE_SILU,                   "silu"                  },
        {BERTH_MOE_GELU,                   "gelu"                  },
        {BERTH_MOE_GELU_TANH,              "gelu_tanh"             },
        {BERTH_MOE_RELU2,                  "relu2"                 },
        {BERTH_MOE_SWIGLUOAI,              "swigluoai"             },
        {BERTH_MOE_SWIGLUOAI_UNINTERLEAVE, "swigluoai_uninterleave"},
        {BERTH_MOE_SWIGLUSTEP,             "swiglustep"            },
        {BERTH_MOE_SITU,                   "situ"                  },
        {BERTH_MOE_SILU_NO_MUL,            "silu_no_mul"           },
        {BERTH_MOE_GELU_NO_MUL,            "gelu_no_mul"           },
        {BERTH_MOE_GELU_TANH_NO_MUL,       "gelu_tanh_no_mul"      },
        {BERTH_MOE_RELU2_NO_MUL,           "relu2_no_mul"          },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        if (strcmp(names[i].name, name) == 0) {
            return names[i].activation;
        }
    }
    return BERTH_MOE_NONE;
}

static inline int berth_moe_has_gate(int activation) {
    return activation < BERTH_MOE_SILU_NO_MUL;
}

// The same activation with a gate.
static inline int berth_moe_gated(int activation) {
    return activation == BERTH_MOE_SILU_NO_MUL        ? BERTH_MOE_SILU
           : activation == BERTH_MOE_GELU_NO_MUL      ? BERTH_MOE_GELU
           : activation == BERTH_MOE_GELU_TANH_NO_MUL ? BERTH_MOE_GELU_TANH
           : activation == BERTH_MOE_RELU2_NO_MUL     ? BERTH_MOE_RELU2
                                                      : activation;
}

static inline float berth_moe_number(const berth_op_site *site, const char *name, float fallback) {
    const berth_attribute *found = berth_site_attribute(site, name);
    return found && found->kind == BERTH_ATTRIBUTE_F64 ? (float)found->f64 : fallback;
}

// The attributes of any of the ops; one that the op lacks has its default.
static inline berth_moe berth_moe_read(const berth_op_site *site) {
    const berth_attribute *activation = berth_site_attribute(site, "activation");
    const berth_attribute *is_first = berth_site_attribute(site, "apply_router_weight_on_input");
    berth_moe self = {
        .activation = activation ? berth_moe_activation(activation->str) : BERTH_MOE_NONE,
        .is_weighted_first = is_first && is_first->i64,
        .limit = berth_moe_number(site, "swiglu_limit", 7.0f),
        .alpha = berth_moe_number(site, "swiglu_alpha", 1.702f),
        .beta = berth_moe_number(site, "swiglu_beta", 1.0f),
    };
    if (self.activation == BERTH_MOE_SITU) {
        self.beta = berth_moe_number(site, "situ_beta", 1.0f);
        self.linear_beta = berth_moe_number(site, "situ_linear_beta", 0.0f);
    }
    return self;
}

// A NaN passes through.
static inline float berth_moe_at_most(float value, float limit) {
    return value > limit ? limit : value;
}

static inline float berth_moe_within(float value, float limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}

static inline float berth_moe_sigmoid(float value) {
    return 1.0f / (1.0f + expf(-value));
}

static inline float berth_moe_gelu_tanh(float value) {
    const float inner = 0.79788456f * (value + 0.044715f * value * value * value);
    return 0.5f * value * (1.0f + tanhf(inner));
}

// activation(gate) · up in f32, `up` ignored where there is no gate.
static inline float berth_moe_activate(const berth_moe *self, float gate, float up) {
    const float positive = gate < 0 ? 0 : gate;
    switch (self->activation) {
    case BERTH_MOE_GELU:
    case BERTH_MOE_GELU_NO_MUL:
        gate = 0.5f * gate * (1.0f + erff(gate * 0.70710678f));
        break;
    case BERTH_MOE_GELU_TANH:
    case BERTH_MOE_GELU_TANH_NO_MUL:
        gate = berth_moe_gelu_tanh(gate);
        break;
    case BERTH_MOE_RELU2:
    case BERTH_MOE_RELU2_NO_MUL:
        gate = positive * positive;
        break;
    case BERTH_MOE_SWIGLUOAI:
    case BERTH_MOE_SWIGLUOAI_UNINTERLEAVE:
        gate = berth_moe_at_most(gate, self->limit);
        gate = gate * berth_moe_sigmoid(gate * self->alpha);
        up = berth_moe_within(up, self->limit) + self->beta;
        break;
    case BERTH_MOE_SWIGLUSTEP:
        gate = berth_moe_at_most(gate / (1.0f + expf(-gate)), self->limit);
        up = berth_moe_within(up, self->limit);
        break;
    case BERTH_MOE_SITU:
        gate = self->beta * tanhf(gate / self->beta) * berth_moe_sigmoid(gate);
        up = self->linear_beta > 0 ? self->linear_beta * tanhf(up / self->linear_beta) : up;
        break;
    default:
        gate = gate / (1.0f + expf(-gate));
    }
    return berth_moe_has_gate(self->activation) ? gate * up : gate;
}

// The expert of this rank that a token's choice means: −1 when it is another rank's or nobody's,
// −2 when there is no such expert.
static inline int64_t berth_moe_expert(const berth_tensor *topk_ids, const berth_tensor *expert_map,
                                       int64_t token, int64_t choice, int64_t experts) {
    int64_t id = berth_integer_at(berth_row(topk_ids, token), topk_ids->dtype, choice);
    if (id == -1) {
        return -1;
    }
    if (expert_map && (id < 0 || id >= expert_map->shape[0])) {
        return -2;
    }
    if (expert_map) {
        id = berth_integer_at(berth_data(expert_map), expert_map->dtype, id);
    }
    return id < -1 || id >= experts ? -2 : id;
}

static inline berth_status berth_moe_no_expert(const berth_host *host, const char *op,
                                               int64_t token) {
    return BERTH_PLUGIN_FAIL(host, BERTH_INVALID_ARGUMENT,
                             "%s: token %lld chooses an expert that is not there", op,
                             (long long)token);
}

#endif
