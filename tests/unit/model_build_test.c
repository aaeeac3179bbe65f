// SPDX-License-Identifier: Apache-2.0
// model: checkpoints of known architectures become graphs, weights and caches.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/parameters.h"
#include "model/pieces.h"
#include "support/core_registry.h"
#include "support/sandbox.h"
#include "support/test.h"
#include "support/toy_llama.h"

// One checkpoint, built.
typedef struct fixture {
    core_registry core;
    berth_checkpoint *checkpoint;
    berth_model_build *build;
    berth_text graph; // its text
} fixture;

// model-dummy as it was built; never closed.
static const berth_plugin *open_dummy(void) {
    void *library = dlopen(TEST_BUILD "/plugins/libberth-model-dummy.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    return dlsym(library, "berth_plugin_v1");
}

static void start_as(fixture *f, const char *directory, berth_dtype activation) {
    *f = (fixture){0};
    core_registry_init(&f->core, open_dummy());
    CHECK_OK(berth_checkpoint_open(directory, &f->checkpoint));
    CHECK_OK(berth_model_create(f->core.registry, &f->core.config, f->checkpoint, activation,
                                &f->build));
    berth_text_init(&f->graph, (size_t)1 << 20);
    berth_graph_print(f->build->graph, &f->graph);
    CHECK_OK(berth_text_finish(&f->graph, NULL));
}

static void start(fixture *f, const char *directory) {
    start_as(f, directory, BERTH_DTYPE_F32);
}

static void end(fixture *f) {
    berth_text_deinit(&f->graph);
    berth_model_destroy(f->build);
    berth_checkpoint_close(f->checkpoint);
    core_registry_deinit(&f->core);
}

static const berth_weight *find_weight(const fixture *f, const char *name) {
    for (size_t i = 0; i < f->build->weight_count; ++i) {
        if (strcmp(f->build->weights[i].name, name) == 0) {
            return &f->build->weights[i];
        }
    }
    CHECK(!"the weight exists");
    return NULL;
}

// A checkpoint with this config.json and the weights of another.
static void borrow_weights(const sandbox *box, const char *config, const char *weights) {
    char target[4096];
    CHECK(realpath(weights, target) != NULL);
    sandbox_write(box, "config.json", config);
    CHECK_INT(symlink(target, sandbox_path(box, "model.safetensors")), 0);
}

TEST(llama_becomes_the_graph_that_is_written_down) {
    fixture f;
    start(&f, "tests/data/models/llama");
    char *wanted = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read("tests/data/graphs/llama.txt", (size_t)1 << 20, &wanted, &size));
    CHECK_STR(f.graph.data, wanted);
    berth_free(wanted);
    CHECK_STR(f.build->architecture, "LlamaForCausalLM");
    CHECK_STR(f.build->quantization, "unquantized");
    CHECK_STR(f.build->owner->id, "core-models");
    CHECK_INT(f.build->description.vocab_size, 512);
    CHECK_INT(f.build->description.hidden_size, 64);
    CHECK_INT(f.build->description.max_model_len, 512);
    CHECK_INT(f.build->description.layer_count, 3);
    end(&f);
}

TEST(qwen3_normalises_heads_before_it_rotates_them) {
    fixture f;
    start(&f, "tests/data/models/qwen3");
    CHECK_CONTAINS(f.graph.data, "graph \"Qwen3ForCausalLM\"");
    const char *norm = strstr(f.graph.data, "{eps = 1e-06} @\"model.layers.0.self_attn.k_norm\""
                                            " : f32[s0, 2, 16]");
    CHECK(norm != NULL);
    CHECK(strstr(norm, "rotary_embedding") != NULL);
    CHECK(strstr(f.graph.data, "rotary_embedding") > norm);
    end(&f);
}

TEST(caches_of_a_model_have_the_blocks_of_the_configuration) {
    fixture f;
    start(&f, "tests/data/models/llama");
    CHECK_UINT(f.build->kv_cache_count, 3);
    const berth_kv_cache_spec *cache = &f.build->kv_caches[2];
    CHECK_STR(cache->layer, "model.layers.2.self_attn.attn");
    CHECK_INT(cache->num_heads, 8);
    CHECK_INT(cache->num_kv_heads, 4);
    CHECK_INT(cache->head_size, 8);
    CHECK_INT(cache->block_size, f.core.config.block_size);
    CHECK_UINT(cache->dtype, BERTH_DTYPE_F32);
    CHECK_UINT(cache->page_bytes, 2 * 4 * 4 * 8 * (uint64_t)f.core.config.block_size);
    end(&f);
}

TEST(layers_with_windows_have_a_cache_group_of_their_own) {
    fixture f;
    start(&f, "tests/data/models/gemma2");
    CHECK(f.build->kv_cache_count > 1);
    for (size_t i = 0; i < f.build->kv_cache_count; ++i) {
        const berth_kv_cache_spec *cache = &f.build->kv_caches[i];
        CHECK_INT(cache->sliding_window, i % 2 == 0 ? 64 : 0);
        CHECK_UINT(cache->group, i % 2 == 0 ? 0 : 2);
    }
    end(&f);
}

