// SPDX-License-Identifier: Apache-2.0
// registry: transactions, the freeze with its one duplicate policy, overrides, sealing, the digest,
// and the order at the end.
#include "registry_rig.h"

#include "base/text.h"

static const berth_op op_rms = OP("rms_norm", "RMSNorm");
static const berth_op op_silu = OP("silu_and_mul", "SiluAndMul");
static const berth_op op_attention = OP("paged_attention", "PagedAttention");
static const berth_layer layer_linear = LAYER("RowParallelLinear");
static const berth_model model_llama = MODEL("LlamaForCausalLM");
static const berth_quant_config quant_fp8 = QUANT("fp8");
static const char *const on_fake[] = {"fake"};
static const char *const on_two[] = {"cuda", "fake"};
static const berth_op_impl attention_impl = OVERRIDE("paged_attention", "flash", on_fake);
static const berth_attention_backend backend_flash = ATTENTION("FLASH", &attention_impl);

// The ops that the tests build on, as a core plugin gives them.
FAKE(core, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_op(registrar, &op_silu, 0));
    BERTH_TRY(registrar->add_op(registrar, &op_rms, 0));
    return registrar->add_op(registrar, &op_attention, 0);
});

static void open_with_core(rig *in) {
    static const berth_plugin *const plugins[] = {&core};
    rig_open(in);
    CHECK_OK(berth_registry_add_core(in->registry, plugins, 1));
}

// ---- transactions -------------------------------------------------------------------------------

FAKE(fails_late, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_layer(registrar, &layer_linear, 0));
    BERTH_TRY(registrar->add_model(registrar, &model_llama, 0));
    return BERTH_PLUGIN_FAIL(host, BERTH_UNAVAILABLE, "driver %d is too old", 5);
});
FAKE(works, BERTH_GROUP_GENERAL, { return registrar->add_quant_config(registrar, &quant_fp8, 0); });

TEST(registry_drops_all_that_a_failed_entry_point_added) {
    rig in;
    rig_open(&in);
    const berth_candidate *failed = rig_add(&in, &fails_late);
    const berth_candidate *fine = rig_add(&in, &works);
    CHECK_STATE(failed, BERTH_PLUGIN_REGISTER_FAILED);
    CHECK_STR(failed->reason, "driver 5 is too old");
    CHECK_STATE(fine, BERTH_PLUGIN_ACTIVE);
    CHECK_STR(fine->reason, "");
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_NULL(berth_registry_find_layer(in.registry, "RowParallelLinear"));
    CHECK_UINT(berth_registry_model_count(in.registry), 0);
    CHECK_UINT(berth_registry_quant_count(in.registry), 1);
    CHECK_STR(berth_registry_quant_at(in.registry, 0)->config.name, "fp8");
    CHECK_NULL(berth_registry_quant_at(in.registry, 1));
    rig_close(&in);
}

static const berth_layer layer_broken = {.size = sizeof(berth_layer), .name = "NoBuild"};
FAKE(ignores, BERTH_GROUP_GENERAL, {
    const berth_status ignored = registrar->add_layer(registrar, &layer_broken, 0);
    (void)ignored;
    return registrar->add_model(registrar, &model_llama, 0);
});

TEST(registry_does_not_let_a_plugin_ignore_a_failed_add) {
    rig in;
    rig_open(&in);
    CHECK_REFUSED(rig_add(&in, &ignores),
                  "berth_layer NoBuild: the required slot 'build' is not set");
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_NULL(berth_registry_find_model(in.registry, "LlamaForCausalLM"));
    rig_close(&in);
}

FAKE(silent, BERTH_GROUP_GENERAL, { return BERTH_IO; });
FAKE(odd, BERTH_GROUP_GENERAL, { return 77; });
FAKE(declines, BERTH_GROUP_PLATFORM,
     { return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED, "no such card"); });
FAKE(empty, BERTH_GROUP_PLATFORM, { return BERTH_OK; });
FAKE(asks, BERTH_GROUP_GENERAL, {
    int64_t value = 0;
    return host->json_get_i64(NULL, "x", &value);
});

