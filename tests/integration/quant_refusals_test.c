// SPDX-License-Identifier: Apache-2.0
// Quantized checkpoints that mean harm, or were put together wrongly: each scheme with each thing
// that can be wrong about it, one a row. All are refused with one line that names tensor or field,
// layer, scheme and rule, and with the exit status of a checkpoint.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "support/changed_checkpoint.h"
#include "support/program.h"
#include "support/test.h"

#define SHARED "../shared/quant"
#define GPTQ   "tests/data/quant/gptq-4bit-act"
#define FP8    "tests/data/quant/ct-fp8-dynamic"
#define INT8   "tests/data/quant/ct-int8-static-asym"
#define W4     SHARED "/ct-w4a16-g32"
#define W4ZERO SHARED "/ct-w4a16-g32-asym"
#define BLOCK  SHARED "/hf-fp8-block"
#define STATIC SHARED "/hf-fp8-static"
#define LATENT "tests/data/quant/hf-fp8-block-deepseek"
#define AWQ    SHARED "/awq-4bit-g32"
#define NVFP4  SHARED "/nvfp4"
#define SLIM   SHARED "/modelslim-w8a8"

#define ATTN      "model.layers.0.self_attn."
#define DOWN      "model.layers.1.mlp.down_proj"
#define SLIM_FILE "quant_model_description.json"

#define QKV(scheme)        "layer 'model.layers.0.self_attn.qkv_proj' of scheme '" scheme "'"
#define DOWN_OF(scheme)    "layer 'model.layers.1.mlp.down_proj' of scheme '" scheme "'"
#define MISSING(leaf, of)  "1 tensor missing: '" DOWN leaf "' of layer '" DOWN "' (" of ")"
#define NUMBER(tensor, is) "tensor '" tensor "': number 0 is " is "; a scale must be finite"

typedef struct refusal {
    const char *folder;
    text_change text;
    tensor_change tensor;
    const char *words[2]; // of the line
} refusal;

// Why macros: clang-format 14 pulls rows that differ in the number of members apart.
#define CONFIG(of_folder, find, put, ...)                                                          \
    {                                                                                              \
        .folder = (of_folder), .text = {.from = (find), .to = (put)}, .words = { __VA_ARGS__ }     \
    }
