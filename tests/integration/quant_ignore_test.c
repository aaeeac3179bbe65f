// SPDX-License-Identifier: Apache-2.0
// quantization_config.ignore: what the user keeps from quantization at load, by name, by regular
// expression and by class.
#include <string.h>

#include "base/json.h"
#include "support/program.h"
#include "support/test.h"

#define LLAMA "tests/data/models/llama"
#define GPTQ  "tests/data/quant/gptq-4bit-act"

static double rms_without(const char *ignored) {
    program p;
    double rms = 0;
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", LLAMA, "--golden", LLAMA "/golden.json",
                "--quantization", "fp8_per_tensor", "--quantization-ignore", ignored, "--platform",
                "cpu", "--json");
    CHECK_STR(p.err, "");
    berth_json *report = program_json(&p);
    CHECK_OK(berth_json_get_f64(report, "logit_rms", &rms));
    berth_json_destroy(report);
    return rms;
}

TEST(modules_that_the_user_lists_stay_as_they_are) {
    const double all = rms_without("no.such.module");
    const double without_mlp = rms_without("re:.*mlp");
    CHECK(all > 1e-3);
    CHECK(without_mlp > 1e-3);
    CHECK(without_mlp < all);
    CHECK(rms_without("re:model\\.layers") < 1e-4);
    CHECK(rms_without("Linear") < 1e-4);
}

static void check_scheme(const char *ignored, const char *layer, const char *scheme) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "linear", "--model", LLAMA, "--quantization",
                 "int8_per_channel_weight_only", "--quantization-ignore", ignored, "--platform",
                 "cpu", "--json");
    berth_json *report = program_json(&p);
    const berth_json *sites = berth_json_find(report, "sites");
    size_t found = 0;
    for (size_t i = 0; i < berth_json_size(sites); ++i) {
        berth_str name = {0};
        berth_str own = {0};
        if (berth_json_get_str(berth_json_at(sites, i), "layer", &name) == BERTH_OK &&
            strcmp(name.data, layer) == 0) {
            CHECK_OK(berth_json_get_str(berth_json_at(sites, i), "scheme", &own));
            CHECK_STR(own.data, scheme);
            ++found;
        }
    }
    CHECK_UINT(found, 1);
    berth_json_destroy(report);
}

TEST(layers_are_listed_by_their_modules_or_by_their_own_name) {
    const char *down = "model.layers.1.mlp.down_proj";
    check_scheme(down, down, "unquantized");
    check_scheme(down, "model.layers.0.mlp.down_proj", "int8_per_channel_weight_only");
    check_scheme("model.layers.1.mlp.gate_up_proj", "model.layers.1.mlp.gate_up_proj",
                 "unquantized");
    check_scheme("re:.*\\.[qkv]_proj", "model.layers.1.self_attn.qkv_proj", "unquantized");
}

static void check_refusal(const char *model, const char *scheme, const char *ignored, int status,
                          const char *words) {
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", model, "--prompt", "x", "--quantization", scheme,
                "--quantization-ignore", ignored, "--platform", "cpu");
    CHECK_INT(p.status, status);
    CHECK_CONTAINS(p.err, words);
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
}

TEST(lists_that_mean_nothing_are_refused) {
    check_refusal(GPTQ, "gptq", "lm_head", 5,
                  "quantization_config.ignore names 'lm_head', but nothing is quantized at load: "
                  "the scheme is 'gptq'");
    check_refusal(LLAMA, "unquantized", "lm_head", 5, "the scheme is 'unquantized'");
    check_refusal(LLAMA, "fp8_per_block", "re:.*q_proj", 5,
                  "names one of 'model.layers.0.self_attn.q_proj' and "
                  "'model.layers.0.self_attn.k_proj', which are one layer here");
    check_refusal(LLAMA, "fp8_per_block", "re:.*k_proj", 5,
                  "names one of 'model.layers.0.self_attn.q_proj' and "
                  "'model.layers.0.self_attn.k_proj', which are one layer here");
    check_refusal(LLAMA, "fp8_per_block", "re:(", 5, "quantization_config.ignore: 're:('");
}
