// SPDX-License-Identifier: Apache-2.0
// Quantized checkpoints, here and beside the repository: what the reference computed from the same
// files, on the CPU and on the dummy; bad ones, refused with layer, tensor and rule; and who runs
// the layers of good ones.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/model.h"
#include "support/flow.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/test.h"

#define DATA    "tests/data/quant"
#define SHARED  "../shared/quant"
#define GPTQ    DATA "/gptq-4bit-act"
#define MOE     DATA "/moe-fp8"
#define MIXTRAL "../shared/models/mixtral"

static const char *const folders[] = {
    DATA "/ct-fp8-dynamic",
    DATA "/ct-int8-static-asym",
    DATA "/gptq-4bit-act",
    SHARED "/ct-fp8-static",
    SHARED "/ct-fp8-block",
    SHARED "/hf-fp8-block",
    SHARED "/hf-fp8-static",
    SHARED "/ct-int8-dynamic",
    SHARED "/ct-w4a16-g32",
    SHARED "/ct-w8a16",
    SHARED "/ct-w4a16-g32-asym",
    SHARED "/gptq-4bit-g32",
    SHARED "/gptq-8bit",
    SHARED "/awq-4bit-g32",
    SHARED "/nvfp4",
    SHARED "/modelslim-w8a8",
    SHARED "/modelslim-w8a8-dynamic",
    DATA "/moe-fp8",
    SHARED "/moe-int8",
    SHARED "/mxfp4-moe",
    SHARED "/modelslim-w4a8-dynamic",
    DATA "/fp8-kv",
    DATA "/hf-fp8-block-deepseek",
};

static void check_eval(const char *folder, const char *platform, const char *dtype) {
    char golden[160];
    program p;
    (void)snprintf(golden, sizeof golden, "%s/golden.json", folder);
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", folder, "--golden", golden, "--platform",
                platform, "--dtype", dtype, "--allow-fallback", "--json");
    if (p.status != 0) {
        print_error("%s on %s in %s: %s%s", folder, platform, dtype, p.out, p.err);
    }
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.out, "\"passed\": true");
}

static void check_folder(void **state) {
    const char *folder = *state;
    if (!berth_path_is_dir(folder)) {
        SKIP("its checkpoint is not here");
    }
    check_eval(folder, "cpu", "float32");
    check_eval(folder, "cpu", "bfloat16");
    check_eval(folder, "dummy", "float32");
}

TEST_CASES(quantized_checkpoints_give_what_the_reference_gave) {
    for (size_t i = 0; i < BERTH_COUNT(folders); ++i) {
        test_add(cases, berth_path_name(folders[i]), check_folder, (void *)(uintptr_t)folders[i]);
    }
}

// ---- bad checkpoints ----------------------------------------------------------------------------

// A change of one file of a checkpoint: a text and another of the same length in its place.
typedef struct change {
    const char *folder;
    const char *file;
    const char *from;
    const char *to;
    int status;
    const char *words[3];
} change;

static void copy_file(const sandbox *box, const change *of, const char *name) {
    char path[256];
    char *data = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof path, "%s/%s", of->folder, name);
    CHECK_OK(berth_file_read(path, (size_t)1 << 20, &data, &size));
    const size_t length = strlen(of->from);
    CHECK_UINT(length, strlen(of->to));
    bool is_changed = strcmp(name, of->file) != 0;
    for (size_t at = 0; strcmp(name, of->file) == 0 && at + length <= size; ++at) {
        if (memcmp(data + at, of->from, length) == 0) {
            memcpy(data + at, of->to, length);
            is_changed = true;
        }
    }
    CHECK(is_changed);
    CHECK_OK(berth_file_write(sandbox_path(box, name), (berth_str){.data = data, .size = size}));
    berth_free(data);
}

static void make_changed(sandbox *box, const change *of) {
    sandbox_make(box);
    copy_file(box, of, "config.json");
    copy_file(box, of, "model.safetensors");
}

