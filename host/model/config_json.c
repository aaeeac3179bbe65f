// SPDX-License-Identifier: Apache-2.0
// Input: the text of a config.json. Output: a document in the transformers-5 form. The document is
// written again and parsed, so that models and quantization schemes read one ordinary tree and no
// getter has to know of old keys.
#include "model/config_json.h"

#include "base/array.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/text.h"

#define MAX_BYTES ((size_t)4 << 20)
#define MAX_DEPTH 24 // the writer's own limit is 32

// Keys that rope_parameters takes over.
static const char *const replaced_keys[] = {
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_local_base_freq",
};

// Keys that rope_parameters gets from beside it when it lacks them, and what else they are called.
static const char *const rope_keys[][2] = {
    {"rope_theta",                       "rotary_emb_base"},
    {"partial_rotary_factor",            "rotary_pct"     },
    {"original_max_position_embeddings", NULL             },
};

// Of a model that also sees or hears these are those of the whole.
static const char *const outer_keys[] = {"architectures", "model_type", "tie_word_embeddings"};

// What checkpoints call their quantization, and the first ones of compressed-tensors did.
#define QUANTIZATION     "quantization_config"
#define OLD_QUANTIZATION "compression_config"

#define LOCAL_THETA                                                                                \
    "rope_local_base_freq" // of layers with a window, which have a rope of their own

// Old names of rope types; "mrope" is the default rope plus mrope_section.
static const char *const rope_types[][2] = {
    {"su",    "longrope"},
    {"mrope", "default" }
};

static bool is_in(berth_str key, const char *const *keys, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (berth_str_equal_cstr(key, keys[i])) {
            return true;
        }
    }
    return false;
}

// Writes a value as it is. The getters cannot fail: the kind was asked.
static void put_value(berth_json_writer *writer, const berth_json *node) {
    const berth_json_kind kind = berth_json_kind_of(node);
    int64_t integer = 0;
    double real = 0;
    bool boolean = false;
    berth_str string = {0};
    if (kind == BERTH_JSON_OBJECT) {
        berth_json_begin_object(writer);
        for (size_t i = 0; i < berth_json_size(node); ++i) {
            berth_json_put_key(writer, berth_json_key_at(node, i).data);
            put_value(writer, berth_json_at(node, i));
        }
        berth_json_end_object(writer);
    } else if (kind == BERTH_JSON_ARRAY) {
        berth_json_begin_array(writer);
        for (size_t i = 0; i < berth_json_size(node); ++i) {
            put_value(writer, berth_json_at(node, i));
        }
        berth_json_end_array(writer);
    } else if (kind == BERTH_JSON_STRING && berth_json_get_str(node, "", &string) == BERTH_OK) {
        berth_json_put_str(writer, string);
    } else if (kind == BERTH_JSON_INTEGER && berth_json_get_i64(node, "", &integer) == BERTH_OK) {
        berth_json_put_i64(writer, integer);
    } else if (kind == BERTH_JSON_REAL && berth_json_get_f64(node, "", &real) == BERTH_OK) {
        berth_json_put_f64(writer, real);
    } else if (kind == BERTH_JSON_BOOL && berth_json_get_bool(node, "", &boolean) == BERTH_OK) {
        berth_json_put_bool(writer, boolean);
    } else {
        berth_json_put_null(writer);
    }
}

static void put_member(berth_json_writer *writer, const char *key, const berth_json *value) {
    berth_json_put_key(writer, key);
    put_value(writer, value);
}

// `rope` may be NULL: the default type.
static void put_rope_type(berth_json_writer *writer, const berth_json *rope) {
    const berth_json *type = NULL;
    if (rope != NULL) {
        type = berth_json_find(rope, berth_json_has(rope, "rope_type") ? "rope_type" : "type");
    }
    berth_str name = BERTH_STR("default");
    if (type != NULL && berth_json_kind_of(type) == BERTH_JSON_STRING) {
        name = berth_json_get_str(type, "", &name) == BERTH_OK ? name : BERTH_STR("default");
    } else if (type != NULL && berth_json_kind_of(type) != BERTH_JSON_NULL) {
        put_member(writer, "rope_type", type); // not a name: whoever reads it says so
        return;
    }
    for (size_t i = 0; i < BERTH_COUNT(rope_types); ++i) {
        if (berth_str_equal_cstr(name, rope_types[i][0])) {
            name = berth_str_from(rope_types[i][1]);
        }
    }
    berth_json_put_key(writer, "rope_type");
    berth_json_put_str(writer, name);
}

