// SPDX-License-Identifier: Apache-2.0
// Another plugin as it would be if one of its slots were NULL. It opens the library that
// NULLED_LIBRARY names, hands on everything that one registers, first fills each slot that may be
// filled, and then clears the one that NULLED_SLOT names: "berth_platform:72" is the word at byte
// 72 of each berth_platform. Without NULLED_SLOT everything is filled and nothing is cleared.
//
// NULLED_FLAGS are the flags of every addition; NULLED_AS=impl makes an implementation for the key
// "oot" of each override. It has no manifest: --plugin loads it.
#include <berth/plugin.h>

#include <dlfcn.h>
#include <stdlib.h>

#define MAX_PATTERNS 8 // of a pass

// What the constructor and the registration leave for the slots that are called later.
static struct {
    berth_plugin plugin;
    berth_entry_point entry;
    const berth_entry_point *entries[1];
    const berth_plugin *other;
    const berth_host *host;
    berth_registrar *registrar; // the host's, while an entry point runs
    berth_platform platform;    // the other's
    const berth_quant_config *quant;
    berth_quant_method method;
    berth_kv_cache_method kv_method;
} state;

// ---- clearing -----------------------------------------------------------------------------------

static void clear_slot(const char *table_name, void *table) {
    const char *slot = getenv("NULLED_SLOT");
    const size_t length = strlen(table_name);
    if (slot && strncmp(slot, table_name, length) == 0 && slot[length] == ':') {
        memset((char *)table + strtoul(slot + length + 1, NULL, 10), 0, sizeof(uint64_t));
    }
}
#define CLEAR(type, table) clear_slot(#type, (table))

static uint64_t flags(void) {
    const char *text = getenv("NULLED_FLAGS");
    return text ? strtoul(text, NULL, 10) : 0;
}

// ---- slots that the other may have left empty ---------------------------------------------------

static berth_status open_device(void *self, uint64_t device) {
    (void)self, (void)device;
    return BERTH_OK;
}

static void close_device(void *self, uint64_t device) {
    (void)self, (void)device;
}

static berth_status copy_on_device(void *self, uint64_t device, const berth_copy *copy) {
    void *bytes = state.host->alloc(state.host, copy->bytes + 1, 0);
    berth_copy half = *copy;
    half.destination = bytes;
    half.destination_offset = 0;
    berth_status status = state.platform.device->copy_to_host(self, device, &half);
    if (status == BERTH_OK) {
        half = *copy;
        half.source = bytes;
        half.source_offset = 0;
        status = state.platform.device->copy_to_device(self, device, &half);
    }
    state.host->free(state.host, bytes);
    return status;
}

static berth_status memory_info(void *self, uint64_t device, uint64_t *out_free,
                                uint64_t *out_total) {
    (void)self, (void)device;
    *out_free = *out_total = UINT64_C(1) << 30;
    return BERTH_OK;
}

static berth_status accept_config(void *self, berth_config *config) {
    (void)self, (void)config;
    return BERTH_OK;
}

static berth_status accept_name(void *self, const char *name) {
    (void)self, (void)name;
    return BERTH_OK;
}

static berth_status accept_request(void *self, int64_t prompt_tokens, int64_t max_tokens) {
    (void)self, (void)prompt_tokens, (void)max_tokens;
    return BERTH_OK;
}

static berth_status get_attn_backend(void *self, const berth_attention_query *query,
                                     const berth_attention_backend **out) {
    (void)self, (void)query, (void)out;
    return BERTH_PLUGIN_FAIL(state.host, BERTH_UNSUPPORTED, "no backend");
}

static void shut_down(void) {
    if (state.other->shutdown) {
        state.other->shutdown();
    }
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    (void)device;
    *out_self = (void *)site;
    return BERTH_OK;
}

static void destroy(void *self) {
    (void)self;
}

static uint64_t workspace(void *self, uint64_t tokens) {
    (void)self;
    return 64 * tokens;
}

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    (void)site, (void)input;
    return 0;
}

static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    (void)site, (void)input, (void)source, (void)destination;
    return BERTH_UNSUPPORTED;
}

static berth_status never(void *self, const berth_op_args *args) {
    (void)self, (void)args;
    return BERTH_INTERNAL;
}

static berth_status validate(const berth_host *host, const berth_attention_query *query) {
    (void)query;
    return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "never");
}

