// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "support/test.h"
#include "support/test_plan.h"

static const char *const text = "graph \"g\" {\n"
                                "  %1 = input token_ids : i32[s0]\n"
                                "  %2 = parameter \"w\" : f32[16, 8]\n"
                                "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
                                "  %4 = norm(%3) {eps = 0.1} @\"first\" : f32[s0, 8]\n"
                                "  %5 = norm(%4) {eps = 0.2} @\"second\" enforced : f32[s0, 8]\n"
                                "  %6 = add(%5, %3) @\"sum\" : f32[s0, 8]\n"
                                "  output y = %6\n"
                                "}\n";

// What `supports` says: no to the layer named here, with a text.
static const char *refused_layer = "";

static berth_status not_there(const berth_op_site *site, const berth_device *device) {
    if (strcmp(site->layer, refused_layer) == 0) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "not on %s", device->device_type);
    }
    return BERTH_OK;
}

static berth_status broken(const berth_op_site *site, const berth_device *device) {
    (void)device;
    return BERTH_PLUGIN_FAIL(site->host, BERTH_IO, "the driver is gone");
}

#define IMPL(impl_name, key, rank)                                                                 \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = "Norm", .name = (impl_name), .dispatch_key = (key),   \
        .revision = 1, .forward = test_host_forward, .priority = (rank), .supports = not_there     \
    }

static const char *const cpu_only[] = {"cpu"};
static const char *const cuda_or_xpu[] = {"cuda", "xpu"};
static const berth_op_impl cpu_override = {
    .size = sizeof(cpu_override),
    .op = "norm",
    .name = "special",
    .revision = 1,
    .device_types = cpu_only,
    .device_type_count = 1,
    .supports = not_there,
    .forward = test_host_forward,
};
static const berth_op_impl other_override = {
    .size = sizeof(other_override),
    .op = "Norm",
    .name = "foreign",
    .revision = 1,
    .device_types = cuda_or_xpu,
    .device_type_count = 2,
    .forward = test_host_forward,
};
static const berth_op_impl fast[] = {IMPL("plain", "cpu", 0), IMPL("fast", "cpu", 10)};
static const berth_op_impl equals[] = {IMPL("beta", "cpu", 5), IMPL("alpha", "cpu", 5)};
static const berth_op_impl hip_and_cuda[] = {IMPL("ported", "hip", 0), IMPL("nv", "cuda", 99)};
static const berth_op_impl only_cuda[] = {IMPL("nv", "cuda", 99), IMPL("strange", "tpu", 100)};

// ---- the order of dispatch ----------------------------------------------------------------------

typedef struct dispatch_case {
    const char *name;
    const char *platform;
    test_content content;
    const char *custom_ops;
    const char *refused; // layer
    const char *first;   // "implementation; reason; runner-up" of layer "first"
    const char *second;  // of layer "second", which is enforced
} dispatch_case;

#define IMPLS(table) .impls = (table), .impl_count = sizeof(table) / sizeof((table)[0])
#define OVERRIDE(it) .overrides = &(it), .override_count = 1

