// SPDX-License-Identifier: Apache-2.0
// The graph builder that models and layers write to. All of it runs at start-up, on the main
// thread.
//
// A builder is sticky: after the first failure every call does nothing and returns the invalid
// value, and the host reports that first failure; code that builds therefore checks nothing. Values
// are ids, valid until the build ends. Strings are copied.
#ifndef BERTH_BUILDER_H
#define BERTH_BUILDER_H

#include <berth/host.h>
#include <berth/op.h>
#include <berth/status.h>
#include <berth/types.h>

#include <stdarg.h>

typedef uint32_t berth_value;
#define BERTH_VALUE_NONE ((berth_value)0)

// One use of an op or of a layer.
typedef struct berth_call {
    uint64_t size;
    const char *name; // op id or class name; layer class
    const char
        *prefix; // name of this piece of the model, "model.layers.0.mlp"; parameters begin with it
    const berth_value *inputs; // BERTH_VALUE_NONE: absent
    uint64_t input_count;
    const berth_attribute *const *attributes; // any order, unknown names are refused
    uint64_t attribute_count;
    berth_value *outputs; // where results go; NULL when only the first is wanted
    uint64_t output_count;
    uint64_t enforce_enable; // ops: 1 wins over custom_ops
} berth_call;

// A part of a stacked parameter, along its output dimension.
typedef struct berth_shard {
    uint64_t size;
    const char *id; // "q", "k", "v", "0", "1": what the model's weight rules name
    int64_t offset;
    int64_t extent;
    // A rank's part: where it begins in the checkpoint's tensor, and that tensor's whole extent.
    // Extent 0: the shard is the whole tensor.
    int64_t stored_offset;
    int64_t stored_extent;
} berth_shard;

// A weight, loaded from the checkpoint tensor of the same name (after the model's weight rules).
typedef struct berth_parameter {
    uint64_t size;
    const char *name;
    const char *alias; // a second name it may be stored under (tied embeddings), or NULL
    const int64_t *shape;
    uint64_t ndim;
    uint64_t is_vector; // 1: converted to the activation dtype at load; 0: kept as stored
    int64_t output_dim; // dimension that shards split, -1: none
    int64_t input_dim;  // dimension that input-parallel ranks split, -1: none
    const berth_shard *const *shards;
    uint64_t shard_count;
    // A rank's part along output_dim (of a parameter without shards) or along input_dim, not both:
    // where it begins in the checkpoint's tensor, and that tensor's whole extent. Of the outputs at
    // most stored_output_count are taken (0: as many as there are), the others are zero. Extent 0:
    // the parameter is the whole tensor.
    int64_t stored_output_offset;
    int64_t stored_output_extent;
    int64_t stored_output_count;
    int64_t stored_input_offset;
    int64_t stored_input_extent;
    double addend; // of a vector: added to every number as it is loaded. From ABI 1.1 on
    // A rank's part of the first dimension where shards divide another one: whole slices, from
    // stored_slice_offset on out of stored_slice_extent; 0: all. From ABI 1.1 on
    int64_t stored_slice_offset;
    int64_t stored_slice_extent;

    // What follows is for layers of a quantization scheme (quant.h). From ABI 1.1 on.
    uint64_t role; // BERTH_PARAMETER_*
    // What the checkpoint's tensor must be of: "i32", "f8_e4m3fn", …; of two float types it is
    // converted. "float": any float type, kept as stored. NULL: as without a scheme. Of what the
    // scheme makes, its type.
    const char *dtype;
    // How many of the layer's outputs (inputs) one element stands for along output_dim (input_dim):
    // codes in a word, rows that share a scale. 0: one. `shape`, shards and the rank's part are in
    // outputs and inputs; the host divides, rounds the last element up, and refuses shards and
    // parts that begin or end inside of an element.
    int64_t output_factor;
    int64_t input_factor;
    // 1: one number per shard, [1] without shards, whatever `shape` says: the tensor of a shard is
    // one number, with or without a dimension. One tensor under the name of the whole is for all.
    uint64_t is_per_tensor;
    // 1: where the checkpoint has nothing under the name, every number is default_value.
    uint64_t is_optional;
    double default_value;
    uint64_t is_scale;      // 1: every number must be finite and greater than zero
    uint64_t is_transposed; // 1: the tensor's last two dimensions are the parameter's, exchanged
} berth_parameter;