TEST(weights_of_a_model_are_what_the_checkpoint_holds) {
    fixture f;
    start(&f, "tests/data/models/llama");
    uint64_t bytes = 0;
    uint64_t stored = 0;
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create((size_t)1 << 20, (size_t)64 << 20, &arena));
    for (size_t i = 0; i < f.build->weight_count; ++i) {
        const berth_weight *weight = &f.build->weights[i];
        CHECK_OK(berth_weight_load(weight, berth_arena_alloc(arena, weight->bytes, 64)));
        CHECK_STR(f.build->graph->values[weight->value].name, weight->name);
        bytes += weight->is_vector ? weight->bytes / 2 : weight->bytes;
    }
    for (size_t i = 0; i < berth_checkpoint_count(f.checkpoint); ++i) {
        stored += berth_checkpoint_at(f.checkpoint, i)->bytes;
    }
    CHECK_UINT(bytes, stored);
    const berth_weight *qkv = find_weight(&f, "model.layers.1.self_attn.qkv_proj.weight");
    uint16_t *loaded = berth_arena_alloc(arena, qkv->bytes, 64);
    CHECK_OK(berth_weight_load(qkv, loaded));
    CHECK_STR(qkv->pieces[1].tensor->name, "model.layers.1.self_attn.k_proj.weight");
    CHECK_BYTES(loaded + 64 * 64, qkv->pieces[1].tensor->data, 32 * 64 * 2);
    berth_arena_destroy(arena);
    end(&f);
}

TEST(activations_of_16_bits_reach_vectors_matrices_and_caches) {
    fixture f;
    start_as(&f, "tests/data/models/llama", BERTH_DTYPE_F16);
    CHECK_CONTAINS(f.graph.data, "%2 = parameter \"model.embed_tokens.weight\" : f16[512, 64]");
    CHECK_CONTAINS(f.graph.data, "parameter \"model.norm.weight\" : f16[64]");
    CHECK_UINT(f.build->kv_caches[0].dtype, BERTH_DTYPE_F16);
    end(&f);
}

TEST(config_of_transformers_4_gives_the_same_graph) {
    sandbox box;
    sandbox_make(&box);
    borrow_weights(
        &box,
        "{\"architectures\": [\"LlamaForCausalLM\"], \"torch_dtype\": \"bfloat16\","
        " \"hidden_size\": 64, \"intermediate_size\": 688, \"num_attention_heads\": 8,"
        " \"num_hidden_layers\": 3, \"num_key_value_heads\": 4, \"hidden_act\": \"silu\","
        " \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-05,"
        " \"rope_theta\": 10000.0, \"rope_scaling\": null, \"vocab_size\": 512,"
        " \"tie_word_embeddings\": true}",
        "tests/data/models/llama/model.safetensors");
    fixture old;
    fixture new;
    start(&old, box.dir);
    start(&new, "tests/data/models/llama");
    CHECK_STR(old.graph.data, new.graph.data);
    end(&old);
    end(&new);
    sandbox_remove(&box);
}

TEST(tied_table_is_found_under_either_name_or_both) {
    static const unsigned flags[] = {0, TOY_HEAD_ONLY, TOY_UNTIED};
    const toy_key none = {0};
    for (size_t i = 0; i < BERTH_COUNT(flags); ++i) {
        sandbox box;
        sandbox_make(&box);
        toy_llama_config(&box, &none);
        toy_llama_weights(&box, flags[i]);
        fixture f;
        start(&f, box.dir);
        CHECK_CONTAINS(f.graph.data, "parameter \"model.embed_tokens.weight\"");
        CHECK_NULL(strstr(f.graph.data, "parameter \"lm_head.weight\""));
        end(&f);
        sandbox_remove(&box);
    }
}

TEST(untied_head_has_a_table_of_its_own) {
    sandbox box;
    sandbox_make(&box);
    const toy_key keys[] = {
        {.key = "tie_word_embeddings", .value = "false"},
        {.key = NULL                           }
    };
    toy_llama_config(&box, keys);
    toy_llama_weights(&box, TOY_UNTIED);
    fixture f;
    start(&f, box.dir);
    CHECK_CONTAINS(f.graph.data, "parameter \"lm_head.weight\" : bf16[10, 8]");
    end(&f);
    sandbox_remove(&box);
}

