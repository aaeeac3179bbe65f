// SPDX-License-Identifier: Apache-2.0
// Out-of-tree platforms with every fate: two that are there, one that declines, one that fails, one
// that forgets to add itself, one with a built-in's name, and one that provides every slot.
#include "../fake_platform.h"

FAKE_PLATFORM(alpha, "alpha", BERTH_PLATFORM_OOT)
FAKE_PLATFORM(beta, "beta", BERTH_PLATFORM_OOT)
FAKE_PLATFORM(cuda, "cuda", BERTH_PLATFORM_OOT)

static berth_status register_absent(const berth_host *host, berth_registrar *registrar) {
    (void)registrar;
    return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED, "no such hardware here");
}
FAKE_ENTRY(absent, "absent")

static berth_status register_xpu(const berth_host *host, berth_registrar *registrar) {
    return register_absent(host, registrar);
}
FAKE_ENTRY(xpu, "xpu")

static berth_status register_broken(const berth_host *host, berth_registrar *registrar) {
    (void)registrar;
    return BERTH_PLUGIN_FAIL(host, BERTH_UNAVAILABLE, "the driver is older than 5.0");
}
FAKE_ENTRY(broken, "broken")

static berth_status register_silent(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    (void)registrar;
    return BERTH_OK;
}
FAKE_ENTRY(silent, "silent")

// ---- every slot ---------------------------------------------------------------------------------

static fake_state state_full;

static berth_status full_open(void *self, uint64_t device) {
    (void)device;
    return fake_answer(self, "open");
}

static void full_close(void *self, uint64_t device) {
    (void)device;
    fake_note(self, "close");
}

static berth_status full_copy(void *self, uint64_t device, const berth_copy *copy) {
    const fake_block *to = copy->destination;
    const fake_block *from = copy->source;
    (void)device;
    memmove(to->data + copy->destination_offset, from->data + copy->source_offset, copy->bytes);
    return fake_answer(self, "copy_on_device");
}

static berth_status full_memory(void *self, uint64_t device, uint64_t *out_free,
                                uint64_t *out_total) {
    const fake_state *state = self;
    (void)device;
    *out_total = 1000;
    *out_free = 1000 - state->live_bytes;
    return BERTH_OK;
}

static berth_status full_defaults(void *self, berth_config *config) {
    const fake_state *state = self;
    const berth_status status = fake_answer(self, "apply_config_defaults");
    return status != BERTH_OK ? status : state->host->config_set_i64(config, "block_size", 32);
}

static berth_status full_update(void *self, berth_config *config) {
    const fake_state *state = self;
    fake_note(self, "check_and_update_config");
    return state->host->config_set_str(config, "custom_ops", "all,+full_op");
}

static berth_status full_arch(void *self, const char *architecture) {
    (void)architecture;
    return fake_answer(self, "verify_model_arch");
}

static berth_status full_quantization(void *self, const char *quantization) {
    (void)quantization;
    return fake_answer(self, "verify_quantization");
}

static berth_status full_request(void *self, int64_t prompt_tokens, int64_t max_tokens) {
    const fake_state *state = self;
    return prompt_tokens + max_tokens <= 100
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(state->host, BERTH_UNSUPPORTED, "more than 100 tokens");
}

static berth_status full_attention(void *self, const berth_attention_query *query,
                                   const berth_attention_backend **out) {
    static const berth_attention_backend backend = {
        .size = sizeof(berth_attention_backend),
        .name = "full_attention",
    };
    const berth_status status = fake_answer(self, "get_attn_backend");
    *out = query->head_size == 1 ? NULL : &backend;
    return status;
}

static berth_status full_ops(void *self, const berth_config *config, berth_registrar *registrar) {
    const fake_state *state = self;
    int64_t block_size = 0;
    (void)registrar;
    const berth_status status = state->host->config_get_i64(config, "block_size", &block_size);
    fake_note(self, block_size == 32 ? "register_ops(32)" : "register_ops");
    return status != BERTH_OK ? status : state->answer;
}

static void full_destroy(void *self) {
    fake_note(self, "destroy");
}

static const berth_device_api full_device = {
    .size = sizeof(berth_device_api),
    .allocate = fake_allocate,
    .release = fake_release,
    .copy_to_device = fake_upload,
    .copy_to_host = fake_download,
    .synchronize = fake_synchronize,
    .open = full_open,
    .close = full_close,
    .copy_on_device = full_copy,
    .memory_info = full_memory,
};

static const berth_platform full = {
    .size = sizeof(berth_platform),
    .name = "full",
    .vendor = "Fakes",
    .kind = BERTH_PLATFORM_ROCM,
    .device_type = "full",
    .device_name = "Fake with everything",
    .capabilities = &fake_capabilities,
    .device = &full_device,
    .device_count = fake_count,
    .device_info = fake_info,
    .apply_config_defaults = full_defaults,
    .check_and_update_config = full_update,
    .verify_model_arch = full_arch,
    .verify_quantization = full_quantization,
    .validate_request = full_request,
    .get_attn_backend = full_attention,
    .register_ops = full_ops,
    .destroy = full_destroy,
};

static berth_status register_full(const berth_host *host, berth_registrar *registrar) {
    return fake_register(host, registrar, &full, &state_full);
}
FAKE_ENTRY(full, "full")

static void shutdown(void) {
    memset(&state_alpha, 0, sizeof(state_alpha));
    memset(&state_beta, 0, sizeof(state_beta));
    memset(&state_cuda, 0, sizeof(state_cuda));
    memset(&state_full, 0, sizeof(state_full));
}

static const berth_entry_point *const points[] = {
    &point_alpha, &point_beta,   &point_cuda,   &point_absent,
    &point_xpu,   &point_broken, &point_silent, &point_full,
};

BERTH_PLUGIN_DEFINE(.id = "fake-platforms", .version = "1.0.0", .vendor = "Fakes",
                    .entry_points = points, .entry_point_count = sizeof(points) / sizeof(points[0]),
                    .shutdown = shutdown);