static dispatch_case dispatch_cases[] = {
    {"nothing",
     "fake-host",    {0},
     "",           "",
     "native; no implementation for this platform; ",                                              "native; no implementation for this platform; "                               },
    {"no platform",
     NULL,           {IMPLS(fast)},
     "",           "",
     "native; no implementation for this platform; fast of content: its dispatch key is none of "
     "the platform's",                                                                             NULL                                                                          },
    {"highest priority",
     "fake-host",    {IMPLS(fast)},
     "",           "",
     "fast; key cpu, priority 10; plain of content: its priority is lower",                        NULL                                                                          },
    {"priority that supports the site",
     "fake-host",    {IMPLS(fast)},
     "",           "first",
     "native; no implementation for this platform supports the site; fast of content: not on cpu", "fast; key cpu, priority 10; plain of content: its priority is lower"         },
    {"equal priorities",
     "fake-host",    {IMPLS(equals)},
     "",           "",
     "alpha; key cpu, priority 5; beta of content: same priority, its plugin or name comes later", NULL                                                                          },
    {"override first",
     "fake-host",    {IMPLS(fast), OVERRIDE(cpu_override)},
     "",           "",
     "special; override for device type cpu; fast of content: asked later",                        NULL                                                                          },
    {"override alone",
     "fake-host",    {OVERRIDE(cpu_override)},
     "",           "",
     "special; override for device type cpu; native of test-ops: native comes last",               NULL                                                                          },
    {"override that refuses",
     "fake-host",    {OVERRIDE(cpu_override)},
     "",           "first",
     "native; no implementation for this platform supports the site; special of content: not on "
     "cpu",                                                                                        "special; override for device type cpu; native of test-ops: native comes last"},
    {"override for others",
     "fake-host",    {IMPLS(fast), OVERRIDE(other_override)},
     "",           "",
     "fast; key cpu, priority 10; plain of content: its priority is lower",                        NULL                                                                          },
    {"only an override for others",
     "fake-host",    {OVERRIDE(other_override)},
     "",           "",
     "native; no implementation for this platform; foreign of content: not for this device type",  NULL                                                                          },
    {"override for this one of two",
     "fake-streams", {OVERRIDE(other_override)},
     "",           "",
     "foreign; override for device type xpu; native of test-ops: native comes last",               NULL                                                                          },
    {"rocm takes hip first",
     "fake-rocm",    {IMPLS(hip_and_cuda)},
     "",           "",
     "ported; key hip, priority 0; nv of content: asked later",                                    NULL                                                                          },
    {"rocm falls to cuda",
     "fake-rocm",    {IMPLS(only_cuda)},
     "",           "",
     "nv; key cuda, priority 99; native of test-ops: native comes last",                           NULL                                                                          },
    {"cpu takes no cuda",
     "fake-host",    {IMPLS(only_cuda)},
     "",           "",
     "native; no implementation for this platform; strange of content: its dispatch key is none of "
     "the platform's",                                                                             NULL                                                                          },
    {"minus by id",
     "fake-host",    {IMPLS(fast)},
     "-norm",      "",
     "native; -norm; fast of content: -norm",                                                      "fast; key cpu, priority 10; plain of content: its priority is lower"         },
    {"minus by class",
     "fake-host",    {IMPLS(fast)},
     "all,-Norm",  "",
     "native; -norm; fast of content: -norm",                                                      NULL                                                                          },
    {"minus governs an override",
     "fake-host",    {OVERRIDE(cpu_override)},
     "-norm",      "",
     "native; -norm; special of content: -norm",                                                   "special; override for device type cpu; native of test-ops: native comes last"},
    {"none",
     "fake-host",    {IMPLS(fast)},
     "none",       "",
     "native; base none; fast of content: base none",                                              "fast; key cpu, priority 10; plain of content: its priority is lower"         },
    {"none with plus",
     "fake-host",    {IMPLS(fast)},
     "none,+Norm", "",
     "fast; key cpu, priority 10; plain of content: its priority is lower",                        NULL                                                                          },
};

static const berth_site_record *site_of(const berth_plan *plan, const char *layer) {
    for (size_t i = 0; i < berth_plan_site_count(plan); ++i) {
        if (strcmp(berth_plan_site(plan, i)->layer, layer) == 0) {
            return berth_plan_site(plan, i);
        }
    }
    return NULL;
}

static void check_record(const test_plan *it, const char *layer, const char *wanted) {
    const berth_site_record *record = site_of(it->plan, layer);
    CHECK(record != NULL);
    const char *actual = berth_arena_printf(it->arena, "%s; %s; %s", record->implementation,
                                            record->reason, record->runner_up);
    CHECK_STR(actual, wanted);
    CHECK_INT(record->is_native, strcmp(record->implementation, "native") == 0);
    CHECK_STR(record->plugin, record->is_native ? "test-ops" : "content");
    CHECK_STR(record->version, record->is_native ? "1.0.0" : "2.0.0");
    CHECK_INT(record->is_override, strstr(record->reason, "override") != NULL);
    CHECK_INT(record->is_bounced, 0);
}

static void check_dispatch_case(void **state) {
    const dispatch_case *row = *state;
    test_plan it;
    test_plan_open(&it, &row->content, row->platform);
    test_plan_parse(&it, text);
    refused_layer = row->refused;
    if (row->custom_ops[0] != '\0') {
        test_plan_list(&it, &it.config.custom_ops, row->custom_ops);
    }
    CHECK_OK(test_plan_create(&it));
    check_record(&it, "first", row->first);
    if (row->second != NULL) {
        check_record(&it, "second", row->second);
    }
    test_plan_close(&it);
}