static void check_change(const change *of) {
    sandbox box;
    program p;
    make_changed(&box, of);
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", box.dir, "--golden", GPTQ "/golden.json",
                "--platform", "cpu");
    CHECK_INT(p.status, of->status);
    for (size_t i = 0; i < BERTH_COUNT(of->words) && of->words[i] != NULL; ++i) {
        CHECK_CONTAINS(p.err, of->words[i]);
    }
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
    sandbox_remove(&box);
}

static const change changes[] = {
    {GPTQ,
     "config.json",                         "\"quant_method\": \"gptq\"",
     "\"quant_method\": \"gpta\"",                                                                        5,
     {"'gpta' is registered by no plugin", "the nearest one is 'gptq'"}                                                          },
    {GPTQ,
     "config.json",                         "\"group_size\": 32",
     "\"group_size\": 24",                                                                                5,
     {"layer 'model.layers.0.self_attn.qkv_proj' of scheme 'gptq'",
      "groups of 24 do not divide 64 inputs"}                                                                                    },
    {GPTQ,
     "config.json",                         "\"desc_act\": true",
     "\"desc_act\":false",                                                                                5,
     {"'g_idx' puts input", "desc_act",
      "layer 'model.layers.0.self_attn.qkv_proj' of scheme 'gptq'"}                                                              },
    {GPTQ,                   "config.json", "\"bits\": 4",                                 "\"bits\": 3", 5, {"this layer has 3"}},
    {GPTQ,
     "config.json",                         "\"bits\": 4",
     "\"bits\": 8",                                                                                       5,
     {"'model.layers.0.self_attn.q_proj.qweight' has the shape [8, 64], the model needs [16, 64]",
      "layer 'model.layers.0.self_attn.qkv_proj' of scheme 'gptq'"}                                                              },
    {GPTQ,
     "model.safetensors",                   "layers.1.mlp.down_proj.scales",
     "layers.1.mlp.down_proj.scaleX",                                                                     5,
     {"1 tensor missing: 'model.layers.1.mlp.down_proj.scales' of layer "
      "'model.layers.1.mlp.down_proj' (gptq)",
      "unknown to the model: 'model.layers.1.mlp.down_proj.scaleX'"}                                                             },
    {DATA "/ct-fp8-dynamic",
     "config.json",                         "\"lm_head\"",
     "\"re:.*q_\"",                                                                                       5,
     {"'model.layers.0.self_attn.q_proj' and 'model.layers.0.self_attn.k_proj'",
      "must be quantized alike"}                                                                                                 },
    {MOE,
     "config.json",                         "\"lm_head\"",
     "\"re:.*3.\"",                                                                                       5,
     {"'model.layers.1.mlp.experts.0.", "'model.layers.1.mlp.experts.3.",
      "must be quantized alike"}                                                                                                 },
    {MOE,
     "model.safetensors",                   "layers.1.mlp.experts.2.up_proj.weight_scale",
     "layers.1.mlp.experts.2.up_proj.weight_scalX",                                                       5,
     {"1 tensor missing: 'model.layers.1.mlp.experts.2.up_proj.weight_scale' of layer "
      "'model.layers.1.mlp.experts.w13' (compressed-tensors)",
      "unknown to the model: 'model.layers.1.mlp.experts.2.up_proj.weight_scalX'"}                                               },
    {MOE,
     "config.json",                         "\"moe_intermediate_size\": 48",
     "\"moe_intermediate_size\": 32",                                                                     5,
     {"gate_proj.weight' has the shape [48, 64], the model needs [32, 64]",
      "layer 'model.layers.1.mlp.experts.w13' of scheme 'compressed-tensors'"}                                                   },
    {DATA "/fp8-kv",
     "config.json",                         "\"strategy\": \"tensor\"",
     "\"strategy\": \"tenser\"",                                                                          5,
     {"kv_cache_scheme: 8 bits (float, tensor), static", "this is of 8 bits (float, tenser)",
      "layer 'model.layers.0.self_attn.attn' of scheme 'compressed-tensors'"}                                                    },
};

