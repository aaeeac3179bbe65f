// SPDX-License-Identifier: Apache-2.0
// MambaMixer2: Mamba-2's block: one projection gives gate, scanned channels, selectors and time
// steps; a convolution, SSD, a gated norm and a projection back.
// Input hidden states [tokens, hidden_size], and optionally mup_vector [rows of in_proj], by which
// what in_proj gives is multiplied; output like the hidden states.
// Attributes: hidden_size, ssm_state_size, conv_kernel_size, intermediate_size (num_heads ·
// head_dim), n_groups (1), num_heads (128), head_dim (64), use_conv_bias (1), use_bias (0),
// use_rms_norm (1), norm_before_gate (0), rms_norm_eps (1e-5), activation ("silu"), chunk_size
// (256), ssm_state_dtype ("f32"), multipliers (none: of what in_proj gives for z, x, B, C and dt),
// dt_limit (none: two numbers, between which time steps lie), tp_size (1), tp_rank (0). One group
// belongs to every rank, several are divided. Parameters: in_proj (shards "z", "x", "B", "C", "dt",
// or one tensor of all), conv1d (shards "x", "B", "C", or one), A float32 (−exp of the checkpoint's
// A_log), D, dt_bias, norm, out_proj. States per sequence: PREFIX.conv1d [conv_kernel_size − 1,
// channels], or one for each of x, B and C where these have different multipliers; PREFIX [heads,
// head_dim, ssm_state_size].
#include "linear/mixer.h"

enum { GATE, INNER, B, C, STEPS, PARTS };

typedef struct sizes {
    int64_t hidden;
    int64_t inner;
    int64_t groups;
    int64_t state;
    int64_t heads;
    int64_t head_dim;
    int64_t width;
    berth_part parts[PARTS]; // of the rows of in_proj, each in its own tensor
    int64_t wholes[PARTS];
    int64_t own_heads;
    int64_t own_groups;
    int64_t channels; // of this rank's convolution
} sizes;

static void divide(const berth_mixer *mixer, sizes *size) {
    berth_builder *builder = mixer->builder;
    const int64_t selectors = size->groups * size->state;
    const int64_t wholes[PARTS] = {size->inner, size->inner, selectors, selectors, size->heads};
    const berth_world world = mixer->world;
    const berth_world groups = size->groups == 1 ? (berth_world){.size = 1} : world;
    size->own_groups =
        berth_world_part(builder, mixer->call, groups, "n_groups", size->groups).extent;
    size->own_heads =
        berth_world_part(builder, mixer->call, world, "num_heads", size->heads).extent;
    for (int i = 0; i < PARTS; ++i) {
        size->wholes[i] = wholes[i];
        size->parts[i] = berth_world_part(builder, mixer->call, i == B || i == C ? groups : world,
                                          "intermediate_size", wholes[i]);
    }
    size->channels = size->parts[INNER].extent + 2 * size->parts[B].extent;
}

static sizes read_sizes(const berth_mixer *mixer) {
    const berth_call *call = mixer->call;
    sizes out = {
        .hidden = berth_call_i64(call, "hidden_size", 0),
        .inner = berth_call_i64(call, "intermediate_size", 0),
        .groups = berth_call_i64(call, "n_groups", 1),
        .state = berth_call_i64(call, "ssm_state_size", 0),
        .heads = berth_call_i64(call, "num_heads", 128),
        .head_dim = berth_call_i64(call, "head_dim", 64),
        .width = berth_call_i64(call, "conv_kernel_size", 0),
    };
    if (out.inner != out.heads * out.head_dim) {
        berth_build_fail(mixer->builder, BERTH_INVALID_ARGUMENT,
                         "'%s': intermediate_size %lld is not num_heads %lld · head_dim %lld",
                         call->prefix, (long long)out.inner, (long long)out.heads,
                         (long long)out.head_dim);
    }
    divide(mixer, &out);
    return out;
}

static double multiplier(const berth_mixer *mixer, int part) {
    const berth_call *call = mixer->call;
    const berth_attribute *all =
        berth_attribute_find(call->attributes, call->attribute_count, "multipliers");
    return all && all->count == PARTS ? all->f64s[part] : 1;
}

static berth_value multiply(const berth_mixer *mixer, int part, berth_value x) {
    const double scale = multiplier(mixer, part);
    return scale == 1 ? x
                      : BERTH_EMIT(mixer->builder, "scale_logits", .prefix = mixer->call->prefix,
                                   BERTH_INPUTS(x), BERTH_ATTRIBUTES(BERTH_F64("scale", scale)));
}

// The parts [first, end) as shards of one weight.
static int64_t make_shards(const sizes *size, int first, int end, berth_shard *out,
                           const berth_shard **list) {
    static const char *const ids[PARTS] = {"z", "x", "B", "C", "dt"};
    int64_t offset = 0;
    for (int i = first; i < end; ++i) {
        out[i - first] = berth_shard_part(ids[i], offset, size->parts[i], size->wholes[i]);
        list[i - first] = &out[i - first];
        offset += size->parts[i].extent;
    }
    return offset;
}

