// SPDX-License-Identifier: Apache-2.0
// Input: hidden states. Output: what the MLP of a layer, or its experts, make of them.
#include "parts.h"

#include <string.h>

// hidden_act of config.json and the op that it is: alone, times a second half, inside experts. With
// none for a second half it is the first one, and a product.
typedef struct activation {
    const char *name;
    const char *alone;
    const char *gated;
    const char *experts;
    const char *approximate; // of gelu_and_mul
} activation;

#define ACTIVATION(act_name, ...)                                                                  \
    { .name = (act_name), __VA_ARGS__ }
#define GELU_TANH .gated = "gelu_and_mul", .approximate = "tanh", .experts = "gelu_tanh"
#define GELU_ERF  .gated = "gelu_and_mul", .approximate = "none", .experts = "gelu"

static const activation activations[] = {
    ACTIVATION("silu", .gated = "silu_and_mul", .experts = "silu"),
    ACTIVATION("swish", .gated = "silu_and_mul", .experts = "silu"),
    ACTIVATION("gelu", .alone = "gelu", GELU_ERF),
    ACTIVATION("gelu_new", .alone = "gelu_new", GELU_TANH),
    ACTIVATION("gelu_fast", .alone = "gelu_fast", GELU_TANH),
    ACTIVATION("gelu_pytorch_tanh", .alone = "gelu_tanh", GELU_TANH),
    ACTIVATION("quick_gelu", .alone = "quick_gelu"),
    ACTIVATION("relu", .gated = "fatrelu_and_mul"),
    ACTIVATION("fatrelu", .gated = "fatrelu_and_mul"),
    ACTIVATION("relu2", .alone = "relu2", .experts = "relu2"),
    ACTIVATION("xielu", .alone = "xielu"),
};

// Where the activation stands.
typedef enum place {
    PLACE_ALONE,
    PLACE_GATED,
    PLACE_EXPERTS,
} place;

static int is_there(const activation *one, const berth_decoder *decoder, place where) {
    return where == PLACE_ALONE     ? one->alone != NULL
           : where == PLACE_EXPERTS ? one->experts != NULL
           : decoder->sparsity > 0  ? one->approximate != NULL
                                    : one->gated != NULL || strcmp(one->name, "xielu") != 0;
}

static const activation *find(berth_builder *b, const berth_decoder *decoder, place where) {
    static const char *const places[] = {"an ungated MLP", "a gated MLP", "experts"};
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; ++i) {
        const activation *one = &activations[i];
        if (strcmp(one->name, decoder->activation) == 0 && is_there(one, decoder, where)) {
            return one;
        }
    }
    berth_build_fail(b, BERTH_UNSUPPORTED,
                     "config.json: hidden_act '%s'; there is no op for it in %s",
                     decoder->activation, places[where]);
    return &activations[0];
}

// xIELU has parameters, two learned and two constant.
static berth_value xielu(berth_builder *b, const char *name, berth_value x) {
    static const char *const names[] = {"alpha_p", "alpha_n", "beta", "eps"};
    const int64_t one = 1;
    berth_value inputs[5] = {x};
    for (uint64_t i = 0; i < 4; ++i) {
        const berth_parameter parameter = {
            .size = sizeof(berth_parameter),
            .name = berth_build_name(b, "%s.%s", name, names[i]),
            .shape = &one,
            .ndim = i < 2 ? 1 : 0,
            .is_vector = 1,
            .output_dim = -1,
            .input_dim = -1,
        };
        inputs[i + 1] = b->parameter(b, &parameter);
    }
    return BERTH_EMIT(b, "xielu", .prefix = name, .inputs = inputs, .input_count = 5);
}

berth_value berth_decoder_activate(berth_builder *b, const berth_decoder *decoder, const char *name,
                                   berth_value x) {
    const char *op = find(b, decoder, PLACE_ALONE)->alone;
    return strcmp(decoder->activation, "xielu") == 0
               ? xielu(b, name, x)
               : BERTH_EMIT(b, op, .prefix = name, BERTH_INPUTS(x));
}