#define BYTES(of_folder, name, value, ...)                                                         \
    {                                                                                              \
        .folder = (of_folder),                                                                     \
        .tensor = {.tensor = (name), .data = (value), .data_bytes = sizeof(value) - 1}, .words = { \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define LACKS(of_folder, name, ...)                                                                \
    {                                                                                              \
        .folder = (of_folder), .tensor = {.tensor = (name), .is_left_out = true}, .words = {       \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SHAPE(of_folder, name, other, count, ...)                                                  \
    {                                                                                              \
        .folder = (of_folder), .tensor = {.tensor = (name), .shape = (other), .bytes = (count)},   \
        .words = {                                                                                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const refusal refusals[] = {
  // Names of schemes.
    CONFIG(GPTQ, "\"gptq\"", "\"gptq_marlin\"", "'gptq_marlin' is registered by no plugin",
           "the nearest one is 'gptq'"),
    CONFIG(GPTQ, "\"quant_method\": \"gptq\"", "\"quant_method\": \"awq_marlin\"",
           "'awq_marlin' is registered by no plugin", "the nearest one is 'awq'"),
    CONFIG(FP8, "compressed-tensors", "compresed-tensors",
           "'compresed-tensors' is registered by no plugin",
           "the nearest one is 'compressed-tensors'"),

 // Values of configurations.
    CONFIG(GPTQ, "\"bits\": 4", "\"bits\": 5", "4 and 8 bits is there, this layer has 5",
           QKV("gptq")),
    CONFIG(GPTQ, "\"bits\": 4", "\"bits\": \"four\"",
           "'bits' of the configuration must be a whole number", QKV("gptq")),
    CONFIG(GPTQ, "\"bits\": 4,", "", "4 and 8 bits is there, this layer has 0", QKV("gptq")),
    CONFIG(GPTQ, "\"group_size\": 32", "\"group_size\": 0", "groups of 0 inputs", QKV("gptq")),
    CONFIG(GPTQ, "\"group_size\": 32", "\"group_size\": -2", "groups of -2 inputs", QKV("gptq")),
    CONFIG(GPTQ, "\"group_size\": 32", "\"group_size\": 24", "groups of 24 do not divide 64 inputs",
           QKV("gptq")),
    CONFIG(GPTQ, "\"group_size\": 32", "\"group_size\": true",
           "'group_size' of the configuration must be a whole number", QKV("gptq")),
    CONFIG(GPTQ, "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\"",
           "checkpoint_format 'marlin': gptq and gptq_v2 are there", QKV("gptq")),
    CONFIG(FP8, "\"num_bits\": 8", "\"num_bits\": 6", "weights of 6 bits (float, channel)",
           QKV("compressed-tensors")),
    CONFIG(FP8, "\"num_bits\": 8", "\"num_bits\": \"8\"",
           "'num_bits' of the configuration must be a whole number", QKV("compressed-tensors")),
    CONFIG(FP8, "\"channel\"", "\"row\"", "weights of 8 bits (float, row)",
           QKV("compressed-tensors")),
    CONFIG(FP8, "\"float-quantized\"", "\"marlin-24\"", "format 'marlin-24'",
           QKV("compressed-tensors")),
    CONFIG(FP8, "\"lm_head\"", "\"re:.*q_proj\"",
           "'" ATTN "q_proj' and '" ATTN "k_proj' are one layer here", QKV("compressed-tensors")),
    CONFIG(W4, "\"group_size\": 32", "\"group_size\": 24", "groups of 24 do not divide 64 inputs",
           QKV("compressed-tensors")),
    CONFIG(W4, "\"num_bits\": 4", "\"num_bits\": 3", "weights of 3 bits (int, group)",
           QKV("compressed-tensors")),
    CONFIG(NVFP4, "\"group_size\": 16", "\"group_size\": 32", "weights of 4 bits",
           QKV("compressed-tensors")),
    CONFIG(BLOCK, "\"dynamic\"", "\"magic\"", "activation_scheme 'magic'", QKV("fp8")),
    CONFIG(BLOCK, "\"e4m3\"", "\"e5m2\"", "fmt 'e5m2': e4m3 is there", QKV("fp8")),
    CONFIG(BLOCK, "\"weight_block_size\": [\n      32,", "\"weight_block_size\": [\n      0,",
           "weight_block_size has 2 sizes, [0, 32]", QKV("fp8")),
    CONFIG(BLOCK, "\"weight_block_size\": [\n      32,", "\"weight_block_size\": [",
           "weight_block_size has 1 sizes", QKV("fp8")),
    CONFIG(LATENT, "\"quant_method\": \"fp8\"",
           "\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", "
           "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": "
           "{\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16}}}",
           "'" ATTN "kv_b_proj': the method 'nvfp4' of scheme 'compressed-tensors'",
           "gives no weight in floats"),
    CONFIG(AWQ, "\"version\": \"gemm\"", "\"version\": \"gemv\"", "version 'gemv' of awq",
           QKV("awq")),
    CONFIG(AWQ, "\"bits\": 4", "\"bits\": 8", "awq has 4 bits, this one 8", QKV("awq")),
    CONFIG(AWQ, "\"group_size\": 32", "\"group_size\": 48", "groups of 48 do not divide 64 inputs",
           QKV("awq")),
    {.folder = SLIM,
              .text = {.file = SLIM_FILE,
              .from = "\"" ATTN "k_proj.weight\": \"W8A8\"",
              .to = "\"" ATTN "k_proj.weight\": \"W8A8_DYNAMIC\""},
              .words = {"'" ATTN "q_proj' and '" ATTN "k_proj' are one layer here", QKV("ascend")}},
    {.folder = SLIM,
              .text = {.file = SLIM_FILE, .from = "\"W8A8\"", .to = "\"W2A2\""},
              .words = {"is W2A2; FLOAT, W8A8", QKV("ascend")}                                    },

 // Tensors that are not there.
    LACKS(GPTQ, DOWN ".scales", MISSING(".scales", "gptq")),
    LACKS(GPTQ, DOWN ".g_idx", MISSING(".g_idx", "gptq")),
    LACKS(FP8, DOWN ".weight_scale", MISSING(".weight_scale", "compressed-tensors")),
    LACKS(INT8, DOWN ".input_scale", MISSING(".input_scale", "compressed-tensors")),
    LACKS(INT8, DOWN ".input_zero_point", MISSING(".input_zero_point", "compressed-tensors")),
    LACKS(W4, DOWN ".weight_scale", MISSING(".weight_scale", "compressed-tensors")),
    LACKS(W4ZERO, DOWN ".weight_zero_point", MISSING(".weight_zero_point", "compressed-tensors")),
    LACKS(BLOCK, DOWN ".weight_scale_inv", MISSING(".weight_scale_inv", "fp8")),
    LACKS(LATENT, ATTN "kv_b_proj.weight_scale_inv",
          "1 tensor missing: '" ATTN "kv_b_proj.weight_scale_inv'"),
    LACKS(STATIC, DOWN ".input_scale", MISSING(".input_scale", "fp8")),
    LACKS(AWQ, DOWN ".qzeros", MISSING(".qzeros", "awq")),
    LACKS(NVFP4, DOWN ".weight_global_scale",
          MISSING(".weight_global_scale", "compressed-tensors")),
    LACKS(NVFP4, DOWN ".input_global_scale", MISSING(".input_global_scale", "compressed-tensors")),
    LACKS(SLIM, DOWN ".weight_scale", MISSING(".weight_scale", "ascend")),
    LACKS(SLIM, DOWN ".quant_bias", MISSING(".quant_bias", "ascend")),

 // Shapes.
    SHAPE(GPTQ, ATTN "q_proj.qweight", "[4, 64]", 1024,
          "has the shape [4, 64], the model needs [8, 64]", QKV("gptq")),
    SHAPE(GPTQ, ATTN "q_proj.scales", "[1, 64]", 128,
          "has the shape [1, 64], the model needs [2, 64]", QKV("gptq")),
    SHAPE(FP8, ATTN "q_proj.weight_scale", "[1]", 2, "has the shape [1], the model needs [64, 1]",
          QKV("compressed-tensors")),
    SHAPE(W4, ATTN "q_proj.weight_packed", "[64, 4]", 1024,
          "has the shape [64, 4], the model needs [64, 8]", QKV("compressed-tensors")),
    SHAPE(BLOCK, ATTN "q_proj.weight_scale_inv", "[1, 2]", 8,
          "has the shape [1, 2], the model needs [2, 2]", QKV("fp8")),
    SHAPE(AWQ, ATTN "q_proj.qweight", "[64, 4]", 1024,
          "has the shape [64, 4], the model needs [64, 8]", QKV("awq")),
    SHAPE(NVFP4, ATTN "q_proj.weight_packed", "[64, 64]", 4096,
          "has the shape [64, 64], the model needs [64, 32]", QKV("compressed-tensors")),
    BYTES(W4, ATTN "k_proj.weight_shape", "\x41", "'weight_shape' of '" ATTN "k_proj' is [65, 64]",
          QKV("compressed-tensors")),
    BYTES(W4, DOWN ".weight_shape", "\x40\0\0\0\0\0\0\0\x20",
          "'weight_shape' of '" DOWN "' is [64, 32], the model needs [64, 192]",
          DOWN_OF("compressed-tensors")),

 // Numbers: scales in f16, bf16, f32 and e4m3, the order of inputs, what shards share.
    BYTES(GPTQ, DOWN ".scales", "\x00\x7e", NUMBER(DOWN ".scales", "nan"), DOWN_OF("gptq")),
    BYTES(GPTQ, DOWN ".scales", "\x00\x7c", NUMBER(DOWN ".scales", "inf"), DOWN_OF("gptq")),
    BYTES(GPTQ, DOWN ".scales", "\x00\x00", NUMBER(DOWN ".scales", "0"), DOWN_OF("gptq")),
    BYTES(GPTQ, DOWN ".scales", "\x00\xbc", NUMBER(DOWN ".scales", "-1"), DOWN_OF("gptq")),
    BYTES(FP8, DOWN ".weight_scale", "\xc0\x7f", NUMBER(DOWN ".weight_scale", "nan"),
          DOWN_OF("compressed-tensors")),
    BYTES(FP8, DOWN ".weight_scale", "\x80\x7f", NUMBER(DOWN ".weight_scale", "inf"),
          DOWN_OF("compressed-tensors")),
    BYTES(FP8, DOWN ".weight_scale", "\x00\x00", NUMBER(DOWN ".weight_scale", "0"),
          DOWN_OF("compressed-tensors")),
    BYTES(FP8, DOWN ".weight_scale", "\x80\xbf", NUMBER(DOWN ".weight_scale", "-1"),
          DOWN_OF("compressed-tensors")),
    BYTES(INT8, DOWN ".input_scale", "\x00\x00", NUMBER(DOWN ".input_scale", "0"),
          DOWN_OF("compressed-tensors")),
    BYTES(INT8, ATTN "k_proj.input_zero_point", "\x55", "the input's zero point",
          "must be equal, since they have one input"),
    BYTES(W4, DOWN ".weight_scale", "\xc0\x7f", NUMBER(DOWN ".weight_scale", "nan"),
          DOWN_OF("compressed-tensors")),
    BYTES(BLOCK, DOWN ".weight_scale_inv", "\x00\x00\xc0\x7f",
          NUMBER(DOWN ".weight_scale_inv", "nan"), DOWN_OF("fp8")),
    BYTES(BLOCK, DOWN ".weight_scale_inv", "\x00\x00\x80\xbf",
          NUMBER(DOWN ".weight_scale_inv", "-1"), DOWN_OF("fp8")),
    BYTES(LATENT, ATTN "kv_b_proj.weight_scale_inv", "\x00\x00\xc0\x7f",
          NUMBER(ATTN "kv_b_proj.weight_scale_inv", "nan"),
          "layer '" ATTN "kv_b_proj' of scheme 'fp8'"),
    BYTES(STATIC, DOWN ".input_scale", "\x00\x00\x80\x7f", NUMBER(DOWN ".input_scale", "inf"),
          DOWN_OF("fp8")),
    BYTES(STATIC, DOWN ".weight_scale", "\x00\x00\x00\x00", NUMBER(DOWN ".weight_scale", "0"),
          DOWN_OF("fp8")),
    BYTES(AWQ, DOWN ".scales", "\x00\x7e", NUMBER(DOWN ".scales", "nan"), DOWN_OF("awq")),
    BYTES(AWQ, DOWN ".scales", "\x00\x00", NUMBER(DOWN ".scales", "0"), DOWN_OF("awq")),
    BYTES(NVFP4, DOWN ".weight_scale", "\x7f", NUMBER(DOWN ".weight_scale", "nan"),
          DOWN_OF("compressed-tensors")),
    BYTES(NVFP4, DOWN ".weight_scale", "\x00", NUMBER(DOWN ".weight_scale", "0"),
          DOWN_OF("compressed-tensors")),
    BYTES(NVFP4, DOWN ".weight_scale", "\xb8", NUMBER(DOWN ".weight_scale", "-1"),
          DOWN_OF("compressed-tensors")),
    BYTES(NVFP4, DOWN ".weight_global_scale", "\x00\x00\x80\x7f",
          NUMBER(DOWN ".weight_global_scale", "inf"), DOWN_OF("compressed-tensors")),
    BYTES(SLIM, DOWN ".weight_scale", "\x00\x00\x00\x00", NUMBER(DOWN ".weight_scale", "0"),
          DOWN_OF("ascend")),
    BYTES(GPTQ, DOWN ".g_idx", "\x63\0\0\0", "'g_idx': number 0 is 99, there are 6 groups",
          DOWN_OF("gptq")),
    BYTES(GPTQ, DOWN ".g_idx", "\xfe\xff\xff\xff", "'g_idx': number 0 is -2", DOWN_OF("gptq")),
    BYTES(GPTQ, ATTN "v_proj.g_idx", "\0\0\0\0\0\0\0\0\0\0\0\0", "'g_idx'", QKV("gptq")),
};

static void check_refusal(const refusal *of) {
    static const char *const files[] = {"config.json", "model.safetensors", NULL};
    static const char *const slim_files[] = {"config.json", "model.safetensors", SLIM_FILE, NULL};
    sandbox box;
    program p;
    sandbox_make(&box);
    changed_checkpoint_write(&box, of->folder, strcmp(of->folder, SLIM) == 0 ? slim_files : files,
                             &of->text, &of->tensor);
    PROGRAM_RUN(&p, NULL, BERTH, "eval", "--model", box.dir, "--golden", GPTQ "/golden.json",
                "--platform", "cpu");
    if (p.status != 5 || !strstr(p.err, of->words[0])) {
        print_error("%s, '%s' to '%s', %s: %s", of->folder, of->text.from ? of->text.from : "",
                    of->text.to ? of->text.to : "", of->tensor.tensor ? of->tensor.tensor : "",
                    p.err);
    }
    CHECK_INT(p.status, 5);
    for (size_t i = 0; i < BERTH_COUNT(of->words) && of->words[i]; ++i) {
        CHECK_CONTAINS(p.err, of->words[i]);
    }
    CHECK_STR(p.out, "");
    CHECK(strncmp(p.err, "berth: ", 7) == 0);
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
    sandbox_remove(&box);
}

TEST(each_scheme_is_refused_for_each_thing_that_is_wrong_with_one_line) {
    size_t count = 0;
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        if (berth_path_is_dir(refusals[i].folder)) {
            check_refusal(&refusals[i]);
            ++count;
        }
    }
    CHECK(count > 0);
}