static void project(const berth_mixer *mixer, const sizes *size, berth_value out[PARTS]) {
    berth_shard shards[PARTS];
    const berth_shard *list[PARTS];
    const berth_linear linear = {
        .size = sizeof(berth_linear),
        .prefix = berth_mixer_name(mixer, "in_proj"),
        .input_size = size->hidden,
        .output_size = make_shards(size, GATE, PARTS, shards, list),
        .shards = list,
        .shard_count = PARTS,
        .has_bias = berth_call_i64(mixer->call, "use_bias", 0) != 0,
        .layer_class = "MergedColumnParallelLinear",
    };
    const berth_value *inputs = mixer->call->inputs;
    berth_value all = mixer->builder->linear(mixer->builder, &linear, inputs[0]);
    if (mixer->call->input_count > 1 && inputs[1] != BERTH_VALUE_NONE) {
        all = BERTH_EMIT(mixer->builder, "scale_columns", .prefix = mixer->call->prefix,
                         BERTH_INPUTS(all, inputs[1]));
    }
    // What the convolution takes stands together.
    out[GATE] = multiply(mixer, GATE, berth_mixer_columns(mixer, all, 0, size->parts[GATE].extent));
    out[INNER] = berth_mixer_columns(mixer, all, shards[INNER].offset, size->channels);
    out[STEPS] = multiply(mixer, STEPS,
                          berth_mixer_columns(mixer, all, shards[STEPS].offset, size->own_heads));
}

static berth_value conv_weight(const berth_mixer *mixer, const sizes *size, int is_bias) {
    berth_shard shards[PARTS];
    const berth_shard *list[PARTS];
    const int64_t shape[] = {size->channels, 1, size->width};
    (void)make_shards(size, INNER, STEPS, shards, list);
    const berth_parameter parameter = {
        .size = sizeof(berth_parameter),
        .name = berth_mixer_name(mixer, is_bias ? "conv1d.bias" : "conv1d.weight"),
        .shape = shape,
        .ndim = is_bias ? 1 : 3,
        .is_vector = is_bias ? 1 : 0,
        .output_dim = 0,
        .input_dim = -1,
        .shards = list,
        .shard_count = STEPS - INNER,
    };
    return mixer->builder->parameter(mixer->builder, &parameter);
}

// All channels at once; out[INNER] to out[C] are their parts, [tokens, channels].
static void convolve_all(const berth_mixer *mixer, const sizes *size, berth_mixer_conv conv,
                         berth_value x, berth_value out[PARTS]) {
    conv.name = "conv1d";
    conv.channels = size->channels;
    const berth_value all = berth_mixer_convolve(mixer, conv, multiply(mixer, INNER, x));
    int64_t offset = 0;
    for (int i = INNER; i < STEPS; ++i) {
        out[i] = berth_mixer_columns(mixer, all, offset, size->parts[i].extent);
        offset += size->parts[i].extent;
    }
}

// The same part by part: each has a multiplier of its own, and no op joins columns.
static void convolve_parts(const berth_mixer *mixer, const sizes *size, berth_mixer_conv conv,
                           berth_value x, berth_value out[PARTS]) {
    static const char *const names[PARTS] = {"", "conv1d.x", "conv1d.B", "conv1d.C", ""};
    berth_builder *builder = mixer->builder;
    int64_t offset = 0;
    for (int i = INNER; i < STEPS; ++i) {
        const int64_t extent = size->parts[i].extent;
        berth_mixer_conv own = conv;
        own.name = names[i];
        own.channels = extent;
        own.weight = builder->slice(builder, conv.weight, 0, offset, extent);
        own.bias = conv.bias ? builder->slice(builder, conv.bias, 0, offset, extent) : conv.bias;
        out[i] = berth_mixer_convolve(
            mixer, own, multiply(mixer, i, berth_mixer_columns(mixer, x, offset, extent)));
        offset += extent;
    }
}

// The channels of x, B and C after the convolution, each [tokens, heads or groups, width].
static void convolve(const berth_mixer *mixer, const sizes *size, berth_value x,
                     berth_value out[PARTS]) {
    const int has_bias = berth_call_i64(mixer->call, "use_conv_bias", 1) != 0;
    const int is_even = multiplier(mixer, INNER) == multiplier(mixer, B) &&
                        multiplier(mixer, B) == multiplier(mixer, C);
    const berth_mixer_conv conv = {
        .weight = conv_weight(mixer, size, 0),
        .bias = has_bias ? conv_weight(mixer, size, 1) : BERTH_VALUE_NONE,
        .width = size->width,
        .activation = berth_call_str(mixer->call, "activation", "silu"),
    };
    (is_even ? convolve_all : convolve_parts)(mixer, size, conv, x, out);
    for (int i = INNER; i < STEPS; ++i) {
        const int64_t rows = i == INNER ? size->own_heads : size->own_groups;
        out[i] =
            berth_mixer_split(mixer, out[i], rows, rows > 0 ? size->parts[i].extent / rows : 0);
    }
}

