// SPDX-License-Identifier: Apache-2.0
// platform: which platform is chosen and what is said of the others, its hooks, and the facade over
// its device. Plugins are discovered, loaded and registered as in a run; their libraries are fakes.
#include "platform/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "discovery/search.h"
#include "fakes/fake_platform.h"
#include "registry/registry.h"
#include "support/sandbox.h"
#include "support/test.h"

typedef struct fixture {
    sandbox box;
    berth_arena *arena;
    berth_config config;
    berth_candidates candidates;
    berth_registry *registry;
    berth_decision decision;
    char executable[600];
    char system[600];
} fixture;

static void open_fixture(fixture *in) {
    memset(in, 0, sizeof(*in));
    sandbox_make(&in->box);
    CHECK_OK(berth_arena_create(4096, 4 << 20, &in->arena));
    CHECK_OK(berth_config_init(&in->config, in->arena));
    (void)snprintf(in->executable, sizeof(in->executable), "%s/bin", in->box.dir);
    (void)snprintf(in->system, sizeof(in->system), "%s/etc", in->box.dir);
}

static void close_fixture(fixture *in) {
    berth_registry_destroy(in->registry);
    berth_arena_destroy(in->arena);
    sandbox_remove(&in->box);
}

// One manifest of a row.
typedef struct plugin {
    const char *library; // "platforms", "builtins", or another name: a file that is no library
    const char *entries; // of berth.platform_plugins; NULL: the manifest is no YAML
    const char *lines;   // more of the manifest, NULL: none
    bool is_own;         // in the host's own directory, and in builtin.list
} plugin;

static void put(const fixture *in, const plugin *one) {
    char name[640];
    char text[2048];
    char cwd[512];
    const bool is_fake =
        strcmp(one->library, "platforms") == 0 || strcmp(one->library, "builtins") == 0;
    const char *dir = one->is_own ? "bin/plugins" : "etc";
    CHECK(getcwd(cwd, sizeof(cwd)) != NULL);
    if (is_fake) {
        (void)snprintf(name, sizeof(name), "%s/" TEST_BUILD "/tests/plugins/%s/libberth-%s.so", cwd,
                       one->library, one->library);
        CHECK_INT(access(name, R_OK), 0);
    } else {
        (void)snprintf(name, sizeof(name), "%s/%s.so", dir, one->library);
        (void)sandbox_write(&in->box, name, "no library");
        (void)snprintf(name, sizeof(name), "%s.so", one->library);
    }
    (void)snprintf(text, sizeof(text),
                   "berth: 1\nid: %s%s\nversion: 1.0.0\nlibrary: %s\n%s"
                   "entry_points: {berth.platform_plugins: [%s]}\n",
                   is_fake ? "fake-" : "", one->library, name, one->lines == NULL ? "" : one->lines,
                   one->entries);
    (void)snprintf(name, sizeof(name), "%s/%s.plugin.yaml", dir, one->library);
    (void)sandbox_write(&in->box, name, one->entries == NULL ? "berth: [\n" : text);
}

static berth_status start(fixture *in) {
    static const char *const builtin_ids[] = {"fake-builtins", "own-broken"};
    const berth_surroundings around = {
        .executable_dir = in->executable,
        .system_dir = in->system,
        .builtin_ids = builtin_ids,
        .builtin_count = BERTH_COUNT(builtin_ids),
    };
    CHECK_OK(berth_discovery_scan(&in->config, &around, in->arena, &in->candidates));
    CHECK_OK(berth_registry_create(&in->config, NULL, &in->registry));
    CHECK_OK(berth_registry_load(in->registry, &in->candidates));
    return berth_platform_choose(&in->config, in->registry, &in->candidates, in->arena,
                                 &in->decision);
}

static const fake_state *state_of(const berth_platform_entry *platform) {
    return platform->self;
}

static const berth_verdict *verdict_of(const fixture *in, const char *entry) {
    for (size_t i = 0; i < in->decision.verdict_count; ++i) {
        if (strcmp(in->decision.verdicts[i].entry, entry) == 0) {
            return &in->decision.verdicts[i];
        }
    }
    return NULL;
}

// ---- selection ----------------------------------------------------------------------------------

typedef struct row {
    const char *name;
    plugin plugins[3];
    const char *filter;   // BERTH_PLUGINS
    const char *platform; // --platform
    const char *chosen;   // NULL: none
    const char *from;     // the plugin it is from
    const char *says;     // of the failure; NULL: it succeeds
    bool allows_fallback;
    bool has_culprit; // the failure is a plugin's
} row;

