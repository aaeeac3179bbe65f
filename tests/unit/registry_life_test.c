// SPDX-License-Identifier: Apache-2.0
// registry: register_ops, failure texts of nested calls, the digest, the order at the end, and what
// it all may cost.
#include "registry_rig.h"

#include "base/clock.h"
#include "base/thread.h"

static const char *const on_fake[] = {"fake"};
static const berth_op op_rms = OP("rms_norm", "RMSNorm");
static const berth_op op_silu = OP("silu_and_mul", "SiluAndMul");
static const berth_op_impl override_rms = OVERRIDE("RMSNorm", "better", on_fake);
static const berth_op_impl override_typo = OVERRIDE("rms_norn", "typo", on_fake);
static const berth_op_impl impl_silu = IMPL("silu_and_mul", "fast", "oot", .priority = 3);
static const berth_model model = MODEL("LlamaForCausalLM");

static char trace[256];

static void note(const char *text) {
    (void)snprintf(trace + strlen(trace), sizeof(trace) - strlen(trace), "%s ", text);
}

static void destroy_alpha(void *self) {
    note(self);
}

static void shut_alpha(void) {
    note("alpha");
}

static void shut_beta(void) {
    note("beta");
}

static const berth_platform platform_alpha = PLATFORM("alpha", .destroy = destroy_alpha);
static const berth_platform platform_gamma = PLATFORM("gamma", .destroy = destroy_alpha);
static char self_alpha[] = "destroy-alpha";
static char self_gamma[] = "destroy-gamma";
FAKE_SHUTDOWN(alpha, BERTH_GROUP_PLATFORM, shut_alpha,
              { return registrar->add_platform(registrar, &platform_alpha, self_alpha); });
FAKE_SHUTDOWN(beta, BERTH_GROUP_GENERAL, shut_beta, {
    BERTH_TRY(registrar->add_op(registrar, &op_rms, 0));
    return registrar->add_op(registrar, &op_silu, 0);
});
FAKE(gamma, BERTH_GROUP_PLATFORM,
     { return registrar->add_platform(registrar, &platform_gamma, self_gamma); });
FAKE(delta, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_op_impl(registrar, &impl_silu, 0));
    return registrar->add_model(registrar, &model, 0);
});

// ---- the end ------------------------------------------------------------------------------------

static void shut_failed(void) {
    note("failed");
}
static void shut_idle(void) {
    note("idle");
}
FAKE_SHUTDOWN(failed, BERTH_GROUP_GENERAL, shut_failed,
              { return BERTH_PLUGIN_FAIL(host, BERTH_IO, "no"); });
FAKE_SHUTDOWN(idle, BERTH_GROUP_GENERAL, shut_idle, { return BERTH_OK; });