// Models with several kinds of layers have one object per kind.
static bool is_per_layer(const berth_json *rope) {
    for (size_t i = 0; rope != NULL && i < berth_json_size(rope); ++i) {
        if (berth_json_kind_of(berth_json_at(rope, i)) == BERTH_JSON_OBJECT) {
            return true;
        }
    }
    return false;
}

// What stands beside the rope under a key of `rope_keys`, or under its other name; NULL: nothing.
static const berth_json *beside_rope(const berth_json *root, size_t key) {
    const char *other = rope_keys[key][1];
    return berth_json_has(root, rope_keys[key][0])        ? berth_json_find(root, rope_keys[key][0])
           : other != NULL && berth_json_has(root, other) ? berth_json_find(root, other)
                                                          : NULL;
}

static void put_rope(berth_json_writer *writer, const berth_json *root, const berth_json *rope) {
    static const char *const types[] = {"rope_type", "type"};
    berth_json_begin_object(writer);
    put_rope_type(writer, rope);
    for (size_t i = 0; rope != NULL && i < berth_json_size(rope); ++i) {
        if (!is_in(berth_json_key_at(rope, i), types, BERTH_COUNT(types))) {
            put_member(writer, berth_json_key_at(rope, i).data, berth_json_at(rope, i));
        }
    }
    for (size_t i = 0; i < BERTH_COUNT(rope_keys); ++i) {
        const char *key = rope_keys[i][0];
        const berth_json *beside = beside_rope(root, i);
        if (beside != NULL && (rope == NULL || berth_json_find(rope, key) == NULL)) {
            put_member(writer, key, beside);
        }
    }
    berth_json_end_object(writer);
}

// One rope for all layers, or one for those with a window and one for the others.
static void put_ropes(berth_json_writer *writer, const berth_json *root, const berth_json *rope) {
    berth_json_put_key(writer, "rope_parameters");
    if (!berth_json_has(root, LOCAL_THETA)) {
        put_rope(writer, root, rope);
        return;
    }
    berth_json_begin_object(writer);
    berth_json_put_key(writer, "full_attention");
    put_rope(writer, root, rope);
    berth_json_put_key(writer, "sliding_attention");
    berth_json_begin_object(writer);
    put_rope_type(writer, NULL);
    put_member(writer, "rope_theta", berth_json_find(root, LOCAL_THETA));
    berth_json_end_object(writer);
    berth_json_end_object(writer);
}

static const char *name_of(const berth_json *root, berth_str key) {
    const bool is_old =
        berth_str_equal_cstr(key, OLD_QUANTIZATION) && berth_json_find(root, QUANTIZATION) == NULL;
    return is_old ? QUANTIZATION : key.data;
}