// Every row of vLLM's verified matrix. `Differs` where our outcome does, and why.
static const row matrix[] = {
    {
     .name = "no plugin and no builtin is unspecified when fallback is allowed",
     .allows_fallback = true,
     },
 // Differs: native execution is slow and never silent, so it must be asked for.
    {
     .name = "no plugin and no builtin without fallback says how to go on",
     .says = "no platform is active: install a platform plugin",
     },
    {
     .name = "one out-of-tree platform",
     .plugins = {{"platforms", "alpha", NULL, false}},
     .chosen = "alpha",
     .from = "fake-platforms",
     },
    {
     .name = "an out-of-tree platform beats every builtin",
     .plugins = {{"platforms", "alpha", NULL, false}, {"builtins", "cpu, cuda", NULL, true}},
     .chosen = "alpha",
     .from = "fake-platforms",
     },
 // Differs: the list is in search order and ends with the lines that resolve it.
    {
     .name = "two out-of-tree platforms",
     .plugins = {{"platforms", "beta, alpha", NULL, false}},
     .says = "several out-of-tree platforms are active: 'beta' of plugin fake-platforms, "
                "'alpha' of plugin fake-platforms; choose with --platform beta or --platform alpha", },
    {
     .name = "two out-of-tree platforms of two plugins",
     .plugins = {{"platforms", "beta", NULL, false}, {"builtins", "gamma", NULL, false}},
     .says = "'gamma' of plugin fake-builtins, 'beta' of plugin fake-platforms; choose with "
                "--platform gamma or --platform beta", },
    {
     .name = "two out-of-tree platforms, one declines",
     .plugins = {{"platforms", "absent, beta", NULL, false}},
     .chosen = "beta",
     .from = "fake-platforms",
     },
    {
     .name = "two out-of-tree platforms, the filter names one",
     .plugins = {{"platforms", "alpha, beta", NULL, false}},
     .filter = "beta",
     .chosen = "beta",
     .from = "fake-platforms",
     },
    {
     .name = "an empty filter leaves the builtin",
     .plugins = {{"platforms", "alpha", NULL, false}, {"builtins", "cpu", NULL, true}},
     .filter = "",
     .chosen = "cpu",
     .from = "fake-builtins",
     },
 // Differs: vLLM logs an error and gives the CPU. A failure never becomes "you got the CPU".
    {
     .name = "an out-of-tree library that does not load stops the start",
     .plugins = {{"broken", "acme", NULL, false}, {"builtins", "cpu", NULL, true}},
     .says = "platform 'acme' of plugin broken: load failed: cannot load the library: ",
     .has_culprit = true,
     },
 // Differs: vLLM says nothing at all.
    {
     .name = "an out-of-tree registration that fails stops the start",
     .plugins = {{"platforms", "broken", NULL, false}, {"builtins", "cpu", NULL, true}},
     .says = "platform 'broken' of plugin fake-platforms: register failed: the driver is older "
                "than 5.0; mend or remove the plugin, or say which platform is wanted with "
                "--platform, for instance --platform cpu", .has_culprit = true,
     },
 // Differs: vLLM counts an empty answer as active and crashes later.
    {
     .name = "an out-of-tree registration that adds nothing stops the start",
     .plugins = {{"platforms", "silent", NULL, false}, {"builtins", "cpu", NULL, true}},
     .says = "'silent' of plugin fake-platforms: register failed: the entry point returned OK "
                "without a platform", .has_culprit = true,
     },
 // Differs: vLLM skips an entry that cannot be called without a word.
    {
     .name = "an entry that the library does not have stops the start",
     .plugins = {{"platforms", "phantom", NULL, false}, {"builtins", "cpu", NULL, true}},
     .says = "platform 'phantom' of plugin fake-platforms: load failed: stands only in the "
                "manifest", .has_culprit = true,
     },
 // Differs: in vLLM the last of a name wins silently; here the second is refused, naming both.
    {
     .name = "duplicate entry names keep the first",
     .plugins = {{"platforms", "alpha", NULL, false}, {"builtins", "alpha", NULL, false}},
     .chosen = "alpha",
     .from = "fake-builtins",
     },
    {
     .name = "an out-of-tree platform with a builtin's name that is active",
     .plugins = {{"platforms", "cuda", NULL, false}, {"builtins", "cuda, cpu", NULL, true}},
     .chosen = "cuda",
     .from = "fake-platforms",
     },
 // Differs: vLLM compares sets of names, takes the builtin for out-of-tree and crashes.
    {
     .name = "an out-of-tree platform with a builtin's name that declines",
     .plugins = {{"platforms", "xpu", NULL, false}, {"builtins", "xpu, cpu", NULL, true}},
     .chosen = "xpu",
     .from = "fake-builtins",
     },
};

