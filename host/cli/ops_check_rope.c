// SPDX-License-Identifier: Apache-2.0
// Rows of the rope files. rope_parameters becomes attributes, flat queries get their heads. What a
// class keeps as its cache is read off the op itself: a pair (1, 0) turned by an angle is (cosine,
// sine). Then the op rotates with the cache that the file has, as its README asks.
#include <string.h>

#include "base/convert.h"
#include "cli/ops_check_rows.h"

#define TYPE_BYTES 64

// ---- attributes ---------------------------------------------------------------------------------

// Ours where a class says more than rope_type does.
static const berth_check_rename class_types[] = {
    {.theirs = "FourierRotaryEmbedding",     .ours = "fope"    },
    {.theirs = "Ernie4_5_VLRotaryEmbedding", .ours = "ernie_vl"},
};

// Parameters that say how the class comes to what the operands show.
static bool is_implied(const char *name, const char *type) {
    static const char *const names[] = {"use_fope", "num_key_value_heads", "fope_sep_head",
                                        "fope_init_factor", "rope_dim"};
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return strcmp(name, "rope_type") == 0 ||
           (strcmp(name, "partial_rotary_factor") == 0 && strcmp(type, "proportional") != 0);
}

static const char *type_of(const berth_check_case *at) {
    const berth_json *parameters = berth_check_given(at, "rope_parameters");
    const berth_json *json = parameters ? berth_json_find(parameters, "rope_type") : NULL;
    berth_str type = BERTH_STR("default");
    for (size_t i = 0; i < BERTH_COUNT(class_types); ++i) {
        if (strcmp(class_types[i].theirs, at->class_name) == 0) {
            return class_types[i].ours;
        }
    }
    if (json) {
        (void)berth_json_as_str(json, &type);
    }
    return strcmp(type.data, "deepseek_llama_scaling") == 0 ? "deepseek_yarn" : type.data;
}

berth_status berth_check_rope_parameters(berth_check_case *at) {
    const berth_json *parameters = berth_check_given(at, "rope_parameters");
    const berth_attribute type = {
        .size = sizeof type,
        .name = "rope_type",
        .kind = BERTH_ATTRIBUTE_STR,
        .str = type_of(at),
    };
    BERTH_TRY(berth_check_set(at, &type));
    berth_check_drop_attribute(at, "rope_parameters");
    for (size_t i = 0; parameters && i < berth_json_size(parameters); ++i) {
        const berth_json *json = berth_json_at(parameters, i);
        const char *name = berth_json_key_at(parameters, i).data;
        if (berth_json_kind_of(json) == BERTH_JSON_NULL || is_implied(name, type.str)) {
            continue;
        }
        if (at->attribute_count == BERTH_CHECK_TENSORS) {
            return berth_check_full(at);
        }
        at->attributes[at->attribute_count++] = (berth_check_attribute){
            .name = strcmp(name, "rope_theta") == 0 ? "base" : name,
            .json = json,
        };
    }
    return BERTH_OK;
}

berth_status berth_check_latent(berth_check_case *at) {
    berth_check_tensor *scaling = berth_check_input(at, "llama_4_scaling");
    if (scaling) {
        scaling->ndim = 2;
        scaling->shape[1] = 1;
    }
    return berth_check_rope_parameters(at);
}

// ---- operands -----------------------------------------------------------------------------------

// [tokens, heads · d] and [batch, tokens, heads, d] become [tokens, heads, d].
static void give_heads(berth_check_tensor *tensor, int64_t head_size) {
    if (!tensor || tensor->ndim == 3) {
        return;
    }
    const int64_t size = tensor->ndim == 2 ? head_size : tensor->shape[tensor->ndim - 1];
    const int64_t tokens =
        tensor->ndim == 2 ? tensor->shape[0] : tensor->shape[0] * tensor->shape[1];
    const int64_t heads = tokens * size > 0 ? berth_check_elements(tensor) / tokens / size : 0;
    tensor->ndim = 3;
    tensor->shape[0] = tokens;
    tensor->shape[1] = heads;
    tensor->shape[2] = size;
}

// Coefficients that all heads share are those of one.
static void give_sets(berth_check_tensor *coefficients) {
    if (coefficients && coefficients->ndim == 2) {
        coefficients->shape[2] = coefficients->shape[1];
        coefficients->shape[1] = coefficients->shape[0];
        coefficients->shape[0] = 1;
        coefficients->ndim = 3;
    }
}

