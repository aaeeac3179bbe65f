// SPDX-License-Identifier: Apache-2.0
// Input: the tensors of a checkpoint, a model's weight rules, the parameters that layers declare.
// Output: for every parameter its resident type and the tensors that fill it.
#include "model/parameters.h"

#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/convert.h"
#include "base/log.h"
#include "base/map.h"
#include "base/text.h"
#include "model/building.h"
#include "model/config_json.h"
#include "model/pieces.h"

#define TEXT_PART "language_model." // in the names of a model that also sees or hears

#define MAX_ELEMENTS (INT64_C(1) << 46) // above any weight, and its bytes still fit everywhere
#define SHOWN        4                  // names listed in a report

struct berth_parameters {
    berth_arena *arena; // borrowed
    const berth_checkpoint *checkpoint;
    berth_weight_names names;
    berth_dtype activation;
    berth_map by_name; // name or alias → weight
    berth_array(berth_weight *) weights;
    berth_missing_names missing;
};

// ---- one parameter ------------------------------------------------------------------------------

static bool is_within(int64_t offset, int64_t extent, int64_t whole) {
    return offset >= 0 && offset <= whole && extent <= whole - offset;
}

static berth_status check_shards(const berth_parameter *declared) {
    const int64_t dim = declared->output_dim;
    if (dim < 0 || (uint64_t)dim >= declared->ndim) {
        return BERTH_FAIL(INTERNAL, "parameter '%s': shards without a dimension", declared->name);
    }
    int64_t covered = 0;
    for (uint64_t i = 0; i < declared->shard_count; ++i) {
        const berth_shard shard = berth_shard_at(declared, i);
        if (shard.offset != covered || shard.extent < 1 ||
            shard.extent > declared->shape[dim] - covered) {
            return BERTH_FAIL(INTERNAL, "parameter '%s': shard '%s' does not follow the one before",
                              declared->name, shard.id);
        }
        if (shard.stored_extent > 0 &&
            !is_within(shard.stored_offset, shard.extent, shard.stored_extent)) {
            return BERTH_FAIL(INTERNAL, "parameter '%s': shard '%s' is no part of its tensor",
                              declared->name, shard.id);
        }
        covered += shard.extent;
    }
    return covered == declared->shape[dim]
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL, "parameter '%s': its shards leave a gap", declared->name);
}

static bool has_dim(const berth_parameter *declared, int64_t dim) {
    return dim >= 0 && (uint64_t)dim < declared->ndim;
}

// A rank's whole slices, of a first dimension that no shard divides.
static bool has_right_slices(const berth_parameter *declared) {
    return declared->stored_slice_extent == 0 ||
           (declared->ndim > 1 && (declared->shard_count == 0 || declared->output_dim > 0) &&
            is_within(declared->stored_slice_offset, declared->shape[0],
                      declared->stored_slice_extent));
}

// That a rank's part is one along one dimension.
static berth_status check_part(const berth_parameter *declared) {
    const bool is_output = declared->stored_output_extent > 0;
    const bool is_input = declared->stored_input_extent > 0;
    const bool is_right =
        (!is_output || (declared->shard_count == 0 && has_dim(declared, declared->output_dim) &&
                        declared->stored_output_offset >= 0)) &&
        (!is_input ||
         (declared->shard_count == 0 && has_dim(declared, declared->input_dim) &&
          is_within(declared->stored_input_offset, declared->shape[declared->input_dim],
                    declared->stored_input_extent)));
    return is_right && is_output + is_input + (declared->stored_slice_extent > 0) <= 1 &&
                   has_right_slices(declared)
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL, "parameter '%s': a rank's part runs along one dimension",
                            declared->name);
}