TEST(registry_says_how_a_plugin_failed) {
    rig in;
    rig_open(&in);
    CHECK_REFUSED(rig_add(&in, &silent),
                  "register_plugin of plugin 'silent' failed with IO and gave no reason");
    CHECK_REFUSED(rig_add(&in, &odd), "register_plugin of plugin 'odd' returned 77");
    CHECK_REFUSED(rig_add(&in, &empty), "returned OK without a platform");
    CHECK_REFUSED(rig_add(&in, &asks), "json_get_i64: the handle is NULL");
    const berth_candidate *declined = rig_add(&in, &declines);
    CHECK_STATE(declined, BERTH_PLUGIN_DECLINED);
    CHECK_STR(declined->reason, "no such card");
    rig_close(&in);
}

// ---- places -------------------------------------------------------------------------------------

static const berth_platform platform_misplaced = PLATFORM("misplaced");
static const berth_platform platform_ops = PLATFORM("adds_ops");
static const berth_platform platform_twice = PLATFORM("adds_twice");
static const berth_platform platform_other = PLATFORM("other_name");
FAKE(misplaced, BERTH_GROUP_GENERAL,
     { return registrar->add_platform(registrar, &platform_misplaced, NULL); });
FAKE(adds_ops, BERTH_GROUP_PLATFORM, {
    BERTH_TRY(registrar->add_platform(registrar, &platform_ops, NULL));
    return registrar->add_op(registrar, &op_rms, 0);
});
FAKE(adds_twice, BERTH_GROUP_PLATFORM, {
    BERTH_TRY(registrar->add_platform(registrar, &platform_twice, NULL));
    return registrar->add_platform(registrar, &platform_twice, NULL);
});
FAKE(misnamed, BERTH_GROUP_PLATFORM,
     { return registrar->add_platform(registrar, &platform_other, NULL); });
FAKE(flags, BERTH_GROUP_GENERAL, { return registrar->add_model(registrar, &model_llama, 6); });

TEST(registry_keeps_each_group_to_what_it_may_add) {
    rig in;
    rig_open(&in);
    CHECK_REFUSED(rig_add(&in, &misplaced), "add_platform belongs in an entry point of "
                                            "berth.platform_plugins");
    CHECK_REFUSED(rig_add(&in, &adds_ops), "add_op belongs in the platform's register_ops");
    CHECK_REFUSED(rig_add(&in, &adds_twice), "add_platform is called twice");
    CHECK_REFUSED(rig_add(&in, &misnamed),
                  "the platform's name is 'other_name', that of its entry point 'misnamed'");
    CHECK_REFUSED(rig_add(&in, &flags), "the flags 0x6 are unknown");
    CHECK_UINT(berth_registry_platform_count(in.registry), 0);
    rig_close(&in);
}

static berth_registrar *kept_registrar;
FAKE(keeps, BERTH_GROUP_GENERAL, {
    kept_registrar = registrar;
    return BERTH_OK;
});

TEST(registry_seals_its_tables) {
    rig in;
    rig_open(&in);
    CHECK_STATE(rig_add(&in, &keeps), BERTH_PLUGIN_ACTIVE);
    CHECK_STATUS(kept_registrar->add_op(kept_registrar, &op_rms, 0), BERTH_WRONG_STATE);
    CHECK_UINT(berth_registry_digest(in.registry), 0);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STATUS(kept_registrar->add_platform(kept_registrar, &platform_ops, NULL), BERTH_SEALED);
    CHECK_STATUS(kept_registrar->add_op(kept_registrar, &op_rms, 0), BERTH_SEALED);
    CHECK_STATUS(kept_registrar->add_op_impl(kept_registrar, NULL, 0), BERTH_SEALED);
    CHECK_STATUS(kept_registrar->add_op_override(kept_registrar, NULL, 0), BERTH_SEALED);
    CHECK_STATUS(kept_registrar->add_layer(kept_registrar, &layer_linear, 0), BERTH_SEALED);
    CHECK_STATUS(kept_registrar->add_quant_config(kept_registrar, &quant_fp8, 0), BERTH_SEALED);
    CHECK_STATUS(kept_registrar->add_model(kept_registrar, &model_llama, 0), BERTH_SEALED);
    CHECK_STATUS(kept_registrar->add_attention_backend(kept_registrar, &backend_flash, 0),
                 BERTH_SEALED);
    CHECK_CONTAINS(berth_status_message(), "add_attention_backend comes too late");
    CHECK_STATUS(berth_registry_freeze(in.registry), BERTH_WRONG_STATE);
    berth_candidates none = {0};
    CHECK_STATUS(berth_registry_load(in.registry, &none), BERTH_SEALED);
    CHECK_UINT(berth_registry_op_count(in.registry), 0);
    rig_close(&in);
}

