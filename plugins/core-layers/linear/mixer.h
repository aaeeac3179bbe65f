// SPDX-License-Identifier: Apache-2.0
// What layers share that own more than one weight: mixers, attention over latents, short
// convolutions. Private to core-layers.
#ifndef BERTH_MIXER_H
#define BERTH_MIXER_H

#include "linear.h"

typedef struct berth_mixer {
    berth_builder *builder;
    const berth_call *call;
    berth_world world;
} berth_mixer;

berth_mixer berth_mixer_of(berth_builder *builder, const berth_call *call);
// "PREFIX.NAME", as long as the build.
const char *berth_mixer_name(const berth_mixer *mixer, const char *name);

// A weight of a mixer: PREFIX.NAME [shape], of which a rank has its equal part of the first
// dimension. A vector is converted to the type of activations, anything else stays as it is stored.
typedef struct berth_mixer_weight {
    const char *name;
    int64_t shape[3];
    uint64_t ndim;
    int is_vector;
    int is_whole; // every rank has all of it
} berth_mixer_weight;
berth_value berth_mixer_parameter(const berth_mixer *mixer, berth_mixer_weight weight);

// A linear layer inside a mixer: the layer class, PREFIX.NAME, sizes of the whole model.
typedef struct berth_mixer_linear {
    const char *layer_class;
    const char *name;
    int64_t input_size;
    int64_t output_size;
    int has_bias;
} berth_mixer_linear;
berth_value berth_mixer_project(const berth_mixer *mixer, berth_mixer_linear linear, berth_value x);

// Columns [offset, offset + extent) of x [tokens, width].
berth_value berth_mixer_columns(const berth_mixer *mixer, berth_value x, int64_t offset,
                                int64_t extent);
// x [tokens, a · b] as [tokens, a, b].
berth_value berth_mixer_split(const berth_mixer *mixer, berth_value x, int64_t a, int64_t b);
// x [tokens, a, b] as [tokens, a · b].
berth_value berth_mixer_join(const berth_mixer *mixer, berth_value x);
// weight · norm(x) by PREFIX.NAME.weight, or without a weight.
berth_value berth_mixer_norm(const berth_mixer *mixer, const char *name, berth_value x,
                             int has_weight);
// A causal convolution of the channels of x [tokens, channels], whose parameters are PREFIX.NAME,
// and the state that it needs.
typedef struct berth_mixer_conv {
    const char *name;
    berth_value weight; // [channels, 1, width]
    berth_value bias;   // BERTH_VALUE_NONE: none
    int64_t channels;
    int64_t width;
    const char *activation; // "silu" or ""
} berth_mixer_conv;
berth_value berth_mixer_convolve(const berth_mixer *mixer, berth_mixer_conv conv, berth_value x);

#endif
