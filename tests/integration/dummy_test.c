// SPDX-License-Identifier: Apache-2.0
// platform-dummy from the outside: it computes what the reference computed, exactly these ops
// bounce, nothing bounces without permission, and nobody gets it who did not ask for it.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "support/program.h"
#include "support/test.h"

#define MODELS "tests/data/models/"

static const char *const models[] = {MODELS "llama", MODELS "qwen3", MODELS "shakespeare"};

#define BOUNCED_NAMED "embedding, linear, paged_attention, select_rows"
static const char *const bounced[] = {"embedding", "linear", "paged_attention", "select_rows"};
static const char *const overridden[] = {"rms_norm", "rotary_embedding", "silu_and_mul"};

static bool is_one_of(const char *name, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(list[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static const char *text_at(const berth_json *node, const char *path) {
    berth_str text = {0};
    CHECK_OK(berth_json_get_str(node, path, &text));
    return text.data;
}

TEST(dummy_computes_what_the_reference_computed) {
    for (size_t i = 0; i < BERTH_COUNT(models); ++i) {
        program p;
        char golden[256];
        (void)snprintf(golden, sizeof(golden), "%s/golden.json", models[i]);
        PROGRAM_MUST(&p, NULL, BERTH, "eval", "--model", models[i], "--golden", golden,
                     "--platform", "dummy", "--allow-fallback");
        CHECK_CONTAINS(p.out, "passed");
    }
}

// Every site of every model: the three ops of the dummy run there, the four others bounce.
TEST(dummy_bounces_exactly_four_ops) {
    for (size_t i = 0; i < BERTH_COUNT(models); ++i) {
        program p;
        const berth_json *sites = NULL;
        bool has_seen[BERTH_COUNT(bounced) + BERTH_COUNT(overridden)] = {false};
        PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "--json", "--model", models[i],
                     "--platform", "dummy", "--allow-fallback");
        berth_json *root = program_json(&p);
        CHECK_OK(berth_json_get_array(root, "sites", &sites));
        for (size_t k = 0; k < berth_json_size(sites); ++k) {
            const berth_json *site = berth_json_at(sites, k);
            const char *op = text_at(site, "op");
            bool is_bounced = false;
            CHECK_OK(berth_json_get_bool(site, "is_bounced", &is_bounced));
            CHECK(is_one_of(op, bounced, BERTH_COUNT(bounced)) == is_bounced);
            CHECK_STR(text_at(site, "how"), is_bounced ? "bounced" : "override");
            for (size_t n = 0; n < BERTH_COUNT(has_seen); ++n) {
                const char *name =
                    n < BERTH_COUNT(bounced) ? bounced[n] : overridden[n - BERTH_COUNT(bounced)];
                has_seen[n] = has_seen[n] || strcmp(name, op) == 0;
            }
        }
        for (size_t n = 0; n < BERTH_COUNT(has_seen); ++n) {
            CHECK(has_seen[n]);
        }
        berth_json_destroy(root);
    }
}

TEST(dummy_stops_without_permission_and_names_the_ops) {
    for (size_t i = 0; i < BERTH_COUNT(models); ++i) {
        program p;
        PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", models[i], "--prompt",
                    "ROMEO:", "--platform", "dummy");
        CHECK_INT(p.status, 6);
        CHECK_STR(p.out, "");
        CHECK_CONTAINS(p.err, "has no implementation of " BOUNCED_NAMED ";");
        CHECK_CONTAINS(p.err, "--allow-fallback");
    }
}

TEST(dummy_may_bounce_what_a_list_permits_and_no_more) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "run", "--model", models[0], "--prompt", "ROMEO:", "-n", "2",
                 "--platform", "dummy", "--fallback-ops",
                 "embedding,Linear,paged_attention,select_rows");
    PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", models[0], "--prompt", "ROMEO:", "-n", "2",
                "--platform", "dummy", "--fallback-ops", "embedding,linear,select_rows");
    CHECK_INT(p.status, 6);
    CHECK_CONTAINS(p.err, "has no implementation of paged_attention;");
}

// ---- ops explain --------------------------------------------------------------------------------

static void explain(program *p, const char *custom_ops) {
    PROGRAM_RUN(p, NULL, BERTH, "ops", "explain", "RMSNorm", "--json", "--model", models[0],
                "--platform", "dummy", "--allow-fallback", "--custom-ops", custom_ops);
}

TEST(explain_names_who_runs_an_op_why_and_who_was_next) {
    program p;
    explain(&p, "all");
    CHECK_INT(p.status, 0);
    berth_json *root = program_json(&p);
    CHECK_STR(text_at(root, "sites.0.implementation"), "dummy_rms_norm");
    CHECK_STR(text_at(root, "sites.0.plugin"), "dummy");
    CHECK_CONTAINS(text_at(root, "sites.0.reason"), "override");
    CHECK_CONTAINS(text_at(root, "sites.0.runner_up"), "its form in the op library comes first");
    berth_json_destroy(root);
}

TEST(custom_ops_governs_an_override) {
    program p;
    explain(&p, "all,-rms_norm");
    CHECK_INT(p.status, 0);
    berth_json *root = program_json(&p);
    CHECK_STR(text_at(root, "sites.0.implementation"), "native");
    CHECK_STR(text_at(root, "sites.0.reason"), "-rms_norm");
    CHECK_CONTAINS(text_at(root, "sites.0.runner_up"), "dummy_rms_norm");
    berth_json_destroy(root);
    explain(&p, "all,+rms_norm,-rms_norm");
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "rms_norm");
}

// ---- selection ----------------------------------------------------------------------------------

TEST(nobody_gets_the_dummy_who_did_not_ask) {
    program p;
    if (access(TEST_BUILD "/plugins/libberth-platform-cpu.so", F_OK) != 0) {
        SKIP("platform-cpu is not built here");
    }
    // Why cuda is filtered: on a machine with a GPU the built-in accelerator would be chosen.
    PROGRAM_MUST(&p, PROGRAM_ENV("BERTH_PLUGINS=cpu,dummy,model-dummy"), BERTH, "plugins",
                 "explain", "--json");
    berth_json *root = program_json(&p);
    CHECK_STR(text_at(root, "platform"), "cpu");
    berth_json_destroy(root);
    CHECK_CONTAINS(p.out, "named: choose it with --platform dummy");
}