// x [T, 2 size]: the first half, activated, times the second.
static berth_value activate_half(berth_builder *b, const berth_decoder *decoder, const char *name,
                                 int64_t size, berth_value x) {
    const activation *found = find(b, decoder, PLACE_GATED);
    const char *approximate = found->approximate;
    if (decoder->sparsity > 0 && approximate != NULL) {
        return BERTH_EMIT(b, "gelu_and_mul_sparse", .prefix = name, BERTH_INPUTS(x),
                          BERTH_ATTRIBUTES(BERTH_F64("activation_sparsity", decoder->sparsity),
                                           BERTH_TEXT("approximate", approximate)));
    }
    if (found->gated == NULL) {
        const berth_value gate =
            berth_decoder_activate(b, decoder, name, b->slice(b, x, 1, 0, size));
        return BERTH_EMIT(b, "mul", .prefix = name,
                          BERTH_INPUTS(gate, b->slice(b, x, 1, size, size)));
    }
    if (approximate != NULL) {
        return BERTH_EMIT(b, found->gated, .prefix = name, BERTH_INPUTS(x),
                          BERTH_ATTRIBUTES(BERTH_TEXT("approximate", approximate)));
    }
    return strcmp(found->name, "fatrelu") == 0
               ? BERTH_EMIT(b, found->gated, .prefix = name, BERTH_INPUTS(x),
                            BERTH_ATTRIBUTES(BERTH_F64("threshold", decoder->threshold)))
               : BERTH_EMIT(b, found->gated, .prefix = name, BERTH_INPUTS(x));
}

// x [T, hidden_size] as the gate beside what it is for, [T, 2 size], or as [T, size] without one.
static berth_value widen(berth_builder *b, const berth_decoder *decoder, const char *name,
                         int64_t size, berth_value x) {
    const int64_t sizes[] = {size, size};
    const berth_attribute *inputs = BERTH_I64("input_size", decoder->hidden_size);
    const berth_attribute *bias = BERTH_BOOL("bias", decoder->has_mlp_bias);
    return decoder->has_no_gate
               ? BERTH_LAYER(b, "ColumnParallelLinear", .prefix = name, BERTH_INPUTS(x),
                             BERTH_ATTRIBUTES(inputs, BERTH_I64("output_size", size), bias))
               : BERTH_LAYER(b, "MergedColumnParallelLinear", .prefix = name, BERTH_INPUTS(x),
                             BERTH_ATTRIBUTES(inputs, BERTH_I64S("output_sizes", sizes, 2), bias));
}

berth_value berth_decoder_dense(berth_builder *b, const berth_decoder *decoder, const char *name,
                                int64_t size, berth_value x) {
    const berth_value up =
        widen(b, decoder, berth_build_name(b, "%s.%s", name, decoder->names->up), size, x);
    const char *own = berth_build_name(b, "%s.act_fn", name);
    const berth_value y = decoder->has_no_gate ? berth_decoder_activate(b, decoder, own, up)
                                               : activate_half(b, decoder, own, size, up);
    return BERTH_LAYER(b, "RowParallelLinear",
                       .prefix = berth_build_name(b, "%s.%s", name, decoder->names->down),
                       BERTH_INPUTS(y),
                       BERTH_ATTRIBUTES(BERTH_I64("input_size", size),
                                        BERTH_I64("output_size", decoder->hidden_size),
                                        BERTH_BOOL("bias", decoder->has_mlp_bias)));
}

// ---- experts ------------------------------------------------------------------------------------

// Whether a layer has experts; `mlp_only_layers` of config.json lists some that have none.
static int has_experts(berth_builder *b, const berth_decoder *decoder, int64_t layer) {
    const berth_decoder_experts *experts = &decoder->experts;
    if (experts->count == 0 || layer < experts->first_layer ||
        (experts->period > 1 && (layer + 1 + experts->lead) % experts->period != 0)) {
        return 0;
    }
    return !berth_decoder_lists(b, "mlp_only_layers", layer);
}

