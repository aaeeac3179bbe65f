// SPDX-License-Identifier: Apache-2.0
// Checkpoints and model building: a Hugging Face folder plus a model class become a graph and
// parameters.
//
// Knows no device. It is the only module that calls models, layers and quantization schemes.
#ifndef BERTH_MODEL_MODEL_H
#define BERTH_MODEL_MODEL_H

#include <berth/model.h>
#include <berth/worker.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "config/config.h"
#include "graph/graph.h"
#include "registry/registry.h"

// ---- safetensors --------------------------------------------------------------------------------

typedef struct berth_safetensors berth_safetensors;

typedef struct berth_stored_tensor {
    const char *name;
    berth_dtype dtype;
    uint64_t ndim;
    const int64_t *shape;
    const void *data; // mapped, little-endian, row-major; not necessarily aligned
    uint64_t bytes;
    const berth_safetensors *file; // borrowed: it lies there; NULL: in memory of the caller's
} berth_stored_tensor;

// One file, mapped. CORRUPT with file, tensor and rule for every violation of the format.
BERTH_MUST_CHECK berth_status berth_safetensors_open(const char *path,
                                                     berth_safetensors **out_file);
const char *berth_safetensors_path(const berth_safetensors *file);
size_t berth_safetensors_count(const berth_safetensors *file);
// In the order of their data.
const berth_stored_tensor *berth_safetensors_at(const berth_safetensors *file, size_t index);
// NULL when there is none of that name.
const berth_stored_tensor *berth_safetensors_find(const berth_safetensors *file, const char *name);
// Tells the system that `bytes` of a tensor from `first` on were read for the last time; its data
// stays valid. Of few bytes nothing is said.
void berth_stored_tensor_drop(const berth_stored_tensor *tensor, uint64_t first, uint64_t bytes);
void berth_safetensors_close(berth_safetensors *file);
// What the format calls the type, "BF16"; NULL when it has no such type.
const char *berth_safetensors_dtype(berth_dtype dtype);

// ---- a checkpoint folder ------------------------------------------------------------------------

typedef struct berth_checkpoint berth_checkpoint;
// config.json (normalised to the transformers-5 form) and model.safetensors or its index.
BERTH_MUST_CHECK berth_status berth_checkpoint_open(const char *directory,
                                                    berth_checkpoint **out_checkpoint);
const char *berth_checkpoint_directory(const berth_checkpoint *checkpoint);
const berth_json *berth_checkpoint_config(const berth_checkpoint *checkpoint);
// The first of `architectures`, or model_type where there is none.
const char *berth_checkpoint_architecture(const berth_checkpoint *checkpoint);
// The type that config.json names, else the one in which most of the weights are stored; f32 when
// neither is f32, f16 or bf16.
berth_dtype berth_checkpoint_dtype(const berth_checkpoint *checkpoint);
size_t berth_checkpoint_count(const berth_checkpoint *checkpoint);
const berth_stored_tensor *berth_checkpoint_at(const berth_checkpoint *checkpoint, size_t index);
void berth_checkpoint_close(berth_checkpoint *checkpoint);

// ---- generation_config.json ---------------------------------------------------------------------

#define BERTH_GENERATION_STOPS 64

typedef struct berth_generation {
    int32_t stop_ids[BERTH_GENERATION_STOPS]; // eos_token_id, one or several
    size_t stop_count;
} berth_generation;

// What the checkpoint in `directory` says about generating text. max_new_tokens, temperature (0
// with do_sample false), top_k, top_p, min_p and repetition_penalty become defaults of the
// configuration, weaker than whatever the user gave.
// Stop ids that generation_config.json does not have come from config.json.
BERTH_MUST_CHECK berth_status berth_generation_load(const char *directory, berth_config *config,
                                                    berth_generation *out);

// ---- building -----------------------------------------------------------------------------------

