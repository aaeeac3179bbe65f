// SPDX-License-Identifier: Apache-2.0
// Input: a layer of e2m1 codes, two to a byte, with e4m3 scales of 16 inputs and one global scale,
// a divisor or a multiplier. Output: its parameters and nodes. Codes stay as they are stored,
// scales become bf16, which holds them exactly, and the global ones are one factor per output:
// nothing is widened that a step has to read. Inputs are quantized and multiplied as the numbers
// that their codes are: a code by its scale of e4m3 has six bits, so activations of any type have
// it, and what of their divisor is no power of two is in the outputs' factors. Scales of experts
// are floats with the global one in them.
#include "forms.h"

#include <math.h>

enum { WEIGHT, SCALE, FACTOR, INPUT_GLOBAL, INPUT_POWER, BIAS };

#define GROUP 16

static berth_parameter describe(berth_builder *builder, const berth_linear *linear,
                                const char *leaf, int64_t *shape) {
    berth_parameter parameter = berth_quant_parameter(builder, linear, leaf, shape);
    parameter.role = BERTH_PARAMETER_STORED;
    parameter.dtype = "f32";
    return parameter;
}

static void declare_global(berth_builder *builder, const berth_linear *linear, const char *leaf) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter global = describe(builder, linear, leaf, shape);
    global.is_per_tensor = 1;
    global.is_scale = 1;
    (void)builder->parameter(builder, &global);
}

static int has_multipliers(const berth_linear *linear) {
    return linear->quant->notes[BERTH_NVFP4_HAS_MULTIPLIERS] != 0;
}

static void declare_weight_global(berth_builder *builder, const berth_linear *linear) {
    declare_global(builder, linear,
                   has_multipliers(linear) ? "weight_scale_2" : "weight_global_scale");
}

static berth_value declare_codes(berth_builder *builder, const berth_linear *linear) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter codes =
        describe(builder, linear, has_multipliers(linear) ? "weight" : "weight_packed", shape);
    codes.role = BERTH_PARAMETER_RESIDENT;
    codes.dtype = "u8";
    codes.input_factor = 2;
    return builder->parameter(builder, &codes);
}

static berth_value declare_scales(berth_builder *builder, const berth_linear *linear,
                                  const char *dtype) {
    const int64_t made[] = {linear->output_size, linear->input_size / GROUP};
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter scales = describe(builder, linear, "weight_scale", shape);
    scales.dtype = "f8_e4m3fn";
    scales.input_factor = GROUP;
    scales.is_scale = 1;
    (void)builder->parameter(builder, &scales);
    return berth_quant_made(builder, linear, "weight_scale_of_groups", dtype, made);
}

static int is_weight_only(const berth_linear *linear) {
    return linear->quant->notes[BERTH_NVFP4_IS_WEIGHT_ONLY] != 0;
}

// One divisor for all shards, of a stack one for each layer.
static void declare_input(berth_builder *builder, const berth_linear *linear,
                          berth_value *weights) {
    const int64_t layers = linear->stack_size > 0 ? linear->stack_size : 1;
    if (!is_weight_only(linear)) {
        declare_global(builder, linear,
                       has_multipliers(linear) ? "input_scale" : "input_global_scale");
        weights[INPUT_GLOBAL] =
            berth_quant_made_vector(builder, linear, "input_global_scale_of_all", "f32", layers);
    }
}

static void create_stack(berth_builder *builder, const berth_linear *linear, berth_value *weights) {
    weights[WEIGHT] = declare_codes(builder, linear);
    weights[SCALE] = declare_scales(builder, linear, "f32");
    declare_weight_global(builder, linear);
    declare_input(builder, linear, weights);
    weights[BIAS] = berth_quant_bias(builder, linear);
}

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    if (berth_form_group(builder, linear, GROUP) != GROUP) {
        return;
    }
    if (linear->stack_size > 0) {
        create_stack(builder, linear, weights);
        return;
    }
    weights[WEIGHT] = declare_codes(builder, linear);
    weights[SCALE] = declare_scales(builder, linear, "bf16");
    declare_weight_global(builder, linear);
    weights[FACTOR] =
        berth_quant_made_vector(builder, linear, "output_factors", "f32", linear->output_size);
    declare_input(builder, linear, weights);
    if (!is_weight_only(linear)) {
        weights[INPUT_POWER] =
            berth_quant_made_vector(builder, linear, "input_global_scale_power", "f32", 1);
    }
    weights[BIAS] = berth_quant_bias(builder, linear);
}

static float global_of(const berth_linear *linear, const float *globals, int64_t n) {
    uint64_t shard = 0;
    while (shard + 1 < linear->shard_count &&
           n >= linear->shards[shard]->offset + linear->shards[shard]->extent) {
        ++shard;
    }
    return globals[shard];
}