// In the graph; only while loading, for process_weights_after_loading, in which case it has no
// value; or made there, and in the graph.
#define BERTH_PARAMETER_RESIDENT 0u
#define BERTH_PARAMETER_STORED   1u
#define BERTH_PARAMETER_MADE     2u

// What a layer keeps of every sequence beside a KV cache: the last inputs of a convolution, the
// state of a recurrence. Declared before the node that uses it; that node's state `index` is then
// [slots, shape...], and the slot of a sequence is the first block of its block table in the cache
// group of the node. What a slot holds when its sequence begins means nothing.
typedef struct berth_layer_state {
    uint64_t size;
    const char *layer; // equals the prefix of the call
    uint64_t index;
    const char *dtype;    // "f32", "f16" or "bf16"
    const int64_t *shape; // of one slot
    uint64_t ndim;
} berth_layer_state;

// The KV cache of an attention layer, declared before the node that uses it.
typedef struct berth_kv_cache {
    uint64_t size;
    const char *layer; // equals the prefix of the call
    int64_t num_heads;
    int64_t num_kv_heads;
    int64_t head_size;
    // Tokens that a query sees, its own included; 0: all before it. From ABI 1.1 on the host may
    // forget what is further back, so no op on the cache may look there.
    int64_t sliding_window;
    // 1: one state of rows that serve as keys and values of all heads; num_kv_heads is 1 and
    // head_size the width of a row. The state is [blocks, block_size, head_size].
    uint64_t is_latent;
    // The sequence is cut into chunks of so many tokens, and a query sees its own only, instead of
    // a window; 0: it is not. From ABI 1.1 on
    int64_t chunk_size;
} berth_kv_cache;

// y = x W^T + b, by way of the layer's quantization method.
typedef struct berth_linear {
    uint64_t size;
    const char *prefix; // "model.layers.0.self_attn.qkv_proj"
    const char *alias;  // prefix of a second place the weight may be stored at, or NULL
    int64_t input_size;
    int64_t output_size; // all shards together
    const berth_shard *const *shards;
    uint64_t shard_count;
    uint64_t has_bias;
    const char *layer_class; // "QKVParallelLinear", for rules that depend on it
    // A rank's part, as in berth_parameter; sizes above are those of the part.
    int64_t stored_output_offset;
    int64_t stored_output_extent;
    int64_t stored_input_offset;
    int64_t stored_input_extent;
    // Set by the host for the slots of a quantization scheme (quant.h). From ABI 1.1 on
    struct berth_quant_layer *quant;
    // A stack of so many layers of these sizes, one for each expert of a mixture; 0: one layer. Its
    // parameters have the layers as their first dimension, of which a rank may have a part, and
    // their names are PREFIX_LEAF. From ABI 1.1 on
    int64_t stack_size;
    int64_t stored_slice_offset;
    int64_t stored_slice_extent;
    // Set by the host: the layer is built by `linear_matrix` of the builder. From ABI 1.1 on
    uint64_t is_matrix;
} berth_linear;

// The experts of a mixture, for tokens that have been given theirs, by way of their quantization
// method: the sum over a token's choices of weight · w2(activation(w13(x))). From ABI 1.1 on
typedef struct berth_experts {
    uint64_t size;
    const char *prefix;      // "model.layers.0.mlp.experts"
    const berth_linear *w13; // stacks; the prefixes are PREFIX.w13 and PREFIX.w2
    const berth_linear *w2;
    berth_value x;            // [tokens, hidden]
    berth_value topk_weights; // [tokens, k] f32
    berth_value topk_ids;     // [tokens, k], -1: no expert
    // Of the op: activation, apply_router_weight_on_input, swiglu_limit, swiglu_alpha, swiglu_beta.
    const berth_attribute *const *attributes;
    uint64_t attribute_count;
} berth_experts;