// ---- one duplicate policy -----------------------------------------------------------------------

// Each table once: two plugins add the same name, then a third replaces it, then a fourth.
static const berth_pass pass_fuse = PASS("fuse");
static const berth_op op_new = OP("gelu", "Gelu");
static const berth_op_impl impl_rms = IMPL("rms_norm", "fast", "oot");
static const berth_op_impl override_rms = OVERRIDE("RMSNorm", "better", on_fake);

#define ADDERS(kind, call, table)                                                                  \
    FAKE(kind##_a, BERTH_GROUP_GENERAL, { return registrar->call(registrar, &(table), 0); });      \
    FAKE(kind##_b, BERTH_GROUP_GENERAL, { return registrar->call(registrar, &(table), 0); });      \
    FAKE(kind##_c, BERTH_GROUP_GENERAL,                                                            \
         { return registrar->call(registrar, &(table), BERTH_REGISTER_REPLACE); });                \
    FAKE(kind##_d, BERTH_GROUP_GENERAL,                                                            \
         { return registrar->call(registrar, &(table), BERTH_REGISTER_REPLACE); })

ADDERS(op, add_op, op_new);
ADDERS(override, add_op_override, override_rms);
ADDERS(layer, add_layer, layer_linear);
ADDERS(quant, add_quant_config, quant_fp8);
ADDERS(model, add_model, model_llama);
ADDERS(backend, add_attention_backend, backend_flash);
ADDERS(pass, add_pass, pass_fuse);

typedef struct duplicate_case {
    const char *name;
    const berth_plugin *plugins[4];
    const char *what;
} duplicate_case;

static const duplicate_case duplicate_cases[] = {
    {"ops",                {&op_a, &op_b, &op_c, &op_d},             "op 'gelu'"                },
    {"overrides",
     {&override_a, &override_b, &override_c, &override_d},
     "override of op 'rms_norm' for device type 'fake'"                                         },
    {"layers",             {&layer_a, &layer_b, &layer_c, &layer_d}, "layer 'RowParallelLinear'"},
    {"quantization",       {&quant_a, &quant_b, &quant_c, &quant_d}, "quantization config 'fp8'"},
    {"models",             {&model_a, &model_b, &model_c, &model_d}, "model 'LlamaForCausalLM'" },
    {"attention backends",
     {&backend_a, &backend_b, &backend_c, &backend_d},
     "attention backend 'FLASH'"                                                                },
    {"passes",             {&pass_a, &pass_b, &pass_c, &pass_d},     "pass 'fuse'"              },
};

static void check_duplicate(void **state) {
    const duplicate_case *row = *state;
    char text[256];
    rig in;
    open_with_core(&in);
    // The order of loading does not decide who is the second.
    const berth_candidate *second = rig_add(&in, row->plugins[1]);
    const berth_candidate *first = rig_add(&in, row->plugins[0]);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STATE(first, BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(second, BERTH_PLUGIN_REGISTER_FAILED);
    (void)snprintf(
        text, sizeof(text),
        "%s is added by plugin '%s' 1.0 (entry point '%s') and by plugin '%s' 1.0 (entry "
        "point '%s'); remove one, or let the second register with BERTH_REGISTER_REPLACE",
        row->what, first->id, first->id, second->id, second->id);
    CHECK_STR(second->reason, text);
    rig_close(&in);
}

static const char *owner_in_table(const rig *in, const char *table) {
    const berth_registry *registry = in->registry;
    if (strcmp(table, "ops") == 0) {
        return berth_registry_find_op(registry, "Gelu")->owner->id;
    }
    if (strcmp(table, "overrides") == 0) {
        const berth_op_entry *op = berth_registry_find_op(registry, "rms_norm");
        CHECK_UINT(op->override_count, 1);
        return op->overrides[0]->owner->id;
    }
    if (strcmp(table, "layers") == 0) {
        return berth_registry_find_layer(registry, "RowParallelLinear")->owner->id;
    }
    if (strcmp(table, "quantization") == 0) {
        return berth_registry_quant_at(registry, 0)->owner->id;
    }
    if (strcmp(table, "models") == 0) {
        return berth_registry_model_at(registry, 0)->owner->id;
    }
    if (strcmp(table, "passes") == 0) {
        return berth_registry_pass_at(registry, 0)->owner->id;
    }
    return berth_registry_attention_at(registry, 0)->owner->id;
}

static void check_replacement(void **state) {
    const duplicate_case *row = *state;
    rig in;
    open_with_core(&in);
    const berth_candidate *late = rig_add(&in, row->plugins[3]);
    const berth_candidate *replacement = rig_add(&in, row->plugins[2]);
    const berth_candidate *replaced = rig_add(&in, row->plugins[0]);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STATE(replaced, BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(replacement, BERTH_PLUGIN_ACTIVE);
    CHECK_REFUSED(late, "is replaced by plugin");
    CHECK_CONTAINS(late->reason, row->what);
    CHECK_CONTAINS(late->reason, replacement->id);
    CHECK_STR(owner_in_table(&in, row->name), replacement->id);
    rig_close(&in);
}

static void check_replacing_nothing(void **state) {
    const duplicate_case *row = *state;
    rig in;
    open_with_core(&in);
    const berth_candidate *alone = rig_add(&in, row->plugins[2]);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_REFUSED(alone, "no ");
    CHECK_CONTAINS(alone->reason, " to replace");
    rig_close(&in);
}

TEST_CASES(registry_refuses_the_second_of_a_name_in) {
    for (size_t i = 0; i < BERTH_COUNT(duplicate_cases); ++i) {
        test_add(cases, duplicate_cases[i].name, check_duplicate, (void *)&duplicate_cases[i]);
    }
}

TEST_CASES(registry_replaces_when_asked_and_only_once_in) {
    for (size_t i = 0; i < BERTH_COUNT(duplicate_cases); ++i) {
        test_add(cases, duplicate_cases[i].name, check_replacement, (void *)&duplicate_cases[i]);
    }
}

TEST_CASES(registry_replaces_nothing_that_is_not_there_in) {
    for (size_t i = 0; i < BERTH_COUNT(duplicate_cases); ++i) {
        test_add(cases, duplicate_cases[i].name, check_replacing_nothing,
                 (void *)&duplicate_cases[i]);
    }
}

static const berth_platform platform_same = PLATFORM("same");
#define SAME_PLATFORM(plugin_name)                                                                 \
    FAKE(plugin_name, BERTH_GROUP_PLATFORM,                                                        \
         { return registrar->add_platform(registrar, &platform_same, NULL); })
SAME_PLATFORM(same);
static const berth_plugin same_again = {
    .size = sizeof(berth_plugin),
    .abi_min = BERTH_ABI(1, 0),
    .abi_max = BERTH_ABI_CURRENT,
    .id = "same_again",
    .version = "2.0",
    .vendor = "berth tests",
    .entry_points = entries_same,
    .entry_point_count = 1,
};

TEST(registry_refuses_the_second_platform_of_a_name_before_the_freeze) {
    rig in;
    rig_open(&in);
    const berth_candidate *first = rig_add(&in, &same);
    const berth_candidate *second = rig_add(&in, &same_again);
    CHECK_STATE(first, BERTH_PLUGIN_ACTIVE);
    CHECK_REFUSED(second, "platform 'same' is added by plugin 'same' 1.0 and by plugin "
                          "'same_again' 2.0");
    CHECK_UINT(berth_registry_platform_count(in.registry), 1);
    CHECK_STR(berth_registry_platform_at(in.registry, 0)->owner->id, "same");
    CHECK_NULL(berth_registry_platform_at(in.registry, 1));
    rig_close(&in);
}

static const berth_op op_thief = OP("layer_norm", "RMSNorm");
static const berth_op op_renamed = OP("rms_norm", "RootMeanSquareNorm");
FAKE(thief, BERTH_GROUP_GENERAL, { return registrar->add_op(registrar, &op_thief, 0); });
FAKE(renames, BERTH_GROUP_GENERAL,
     { return registrar->add_op(registrar, &op_renamed, BERTH_REGISTER_REPLACE); });

TEST(registry_counts_the_class_name_of_an_op_as_its_name) {
    rig in;
    open_with_core(&in);
    const berth_candidate *stolen = rig_add(&in, &thief);
    const berth_candidate *renamed = rig_add(&in, &renames);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_REFUSED(stolen, "op 'RMSNorm' is added by plugin 'core'");
    CHECK_REFUSED(renamed, "both names must stay");
    CHECK_PTR(berth_registry_find_op(in.registry, "RMSNorm"),
              berth_registry_find_op(in.registry, "rms_norm"));
    rig_close(&in);
}

FAKE(same_impl, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_op_impl(registrar, &impl_rms, 0));
    return registrar->add_op_impl(registrar, &impl_rms, 0);
});
FAKE(other_impl, BERTH_GROUP_GENERAL, { return registrar->add_op_impl(registrar, &impl_rms, 0); });

TEST(registry_lets_two_plugins_but_not_one_name_an_implementation_alike) {
    rig in;
    open_with_core(&in);
    const berth_candidate *twice = rig_add(&in, &same_impl);
    const berth_candidate *other = rig_add(&in, &other_impl);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_REFUSED(twice, "implementation 'fast' of op 'rms_norm' for key 'oot' is added by");
    CHECK_STATE(other, BERTH_PLUGIN_ACTIVE);
    CHECK_UINT(berth_registry_find_op(in.registry, "rms_norm")->impl_count, 1);
    rig_close(&in);
}

FAKE(replaces_own, BERTH_GROUP_GENERAL, {
    static const berth_op_impl better = IMPL("RMSNorm", "fast", "oot", .priority = 9);
    BERTH_TRY(registrar->add_op_impl(registrar, &impl_rms, 0));
    return registrar->add_op_impl(registrar, &better, BERTH_REGISTER_REPLACE);
});

TEST(registry_replaces_an_implementation_of_the_same_plugin_key_and_name) {
    rig in;
    open_with_core(&in);
    CHECK_STATE(rig_add(&in, &replaces_own), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    const berth_op_entry *op = berth_registry_find_op(in.registry, "rms_norm");
    CHECK_UINT(op->impl_count, 1);
    CHECK_INT(op->impls[0]->impl.priority, 9);
    rig_close(&in);
}

// ---- overrides and implementations --------------------------------------------------------------

static const berth_op_impl override_typo = OVERRIDE("rms_norn", "typo", on_fake);
static const berth_op_impl override_far = OVERRIDE("something_else", "far", on_fake);
static const berth_op_impl impl_old = {
    .size = sizeof(berth_op_impl),
    .op = "rms_norm",
    .name = "old",
    .dispatch_key = "cuda",
    .revision = 3,
    .forward = fake_forward,
};
FAKE(typo, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_layer(registrar, &layer_linear, 0));
    return registrar->add_op_override(registrar, &override_typo, 0);
});
FAKE(far_off, BERTH_GROUP_GENERAL,
     { return registrar->add_op_override(registrar, &override_far, 0); });
FAKE(old, BERTH_GROUP_GENERAL, { return registrar->add_op_impl(registrar, &impl_old, 0); });

TEST(registry_refuses_an_override_of_an_unknown_op) {
    rig in;
    open_with_core(&in);
    const berth_candidate *near = rig_add(&in, &typo);
    const berth_candidate *far = rig_add(&in, &far_off);
    CHECK_STATE(near, BERTH_PLUGIN_ACTIVE); // names resolve at the freeze, not before
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STATE(near, BERTH_PLUGIN_REGISTER_FAILED);
    CHECK_STR(near->reason, "no op 'rms_norn'; did you mean 'rms_norm'?");
    CHECK_STR(far->reason, "no op 'something_else'");
    CHECK_NULL(berth_registry_find_layer(in.registry, "RowParallelLinear"));
    rig_close(&in);
}

TEST(registry_refuses_an_implementation_of_another_revision) {
    rig in;
    open_with_core(&in);
    const berth_candidate *candidate = rig_add(&in, &old);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_REFUSED(candidate, "implementation 'old' is written for revision 3 of op 'rms_norm', "
                             "plugin 'core' has revision 1");
    rig_close(&in);
}

FAKE(early, BERTH_GROUP_GENERAL,
     { return registrar->add_op_override(registrar, &override_rms, 0); });

TEST(registry_takes_an_override_before_its_op) {
    rig in;
    rig_open(&in);
    const berth_candidate *candidate = rig_add(&in, &early);
    CHECK_STATE(rig_add(&in, &core), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STATE(candidate, BERTH_PLUGIN_ACTIVE);
    const berth_op_entry *op = berth_registry_find_op(in.registry, "rms_norm");
    CHECK_UINT(op->override_count, 1);
    CHECK(op->overrides[0]->is_override);
    CHECK_PTR(op->overrides[0]->op, op);
    CHECK_STR(op->overrides[0]->impl.name, "better");
    rig_close(&in);
}

static const berth_op_impl override_wide = OVERRIDE("rms_norm", "wide", on_two);
FAKE(wide, BERTH_GROUP_GENERAL,
     { return registrar->add_op_override(registrar, &override_wide, 0); });

TEST(registry_replaces_an_override_on_one_of_its_device_types) {
    rig in;
    open_with_core(&in);
    CHECK_STATE(rig_add(&in, &wide), BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(rig_add(&in, &override_c), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    const berth_op_entry *op = berth_registry_find_op(in.registry, "rms_norm");
    CHECK_UINT(op->override_count, 2);
    for (size_t i = 0; i < op->override_count; ++i) {
        const berth_op_impl *impl = &op->overrides[i]->impl;
        const bool is_wide = strcmp(impl->name, "wide") == 0;
        CHECK_UINT(impl->device_type_count, 1);
        CHECK_STR(impl->device_types[0], is_wide ? "cuda" : "fake");
    }
    rig_close(&in);
}

static const berth_op_impl impl_low = IMPL("rms_norm", "b_low", "oot", .priority = -1);
static const berth_op_impl impl_high = IMPL("RMSNorm", "high", "cuda", .priority = 10);
static const berth_op_impl impl_tie = IMPL("rms_norm", "a_tie", "oot", .priority = -1);
FAKE(impls_z, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_op_impl(registrar, &impl_tie, 0));
    return registrar->add_op_impl(registrar, &impl_high, 0);
});
FAKE(impls_y, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_op_impl(registrar, &impl_low, 0));
    return registrar->add_op_impl(registrar, &impl_tie, 0);
});

