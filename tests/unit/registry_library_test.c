// SPDX-License-Identifier: Apache-2.0
// registry: opening libraries. The plugins are those of tests/fakes, each with its manifest.
#include "registry_rig.h"

#include "support/alloc.h"

#define FAKES TEST_BUILD "/tests/plugins/"

#define MOST 6

typedef struct load {
    rig rig;
    berth_candidate items[MOST];
    berth_candidates candidates;
} load;

static berth_candidate *add_manifest(load *in, const char *name) {
    char path[256];
    (void)snprintf(path, sizeof(path), FAKES "%s/%s.plugin.yaml", name, name);
    CHECK(in->candidates.count < MOST);
    berth_candidate *candidate = &in->items[in->candidates.count++];
    CHECK_OK(berth_manifest_load(path, in->rig.arena, candidate));
    in->candidates.items = in->items;
    return candidate;
}

static void open_load(load *in) {
    *in = (load){0};
    rig_open(&in->rig);
}

static berth_status run(load *in) {
    return berth_registry_load(in->rig.registry, &in->candidates);
}

static void close_load(load *in) {
    rig_close(&in->rig);
}

// ---- one fake, one outcome ----------------------------------------------------------------------

typedef struct outcome {
    const char *fake;
    const char *platform; // asked for
    berth_plugin_state state;
    const char *text;
} outcome;

static const outcome outcomes[] = {
    {"no-symbol",        NULL,         BERTH_PLUGIN_LOAD_FAILED,
     "libberth-no-symbol.so does not export berth_plugin_v1"                                                     },
    {"abi-future",       NULL,         BERTH_PLUGIN_LOAD_FAILED,
     "the library speaks ABI 7.1 to 9.0, this host 1.0 to 1.1; install a newer berth"                            },
    {"wrong-id",         NULL,         BERTH_PLUGIN_LOAD_FAILED,
     "the manifest's id is 'wrong-id', the library's 'other-id'"                                                 },
    {"undefined-symbol", "variant",    BERTH_PLUGIN_LOAD_FAILED,     "berth_fake_that_nobody_has"                },
    {"null-slot",        "null-slot",  BERTH_PLUGIN_REGISTER_FAILED,
     "berth_device_api: the required slot 'release' is not set (while adding platform "
     "'null-slot')"                                                                                              },
    {"declining",        "declining",  BERTH_PLUGIN_DECLINED,        "no driver 550 or later"                    },
    {"declining",        NULL,         BERTH_PLUGIN_DECLINED,        "named: choose it with --platform declining"},
    {"unknown-op",       "unknown-op", BERTH_PLUGIN_ACTIVE,          ""                                          },
};

static void check_outcome(void **state) {
    const outcome *row = *state;
    load in;
    open_load(&in);
    in.rig.config.platform = row->platform;
    const berth_candidate *candidate = add_manifest(&in, row->fake);
    CHECK_OK(run(&in));
    CHECK_STATE(candidate, row->state);
    CHECK_CONTAINS(candidate->reason, row->text);
    CHECK_INT(candidate->entries[0].state, row->state);
    CHECK_UINT(berth_registry_platform_count(in.rig.registry),
               row->state == BERTH_PLUGIN_ACTIVE ? 1 : 0);
    CHECK_OK(berth_registry_freeze(in.rig.registry));
    close_load(&in);
}

TEST_CASES(registry_loads) {
    for (size_t i = 0; i < BERTH_COUNT(outcomes); ++i) {
        test_add(cases, outcomes[i].fake, check_outcome, (void *)&outcomes[i]);
    }
}

TEST(registry_names_what_a_library_is_missing) {
    load in;
    open_load(&in);
    berth_candidate *candidate = add_manifest(&in, "half-failed");
    candidate->library = "/nowhere/libberth-acme.so";
    CHECK_OK(run(&in));
    CHECK_STATE(candidate, BERTH_PLUGIN_LOAD_FAILED);
    CHECK_CONTAINS(candidate->reason, "cannot load the library: /nowhere/libberth-acme.so");
    close_load(&in);
}

// ---- one failure stops nothing else -------------------------------------------------------------

TEST(registry_goes_on_behind_a_plugin_that_fails) {
    load in;
    open_load(&in);
    add_manifest(&in, "no-symbol");
    const berth_candidate *half = add_manifest(&in, "half-failed");
    const berth_candidate *last = add_manifest(&in, "entry-mismatch");
    CHECK_OK(run(&in));
    CHECK_STATE(half, BERTH_PLUGIN_ACTIVE);
    CHECK_INT(half->entries[0].state, BERTH_PLUGIN_REGISTER_FAILED);
    CHECK_STR(half->entries[0].reason, "the licence server does not answer");
    CHECK_INT(half->entries[1].state, BERTH_PLUGIN_ACTIVE);
    CHECK_STR(half->reason,
              "entry point 'half-first': register failed: the licence server does not "
              "answer");
    CHECK_STATE(last, BERTH_PLUGIN_ACTIVE);
    CHECK_OK(berth_registry_freeze(in.rig.registry));
    CHECK_NULL(berth_registry_find_layer(in.rig.registry, "HalfFailedLeft"));
    const berth_layer_entry *kept = berth_registry_find_layer(in.rig.registry, "HalfFailedKept");
    CHECK_STR(kept->owner->id, "half-failed");
    CHECK_STR(kept->owner->entry, "half-second");
    CHECK_STR(kept->owner->group, BERTH_GROUP_GENERAL);
    CHECK_PTR(kept->owner->candidate, half);
    close_load(&in);
}

