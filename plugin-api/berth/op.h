// SPDX-License-Identifier: Apache-2.0
// Ops: what an op is (berth_op), and how one runs somewhere (berth_op_impl).
//
// An op is a leaf of the graph: inputs, attributes, outputs, states, a shape rule and a native
// reference in readable C. It has one stable id ("rms_norm") and one class name ("RMSNorm"); both
// name it everywhere. An implementation runs an op on one kind of device, chosen by dispatch key
// and priority. An override is an implementation that comes before all of those. The choice is made
// once, when the model is built, and stored as a function pointer plus self; a forward is then a
// plain call.
#ifndef BERTH_OP_H
#define BERTH_OP_H

#include <berth/batch.h>
#include <berth/host.h>
#include <berth/status.h>
#include <berth/types.h>

// ---- the schema of an op ------------------------------------------------------------------------

// What an argument's memory must look like when a forward gets it; the plan copies where it does
// not.
#define BERTH_LAYOUT_CONTIGUOUS  0u // row-major without gaps
#define BERTH_LAYOUT_ROW_STRIDED 1u // inner dimension contiguous, rows any stride apart
#define BERTH_LAYOUT_ANY         2u // any strides

#define BERTH_ARGUMENT_OPTIONAL 1u // may be absent (NULL in forward); only trailing ones or by name

// One input or one state of an op. A state (KV cache, SSM state) is mutated by the op, belongs to
// the layer that the site names, lives as long as the worker and is ordered by the graph.
typedef struct berth_op_argument {
    uint64_t size;
    const char *name;
    uint64_t flags;  // BERTH_ARGUMENT_*
    uint64_t layout; // BERTH_LAYOUT_*
    uint64_t since;  // revision of the op that brought it, 0: the first. From ABI 1.1 on
} berth_op_argument;

// One attribute of an op. `kind` is BERTH_ATTRIBUTE_*. When `is_required` is 0 and the graph does
// not give it, the default (of the same kind) is used; a NULL default leaves it
// BERTH_ATTRIBUTE_NONE.
typedef struct berth_op_attribute {
    uint64_t size;
    const char *name;
    uint64_t kind;
    uint64_t is_required;
    const berth_attribute *default_value;
    uint64_t since; // revision of the op that brought it, 0: the first. From ABI 1.1 on
} berth_op_attribute;

// One use of an op in a graph: everything that is known before the first step. It lives as long as
// the plan; `inputs` has one entry per declared input, NULL where an optional one is absent,
// `attributes` one entry per declared attribute, in the op's order, defaults filled in.
typedef struct berth_op_site {
    uint64_t size;
    const berth_host *host;
    const struct berth_op *op;
    const char
        *layer; // name of the layer that emitted the node, e.g. "model.layers.0.self_attn.attn"
    const berth_attribute *const *attributes;
    uint64_t attribute_count;
    const berth_value_type *const *inputs;
    uint64_t input_count;
    const berth_value_type *const *outputs; // NULL while infer runs
    uint64_t output_count;
    uint64_t
        parameter_mask;  // bit i: input i is a parameter (a weight), constant for the plan's life
    uint64_t max_tokens; // bound of BERTH_SYMBOL_TOKENS, of BERTH_SYMBOL_SEQUENCES
    uint64_t max_sequences;
    uint64_t cache_group; // index into block_tables and slot_mappings of the batch
    uint64_t block_size;  // tokens per block of the site's cache group, 0 without a state
    // From ABI 1.1 on. Types of the states as the graph declares them, a paged one as one block;
    // parallel to the op's, NULL: absent. None where a site is made without a graph.
    const berth_value_type *const *states;
    uint64_t state_count;
} berth_op_site;

// What infer writes: up to BERTH_MAX_OUTPUTS types and how many there are at this site.
#define BERTH_MAX_INPUTS  16
#define BERTH_MAX_OUTPUTS 8
typedef struct berth_op_result {
    uint64_t size;
    uint64_t count;
    berth_value_type *const *types; // BERTH_MAX_OUTPUTS of them, zeroed but for size
} berth_op_result;

// The operands of one call. Arrays are parallel to the op's declared inputs and states and to the
// site's outputs. Strides and byte offsets are set; layout needs are met.
typedef struct berth_op_args {
    uint64_t size;
    const berth_tensor *const *inputs; // NULL entry: absent
    berth_tensor *const *outputs;
    berth_tensor *const *states;
    const berth_tensor *workspace; // u8 [workspace(self, tokens)], NULL when that is 0
    void *stream;                  // the device's stream, NULL for its default one
    const berth_batch *batch;      // NULL when the op runs outside a model (op runner)
} berth_op_args;