TEST(bad_quantized_checkpoints_are_refused_with_layer_tensor_and_rule) {
    for (size_t i = 0; i < BERTH_COUNT(changes); ++i) {
        check_change(&changes[i]);
    }
}

// ---- bad scales ---------------------------------------------------------------------------------

// The first number of a scale, replaced.
typedef struct bad_scale {
    const char *folder;
    const char *tensor;
    const char *layer;
    const char *scheme;
    bool is_nan; // else zero
} bad_scale;

static const bad_scale bad_scales[] = {
    {GPTQ,                   "model.layers.1.mlp.down_proj.scales",                 "model.layers.1.mlp.down_proj",      "gptq",               true },
    {GPTQ,                   "model.layers.0.self_attn.k_proj.scales",              "model.layers.0.self_attn.qkv_proj", "gptq",
     false                                                                                                                                          },
    {DATA "/ct-fp8-dynamic", "model.layers.0.mlp.up_proj.weight_scale",
     "model.layers.0.mlp.gate_up_proj",                                                                                  "compressed-tensors", true },
    {MOE,                    "model.layers.1.mlp.experts.3.down_proj.weight_scale", "model.layers.1.mlp.experts.w2",
     "compressed-tensors",                                                                                                                     true },
    {DATA "/fp8-kv",         "model.layers.2.self_attn.v_scale",                    "model.layers.2.self_attn.attn",
     "compressed-tensors",                                                                                                                     false},
};

// Where the data of a tensor begins in its file, which ends with the data of the last one.
static size_t find_data(const berth_safetensors *file, const berth_stored_tensor *tensor,
                        size_t file_bytes) {
    const berth_stored_tensor *last = berth_safetensors_at(file, berth_safetensors_count(file) - 1);
    const char *end = (const char *)last->data + last->bytes;
    return file_bytes - (size_t)(end - (const char *)tensor->data);
}

static void spoil_scale(const sandbox *box, const bad_scale *of) {
    char *data = NULL;
    size_t size = 0;
    berth_safetensors *file = NULL;
    const char *path = sandbox_path(box, "model.safetensors");
    CHECK_OK(berth_safetensors_open(path, &file));
    CHECK_OK(berth_file_read(path, (size_t)1 << 20, &data, &size));
    const berth_stored_tensor *tensor = berth_safetensors_find(file, of->tensor);
    assert(tensor != NULL);
    const size_t bytes = BERTH_DTYPE_BITS(tensor->dtype) / 8;
    char *number = data + find_data(file, tensor, size);
    memset(number, of->is_nan ? 0xff : 0, bytes); // of f16, bf16 and f32
    number[bytes - 1] &= 0x7f;
    berth_safetensors_close(file);
    CHECK_OK(berth_file_write(path, (berth_str){.data = data, .size = size}));
    berth_free(data);
}

TEST(scales_that_are_not_finite_and_positive_are_refused_with_scheme_and_layer) {
    char layer[128];
    char tensor[128];
    program p;
    for (size_t i = 0; i < BERTH_COUNT(bad_scales); ++i) {
        const bad_scale *of = &bad_scales[i];
        const change nothing = {
            .folder = of->folder, .file = "config.json", .from = "quant", .to = "quant"};
        sandbox box;
        make_changed(&box, &nothing);
        spoil_scale(&box, of);
        PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", box.dir, "--golden", GPTQ "/golden.json",
                    "--platform", "cpu");
        CHECK_INT(p.status, 5);
        (void)snprintf(layer, sizeof layer, "layer '%s' of scheme '%s'", of->layer, of->scheme);
        (void)snprintf(tensor, sizeof tensor, "tensor '%s': number 0 is %s; a scale must be finite",
                       of->tensor, of->is_nan ? "nan" : "0");
        CHECK_CONTAINS(p.err, layer);
        CHECK_CONTAINS(p.err, tensor);
        sandbox_remove(&box);
    }
}

// ---- what a platform says to a scheme -----------------------------------------------------------