TEST(registry_runs_an_entry_point_once) {
    load in;
    open_load(&in);
    const berth_candidate *once = add_manifest(&in, "once");
    CHECK_OK(run(&in));
    CHECK_STATE(once, BERTH_PLUGIN_ACTIVE);
    CHECK_OK(run(&in)); // what has a state already is not run again
    CHECK_STATE(once, BERTH_PLUGIN_ACTIVE);
    close_load(&in);
    // The library is still mapped and counts on: the guard above was not idle.
    open_load(&in);
    const berth_candidate *again = add_manifest(&in, "once");
    CHECK_OK(run(&in));
    CHECK_REFUSED(again, "register is called 2 times");
    close_load(&in);
}

TEST(registry_fails_for_a_required_plugin_after_all_others_had_their_turn) {
    load in;
    open_load(&in);
    add_manifest(&in, "no-symbol")->importance = BERTH_IMPORTANCE_REQUIRED;
    const berth_candidate *last = add_manifest(&in, "entry-mismatch");
    CHECK_STATUS(run(&in), BERTH_UNAVAILABLE);
    CHECK_CONTAINS(berth_status_message(),
                   "plugin 'no-symbol' is required; its entry point 'no-symbol': load failed: ");
    CHECK_STATE(last, BERTH_PLUGIN_ACTIVE);
    close_load(&in);
    open_load(&in);
    in.rig.config.platform = "declining";
    add_manifest(&in, "declining")->importance = BERTH_IMPORTANCE_REQUIRED;
    CHECK_OK(run(&in)); // an answer, not a failure
    close_load(&in);
}

// ---- manifest and library -----------------------------------------------------------------------

TEST(registry_calls_only_what_the_manifest_lists) {
    load in;
    open_load(&in);
    const berth_candidate *candidate = add_manifest(&in, "entry-mismatch");
    CHECK_OK(run(&in));
    CHECK_UINT(candidate->entry_count, 3);
    CHECK_STR(candidate->entries[0].name, "in-both");
    CHECK_INT(candidate->entries[0].state, BERTH_PLUGIN_ACTIVE);
    CHECK_STR(candidate->entries[1].name, "in-manifest");
    CHECK_INT(candidate->entries[1].state, BERTH_PLUGIN_LOAD_FAILED);
    CHECK_CONTAINS(candidate->entries[1].reason, "the library has no such entry point");
    CHECK_STR(candidate->entries[2].name, "in-library");
    CHECK_INT(candidate->entries[2].state, BERTH_PLUGIN_FOUND);
    CHECK_CONTAINS(candidate->entries[2].reason, "not in the manifest: it is not called");
    close_load(&in);
}

TEST(registry_takes_all_of_a_library_without_a_manifest) {
    load in;
    open_load(&in);
    in.rig.config.plugins = "in-both";
    in.candidates = (berth_candidates){.items = in.items, .count = 1};
    in.items[0] = (berth_candidate){
        .id = "",
        .version = "",
        .vendor = "",
        .library = FAKES "entry-mismatch/libberth-entry-mismatch.so",
        .source = "--plugin",
        .reason = "",
    };
    CHECK_OK(run(&in));
    CHECK_STR(in.items[0].id, "entry-mismatch");
    CHECK_STR(in.items[0].version, "1.0.0");
    CHECK_STR(in.items[0].vendor, "berth tests");
    CHECK_UINT(in.items[0].entry_count, 2);
    CHECK_INT(in.items[0].entries[0].state, BERTH_PLUGIN_ACTIVE);
    CHECK_INT(in.items[0].entries[1].state, BERTH_PLUGIN_FILTERED); // one filter for all
    close_load(&in);
}

TEST(registry_compares_the_abi_of_manifest_and_library) {
    load in;
    open_load(&in);
    berth_candidate *candidate = add_manifest(&in, "half-failed");
    candidate->abi_max = BERTH_ABI(1, 3);
    CHECK_OK(run(&in));
    CHECK_STATE(candidate, BERTH_PLUGIN_LOAD_FAILED);
    CHECK_CONTAINS(
        candidate->reason,
        "the manifest promises ABI 1.0 to 1.3, the library speaks 1.0 to 1.1; correct 'abi' in");
    close_load(&in);
}

