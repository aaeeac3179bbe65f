// SPDX-License-Identifier: Apache-2.0
// Quantization: who owns how a layer's weights are created, loaded and multiplied.
//
// A quantization config recognises a checkpoint and hands out one method per layer. "unquantized"
// is a config like any other. The life of a layer's weights:
//
//   get_quant_method                which method, and what the config says about this layer
//   create_weights                  declares parameters as the checkpoint stores them, and those
//                                   that are made of them
//   (the host loads)              shards of fused layers and parts of ranks, where they belong
//   process_weights_after_loading   stored tensors → made parameters, in host memory, once
//   (the plan)                      brings what is in the graph to where it is read; a layout that
//                                   only one implementation reads is the business of its `pack`
//   apply                           emits the nodes; `create_weights` and `apply` run back to back,
//                                   before anything is loaded
//
// The experts of a mixture are two stacks of layers (berth_linear.stack_size). get_quant_method is
// asked once, with the first stack and the modules of all experts; then both stacks are declared,
// loaded and processed like any layer, one after the other, and `apply_experts` emits the nodes.
#ifndef BERTH_QUANT_H
#define BERTH_QUANT_H

#include <berth/quant_kv.h>

#define BERTH_MAX_WEIGHTS 16
// What the host tells a scheme about a layer beside its sizes, and what the scheme keeps about it.
#define BERTH_QUANT_NOTES 8
typedef struct berth_quant_layer {
    uint64_t size;
    // The document that the config recognised: config.json, or {"quantization_config": FILE,
    // "quantization_file": NAME} where the scheme has a file of its own.
    const berth_json *config;
    // The modules of the layer in the checkpoint: one, or one per shard that it stores by itself.
    const char *const *names;
    uint64_t name_count;
    // get_quant_method sets it and returns NULL: the layer is not quantized, "unquantized" has it.
    uint64_t is_unquantized;
    int64_t notes[BERTH_QUANT_NOTES]; // written by get_quant_method, read by the method's slots
    // Of a config that replaces another, first in get_quant_method: what that one's answers for the
    // layer. Slots that the method which is then returned leaves NULL are those of this one.
    const struct berth_quant_method *(*inherit)(const berth_linear *linear);
} berth_quant_layer;

typedef struct berth_quant_method {
    uint64_t size;
    const char *name; // [required] for reports
    // [required][startup] Declares the layer's parameters (names begin with linear->prefix) and
    // writes their values, at most BERTH_MAX_WEIGHTS, zeroed before.
    void (*create_weights)(berth_builder *builder, const berth_linear *linear,
                           berth_value *weights);
    // [required][startup] Emits x W^T + b and returns it.
    berth_value (*apply)(berth_builder *builder, const berth_linear *linear,
                         const berth_value *weights, berth_value x);
    // [inherit][startup] From ABI 1.1 on. Needed when create_weights declares parameters of role
    // BERTH_PARAMETER_MADE. Both arrays are in the order of declaration: `stored` the tensors of
    // role STORED, put together from shards, read only; `made` to be written, zeroed before. All
    // are contiguous, in host memory; NULL stands behind the last.
    berth_status (*process_weights_after_loading)(const berth_host *host,
                                                  const berth_linear *linear,
                                                  const berth_tensor *const *stored,
                                                  const berth_tensor *const *made);
    // [optional][startup] From ABI 1.1 on. Emits what experts make of their tokens and returns it;
    // `w13` and `w2` are what create_weights wrote for the two stacks. A method without it is
    // refused where it is the method of experts.
    berth_value (*apply_experts)(berth_builder *builder, const berth_experts *experts,
                                 const berth_value *w13, const berth_value *w2);
    // [optional][startup] From ABI 1.1 on. Called instead of `apply` where linear->is_matrix, which
    // the other slots see too: writes the weight [outputs, inputs] in floats, and returns x in
    // floats that are exactly what products see of it. A method without it is refused there.
    berth_value (*apply_matrix)(berth_builder *builder, const berth_linear *linear,
                                const berth_value *weights, berth_value x, berth_value *out_weight);
} berth_quant_method;