static berth_status refuse(void *self, const char *quantization) {
    (void)self;
    return BERTH_FAIL(UNSUPPORTED, "this device cannot run '%s'", quantization);
}

// No graph can be built of this one, so a platform that was asked later would not be heard.
static const change wrong_bits = {
    .folder = GPTQ,
    .file = "config.json",
    .from = "\"bits\": 4",
    .to = "\"bits\": 3",
};

TEST(platform_is_asked_about_the_scheme_before_the_graph_is_built) {
    sandbox box;
    flow f;
    make_changed(&box, &wrong_bits);
    flow_init(&f);
    f.config.model = box.dir;
    f.config.platform = "cpu";
    flow_start_worker(&f);
    CHECK_STATUS(berth_worker_load_model(f.worker), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "this layer has 3");
    ((berth_platform *)(uintptr_t)&f.decision.platform->platform)->verify_quantization = refuse;
    CHECK_STATUS(berth_worker_load_model(f.worker), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "this device cannot run 'gptq'");
    flow_deinit(&f);
    sandbox_remove(&box);
}

// ---- caches of codes ----------------------------------------------------------------------------

static void check_cache(const char *model, const char *type, const char *bytes) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "run", "--model", model, "--prompt", "x", "-n", "1", "--platform",
                 "cpu", "--dtype", "bfloat16", "--kv-cache-blocks", "64", "--kv-cache-dtype", type,
                 "--log", "info");
    CHECK_CONTAINS(p.err, "KV cache of 64 blocks, 1024 tokens, ");
    CHECK_CONTAINS(p.err, bytes);
}

// 1,024 tokens of 3 layers, keys and values, 2 heads of 16.
TEST(a_cache_of_codes_has_one_byte_a_number) {
    check_cache("tests/data/models/qwen3", "auto", " 393216 bytes");
    check_cache("tests/data/models/qwen3", "fp8", " 196608 bytes");
    check_cache(DATA "/fp8-kv", "auto", " 196608 bytes");
}

TEST(a_cache_of_codes_without_scales_is_told_of_and_near_to_one_of_numbers) {
    program p;
    double rms = 0;
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", "tests/data/models/llama", "--golden",
                "tests/data/models/llama/golden.json", "--kv-cache-dtype", "fp8_e4m3", "--platform",
                "cpu", "--json");
    CHECK_CONTAINS(p.err, "3 of 3 KV caches in f8_e4m3fn have no scales in the checkpoint: e4m3, "
                          "scale 1 where none is stored");
    berth_json *report = program_json(&p);
    CHECK_OK(berth_json_get_f64(report, "logit_rms", &rms));
    CHECK(rms > 1e-3);
    CHECK(rms < 0.5);
    berth_json_destroy(report);
}

TEST(explain_says_who_cannot_run_a_cache_of_codes) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "paged_attention", "--model", DATA "/fp8-kv",
                 "--platform", "cpu");
    CHECK_CONTAINS(p.out, "cpu.paged_attention");
    PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", "tests/data/models/llama", "--prompt", "x",
                "--kv-cache-dtype", "fp8_e5m2");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "fp8_e5m2");
}

// ---- a scheme of another plugin -----------------------------------------------------------------

TEST(scheme_of_a_plugin_quantizes_while_it_loads) {
    program p;
    double rms = 0;
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", "tests/data/models/llama", "--golden",
                "tests/data/models/llama/golden.json", "--quantization", "dummy", "--platform",
                "cpu", "--json");
    CHECK_STR(p.err, "");
    berth_json *report = program_json(&p);
    CHECK_OK(berth_json_get_f64(report, "logit_rms", &rms));
    CHECK(rms > 1e-3); // codes of 8 bits are no floats,
    CHECK(rms < 0.2);  // and near them
    berth_json_destroy(report);
}

TEST(scheme_of_a_plugin_leaves_quantized_checkpoints_alone) {
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", GPTQ, "--golden", GPTQ "/golden.json",
                "--quantization", "dummy", "--platform", "cpu");
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err, "the quantization asked for is 'dummy', the checkpoint's is 'gptq'");
}