// One weight of the graph: where it comes from and what it becomes. Kept by the model.
typedef struct berth_weight {
    const char *name;
    berth_value value;     // in the graph
    berth_value_type type; // resident: constant dims, dtype after conversion
    uint64_t bytes;        // resident
    bool is_vector;
    bool is_padded;                          // its tensors leave rows, which are zero
    double addend;                           // to every number of a vector
    bool is_log_decay;                       // resident is −e^x of what is stored
    bool is_left_out;                        // of the graph: others are made of it
    bool is_scale;                           // every number is finite and greater than zero
    double default_value;                    // of every number, where there are no pieces
    const struct berth_weight_piece *pieces; // one, or one per shard and slice
    size_t piece_count;
    const struct berth_processing *made_by; // NULL: it comes from the pieces
    const struct berth_processing *layer;   // whose method declared it first; NULL: no method did
} berth_weight;

// One linear layer of the model and the quantization method that has it.
typedef struct berth_layer_scheme {
    const char *layer;
    const char *scheme; // the config's name
    const char *method;
    const char *plugin;                // whose scheme it is
    const struct berth_processing *of; // the layer itself
} berth_layer_scheme;

// How a checkpoint is quantized: asked of the plugins once, for all that is built of it.
typedef struct berth_scheme {
    const berth_quant_entry *entry; // borrowed from the registry; NULL: not chosen
    berth_json *document;           // owned; NULL: config.json is it
} berth_scheme;

// The result of a build: graph, weights, caches. Immutable.
typedef struct berth_model_build {
    const char *architecture;
    const char *quantization; // name of the quantization config, "unquantized"
    const berth_owner *owner; // of the model class
    berth_model_description description;
    berth_graph *graph; // owned
    const berth_weight *weights;
    size_t weight_count;
    const berth_kv_cache_spec *kv_caches; // block_size and page_bytes filled in
    size_t kv_cache_count;
    const berth_host *host;            // for the methods that make weights
    const berth_layer_scheme *schemes; // one per linear layer, in the order of the build
    size_t scheme_count;
    berth_scheme chosen;
    const berth_model *names; // the class, whose weight rules name tensors
    berth_arena *arena;       // owned
} berth_model_build;

// What is built of: everything outlives the result but the checkpoint, which must be open until the
// weights are loaded.
typedef struct berth_model_request {
    const berth_registry *registry;
    const berth_config *config;
    const berth_checkpoint *checkpoint;
    berth_dtype activation; // of what is between ops
} berth_model_request;

// The scheme of the checkpoint, for whoever has to be asked about it before anything is built.
// UNSUPPORTED names the checkpoint's own, and the nearest known one, when no plugin has it.
BERTH_MUST_CHECK berth_status berth_scheme_choose(const berth_model_request *request,
                                                  berth_scheme *out);
void berth_scheme_deinit(berth_scheme *scheme);
// Finds the model class by architecture (nearest known name in the error), builds and verifies the
// graph, resolves every weight against the checkpoint: missing and unexpected tensors, shapes and
// dtypes are listed in the error. The scheme is the build's from here on, also after a failure.
BERTH_MUST_CHECK berth_status berth_model_create_of(const berth_model_request *request,
                                                    berth_scheme *scheme,
                                                    berth_model_build **out_build);
// The same for who has nobody to ask about the scheme.
BERTH_MUST_CHECK berth_status berth_model_create(const berth_registry *registry,
                                                 const berth_config *config,
                                                 const berth_checkpoint *checkpoint,
                                                 berth_dtype activation,
                                                 berth_model_build **out_build);

// ---- parts of a model alone ---------------------------------------------------------------------

