// SPDX-License-Identifier: Apache-2.0
// The platform descriptor: who a device is, what it can do, how it is configured, how it runs.
//
// Host code asks the capability struct, never the vendor's name. A slot that is NULL means "not
// provided", which is something else than a slot that answers no.
#ifndef BERTH_PLATFORM_H
#define BERTH_PLATFORM_H

#include <berth/attention.h>
#include <berth/device.h>
#include <berth/host.h>
#include <berth/status.h>
#include <berth/worker.h>

typedef struct berth_registrar berth_registrar; // plugin.h

// `kind` says only which dispatch key a platform uses.
#define BERTH_PLATFORM_CPU  1u
#define BERTH_PLATFORM_CUDA 2u
#define BERTH_PLATFORM_ROCM 3u
#define BERTH_PLATFORM_XPU  4u
#define BERTH_PLATFORM_TPU  5u
#define BERTH_PLATFORM_OOT  6u

#define BERTH_CAPABILITY_HOST_MEMORY   1u // a base is an address that the host may read and write
#define BERTH_CAPABILITY_GRAPH_CAPTURE 2u
#define BERTH_CAPABILITY_PINNED_MEMORY 4u
#define BERTH_CAPABILITY_SLEEP         8u // nobody asks: the host's worker sleeps on every device
#define BERTH_CAPABILITY_HYBRID_KV     16u
#define BERTH_CAPABILITY_STREAMS       32u

typedef struct berth_capabilities {
    uint64_t size;
    uint64_t flags;            // BERTH_CAPABILITY_*
    const berth_dtype *dtypes; // activation dtypes; the first is taken when `auto` is not supported
    uint64_t dtype_count;
    berth_dtype fp8_dtype;  // BERTH_DTYPE_NONE: no fp8
    int32_t memory_type;    // device_type of its tensors, BERTH_MEMORY_*
    uint64_t max_head_size; // of attention, a model with larger heads is refused; 0: no limit
    uint64_t
        alignment_bytes; // of allocations and of every planned tensor; a power of two, 0 means 64
} berth_capabilities;

// Every slot takes the `self` given to add_platform.
typedef struct berth_platform {
    uint64_t size;
    const char *name;                       // [required] must equal the entry point's name
    const char *vendor;                     // [required]
    uint64_t kind;                          // [required] BERTH_PLATFORM_*
    const char *device_type;                // [required] handle that overrides match, "cuda"
    const char *device_name;                // [required] label for people
    const char *dispatch_key;               // [inherit] BERTH_DISPATCH_*; NULL: the key of `kind`
    const berth_capabilities *capabilities; // [required]
    const berth_device_api *device;         // [required]
    const berth_worker_api *worker;         // [inherit] NULL: the default worker
    // [inherit] Base of custom_ops when the user gave none: "all" or "none". NULL: the host's rule.
    const char *default_custom_ops;

    berth_status (*device_count)(void *self,
                                 uint64_t *out_count); // [required][startup] creates no context
    berth_status (*device_info)(void *self, uint64_t device,
                                berth_device_info *out); // [required][startup]
    // [inherit][startup] Config hooks, each called exactly once, in this order: defaults before
    // anything is derived from the configuration, the second after everything was.
    berth_status (*apply_config_defaults)(void *self, berth_config *config);
    berth_status (*check_and_update_config)(void *self,
                                            berth_config *config); // [inherit][startup]
    // [inherit][startup] Refuse with BERTH_UNSUPPORTED and a text. NULL: everything is accepted.
    // Asked once per model, before its graph is built.
    berth_status (*verify_model_arch)(void *self, const char *architecture);
    berth_status (*verify_quantization)(void *self,
                                        const char *quantization); // [inherit][startup]
    // [inherit][engine] Per request: prompt length and wanted output, in tokens.
    berth_status (*validate_request)(void *self, int64_t prompt_tokens, int64_t max_tokens);
    // [inherit][startup] The attention backend for a layer. BERTH_UNSUPPORTED with a text lists why
    // each candidate was passed over; NULL or unsupported: the op's implementations are asked as
    // for any op.
    berth_status (*get_attn_backend)(void *self, const berth_attention_query *query,
                                     const berth_attention_backend **out);
    // [inherit][startup] Adds ops, implementations and overrides, in every worker process, after
    // the configuration is final and before the model is built.
    berth_status (*register_ops)(void *self, const berth_config *config,
                                 berth_registrar *registrar);
    // [inherit][startup] Frees `self`, after the worker and the device are closed.
    void (*destroy)(void *self);
} berth_platform;

#endif
