// SPDX-License-Identifier: Apache-2.0
// Quantization: who owns how a linear layer's weights are created, loaded and multiplied.
//
// A quantization config recognises a checkpoint and hands out one method per layer. "unquantized"
// is a config like any other.
#ifndef BERTH_QUANT_H
#define BERTH_QUANT_H

#include <berth/builder.h>

#define BERTH_MAX_WEIGHTS 16

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
} berth_quant_method;

typedef struct berth_quant_config {
    uint64_t size;
    const char *name; // [required] "unquantized", "fp8"
    // [required][startup] Whether the checkpoint with this config.json is of this scheme: BERTH_OK
    // or BERTH_NOT_FOUND; another status refuses the checkpoint with its text.
    berth_status (*matches)(const berth_host *host, const berth_json *config);
    // [required][startup] The method of a layer, NULL with a text when the scheme cannot serve it.
    const berth_quant_method *(*get_quant_method)(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear);
} berth_quant_config;

#endif