// The rest of our own selection table.
static const row table[] = {
    {
     .name = "--platform chooses among several",
     .plugins = {{"platforms", "alpha, beta", NULL, false}, {"builtins", "cpu", NULL, true}},
     .platform = "beta",
     .chosen = "beta",
     .from = "fake-platforms",
     },
    {
     .name = "--platform chooses a builtin over an out-of-tree platform",
     .plugins = {{"platforms", "alpha", NULL, false}, {"builtins", "cpu", NULL, true}},
     .platform = "cpu",
     .chosen = "cpu",
     .from = "fake-builtins",
     },
    {
     .name = "--platform chooses although another plugin failed",
     .plugins = {{"platforms", "broken", NULL, false}, {"builtins", "cpu", NULL, true}},
     .platform = "cpu",
     .chosen = "cpu",
     .from = "fake-builtins",
     },
    {
     .name = "--platform of a platform that declined says why",
     .plugins = {{"platforms", "absent", NULL, false}, {"builtins", "cpu", NULL, true}},
     .platform = "absent",
     .says = "platform 'absent' of plugin fake-platforms is not available: declined: no such "
                "hardware here", },
    {
     .name = "--platform of a platform that failed says why",
     .plugins = {{"platforms", "broken", NULL, false}},
     .platform = "broken",
     .says = "is not available: register failed: the driver is older than 5.0",
     .has_culprit = true,
     },
    {
     .name = "--platform of a platform that is filtered says why",
     .plugins = {{"platforms", "alpha", NULL, false}},
     .filter = "",
     .platform = "alpha",
     .says = "is not available: filtered: ",
     },
    {
     .name = "--platform of a plugin for another machine says why",
     .plugins = {{"platforms", "alpha", "arch: pdp11\n", false}},
     .platform = "alpha",
     .says = "is not available: ineligible: built for pdp11",
     },
    {
     .name = "--platform with a typo names the nearest",
     .plugins = {{"platforms", "alpha", NULL, false}, {"builtins", "cpu", NULL, true}},
     .platform = "alhpa",
     .says = "there is no platform 'alhpa', did you mean 'alpha'?; known are alpha, cpu",
     },
    {
     .name = "--platform of nothing",
     .platform = "alpha",
     .says = "there is no platform 'alpha'; no plugin has one",
     },
    {
     .name = "--platform that may be in an unreadable manifest names it",
     .plugins = {{"acme", NULL, NULL, false}, {"builtins", "cpu", NULL, true}},
     .platform = "acme",
     .says = "acme.plugin.yaml:2:1",
     .has_culprit = true,
     },
    {
     .name = "a named platform waits to be asked for",
     .plugins = {{"platforms", "alpha", "activation: named\n", false},
                    {"builtins", "cpu", NULL, true}},
     .chosen = "cpu",
     .from = "fake-builtins",
     },
    {
     .name = "a named platform comes when it is asked for",
     .plugins = {{"platforms", "alpha", "activation: named\n", false},
                    {"builtins", "cpu", NULL, true}},
     .platform = "alpha",
     .chosen = "alpha",
     .from = "fake-platforms",
     },
    {
     .name = "an accelerator beats the cpu",
     .plugins = {{"builtins", "cpu, xpu", NULL, true}},
     .chosen = "xpu",
     .from = "fake-builtins",
     },
    {
     .name = "two accelerators are an error",
     .plugins = {{"builtins", "cuda, cpu, xpu", NULL, true}},
     .says =
            "several built-in accelerators are active: 'cuda' of plugin fake-builtins, 'xpu' of "
            "plugin fake-builtins; choose with --platform cuda or --platform xpu",                                                                },
    {
     .name = "only the cpu",
     .plugins = {{"builtins", "cpu", NULL, true}},
     .chosen = "cpu",
     .from = "fake-builtins",
     },
    {
     .name = "a failed plugin does not stop an accelerator",
     .plugins = {{"platforms", "broken", NULL, false}, {"builtins", "cuda", NULL, true}},
     .chosen = "cuda",
     .from = "fake-builtins",
     },
    {
     .name = "a failed plugin stops native execution too",
     .plugins = {{"platforms", "broken", NULL, false}},
     .allows_fallback = true,
     .says = "'broken' of plugin fake-platforms: register failed",
     .has_culprit = true,
     },
    {
     .name = "a quiet plugin that failed does not stop the cpu",
     .plugins = {{"platforms", "broken", "importance: quiet\n", false},
                    {"builtins", "cpu", NULL, true}},
     .chosen = "cpu",
     .from = "fake-builtins",
     },
    {
     .name = "a named plugin that failed does not stop the cpu",
     .plugins = {{"broken", "acme", "activation: named\nabi: '9.0'\n", false},
                    {"builtins", "cpu", NULL, true}},
     .chosen = "cpu",
     .from = "fake-builtins",
     },
    {
     .name = "a plugin that is refused stops the cpu",
     .plugins = {{"platforms", "alpha", "abi: '9.0'\n", false}, {"builtins", "cpu", NULL, true}},
     .says = "platform 'alpha' of plugin fake-platforms: refused: built for plugin ABI 9.0-9.0",
     .has_culprit = true,
     },
    {
     .name = "a manifest with a typo stops the cpu",
     .plugins = {{"platforms", "alpha", "vendro: x\n", false}, {"builtins", "cpu", NULL, true}},
     .says = "vendro: unknown key; did you mean 'vendor'?",
     .has_culprit = true,
     },
    {
     .name = "a manifest that cannot be read may be the wanted platform",
     .plugins = {{"acme", NULL, NULL, false}, {"builtins", "cpu", NULL, true}},
     .says = "acme.plugin.yaml: refused: ",
     .has_culprit = true,
     },
    {
     .name = "a plugin for another machine does not stop the cpu",
     .plugins = {{"platforms", "alpha", "arch: pdp11\n", false},
                    {"builtins", "cpu", NULL, true}},
     .chosen = "cpu",
     .from = "fake-builtins",
     },
};