// What a layer or a quantization scheme must keep to; a violation is a defect of its plugin.
static berth_status check_declaration(const berth_parameter *declared) {
    if (declared->name == NULL || declared->ndim > BERTH_MAX_DIMS) {
        return BERTH_FAIL(INTERNAL, "parameter '%s': it must have a name and at most %d dimensions",
                          declared->name == NULL ? "" : declared->name, BERTH_MAX_DIMS);
    }
    int64_t elements = 1;
    for (uint64_t i = 0; i < declared->ndim; ++i) {
        if (declared->shape[i] < 1 || declared->shape[i] > MAX_ELEMENTS / elements) {
            return BERTH_FAIL(CORRUPT,
                              "parameter '%s': a dimension of %" PRId64 " elements gives no weight "
                              "that could be loaded; check the sizes in config.json",
                              declared->name, declared->shape[i]);
        }
        elements *= declared->shape[i];
    }
    if (declared->dtype != NULL && strcmp(declared->dtype, "float") != 0 &&
        berth_dtype_find(berth_str_from(declared->dtype)) == BERTH_DTYPE_NONE) {
        return BERTH_FAIL(INTERNAL, "parameter '%s': there is no type '%s'", declared->name,
                          declared->dtype);
    }
    if (declared->is_per_tensor != 0) {
        return BERTH_OK;
    }
    BERTH_TRY(check_part(declared));
    return declared->shard_count > 0 ? check_shards(declared) : BERTH_OK;
}

// Of the tensors, where they have one in common; else f32.
static berth_dtype stored_dtype(const berth_weight *weight) {
    berth_dtype common = BERTH_DTYPE_NONE;
    for (size_t i = 0; i < weight->piece_count; ++i) {
        const berth_dtype dtype = weight->pieces[i].tensor->dtype;
        common = common == BERTH_DTYPE_NONE || common == dtype ? dtype : BERTH_DTYPE_F32;
    }
    return common == BERTH_DTYPE_NONE ? BERTH_DTYPE_F32 : common;
}

// The resident dtype. Matrices stay as stored: widening them would double what a step has to read.
static berth_dtype resident_dtype(const berth_parameters *parameters,
                                  const berth_parameter *declared, const berth_weight *weight) {
    const berth_dtype activation = parameters->activation;
    berth_dtype common = BERTH_DTYPE_NONE;
    if (declared->dtype != NULL) {
        return strcmp(declared->dtype, "float") == 0
                   ? stored_dtype(weight)
                   : berth_dtype_find(berth_str_from(declared->dtype));
    }
    for (size_t i = 0; i < weight->piece_count && declared->is_vector == 0; ++i) {
        berth_dtype dtype = weight->pieces[i].tensor->dtype;
        if (BERTH_DTYPE_BITS(dtype) == 16 && BERTH_DTYPE_BITS(activation) == 16) {
            dtype = activation;
        }
        common = common == BERTH_DTYPE_NONE || common == dtype ? dtype : BERTH_DTYPE_F32;
    }
    return weight->is_log_decay         ? BERTH_DTYPE_F32
           : common == BERTH_DTYPE_NONE ? activation
                                        : common;
}

static void set_type(berth_weight *weight, const berth_parameter *declared, berth_dtype dtype) {
    uint64_t elements = 1;
    weight->type = (berth_value_type){
        .size = sizeof weight->type,
        .dtype = dtype,
        .ndim = (uint32_t)declared->ndim,
    };
    for (uint64_t i = 0; i < declared->ndim; ++i) {
        weight->type.dims[i] = BERTH_DIM_CONST(declared->shape[i]);
        elements *= (uint64_t)declared->shape[i];
    }
    weight->bytes = berth_dtype_bytes(dtype, elements);
}

static berth_status create_weight(berth_parameters *parameters, const berth_parameter *declared,
                                  berth_weight **out_weight) {
    berth_arena *arena = parameters->arena;
    berth_weight *weight = BERTH_ARENA_NEW(arena, berth_weight);
    if (weight == NULL) {
        return berth_arena_exhausted(arena, "weights");
    }
    weight->name = berth_arena_strdup(arena, declared->name);
    if (weight->name == NULL) {
        return berth_arena_exhausted(arena, "weights");
    }
    weight->is_vector = declared->is_vector != 0;
    weight->addend = declared->addend;
    weight->is_scale = declared->is_scale != 0;
    weight->is_left_out = declared->role == BERTH_PARAMETER_STORED;
    weight->default_value = declared->default_value;
    if (declared->role != BERTH_PARAMETER_MADE) {
        BERTH_TRY(berth_pieces_find(&parameters->names, declared, &parameters->missing, weight));
    }
    set_type(weight, declared, resident_dtype(parameters, declared, weight));
    *out_weight = weight;
    return BERTH_OK;
}

