// SPDX-License-Identifier: Apache-2.0
// The passes in the program: a plugin that brings the fused ops changes the graph and no number of
// what comes out of it, nor do rows that are selected early; switches and custom_ops leave the
// graph alone; who asks is told.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/test.h"

#define LLAMA      "tests/data/models/llama"
#define REFERENCES TEST_BUILD "/tests/plugins/references/references.plugin.yaml"
#define WRONG_OP   TEST_BUILD "/tests/plugins/wrong-op/wrong-op.plugin.yaml"
#define FUSED_ONLY PROGRAM_ENV("REFERENCES_FUSED_ONLY=1")

typedef struct fused_model {
    const char *folder;
    int norms; // fused nodes by what they begin with, of three layers and the head
    int activations;
    int quantizers;
} fused_model;

static const fused_model models[] = {
    {LLAMA,                                    7, 3, 0},
    {"tests/data/quant/ct-fp8-dynamic",        7, 3, 3},
    {"tests/data/quant/ct-int8-static-asym",   7, 3, 3},
    {"tests/data/quant/fp8-kv",                7, 3, 3},
    {"tests/data/quant/gptq-4bit-act",         7, 3, 0},
    {"tests/data/quant/moe-fp8",               5, 1, 3}, // two layers of experts
    {"tests/data/quant/hf-fp8-block-deepseek", 1, 0, 0},
    {"tests/data/quant/forms/nvfp4-weights",   1, 0, 0}, // output_scale has no place there
};

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        ++count;
    }
    return count;
}

static void check_counts(const char *graph, const fused_model *model) {
    CHECK_INT(count_of(graph, "prologue = \"rms_norm\""), model->norms);
    CHECK_INT(count_of(graph, "prologue = \"silu_and_mul\""), model->activations);
    CHECK_INT(count_of(graph, "prologue = \"none\""), model->quantizers);
}

// The same tokens, and logits as far from the golden ones to the last digit.
static void check_model(void **state) {
    const fused_model *model = *state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    char golden[160];
    (void)snprintf(golden, sizeof golden, "%s/golden.json", model->folder);
    for (size_t i = 0; i < BERTH_COUNT(dtypes); ++i) {
        program graph;
        program with;
        program without;
        PROGRAM_MUST(&graph, NULL, BERTH, "graph", "--passes", "--model", model->folder,
                     "--platform", "cpu", "--plugin", REFERENCES, "--dtype", dtypes[i]);
        check_counts(graph.out, model);
        PROGRAM_MUST(&with, NULL, BERTH, "eval", "--model", model->folder, "--golden", golden,
                     "--platform", "cpu", "--plugin", REFERENCES, "--dtype", dtypes[i], "--json");
        PROGRAM_MUST(&without, NULL, BERTH, "eval", "--model", model->folder, "--golden", golden,
                     "--platform", "cpu", "--plugin", REFERENCES, "--dtype", dtypes[i], "--json",
                     "--disable-passes",
                     "narrow_rows,fuse_norm_linear,fuse_act_linear,fuse_quant_linear");
        CHECK_STR(with.out, without.out);
        CHECK_CONTAINS(with.out, "\"passed\": true");
    }
}

TEST_CASES(passes_change_no_number_of) {
    for (size_t i = 0; i < BERTH_COUNT(models); ++i) {
        test_add(cases, berth_path_name(models[i].folder), check_model,
                 (void *)(uintptr_t)&models[i]);
    }
}

// ---- switches -----------------------------------------------------------------------------------

typedef struct switched {
    const char *option;
    const char *value; // NULL: the option has none
    int norms;
    int activations;
} switched;

static void check_graph(const char *const *environment, const switched *it) {
    program p;
    const char *arguments[] = {
        BERTH, "graph",    "--passes", "--model",  LLAMA,     "--platform",
        "cpu", "--plugin", REFERENCES, it->option, it->value, NULL,
    };
    program_must(&p, environment, arguments);
    check_counts(p.out, &(fused_model){LLAMA, it->norms, it->activations, 0});
}

TEST(passes_leave_the_graph_where_the_user_says_so) {
    static const switched rows[] = {
        {"--no-fuse-norm-linear",  NULL,                                0, 3},
        {"--no-fuse-act-linear",   NULL,                                7, 0},
        {"--no-fuse-quant-linear", NULL,                                7, 3},
        {"--disable-passes",       "fuse_norm_linear, fuse_act_linear", 0, 0},
        {"--disable-passes",       "narrow_rows",                       6, 3},
        {"--custom-ops",           "all",                               7, 3},
        {"--custom-ops",           "none",                              0, 0},
        {"--custom-ops",           "-fused_linear",                     0, 0},
        {"--custom-ops",           "-FusedLinear",                      0, 0},
        {"--custom-ops",           "-rms_norm",                         0, 3},
        {"--custom-ops",           "-linear",                           0, 0},
    };
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        check_graph(NULL, &rows[i]);
    }
}