TEST_CASES(executor_dispatches) {
    for (size_t i = 0; i < sizeof(dispatch_cases) / sizeof(dispatch_cases[0]); ++i) {
        test_add(cases, dispatch_cases[i].name, check_dispatch_case, &dispatch_cases[i]);
    }
}

TEST(executor_counts_enabled_and_disabled_sites) {
    test_plan it;
    test_plan_open(&it, NULL, "fake-host");
    test_plan_parse(&it, text);
    test_plan_list(&it, &it.config.custom_ops, "-norm,-add");
    CHECK_OK(test_plan_create(&it));
    CHECK_UINT(berth_plan_counters(it.plan).enabled, 2); // the embedding, the enforced norm
    CHECK_UINT(berth_plan_counters(it.plan).disabled, 2);
    CHECK(site_of(it.plan, "second")->is_enabled && !site_of(it.plan, "first")->is_enabled);
    test_plan_close(&it);
}

TEST(executor_refuses_plus_and_minus_of_one_op) {
    const char *const lists[] = {"all,+norm,-norm", "+norm,-Norm", "all,none", "norm"};
    for (size_t i = 0; i < 4; ++i) {
        test_plan it;
        test_plan_open(&it, NULL, "fake-host");
        test_plan_parse(&it, text);
        test_plan_list(&it, &it.config.custom_ops, lists[i]);
        CHECK_STATUS(test_plan_create(&it), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(berth_status_message(), "custom_ops");
        test_plan_close(&it);
    }
}

TEST(executor_passes_on_a_supports_that_fails) {
    berth_op_impl impl = fast[0];
    impl.supports = broken;
    test_plan it;
    const test_content content = {.impls = &impl, .impl_count = 1};
    test_plan_open(&it, &content, "fake-host");
    test_plan_parse(&it, text);
    CHECK_STATUS(test_plan_create(&it), BERTH_IO);
    CHECK_CONTAINS(berth_status_message(), "the driver is gone");
    CHECK_CONTAINS(berth_status_message(), "asking 'plain' about op 'norm' of layer 'first'");
    test_plan_close(&it);
}

// The op grew by `count` since the implementation was written.
TEST(executor_passes_over_an_older_implementation_where_the_site_uses_what_it_does_not_know) {
    const berth_op_impl impl = {
        .size = sizeof(impl),
        .op = "describe",
        .name = "old",
        .dispatch_key = "cpu",
        .revision = 1,
        .forward = test_host_forward,
    };
    test_plan it;
    const test_content content = {.impls = &impl, .impl_count = 1};
    test_plan_open(&it, &content, "fake-host");
    test_plan_parse(&it, "graph \"g\" {\n"
                         "  %1 = input token_ids : i32[s0]\n"
                         "  %2 = parameter \"w\" : f32[16, 8]\n"
                         "  %3 = embedding(%1, %2) @\"embed\" : f32[s0, 8]\n"
                         "  %4 = describe(%3) {count = 7} @\"first\" : f32[s0, 8]\n"
                         "  %5 = describe(%4) {count = 8} @\"second\" : f32[s0, 8]\n"
                         "  output y = %5\n"
                         "}\n");
    test_plan_list(&it, &it.config.custom_ops, "all");
    CHECK_OK(test_plan_create(&it));
    check_record(&it, "first", "old; key cpu, priority 0; native of test-ops: native comes last");
    check_record(&it, "second",
                 "native; no implementation for this platform supports the site; old of content: "
                 "written for revision 1 of the op, without 'count'");
    test_plan_close(&it);
}

TEST(executor_refuses_a_compile_backend_that_there_is_not) {
    test_plan it;
    test_plan_open(&it, NULL, NULL);
    test_plan_parse(&it, text);
    it.config.compilation_backend = "inductor";
    it.config.compilation_mode = 3;
    CHECK_STATUS(test_plan_create(&it), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "compilation.backend inductor");
    it.config.compilation_mode = 0;
    CHECK_OK(test_plan_create(&it));
    test_plan_close(&it);
}

// ---- fallbacks ----------------------------------------------------------------------------------

typedef struct fallback_case {
    const char *name;
    const char *custom_ops;
    bool is_platforms; // the platform switched it off, not the user
    const char *fallback_ops;
    const char *error; // "" when the plan is made
    const char *bounced;
} fallback_case;

// Only norm runs on the device.
static fallback_case fallback_cases[] = {
    {"nothing allowed",                          "",           false, "",
     "platform 'fake-device' has no implementation of add, embedding;",                                                 NULL           },
    {"some allowed",                             "",           false, "Add",
     "has no implementation of embedding; run them on the host with --allow-fallback, or list them "
     "in fallback_ops",                                                                                                 NULL           },
    {"all allowed by name",                      "",           false, "add,Embedding", "",                              "add embedding"},
    {"the user's own minus is no fallback",      "-embedding", false, "add",           "",                              "add"          },
    {"the user's own none is no fallback",       "none",       false, "",              "",                              ""             },
    {"a minus of what would run is none either", "-norm",      false, "add,embedding", "",
     "add embedding"                                                                                                                   },
    {"a platform's minus is a fallback",         "-add",       true,  "embedding",     "has no implementation of add;",
     NULL                                                                                                                              },
    {"a platform's none is a fallback",          "none",       true,  "",
     "has no implementation of add, embedding, norm;",                                                                  NULL           },
};

static void check_fallback_case(void **state) {
    const fallback_case *row = *state;
    static const berth_op_impl impl = {
        .size = sizeof(impl),
        .op = "norm",
        .name = "on-device",
        .dispatch_key = "oot",
        .revision = 1,
        .forward = test_device_forward,
    };
    test_plan it;
    const test_content content = {.impls = &impl, .impl_count = 1};
    test_plan_open(&it, &content, "fake-device");
    test_plan_parse(&it, text);
    if (row->custom_ops[0] != '\0') {
        test_plan_list(&it, &it.config.custom_ops, row->custom_ops);
        it.config.user_ops = row->is_platforms ? (berth_option_list){0} : it.config.custom_ops;
    }
    if (row->fallback_ops[0] != '\0') {
        test_plan_list(&it, &it.config.fallback_ops, row->fallback_ops);
    }
    const bool is_made = row->error[0] == '\0';
    CHECK_STATUS(test_plan_create(&it), is_made ? BERTH_OK : BERTH_UNSUPPORTED);
    CHECK_CONTAINS(is_made ? "" : berth_status_message(), row->error);
    for (size_t i = 0; is_made && i < berth_plan_site_count(it.plan); ++i) {
        const berth_site_record *record = berth_plan_site(it.plan, i);
        CHECK_INT(record->is_bounced, strstr(row->bounced, record->op) != NULL);
    }
    if (is_made) {
        test_plan_load(&it);
        test_batch batch;
        test_batch_fill(&batch, (const int[]){3}, (const int[]){3}, 1, 0);
        test_plan_check(&it, &batch);
    }
    test_plan_close(&it);
}

TEST_CASES(executor_judges_fallbacks) {
    for (size_t i = 0; i < sizeof(fallback_cases) / sizeof(fallback_cases[0]); ++i) {
        test_add(cases, fallback_cases[i].name, check_fallback_case, &fallback_cases[i]);
    }
}

TEST(executor_counts_a_bounced_copy_as_a_fallback) {
    static const berth_op_impl impl = {
        .size = sizeof(impl),
        .op = "scale",
        .name = "on-device",
        .dispatch_key = "oot",
        .revision = 1,
        .forward = test_device_forward,
    };
    test_plan it;
    const test_content content = {.impls = &impl, .impl_count = 1};
    test_plan_open(&it, &content, "fake-device");
    test_plan_parse(&it, "graph \"g\" { %1 = parameter \"w\" : f32[4, 8]\n"
                         "%2 = scale(%1) {factor = 2.0} : f32[4, 8]\n"
                         "%3 = slice %2 dim 1 from 2 length 3 : f32[4, 3]\n"
                         "%4 = scale(%3) {factor = 2.0} @\"gap\" : f32[4, 3] output y = %4 }");
    CHECK_STATUS(test_plan_create(&it), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "has no implementation of contiguous;");
    it.config.allow_fallback = true;
    CHECK_OK(test_plan_create(&it));
    CHECK_UINT(berth_plan_site_count(it.plan), 3);
    CHECK_STR(berth_plan_site(it.plan, 2)->op, "contiguous");
    CHECK(berth_plan_site(it.plan, 2)->is_bounced);
    test_plan_load(&it);
    test_batch batch;
    test_batch_fill(&batch, (const int[]){1}, (const int[]){1}, 1, 0);
    test_plan_check(&it, &batch);
    test_plan_close(&it);
}

// ---- notes --------------------------------------------------------------------------------------

static const char foreign_note[] = "override 'foreign' of plugin content for op 'norm' is never "
                                   "used: it is for other device types than the platform's";
static const char refusing_note[] = "override 'special' of plugin content for op 'norm' is never "
                                    "used: it supports none of the model's sites";

TEST(executor_notes_what_had_no_effect) {
    const berth_op_impl overrides[] = {
        cpu_override,
        {
          .size = sizeof(berth_op_impl),
          .op = "pool",
          .name = "unused",
          .revision = 1,
          .device_types = cpu_only,
          .device_type_count = 1,
          .forward = test_host_forward,
          },
        other_override,
    };
    test_plan it;
    const test_content content = {.overrides = overrides, .override_count = 3};
    test_plan_open(&it, &content, "fake-host");
    test_plan_parse(&it, text);
    test_plan_list(&it, &it.config.custom_ops, "all,-Pool,+nrom,-add,-zzzzzzzzz");
    test_plan_list(&it, &it.config.fallback_ops, "describe,nothing");
    refused_layer = "";
    CHECK_OK(test_plan_create(&it));
    const char *const wanted[] = {
        "custom_ops: '+nrom' matches nothing: there is no such op, did you mean 'norm'?",
        "custom_ops: '-Pool' matches nothing: the op 'pool' is not in this model",
        "custom_ops: '-zzzzzzzzz' matches nothing: there is no such op",
        "fallback_ops: 'describe' matches nothing: the op 'describe' is not in this model",
        "fallback_ops: 'nothing' matches nothing: there is no such op",
        foreign_note,
        "override 'unused' of plugin content for op 'pool' is never used: the model has no such op",
    };
    CHECK_UINT(berth_plan_note_count(it.plan), 7);
    for (size_t i = 0; i < 7; ++i) {
        CHECK_STR(berth_plan_note(it.plan, i), wanted[i]);
    }
    test_plan_close(&it);
}

TEST(executor_notes_an_override_that_is_switched_off_or_refuses) {
    const char *const wanted[] = {
        "override 'special' of plugin content for op 'norm' is never used: the op is switched off",
        refusing_note,
    };
    for (size_t i = 0; i < 2; ++i) {
        test_plan it;
        const test_content content = {OVERRIDE(cpu_override)};
        test_plan_open(&it, &content, "fake-host");
        test_plan_parse(&it, "graph \"g\" { %1 = parameter \"w\" : f32[4]\n"
                             "%2 = norm(%1) {eps = 0.1} @\"first\" : f32[4] output y = %2 }");
        refused_layer = i == 1 ? "first" : "";
        if (i == 0) {
            test_plan_list(&it, &it.config.custom_ops, "-norm");
        }
        CHECK_OK(test_plan_create(&it));
        CHECK_UINT(berth_plan_note_count(it.plan), 1);
        CHECK_STR(berth_plan_note(it.plan, 0), wanted[i]);
        test_plan_close(&it);
    }
}

// ---- attention ----------------------------------------------------------------------------------

static const char *const attention = "graph \"g\" {\n"
                                     "%1 = input token_ids : i32[s0]\n"
                                     "%2 = parameter \"w\" : f32[16, 8]\n"
                                     "%3 = embedding(%1, %2) : f32[s0, 8]\n"
                                     "%4 = reshape %3 : f32[s0, 2, 4]\n"
                                     "%5 = state \"attn\" 0 : f32[4, 2, 4]\n"
                                     "%6 = state \"attn\" 1 : f32[4, 2, 4]\n"
                                     "%7, %8', %9' = paged_attention(%4, %4, %4; %5, %6) "
                                     "{scale = 2.0} @\"attn\" : f32[s0, 2, 4]\n"
                                     "output y = %7\n"
                                     "}\n";

static berth_attention_query seen;
static int64_t seen_shape[4];
static bool is_valid;
static bool is_offered;

static berth_status record_shape(void *self, const berth_op_args *args) {
    memcpy(seen_shape, args->states[1]->shape, sizeof(seen_shape));
    return test_host_forward(self, args);
}

static const berth_op_impl backend_impl = {
    .size = sizeof(backend_impl),
    .op = "paged_attention",
    .name = "flash-impl",
    .revision = 1,
    .forward = record_shape,
};
static const berth_op_impl plain_attention = {
    .size = sizeof(plain_attention),
    .op = "paged_attention",
    .name = "plain",
    .dispatch_key = "cpu",
    .revision = 1,
    .forward = record_shape,
};

static berth_status validate(const berth_host *host, const berth_attention_query *query) {
    seen = *query;
    return is_valid ? BERTH_OK
                    : BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "head size %lld is odd",
                                        (long long)query->head_size);
}

