// SPDX-License-Identifier: Apache-2.0
// Input: what a test wants to be different. Output: a checkpoint folder.
#include "support/toy_llama.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "support/tensor_file.h"
#include "support/test.h"

#define BLOCK "model.layers.0."
#define TABLE 160 // bytes of [10, 8] in bf16

typedef struct toy_tensor {
    tensor_row row;
    unsigned needs; // all of these flags
    unsigned hides; // none of these flags
} toy_tensor;

#define TENSOR(tensor_name, tensor_shape, tensor_bytes, needed, hidden)                            \
    {                                                                                              \
        .row = {.name = (tensor_name),                                                             \
                .dtype = "BF16",                                                                   \
                .shape = (tensor_shape),                                                           \
                .bytes = (tensor_bytes)},                                                          \
        .needs = (needed), .hides = (hidden),                                                      \
    }

static const toy_tensor tensors[] = {
    TENSOR("model.embed_tokens.weight", "[10, 8]", TABLE, 0, TOY_HEAD_ONLY),
    TENSOR("lm_head.weight", "[10, 8]", TABLE, TOY_HEAD_ONLY, 0),
    TENSOR("lm_head.weight", "[10, 8]", TABLE, TOY_UNTIED, 0),
    TENSOR("model.norm.weight", "[8]", 16, 0, TOY_NO_NORM),
    TENSOR(BLOCK "input_layernorm.weight", "[8]", 16, 0, 0),
    TENSOR(BLOCK "post_attention_layernorm.weight", "[8]", 16, 0, 0),
    TENSOR(BLOCK "self_attn.q_proj.weight", "[8, 8]", 128, 0, 0),
    TENSOR(BLOCK "self_attn.k_proj.weight", "[4, 8]", 64, 0, 0),
    TENSOR(BLOCK "self_attn.v_proj.weight", "[4, 8]", 64, 0, 0),
    TENSOR(BLOCK "self_attn.o_proj.weight", "[8, 8]", 128, 0, 0),
    TENSOR(BLOCK "mlp.gate_proj.weight", "[6, 8]", 96, 0, 0),
    TENSOR(BLOCK "mlp.up_proj.weight", "[6, 8]", 96, 0, 0),
    TENSOR(BLOCK "mlp.down_proj.weight", "[8, 6]", 96, 0, 0),
    TENSOR(BLOCK "self_attn.q_proj.bias", "[8]", 16, TOY_BIASES, 0),
    TENSOR(BLOCK "self_attn.k_proj.bias", "[4]", 8, TOY_BIASES, 0),
    TENSOR(BLOCK "self_attn.v_proj.bias", "[4]", 8, TOY_BIASES, 0),
    TENSOR(BLOCK "self_attn.o_proj.bias", "[8]", 16, TOY_BIASES, 0),
    TENSOR(BLOCK "mlp.gate_proj.bias", "[6]", 12, TOY_BIASES, 0),
    TENSOR(BLOCK "mlp.up_proj.bias", "[6]", 12, TOY_BIASES, 0),
    TENSOR(BLOCK "mlp.down_proj.bias", "[8]", 16, TOY_BIASES, 0),
    TENSOR(BLOCK "self_attn.q_norm.weight", "[4]", 8, TOY_QK_NORM, 0),
    TENSOR(BLOCK "self_attn.k_norm.weight", "[4]", 8, TOY_QK_NORM, 0),
    TENSOR(BLOCK "self_attn.rotary_emb.inv_freq", "[2]", 4, TOY_EXTRA, 0),
    TENSOR("model.surplus", "[2]", 4, TOY_EXTRA, 0),
    TENSOR("vision_tower.patch.weight", "[2]", 4, TOY_PART, 0),
};

#define KEY(name, text)                                                                            \
    { .key = (name), .value = (text) }

static const toy_key defaults[] = {
    KEY("architectures", "[\"LlamaForCausalLM\"]"),
    KEY("dtype", "\"bfloat16\""),
    KEY("head_dim", "4"),
    KEY("hidden_act", "\"silu\""),
    KEY("hidden_size", "8"),
    KEY("intermediate_size", "6"),
    KEY("max_position_embeddings", "64"),
    KEY("num_attention_heads", "2"),
    KEY("num_hidden_layers", "1"),
    KEY("num_key_value_heads", "1"),
    KEY("rms_norm_eps", "1e-5"),
    KEY("rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 10000.0}"),
    KEY("tie_word_embeddings", "true"),
    KEY("vocab_size", "10"),
};

void toy_llama_weights(const sandbox *box, unsigned flags) {
    tensor_row rows[BERTH_COUNT(tensors)];
    char names[BERTH_COUNT(tensors)][96];
    size_t count = 0;
    for (size_t i = 0; i < BERTH_COUNT(tensors); ++i) {
        const bool is_part = (flags & TOY_PART) != 0 && (tensors[i].needs & TOY_PART) == 0;
        (void)snprintf(names[i], sizeof names[i], "%s%s", is_part ? "language_model." : "",
                       tensors[i].row.name);
        if ((tensors[i].needs & ~flags) == 0 && (tensors[i].hides & flags) == 0) {
            rows[count] = tensors[i].row;
            rows[count++].name = names[i];
        }
    }
    tensor_file_write(sandbox_path(box, "model.safetensors"), rows, count);
}

static const toy_key *find_key(const toy_key *keys, const char *key) {
    for (; keys->key != NULL; ++keys) {
        if (strcmp(keys->key, key) == 0) {
            return keys;
        }
    }
    return NULL;
}

static void add_key(berth_text *text, const toy_key *key) {
    if (key->value != NULL) {
        berth_text_add_format(text, "%s\"%s\": %s", text->size == 1 ? "" : ", ", key->key,
                              key->value);
    }
}

void toy_llama_config(const sandbox *box, const toy_key *keys) {
    berth_text text;
    berth_text_init(&text, (size_t)64 << 10);
    berth_text_add_char(&text, '{');
    for (size_t i = 0; i < BERTH_COUNT(defaults); ++i) {
        if (find_key(keys, defaults[i].key) == NULL) {
            add_key(&text, &defaults[i]);
        }
    }
    for (; keys->key != NULL; ++keys) {
        add_key(&text, keys);
    }
    berth_text_add_char(&text, '}');
    const char *config = NULL;
    CHECK_OK(berth_text_finish(&text, &config));
    sandbox_write(box, "config.json", config);
    berth_text_deinit(&text);
}
