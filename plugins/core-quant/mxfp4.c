// SPDX-License-Identifier: Apache-2.0
// mxfp4: experts in codes of e2m1, in blocks of 32 inputs with a power of two each (gpt-oss);
// inputs are floats. Everything else, and what `modules_to_not_convert` names, is not quantized.
#include "forms/forms.h"

enum { WEIGHT, SCALE, BIAS };

#define BLOCK 32

static berth_status matches(const berth_host *host, const berth_json *config) {
    const char *method = NULL;
    return host->json_get_str(config, "quantization_config.quant_method", &method) == BERTH_OK &&
                   strcmp(method, "mxfp4") == 0
               ? BERTH_OK
               : BERTH_NOT_FOUND;
}

// PREFIX_LEAF u8 [experts, outputs, blocks of inputs, bytes], without the last where that is 0.
static void declare(berth_builder *builder, const berth_linear *linear, const char *leaf,
                    int64_t bytes) {
    int64_t shape[BERTH_QUANT_DIMS + 1];
    berth_parameter parameter = berth_quant_parameter(builder, linear, leaf, shape);
    shape[parameter.ndim] = bytes;
    parameter.ndim += bytes > 0;
    parameter.role = BERTH_PARAMETER_STORED;
    parameter.dtype = "u8";
    parameter.input_factor = BLOCK;
    (void)builder->parameter(builder, &parameter);
}

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    const int64_t codes[] = {linear->output_size, linear->input_size / 2};
    const int64_t scales[] = {linear->output_size, linear->input_size / BLOCK};
    if (berth_form_group(builder, linear, BLOCK) != BLOCK) {
        return;
    }
    declare(builder, linear, "blocks", BLOCK / 2);
    declare(builder, linear, "scales", 0);
    weights[WEIGHT] = berth_quant_made(builder, linear, "codes", "u8", codes);
    weights[SCALE] = berth_quant_made(builder, linear, "scale_of_blocks", "bf16", scales);
    weights[BIAS] = berth_quant_bias(builder, linear);
}

// A stored scale is the exponent of a bf16 without sign and fraction; 0 is 2^-127, and subnormal.
static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    const int64_t blocks = berth_quant_rows(linear) * (linear->input_size / BLOCK);
    const uint8_t *exponents = stored[1]->data;
    uint16_t *scales = made[1]->data;
    memcpy(made[0]->data, stored[0]->data, (size_t)(blocks * (BLOCK / 2)));
    for (int64_t i = 0; i < blocks; ++i) {
        if (exponents[i] == 255) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'scales': number %lld is 255, which is not a number",
                                     (long long)i);
        }
        scales[i] = exponents[i] > 0 ? (uint16_t)(exponents[i] << 7) : 0x40;
    }
    return BERTH_OK;
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    (void)weights;
    berth_build_fail(builder, BERTH_UNSUPPORTED, "layer '%s': mxfp4 is for experts",
                     linear->prefix);
    return x;
}

static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    const berth_quant_stack stacks[] = {
        {.weight = w13[WEIGHT], .scale = w13[SCALE], .bias = w13[BIAS]},
        {.weight = w2[WEIGHT],  .scale = w2[SCALE],  .bias = w2[BIAS] },
    };
    return berth_quant_experts(builder, experts, stacks,
                               (berth_quant_codes){
                                   .code = "e2m1", .input = "float", .group_shape = {1, BLOCK}
    });
}

static const berth_quant_method method = {
    .size = sizeof(berth_quant_method),
    .name = "experts in blocks of e2m1, inputs in floats",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
    .apply_experts = apply_experts,
};

// 1: quantized.
static berth_status answer(const berth_host *host, const berth_linear *linear, const char *name,
                           int64_t *out) {
    return berth_form_unless_within(host, linear, name,
                                    "quantization_config.modules_to_not_convert", out);
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    int64_t is_quantized = 0;
    (void)config;
    if (linear->stack_size > 0 &&
        berth_quant_agree(host, linear, answer, &is_quantized) != BERTH_OK) {
        return NULL;
    }
    return is_quantized ? &method : berth_form_none(linear);
}

const berth_quant_config berth_quant_mxfp4 = {
    .size = sizeof(berth_quant_config),
    .name = "mxfp4",
    .matches = matches,
    .get_quant_method = get_quant_method,
};
