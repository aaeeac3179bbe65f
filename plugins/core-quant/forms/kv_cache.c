// SPDX-License-Identifier: Apache-2.0
// Input: an attention layer. Output: a cache of e4m3 and its two scales, from whatever name the
// checkpoint has them under; 1 where it has none.
#include "forms.h"

// The candidates of keys and values, in the order of their declaration.
enum { OWN_KEY, OWN_VALUE, SHARD_KEY, SHARD_VALUE, OUTPUTS, SHARED };

#define ABSENT (-1.0) // no scale is negative

// ---- parameters ---------------------------------------------------------------------------------

static void declare(berth_builder *builder, const char *name, const char *alias,
                    const berth_shard *const *shards, uint64_t shard_count) {
    static const int64_t one[] = {1};
    const berth_parameter number = {
        .size = sizeof(berth_parameter),
        .name = name,
        .alias = alias,
        .shape = one,
        .ndim = 1,
        .output_dim = 0,
        .input_dim = -1,
        .shards = shards,
        .shard_count = shard_count,
        .role = BERTH_PARAMETER_STORED,
        .dtype = "f32",
        .is_per_tensor = 1,
        .is_optional = 1,
        .default_value = ABSENT,
        .is_scale = 1,
    };
    (void)builder->parameter(builder, &number);
}

static berth_value declare_made(berth_builder *builder, const char *layer, const char *leaf) {
    static const int64_t one[] = {1};
    const berth_parameter scale = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(builder, "%s.%s", layer, leaf),
        .shape = one,
        .ndim = 1,
        .output_dim = -1,
        .input_dim = -1,
        .role = BERTH_PARAMETER_MADE,
        .dtype = "f32",
    };
    return builder->parameter(builder, &scale);
}

// "a.self_attn" of the layer "a.self_attn.attn".
static const char *module_of(berth_builder *builder, const char *layer) {
    const size_t length = strlen(layer);
    return berth_quant_ends_with(layer, ".attn")
               ? berth_build_name(builder, "%.*s", (int)(length - strlen(".attn")), layer)
               : layer;
}

static const berth_shard key_shard = {.size = sizeof(berth_shard), .id = "k", .extent = 1};
static const berth_shard value_shard = {.size = sizeof(berth_shard), .id = "v", .extent = 1};

// Beside the layer's own names those of the projections, which model rules stack, and of their
// outputs, which are keys and values; and one for both, of old.
static void create_codes(berth_builder *builder, const berth_kv_cache_layer *layer,
                         berth_value scales[2]) {
    static const char letters[] = "kv";
    static const berth_shard *const shards[] = {&key_shard, &value_shard};
    const char *own = layer->cache->layer;
    const char *module = module_of(builder, own);
    for (int i = 0; i < 2; ++i) {
        declare(builder, berth_build_name(builder, "%s.%c_scale", own, letters[i]),
                berth_build_name(builder, "%s.%c_scale", module, letters[i]), NULL, 0);
    }
    for (int i = 0; i < 2; ++i) {
        declare(builder, berth_build_name(builder, "%s.qkv_proj.%c_scale", module, letters[i]),
                berth_build_name(builder, "%s.%c_proj.%c_scale", module, letters[i], letters[i]),
                &shards[i], 1);
    }
    declare(builder, berth_build_name(builder, "%s.qkv_proj.output_scale", module), NULL, shards,
            2);
    declare(builder, berth_build_name(builder, "%s.kv_scale", own),
            berth_build_name(builder, "%s.kv_scale", module), NULL, 0);
    builder->ignore(builder, ".q_scale"); // queries and probabilities stay floats
    builder->ignore(builder, ".q_proj.output_scale");
    builder->ignore(builder, ".prob_scale");
    scales[0] = declare_made(builder, own, "key_scale");
    scales[1] = declare_made(builder, own, "value_scale");
}

// ---- once loaded --------------------------------------------------------------------------------

static float number(const berth_tensor *const *stored, int which, int64_t index) {
    return ((const float *)stored[which]->data)[index];
}

// The first of the candidates that the checkpoint has.
static float choose(const berth_tensor *const *stored, int64_t index) {
    const float candidates[] = {
        number(stored, OWN_KEY + (int)index, 0),
        number(stored, SHARD_KEY + (int)index, 0),
        number(stored, OUTPUTS, index),
        number(stored, SHARED, 0),
    };
    size_t i = 0;
    while (i + 1 < sizeof candidates / sizeof candidates[0] && candidates[i] < 0) {
        ++i;
    }
    return candidates[i];
}

// Of one alone the other is taken to be the same.
static berth_status process(const berth_host *host, const berth_kv_cache_layer *layer,
                            const berth_tensor *const *stored, const berth_tensor *const *made) {
    (void)host;
    (void)layer;
    const float key = choose(stored, 0);
    const float value = choose(stored, 1);
    const float either = key > value ? key : value;
    const float otherwise = either > 0 ? either : 1;
    *(float *)made[0]->data = key > 0 ? key : otherwise;
    *(float *)made[1]->data = value > 0 ? value : otherwise;
    return BERTH_OK;
}

const berth_kv_cache_method berth_form_kv_codes = {
    .size = sizeof(berth_kv_cache_method),
    .name = "e4m3, scale 1 where none is stored",
    .dtype = "f8_e4m3fn",
    .create_weights = create_codes,
    .process_weights_after_loading = process,
};

// ---- scales that nobody uses --------------------------------------------------------------------

static void ignore_scales(berth_builder *builder, const berth_kv_cache_layer *layer,
                          berth_value scales[2]) {
    static const char *const names[] = {
        ".k_scale", ".v_scale", ".kv_scale", ".q_scale", ".prob_scale", "_proj.output_scale",
    };
    (void)layer;
    (void)scales;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        builder->ignore(builder, names[i]);
    }
}

static const berth_kv_cache_method plain = {
    .size = sizeof(berth_kv_cache_method),
    .name = "as it is, whatever scales there are",
    .create_weights = ignore_scales,
};

const berth_kv_cache_method *berth_form_kv_wanted(const berth_host *host,
                                                  berth_kv_cache_layer *layer) {
    (void)host;
    return layer->wanted ? &berth_form_kv_codes : &plain;
}