// A class without positions rotates token i of an image as position i.
static berth_status make_positions(berth_check_case *at, int64_t per_image) {
    const berth_check_tensor *query = berth_check_input(at, "query");
    if (berth_check_input(at, "positions")) {
        return BERTH_OK;
    }
    berth_check_tensor *positions =
        berth_check_add_input(at, "positions", BERTH_DTYPE_I64, 1, query->shape);
    if (!positions) {
        return berth_check_full(at);
    }
    for (int64_t i = 0; i < query->shape[0]; ++i) {
        ((int64_t *)positions->data)[i] = i % per_image;
    }
    return BERTH_OK;
}

static berth_status set_base(berth_check_case *at) {
    const int64_t head_size = (int64_t)berth_check_number(at, "head_size", 0);
    berth_check_tensor *query = berth_check_input(at, "query");
    const int64_t per_image = query && query->ndim == 4 ? query->shape[1] : 1;
    if (!query) {
        return BERTH_FAIL(CORRUPT, "case '%s' has no query", at->name);
    }
    give_heads(query, head_size);
    give_heads(berth_check_input(at, "key"), head_size);
    give_sets(berth_check_input(at, "cos_coef"));
    give_sets(berth_check_input(at, "sin_coef"));
    berth_check_drop_attribute(at, "head_size");
    berth_check_drop_attribute(at, "dtype");
    return make_positions(at, per_image);
}

// ---- caches -------------------------------------------------------------------------------------

// The case again with pairs (1, 0) at positions 0, 1 … as its query, in f32.
static berth_status make_unit(const berth_check_case *at, int64_t rows, int64_t heads,
                              int64_t width, berth_check_case *unit) {
    *unit = *at;
    berth_check_drop_input(unit, "query");
    berth_check_drop_input(unit, "key");
    berth_check_drop_input(unit, "positions");
    berth_check_drop_attribute(unit, "inverse");
    berth_check_tensor *query =
        berth_check_add_input(unit, "query", BERTH_DTYPE_F32, 3, (int64_t[]){rows, heads, width});
    berth_check_tensor *positions =
        berth_check_add_input(unit, "positions", BERTH_DTYPE_I64, 1, &rows);
    if (!query || !positions) {
        return berth_check_full(at);
    }
    for (int64_t i = 0; i < rows; ++i) {
        ((int64_t *)positions->data)[i] = i;
    }
    return BERTH_OK;
}

// Where the members of pair i of `pairs` are in a head.
typedef struct pair_places {
    int64_t step;
    int64_t distance;
} pair_places;

static pair_places places_of(const berth_check_case *at, int64_t pairs) {
    const bool is_neox = berth_check_number(at, "is_neox_style", 1) != 0;
    return (pair_places){.step = is_neox ? 1 : 2, .distance = is_neox ? pairs : 1};
}

static void fill_unit(berth_check_case *unit, int64_t pairs) {
    berth_check_tensor *query = berth_check_input(unit, "query");
    const pair_places places = places_of(unit, pairs);
    const int64_t width = query->shape[2];
    for (int64_t row = 0; row < query->shape[0] * query->shape[1]; ++row) {
        for (int64_t i = 0; i < pairs; ++i) {
            ((float *)query->data)[row * width + i * places.step] = 1;
        }
    }
}

typedef struct points {
    int64_t pairs;
    int64_t times;
    int64_t first_row; // of the cache
} points;

// Writes [cosines | sines] of each head of what a unit query became, each `times` times, as rows of
// the cache; in the cache's type.
static void take_points(const berth_check_case *at, const berth_check_tensor *turned, points of,
                        berth_check_tensor *cache) {
    const pair_places places = places_of(at, of.pairs);
    const int64_t pairs = of.pairs;
    const int64_t times = of.times;
    const int64_t width = turned->shape[2];
    const int64_t rows = turned->shape[0] * turned->shape[1];
    const uint64_t bytes = BERTH_DTYPE_BITS(cache->dtype) / 8;
    for (int64_t k = 0; k < rows * 2 * pairs * times; ++k) {
        const int64_t row = k / (2 * pairs * times);
        const int64_t column = k % (2 * pairs * times);
        const int64_t half = column / (pairs * times);
        const int64_t pair = column % pairs;
        const int64_t from = row * width + pair * places.step + half * places.distance;
        const uint64_t to = (uint64_t)(of.first_row * 2 * pairs * times + k);
        berth_convert(BERTH_DTYPE_F32, (const float *)turned->data + from, cache->dtype,
                      (char *)cache->data + to * bytes, 1);
    }
}