// What the codes and scales of an output are multiplied by.
static float factor_of(const berth_linear *linear, const float *globals, int64_t n) {
    const float global = global_of(linear, globals, n);
    return has_multipliers(linear) ? global : 1.0f / global;
}
// The upper half of a float is a bf16, and a number of e4m3 has nothing in the lower one.
static void widen_scales(const berth_tensor *local, const berth_tensor *to) {
    const int64_t count = to->shape[0] * to->shape[1];
    for (int64_t i = 0; i < count; ++i) {
        const float number = berth_from_f8(((const uint8_t *)local->data)[i]);
        uint32_t bits = 0;
        memcpy(&bits, &number, sizeof bits);
        ((uint16_t *)to->data)[i] = (uint16_t)(bits >> 16);
    }
}

// Of every expert and shard: what its codes are multiplied by.
static void scale_stack(const berth_linear *linear, const berth_tensor *const *stored,
                        const berth_tensor *to) {
    const int64_t groups = linear->input_size / GROUP;
    const int64_t shards = linear->shard_count > 0 ? (int64_t)linear->shard_count : 1;
    const uint8_t *local = stored[0]->data;
    const float *globals = stored[1]->data;
    for (int64_t row = 0; row < berth_quant_rows(linear); ++row) {
        const float *own = globals + row / linear->output_size * shards;
        const float factor = factor_of(linear, own, row % linear->output_size);
        for (int64_t i = row * groups; i < (row + 1) * groups; ++i) {
            ((float *)to->data)[i] = berth_from_f8(local[i]) * factor;
        }
    }
}

// With the smallest divisor, which is the largest multiplier, every shard's range is held.
static void choose_input(const berth_linear *linear, const berth_tensor *globals,
                         const berth_tensor *to) {
    const int64_t shards = linear->shard_count > 0 ? (int64_t)linear->shard_count : 1;
    const int64_t layers = linear->stack_size > 0 ? linear->stack_size : 1;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const float *of = (const float *)globals->data + layer * shards;
        float *smallest = (float *)to->data + layer;
        *smallest = INFINITY;
        for (int64_t i = 0; i < shards; ++i) {
            const float divisor = has_multipliers(linear) ? 1.0f / of[i] : of[i];
            *smallest = divisor < *smallest ? divisor : *smallest;
        }
    }
}

// The power of two with which a divisor begins.
static float power_of(float divisor) {
    int exponent = 0;
    (void)frexpf(divisor, &exponent);
    return ldexpf(1.0f, exponent - 1);
}

static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    (void)host;
    float of_input = 1;
    if (linear->stack_size > 0) {
        scale_stack(linear, stored, made[0]);
        if (!is_weight_only(linear)) {
            choose_input(linear, stored[2], made[1]);
        }
        return BERTH_OK;
    }
    widen_scales(stored[0], made[0]);
    if (!is_weight_only(linear)) {
        choose_input(linear, stored[2], made[2]);
        const float divisor = *(const float *)made[2]->data;
        const float power = power_of(divisor);
        *(float *)made[3]->data = power;
        of_input = power / divisor;
    }
    for (int64_t n = 0; n < linear->output_size; ++n) {
        ((float *)made[1]->data)[n] = factor_of(linear, stored[1]->data, n) * of_input;
    }
    return BERTH_OK;
}

// x rounded to what its codes are, but for a factor.
static berth_value numbers_of(berth_builder *builder, const berth_linear *linear,
                              const berth_value *weights, berth_value x) {
    berth_value q[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    (void)BERTH_EMIT(builder, "quant_nvfp4", .prefix = linear->prefix,
                     BERTH_INPUTS(x, weights[INPUT_GLOBAL], weights[INPUT_POWER]),
                     BERTH_OUTPUTS(q));
    return BERTH_EMIT(builder, "dequantize", .prefix = linear->prefix, BERTH_INPUTS(q[0], q[1]),
                      BERTH_ATTRIBUTES(BERTH_TEXT("dtype", builder->activation_dtype)));
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    static const int64_t groups[] = {1, GROUP};
    const berth_value numbers =
        is_weight_only(linear) ? x : numbers_of(builder, linear, weights, x);
    return BERTH_EMIT(
        builder, "packed_linear", .prefix = linear->prefix,
        BERTH_INPUTS(numbers, weights[WEIGHT], weights[SCALE], BERTH_VALUE_NONE, BERTH_VALUE_NONE,
                     weights[BIAS], weights[FACTOR]),
        BERTH_ATTRIBUTES(BERTH_TEXT("code", "e2m1"), BERTH_I64S("group_shape", groups, 2)));
}

static berth_quant_stack stack_of(const berth_value *weights) {
    return (berth_quant_stack){
        .input_scale = weights[INPUT_GLOBAL],
        .weight = weights[WEIGHT],
        .scale = weights[SCALE],
        .bias = weights[BIAS],
    };
}

static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    const berth_quant_stack stacks[] = {stack_of(w13), stack_of(w2)};
    const berth_quant_codes codes = {
        .code = "e2m1",
        .input = is_weight_only(experts->w13) ? "float" : "group",
        .group_shape = {1, GROUP},
        .has_global_scales = !is_weight_only(experts->w13),
    };
    return berth_quant_experts(builder, experts, stacks, codes);
}

const berth_quant_method berth_form_nvfp4 = {
    .size = sizeof(berth_quant_method),
    .name = "nvfp4",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
    .apply_experts = apply_experts,
};
