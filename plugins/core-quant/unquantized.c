// SPDX-License-Identifier: Apache-2.0
// unquantized: weights multiplied as they are stored. A scheme like any other: it recognises its
// checkpoints by what they lack.
#include "forms/forms.h"

static berth_status matches(const berth_host *host, const berth_json *config) {
    uint64_t count = 0;
    const char *const keys[] = {"quantization_config", "compression_config"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
        if (host->json_get_count(config, keys[i], &count) != BERTH_NOT_FOUND) {
            return BERTH_NOT_FOUND;
        }
    }
    return BERTH_OK;
}

// weights[0] [output_size, input_size]; weights[1] the bias [output_size], if there is one; of a
// stack those of all its layers.
static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    int64_t shape[BERTH_QUANT_DIMS];
    const berth_parameter weight = berth_quant_parameter(builder, linear, "weight", shape);
    weights[0] = builder->parameter(builder, &weight);
    weights[1] = berth_quant_bias(builder, linear);
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    return BERTH_EMIT(builder, "linear", .prefix = linear->prefix,
                      BERTH_INPUTS(x, weights[0], weights[1]));
}

static berth_value apply_matrix(berth_builder *builder, const berth_linear *linear,
                                const berth_value *weights, berth_value x,
                                berth_value *out_weight) {
    (void)builder;
    (void)linear;
    *out_weight = weights[0];
    return x;
}

static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    return BERTH_EMIT(builder, "unquantized_fused_moe", .prefix = experts->prefix,
                      BERTH_INPUTS(experts->x, w13[0], w2[0], experts->topk_weights,
                                   experts->topk_ids, w13[1], w2[1]),
                      .attributes = experts->attributes,
                      .attribute_count = experts->attribute_count);
}

static const berth_quant_method method = {
    .size = sizeof(berth_quant_method),
    .name = "unquantized",
    .create_weights = create_weights,
    .apply = apply,
    .apply_experts = apply_experts,
    .apply_matrix = apply_matrix,
};

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    (void)host;
    (void)config;
    (void)linear;
    return &method;
}

// Codes when the user asks for them; what else has no scheme leaves its caches to this, too.
static const berth_kv_cache_method *get_kv_cache_method(const berth_host *host,
                                                        berth_kv_cache_layer *layer) {
    (void)host;
    layer->is_unquantized = !layer->wanted;
    return layer->wanted ? &berth_form_kv_codes : NULL;
}

const berth_quant_config berth_quant_unquantized = {
    .size = sizeof(berth_quant_config),
    .name = "unquantized",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .get_kv_cache_method = get_kv_cache_method,
};