// The run-time function of an implementation or a reference. No allocation, no synchronisation, no
// lock, no file. [engine]
typedef berth_status (*berth_op_forward_fn)(void *self, const berth_op_args *args);

typedef struct berth_op {
    uint64_t size;
    const char *name;       // [required] stable id, [a-z0-9_]+
    const char *class_name; // [required] vLLM's class name
    uint64_t revision;      // [required] of this schema, from 1; raised when it grows or changes
    const berth_op_argument *const *inputs;
    uint64_t input_count; // at most BERTH_MAX_INPUTS
    const berth_op_argument *const *states;
    uint64_t state_count;
    const berth_op_attribute *const *attributes;
    uint64_t attribute_count;
    // [required][startup] The shape and dtype rule. Refuses, with text, what the op cannot compute.
    berth_status (*infer)(const berth_op_site *site, berth_op_result *out);
    // [required][engine] The readable reference on host memory; `self` is the `const berth_op_site
    // *`.
    berth_op_forward_fn reference;
    // [optional][any] Scratch bytes of the reference for a batch of that many tokens; monotone.
    uint64_t (*reference_workspace)(const berth_op_site *site, uint64_t tokens);
    // 1 when the op has a decomposition into primitive ops, so that the default base `none` turns
    // it off.
    uint64_t has_decomposition;
    // From ABI 1.1 on. The oldest revision whose implementations still run every site that uses
    // nothing younger than they are, as `since` of inputs and attributes tells: they are passed
    // over where one is present, or not at its default. 0: only those of this revision run.
    uint64_t compatible_revision;
    // [optional][startup] Whether the op computes every row by itself at this site, rows being the
    // first dimension: row r of an output is made of row r of the inputs that have rows and of all
    // of the other inputs, not of the batch; an output without rows, of inputs without rows. Then a
    // graph may have it compute fewer rows. Types are known. NULL: it does not. From ABI 1.1 on
    uint64_t (*is_rowwise)(const berth_op_site *site);
} berth_op;

// ---- implementations ----------------------------------------------------------------------------

#define BERTH_IMPL_IN_PLACE      1u // output 0 may share the memory of input 0
#define BERTH_IMPL_CAPTURABLE    2u // reads step-varying values only from device buffers
#define BERTH_IMPL_DETERMINISTIC 4u

#define BERTH_DISPATCH_NATIVE "native"
#define BERTH_DISPATCH_CPU    "cpu"
#define BERTH_DISPATCH_CUDA   "cuda"
#define BERTH_DISPATCH_HIP    "hip"
#define BERTH_DISPATCH_XPU    "xpu"
#define BERTH_DISPATCH_TPU    "tpu"
#define BERTH_DISPATCH_OOT    "oot"

// What an implementation may know of the device it is created for.
typedef struct berth_device {
    uint64_t size;
    const char *platform;    // the platform's name
    const char *device_type; // the platform's device_type
    uint64_t index;
    void *self; // the platform's own pointer: only its own implementations may look behind it
} berth_device;

#define BERTH_PACK_ROWS 64 // berth_op_impl.pack_rows gets multiples of so many

typedef struct berth_op_impl {
    uint64_t size;
    const char *op;           // [required] id or class name of the op
    const char *name;         // [required] this implementation's name, for the provenance
    const char *dispatch_key; // [required] BERTH_DISPATCH_*; an override leaves it NULL
    // [required] Of the op's schema it was written for: equal, or as old as the op is compatible.
    uint64_t revision;
    int64_t priority;                // higher is asked first; ties by plugin id, then name
    uint64_t flags;                  // BERTH_IMPL_*
    const char *const *device_types; // overrides: device types whose memory forward accepts
    uint64_t device_type_count;
    // [inherit][startup] Whether this site can be run; BERTH_UNSUPPORTED with a text says why not.
    // NULL: every site of the op.
    berth_status (*supports)(const berth_op_site *site, const berth_device *device);
    // [inherit][startup] The only place that may allocate. NULL: self is the site.
    berth_status (*create)(const berth_op_site *site, const berth_device *device, void **out_self);
    // [inherit][any] Scratch bytes for a batch of that many tokens; monotone. NULL: none.
    uint64_t (*workspace)(void *self, uint64_t tokens);
    berth_op_forward_fn forward; // [required][engine]
    void (*destroy)(void *self); // [inherit][startup] NULL: nothing to free
    // [inherit][startup] The resident layout of a parameter (bit in site->parameter_mask): bytes it
    // needs, 0 = keep it as stored. Both or neither. `pack` runs once, after loading, before
    // create; `source` is the parameter as loaded and `destination` u8 [bytes], both in host
    // memory. The destination is what forward gets as that input: shape and dtype of the parameter,
    // data packed.
    uint64_t (*packed_bytes)(const berth_op_site *site, uint64_t input);
    berth_status (*pack)(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination); // [inherit][startup]
    // [inherit][startup] The same for some rows of the parameter, all dimensions but the last taken
    // as one: `source` [n, last] are its rows from `first` on. Both are multiples of
    // BERTH_PACK_ROWS, unless the rows are the last. Called instead of `pack`, on several threads
    // at once for different rows of one destination. NULL: parameters are packed whole. From
    // ABI 1.1 on
    berth_status (*pack_rows)(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                              int64_t first, const berth_tensor *destination);
    // [optional] File name of the plugin's op library that has a faster form of this implementation
    // (op_library.h). NULL: there is none. From ABI 1.1 on
    const char *library;
} berth_op_impl;