TEST(registry_sorts_implementations_by_priority_plugin_and_name) {
    static const char *const wanted[][2] = {
        {"impls_z", "high" },
        {"impls_y", "a_tie"},
        {"impls_y", "b_low"},
        {"impls_z", "a_tie"}
    };
    rig in;
    open_with_core(&in);
    CHECK_STATE(rig_add(&in, &impls_z), BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(rig_add(&in, &impls_y), BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.registry));
    const berth_op_entry *op = berth_registry_find_op(in.registry, "rms_norm");
    CHECK_UINT(op->impl_count, BERTH_COUNT(wanted));
    for (size_t i = 0; i < BERTH_COUNT(wanted); ++i) {
        CHECK_STR(op->impls[i]->owner->id, wanted[i][0]);
        CHECK_STR(op->impls[i]->impl.name, wanted[i][1]);
    }
    CHECK_UINT(berth_registry_op_count(in.registry), 3);
    CHECK_STR(berth_registry_op_at(in.registry, 0)->op.name, "paged_attention");
    CHECK_STR(berth_registry_op_at(in.registry, 2)->op.name, "silu_and_mul");
    CHECK_UINT(berth_registry_op_at(in.registry, 2)->index, 2);
    CHECK_NULL(berth_registry_op_at(in.registry, 3));
    CHECK_NULL(berth_registry_find_op(in.registry, "nothing"));
    rig_close(&in);
}