TEST(passes_ask_the_implementation_about_every_site) {
    const switched all = {"--custom-ops", "all", 7, 2};
    check_graph(PROGRAM_ENV("REFERENCES_REFUSE=layers.1.mlp.down_proj"), &all);
}

// Another plugin's override of silu_and_mul is meant, wherever the op stands.
TEST(passes_leave_what_another_plugin_overrides) {
    const switched none = {"--custom-ops", "all", 7, 3};
    const switched other = {"--plugin", WRONG_OP, 7, 0};
    check_graph(FUSED_ONLY, &none);
    check_graph(FUSED_ONLY, &other);
}

TEST(passes_read_their_keys_from_a_file) {
    sandbox box;
    program p;
    const char *text = "compilation:\n  pass_config:\n    fuse_norm_linear: false\n"
                       "    disabled: [fuse_act_linear]\n";
    sandbox_make(&box);
    CHECK_OK(berth_file_write(sandbox_path(&box, "passes.yaml"), berth_str_from(text)));
    const switched off = {"--config", sandbox_path(&box, "passes.yaml"), 0, 0};
    check_graph(NULL, &off);
    PROGRAM_MUST(&p, NULL, BERTH, "config", "--no-fuse-act-linear");
    CHECK_CONTAINS(p.out, "    fuse_act_linear: false");
    PROGRAM_RUN(&p, NULL, BERTH, "graph", "--passes", "--model", LLAMA, "--platform", "cpu",
                "--disable-passes", "fuse_norm_liner");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.err, "compilation.pass_config.disabled: there is no pass 'fuse_norm_liner'; "
                          "did you mean 'fuse_norm_linear'?");
    sandbox_remove(&box);
}

// ---- what is told -------------------------------------------------------------------------------

TEST(passes_are_named_where_they_are_asked_for) {
    program p;
    const berth_json *sites = NULL;
    int named = 0;
    int selections = 0;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "--json", "--model", LLAMA, "--platform", "cpu",
                 "--plugin", REFERENCES);
    berth_json *root = program_json(&p);
    CHECK_OK(berth_json_get_array(root, "sites", &sites));
    for (size_t i = 0; i < berth_json_size(sites); ++i) {
        berth_str op = {0};
        berth_str pass = {0};
        CHECK_OK(berth_json_get_str(berth_json_at(sites, i), "op", &op));
        const bool is_fused = berth_str_equal_cstr(op, "fused_linear");
        const berth_status status = berth_json_get_str(berth_json_at(sites, i), "pass", &pass);
        const bool is_selection = berth_str_equal_cstr(op, "select_rows");
        CHECK_INT(status == BERTH_OK, is_fused || is_selection);
        selections += is_selection && berth_str_equal_cstr(pass, "narrow_rows");
        named += is_fused && (berth_str_equal_cstr(pass, "fuse_norm_linear") ||
                              berth_str_equal_cstr(pass, "fuse_act_linear"));
    }
    CHECK_INT(named, 10);
    CHECK_INT(selections, 2);
    berth_json_destroy(root);
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "fused_linear", "--model", LLAMA, "--platform",
                 "cpu", "--plugin", REFERENCES);
    CHECK_INT(count_of(p.out, "made by pass fuse_norm_linear"), 7);
    CHECK_INT(count_of(p.out, "made by pass fuse_act_linear"), 3);
}

TEST(passes_count_their_matches_in_the_log) {
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "graph", "--passes", "--model", LLAMA, "--platform", "cpu",
                "--plugin", REFERENCES, "--log", "info", "--no-fuse-act-linear");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.err, "passes: fuse_norm_linear: 7 matches");
    CHECK_CONTAINS(p.err, "passes: narrow_rows: rows are selected early");
    CHECK_CONTAINS(p.err, "passes: fuse_quant_linear: 0 matches");
    CHECK_CONTAINS(p.err, "passes: fuse_act_linear: off");
    PROGRAM_MUST(&p, NULL, BERTH, "plugins", "inspect", "core-passes");
    CHECK_CONTAINS(p.out, "pass            fuse_norm_linear");
}

// Where no platform has the fused ops the graph is the model's own but for early rows.
TEST(passes_change_nothing_on_a_platform_without_fused_ops) {
    static const char *const platforms[] = {"cpu", "dummy"};
    for (size_t i = 0; i < BERTH_COUNT(models); ++i) {
        program before;
        PROGRAM_MUST(&before, NULL, BERTH, "graph", "--model", models[i].folder, "--platform",
                     "cpu");
        for (size_t k = 0; k < BERTH_COUNT(platforms); ++k) {
            program after;
            PROGRAM_MUST(&after, NULL, BERTH, "graph", "--passes", "--model", models[i].folder,
                         "--platform", platforms[k], "--dtype", "float32", "--allow-fallback",
                         "--disable-passes", "narrow_rows");
            CHECK_INT(count_of(after.out, "fused_linear"), 0);
            CHECK_INT(count_of(after.out, "fused_packed_linear"), 0);
            CHECK_INT(count_of(after.out, "fused_scaled_linear"), 0);
            if (k == 0) {
                CHECK_STR(after.out, before.out);
            }
        }
    }
}