typedef struct berth_quant_config {
    uint64_t size;
    const char *name; // [required] "unquantized", "fp8"; what is replaced lends slots left NULL
    // [inherit][startup] Whether the checkpoint with this config.json is of this scheme: BERTH_OK
    // or BERTH_NOT_FOUND; another status refuses the checkpoint with its text. NULL: it is not.
    berth_status (*matches)(const berth_host *host, const berth_json *config);
    // [required][startup] The method of a layer, NULL with a text when the scheme cannot serve it.
    const berth_quant_method *(*get_quant_method)(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear);

    // From ABI 1.1 on.
    // Files beside config.json that have the scheme's configuration where config.json has none.
    const char *const *config_files;
    uint64_t config_file_count;
    // Types of activations that the scheme computes with; none listed: any.
    const char *const *activation_dtypes;
    uint64_t activation_dtype_count;
    // [inherit][startup] The scheme takes a checkpoint that carries another one's name: 1. `wanted`
    // is what --quantization asks for, or NULL. Asked before `matches` of any config.
    uint64_t (*override_quantization_method)(const berth_host *host, const berth_json *config,
                                             const char *wanted);
    // [inherit][startup] The method of an attention layer's cache, NULL with a text when the scheme
    // cannot serve it. Not set: the scheme has nothing to say about caches.
    const berth_kv_cache_method *(*get_kv_cache_method)(const berth_host *host,
                                                        berth_kv_cache_layer *layer);
} berth_quant_config;

// ---- declaring ----------------------------------------------------------------------------------

// The parameter PREFIX.LEAF over all outputs and inputs of the layer, to be changed where it
// differs; of a stack PREFIX_LEAF over those of all its layers. `shape` is [outputs, inputs] or
// [layers, outputs, inputs]: it has room for BERTH_QUANT_DIMS and must live until it is declared.
#define BERTH_QUANT_DIMS 3
static inline berth_parameter berth_quant_parameter(berth_builder *builder,
                                                    const berth_linear *linear, const char *leaf,
                                                    int64_t *shape) {
    const int is_stack = linear->stack_size > 0;
    const int between = is_stack ? '_' : '.';
    shape[0] = linear->stack_size;
    shape[is_stack] = linear->output_size;
    shape[is_stack + 1] = linear->input_size;
    return (berth_parameter){
        .size = sizeof(berth_parameter),
        .name = berth_build_name(builder, "%s%c%s", linear->prefix, between, leaf),
        .alias = linear->alias ? berth_build_name(builder, "%s%c%s", linear->alias, between, leaf)
                               : NULL,
        .shape = shape,
        .ndim = is_stack ? 3 : 2,
        .output_dim = is_stack,
        .input_dim = is_stack + 1,
        .shards = linear->shards,
        .shard_count = linear->shard_count,
        .stored_output_offset = linear->stored_output_offset,
        .stored_output_extent = linear->stored_output_extent,
        .stored_input_offset = linear->stored_input_offset,
        .stored_input_extent = linear->stored_input_extent,
        .stored_slice_offset = linear->stored_slice_offset,
        .stored_slice_extent = linear->stored_slice_extent,
    };
}

// The parameter over the outputs alone.
static inline void berth_quant_per_output(berth_parameter *parameter) {
    --parameter->ndim;
    parameter->input_dim = -1;
    parameter->stored_input_extent = 0;
}

// Of a parameter of one column, [outputs, 1]: every rank of input parts has all of it.
static inline void berth_quant_one_column(berth_parameter *parameter, int64_t *shape) {
    shape[parameter->ndim - 1] = 1;
    parameter->input_dim = -1;
    parameter->stored_input_extent = 0;
}