static berth_status kv_cache_shape(const berth_attention_query *query, uint64_t number,
                                   int64_t num_blocks, int64_t *out_shape, uint64_t *out_ndim) {
    (void)query, (void)number, (void)num_blocks, (void)out_shape, (void)out_ndim;
    return BERTH_UNSUPPORTED;
}

static const berth_dtype dtypes[] = {BERTH_DTYPE_F32};

#define FILL(table, slot, value) ((table)->slot = (table)->slot ? (table)->slot : (value))

// ---- what is handed on --------------------------------------------------------------------------

static void fill_impl(berth_op_impl *impl) {
    FILL(impl, create, create);
    FILL(impl, destroy, destroy);
    FILL(impl, workspace, workspace);
    FILL(impl, packed_bytes, packed_bytes);
    FILL(impl, pack, pack);
    impl->library = NULL; // it lies beside the other, not here
}

static berth_status add_op_override(berth_registrar *registrar, const berth_op_impl *impl,
                                    uint64_t given_flags) {
    (void)registrar;
    berth_op_impl copy = *impl;
    const char *as = getenv("NULLED_AS");
    fill_impl(&copy);
    if (!as || strcmp(as, "impl") != 0) {
        CLEAR(berth_op_impl, &copy);
        return state.registrar->add_op_override(state.registrar, &copy, given_flags | flags());
    }
    copy.dispatch_key = BERTH_DISPATCH_OOT;
    CLEAR(berth_op_impl, &copy);
    return state.registrar->add_op_impl(state.registrar, &copy, given_flags | flags());
}

static berth_status add_op(berth_registrar *registrar, const berth_op *op, uint64_t given_flags) {
    (void)registrar;
    berth_op copy = *op;
    CLEAR(berth_op, &copy);
    return state.registrar->add_op(state.registrar, &copy, given_flags | flags());
}

static berth_status add_layer(berth_registrar *registrar, const berth_layer *layer,
                              uint64_t given_flags) {
    (void)registrar;
    berth_layer copy = *layer;
    CLEAR(berth_layer, &copy);
    return state.registrar->add_layer(state.registrar, &copy, given_flags | flags());
}

static berth_status add_model(berth_registrar *registrar, const berth_model *model,
                              uint64_t given_flags) {
    (void)registrar;
    berth_model copy = *model;
    CLEAR(berth_model, &copy);
    return state.registrar->add_model(state.registrar, &copy, given_flags | flags());
}

static const berth_quant_method *get_quant_method(const berth_host *host, const berth_json *config,
                                                  const berth_linear *linear) {
    state.method = *state.quant->get_quant_method(host, config, linear);
    CLEAR(berth_quant_method, &state.method);
    return &state.method;
}

static void declare_nothing(berth_builder *builder, const berth_kv_cache_layer *layer,
                            berth_value scales[2]) {
    (void)builder, (void)layer, (void)scales;
}

static berth_status make_nothing(const berth_host *host, const berth_kv_cache_layer *layer,
                                 const berth_tensor *const *stored,
                                 const berth_tensor *const *made) {
    (void)host, (void)layer, (void)stored, (void)made;
    return BERTH_OK;
}

// A cache that stays as it is.
static const berth_kv_cache_method *get_kv_cache_method(const berth_host *host,
                                                        berth_kv_cache_layer *layer) {
    (void)host, (void)layer;
    state.kv_method = (berth_kv_cache_method){
        .size = sizeof state.kv_method,
        .name = "nulled",
        .create_weights = declare_nothing,
        .process_weights_after_loading = make_nothing,
    };
    CLEAR(berth_kv_cache_method, &state.kv_method);
    return &state.kv_method;
}

static berth_status add_quant_config(berth_registrar *registrar, const berth_quant_config *config,
                                     uint64_t given_flags) {
    (void)registrar;
    berth_quant_config copy = *config;
    state.quant = config;
    copy.get_quant_method = get_quant_method;
    copy.get_kv_cache_method = get_kv_cache_method;
    CLEAR(berth_quant_config, &copy);
    return state.registrar->add_quant_config(state.registrar, &copy, given_flags | flags());
}

static berth_status add_pass(berth_registrar *registrar, const berth_pass *pass,
                             uint64_t given_flags) {
    (void)registrar;
    berth_pass copy = *pass;
    berth_pass_pattern patterns[MAX_PATTERNS];
    const berth_pass_pattern *pointers[MAX_PATTERNS];
    for (uint64_t i = 0; i < pass->pattern_count && i < MAX_PATTERNS; ++i) {
        patterns[i] = *pass->patterns[i];
        pointers[i] = &patterns[i];
        CLEAR(berth_pass_pattern, &patterns[i]);
    }
    copy.patterns = pointers;
    CLEAR(berth_pass, &copy);
    return state.registrar->add_pass(state.registrar, &copy, given_flags | flags());
}