static void check_row(void **state) {
    const row *one = *state;
    fixture in;
    open_fixture(&in);
    for (size_t i = 0; i < BERTH_COUNT(one->plugins) && one->plugins[i].library != NULL; ++i) {
        put(&in, &one->plugins[i]);
    }
    in.config.plugins = one->filter;
    in.config.platform = one->platform;
    in.config.allow_fallback = one->allows_fallback;
    const berth_status status = start(&in);
    CHECK((in.decision.culprit != NULL) == one->has_culprit);
    CHECK(in.decision.rule[0] != '\0');
    if (one->says != NULL) {
        CHECK_STATUS(status, BERTH_UNAVAILABLE);
        CHECK_CONTAINS(berth_status_message(), one->says);
        CHECK_NULL(in.decision.platform);
    } else {
        CHECK_OK(status);
        CHECK((in.decision.platform == NULL) == (one->chosen == NULL));
    }
    if (one->chosen != NULL && in.decision.platform != NULL) {
        CHECK_STR(in.decision.platform->platform.name, one->chosen);
        CHECK_STR(in.decision.platform->owner->id, one->from);
        // Differs from vLLM, which calls the winner twice.
        CHECK_UINT(state_of(in.decision.platform)->registered, 1);
    }
    for (size_t i = 0; i < in.decision.verdict_count; ++i) {
        const berth_verdict *verdict = &in.decision.verdicts[i];
        CHECK(verdict->reason[0] != '\0');
        CHECK((verdict->state == BERTH_PLUGIN_SELECTED) ==
              (in.decision.platform != NULL && strcmp(verdict->entry, one->chosen) == 0 &&
               strcmp(verdict->plugin, one->from) == 0));
    }
    close_fixture(&in);
}

TEST_CASES(platform_matrix_of_vllm) {
    for (size_t i = 0; i < BERTH_COUNT(matrix); ++i) {
        test_add(cases, matrix[i].name, check_row, (void *)(uintptr_t)&matrix[i]);
    }
}

TEST_CASES(platform_selection_table) {
    for (size_t i = 0; i < BERTH_COUNT(table); ++i) {
        test_add(cases, table[i].name, check_row, (void *)(uintptr_t)&table[i]);
    }
}

