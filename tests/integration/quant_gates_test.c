// SPDX-License-Identifier: Apache-2.0
// What `berth eval` says of single layers of a quantized checkpoint: that they are right, and that
// it notices when they are not.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "support/changed_checkpoint.h"
#include "support/program.h"
#include "support/test.h"

#define DATA "tests/data/quant"
#define FP8  DATA "/ct-fp8-dynamic"
#define MOE  DATA "/moe-fp8"

static const char *const golden_files[] = {"golden.json", "golden.safetensors", NULL};

static void eval(program *p, const char *model, const char *golden, const char *platform) {
    PROGRAM_RUN(p, NULL, BERTH, "eval", "--model", model, "--golden", golden, "--platform",
                platform, "--allow-fallback", "--json");
}

static double number(const berth_json *report, const char *path) {
    double value = 0;
    CHECK_OK(berth_json_get_f64(report, path, &value));
    return value;
}

// ---- right ones ---------------------------------------------------------------------------------

static void check_right(const char *name, double layers, double codes) {
    static const char *const platforms[] = {"cpu", "dummy"};
    char folder[160];
    char golden[192];
    (void)snprintf(folder, sizeof folder, DATA "/%s", name);
    (void)snprintf(golden, sizeof golden, "%s/golden.json", folder);
    for (size_t i = 0; i < BERTH_COUNT(platforms); ++i) {
        program p;
        eval(&p, folder, golden, platforms[i]);
        CHECK_INT(p.status, 0);
        berth_json *report = program_json(&p);
        CHECK_NEAR(number(report, "linears.layers"), layers, 0);
        CHECK_NEAR(number(report, "linears.codes"), codes, 0);
        CHECK_NEAR(number(report, "linears.wrong_codes"), 0, 0);
        CHECK(number(report, "linears.error") <= 1e-5);
        berth_json_destroy(report);
    }
}

TEST(linear_layers_alone_give_what_the_reference_gave) {
    check_right("ct-fp8-dynamic", 22, 256);
    check_right("ct-int8-static-asym", 22, 256);
    check_right("gptq-4bit-act", 22, 0);
}

TEST(linear_layers_alone_are_told_in_one_line) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "eval", "--model", FP8, "--golden", FP8 "/golden.json",
                 "--platform", "cpu");
    CHECK_CONTAINS(p.out, "linear layers: 22 alone, at most ");
    CHECK_CONTAINS(p.out, "256 of 256 codes equal\n");
    CHECK_CONTAINS(p.out, "layers alone within 1e-05");
}

TEST(golden_file_without_layers_is_compared_without_them) {
    program p;
    eval(&p, "tests/data/models/llama", "tests/data/models/llama/golden.json", "cpu");
    CHECK_INT(p.status, 0);
    berth_json *report = program_json(&p);
    const berth_json *linears = berth_json_find(report, "linears");
    CHECK(linears != NULL && berth_json_kind_of(linears) == BERTH_JSON_NULL);
    berth_json_destroy(report);
}

TEST(expert_alone_gives_what_the_reference_gave) {
    static const char *const platforms[] = {"cpu", "dummy"};
    for (size_t i = 0; i < BERTH_COUNT(platforms); ++i) {
        program p;
        eval(&p, MOE, MOE "/golden.json", platforms[i]);
        CHECK_INT(p.status, 0);
        berth_json *report = program_json(&p);
        CHECK_NEAR(number(report, "linears.layers"), 64, 0);
        CHECK_NEAR(number(report, "experts.layers"), 1, 0);
        CHECK(number(report, "experts.error") <= 1e-5);
        berth_json_destroy(report);
    }
}

// ---- wrong ones ---------------------------------------------------------------------------------

// The golden files with a change, beside the checkpoint as it is.
static void eval_changed_of(program *p, const char *folder, const text_change *text,
                            const tensor_change *tensor) {
    sandbox box;
    sandbox_make(&box);
    changed_checkpoint_write(&box, folder, golden_files, text, tensor);
    eval(p, folder, sandbox_path(&box, "golden.json"), "cpu");
    sandbox_remove(&box);
}

static void eval_changed(program *p, const text_change *text, const tensor_change *tensor) {
    eval_changed_of(p, FP8, text, tensor);
}

TEST(output_of_a_layer_that_is_off_fails_the_gate_though_all_logits_are_right) {
    const tensor_change change = {
        .file = "golden.safetensors",
        .tensor = "linear_output.model.layers.1.mlp.up_proj",
        .data = "\x00\x00\x80\x3f",
        .data_bytes = 4,
        .at = 8,
    };
    program p;
    eval_changed(&p, NULL, &change);
    CHECK_INT(p.status, 1);
    berth_json *report = program_json(&p);
    berth_str worst;
    CHECK(number(report, "linears.error") > 1e-2);
    CHECK_NEAR(number(report, "linears.wrong_codes"), 0, 0);
    CHECK_OK(berth_json_get_str(report, "linears.worst", &worst));
    CHECK_STR(worst.data, "model.layers.1.mlp.up_proj");
    berth_json_destroy(report);
}

TEST(code_that_is_off_fails_the_gate) {
    const tensor_change change = {
        .file = "golden.safetensors",
        .tensor = "probe_quantized_input",
        .data = "\x7d\x7d",
        .data_bytes = 2,
        .at = 100,
    };
    program p;
    eval_changed(&p, NULL, &change);
    CHECK_INT(p.status, 1);
    berth_json *report = program_json(&p);
    CHECK_NEAR(number(report, "linears.wrong_codes"), 2, 0);
    CHECK(number(report, "linears.error") <= 1e-5);
    berth_json_destroy(report);
}

TEST(layer_of_other_sizes_than_the_golden_file_says_is_refused) {
    const text_change change = {
        .file = "golden.json",
        .from = "\"model.layers.0.self_attn.q_proj\"",
        .to = "\"model.layers.0.mlp.down_proj\"",
    };
    program p;
    eval_changed(&p, &change, NULL);
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "'model.layers.0.mlp.down_proj' has 176 inputs and 64 outputs in the "
                          "model, not 64 and 64");
}

TEST(rows_without_their_outputs_are_refused) {
    const tensor_change change = {
        .file = "golden.safetensors",
        .tensor = "linear_output.model.layers.1.mlp.up_proj",
        .is_left_out = true,
    };
    program p;
    eval_changed(&p, NULL, &change);
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "tensor 'linear_output.model.layers.1.mlp.up_proj' is missing");
}

TEST(another_expert_than_the_golden_file_says_fails_the_gate) {
    const text_change change = {
        .file = "golden.json",
        .from = "\"model.layers.1.mlp.experts.0\"",
        .to = "\"model.layers.1.mlp.experts.2\"",
    };
    program p;
    eval_changed_of(&p, MOE, &change, NULL);
    CHECK_INT(p.status, 1);
    berth_json *report = program_json(&p);
    CHECK(number(report, "experts.error") > 1e-2);
    CHECK(number(report, "linears.error") <= 1e-5);
    berth_json_destroy(report);
}

TEST(expert_that_the_model_does_not_have_is_refused) {
    const text_change change = {
        .file = "golden.json",
        .from = "\"model.layers.1.mlp.experts.0\"",
        .to = "\"model.layers.1.mlp.experts.99\"",
    };
    program p;
    eval_changed_of(&p, MOE, &change, NULL);
    CHECK_INT(p.status, 3);
    CHECK_CONTAINS(p.err, "'model.layers.1.mlp.experts.99' is no expert of the model");
}