// ---- what falls with what falls -----------------------------------------------------------------

static const berth_op op_base = OP("base_op", "BaseOp");
static const berth_op_impl on_base = IMPL("base_op", "on_base", "oot");
FAKE(provider, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_op(registrar, &op_base, 0));
    return registrar->add_op_override(registrar, &override_typo, 0);
});
FAKE(user, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_layer(registrar, &layer_linear, 0));
    return registrar->add_op_impl(registrar, &on_base, 0);
});
FAKE(user_of_user, BERTH_GROUP_GENERAL,
     { return registrar->add_layer(registrar, &layer_linear, BERTH_REGISTER_REPLACE); });

TEST(registry_drops_what_builds_on_a_dropped_entry_point) {
    rig in;
    open_with_core(&in);
    const berth_candidate *third = rig_add(&in, &user_of_user);
    const berth_candidate *second = rig_add(&in, &user);
    const berth_candidate *first = rig_add(&in, &provider);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_REFUSED(first, "no op 'rms_norn'");
    CHECK_REFUSED(second, "no op 'base_op'");
    CHECK_REFUSED(third, "no layer 'RowParallelLinear' to replace");
    rig_close(&in);
}

FAKE(a_doomed, BERTH_GROUP_GENERAL, {
    BERTH_TRY(registrar->add_layer(registrar, &layer_linear, 0));
    return registrar->add_op_override(registrar, &override_typo, 0);
});