TEST(platform_decision_has_a_verdict_for_every_entry) {
    fixture in;
    open_fixture(&in);
    put(&in, &(plugin){"platforms", "alpha, absent, broken, xpu", NULL, false});
    put(&in, &(plugin){"builtins", "cpu, cuda", NULL, true});
    put(&in, &(plugin){"other", "x", "arch: pdp11\n", false});
    in.config.plugins = "alpha, absent, broken, x";
    CHECK_OK(start(&in));
    size_t offered = 0; // the others stand only in the library
    for (size_t i = 0; i < in.decision.verdict_count; ++i) {
        offered += in.decision.verdicts[i].state != BERTH_PLUGIN_FOUND;
    }
    CHECK_UINT(offered, 7);
    CHECK_STR(in.decision.rule, "one out-of-tree platform is active");
    CHECK_STR(in.decision.verdicts[0].entry, "x");
    CHECK_INT(verdict_of(&in, "x")->state, BERTH_PLUGIN_INELIGIBLE);
    CHECK_INT(verdict_of(&in, "alpha")->state, BERTH_PLUGIN_SELECTED);
    CHECK_STR(verdict_of(&in, "alpha")->reason, "one out-of-tree platform is active");
    CHECK_INT(verdict_of(&in, "absent")->state, BERTH_PLUGIN_DECLINED);
    CHECK_STR(verdict_of(&in, "absent")->reason, "no such hardware here");
    CHECK_INT(verdict_of(&in, "broken")->state, BERTH_PLUGIN_REGISTER_FAILED);
    CHECK_INT(verdict_of(&in, "xpu")->state, BERTH_PLUGIN_FILTERED);
    CHECK_INT(verdict_of(&in, "cpu")->state, BERTH_PLUGIN_ACTIVE);
    CHECK_STR(verdict_of(&in, "cpu")->reason,
              "passed over for 'alpha': one out-of-tree platform is active");
    CHECK(verdict_of(&in, "cpu")->is_builtin);
    CHECK_INT(in.candidates.items[1].state, BERTH_PLUGIN_SELECTED);
    close_fixture(&in);
}

// ---- configuration ------------------------------------------------------------------------------

// A fixture with one platform of the library `platforms` or `builtins` chosen.
static const berth_platform_entry *start_with(fixture *in, const char *library, const char *name) {
    open_fixture(in);
    put(in, &(plugin){library, name, NULL, false});
    CHECK_OK(start(in));
    return in->decision.platform;
}

TEST(platform_hooks_run_once_in_order_and_then_ops_are_registered) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "platforms", "full");
    CHECK_OK(berth_platform_configure(platform, &in.config, in.registry));
    CHECK_STR(state_of(platform)->calls,
              "apply_config_defaults check_and_update_config register_ops(32)");
    CHECK_INT(in.config.block_size, 32);
    CHECK_STR(in.config.custom_ops.items[1], "+full_op");
    CHECK_STATUS(berth_config_set_i64(&in.config, "block_size", 16), BERTH_WRONG_STATE);
    CHECK_STATUS(berth_platform_configure(platform, &in.config, in.registry), BERTH_WRONG_STATE);
    CHECK_STR(state_of(platform)->calls,
              "apply_config_defaults check_and_update_config register_ops(32)");
    CHECK_OK(berth_registry_freeze(in.registry));
    close_fixture(&in);
}

TEST(platform_hook_that_fails_stops_the_others_and_names_itself) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "platforms", "full");
    ((fake_state *)platform->self)->answer = BERTH_UNSUPPORTED;
    CHECK_STATUS(berth_platform_configure(platform, &in.config, in.registry), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "apply_config_defaults says no");
    CHECK_CONTAINS(berth_status_message(), "configuring platform 'full'");
    CHECK_STR(state_of(platform)->calls, "apply_config_defaults");
    CHECK_NULL(in.config.changed_by);
    close_fixture(&in);
}

TEST(platform_without_hooks_and_no_platform_configure_nothing) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "platforms", "alpha");
    CHECK_OK(berth_platform_configure(platform, &in.config, in.registry));
    CHECK_INT(in.config.block_size, 16);
    close_fixture(&in);
    open_fixture(&in);
    in.config.allow_fallback = true;
    CHECK_OK(start(&in));
    CHECK_OK(berth_platform_configure(NULL, &in.config, in.registry));
    CHECK_STATUS(berth_platform_configure(NULL, &in.config, in.registry), BERTH_WRONG_STATE);
    close_fixture(&in);
}

