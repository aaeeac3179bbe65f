// SPDX-License-Identifier: Apache-2.0
// Input: a layer of signed numbers of 4 bits, of which a byte has those of two neighbouring outputs
// (ModelSlim W4A8), with one or two levels of scales. Output: its parameters and nodes; inputs are
// i8 by token, but for a linear layer with two levels floats. What only splits inputs into halves
// (`scale_bias`) is left.
#include "forms.h"

enum { WEIGHT, SCALE, BIAS };

// A linear layer with one level of scales multiplies numbers of 8 bits, as scaled_linear has them.
static int is_scaled(const berth_linear *linear) {
    return linear->stack_size == 0 && linear->quant->notes[BERTH_NIBBLES_GROUP] < 1;
}

static berth_value declare(berth_builder *builder, const berth_linear *linear, const char *leaf,
                           int64_t group) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter scale = berth_quant_parameter(builder, linear, leaf, shape);
    scale.role = BERTH_PARAMETER_STORED;
    scale.dtype = "f32";
    scale.is_scale = 1;
    if (group > 0) {
        scale.input_factor = group;
    } else {
        berth_quant_one_column(&scale, shape);
    }
    return builder->parameter(builder, &scale);
}

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    static const char *const left[] = {".weight_offset", ".weight_offset_second", ".scale_bias"};
    const int64_t noted = linear->quant->notes[BERTH_NIBBLES_GROUP];
    const int64_t group = berth_form_group(builder, linear, noted == 0 ? -1 : noted);
    const int64_t width = is_scaled(linear) ? linear->input_size : linear->input_size / 2;
    const int64_t codes[] = {linear->output_size, width};
    const int64_t scales[] = {linear->output_size, linear->input_size / group};
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter bytes = berth_quant_parameter(builder, linear, "weight", shape);
    bytes.role = BERTH_PARAMETER_STORED;
    bytes.dtype = "i8";
    bytes.output_factor = 2;
    (void)builder->parameter(builder, &bytes);
    (void)declare(builder, linear, "weight_scale", 0);
    if (noted > 0) {
        (void)declare(builder, linear, "weight_scale_second", group);
    }
    for (size_t i = 0; i < sizeof left / sizeof left[0]; ++i) {
        builder->ignore(builder, left[i]);
    }
    weights[WEIGHT] =
        berth_quant_made(builder, linear, "codes", is_scaled(linear) ? "i8" : "u8", codes);
    weights[SCALE] = berth_quant_made(builder, linear, "weight_scale_of_groups", "f32", scales);
    weights[BIAS] = berth_quant_bias(builder, linear);
}

static void put(const berth_linear *linear, void *codes, int64_t at, unsigned code) {
    if (is_scaled(linear)) {
        ((int8_t *)codes)[at] = (int8_t)((int)code - 8);
    } else {
        uint8_t *byte = (uint8_t *)codes + at / 2;
        *byte = (uint8_t)(*byte | code << (at % 2 * 4));
    }
}

static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    (void)host;
    const int64_t width = linear->input_size;
    const int64_t groups = berth_row_length(made[1]);
    const float *first = stored[1]->data;
    for (int64_t n = 0; n < berth_quant_rows(linear); ++n) {
        const uint8_t *from = (const uint8_t *)stored[0]->data + n / 2 * width;
        for (int64_t k = 0; k < width; ++k) { // two's complement plus 8 is the code
            const unsigned code = ((unsigned)from[k] >> (n % 2 * 4) & 15u) ^ 8u;
            put(linear, made[0]->data, n * width + k, code);
        }
        for (int64_t group = 0; group < groups; ++group) {
            const float second =
                stored[2] ? ((const float *)stored[2]->data)[n * groups + group] : 1.0f;
            ((float *)made[1]->data)[n * groups + group] = first[n] * second;
        }
    }
    return BERTH_OK;
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    const int64_t group = linear->quant->notes[BERTH_NIBBLES_GROUP];
    const int64_t groups[] = {1, group > 0 ? group : -1};
    if (is_scaled(linear)) {
        berth_value q[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
        (void)BERTH_EMIT(builder, "quant_int8", .prefix = linear->prefix, BERTH_INPUTS(x),
                         BERTH_OUTPUTS(q));
        return BERTH_EMIT(builder, "scaled_linear", .prefix = linear->prefix,
                          BERTH_INPUTS(q[0], q[1], weights[WEIGHT], weights[SCALE],
                                       BERTH_VALUE_NONE, weights[BIAS]),
                          BERTH_ATTRIBUTES(BERTH_I64S("group_shape", groups, 2),
                                           BERTH_TEXT("dtype", builder->activation_dtype)));
    }
    return BERTH_EMIT(
        builder, "packed_linear", .prefix = linear->prefix,
        BERTH_INPUTS(x, weights[WEIGHT], weights[SCALE], BERTH_VALUE_NONE, BERTH_VALUE_NONE,
                     weights[BIAS]),
        BERTH_ATTRIBUTES(BERTH_TEXT("code", "u4"), BERTH_I64S("group_shape", groups, 2)));
}

static berth_value apply_experts(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2) {
    const int64_t group = experts->w13->quant->notes[BERTH_NIBBLES_GROUP];
    const berth_quant_stack stacks[] = {
        {.weight = w13[WEIGHT], .scale = w13[SCALE], .bias = w13[BIAS]},
        {.weight = w2[WEIGHT],  .scale = w2[SCALE],  .bias = w2[BIAS] },
    };
    return berth_quant_experts(builder, experts, stacks,
                               (berth_quant_codes){
                                   .code = "u4",
                                   .input = "token",
                                   .group_shape = {1, group > 0 ? group : -1},
    });
}

const berth_quant_method berth_form_nibbles = {
    .size = sizeof(berth_quant_method),
    .name = "4 bits of two outputs in a byte",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
    .apply_experts = apply_experts,
};