TEST(registry_refuses_nobody_in_favour_of_an_entry_that_does_not_survive) {
    rig in;
    open_with_core(&in);
    CHECK_STATE(rig_add(&in, &a_doomed), BERTH_PLUGIN_ACTIVE);
    const berth_candidate *survivor = rig_add(&in, &layer_b);
    CHECK_OK(berth_registry_freeze(in.registry));
    CHECK_STATE(survivor, BERTH_PLUGIN_ACTIVE);
    CHECK_STR(berth_registry_find_layer(in.registry, "RowParallelLinear")->owner->id, "layer_b");
    rig_close(&in);
}

FAKE(bad_core, BERTH_GROUP_GENERAL,
     { return registrar->add_op_override(registrar, &override_typo, 0); });
FAKE(worse_core, BERTH_GROUP_GENERAL,
     { return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT, "out of order"); });

TEST(registry_takes_a_failing_core_plugin_for_a_defect) {
    static const berth_plugin *const late[] = {&core, &bad_core};
    static const berth_plugin *const early_fail[] = {&worse_core};
    rig in;
    rig_open(&in);
    CHECK_OK(berth_registry_add_core(in.registry, late, 2));
    CHECK_UINT(berth_registry_core(in.registry)->count, 2);
    CHECK_STR(berth_registry_core(in.registry)->items[1].id, "bad_core");
    CHECK_STR(berth_registry_core(in.registry)->items[1].source, "core");
    CHECK_STATUS(berth_registry_freeze(in.registry), BERTH_INTERNAL);
    CHECK_STR(berth_status_message(),
              "core plugin 'bad_core': no op 'rms_norn'; did you mean 'rms_norm'?");
    rig_close(&in);
    rig_open(&in);
    CHECK_STATUS(berth_registry_add_core(in.registry, early_fail, 1), BERTH_INTERNAL);
    CHECK_STR(berth_status_message(),
              "core plugin 'worse_core': entry point 'worse_core': out of order");
    CHECK_STATUS(berth_registry_add_core(in.registry, early_fail, 1), BERTH_WRONG_STATE);
    rig_close(&in);
}