TEST(platform_answers_or_the_host_does) {
    fixture in;
    const berth_platform_entry *full = start_with(&in, "platforms", "full");
    const berth_attention_backend *backend = NULL;
    berth_attention_query query = {.size = sizeof(query), .head_size = 64};
    CHECK_OK(berth_platform_verify(full, "LlamaForCausalLM", "awq"));
    CHECK_OK(berth_platform_verify(full, NULL, NULL));
    CHECK_STR(state_of(full)->calls, "verify_model_arch verify_quantization");
    CHECK_OK(berth_platform_check_request(full, 60, 40));
    CHECK_STATUS(berth_platform_check_request(full, 60, 41), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "more than 100 tokens");
    CHECK_OK(berth_platform_attention(full, &query, &backend));
    CHECK_STR(backend->name, "full_attention");
    query.head_size = 1;
    CHECK_STATUS(berth_platform_attention(full, &query, &backend), BERTH_INTERNAL);
    query.head_size = 64;
    ((fake_state *)full->self)->answer = BERTH_UNSUPPORTED;
    CHECK_STATUS(berth_platform_attention(full, &query, &backend), BERTH_UNSUPPORTED);
    CHECK_NULL(backend);
    CHECK_CONTAINS(berth_status_message(), "get_attn_backend says no");
    CHECK_STATUS(berth_platform_verify(full, "LlamaForCausalLM", NULL), BERTH_UNSUPPORTED);
    CHECK_STATUS(berth_platform_verify(full, NULL, "awq"), BERTH_UNSUPPORTED);
    close_fixture(&in);
    const berth_platform_entry *alpha = start_with(&in, "platforms", "alpha");
    CHECK_OK(berth_platform_verify(alpha, "LlamaForCausalLM", "awq"));
    CHECK_OK(berth_platform_check_request(alpha, 1 << 30, 1 << 30));
    CHECK_STATUS(berth_platform_attention(alpha, &query, &backend), BERTH_UNSUPPORTED);
    CHECK_STATUS(berth_platform_attention(NULL, &query, &backend), BERTH_UNSUPPORTED);
    CHECK_OK(berth_platform_verify(NULL, "LlamaForCausalLM", "awq"));
    CHECK_OK(berth_platform_check_request(NULL, 1, 1));
    close_fixture(&in);
}

typedef struct key_row {
    uint64_t kind;
    const char *dispatch_key;
    const char *keys; // with blanks between
} key_row;

TEST(platform_keys_follow_the_kind_or_the_descriptor) {
    static const key_row rows[] = {
        {BERTH_PLATFORM_CPU,  NULL,   "cpu"     },
        {BERTH_PLATFORM_CUDA, NULL,   "cuda"    },
        {BERTH_PLATFORM_ROCM, NULL,   "hip cuda"},
        {BERTH_PLATFORM_XPU,  NULL,   "xpu"     },
        {BERTH_PLATFORM_TPU,  NULL,   "tpu"     },
        {BERTH_PLATFORM_OOT,  NULL,   "oot"     },
        {BERTH_PLATFORM_OOT,  "cuda", "cuda"    },
        {BERTH_PLATFORM_OOT,  "hip",  "hip cuda"},
        {BERTH_PLATFORM_CPU,  "oot",  "oot"     },
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        const berth_platform_entry platform = {
            .platform = {.kind = rows[i].kind, .dispatch_key = rows[i].dispatch_key},
        };
        const char *const *keys = berth_platform_keys(&platform);
        char text[32] = "";
        for (size_t k = 0; keys[k] != NULL; ++k) {
            (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
                           k == 0 ? "" : " ", keys[k]);
        }
        CHECK_STR(text, rows[i].keys);
    }
    CHECK_NULL(berth_platform_keys(NULL)[0]);
}

TEST(platform_with_an_unknown_dispatch_key_is_refused) {
    fixture in;
    berth_platform_entry copy = *start_with(&in, "platforms", "alpha");
    copy.platform.dispatch_key = "vulkan";
    CHECK_STATUS(berth_platform_configure(&copy, &in.config, in.registry), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "has the dispatch key 'vulkan'");
    close_fixture(&in);
}

// ---- the device ---------------------------------------------------------------------------------

#define LARGE_BYTES ((UINT64_C(5) << 20) / 2) // two and a half pieces of a staged copy

