// SPDX-License-Identifier: Apache-2.0
// Small random checkpoints, each in a form that tools write and nothing else here has: the whole
// model and each layer alone beside float64 arithmetic on the numbers that the files mean, and what
// is wrong about such files.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "support/changed_checkpoint.h"
#include "support/program.h"
#include "support/test.h"

#define FORMS "tests/data/quant/forms"

static const char *const names[] = {
    "awq-quantize-config", "compression-config", "fused-on-disk-act", "gptq-experts-act",
    "gptq-zero-biases",    "latent-awq",         "latent-gptq-act",   "modelopt-fp8",
    "modelopt-nvfp4-file", "nvfp4-experts",      "nvfp4-weights",     "text-config",
};

static void eval(program *p, const char *model, const char *platform, const char *dtype) {
    char golden[192];
    (void)snprintf(golden, sizeof golden, "%s/golden.json", model);
    PROGRAM_RUN(p, NULL, BERTH, "eval", "--model", model, "--golden", golden, "--platform",
                platform, "--dtype", dtype, "--allow-fallback");
}

static void check_form(void **state) {
    static const char *const runs[][2] = {
        {"cpu",   "float32" },
        {"cpu",   "bfloat16"},
        {"dummy", "float32" },
    };
    char folder[160];
    (void)snprintf(folder, sizeof folder, FORMS "/%s", (const char *)*state);
    for (size_t i = 0; i < BERTH_COUNT(runs); ++i) {
        program p;
        eval(&p, folder, runs[i][0], runs[i][1]);
        if (p.status != 0) {
            print_error("%s on %s in %s: %s%s", folder, runs[i][0], runs[i][1], p.out, p.err);
        }
        CHECK_INT(p.status, 0);
        CHECK_CONTAINS(p.out, "layers alone within");
    }
}

TEST_CASES(forms_give_what_their_numbers_give) {
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        test_add(cases, names[i], check_form, (void *)(uintptr_t)names[i]);
    }
}

// ---- bad ones -----------------------------------------------------------------------------------

#define GPTQ   FORMS "/gptq-experts-act"
#define NVFP4  FORMS "/nvfp4-experts"
#define FUSED  FORMS "/fused-on-disk-act"
#define OPT    FORMS "/modelopt-nvfp4-file"
#define EXPERT "model.layers.0.mlp.experts.2."

typedef struct refusal {
    const char *folder;
    text_change text;
    tensor_change tensor;
    const char *words[2];
} refusal;

static const refusal refusals[] = {
    {
     .folder = GPTQ,
     .tensor = {.tensor = EXPERT "up_proj.g_idx", .data = "\1\0\0\0\0\0\0\0", .data_bytes = 8},
     .words = {"'g_idx' of shards 'w1' and 'w3' differ at input",
                  "layer 'model.layers.0.mlp.experts.w13' of scheme 'gptq'"},
     },
    {
     .folder = GPTQ,
     .tensor = {.tensor = EXPERT "down_proj.g_idx", .data = "\7\0\0\0", .data_bytes = 4},
     .words = {"'g_idx': number 0 is 7, there are 2 groups",
                  "layer 'model.layers.0.mlp.experts.w2' of scheme 'gptq'"},
     },
    {
     .folder = GPTQ,
     .tensor = {.tensor = EXPERT "down_proj.g_idx", .is_left_out = true},
     .words = {"1 tensor missing: '" EXPERT "down_proj.g_idx' of layer "
                  "'model.layers.0.mlp.experts.w2' (gptq)"},
     },
    {
     .folder = GPTQ,
     .text = {.from = "\"desc_act\": true", .to = "\"desc_act\": false"},
     .words = {"'g_idx' puts input", "inputs are in order (desc_act)"},
     },
    {
     .folder = NVFP4,
     .tensor = {.tensor = EXPERT "up_proj.input_global_scale", .is_left_out = true},
     .words = {"1 tensor missing: '" EXPERT "up_proj.input_global_scale' of layer "
                  "'model.layers.0.mlp.experts.w13' (compressed-tensors)"},
     },
    {
     .folder = NVFP4,
     .tensor = {.tensor = EXPERT "down_proj.input_global_scale",
                   .data = "\0\0\xc0\x7f",
                   .data_bytes = 4},
     .words = {"'" EXPERT "down_proj.input_global_scale': number 0 is nan",
                  "layer 'model.layers.0.mlp.experts.w2' of scheme 'compressed-tensors'"},
     },
    {
     .folder = FUSED,
     .text = {.from = "\"group_size\": 16", .to = "\"group_size\": 24"},
     .words = {"layer 'model.layers.0.self_attn.qkv_proj' of scheme 'compressed-tensors'",
                  "groups of 24 do not divide 32 inputs"},
     },
    {
     .folder = FUSED,
     .tensor = {.tensor = "model.layers.0.self_attn.qkv_proj.weight_shape",
                   .data = "\x20",
                   .data_bytes = 1},
     .words = {"'weight_shape' of 'model.layers.0.self_attn.qkv_proj' is [32, 32], the model "
                  "needs [64, 32]"},
     },
    {
     .folder = OPT,
     .text = {.file = "hf_quant_config.json", .from = "\"NVFP4\"", .to = "\"W4A8_AWQ\""},
     .words = {"quant_algo 'W4A8_AWQ'", "FP8, and NVFP4 in groups of 16, are there"},
     },
    {
     .folder = OPT,
     .tensor = {.tensor = "model.layers.1.mlp.down_proj.weight_scale_2",
                   .data = "\0\0\0\0",
                   .data_bytes = 4},
     .words = {"'model.layers.1.mlp.down_proj.weight_scale_2': number 0 is 0",
                  "layer 'model.layers.1.mlp.down_proj' of scheme 'modelopt'"},
     },
    {
     .folder = FORMS "/text-config",
     .text = {.from = "\"model.language_model.layers.1.mlp.down_proj\"",
                 .to = "\"model.language_model.layers.1.mlp.gate_proj\""},
     .words = {"'model.language_model.layers.1.mlp.gate_proj' and "
                  "'model.language_model.layers.1.mlp.up_proj' are one layer here and must be "
                  "quantized alike"},
     },
};

static void check_refusal(const refusal *of) {
    static const char *const files[] = {"config.json", "model.safetensors", NULL};
    static const char *const more[] = {"config.json", "model.safetensors", "hf_quant_config.json",
                                       NULL};
    char golden[192];
    sandbox box;
    program p;
    sandbox_make(&box);
    changed_checkpoint_write(&box, of->folder, strcmp(of->folder, OPT) == 0 ? more : files,
                             &of->text, &of->tensor);
    (void)snprintf(golden, sizeof golden, "%s/golden.json", of->folder);
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", box.dir, "--golden", golden, "--platform",
                "cpu");
    CHECK_INT(p.status, 5);
    for (size_t i = 0; i < BERTH_COUNT(of->words) && of->words[i] != NULL; ++i) {
        CHECK_CONTAINS(p.err, of->words[i]);
    }
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
    sandbox_remove(&box);
}

TEST(bad_files_of_these_forms_are_refused_with_scheme_layer_tensor_and_rule) {
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        check_refusal(&refusals[i]);
    }
}