typedef struct berth_model_description {
    uint64_t size;
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t max_model_len;
    int64_t layer_count;
} berth_model_description;

typedef struct berth_builder berth_builder;
struct berth_builder {
    uint64_t size;
    const berth_host *host;
    const berth_json *config; // config.json in the transformers-5 form, whatever the checkpoint has
    const char *activation_dtype; // of activations and vectors: "f32", "f16" or "bf16"
    void *context;                // the host's own

    // Sizes the host needs; once per model.
    void (*describe)(berth_builder *builder, const berth_model_description *description);
    // An array of the batch: "token_ids", "positions", "logits_rows".
    berth_value (*input)(berth_builder *builder, const char *name);
    berth_value (*parameter)(berth_builder *builder, const berth_parameter *parameter);
    void (*kv_cache)(berth_builder *builder, const berth_kv_cache *cache);
    // A node; returns the first output.
    berth_value (*op)(berth_builder *builder, const berth_call *call);
    // Builds the registered layer of that class (or its replacement); returns the first output.
    berth_value (*layer)(berth_builder *builder, const berth_call *call);
    // create_weights and apply of the quantization method that the layer's prefix gets.
    berth_value (*linear)(berth_builder *builder, const berth_linear *linear, berth_value x);
    // Views, no kernel: `length` elements of a dimension from `start`; the same elements in a new
    // shape.
    berth_value (*slice)(berth_builder *builder, berth_value value, uint64_t dim, int64_t start,
                         int64_t length);
    berth_value (*reshape)(berth_builder *builder, berth_value value, const berth_dim *dims,
                           uint64_t ndim);
    void (*output)(berth_builder *builder, const char *name, berth_value value);
    // The type of a value; after a failure a type of rank 0. Never NULL.
    const berth_value_type *(*type)(berth_builder *builder, berth_value value);
    // A copy of the text that lives as long as the build.
    const char *(*intern)(berth_builder *builder, const char *text, uint64_t length);
    // Ends the build with this status; the first call wins.
    void (*fail)(berth_builder *builder, berth_status status, const char *text, uint64_t length);
    uint64_t (*has_failed)(const berth_builder *builder);
    // A state per sequence; see berth_layer_state. BERTH_HAS(builder, state) asks for the slot.
    void (*state)(berth_builder *builder, const berth_layer_state *state);
    int64_t max_model_len; // the longest sequence that the user wants, 0: as long as it can be
    // Tensors in whose names the text occurs, and those of the parameter of this name, belong to
    // nobody, and that is right.
    void (*ignore)(berth_builder *builder, const char *text);
    // Both stacks' create_weights and apply_experts of the quantization method that the experts
    // get.
    berth_value (*experts)(berth_builder *builder, const berth_experts *experts);
    // What an op on the cache of the layer takes as scale of state 0 (keys) or 1 (values), after
    // kv_cache; BERTH_VALUE_NONE where the cache keeps numbers and no codes. From ABI 1.1 on
    berth_value (*kv_scale)(berth_builder *builder, const char *layer, uint64_t state);
    // Instead of `linear`, for an op that multiplies by the weight in its own way: writes the
    // weight [output_size, input_size] in floats and returns x as the layer's method has products
    // see it. The bias is the caller's. From ABI 1.1 on
    berth_value (*linear_matrix)(berth_builder *builder, const berth_linear *linear, berth_value x,
                                 berth_value *out_weight);
};

// ---- calls as one expression --------------------------------------------------------------------

//   y = BERTH_EMIT(b, "rms_norm", .prefix = name, BERTH_INPUTS(x, weight),
//                  BERTH_ATTRIBUTES(BERTH_F64("eps", eps)));
#define BERTH_EMIT(builder, op_name, ...)                                                          \
    (builder)->op((builder),                                                                       \
                  &(const berth_call){.size = sizeof(berth_call), .name = (op_name), __VA_ARGS__})