// Sends bytes there and back, and between two buffers.
static void check_round_trip(berth_runtime *runtime) {
    unsigned char *sent = malloc(LARGE_BYTES);
    unsigned char *back = calloc(LARGE_BYTES, 1);
    berth_buffer a;
    berth_buffer b;
    for (size_t i = 0; i < LARGE_BYTES; ++i) {
        sent[i] = (unsigned char)(i * 31 + (i >> 8));
    }
    CHECK_OK(berth_runtime_alloc(runtime, LARGE_BYTES + 3, &a));
    CHECK_OK(berth_runtime_alloc(runtime, LARGE_BYTES + 7, &b));
    CHECK_OK(berth_runtime_upload(runtime, a, 3, sent, LARGE_BYTES));
    const berth_copy copy = {
        .size = sizeof(copy),
        .destination = b.base,
        .destination_offset = 5,
        .source = a.base,
        .source_offset = 3,
        .bytes = LARGE_BYTES,
    };
    CHECK_OK(berth_runtime_copy(runtime, &copy));
    CHECK_OK(berth_runtime_wait(runtime));
    CHECK_OK(berth_runtime_download(runtime, back, b, 5, LARGE_BYTES));
    CHECK_BYTES(back, sent, LARGE_BYTES);
    CHECK_STATUS(berth_runtime_upload(runtime, a, 4, sent, LARGE_BYTES), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_runtime_upload(runtime, a, UINT64_MAX, sent, 2), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_runtime_download(runtime, back, b, 8, LARGE_BYTES), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "leaves a buffer of");
    CHECK_OK(berth_runtime_upload(runtime, (berth_buffer){0}, 0, NULL, 0));
    CHECK_OK(berth_runtime_download(runtime, NULL, a, LARGE_BYTES + 3, 0));
    berth_runtime_free(runtime, &a);
    berth_runtime_free(runtime, &b);
    CHECK_NULL(a.base);
    berth_runtime_free(runtime, &a);
    free(sent);
    free(back);
}

TEST(runtime_of_five_slots_copies_through_the_host) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "platforms", "alpha");
    berth_runtime *runtime = NULL;
    CHECK_OK(berth_runtime_open(platform, 1, berth_registry_host(in.registry), &runtime));
    CHECK(!berth_runtime_is_host(runtime));
    CHECK_INT(berth_runtime_memory_type(runtime), BERTH_MEMORY_EXTENSION);
    CHECK_UINT(berth_runtime_alignment(runtime), 256);
    CHECK_PTR(berth_runtime_platform(runtime), platform);
    const berth_device *device = berth_runtime_device(runtime);
    CHECK_STR(device->platform, "alpha");
    CHECK_STR(device->device_type, "alpha");
    CHECK_UINT(device->index, 1);
    CHECK_PTR(device->self, platform->self);
    check_round_trip(runtime);
    const berth_runtime_counters *counters = berth_runtime_counted(runtime);
    CHECK_UINT(counters->to_device, 4); // one, and three staged pieces
    CHECK_UINT(counters->to_host, 4);
    CHECK_UINT(counters->on_device, 0);
    CHECK_UINT(counters->waits, 1);
    CHECK_UINT(berth_runtime_waited(runtime), 9); // every copy was complete
    CHECK_UINT(state_of(platform)->live_bytes, 0);
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    CHECK_OK(berth_runtime_memory(runtime, &free_bytes, &total));
    CHECK_UINT(free_bytes, 1000);
    CHECK_UINT(total, 1000);
    berth_device_info info;
    CHECK_OK(berth_runtime_info(runtime, &info));
    CHECK_STR(info.name, "Fake 1");
    CHECK_STR(info.uuid, "");
    berth_runtime_close(runtime);
    close_fixture(&in);
}

TEST(runtime_uses_the_slots_that_are_there) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "platforms", "full");
    berth_runtime *runtime = NULL;
    CHECK_OK(berth_runtime_open(platform, 0, berth_registry_host(in.registry), &runtime));
    check_round_trip(runtime);
    CHECK_UINT(berth_runtime_counted(runtime)->on_device, 1);
    CHECK_UINT(berth_runtime_counted(runtime)->to_host, 1);
    CHECK_UINT(berth_runtime_waited(runtime), 4);
    berth_buffer buffer;
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    CHECK_OK(berth_runtime_alloc(runtime, 300, &buffer));
    CHECK_OK(berth_runtime_memory(runtime, &free_bytes, &total));
    CHECK_UINT(free_bytes, 700);
    berth_runtime_free(runtime, &buffer);
    berth_runtime_close(runtime);
    CHECK_STR(state_of(platform)->calls,
              "open allocate allocate copy_to_device copy_on_device synchronize copy_to_host "
              "release release allocate release close");
    close_fixture(&in);
}

TEST(runtime_of_host_memory_calls_no_copy) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "builtins", "cpu");
    berth_runtime *runtime = NULL;
    CHECK_OK(berth_runtime_open(platform, 0, berth_registry_host(in.registry), &runtime));
    CHECK(berth_runtime_is_host(runtime));
    CHECK_INT(berth_runtime_memory_type(runtime), BERTH_MEMORY_HOST);
    CHECK_UINT(berth_runtime_alignment(runtime), 64);
    check_round_trip(runtime);
    CHECK_UINT(berth_runtime_counted(runtime)->to_device, 0);
    CHECK_UINT(berth_runtime_counted(runtime)->waits, 1);
    // Queued work ends before the host touches its memory: three copies and the wait.
    CHECK_STR(state_of(platform)->calls, "synchronize synchronize synchronize synchronize");
    berth_runtime_close(runtime);
    close_fixture(&in);
}

