// SPDX-License-Identifier: Apache-2.0
// Input: a layer of e2m1 codes, two to a byte, with e4m3 scales of 16 inputs and one global scale,
// a divisor. Output: its parameters and nodes. Twice a number of e2m1 is whole, so what is
// multiplied are numbers of 8 bits.
#include "forms.h"

enum { WEIGHT, SCALE, INPUT_GLOBAL, BIAS };

#define GROUP 16

static void declare(berth_builder *builder, const berth_linear *linear, const char *leaf,
                    const char *dtype, int64_t factor) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter parameter = berth_quant_parameter(builder, linear, leaf, shape);
    parameter.role = BERTH_PARAMETER_STORED;
    parameter.dtype = dtype;
    parameter.input_factor = factor;
    parameter.is_per_tensor = factor == 0;
    parameter.is_scale = factor != 2;
    (void)builder->parameter(builder, &parameter);
}

static int is_weight_only(const berth_linear *linear) {
    return linear->quant->notes[BERTH_NVFP4_IS_WEIGHT_ONLY] != 0;
}

static void create_weights(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights) {
    const int64_t scales[] = {linear->output_size, linear->input_size / GROUP};
    const int64_t half[] = {linear->output_size, linear->input_size / 2};
    const int64_t codes[] = {linear->output_size, linear->input_size};
    if (berth_form_group(builder, linear, GROUP) != GROUP) {
        return;
    }
    declare(builder, linear, "weight_packed", "u8", 2);
    declare(builder, linear, "weight_scale", "f8_e4m3fn", GROUP);
    declare(builder, linear, "weight_global_scale", "f32", 0);
    weights[SCALE] = berth_quant_made(builder, linear, "weight_scale_of_groups", "f32", scales);
    if (is_weight_only(linear)) {
        weights[WEIGHT] = berth_quant_made(builder, linear, "codes", "u8", half);
    } else {
        weights[WEIGHT] = berth_quant_made(builder, linear, "codes", "i8", codes);
        declare(builder, linear, "input_global_scale", "f32", 0);
        weights[INPUT_GLOBAL] =
            berth_quant_made_vector(builder, linear, "input_global_scale_of_all", "f32", 1);
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

static berth_status process(const berth_host *host, const berth_linear *linear,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    const uint8_t *packed = stored[0]->data;
    const uint8_t *local = stored[1]->data;
    float *scales = made[0]->data;
    const int64_t width = linear->input_size;
    const float unit = is_weight_only(linear) ? 1.0f : 0.5f; // of a code
    for (int64_t i = 0; i < linear->output_size * (width / GROUP); ++i) {
        scales[i] = unit * berth_from_f8(local[i]) /
                    global_of(linear, stored[2]->data, i / (width / GROUP));
        if (!(scales[i] >= 0)) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT, "'weight_scale': number %lld is no scale",
                                     (long long)i);
        }
    }
    if (is_weight_only(linear)) {
        memcpy(made[1]->data, packed, (size_t)(linear->output_size * width / 2));
        return BERTH_OK;
    }
    for (int64_t i = 0; i < linear->output_size * width; ++i) {
        ((int8_t *)made[1]->data)[i] = (int8_t)berth_e2m1_twice(packed[i / 2] >> (i % 2 * 4) & 15);
    }
    // A larger divisor gives finer steps: with the smallest every shard's range is held.
    const float *globals = stored[3]->data;
    float smallest = globals[0];
    for (int64_t i = 1; i < stored[3]->shape[0]; ++i) {
        smallest = globals[i] < smallest ? globals[i] : smallest;
    }
    *(float *)made[2]->data = smallest;
    return BERTH_OK;
}

static berth_value apply(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x) {
    static const int64_t groups[] = {1, GROUP};
    berth_value q[2] = {BERTH_VALUE_NONE, BERTH_VALUE_NONE};
    if (is_weight_only(linear)) {
        return BERTH_EMIT(
            builder, "packed_linear", .prefix = linear->prefix,
            BERTH_INPUTS(x, weights[WEIGHT], weights[SCALE], BERTH_VALUE_NONE, BERTH_VALUE_NONE,
                         weights[BIAS]),
            BERTH_ATTRIBUTES(BERTH_TEXT("code", "e2m1"), BERTH_I64S("group_shape", groups, 2)));
    }
    (void)BERTH_EMIT(builder, "quant_nvfp4", .prefix = linear->prefix,
                     BERTH_INPUTS(x, weights[INPUT_GLOBAL]), BERTH_OUTPUTS(q));
    return BERTH_EMIT(
        builder, "scaled_linear", .prefix = linear->prefix,
        BERTH_INPUTS(q[0], q[1], weights[WEIGHT], weights[SCALE], BERTH_VALUE_NONE, weights[BIAS]),
        BERTH_ATTRIBUTES(BERTH_I64S("group_shape", groups, 2),
                         BERTH_TEXT("dtype", builder->activation_dtype)));
}

const berth_quant_method berth_form_nvfp4 = {
    .size = sizeof(berth_quant_method),
    .name = "nvfp4",
    .create_weights = create_weights,
    .apply = apply,
    .process_weights_after_loading = process,
};