TEST(biases_are_read_where_the_config_says_so) {
    sandbox box;
    sandbox_make(&box);
    const toy_key keys[] = {
        {.key = "attention_bias", .value = "true"},
        {.key = "mlp_bias",                       .value = "true"},
        {.key = NULL},
    };
    toy_llama_config(&box, keys);
    toy_llama_weights(&box, TOY_BIASES);
    fixture f;
    start(&f, box.dir);
    CHECK_CONTAINS(f.graph.data, "self_attn.qkv_proj.bias\" : f32[16]");
    CHECK_CONTAINS(f.graph.data, "self_attn.o_proj.bias\" : f32[8]");
    CHECK_CONTAINS(f.graph.data, "mlp.gate_up_proj.bias\" : f32[12]");
    CHECK_CONTAINS(f.graph.data, "mlp.down_proj.bias\" : f32[8]");
    end(&f);
    sandbox_remove(&box);
}

// One that also sees, of which the text part is a model that is known.
static const toy_key seeing[] = {
    {.key = "architectures", .value = "[\"LlavaForConditionalGeneration\"]"},
    {.key = "model_type",    .value = "\"llava\""                          },
    {.key = "text_config",   .value = "{\"model_type\": \"llama\"}"        },
    {.key = NULL,            .value = NULL                                 },
};

TEST(text_part_of_a_model_that_sees_is_built_without_the_rest) {
    sandbox box;
    sandbox_make(&box);
    toy_llama_config(&box, seeing);
    toy_llama_weights(&box, TOY_PART);
    fixture f;
    start(&f, box.dir);
    CHECK_STR(f.build->architecture, "LlamaForCausalLM");
    CHECK_STR(find_weight(&f, "model.norm.weight")->pieces[0].tensor->name,
              "language_model.model.norm.weight");
    end(&f);
    sandbox_remove(&box);
}

// What is left over in the text part itself is still an error.
TEST(text_part_of_a_model_that_sees_must_be_whole) {
    static const struct {
        unsigned flags;
        const char *message;
    } cases[] = {
        {TOY_PART | TOY_EXTRA,   "1 tensor unknown to the model: 'language_model.model.surplus'"},
        {TOY_PART | TOY_NO_NORM, "1 tensor missing: 'model.norm.weight'"                        },
        {TOY_EXTRA,              "1 tensor unknown to the model: 'model.surplus'"               },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        sandbox box;
        fixture f = {0};
        sandbox_make(&box);
        toy_llama_config(&box, seeing);
        toy_llama_weights(&box, cases[i].flags);
        core_registry_init(&f.core, open_dummy());
        CHECK_OK(berth_checkpoint_open(box.dir, &f.checkpoint));
        CHECK_STATUS(berth_model_create(f.core.registry, &f.core.config, f.checkpoint,
                                        BERTH_DTYPE_F32, &f.build),
                     BERTH_CORRUPT);
        CHECK_CONTAINS(berth_status_message(), cases[i].message);
        berth_checkpoint_close(f.checkpoint);
        core_registry_deinit(&f.core);
        sandbox_remove(&box);
    }
}

TEST(head_size_is_the_share_of_a_head_unless_it_is_given) {
    sandbox box;
    sandbox_make(&box);
    const toy_key keys[] = {
        {.key = "head_dim", .value = "null"},
        {.key = NULL                }
    };
    toy_llama_config(&box, keys);
    toy_llama_weights(&box, 0);
    fixture f;
    start(&f, box.dir);
    CHECK_INT(f.build->kv_caches[0].head_size, 4);
    end(&f);
    sandbox_remove(&box);
}

TEST(rotation_may_cover_a_part_of_each_head) {
    sandbox box;
    sandbox_make(&box);
    const toy_key keys[] = {
        {.key = "rope_parameters",       .value = NULL},
        {.key = "rope_theta",                              .value = "77"},
        {.key = "partial_rotary_factor",.value = "0.5"},
        {.key = NULL},
    };
    toy_llama_config(&box, keys);
    toy_llama_weights(&box, 0);
    fixture f;
    start(&f, box.dir);
    CHECK_CONTAINS(f.graph.data, "{rotary_dim = 2, max_position = 64, base = 77.0,");
    end(&f);
    sandbox_remove(&box);
}

TEST(dummy_model_builds_from_its_own_words) {
    sandbox box;
    sandbox_make(&box);
    borrow_weights(&box,
                   "{\"architectures\": [\"DummyForCausalLM\"], \"vocabulary\": 512, \"width\": 64,"
                   " \"mlp_width\": 688, \"depth\": 3, \"heads\": 8, \"kv_heads\": 4,"
                   " \"context\": 512}",
                   "tests/data/models/llama/model.safetensors");
    fixture f;
    start(&f, box.dir);
    CHECK_STR(f.build->owner->id, "model-dummy");
    CHECK_INT(f.build->description.layer_count, 3);
    CHECK_UINT(f.build->kv_cache_count, 3);
    CHECK_CONTAINS(f.graph.data, "graph \"DummyForCausalLM\"");
    CHECK_CONTAINS(f.graph.data, "{rotary_dim = 8, max_position = 512, base = 10000.0,");
    CHECK_CONTAINS(f.graph.data, "@\"lm_head\" : f32[s1, 512]\n  output logits");
    end(&f);
    sandbox_remove(&box);
}
