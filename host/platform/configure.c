// SPDX-License-Identifier: Apache-2.0
// Input: the chosen platform. Output: its configuration hooks run, its ops registered, its answers
// to what the host asks while it builds. A slot that is NULL gives the host's own answer.
#include "platform/platform.h"

#include <string.h>

#include "base/array.h"

typedef berth_status (*config_fn)(void *self, berth_config *config);

#define MAX_KEYS 2

// Rows of keys, each ended by NULL; the first of a row names it.
static const char *const keys_of_name[][MAX_KEYS + 1] = {
    {BERTH_DISPATCH_CPU },
    {BERTH_DISPATCH_CUDA},
    {BERTH_DISPATCH_HIP,  BERTH_DISPATCH_CUDA}, // a kernel of both is written in CUDA's words
    {BERTH_DISPATCH_XPU                  },
    {BERTH_DISPATCH_TPU},
    {BERTH_DISPATCH_OOT                  },
    {BERTH_DISPATCH_NATIVE},
};

static const char *const key_of_kind[] = {
    [BERTH_PLATFORM_CPU] = BERTH_DISPATCH_CPU,  [BERTH_PLATFORM_CUDA] = BERTH_DISPATCH_CUDA,
    [BERTH_PLATFORM_ROCM] = BERTH_DISPATCH_HIP, [BERTH_PLATFORM_XPU] = BERTH_DISPATCH_XPU,
    [BERTH_PLATFORM_TPU] = BERTH_DISPATCH_TPU,  [BERTH_PLATFORM_OOT] = BERTH_DISPATCH_OOT,
};

static const char *const no_keys[] = {NULL};

static const char *const *keys_named(const char *name) {
    for (size_t i = 0; name != NULL && i < BERTH_COUNT(keys_of_name); ++i) {
        if (strcmp(keys_of_name[i][0], name) == 0) {
            return keys_of_name[i];
        }
    }
    return NULL;
}

const char *const *berth_platform_keys(const berth_platform_entry *platform) {
    if (platform == NULL) {
        return no_keys;
    }
    const uint64_t kind = platform->platform.kind;
    const char *of_kind = kind < BERTH_COUNT(key_of_kind) ? key_of_kind[kind] : NULL;
    const char *name = platform->platform.dispatch_key;
    const char *const *keys = keys_named(name == NULL ? of_kind : name);
    return keys == NULL ? no_keys : keys;
}

// ---- configuration ------------------------------------------------------------------------------

static berth_status run_hook(const berth_platform_entry *platform, berth_config *config,
                             const char *slot, config_fn hook) {
    if (hook == NULL) {
        return BERTH_OK;
    }
    berth_config_allow(config, platform->owner->id);
    berth_plugin_enter(platform->owner, slot);
    const berth_status status = berth_plugin_leave(hook(platform->self, config));
    berth_config_allow(config, NULL);
    BERTH_TRY_NOTE(status, "configuring platform '%s'", platform->platform.name);
    return BERTH_OK;
}

// The body of the transaction in which a platform adds its ops.
typedef struct registration {
    const berth_platform_entry *platform;
    const berth_config *config;
} registration;

static berth_status add_ops(void *self, berth_registrar *registrar) {
    const registration *in = self;
    const berth_platform_entry *platform = in->platform;
    berth_plugin_enter(platform->owner, "register_ops");
    return berth_plugin_leave(
        platform->platform.register_ops(platform->self, in->config, registrar));
}

berth_status berth_platform_configure(const berth_platform_entry *platform, berth_config *config,
                                      berth_registry *registry) {
    if (config->is_configured) {
        return BERTH_FAIL(WRONG_STATE, "the configuration hooks of a platform run only once");
    }
    config->is_configured = true;
    if (platform == NULL) {
        return BERTH_OK;
    }
    const berth_platform *slots = &platform->platform;
    if (slots->dispatch_key != NULL && keys_named(slots->dispatch_key) == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "platform '%s' of plugin %s has the dispatch key '%s', which is none of "
                          "cpu, cuda, hip, xpu, tpu, oot, native",
                          slots->name, platform->owner->id, slots->dispatch_key);
    }
    BERTH_TRY(run_hook(platform, config, "apply_config_defaults", slots->apply_config_defaults));
    BERTH_TRY(
        run_hook(platform, config, "check_and_update_config", slots->check_and_update_config));
    if (slots->register_ops == NULL) {
        return BERTH_OK;
    }
    registration in = {.platform = platform, .config = config};
    BERTH_TRY_NOTE(berth_registry_transaction(registry, platform->owner, add_ops, &in),
                   "registering the ops of platform '%s'", slots->name);
    return BERTH_OK;
}

// ---- answers ------------------------------------------------------------------------------------

berth_status berth_platform_verify(const berth_platform_entry *platform, const char *architecture,
                                   const char *quantization) {
    if (platform == NULL) {
        return BERTH_OK;
    }
    const berth_platform *slots = &platform->platform;
    if (architecture != NULL && slots->verify_model_arch != NULL) {
        berth_plugin_enter(platform->owner, "verify_model_arch");
        BERTH_TRY(berth_plugin_leave(slots->verify_model_arch(platform->self, architecture)));
    }
    if (quantization != NULL && slots->verify_quantization != NULL) {
        berth_plugin_enter(platform->owner, "verify_quantization");
        BERTH_TRY(berth_plugin_leave(slots->verify_quantization(platform->self, quantization)));
    }
    return BERTH_OK;
}

berth_status berth_platform_check_request(const berth_platform_entry *platform,
                                          int64_t prompt_tokens, int64_t max_tokens) {
    if (platform == NULL || platform->platform.validate_request == NULL) {
        return BERTH_OK;
    }
    berth_plugin_enter(platform->owner, "validate_request");
    return berth_plugin_leave(
        platform->platform.validate_request(platform->self, prompt_tokens, max_tokens));
}

berth_status berth_platform_attention(const berth_platform_entry *platform,
                                      const berth_attention_query *query,
                                      const berth_attention_backend **out) {
    *out = NULL;
    if (platform == NULL || platform->platform.get_attn_backend == NULL) {
        return BERTH_FAIL(UNSUPPORTED, "platform '%s' chooses no attention backend",
                          platform == NULL ? "host" : platform->platform.name);
    }
    berth_plugin_enter(platform->owner, "get_attn_backend");
    const berth_status status =
        berth_plugin_leave(platform->platform.get_attn_backend(platform->self, query, out));
    if (status == BERTH_OK && *out == NULL) {
        return BERTH_FAIL(INTERNAL, "get_attn_backend of plugin %s succeeded without a backend",
                          platform->owner->id);
    }
    if (status != BERTH_OK) {
        *out = NULL;
    }
    return status;
}