// The native order with one block more.
static berth_status shape(const berth_attention_query *query, uint64_t state, int64_t num_blocks,
                          int64_t *out_shape, uint64_t *out_ndim) {
    CHECK(state < 2);
    out_shape[0] = num_blocks + 1;
    out_shape[1] = query->block_size;
    out_shape[2] = query->num_kv_heads;
    out_shape[3] = query->head_size;
    *out_ndim = 4;
    return BERTH_OK;
}

static berth_status get_backend(void *self, const berth_attention_query *query,
                                const berth_attention_backend **out) {
    (void)self;
    static const berth_attention_backend backend = {
        .size = sizeof(backend),
        .name = "flash",
        .impl = &backend_impl,
        .validate = validate,
        .kv_cache_shape = shape,
    };
    seen = *query;
    *out = &backend;
    return is_offered ? BERTH_OK : BERTH_UNSUPPORTED;
}

typedef struct attention_case {
    const char *name;
    bool is_offered;
    bool is_valid;
    const char *custom_ops;
    const char *record;
    int64_t blocks; // of the cache
} attention_case;

static attention_case attention_cases[] = {
    {"backend",                   true,  true,  "",
     "flash; attention backend that platform 'fake-host' chose; plain of content: asked later", TEST_MAX_BLOCKS + 1},
    {"backend that is not valid", true,  false, "",
     "plain; key cpu, priority 0; flash of content: head size 4 is odd",                        TEST_MAX_BLOCKS    },
    {"no backend",                false, true,  "",
     "plain; key cpu, priority 0; attention backend of content: get_attn_backend of plugin "
     "'content' failed with UNSUPPORTED and gave no reason",                                    TEST_MAX_BLOCKS    },
    {"switched off",              true,  true,  "-paged_attention",
     "native; -paged_attention; attention backend of content: -paged_attention",                0                  },
};