// A module of the checkpoint, as inputs and outputs of a linear layer.
typedef struct berth_linear_request {
    berth_model_request model; // its checkpoint may have been opened again since the build
    const berth_model_build *of;
    const char *module;
    int64_t rows;
    int64_t inputs;
    int64_t outputs;
} berth_linear_request;
// The layer of the model that has the module, by the method that the model has for it, as a graph:
// of the parameter "x" [rows, inputs] the output "y", where the module's outputs begin at
// `out_first`, and "codes" where the method quantizes its input. A module that is no layer of the
// model's becomes one. Nothing but graph and weights of the result is set.
BERTH_MUST_CHECK berth_status berth_linear_create(const berth_linear_request *request,
                                                  int64_t *out_first,
                                                  berth_model_build **out_build);
// The experts of which the module, "….experts.3", is one: of the parameters "x" and "topk_weights"
// [rows, 1] in f32, for tokens whose ids are the numbers of the expert that they are for, the
// output "y". `out_expert` is the module's.
BERTH_MUST_CHECK berth_status berth_experts_create(const berth_linear_request *request,
                                                   int64_t *out_expert,
                                                   berth_model_build **out_build);
// One layer alone: its class, its weights as a checkpoint would hold them, and a caller that gives
// its inputs.
typedef struct berth_layer_request {
    const berth_registry *registry;
    const berth_config *config;
    berth_dtype activation;
    const berth_call *call; // class, prefix, attributes, how many outputs
    const berth_stored_tensor *const *tensors;
    size_t tensor_count;
    const berth_weight_rule *const *weight_rules; // as a model has them
    uint64_t weight_rule_count;
    int64_t state_slots; // of states per sequence; 0: as a model has them
    // Writes up to BERTH_MAX_INPUTS values; `inputs` is zeroed.
    void (*feed)(void *context, berth_graph_builder *graph, berth_value *inputs);
    void *context;
} berth_layer_request;
// The graph of the layer, its outputs named o0, o1, …; nothing but the graph, weights and caches of
// the result is set. Failures as of berth_model_create. The tensors outlive the result.
BERTH_MUST_CHECK berth_status berth_layer_create(const berth_layer_request *request,
                                                 berth_model_build **out_build);
// The build has this graph from now on, and frees its own: one with the same parameters under the
// same names, whose values have other numbers. INTERNAL names a weight that it lacks.
BERTH_MUST_CHECK berth_status berth_model_adopt(berth_model_build *build, berth_graph *graph);
void berth_model_destroy(berth_model_build *build);
// The resident form of a weight, row-major, where it lies mapped as it is stored; NULL when it has
// to be made: put together from shards, converted, or aligned.
const void *berth_weight_stored(const berth_weight *weight);
// Who wants the weights of a graph. Data is valid during the call.
typedef struct berth_weight_taker {
    void *context;
    // Whether the caller gets this one by rows; NULL: none.
    bool (*has_rows)(const void *context, const berth_weight *weight);
    berth_status (*accept)(void *context, const berth_weight *weight, const void *data);
} berth_weight_taker;
// All other weights of the graph, each once: loaded, or made of others by their quantization
// method. The checkpoint must still be open.
BERTH_MUST_CHECK berth_status berth_model_load(const berth_model_build *build,
                                               const berth_weight_taker *taker);
// The weight was read for the last time: see berth_stored_tensor_drop.
void berth_weight_drop(const berth_weight *weight);
// Its rows, all dimensions but the last taken as one, can be had in any order, on several threads
// at once: each is one run of a tensor, or one column of it where that is stored the other way
// round.
bool berth_weight_has_rows(const berth_weight *weight);
// Rows [first, first + count) as they lie mapped, or made in `buffer`, which has room for them.
const void *berth_weight_rows(const berth_weight *weight, uint64_t first, uint64_t count,
                              void *buffer);
// Those rows were read for the last time.
void berth_weight_drop_rows(const berth_weight *weight, uint64_t first, uint64_t count);
// Writes the resident form to `destination` (weight->bytes): shards placed, vectors converted to
// the activation type. Drops what it has read, piece by piece.
BERTH_MUST_CHECK berth_status berth_weight_load(const berth_weight *weight, void *destination);

#endif