// A backend that is there and never chosen.
static berth_status add_attention_backend(void) {
    const berth_op_impl impl = {
        .size = sizeof impl,
        .op = "paged_attention",
        .name = "nulled",
        .revision = 1,
        .forward = never,
    };
    berth_attention_backend backend = {
        .size = sizeof backend,
        .name = "nulled",
        .impl = &impl,
        .validate = validate,
        .kv_cache_shape = kv_cache_shape,
    };
    CLEAR(berth_attention_backend, &backend);
    return state.registrar->add_attention_backend(state.registrar, &backend, flags());
}

static berth_registrar wrapped(void);

static berth_status register_ops(void *self, const berth_config *config,
                                 berth_registrar *registrar) {
    berth_registrar own = wrapped();
    state.registrar = registrar;
    const berth_status status = add_attention_backend();
    return status == BERTH_OK ? state.platform.register_ops(self, config, &own) : status;
}

static berth_status add_platform(berth_registrar *registrar, const berth_platform *platform,
                                 void *self) {
    (void)registrar;
    berth_platform copy = *platform;
    berth_device_api device = *platform->device;
    berth_capabilities capabilities = *platform->capabilities;
    berth_worker_api worker = *state.host->worker_base;
    state.platform = *platform;
    FILL(&device, open, open_device);
    FILL(&device, close, close_device);
    FILL(&device, copy_on_device, copy_on_device);
    FILL(&device, memory_info, memory_info);
    capabilities.dtypes = dtypes;
    capabilities.dtype_count = 1;
    capabilities.max_head_size = getenv("NULLED_SMALL_HEADS") ? 4 : 1024;
    capabilities.alignment_bytes = 128;
    worker.features =
        BERTH_WORKER_SLEEP | BERTH_WORKER_LORA | BERTH_WORKER_DRAFT | BERTH_WORKER_PROFILE;
    copy.device = &device;
    copy.capabilities = &capabilities;
    copy.worker = &worker;
    FILL(&copy, default_custom_ops, "all");
    FILL(&copy, apply_config_defaults, accept_config);
    FILL(&copy, check_and_update_config, accept_config);
    FILL(&copy, verify_model_arch, accept_name);
    FILL(&copy, verify_quantization, accept_name);
    FILL(&copy, validate_request, accept_request);
    FILL(&copy, get_attn_backend, get_attn_backend);
    copy.register_ops = register_ops;
    CLEAR(berth_device_api, &device);
    CLEAR(berth_capabilities, &capabilities);
    CLEAR(berth_worker_api, &worker);
    CLEAR(berth_platform, &copy);
    return state.registrar->add_platform(state.registrar, &copy, self);
}

static berth_registrar wrapped(void) {
    return (berth_registrar){
        .size = sizeof(berth_registrar),
        .add_platform = add_platform,
        .add_op = add_op,
        .add_op_override = add_op_override,
        .add_layer = add_layer,
        .add_quant_config = add_quant_config,
        .add_model = add_model,
        .add_pass = add_pass,
    };
}

// ---- the plugin ---------------------------------------------------------------------------------

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    berth_registrar own = wrapped();
    state.host = host;
    state.registrar = registrar;
    return state.other->entry_points[0]->register_plugin(host, &own);
}

extern __attribute__((visibility("default"))) berth_plugin berth_plugin_v1;
berth_plugin berth_plugin_v1;

__attribute__((constructor)) static void open_other(void) {
    const char *path = getenv("NULLED_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    state.other = library ? dlsym(library, "berth_plugin_v1") : NULL;
    if (!state.other) {
        return; // a size of 0 tells the host
    }
    state.entry = *state.other->entry_points[0];
    state.entry.register_plugin = register_plugin;
    state.entries[0] = &state.entry;
    berth_plugin_v1 = *state.other;
    berth_plugin_v1.id = "nulled";
    berth_plugin_v1.entry_points = state.entries;
    berth_plugin_v1.shutdown = shut_down;
    CLEAR(berth_entry_point, &state.entry);
    CLEAR(berth_plugin, &berth_plugin_v1);
}