TEST(registry_refuses_the_second_plugin_of_an_id) {
    load in;
    open_load(&in);
    const berth_candidate *first = add_manifest(&in, "entry-mismatch");
    const berth_candidate *second = add_manifest(&in, "entry-mismatch");
    CHECK_OK(run(&in));
    CHECK_STATE(first, BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(second, BERTH_PLUGIN_LOAD_FAILED);
    CHECK_CONTAINS(second->reason, "the plugin id 'entry-mismatch' is taken by ");
    close_load(&in);
}

// ---- groups, states -----------------------------------------------------------------------------

TEST(registry_reports_groups_that_it_does_not_serve) {
    static const char *const groups[] = {
        "berth.io_processor_plugins",
        "berth.stat_logger_plugins",
        "berth.endpoint_plugins",
        "berth.logits_processors",
    };
    for (size_t i = 0; i < BERTH_COUNT(groups); ++i) {
        load in;
        open_load(&in);
        berth_candidate *candidate = add_manifest(&in, "half-failed");
        candidate->entries[0].group = groups[i];
        CHECK_OK(run(&in));
        CHECK_INT(candidate->entries[0].state, BERTH_PLUGIN_FOUND);
        CHECK_CONTAINS(candidate->entries[0].reason, "this host does not serve berth.");
        CHECK_CONTAINS(candidate->entries[0].reason, groups[i]);
        close_load(&in);
    }
    load in;
    open_load(&in);
    berth_candidate *candidate = add_manifest(&in, "half-failed");
    candidate->entries[0].group = "berth.platforms";
    CHECK_OK(run(&in));
    CHECK_INT(candidate->entries[0].state, BERTH_PLUGIN_LOAD_FAILED);
    CHECK_CONTAINS(candidate->entries[0].reason, "the group 'berth.platforms' is unknown");
    close_load(&in);
}

TEST(registry_opens_nothing_that_has_nothing_to_run) {
    load in;
    open_load(&in);
    berth_candidate *filtered = add_manifest(&in, "half-failed");
    filtered->entries[0].state = BERTH_PLUGIN_FILTERED;
    filtered->entries[1].state = BERTH_PLUGIN_FILTERED;
    filtered->library = "/nowhere/at/all.so"; // would be seen if it were opened
    berth_candidate *refused = add_manifest(&in, "no-symbol");
    refused->state = BERTH_PLUGIN_REFUSED;
    refused->reason = "its directory is writable by all";
    berth_candidate *named = add_manifest(&in, "variant");
    named->library = "/nowhere/at/all.so";
    CHECK_OK(run(&in));
    CHECK_STATE(filtered, BERTH_PLUGIN_FILTERED);
    CHECK_STATE(refused, BERTH_PLUGIN_REFUSED);
    CHECK_STR(refused->reason, "its directory is writable by all");
    CHECK_STATE(named, BERTH_PLUGIN_DECLINED);
    CHECK_STR(named->reason, "named: choose it with --platform variant");
    close_load(&in);
}

// ---- variants -----------------------------------------------------------------------------------

TEST(registry_opens_the_next_variant_only_when_the_better_one_cannot_be_loaded) {
    load in;
    open_load(&in);
    in.rig.config.platform = "variant";
    berth_candidate *worst = add_manifest(&in, "null-slot");
    worst->variant_of = "variant";
    worst->score = 1;
    worst->is_named = false;
    const berth_candidate *taken = add_manifest(&in, "variant");
    const berth_candidate *broken = add_manifest(&in, "undefined-symbol");
    CHECK_OK(run(&in));
    CHECK_STATE(broken, BERTH_PLUGIN_LOAD_FAILED);
    CHECK_STATE(taken, BERTH_PLUGIN_ACTIVE);
    CHECK_STATE(worst, BERTH_PLUGIN_FOUND);
    CHECK_STR(worst->reason, "variant of 'variant': 'variant' of score 10 is taken");
    CHECK_UINT(berth_registry_platform_count(in.rig.registry), 1);
    const berth_platform_entry *platform = berth_registry_platform_at(in.rig.registry, 0);
    CHECK_STR(platform->platform.name, "variant");
    CHECK_STR(platform->owner->id, "variant");
    close_load(&in);
}

// ---- memory -------------------------------------------------------------------------------------

TEST(registry_survives_every_failed_allocation) {
    bool has_failed = true;
    for (uint64_t n = 1; has_failed; ++n) {
        load in;
        open_load(&in);
        add_manifest(&in, "entry-mismatch");
        if (!test_alloc_fail_from(n)) {
            close_load(&in);
            SKIP("this flavour cannot make allocations fail");
        }
        berth_status status = run(&in);
        status = status == BERTH_OK ? berth_registry_freeze(in.rig.registry) : status;
        has_failed = test_alloc_has_failed();
        test_alloc_fail_from(0);
        CHECK(status == BERTH_OK || has_failed);
        close_load(&in);
        CHECK(n < 1000);
    }
}