static berth_status make_cache(berth_check_case *at, const berth_check_output *output,
                               berth_check_tensor *cache) {
    *cache = output->wanted;
    cache->data = berth_arena_alloc(at->arena, (size_t)cache->bytes + 1, 64);
    return cache->data ? BERTH_OK : berth_arena_exhausted(at->arena, "a rope's cache");
}

// The shape of a rope's cache, in our terms.
typedef struct cache_shape {
    int64_t rows;
    int64_t heads; // fope's
    int64_t pairs;
    int64_t times; // that cosines are repeated
    int64_t width; // of a head that has all pairs
} cache_shape;

static cache_shape shape_of(berth_check_case *at, const berth_check_tensor *cache) {
    const char *type = type_of(at);
    const int64_t head_size = berth_check_input(at, "query")->shape[2];
    cache_shape shape = {
        .rows = cache->shape[0],
        .heads = 1,
        .pairs = cache->shape[cache->ndim - 1] / 2,
        .times = 1,
        .width = head_size,
    };
    if (strcmp(type, "fope") == 0) {
        shape.heads = cache->ndim == 3 ? cache->shape[1] : 1;
        shape.pairs = head_size / 2;
        shape.times = 2;
    } else if (berth_json_find(at->json, "attributes.rope_parameters.is_deepseek_v4")) {
        shape.width = 2 * shape.pairs; // the last columns turn: here they are all
    } else if (cache->ndim == 4) {     // complex numbers
        shape.pairs = cache->shape[2];
    }
    return shape;
}

static berth_status set_long(berth_check_case *unit, int64_t length) {
    const berth_attribute made = {
        .size = sizeof made,
        .name = "max_model_len",
        .kind = BERTH_ATTRIBUTE_I64,
        .i64 = length,
    };
    return berth_check_set(unit, &made);
}

// Rows [first, first + rows) of the cache; `model_len` above 0 chooses a longrope's factors.
static berth_status fill_rows(berth_check_case *at, const cache_shape *shape, int64_t first,
                              int64_t model_len, berth_check_tensor *cache) {
    berth_check_case *unit = BERTH_ARENA_NEW(at->arena, berth_check_case);
    berth_check_results results;
    if (!unit) {
        return berth_arena_exhausted(at->arena, "cases");
    }
    BERTH_TRY(make_unit(at, shape->rows, shape->heads, shape->width, unit));
    fill_unit(unit, shape->pairs);
    if (model_len > 0) {
        BERTH_TRY(set_long(unit, model_len));
    }
    BERTH_TRY_NOTE(berth_check_execute(unit, &results), "reading the cache off the op");
    if (cache->ndim == 4) {
        memcpy(cache->data, results.outputs[0].data, (size_t)cache->bytes);
    } else {
        take_points(at, &results.outputs[0], (points){shape->pairs, shape->times, first}, cache);
    }
    return BERTH_OK;
}

// A longrope's cache is the short rope's rows, then the long one's.
static berth_status fill_cache(berth_check_case *at, berth_check_output *output) {
    cache_shape shape = shape_of(at, &output->wanted);
    const berth_json *parameters = berth_check_given(at, "rope_parameters");
    int64_t trained = 0;
    BERTH_TRY(make_cache(at, output, &output->got));
    if (strcmp(type_of(at), "longrope") != 0) {
        return fill_rows(at, &shape, 0, 0, &output->got);
    }
    BERTH_TRY(berth_json_get_i64(parameters, "original_max_position_embeddings", &trained));
    const int64_t rows = shape.rows;
    shape.rows = trained;
    BERTH_TRY(fill_rows(at, &shape, 0, trained, &output->got));
    shape.rows = rows - trained;
    return fill_rows(at, &shape, trained, trained + 1, &output->got);
}

// The file's cache as the op takes it: complex numbers as cosines and sines, nothing twice.
static berth_status give_cache(berth_check_case *at, const berth_check_tensor *stored) {
    const cache_shape shape = shape_of(at, stored);
    const bool is_fope = shape.times > 1;
    const int64_t dims[] = {shape.rows, is_fope ? shape.heads : 2 * shape.pairs, 2 * shape.pairs};
    berth_check_tensor *cache =
        berth_check_add_input(at, "cos_sin_cache", stored->dtype, is_fope ? 3 : 2, dims);
    if (!cache) {
        return berth_check_full(at);
    }
    const uint64_t bytes = BERTH_DTYPE_BITS(stored->dtype) / 8;
    const int64_t pairs = shape.pairs;
    for (int64_t i = 0; i < berth_check_elements(cache); ++i) {
        const int64_t row = i / (2 * pairs);
        const int64_t half = i % (2 * pairs) / pairs;
        const int64_t pair = i % pairs;
        const int64_t from = stored->ndim == 4 ? (row * pairs + pair) * 2 + half
                                               : (row * 2 + half) * pairs * shape.times + pair;
        memcpy((char *)cache->data + (uint64_t)i * bytes,
               (const char *)stored->data + (uint64_t)from * bytes, bytes);
    }
    return BERTH_OK;
}