TEST(registry_ends_platforms_before_plugins_and_both_in_reverse) {
    rig in;
    rig_open(&in);
    trace[0] = '\0';
    CHECK_STATE(rig_add(&in, &alpha), BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(rig_add(&in, &beta), BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(rig_add(&in, &gamma), BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(rig_add(&in, &failed), BERTH_PLUGIN_REGISTER_FAILED);
    berth_candidate *candidate = NULL;
    berth_opened *opened = NULL;
    CHECK_OK(rig_adopt(&in, &idle, &candidate, &opened)); // opened, but no entry point of it runs
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STR(trace, "");
    rig_close(&in);
    CHECK_STR(trace, "destroy-gamma destroy-alpha failed beta alpha ");
    berth_registry_destroy(NULL);
}

// ---- register_ops -------------------------------------------------------------------------------

static berth_status add_override(void *self, berth_registrar *registrar) {
    return registrar->add_op_override(registrar, self, 0);
}

static berth_status add_nothing(void *self, berth_registrar *registrar) {
    (void)self, (void)registrar;
    return BERTH_FAIL(UNAVAILABLE, "the kernels are missing");
}

TEST(registry_takes_what_register_ops_adds) {
    rig in;
    rig_open(&in);
    CHECK_STATE(rig_add(&in, &alpha), BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(rig_add(&in, &beta), BERTH_PLUGIN_ACTIVE);
    const berth_platform_entry *platform = berth_registry_platform_at(in.registry, 0);
    CHECK_PTR(platform->self, self_alpha);
    CHECK_PTR(platform->platform.device, &platform->device);
    CHECK_PTR(platform->platform.capabilities, &platform->capabilities);
    CHECK_NULL(platform->platform.worker);
    CHECK_UINT(platform->worker.size, sizeof(berth_worker_api));
    CHECK_OK(berth_registry_transaction(in.registry, platform->owner, add_override,
                                        (void *)(uintptr_t)&override_rms));
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_UINT(berth_registry_find_op(in.registry, "rms_norm")->override_count, 1);
    CHECK_STATUS(berth_registry_transaction(in.registry, platform->owner, add_override, NULL),
                 BERTH_SEALED);
    rig_close(&in);
}

TEST(registry_fails_when_the_register_ops_of_the_platform_fails) {
    rig in;
    rig_open(&in);
    const berth_candidate *candidate = rig_add(&in, &alpha);
    const berth_platform_entry *platform = berth_registry_platform_at(in.registry, 0);
    CHECK_STATUS(berth_registry_transaction(in.registry, platform->owner, add_nothing, NULL),
                 BERTH_UNAVAILABLE);
    CHECK_STR(berth_status_message(), "the kernels are missing");
    CHECK_REFUSED(candidate, "the kernels are missing");
    CHECK_STATUS(berth_registry_transaction(in.registry, platform->owner, add_override, NULL),
                 BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "berth_op_impl is NULL");
    rig_close(&in);
}

TEST(registry_fails_to_freeze_when_the_platform_overrides_an_unknown_op) {
    rig in;
    rig_open(&in);
    const berth_candidate *candidate = rig_add(&in, &alpha);
    CHECK_STATE(rig_add(&in, &beta), BERTH_PLUGIN_ACTIVE);
    const berth_platform_entry *platform = berth_registry_platform_at(in.registry, 0);
    CHECK_OK(berth_registry_transaction(in.registry, platform->owner, add_override,
                                        (void *)(uintptr_t)&override_typo));
    CHECK_STATUS(berth_registry_freeze(in.registry), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "platform 'alpha' of plugin 'alpha' 1.0: no op 'rms_norn'; "
                                      "did you mean 'rms_norm'?");
    CHECK_REFUSED(candidate, "no op 'rms_norn'; did you mean 'rms_norm'?");
    rig_close(&in);
}

// ---- failure texts ------------------------------------------------------------------------------

static const berth_owner owner_outer = {.id = "outer", .version = "1"};
static const berth_owner owner_inner = {.id = "inner", .version = "1"};

TEST(registry_keeps_a_text_per_call) {
    rig in;
    rig_open(&in);
    const berth_host *host = berth_registry_host(in.registry);
    berth_plugin_enter(&owner_outer, "load_model");
    host->fail(host, BERTH_IO, "outer text", 10);
    berth_plugin_enter(&owner_inner, "allocate");
    CHECK_STATUS(berth_plugin_leave(BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "%d asked", 7)),
                 BERTH_OUT_OF_MEMORY);
    CHECK_STR(berth_status_message(), "7 asked (while calling allocate of plugin 'inner')");
    CHECK_STATUS(berth_plugin_leave(BERTH_IO), BERTH_IO);
    CHECK_STR(berth_status_message(), "outer text (while calling load_model of plugin 'outer')");
    rig_close(&in);
}

TEST(registry_forgets_the_text_of_a_call_that_went_well) {
    rig in;
    rig_open(&in);
    const berth_host *host = berth_registry_host(in.registry);
    berth_plugin_enter(&owner_outer, "supports");
    host->fail(host, BERTH_IO, "old", 3);
    CHECK_STATUS(berth_plugin_leave(BERTH_OK), BERTH_OK);
    berth_plugin_enter(&owner_outer, "create");
    CHECK_STATUS(berth_plugin_leave(BERTH_IO), BERTH_IO);
    CHECK_STR(berth_status_message(), "create of plugin 'outer' failed with IO and gave no reason");
    berth_plugin_enter(NULL, "init_device");
    CHECK_STATUS(berth_plugin_leave(-3), BERTH_INTERNAL);
    CHECK_STR(berth_status_message(),
              "init_device of plugin 'host' returned -3, which is no status");
    rig_close(&in);
}

TEST(registry_keeps_the_report_of_a_service_the_plugin_used) {
    rig in;
    rig_open(&in);
    berth_plugin_enter(&owner_outer, "load_model");
    const berth_status inner = BERTH_FAIL(CORRUPT, "model.safetensors: too short");
    CHECK_STATUS(berth_plugin_leave(inner), BERTH_CORRUPT);
    CHECK_STR(berth_status_message(),
              "model.safetensors: too short (while calling load_model of plugin 'outer')");
    // An older report of the same code is not taken for the reason.
    berth_plugin_enter(&owner_outer, "create");
    CHECK_STATUS(berth_plugin_leave(BERTH_CORRUPT), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "gave no reason");
    rig_close(&in);
}

TEST(registry_cuts_a_text_of_more_than_511_bytes) {
    static char longer[600];
    memset(longer, 'x', sizeof(longer));
    longer[510] = '\xc3'; // the second byte of this ä would be the 512th
    longer[511] = '\xa4';
    rig in;
    rig_open(&in);
    const berth_host *host = berth_registry_host(in.registry);
    berth_plugin_enter(&owner_outer, "f");
    host->fail(host, BERTH_IO, longer, sizeof(longer));
    CHECK_STATUS(berth_plugin_leave(BERTH_IO), BERTH_IO);
    berth_status_report report;
    berth_status_take(&report);
    CHECK_UINT(strlen(report.text), 510);
    for (int i = 0; i < 40; ++i) { // deeper than there are frames
        berth_plugin_enter(&owner_outer, "deep");
    }
    host->fail(host, BERTH_IO, "at the bottom", 13);
    CHECK_STATUS(berth_plugin_leave(BERTH_IO), BERTH_IO);
    CHECK_CONTAINS(berth_status_message(), "at the bottom");
    for (int i = 1; i < 40; ++i) {
        CHECK_STATUS(berth_plugin_leave(BERTH_OK), BERTH_OK);
    }
    host->fail(host, BERTH_IO, "outside", 7); // nothing to attach it to
    rig_close(&in);
}

static void fail_in_thread(void *context) {
    const berth_host *host = context;
    for (int i = 0; i < 1000; ++i) {
        berth_plugin_enter(&owner_inner, "forward");
        host->fail(host, BERTH_IO, "mine", 4);
        CHECK_STATUS(berth_plugin_leave(BERTH_IO), BERTH_IO);
    }
}

TEST(registry_keeps_texts_apart_by_thread) {
    rig in;
    rig_open(&in);
    berth_thread thread;
    CHECK_OK(berth_thread_start(&thread, "test", fail_in_thread,
                                (void *)(uintptr_t)berth_registry_host(in.registry)));
    for (int i = 0; i < 1000; ++i) {
        berth_plugin_enter(&owner_outer, "forward");
        CHECK_STATUS(berth_plugin_leave(BERTH_CORRUPT), BERTH_CORRUPT);
    }
    berth_thread_join(&thread);
    CHECK_CONTAINS(berth_status_message(), "'outer' failed with CORRUPT");
    rig_close(&in);
}

// ---- the digest ---------------------------------------------------------------------------------

static uint64_t digest_of(const berth_plugin *const *plugins, size_t count) {
    rig in;
    rig_open(&in);
    for (size_t i = 0; i < count; ++i) {
        CHECK_STATE(rig_add(&in, plugins[i]), BERTH_PLUGIN_ACTIVE);
    }
    CHECK_OK(berth_registry_freeze(in.registry));
    const uint64_t digest = berth_registry_digest(in.registry);
    rig_close(&in);
    return digest;
}

static const berth_op_impl impl_silu_2 = IMPL("silu_and_mul", "fast", "oot", .priority = 4);
static berth_status register_delta_2(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    BERTH_TRY(registrar->add_op_impl(registrar, &impl_silu_2, 0));
    return registrar->add_model(registrar, &model, 0);
}

TEST(registry_has_the_same_digest_for_the_same_plugins_in_any_order) {
    static const berth_plugin *const one[] = {&alpha, &beta, &delta, &gamma};
    static const berth_plugin *const two[] = {&gamma, &delta, &beta, &alpha};
    static const berth_plugin *const fewer[] = {&alpha, &beta, &delta};
    const uint64_t digest = digest_of(one, BERTH_COUNT(one));
    CHECK(digest != 0);
    CHECK_UINT(digest_of(two, BERTH_COUNT(two)), digest);
    CHECK(digest_of(fewer, BERTH_COUNT(fewer)) != digest);

    berth_plugin changed = delta;
    changed.version = "1.1";
    const berth_plugin *const newer[] = {&alpha, &beta, &changed, &gamma};
    CHECK(digest_of(newer, BERTH_COUNT(newer)) != digest);

    berth_entry_point entry = entry_delta;
    entry.register_plugin = register_delta_2;
    const berth_entry_point *const entries[] = {&entry};
    changed = delta;
    changed.entry_points = entries;
    const berth_plugin *const tuned[] = {&alpha, &beta, &changed, &gamma};
    CHECK(digest_of(tuned, BERTH_COUNT(tuned)) != digest);
}

TEST(registry_has_the_same_digest_for_a_plugin_linked_in_and_opened) {
    static const berth_plugin *const plugins[] = {&beta, &delta};
    rig in;
    rig_open(&in);
    CHECK_OK(berth_registry_add_core(in.registry, plugins, 2));
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_UINT(berth_registry_digest(in.registry), digest_of(plugins, 2));
    rig_close(&in);
}

// ---- budgets ------------------------------------------------------------------------------------

#define OPS   64
#define SITES 1000

static char names[OPS][2][24];
static berth_op ops[OPS];
static char impl_names[SITES][24];
static berth_op_impl impls[SITES];
static uint64_t ops_ns;
static const berth_op_argument *const inputs[] = {BERTH_INPUT("x"), BERTH_INPUT("weight"),
                                                  BERTH_OPTIONAL_INPUT("bias")};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-6)};

static void make_many(void) {
    for (int i = 0; i < OPS; ++i) {
        (void)snprintf(names[i][0], sizeof(names[i][0]), "some_op_%d", i);
        (void)snprintf(names[i][1], sizeof(names[i][1]), "SomeOp%d", i);
        ops[i] = (berth_op)OP(names[i][0], names[i][1], .inputs = inputs, .input_count = 3,
                              .attributes = attributes, .attribute_count = 1);
    }
    for (int i = 0; i < SITES; ++i) {
        (void)snprintf(impl_names[i], sizeof(impl_names[i]), "impl_%d", i);
        impls[i] = (berth_op_impl)IMPL(names[i % OPS][0], impl_names[i], "oot", .priority = i % 7);
    }
}

FAKE(many, BERTH_GROUP_GENERAL, {
    const uint64_t start = berth_clock_ns();
    for (int i = 0; i < OPS; ++i) {
        BERTH_TRY(registrar->add_op(registrar, &ops[i], 0));
    }
    ops_ns = berth_clock_ns() - start;
    for (int i = 0; i < SITES; ++i) {
        BERTH_TRY(registrar->add_op_impl(registrar, &impls[i], 0));
    }
    return BERTH_OK;
});

// The figures are those of `berth bench host`; here only that no size is quadratic in disguise.
TEST(registry_registers_and_seals_within_a_hundred_times_its_budget) {
    make_many();
    uint64_t best_ops = UINT64_MAX;
    uint64_t best_freeze = UINT64_MAX;
    for (int turn = 0; turn < 20; ++turn) {
        rig in;
        rig_open(&in);
        CHECK_STATE(rig_add(&in, &many), BERTH_PLUGIN_ACTIVE);
        const uint64_t start = berth_clock_ns();
        CHECK_OK(berth_registry_freeze(in.registry));
        const uint64_t spent = berth_clock_ns() - start;
        best_freeze = spent < best_freeze ? spent : best_freeze;
        best_ops = ops_ns < best_ops ? ops_ns : best_ops;
        CHECK_UINT(berth_registry_op_count(in.registry), OPS);
        rig_close(&in);
    }
    print_message("64 ops: %llu ns; freeze of 1000: %llu ns\n", (unsigned long long)best_ops,
                  (unsigned long long)best_freeze);
    CHECK(best_ops < 100 * 20000);
    CHECK(best_freeze < 100 * 100000);
}