// The bias of the layer, BERTH_VALUE_NONE without one.
static inline berth_value berth_quant_bias(berth_builder *builder, const berth_linear *linear) {
    int64_t shape[BERTH_QUANT_DIMS];
    berth_parameter bias = berth_quant_parameter(builder, linear, "bias", shape);
    berth_quant_per_output(&bias);
    bias.is_vector = 1;
    return linear->has_bias ? builder->parameter(builder, &bias) : BERTH_VALUE_NONE;
}

// A parameter that process_weights_after_loading makes: a matrix, of a stack one for every layer,
// or of shape [n, 0] a vector, of a stack one for all.
static inline berth_value berth_quant_made(berth_builder *builder, const berth_linear *linear,
                                           const char *leaf, const char *dtype,
                                           const int64_t shape[2]) {
    const int is_stack = linear->stack_size > 0;
    const int is_matrix = shape[1] > 0;
    const int64_t all[BERTH_QUANT_DIMS] = {linear->stack_size, shape[0], shape[1]};
    const berth_parameter parameter = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(builder, "%s%c%s", linear->prefix, is_stack ? '_' : '.', leaf),
        .shape = is_stack && is_matrix ? all : shape,
        .ndim = !is_matrix ? 1
                : is_stack ? 3
                           : 2,
        .output_dim = -1,
        .input_dim = -1,
        .role = BERTH_PARAMETER_MADE,
        .dtype = dtype,
    };
    return builder->parameter(builder, &parameter);
}
static inline berth_value berth_quant_made_vector(berth_builder *builder,
                                                  const berth_linear *linear, const char *leaf,
                                                  const char *dtype, int64_t length) {
    return berth_quant_made(builder, linear, leaf, dtype, (const int64_t[2]){length, 0});
}

// Rows of the layer's matrix, or of a stack's matrices one behind the other.
static inline int64_t berth_quant_rows(const berth_linear *linear) {
    return linear->output_size * (linear->stack_size > 0 ? linear->stack_size : 1);
}

// ---- experts ------------------------------------------------------------------------------------

// One of the two stacks as the op quantized_experts takes it; what is BERTH_VALUE_NONE is absent.
typedef struct berth_quant_stack {
    berth_value weight;
    berth_value scale;
    berth_value bias;
    berth_value zero_points;
    berth_value input_scale;
    berth_value permutation;
} berth_quant_stack;

// The attributes of that op that are the scheme's.
typedef struct berth_quant_codes {
    const char *code;
    const char *input;
    int64_t group_shape[2];
    int64_t has_global_scales; // 0: of neither input
} berth_quant_codes;

// Emits quantized_experts over the stacks w13 and w2.
#define BERTH_QUANT_ATTRIBUTES 16
static inline berth_value berth_quant_experts(berth_builder *builder, const berth_experts *experts,
                                              const berth_quant_stack stacks[2],
                                              berth_quant_codes codes) {
    const berth_attribute *attributes[BERTH_QUANT_ATTRIBUTES] = {
        BERTH_TEXT("code", codes.code),
        BERTH_TEXT("input", codes.input),
        BERTH_I64S("group_shape", codes.group_shape, 2),
    };
    const berth_attribute *const has_global_scales = BERTH_BOOL("has_global_scales", 1);
    uint64_t count = 3;
    if (codes.has_global_scales) {
        attributes[count++] = has_global_scales;
    }
    for (uint64_t i = 0; i < experts->attribute_count && count < BERTH_QUANT_ATTRIBUTES; ++i) {
        attributes[count++] = experts->attributes[i];
    }
    return BERTH_EMIT(builder, "quantized_experts", .prefix = experts->prefix,
                      BERTH_INPUTS(experts->x, stacks[0].weight, stacks[0].scale, stacks[1].weight,
                                   stacks[1].scale, experts->topk_weights, experts->topk_ids,
                                   stacks[0].bias, stacks[1].bias, stacks[0].zero_points,
                                   stacks[1].zero_points, stacks[0].input_scale,
                                   stacks[1].input_scale, stacks[0].permutation,
                                   stacks[1].permutation),
                      .attributes = attributes, .attribute_count = count);
}

// ---- finding out about a layer ------------------------------------------------------------------

