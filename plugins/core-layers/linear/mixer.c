// SPDX-License-Identifier: Apache-2.0
// Input: pieces of a mixer. Output: the nodes and parameters that they are.
#include "mixer.h"

berth_mixer berth_mixer_of(berth_builder *builder, const berth_call *call) {
    return (berth_mixer){
        .builder = builder,
        .call = call,
        .world = berth_world_of(builder, call),
    };
}

const char *berth_mixer_name(const berth_mixer *mixer, const char *name) {
    return berth_build_name(mixer->builder, "%s.%s", mixer->call->prefix, name);
}

berth_value berth_mixer_parameter(const berth_mixer *mixer, berth_mixer_weight weight) {
    const berth_world world = weight.is_whole ? (berth_world){.size = 1} : mixer->world;
    const int64_t whole = weight.shape[0];
    const berth_part part =
        berth_world_part(mixer->builder, mixer->call, world, weight.name, whole);
    weight.shape[0] = part.extent;
    const berth_parameter parameter = {
        .size = sizeof(berth_parameter),
        .name = berth_mixer_name(mixer, weight.name),
        .shape = weight.shape,
        .ndim = weight.ndim,
        .is_vector = weight.is_vector != 0,
        .output_dim = 0,
        .input_dim = -1,
        .stored_output_offset = part.offset,
        .stored_output_extent = part.extent < whole ? whole : 0,
    };
    return mixer->builder->parameter(mixer->builder, &parameter);
}

berth_value berth_mixer_project(const berth_mixer *mixer, berth_mixer_linear linear,
                                berth_value x) {
    return BERTH_LAYER(mixer->builder, linear.layer_class,
                       .prefix = berth_mixer_name(mixer, linear.name), BERTH_INPUTS(x),
                       BERTH_ATTRIBUTES(BERTH_I64("input_size", linear.input_size),
                                        BERTH_I64("output_size", linear.output_size),
                                        BERTH_BOOL("bias", linear.has_bias),
                                        BERTH_I64("tp_size", mixer->world.size),
                                        BERTH_I64("tp_rank", mixer->world.rank)));
}

berth_value berth_mixer_columns(const berth_mixer *mixer, berth_value x, int64_t offset,
                                int64_t extent) {
    return mixer->builder->slice(mixer->builder, x, 1, offset, extent);
}

berth_value berth_mixer_split(const berth_mixer *mixer, berth_value x, int64_t a, int64_t b) {
    const berth_dim dims[] = {
        mixer->builder->type(mixer->builder, x)->dims[0],
        BERTH_DIM_CONST(a),
        BERTH_DIM_CONST(b),
    };
    return mixer->builder->reshape(mixer->builder, x, dims, 3);
}

berth_value berth_mixer_join(const berth_mixer *mixer, berth_value x) {
    const berth_value_type *type = mixer->builder->type(mixer->builder, x);
    const berth_dim dims[] = {
        type->dims[0],
        BERTH_DIM_CONST(type->dims[1].b * type->dims[2].b),
    };
    return mixer->builder->reshape(mixer->builder, x, dims, 2);
}

berth_value berth_mixer_norm(const berth_mixer *mixer, const char *name, berth_value x,
                             int has_weight) {
    berth_builder *builder = mixer->builder;
    const berth_value_type *type = builder->type(builder, x);
    const char *own = berth_mixer_name(mixer, name);
    const berth_value weight =
        has_weight ? berth_build_vector(builder, berth_build_name(builder, "%s.weight", own),
                                        type->dims[1].b)
                   : BERTH_VALUE_NONE;
    return BERTH_EMIT(
        builder, "rms_norm", .prefix = own, BERTH_INPUTS(x, BERTH_VALUE_NONE, weight),
        BERTH_ATTRIBUTES(BERTH_F64("eps", berth_call_f64(mixer->call, "rms_norm_eps", 1e-5))));
}

berth_value berth_mixer_convolve(const berth_mixer *mixer, berth_mixer_conv conv, berth_value x) {
    berth_builder *builder = mixer->builder;
    const int64_t shape[] = {conv.width - 1, conv.channels};
    const berth_layer_state state = {
        .size = sizeof(berth_layer_state),
        .layer = berth_mixer_name(mixer, conv.name),
        .dtype = builder->activation_dtype,
        .shape = shape,
        .ndim = 2,
    };
    builder->state(builder, &state);
    return BERTH_EMIT(builder, "causal_conv1d", .prefix = state.layer,
                      BERTH_INPUTS(x, conv.weight, conv.bias),
                      BERTH_ATTRIBUTES(BERTH_TEXT("activation", conv.activation),
                                       BERTH_BOOL("channels_last", 1)));
}