static berth_status add_name(berth_parameters *parameters, const char *name) {
    if (name == NULL || berth_map_find(&parameters->by_name, berth_str_from(name)) != NULL) {
        return BERTH_OK;
    }
    const char *copy = berth_arena_strdup(parameters->arena, name);
    return copy == NULL ? berth_arena_exhausted(parameters->arena, "weight names")
                        : berth_map_add(&parameters->by_name, berth_str_from(copy),
                                        (uint32_t)parameters->weights.count - 1);
}

static berth_status check_again(const berth_weight *weight, const berth_parameter *declared) {
    bool is_same = weight->type.ndim == declared->ndim;
    for (uint64_t i = 0; is_same && i < declared->ndim; ++i) {
        is_same = weight->type.dims[i].b == declared->shape[i];
    }
    return is_same ? BERTH_OK
                   : BERTH_FAIL(INTERNAL, "parameter '%s' is also '%s', which has another shape",
                                declared->name, weight->name);
}

// ---- entry points -------------------------------------------------------------------------------

berth_status berth_parameters_create(const berth_checkpoint *checkpoint, const berth_model *model,
                                     berth_dtype activation, berth_arena *arena,
                                     berth_parameters **out_parameters) {
    berth_parameters *parameters = BERTH_ARENA_NEW(arena, berth_parameters);
    if (parameters == NULL) {
        return berth_arena_exhausted(arena, "weights");
    }
    parameters->arena = arena;
    parameters->checkpoint = checkpoint;
    parameters->activation = activation;
    berth_map_init(&parameters->by_name);
    BERTH_TRY(berth_weight_names_init(&parameters->names, checkpoint, model, arena));
    *out_parameters = parameters;
    return BERTH_OK;
}

berth_status berth_parameters_take(berth_parameters *parameters, const berth_parameter *given,
                                   berth_weight **out_weight) {
    berth_parameter divided;
    BERTH_TRY(check_declaration(given));
    BERTH_TRY(berth_parameter_divide(given, parameters->arena, &divided));
    const berth_parameter *declared = &divided;
    const uint32_t *known = berth_map_find(&parameters->by_name, berth_str_from(declared->name));
    if (known == NULL && declared->alias != NULL) {
        known = berth_map_find(&parameters->by_name, berth_str_from(declared->alias));
    }
    if (known != NULL) {
        *out_weight = parameters->weights.data[*known];
        (*out_weight)->is_left_out =
            (*out_weight)->is_left_out && declared->role == BERTH_PARAMETER_STORED;
        return check_again(*out_weight, declared);
    }
    berth_weight *weight = NULL;
    BERTH_TRY(create_weight(parameters, declared, &weight));
    BERTH_TRY(berth_array_push(&parameters->weights, weight));
    BERTH_TRY(add_name(parameters, declared->name));
    BERTH_TRY(add_name(parameters, declared->alias));
    *out_weight = weight;
    return BERTH_OK;
}

const char *berth_parameters_module(const berth_parameters *parameters, const char *prefix,
                                    const char *shard) {
    return berth_weight_names_module(&parameters->names, prefix, shard);
}

bool berth_parameters_has_module(const berth_parameters *parameters, const char *prefix) {
    return berth_weight_names_has(&parameters->names, prefix);
}

berth_status berth_parameters_modules(const berth_parameters *parameters, const char *prefix,
                                      berth_map *modules) {
    return berth_weight_names_modules(&parameters->names, prefix, modules);
}

void berth_parameters_ignore(berth_parameters *parameters, const char *text) {
    berth_weight_names_ignore(&parameters->names, text);
}

// Begins a list of names: a separator, how many and what.
static void begin_list(berth_text *text, const char *what, size_t count) {
    berth_text_add_format(text, "%s%zu %s %s: ", text->size == 0 ? "" : "; ", count,
                          count == 1 ? "tensor" : "tensors", what);
}

static void end_list(berth_text *text, size_t count) {
    if (count > SHOWN) {
        berth_text_add_format(text, " and %zu more", count - SHOWN);
    }
}

static void list_names(berth_text *text, const char *what, size_t count, const char *const *names) {
    if (count == 0) {
        return;
    }
    begin_list(text, what, count);
    for (size_t i = 0; i < count && i < SHOWN; ++i) {
        berth_text_add_format(text, "%s'%.200s'", i == 0 ? "" : ", ", names[i]);
    }
    end_list(text, count);
}