static void give_named(berth_check_case *at, const char *name, const berth_check_results *results,
                       size_t index) {
    berth_check_output *output = berth_check_find_output(at, name);
    if (output && index < results->output_count) {
        output->got = results->outputs[index];
    }
}

berth_status berth_check_rope(berth_check_case *at) {
    berth_check_output *cache = berth_check_find_output(at, "cos_sin_cache");
    berth_check_results results;
    BERTH_TRY(set_base(at));
    BERTH_TRY(berth_check_rope_parameters(at));
    if (cache) {
        BERTH_TRY(fill_cache(at, cache));
        BERTH_TRY(give_cache(at, &cache->wanted));
    }
    BERTH_TRY(berth_check_execute(at, &results));
    give_named(at, "query", &results, 0);
    give_named(at, "key", &results, 1);
    return BERTH_OK;
}

// ---- dual chunk ---------------------------------------------------------------------------------

// One of the five caches of a dual chunk rope, and where its points come out: of the key, or of a
// version of the query.
typedef struct chunk_cache {
    const char *name;
    bool is_key;
    int64_t version;
} chunk_cache;

static const chunk_cache chunk_caches[] = {
    {.name = "cos_sin_q_cache",           .version = 0  },
    {.name = "cos_sin_qc_cache",          .version = 1  },
    {.name = "cos_sin_k_cache",           .is_key = true},
    {.name = "cos_sin_qc_no_clamp_cache", .version = 3  },
    {.name = "cos_sin_q_inter_cache",     .version = 4  },
};

static berth_status fill_chunk_cache(berth_check_case *at, const chunk_cache *which,
                                     berth_check_output *output) {
    berth_check_case *unit = BERTH_ARENA_NEW(at->arena, berth_check_case);
    berth_check_results results;
    const int64_t rows = output->wanted.shape[0];
    const int64_t pairs = output->wanted.shape[1] / 2;
    const int64_t width = berth_check_input(at, "query")->shape[2];
    if (!unit) {
        return berth_arena_exhausted(at->arena, "cases");
    }
    BERTH_TRY(make_unit(at, rows, 1, width, unit));
    fill_unit(unit, pairs);
    const berth_check_tensor *query = berth_check_input(unit, "query");
    berth_check_tensor *key =
        berth_check_add_input(unit, "key", BERTH_DTYPE_F32, query->ndim, query->shape);
    if (!key) {
        return berth_check_full(at);
    }
    memcpy(key->data, berth_check_input(unit, "query")->data, (size_t)key->bytes);
    BERTH_TRY_NOTE(berth_check_execute(unit, &results), "reading %s off the op", which->name);
    const berth_check_tensor *turned = &results.outputs[which->is_key ? 1 : 0];
    berth_check_tensor *picked =
        berth_check_add_input(unit, "picked", BERTH_DTYPE_F32, 3, (int64_t[]){rows, 1, width});
    if (!picked) {
        return berth_check_full(at);
    }
    const int64_t stride = which->is_key ? width : 5 * width;
    for (int64_t row = 0; row < rows; ++row) {
        memcpy((float *)picked->data + row * width,
               (const float *)turned->data + row * stride + which->version * width,
               (size_t)width * sizeof(float));
    }
    BERTH_TRY(make_cache(at, output, &output->got));
    take_points(at, picked, (points){pairs, 1, 0}, &output->got);
    return BERTH_OK;
}

berth_status berth_check_dual_chunk(berth_check_case *at) {
    berth_check_results results;
    BERTH_TRY(set_base(at));
    for (size_t i = 0; i < BERTH_COUNT(chunk_caches); ++i) {
        berth_check_output *output = berth_check_find_output(at, chunk_caches[i].name);
        if (output) {
            BERTH_TRY(fill_chunk_cache(at, &chunk_caches[i], output));
        }
    }
    BERTH_TRY(berth_check_execute(at, &results));
    give_named(at, "query", &results, 0);
    give_named(at, "key", &results, 1);
    return BERTH_OK;
}