static berth_value project(berth_builder *b, const berth_decoder *decoder, const char *name,
                           int64_t outputs, berth_value x) {
    const int64_t is_f32 = decoder->experts.routes_in_f32;
    return BERTH_LAYER(b, "GateLinear", .prefix = name, BERTH_INPUTS(x),
                       BERTH_ATTRIBUTES(BERTH_I64("input_size", decoder->hidden_size),
                                        BERTH_I64("output_size", outputs),
                                        BERTH_BOOL("bias", decoder->experts.has_bias),
                                        BERTH_TEXT("out_dtype", is_f32 ? "f32" : ""),
                                        BERTH_BOOL("force_fp32_compute", is_f32)));
}

static const char *activation_of(berth_builder *b, const berth_decoder *decoder) {
    const char *own = decoder->experts.activation;
    return own ? own : find(b, decoder, PLACE_EXPERTS)->experts;
}

// What the experts for every token make of x; BERTH_VALUE_NONE where there are none. One that has a
// gate is a mixture of one, of which every token gets the share that its gate says.
static berth_value shared(berth_builder *b, const berth_decoder *decoder, const char *name,
                          berth_value x) {
    const berth_decoder_experts *experts = &decoder->experts;
    const char *own = berth_build_name(b, "%s.%s", name, decoder->names->shared_experts);
    if (experts->shared_size == 0 || !experts->has_shared_gate) {
        return experts->shared_size == 0
                   ? BERTH_VALUE_NONE
                   : berth_decoder_dense(b, decoder, own, experts->shared_size, x);
    }
    const berth_value gate = project(b, decoder, berth_build_name(b, "%s_gate", own), 1, x);
    return BERTH_LAYER(b, "FusedMoE", .prefix = own, BERTH_INPUTS(x, gate),
                       BERTH_ATTRIBUTES(BERTH_I64("num_experts", 1), BERTH_I64("top_k", 1),
                                        BERTH_I64("hidden_size", decoder->hidden_size),
                                        BERTH_I64("intermediate_size", experts->shared_size),
                                        BERTH_TEXT("scoring_func", "sigmoid"),
                                        BERTH_TEXT("activation", activation_of(b, decoder)),
                                        BERTH_BOOL("renormalize", 0)));
}

static berth_value mixture(berth_builder *b, const berth_decoder *decoder, const char *name,
                           berth_value x) {
    const berth_decoder_experts *experts = &decoder->experts;
    const char *router = berth_build_name(b, "%s.%s", name, decoder->names->router);
    const berth_value logits = project(b, decoder, router, experts->count, x);
    const berth_value correction =
        experts->has_correction
            ? berth_build_vector(b, berth_build_name(b, "%s.e_score_correction_bias", router),
                                 experts->count)
            : BERTH_VALUE_NONE;
    return BERTH_LAYER(
        b, "FusedMoE", .prefix = name,
        BERTH_INPUTS(x, logits, correction, shared(b, decoder, name, x)),
        BERTH_ATTRIBUTES(
            BERTH_I64("num_experts", experts->count), BERTH_I64("top_k", experts->per_token),
            BERTH_I64("hidden_size", decoder->hidden_size),
            BERTH_I64("intermediate_size", experts->size),
            BERTH_BOOL("renormalize", experts->renormalize),
            BERTH_TEXT("scoring_func", experts->scoring ? experts->scoring : "softmax"),
            BERTH_TEXT("activation", activation_of(b, decoder)),
            BERTH_BOOL("has_bias", experts->has_bias),
            BERTH_F64("routed_scaling_factor", experts->scale > 0 ? experts->scale : 1),
            BERTH_F64("swiglu_limit", experts->limit > 0 ? experts->limit : 7),
            BERTH_F64("swiglu_alpha", experts->alpha > 0 ? experts->alpha : 1.702),
            BERTH_BOOL("use_grouped_topk", experts->group_count > 0),
            BERTH_I64("num_expert_group", experts->group_count > 0 ? experts->group_count : 1),
            BERTH_I64("topk_group", experts->group_count > 0 ? experts->groups_per_token : 1)));
}

berth_value berth_decoder_mlp(berth_builder *b, const berth_decoder *decoder, int64_t layer,
                              berth_value x) {
    const char *name = berth_decoder_piece(b, decoder, layer, decoder->names->mlp);
    return has_experts(b, decoder, layer)
               ? mixture(b, decoder, name, x)
               : berth_decoder_dense(b, decoder, name, decoder->intermediate_size, x);
}