// How an entry of a list names modules: by the whole name, "re:" and a regular expression, or the
// layer's class, "Linear" being all linear layers but the head, and experts; by any part of the
// name, "*" in it standing for anything; by a regular expression.
#define BERTH_QUANT_EXACT  0u
#define BERTH_QUANT_WITHIN 1u
#define BERTH_QUANT_REGEX  2u

static inline int berth_quant_ends_with(const char *text, const char *end) {
    const size_t length = strlen(text);
    const size_t of_end = strlen(end);
    return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

// Whether `part` occurs in the text; a "*" in it stands for anything.
static inline int berth_quant_occurs(const char *text, const char *part) {
    const char *star = strchr(part, '*');
    const size_t head = star ? (size_t)(star - part) : strlen(part);
    for (; strlen(text) >= head; ++text) {
        if (strncmp(text, part, head) == 0 &&
            (!star || berth_quant_occurs(text + head, star + 1))) {
            return 1;
        }
        if (*text == 0) {
            break;
        }
    }
    return 0;
}

// Whether `entry` names the module `name` of a layer: BERTH_OK or BERTH_NOT_FOUND.
static inline berth_status berth_quant_names(const berth_host *host, const berth_linear *linear,
                                             const char *name, const char *entry, uint64_t how) {
    int is_named = 0;
    if (how == BERTH_QUANT_REGEX || (how == BERTH_QUANT_EXACT && strncmp(entry, "re:", 3) == 0)) {
        return host->match(host, how == BERTH_QUANT_REGEX ? entry : entry + 3, name);
    }
    if (how == BERTH_QUANT_WITHIN) {
        is_named = berth_quant_occurs(name, entry);
    } else {
        is_named =
            strcmp(name, entry) == 0 ||
            (linear->layer_class &&
             (strcmp(linear->layer_class, entry) == 0 ||
              (strcmp(entry, "Linear") == 0 &&
               (linear->stack_size > 0 || berth_quant_ends_with(linear->layer_class, "Linear")))));
    }
    return is_named ? BERTH_OK : BERTH_NOT_FOUND;
}

// Whether the list under `path`, which may be absent, has an entry that names the module.
static inline berth_status berth_quant_listed(const berth_host *host, const berth_linear *linear,
                                              const char *name, const char *path, uint64_t how) {
    const berth_json *list = NULL;
    const berth_json *entry = NULL;
    const char *key = NULL;
    const char *text = NULL;
    if (host->json_get(linear->quant->config, path, &list) != BERTH_OK) {
        return BERTH_NOT_FOUND;
    }
    for (uint64_t i = 0; host->json_get_entry(list, i, &key, &entry) == BERTH_OK; ++i) {
        if (host->json_get_str(entry, "", &text) == BERTH_OK) {
            const berth_status status = berth_quant_names(host, linear, name, text, how);
            if (status != BERTH_NOT_FOUND) {
                return status;
            }
        }
    }
    return BERTH_NOT_FOUND;
}

// What a scheme says about one module of a layer, as a number.
typedef berth_status (*berth_quant_answer_fn)(const berth_host *host, const berth_linear *linear,
                                              const char *name, int64_t *out);

// The answer for all modules of the layer. One kernel multiplies them all, so they must agree:
// BERTH_CORRUPT names two that do not.
static inline berth_status berth_quant_agree(const berth_host *host, const berth_linear *linear,
                                             berth_quant_answer_fn answer, int64_t *out) {
    const berth_quant_layer *layer = linear->quant;
    for (uint64_t i = 0; i < layer->name_count; ++i) {
        int64_t own = 0;
        const berth_status status = answer(host, linear, layer->names[i], &own);
        if (status != BERTH_OK) {
            return status;
        }
        if (i > 0 && own != *out) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT,
                                     "'%s' and '%s' are one layer here and must be quantized alike",
                                     layer->names[0], layer->names[i]);
        }
        *out = own;
    }
    return BERTH_OK;
}

#endif