// ---- quantized at load --------------------------------------------------------------------------

static double rms_of(const char *model, const char *scheme) {
    char golden[160];
    program p;
    double rms = 0;
    (void)snprintf(golden, sizeof golden, "%s/golden.json", model);
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", model, "--golden", golden, "--quantization",
                scheme, "--platform", "cpu", "--json");
    CHECK_STR(p.err, "");
    berth_json *report = program_json(&p);
    CHECK_OK(berth_json_get_f64(report, "logit_rms", &rms));
    berth_json_destroy(report);
    return rms;
}

static double rms_with(const char *scheme) {
    return rms_of("tests/data/models/llama", scheme);
}

// Bounds: twice what was measured.
TEST(weights_quantized_at_load_are_near_to_those_of_the_checkpoint) {
    CHECK(rms_with("fp8_per_tensor") < 0.42);
    CHECK(rms_with("fp8_per_tensor") > 1e-3);
    CHECK(rms_with("fp8_per_block") < 0.4);
    CHECK(rms_with("fp8_per_block") > 1e-3);
    const double int8 = rms_with("int8_per_channel_weight_only");
    CHECK(int8 < 0.07);
    CHECK(int8 == rms_with("dummy")); // the same rule, in a plugin of its own
}

// The experts too, one matrix after the other; not the router, whose choices would be others.
TEST(experts_are_quantized_at_load) {
    static const struct {
        const char *scheme;
        double most; // twice what was measured
    } cases[] = {
        {"fp8_per_tensor",               0.32},
        {"fp8_per_block",                0.32},
        {"int8_per_channel_weight_only", 0.07},
    };
    program p;
    if (!berth_path_exists(MIXTRAL)) {
        SKIP("../shared/models/mixtral is not there");
    }
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        const double rms = rms_of(MIXTRAL, cases[i].scheme);
        CHECK(rms > 1e-3);
        CHECK(rms < cases[i].most);
        PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "quantized_experts", "--model", MIXTRAL,
                     "--quantization", cases[i].scheme, "--platform", "cpu", "--json");
        berth_json *report = program_json(&p);
        berth_str text = {0};
        CHECK_OK(berth_json_get_str(report, "sites.0.scheme", &text));
        CHECK_STR(text.data, cases[i].scheme);
        CHECK_OK(berth_json_get_str(report, "sites.0.method", &text));
        CHECK_STR(text.data, "scaled codes of 8 bits, made at load");
        berth_json_destroy(report);
    }
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "linear", "--model", MIXTRAL, "--quantization",
                 "fp8_per_block", "--platform", "cpu");
    CHECK_CONTAINS(p.out, "unquantized"); // the head, the router
}

TEST(quantizing_a_quantized_checkpoint_at_load_is_refused) {
    program p;
    PROGRAM_RUN(&p, NULL, BERTH, "run", "--model", GPTQ, "--prompt", "x", "--quantization",
                "fp8_per_tensor", "--platform", "cpu");
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err,
                   "the quantization asked for is 'fp8_per_tensor', the checkpoint's is 'gptq'");
}

// ---- who runs a layer ---------------------------------------------------------------------------

static void check_site(const berth_json *report, size_t index, const char *key, const char *want) {
    char path[64];
    berth_str text;
    (void)snprintf(path, sizeof path, "sites.%zu.%s", index, key);
    CHECK_OK(berth_json_get_str(report, path, &text));
    CHECK_STR(text.data, want);
}