static berth_value scan(const berth_mixer *mixer, const sizes *size, const berth_value x[PARTS]) {
    berth_builder *builder = mixer->builder;
    const int64_t shape[] = {size->own_heads, size->head_dim, size->state};
    const berth_layer_state state = {
        .size = sizeof(berth_layer_state),
        .layer = mixer->call->prefix,
        .dtype = berth_call_str(mixer->call, "ssm_state_dtype", "f32"),
        .shape = shape,
        .ndim = 3,
    };
    const berth_mixer_weight decay = {"A", {size->heads}, 1, 0, 0};
    const berth_mixer_weight skip = {"D", {size->heads}, 1, 1, 0};
    const berth_mixer_weight bias = {"dt_bias", {size->heads}, 1, 1, 0};
    builder->state(builder, &state);
    const berth_attribute *limit =
        berth_attribute_find(mixer->call->attributes, mixer->call->attribute_count, "dt_limit");
    const berth_attribute *const attributes[] = {
        BERTH_BOOL("dt_softplus", 1),
        BERTH_I64("chunk_size", berth_call_i64(mixer->call, "chunk_size", 256)),
        limit,
    };
    return BERTH_EMIT(
        builder, "ssd", .prefix = state.layer,
        BERTH_INPUTS(x[INNER], x[STEPS], berth_mixer_parameter(mixer, decay), x[B], x[C],
                     berth_mixer_parameter(mixer, skip), berth_mixer_parameter(mixer, bias)),
        .attributes = attributes, .attribute_count = limit && limit->count > 0 ? 3 : 2);
}

// The norm without the gate, and then the gate. Each rank must have whole groups.
static berth_value gate_normed(const berth_mixer *mixer, const sizes *size, berth_value y,
                               berth_value gate) {
    const berth_mixer_weight weight = {"norm.weight", {size->inner}, 1, 1, 0};
    if (mixer->world.size > 1 && size->groups == 1) {
        berth_build_fail(mixer->builder, BERTH_UNSUPPORTED,
                         "'%s': norm_before_gate with one group for several ranks",
                         mixer->call->prefix);
    }
    return BERTH_EMIT(
        mixer->builder, "rms_norm_gated", .prefix = berth_mixer_name(mixer, "norm"),
        BERTH_INPUTS(y, berth_mixer_parameter(mixer, weight), gate),
        BERTH_ATTRIBUTES(BERTH_F64("eps", berth_call_f64(mixer->call, "rms_norm_eps", 1e-5)),
                         BERTH_I64("group_size", size->inner / size->groups),
                         BERTH_BOOL("norm_before_gate", 1)));
}

static berth_value norm(const berth_mixer *mixer, const sizes *size, berth_value y,
                        berth_value gate) {
    const int has_norm = berth_call_i64(mixer->call, "use_rms_norm", 1) != 0;
    const berth_mixer_weight weight = {"norm.weight", {size->inner}, 1, 1, 0};
    if (has_norm && berth_call_i64(mixer->call, "norm_before_gate", 0)) {
        return gate_normed(mixer, size, y, gate);
    }
    return BERTH_EMIT(
        mixer->builder, "mixer2_gated_rms_norm", .prefix = berth_mixer_name(mixer, "norm"),
        BERTH_INPUTS(y, gate, has_norm ? berth_mixer_parameter(mixer, weight) : BERTH_VALUE_NONE),
        BERTH_ATTRIBUTES(
            BERTH_I64("full_hidden_size", size->inner), BERTH_I64("full_n_groups", size->groups),
            BERTH_BOOL("use_rms_norm", has_norm),
            BERTH_F64("eps", berth_call_f64(mixer->call, "rms_norm_eps", 1e-5)),
            BERTH_I64("tp_size", mixer->world.size), BERTH_I64("tp_rank", mixer->world.rank)));
}

static void build(berth_builder *builder, const berth_call *call) {
    const berth_mixer mixer = berth_mixer_of(builder, call);
    const sizes size = read_sizes(&mixer);
    berth_value parts[PARTS];
    project(&mixer, &size, parts);
    convolve(&mixer, &size, parts[INNER], parts);
    const berth_value y = berth_mixer_join(&mixer, scan(&mixer, &size, parts));
    const berth_mixer_linear linear = {
        .layer_class = "RowParallelLinear",
        .name = "out_proj",
        .input_size = size.inner,
        .output_size = size.hidden,
        .has_bias = berth_call_i64(call, "use_bias", 0) != 0,
    };
    call->outputs[0] = berth_mixer_project(&mixer, linear, norm(&mixer, &size, y, parts[GATE]));
}

const berth_layer berth_layer_mamba_mixer2 = {
    .size = sizeof(berth_layer),
    .name = "MambaMixer2",
    .build = build,
};
