// SPDX-License-Identifier: Apache-2.0
// A model while it is built: the berth_builder that plugins write to, and what stands behind it.
// Private to this module.
#ifndef BERTH_MODEL_BUILDING_H
#define BERTH_MODEL_BUILDING_H

#include <berth/quant.h>

#include "base/array.h"
#include "base/map.h"
#include "model/model.h"
#include "model/parameters.h"

// A layer of a quantization scheme: what its method declared, and what that is made of. Kept by the
// result, since the method is called again when the weights are loaded.
typedef struct berth_processing {
    const berth_quant_entry *scheme;
    const berth_quant_entry *asked;        // while its get_quant_method runs
    const struct berth_building *building; // the same
    const berth_quant_method *inherited;   // NULL: nobody has asked, or there is none
    berth_quant_method method;
    berth_linear linear; // with everything behind it
    berth_quant_layer layer;
    const berth_experts *experts; // of the first stack: how they were built; NULL: a layer
    const berth_weight *stored[BERTH_MAX_WEIGHTS];
    size_t stored_count;
    const berth_weight *made[BERTH_MAX_WEIGHTS];
    size_t made_count;
    const char *name; // of the layer
    // Of an attention layer's cache, in place of `method` and `linear`; kv_method.name NULL: it is
    // a linear layer.
    berth_kv_cache_method kv_method;
    berth_kv_cache_layer kv_layer;
    berth_kv_cache cache;
} berth_processing;

// A cache that holds codes.
typedef struct berth_kv_codes {
    const berth_processing *layer;
    berth_value scales[2];
} berth_kv_codes;

// Adds to this thread's report which layer, of which scheme, a weight was declared for; `layer`
// NULL adds nothing.
void berth_processing_note(const berth_processing *layer, const char *doing);

typedef struct berth_building {
    berth_builder face; // what plugins see
    const berth_registry *registry;
    const berth_config *config;
    const berth_quant_entry *quantization;
    const berth_json *quant_config; // the document that it recognised
    berth_processing *processing;   // while create_weights of a method runs
    berth_array(berth_layer_scheme) schemes;
    berth_dtype activation;
    berth_arena *arena; // of the result
    berth_graph_builder *graph;
    berth_parameters *parameters;
    berth_model_description description;
    bool is_described;
    berth_array(berth_kv_cache_spec) kv_caches;
    berth_array(berth_kv_codes) kv_codes;
    berth_map cache_layers; // layer → index into kv_caches
    uint32_t depth;         // layers inside layers
    int64_t state_slots;    // of states per sequence; 0: as many as the executor is told later
} berth_building;

// An empty build in an arena of its own, for berth_model_destroy.
BERTH_MUST_CHECK berth_status berth_model_build_new(berth_model_build **out_build);

// What is built of the request, by the scheme where it is chosen; of what the build itself fills
// nothing is set.
berth_building berth_building_of(const berth_model_request *request, const berth_scheme *scheme,
                                 berth_arena *arena);

// Fills the slots of the face. The other fields are set by the caller, before the first use.
void berth_building_open(berth_building *building, const berth_json *config);

// Hands weights, caches and the description over to the result.
BERTH_MUST_CHECK berth_status berth_building_collect(const berth_building *building,
                                                     berth_model_build *build);

// A checkpoint of tensors that lie elsewhere, with an empty config.json.
BERTH_MUST_CHECK berth_status berth_checkpoint_of(const berth_stored_tensor *const *tensors,
                                                  size_t count, berth_checkpoint **out_checkpoint);

// What a checkpoint says about its quantization: config.json, or a file beside it that a registered
// scheme knows, as the host's own document, which the caller destroys.
BERTH_MUST_CHECK berth_status berth_quant_document_read(const berth_registry *registry,
                                                        const berth_checkpoint *checkpoint,
                                                        const berth_json **out_document,
                                                        berth_json **out_own);
// Sets the scheme of the checkpoint: of the registered quantization configs the first that
// overrides, else the one that recognises `building->quant_config`. `wanted` is the user's, NULL:
// any. UNSUPPORTED names the checkpoint's own scheme, and the nearest known one, when nobody does.
BERTH_MUST_CHECK berth_status berth_quantization_choose(berth_building *building,
                                                        const berth_checkpoint *checkpoint,
                                                        const char *wanted);
// Lets the scheme's method build one linear layer; where linear->is_matrix, `out_weight` is written
// and `out_y` is x as the method has products see it.
BERTH_MUST_CHECK berth_status berth_quantization_build(berth_building *building,
                                                       const berth_linear *linear, berth_value x,
                                                       berth_value *out_weight, berth_value *out_y);
// Lets the scheme's method build the experts of a mixture.
BERTH_MUST_CHECK berth_status berth_quantization_experts(berth_building *building,
                                                         const berth_experts *experts,
                                                         berth_value *out_y);
// Of the user's list quantization_config.ignore: refuses one where the scheme quantizes nothing at
// load; whether it names the layer. INVALID_ARGUMENT names two modules of one layer of which it
// names one.
BERTH_MUST_CHECK berth_status berth_quant_ignore_check(const berth_building *building,
                                                       const berth_checkpoint *checkpoint,
                                                       bool is_at_load);
BERTH_MUST_CHECK berth_status berth_quant_ignore_find(const berth_building *building,
                                                      const berth_processing *layer, bool *out);
// The config "unquantized", which others leave layers to; NULL: no plugin registers it.
const berth_quant_entry *berth_quantization_plain(const berth_registry *registry);
// Asks who has a say in how this cache is kept: its type, of the activations unless a method says
// otherwise, and the method's parameters.
BERTH_MUST_CHECK berth_status berth_kv_method_choose(berth_building *building,
                                                     const berth_kv_cache *cache,
                                                     berth_dtype *out_dtype);
// The scale of a cache of codes; BERTH_VALUE_NONE: it holds none.
berth_value berth_kv_method_scale(const berth_building *building, const char *layer,
                                  uint64_t state);
// Logs how many caches of codes have no scales in the checkpoint.
void berth_kv_method_report(const berth_building *building);
// A parameter that the running method declares as stored or made.
BERTH_MUST_CHECK berth_status berth_quantization_take(berth_building *building,
                                                      const berth_parameter *declared,
                                                      berth_weight *weight);

#endif
