// SPDX-License-Identifier: Apache-2.0
// unquantized: weights multiplied as they are stored. A scheme like any other: it recognises its
// checkpoints by what they lack.
#include <berth/quant.h>

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

// weights[0] [output_size, input_size]; weights[1] the bias [output_size], if there is one.
static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    const char *alias = linear->alias;
    const int64_t shape[] = {linear->output_size, linear->input_size};
    const berth_parameter weight = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(builder, "%s.weight", linear->prefix),
        .alias = alias ? berth_build_name(builder, "%s.weight", alias) : NULL,
        .shape = shape,
        .ndim = 2,
        .output_dim = 0,
        .input_dim = 1,
        .shards = linear->shards,
        .shard_count = linear->shard_count,
        .stored_output_offset = linear->stored_output_offset,
        .stored_output_extent = linear->stored_output_extent,
        .stored_input_offset = linear->stored_input_offset,
        .stored_input_extent = linear->stored_input_extent,
    };
    weights[0] = builder->parameter(builder, &weight);
    if (linear->has_bias) {
        berth_parameter bias = weight;
        bias.name = berth_build_name(builder, "%s.bias", linear->prefix);
        bias.alias = alias ? berth_build_name(builder, "%s.bias", alias) : NULL;
        bias.ndim = 1;
        bias.is_vector = 1;
        bias.input_dim = -1;
        bias.stored_input_extent = 0;
        weights[1] = builder->parameter(builder, &bias);
    }
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    return BERTH_EMIT(builder, "linear", .prefix = linear->prefix,
                      BERTH_INPUTS(x, weights[0], weights[1]));
}

static const berth_quant_method method = {
    .size = sizeof(berth_quant_method),
    .name = "unquantized",
    .create_weights = create_weights,
    .apply = apply,
};

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    (void)host;
    (void)config;
    (void)linear;
    return &method;
}

const berth_quant_config berth_quant_unquantized = {
    .size = sizeof(berth_quant_config),
    .name = "unquantized",
    .matches = matches,
    .get_quant_method = get_quant_method,
};
