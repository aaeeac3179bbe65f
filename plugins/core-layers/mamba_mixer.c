// SPDX-License-Identifier: Apache-2.0
// MambaMixer: Mamba's block. Half of the projected input goes through a convolution and a selective
// scan, the other half gates what comes out.
// Input hidden states [tokens, hidden_size]; output like it.
// Attributes: hidden_size, ssm_state_size, conv_kernel_size, intermediate_size, time_step_rank,
// use_conv_bias (1), use_bias (0), use_rms_norm (0), rms_norm_has_weight (1), rms_norm_eps (1e-5),
// activation ("silu"), ssm_state_dtype ("f32"), tp_size (1), tp_rank (0).
// Parameters: in_proj (shards "0": what is scanned, "1": the gate), conv1d, x_proj, dt_proj with a
// bias, A float32 (−exp of the checkpoint's A_log), D, out_proj; with use_rms_norm dt_layernorm,
// b_layernorm, c_layernorm.
// States per sequence: PREFIX.conv1d [conv_kernel_size − 1, channels], PREFIX [channels,
// ssm_state_size]. One scan serves new and continued sequences, so there is no decode form.
#include "linear/mixer.h"

typedef struct sizes {
    int64_t hidden;
    int64_t inner; // of the whole model
    int64_t own;   // of this rank
    int64_t state;
    int64_t rank; // of the time step
    int64_t width;
} sizes;

static sizes read_sizes(const berth_mixer *mixer) {
    const berth_call *call = mixer->call;
    sizes out = {
        .hidden = berth_call_i64(call, "hidden_size", 0),
        .inner = berth_call_i64(call, "intermediate_size", 0),
        .state = berth_call_i64(call, "ssm_state_size", 0),
        .rank = berth_call_i64(call, "time_step_rank", 0),
        .width = berth_call_i64(call, "conv_kernel_size", 0),
    };
    out.own =
        berth_world_part(mixer->builder, call, mixer->world, "intermediate_size", out.inner).extent;
    return out;
}

// The channels to scan and their gate, both [tokens, own].
static void project(const berth_mixer *mixer, const sizes *size, berth_value out[2]) {
    const int64_t both[] = {size->inner, size->inner};
    const berth_value x = BERTH_LAYER(
        mixer->builder, "MergedColumnParallelLinear", .prefix = berth_mixer_name(mixer, "in_proj"),
        BERTH_INPUTS(mixer->call->inputs[0]),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", size->hidden), BERTH_I64S("output_sizes", both, 2),
                         BERTH_BOOL("bias", berth_call_i64(mixer->call, "use_bias", 0)),
                         BERTH_I64("tp_size", mixer->world.size),
                         BERTH_I64("tp_rank", mixer->world.rank)));
    out[0] = berth_mixer_columns(mixer, x, 0, size->own);
    out[1] = berth_mixer_columns(mixer, x, size->own, size->own);
}

static berth_value convolve(const berth_mixer *mixer, const sizes *size, berth_value x) {
    const int has_bias = berth_call_i64(mixer->call, "use_conv_bias", 1) != 0;
    const berth_mixer_weight weight = {
        "conv1d.weight", {size->inner, 1, size->width},
         3, 0, 0
    };
    const berth_mixer_weight bias = {"conv1d.bias", {size->inner}, 1, 1, 0};
    const berth_mixer_conv conv = {
        .name = "conv1d",
        .weight = berth_mixer_parameter(mixer, weight),
        .bias = has_bias ? berth_mixer_parameter(mixer, bias) : BERTH_VALUE_NONE,
        .channels = size->own,
        .width = size->width,
        .activation = berth_call_str(mixer->call, "activation", "silu"),
    };
    return berth_mixer_convolve(mixer, conv, x);
}

// Time step, input and output of every token, from what the convolution gave.
static void select(const berth_mixer *mixer, const sizes *size, berth_value x, berth_value out[3]) {
    static const char *const norms[] = {"dt_layernorm", "b_layernorm", "c_layernorm"};
    const int64_t extents[] = {size->rank, size->state, size->state};
    const berth_mixer_linear linear = {
        .layer_class = "RowParallelLinear",
        .name = "x_proj",
        .input_size = size->inner,
        .output_size = size->rank + 2 * size->state,
    };
    const berth_value all = berth_mixer_project(mixer, linear, x);
    int64_t offset = 0;
    for (int i = 0; i < 3; ++i) {
        out[i] = berth_mixer_columns(mixer, all, offset, extents[i]);
        offset += extents[i];
        if (berth_call_i64(mixer->call, "use_rms_norm", 0)) {
            out[i] = berth_mixer_norm(mixer, norms[i], out[i],
                                      berth_call_i64(mixer->call, "rms_norm_has_weight", 1) != 0);
        }
    }
    const berth_mixer_linear steps = {
        .layer_class = "ColumnParallelLinear",
        .name = "dt_proj",
        .input_size = size->rank,
        .output_size = size->inner,
    };
    out[0] = berth_mixer_project(mixer, steps, out[0]);
}

static berth_value scan(const berth_mixer *mixer, const sizes *size, berth_value x,
                        berth_value gate) {
    berth_builder *builder = mixer->builder;
    const int64_t shape[] = {size->own, size->state};
    const berth_layer_state state = {
        .size = sizeof(berth_layer_state),
        .layer = mixer->call->prefix,
        .dtype = berth_call_str(mixer->call, "ssm_state_dtype", "f32"),
        .shape = shape,
        .ndim = 2,
    };
    const berth_mixer_weight decay = {
        "A", {size->inner, size->state},
         2, 0, 0
    };
    const berth_mixer_weight skip = {"D", {size->inner}, 1, 1, 0};
    const berth_mixer_weight bias = {"dt_proj.bias", {size->inner}, 1, 1, 0};
    berth_value selected[3];
    select(mixer, size, x, selected);
    builder->state(builder, &state);
    return BERTH_EMIT(
        builder, "selective_scan", .prefix = state.layer,
        BERTH_INPUTS(x, selected[0], berth_mixer_parameter(mixer, decay), selected[1], selected[2],
                     berth_mixer_parameter(mixer, skip), gate, berth_mixer_parameter(mixer, bias)),
        BERTH_ATTRIBUTES(BERTH_BOOL("delta_softplus", 1), BERTH_BOOL("channels_last", 1)));
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_mixer mixer = berth_mixer_of(builder, call);
    const sizes size = read_sizes(&mixer);
    berth_value halves[2];
    project(&mixer, &size, halves);
    const berth_value x = convolve(&mixer, &size, halves[0]);
    const berth_mixer_linear linear = {
        .layer_class = "RowParallelLinear",
        .name = "out_proj",
        .input_size = size.inner,
        .output_size = size.hidden,
        .has_bias = berth_call_i64(call, "use_bias", 0) != 0,
    };
    call->outputs[0] = berth_mixer_project(&mixer, linear, scan(&mixer, &size, x, halves[1]));
}

const berth_layer berth_layer_mamba_mixer = {
    .size = sizeof(berth_layer),
    .name = "MambaMixer",
    .build = build,
};
