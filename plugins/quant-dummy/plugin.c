// SPDX-License-Identifier: Apache-2.0
// quant-dummy: a quantization scheme in a plugin of its own, the smallest that uses the whole
// contract. `--quantization dummy` takes a checkpoint that is not quantized and makes codes of 8
// bits of its weights while they are loaded, with one scale for each output; inputs stay floats.
#include <berth/plugin.h>

#include <math.h>

enum { CODES, SCALES, BIAS };

// ---- which checkpoints, which layers ------------------------------------------------------------

static berth_status matches(const berth_host *host, const berth_json *config) {
    (void)host;
    (void)config;
    return BERTH_NOT_FOUND; // no file says of itself that it is one
}

static uint64_t override_quantization_method(const berth_host *host, const berth_json *config,
                                             const char *wanted) {
    const berth_json *own = NULL;
    return wanted && strcmp(wanted, "dummy") == 0 &&
           host->json_get(config, "quantization_config", &own) == BERTH_NOT_FOUND;
}

// ---- weights ------------------------------------------------------------------------------------

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    const int64_t codes[] = {linear->output_size, linear->input_size};
    const int64_t scales[] = {linear->output_size, 1};
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter weight = berth_quant_parameter(builder, linear, "weight", shape);
    weight.role = BERTH_PARAMETER_STORED;
    weight.dtype = "f32"; // of whatever float type it is stored
    (void)builder->parameter(builder, &weight);
    weights[CODES] = berth_quant_made(builder, linear, "codes", "i8", codes);
    weights[SCALES] = berth_quant_made(builder, linear, "scales", "f32", scales);
    weights[BIAS] = berth_quant_bias(builder, linear);
}

static void quantise(const float *row, int64_t width, int8_t *codes, float *scale) {
    float largest = 0;
    for (int64_t k = 0; k < width; ++k) {
        largest = fmaxf(largest, fabsf(row[k]));
    }
    *scale = largest > 0 ? largest / 127 : 1;
    for (int64_t k = 0; k < width; ++k) {
        codes[k] = (int8_t)rintf(row[k] / *scale);
    }
}

static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    (void)host;
    const int64_t width = linear->input_size;
    for (int64_t n = 0; n < berth_quant_rows(linear); ++n) {
        quantise((const float *)stored[0]->data + n * width, width,
                 (int8_t *)made[CODES]->data + n * width, (float *)made[SCALES]->data + n);
    }
    return BERTH_OK;
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    static const int64_t per_output[] = {1, -1};
    return BERTH_EMIT(
        builder, "packed_linear", .prefix = linear->prefix,
        BERTH_INPUTS(x, weights[CODES], weights[SCALES], BERTH_VALUE_NONE, BERTH_VALUE_NONE,
                     weights[BIAS]),
        BERTH_ATTRIBUTES(BERTH_TEXT("code", "i8"), BERTH_I64S("group_shape", per_output, 2)));
}

// The same codes in the two stacks of a mixture's experts.
static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    const berth_quant_stack stacks[] = {
        {.weight = w13[CODES], .scale = w13[SCALES], .bias = w13[BIAS]},
        {.weight = w2[CODES],  .scale = w2[SCALES],  .bias = w2[BIAS] },
    };
    return berth_quant_experts(builder, experts, stacks,
                               (berth_quant_codes){
                                   .code = "i8", .input = "float", .group_shape = {1, -1}
    });
}

static const berth_quant_method method = {
    .size = sizeof(berth_quant_method),
    .name = "i8 per output, made at load",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
    .apply_experts = apply_experts,
};

// The head stays as it is: most of what a small error changes is there.
static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    (void)host;
    (void)config;
    if (strcmp(linear->layer_class, "ParallelLMHead") == 0) {
        linear->quant->is_unquantized = 1;
        return NULL;
    }
    return &method;
}

// ---- registration -------------------------------------------------------------------------------

static const berth_quant_config config = {
    .size = sizeof(berth_quant_config),
    .name = "dummy",
    .matches = matches,
    .get_quant_method = get_quant_method,
    .override_quantization_method = override_quantization_method,
};

static berth_status register_scheme(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_quant_config(registrar, &config, 0);
}

static const berth_entry_point scheme = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "quant-dummy",
    .register_plugin = register_scheme,
};

static const berth_entry_point *const entry_points[] = {&scheme};

BERTH_PLUGIN_DEFINE(.id = "quant-dummy", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