static void *alloc_nothing(const berth_host *host, uint64_t bytes, uint64_t alignment) {
    (void)host;
    (void)bytes;
    (void)alignment;
    return NULL;
}

TEST(runtime_without_a_platform_is_the_host) {
    fixture in;
    open_fixture(&in);
    in.config.allow_fallback = true;
    CHECK_OK(start(&in));
    berth_runtime *runtime = NULL;
    CHECK_OK(berth_runtime_open(NULL, 0, berth_registry_host(in.registry), &runtime));
    CHECK(berth_runtime_is_host(runtime));
    CHECK_STR(berth_runtime_device(runtime)->platform, "host");
    CHECK_NULL(berth_runtime_platform(runtime));
    check_round_trip(runtime);
    CHECK_UINT(berth_runtime_counted(runtime)->waits, 0);
    berth_device_info info;
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    CHECK_OK(berth_runtime_info(runtime, &info));
    CHECK(info.memory_bytes > 0 && info.compute_units > 0);
    CHECK_OK(berth_runtime_memory(runtime, &free_bytes, &total));
    CHECK(free_bytes > 0 && free_bytes <= total);
    berth_buffer buffer = {.bytes = 7};
    CHECK_OK(berth_runtime_alloc(runtime, 0, &buffer));
    CHECK_NULL(buffer.base);
    CHECK_UINT(buffer.bytes, 0);
    berth_runtime_close(runtime);
    berth_runtime_close(NULL);
    berth_host full = *berth_registry_host(in.registry);
    full.alloc = alloc_nothing;
    CHECK_OK(berth_runtime_open(NULL, 0, &full, &runtime));
    CHECK_STATUS(berth_runtime_alloc(runtime, 4096, &buffer), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "of platform 'host' has no room for 4096 bytes");
    berth_runtime_close(runtime);
    close_fixture(&in);
}

TEST(runtime_out_of_memory_says_asked_free_and_what_to_change) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "platforms", "full");
    berth_runtime *runtime = NULL;
    CHECK_OK(berth_runtime_open(platform, 0, berth_registry_host(in.registry), &runtime));
    ((fake_state *)platform->self)->limit_bytes = 100;
    berth_buffer buffer;
    CHECK_STATUS(berth_runtime_alloc(runtime, 101, &buffer), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(),
                   "device 0 of platform 'full' has no room for 101 bytes, 1000 of 1000 are free: "
                   "lower --kv-cache-blocks");
    CHECK_CONTAINS(berth_status_message(), "the fake is full");
    CHECK_NULL(buffer.base);
    berth_runtime_close(runtime);
    close_fixture(&in);
}

TEST(runtime_passes_failures_of_the_device_on) {
    fixture in;
    const berth_platform_entry *platform = start_with(&in, "platforms", "full");
    berth_runtime *runtime = NULL;
    const berth_host *host = berth_registry_host(in.registry);
    CHECK_STATUS(berth_runtime_open(platform, 2, host, &runtime), BERTH_UNAVAILABLE);
    CHECK_CONTAINS(berth_status_message(), "platform 'full' has 2 devices, there is no device 2");
    fake_state *fake = platform->self;
    fake->answer = BERTH_UNAVAILABLE;
    CHECK_STATUS(berth_runtime_open(platform, 0, host, &runtime), BERTH_UNAVAILABLE);
    CHECK_CONTAINS(berth_status_message(), "open says no");
    CHECK_NULL(runtime);
    fake->answer = BERTH_OK;
    CHECK_OK(berth_runtime_open(platform, 0, host, &runtime));
    berth_buffer buffer;
    char byte = 1;
    CHECK_OK(berth_runtime_alloc(runtime, 1, &buffer));
    fake->answer = BERTH_IO;
    CHECK_STATUS(berth_runtime_upload(runtime, buffer, 0, &byte, 1), BERTH_IO);
    CHECK_CONTAINS(berth_status_message(), "copy_to_device says no");
    CHECK_STATUS(berth_runtime_download(runtime, &byte, buffer, 0, 1), BERTH_IO);
    CHECK_STATUS(berth_runtime_wait(runtime), BERTH_IO);
    CHECK_CONTAINS(berth_status_message(), "synchronize says no");
    fake->answer = BERTH_OK;
    berth_runtime_free(runtime, &buffer);
    berth_runtime_close(runtime);
    close_fixture(&in);
}