TEST(explain_shows_scheme_and_kernel_of_every_linear_layer) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "linear", "--model", GPTQ, "--platform", "cpu",
                 "--json");
    berth_json *report = program_json(&p);
    check_site(report, 0, "op", "packed_linear");
    check_site(report, 0, "layer", "model.layers.0.self_attn.qkv_proj");
    check_site(report, 0, "scheme", "gptq");
    check_site(report, 0, "method", "packed codes, inputs in floats");
    const berth_json *sites = NULL;
    CHECK_OK(berth_json_get_array(report, "sites", &sites));
    const size_t head = berth_json_size(sites) - 1;
    check_site(report, head, "op", "linear");
    check_site(report, head, "layer", "lm_head");
    check_site(report, head, "scheme", "unquantized");
    check_site(report, head, "implementation", "cpu.linear");
    check_site(report, head, "reason", "key cpu, priority 0");
    check_site(report, head, "runner_up", "native of core-ops: native comes last");
    berth_json_destroy(report);
}

TEST(explain_shows_all_nodes_that_a_scheme_makes_of_a_layer) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "linear", "--model",
                 DATA "/ct-int8-static-asym", "--platform", "cpu");
    CHECK_CONTAINS(p.out, "quant_int8 ");
    CHECK_CONTAINS(p.out, "scaled_linear ");
    CHECK_CONTAINS(p.out, "  compressed-tensors  scaled codes of 8 bits  core-quant\n");
    CHECK(strstr(p.out, "rms_norm") == NULL);
}

TEST(explain_of_an_unquantized_model_says_so) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "linear", "--model", "tests/data/models/llama",
                 "--platform", "cpu", "--json");
    berth_json *report = program_json(&p);
    check_site(report, 0, "op", "linear");
    check_site(report, 0, "scheme", "unquantized");
    check_site(report, 0, "layer", "model.layers.0.self_attn.qkv_proj");
    berth_json_destroy(report);
}

TEST(explain_of_another_op_has_no_scheme) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "rms_norm", "--model", GPTQ, "--platform",
                 "cpu", "--json");
    berth_json *report = program_json(&p);
    const berth_json *scheme = berth_json_find(report, "sites.0.scheme");
    CHECK(scheme != NULL && berth_json_kind_of(scheme) == BERTH_JSON_NULL);
    berth_json_destroy(report);
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "rms_norm", "--model", GPTQ, "--platform",
                 "cpu");
    CHECK(strstr(p.out, "scheme") == NULL);
}

// ---- a platform that multiplies a scheme's layers its own way -----------------------------------

TEST(platform_replaces_how_a_scheme_multiplies_and_keeps_the_rest) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "linear", "--model", GPTQ, "--platform",
                 "dummy", "--allow-fallback", "--json");
    berth_json *report = program_json(&p);
    check_site(report, 0, "op", "contiguous");
    check_site(report, 0, "layer", "model.layers.0.self_attn.qkv_proj");
    check_site(report, 0, "scheme", "gptq");
    check_site(report, 0, "scheme_plugin", "dummy");
    check_site(report, 0, "method", "dummy: rows without gaps");
    check_site(report, 1, "op", "packed_linear");
    check_site(report, 1, "scheme_plugin", "dummy");
    const berth_json *sites = NULL;
    CHECK_OK(berth_json_get_array(report, "sites", &sites));
    check_site(report, berth_json_size(sites) - 1, "layer", "lm_head"); // which GPTQ leaves alone
    check_site(report, berth_json_size(sites) - 1, "scheme_plugin", "core-quant");
    berth_json_destroy(report);
}

TEST(scheme_is_its_plugins_on_every_other_platform) {
    program p;
    PROGRAM_MUST(&p, NULL, BERTH, "ops", "explain", "linear", "--model", GPTQ, "--platform", "cpu",
                 "--json");
    berth_json *report = program_json(&p);
    check_site(report, 0, "op", "packed_linear");
    check_site(report, 0, "scheme_plugin", "core-quant");
    berth_json_destroy(report);
}

TEST(replaced_scheme_refuses_what_it_refused) {
    sandbox box;
    program p;
    make_changed(&box, &wrong_bits);
    PROGRAM_RUN(&p, NULL, BERTH, "ops", "explain", "linear", "--model", box.dir, "--platform",
                "dummy", "--allow-fallback");
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err, "gptq with 4 and 8 bits is there, this layer has 3");
    sandbox_remove(&box);
}