static berth_status put_config(berth_json_writer *writer, const berth_json *root) {
    const char *rope_key =
        berth_json_has(root, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const berth_json *rope =
        berth_json_has(root, rope_key) ? berth_json_find(root, rope_key) : NULL;
    if (rope != NULL && berth_json_kind_of(rope) != BERTH_JSON_OBJECT) {
        return berth_json_fail(BERTH_CORRUPT, rope, "is %s, an object or null is needed",
                               berth_json_kind_name(berth_json_kind_of(rope)));
    }
    const bool has_dtype = berth_json_has(root, "dtype");
    berth_json_begin_object(writer);
    for (size_t i = 0; i < berth_json_size(root); ++i) {
        const berth_str key = berth_json_key_at(root, i);
        const bool is_dtype = berth_str_equal_cstr(key, has_dtype ? "dtype" : "torch_dtype");
        if (is_dtype) {
            put_member(writer, "dtype", berth_json_at(root, i));
        } else if (!is_in(key, replaced_keys, BERTH_COUNT(replaced_keys)) &&
                   !berth_str_equal_cstr(key, "dtype") &&
                   !berth_str_equal_cstr(key, "torch_dtype")) {
            put_member(writer, name_of(root, key), berth_json_at(root, i));
        }
    }
    if (is_per_layer(rope)) {
        put_member(writer, "rope_parameters", rope);
    } else if (rope != NULL || beside_rope(root, 0) != NULL) {
        put_ropes(writer, root, rope);
    }
    berth_json_end_object(writer);
    return BERTH_OK;
}

// Whether the member is the whole's, although text_config may have one, too.
static bool is_outer(const berth_json *root, const berth_json *text, berth_str key) {
    const berth_json *outer = berth_json_member(root, key);
    const berth_json *inner = berth_json_member(text, key);
    const bool is_null = inner != NULL && berth_json_kind_of(inner) == BERTH_JSON_NULL;
    return outer != NULL && (is_in(key, outer_keys, BERTH_COUNT(outer_keys)) ||
                             (is_null && berth_str_equal_cstr(key, QUANTIZATION)));
}

// Of a model that also sees or hears the members of text_config take the places of the whole's; its
// model_type stands beside the whole's as BERTH_TEXT_MODEL_TYPE.
static berth_status put_flat(berth_json_writer *writer, const berth_json *root) {
    const berth_json *text = berth_json_find(root, "text_config");
    berth_json_begin_object(writer);
    for (size_t i = 0; i < berth_json_size(root); ++i) {
        const berth_str key = berth_json_key_at(root, i);
        if (is_outer(root, text, key) ||
            (berth_json_member(text, key) == NULL && !berth_str_equal_cstr(key, "text_config"))) {
            put_member(writer, key.data, berth_json_at(root, i));
        }
    }
    for (size_t i = 0; i < berth_json_size(text); ++i) {
        const berth_str key = berth_json_key_at(text, i);
        if (!is_outer(root, text, key)) {
            put_member(writer, key.data, berth_json_at(text, i));
        }
    }
    const berth_json *type = berth_json_member(text, BERTH_STR("model_type"));
    if (type != NULL && berth_json_find(root, BERTH_TEXT_MODEL_TYPE) == NULL) {
        put_member(writer, BERTH_TEXT_MODEL_TYPE, type);
    }
    berth_json_end_object(writer);
    return BERTH_OK;
}

// What `put` makes of the document, parsed again.
static berth_status rewrite(const berth_json *root, const char *name,
                            berth_status (*put)(berth_json_writer *writer, const berth_json *root),
                            berth_json **out_config) {
    berth_text text;
    berth_text_init(&text, 4 * MAX_BYTES);
    berth_json_writer writer;
    berth_json_writer_init(&writer, &text, 0);
    berth_status status = put(&writer, root);
    if (status == BERTH_OK) {
        status = berth_text_finish(&text, NULL);
    }
    if (status == BERTH_OK) {
        const berth_json_limits limits = {.bytes = 4 * MAX_BYTES};
        status = berth_json_parse(berth_text_str(&text), name, &limits, out_config);
    }
    berth_text_deinit(&text);
    return status;
}

static berth_status normalise(const berth_json *root, const char *name, berth_json **out_config) {
    if (berth_json_kind_of(root) != BERTH_JSON_OBJECT) {
        return BERTH_FAIL(CORRUPT, "%s: is %s, an object is needed", name,
                          berth_json_kind_name(berth_json_kind_of(root)));
    }
    const berth_json *text = berth_json_find(root, "text_config");
    if (text == NULL || berth_json_kind_of(text) != BERTH_JSON_OBJECT) {
        return rewrite(root, name, put_config, out_config);
    }
    berth_json *flat = NULL;
    BERTH_TRY(rewrite(root, name, put_flat, &flat));
    const berth_status status = rewrite(flat, name, put_config, out_config);
    berth_json_destroy(flat);
    return status;
}

berth_status berth_config_json_parse(berth_str text, const char *name, berth_json **out_config) {
    const berth_json_limits limits = {.bytes = MAX_BYTES, .depth = MAX_DEPTH};
    berth_json *root = NULL;
    BERTH_TRY(berth_json_parse(text, name, &limits, &root));
    const berth_status status = normalise(root, name, out_config);
    berth_json_destroy(root);
    return status;
}

berth_status berth_config_json_load(const char *path, berth_json **out_config) {
    char *text = NULL;
    size_t size = 0;
    BERTH_TRY(berth_file_read(path, MAX_BYTES, &text, &size));
    const berth_status status =
        berth_config_json_parse((berth_str){.data = text, .size = size}, path, out_config);
    berth_free(text);
    return status;
}
