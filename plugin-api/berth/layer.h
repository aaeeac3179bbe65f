// SPDX-License-Identifier: Apache-2.0
// Layers: named pieces of model structure that own parameters and emit nodes (vLLM's
// PluggableLayer).
//
// A layer class is looked up by name when a model is built; a plugin replaces a whole layer by
// registering the same name with BERTH_REGISTER_REPLACE. Layers have no enable logic and no
// dispatch; their leaves are ops.
#ifndef BERTH_LAYER_H
#define BERTH_LAYER_H

#include <berth/builder.h>

typedef struct berth_layer {
    uint64_t size;
    const char *name; // [required] vLLM's class name, "RowParallelLinear"
    // [required][startup] Emits the layer: reads call->inputs (BERTH_MAX_INPUTS of them, absent
    // ones BERTH_VALUE_NONE) and attributes, declares parameters whose names begin with
    // call->prefix, and writes call->outputs (room for BERTH_MAX_OUTPUTS, zeroed).
    void (*build)(berth_builder *builder, const berth_call *call);
} berth_layer;

#endif