// What nobody has, and which layer of which scheme needs it.
static void list_missing(berth_text *text, const berth_missing_names *missing) {
    if (missing->count == 0) {
        return;
    }
    begin_list(text, "missing", missing->count);
    for (size_t i = 0; i < missing->count && i < SHOWN; ++i) {
        const berth_missing_tensor *tensor = &missing->data[i];
        const berth_processing *layer = tensor->weight->layer;
        berth_text_add_format(text, "%s'%.200s'", i == 0 ? "" : ", ", tensor->name);
        if (layer != NULL) {
            berth_text_add_format(text, " of layer '%.200s' (%s)", layer->name,
                                  layer->scheme->config.name);
        }
    }
    end_list(text, missing->count);
}

// Names of tensors that nobody took; the first few are kept.
typedef struct left_over {
    const char *names[SHOWN];
    size_t count;
} left_over;

static void add_left_over(left_over *list, const char *name) {
    if (list->count < SHOWN) {
        list->names[list->count] = name;
    }
    ++list->count;
}

// Whether the names of the checkpoint tell the tensors of the text part from the others.
static bool has_other_parts(const berth_parameters *parameters) {
    const berth_weight_names *names = &parameters->names;
    bool has_text_part = false;
    for (size_t i = 0; i < names->count && !has_text_part; ++i) {
        has_text_part =
            names->sources[i].is_used && strstr(names->sources[i].tensor->name, TEXT_PART) != NULL;
    }
    return has_text_part && berth_json_has(names->config, BERTH_TEXT_MODEL_TYPE);
}

// Tensors of what sees or hears belong to nobody, and that is right.
static void report_others(const berth_parameters *parameters, const left_over *others) {
    berth_text text;
    berth_text_init(&text, (size_t)8 << 10);
    list_names(&text, "of other parts than the text model ignored", others->count, others->names);
    if (others->count > 0) {
        BERTH_INFO("model", "%s: " BERTH_STR_FMT,
                   berth_checkpoint_directory(parameters->checkpoint),
                   BERTH_STR_ARG(berth_text_str(&text)));
    }
    berth_text_deinit(&text);
}

berth_status berth_parameters_check(const berth_parameters *parameters) {
    const bool has_others = has_other_parts(parameters);
    left_over unused = {0};
    left_over others = {0};
    for (size_t i = 0; i < parameters->names.count; ++i) {
        const berth_weight_source *source = &parameters->names.sources[i];
        const bool is_text = !has_others || strstr(source->tensor->name, TEXT_PART) != NULL;
        if (!source->is_used && !source->is_ignored) {
            add_left_over(is_text ? &unused : &others, source->tensor->name);
        }
    }
    report_others(parameters, &others);
    if (parameters->missing.count == 0 && unused.count == 0) {
        return BERTH_OK;
    }
    berth_text text;
    berth_text_init(&text, (size_t)8 << 10);
    list_missing(&text, &parameters->missing);
    list_names(&text, "unknown to the model", unused.count, unused.names);
    const char *list = NULL;
    berth_status status = berth_text_finish(&text, &list);
    if (status == BERTH_OK) {
        status = BERTH_FAIL(CORRUPT, "%s: the weights do not fit %s: %s; check config.json",
                            berth_checkpoint_directory(parameters->checkpoint),
                            parameters->names.model->architecture, list);
    }
    berth_text_deinit(&text);
    return status;
}

berth_status berth_parameters_list(const berth_parameters *parameters,
                                   const berth_weight **out_weights, size_t *out_count) {
    const size_t count = parameters->weights.count;
    berth_weight *weights = BERTH_ARENA_ARRAY(parameters->arena, berth_weight, count);
    if (weights == NULL) {
        return berth_arena_exhausted(parameters->arena, "weights");
    }
    *out_count = 0;
    for (size_t i = 0; i < count; ++i) {
        if (!parameters->weights.data[i]->is_left_out) {
            weights[(*out_count)++] = *parameters->weights.data[i];
        }
    }
    *out_weights = weights;
    return BERTH_OK;
}

void berth_parameters_destroy(berth_parameters *parameters) {
    if (parameters == NULL) {
        return;
    }
    berth_weight_names_deinit(&parameters->names);
    berth_map_deinit(&parameters->by_name);
    berth_array_free(&parameters->weights);
    berth_array_free(&parameters->missing);
}