#define BERTH_LAYER(builder, class_name, ...)                                                      \
    (builder)->layer(                                                                              \
        (builder),                                                                                 \
        &(const berth_call){.size = sizeof(berth_call), .name = (class_name), __VA_ARGS__})
#define BERTH_INPUTS(...)                                                                          \
    .inputs = (const berth_value[]){__VA_ARGS__},                                                  \
    .input_count = sizeof((berth_value[]){__VA_ARGS__}) / sizeof(berth_value)
#define BERTH_OUTPUTS(array) .outputs = (array), .output_count = sizeof(array) / sizeof((array)[0])
#define BERTH_ATTRIBUTES(...)                                                                      \
    .attributes = (const berth_attribute *const[]){__VA_ARGS__},                                   \
    .attribute_count =                                                                             \
        sizeof((const berth_attribute *const[]){__VA_ARGS__}) / sizeof(berth_attribute *)
#define BERTH_ATTRIBUTE_(attribute_name, attribute_kind, ...)                                      \
    &(const berth_attribute) {                                                                     \
        .size = sizeof(berth_attribute), .name = (attribute_name), .kind = (attribute_kind),       \
        __VA_ARGS__                                                                                \
    }
#define BERTH_I64(name, value)  BERTH_ATTRIBUTE_((name), BERTH_ATTRIBUTE_I64, .i64 = (value))
#define BERTH_F64(name, value)  BERTH_ATTRIBUTE_((name), BERTH_ATTRIBUTE_F64, .f64 = (value))
#define BERTH_BOOL(name, value) BERTH_ATTRIBUTE_((name), BERTH_ATTRIBUTE_BOOL, .i64 = (value))
#define BERTH_TEXT(name, value) BERTH_ATTRIBUTE_((name), BERTH_ATTRIBUTE_STR, .str = (value))
#define BERTH_I64S(name, values, n)                                                                \
    BERTH_ATTRIBUTE_((name), BERTH_ATTRIBUTE_I64S, .i64s = (values), .count = (n))

// ---- helpers over the slots above ---------------------------------------------------------------

// A failure with a formatted text of at most 511 bytes.
BERTH_PRINTF(3, 4)
static inline void berth_build_fail(berth_builder *builder, berth_status status, const char *format,
                                    ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (builder->fail)(builder, status, text, berth_plugin_length_(written));
}

// A formatted name of at most 255 bytes: berth_build_name(b, "%s.%d", prefix, i).
BERTH_PRINTF(2, 3)
static inline const char *berth_build_name(berth_builder *builder, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const uint64_t length = written < 0 ? 0 : written > 255 ? 255 : (uint64_t)written;
    return builder->intern(builder, text, length);
}

// Attributes of a layer's call; an absent one gives the fallback.
static inline int64_t berth_call_i64(const berth_call *call, const char *name, int64_t fallback) {
    const berth_attribute *found =
        berth_attribute_find(call->attributes, call->attribute_count, name);
    return found ? found->i64 : fallback;
}
static inline double berth_call_f64(const berth_call *call, const char *name, double fallback) {
    const berth_attribute *found =
        berth_attribute_find(call->attributes, call->attribute_count, name);
    return found ? found->f64 : fallback;
}
static inline const char *berth_call_str(const berth_call *call, const char *name,
                                         const char *fallback) {
    const berth_attribute *found =
        berth_attribute_find(call->attributes, call->attribute_count, name);
    return found ? found->str : fallback;
}

// The parameter NAME: a vector such as a norm's weight, loaded in the activation dtype.
static inline berth_value berth_build_vector(berth_builder *builder, const char *name,
                                             int64_t length) {
    const berth_parameter parameter = {
        .size = sizeof(berth_parameter),
        .name = name,
        .shape = &length,
        .ndim = 1,
        .is_vector = 1,
        .output_dim = -1,
        .input_dim = -1,
    };
    return builder->parameter(builder, &parameter);
}

#endif