// The attribute of that name; NULL when the op's schema has none. Present, but absent at this site,
// is kind BERTH_ATTRIBUTE_NONE.
static inline const berth_attribute *berth_site_attribute(const berth_op_site *site,
                                                          const char *name) {
    return berth_attribute_find(site->attributes, site->attribute_count, name);
}

// ---- shorthand for tables -----------------------------------------------------------------------

// Elements of the pointer arrays above, to be used at file scope:
//   static const berth_op_argument *const inputs[] = {BERTH_INPUT("x"), BERTH_INPUT("weight")};
#define BERTH_INPUT(argument_name)                                                                 \
    &(const berth_op_argument) {                                                                   \
        .size = sizeof(berth_op_argument), .name = (argument_name)                                 \
    }
#define BERTH_OPTIONAL_INPUT(argument_name)                                                        \
    &(const berth_op_argument) {                                                                   \
        .size = sizeof(berth_op_argument), .name = (argument_name),                                \
        .flags = BERTH_ARGUMENT_OPTIONAL                                                           \
    }
// Optional, and only since a later revision of the op.
#define BERTH_LATER_INPUT(argument_name, revision)                                                 \
    &(const berth_op_argument) {                                                                   \
        .size = sizeof(berth_op_argument), .name = (argument_name),                                \
        .flags = BERTH_ARGUMENT_OPTIONAL, .since = (revision)                                      \
    }
#define BERTH_STRIDED_INPUT(argument_name)                                                         \
    &(const berth_op_argument) {                                                                   \
        .size = sizeof(berth_op_argument), .name = (argument_name),                                \
        .layout = BERTH_LAYOUT_ROW_STRIDED                                                         \
    }
#define BERTH_OPTIONAL_STRIDED_INPUT(argument_name)                                                \
    &(const berth_op_argument) {                                                                   \
        .size = sizeof(berth_op_argument), .name = (argument_name),                                \
        .flags = BERTH_ARGUMENT_OPTIONAL, .layout = BERTH_LAYOUT_ROW_STRIDED                       \
    }
#define BERTH_REQUIRED_ATTRIBUTE(attribute_name, attribute_kind)                                   \
    &(const berth_op_attribute) {                                                                  \
        .size = sizeof(berth_op_attribute), .name = (attribute_name), .kind = (attribute_kind),    \
        .is_required = 1                                                                           \
    }
// Optional without a default: BERTH_ATTRIBUTE_NONE where the graph gives none.
#define BERTH_ABSENT_ATTRIBUTE(attribute_name, attribute_kind)                                     \
    &(const berth_op_attribute) {                                                                  \
        .size = sizeof(berth_op_attribute), .name = (attribute_name), .kind = (attribute_kind)     \
    }
#define BERTH_LATER_ATTRIBUTE(attribute_name, attribute_kind, revision)                            \
    &(const berth_op_attribute) {                                                                  \
        .size = sizeof(berth_op_attribute), .name = (attribute_name), .kind = (attribute_kind),    \
        .since = (revision)                                                                        \
    }
#define BERTH_OPTIONAL_ATTRIBUTE(attribute_name, attribute_kind, ...)                              \
    &(const berth_op_attribute) {                                                                  \
        .size = sizeof(berth_op_attribute), .name = (attribute_name), .kind = (attribute_kind),    \
        .default_value = &(const berth_attribute) {                                                \
            .size = sizeof(berth_attribute), .name = (attribute_name), .kind = (attribute_kind),   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

#endif