static void check_attention_case(void **state) {
    const attention_case *row = *state;
    test_plan it;
    const test_content content = {
        .impls = &plain_attention,
        .impl_count = 1,
        .get_attn_backend = get_backend,
    };
    is_offered = row->is_offered;
    is_valid = row->is_valid;
    memset(seen_shape, 0, sizeof(seen_shape));
    test_plan_open(&it, &content, "fake-host");
    test_plan_parse(&it, attention);
    test_plan_cache(&it, "attn", 2, 4);
    if (row->custom_ops[0] != '\0') {
        test_plan_list(&it, &it.config.custom_ops, row->custom_ops);
    }
    CHECK_OK(test_plan_create(&it));
    check_record(&it, "attn", row->record);
    test_plan_load(&it);
    test_batch batch;
    test_batch_fill(&batch, (const int[]){3, 2}, (const int[]){3, 2}, 2, 0);
    test_plan_check(&it, &batch);
    CHECK_INT(seen_shape[0], row->blocks);
    if (row->blocks > 0) {
        CHECK_STR(seen.layer, "attn");
        CHECK_INT(seen.num_heads, 2);
        CHECK_INT(seen.block_size, TEST_BLOCK_SIZE);
        CHECK_UINT(seen.dtype, BERTH_DTYPE_F32);
        CHECK_UINT(seen.kv_dtype, BERTH_DTYPE_F32);
    }
    test_plan_close(&it);
}

TEST_CASES(executor_binds_attention) {
    for (size_t i = 0; i < sizeof(attention_cases) / sizeof(attention_cases[0]); ++i) {
        test_add(cases, attention_cases[i].name, check_attention_case, &attention_cases[i]);
    }
}
