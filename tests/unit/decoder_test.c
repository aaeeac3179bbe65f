// SPDX-License-Identifier: Apache-2.0
// core-models: what config.json says of ropes and windows is what the graph is built with.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "model/model.h"
#include "support/core_registry.h"
#include "support/sandbox.h"
#include "support/test.h"

#define MODELS "tests/data/models/"

// One checkpoint, built.
typedef struct fixture {
    core_registry core;
    berth_checkpoint *checkpoint;
    berth_model_build *build;
    berth_text graph; // its text
} fixture;

static void start(fixture *f, const char *directory) {
    *f = (fixture){0};
    core_registry_init(&f->core, NULL);
    CHECK_OK(berth_checkpoint_open(directory, &f->checkpoint));
    CHECK_OK(berth_model_create(f->core.registry, &f->core.config, f->checkpoint, BERTH_DTYPE_F32,
                                &f->build));
    berth_text_init(&f->graph, (size_t)1 << 20);
    berth_graph_print(f->build->graph, &f->graph);
    CHECK_OK(berth_text_finish(&f->graph, NULL));
}

static void end(fixture *f) {
    berth_text_deinit(&f->graph);
    berth_model_destroy(f->build);
    berth_checkpoint_close(f->checkpoint);
    core_registry_deinit(&f->core);
}

// ---- ropes --------------------------------------------------------------------------------------

typedef struct rope_row {
    const char *model;
    const char *attributes;
    int64_t max_model_len;
} rope_row;

static const rope_row ropes[] = {
    {
     .model = MODELS "llama",
     .attributes = "rope_type = \"default\"}",
     .max_model_len = 512,
     },
    {
     .model = MODELS "llama-linear",
     .attributes = "rope_type = \"linear\", factor = 2.0}",
     .max_model_len = 1024,
     },
    {
     .model = MODELS "llama-dynamic",
     .attributes = "rope_type = \"dynamic\", factor = 2.0, max_trained_positions = 128}",
     .max_model_len = 512,
     },
    {
     .model = MODELS "llama-rope3",
     .attributes =
            "base = 500000.0, is_neox_style = true, rope_type = \"llama3\", factor = 8.0, "
            "original_max_position_embeddings = 128, low_freq_factor = 1.0, "
            "high_freq_factor = 4.0}",          .max_model_len = 512,
     },
    {
     .model = MODELS "llama-yarn",
     .attributes = "rope_type = \"yarn\", factor = 4.0, original_max_position_embeddings = 128}",
     .max_model_len = 512,
     },
};

TEST(every_rope_type_keeps_its_numbers) {
    for (size_t i = 0; i < BERTH_COUNT(ropes); ++i) {
        fixture f;
        start(&f, ropes[i].model);
        CHECK_CONTAINS(f.graph.data, ropes[i].attributes);
        CHECK_INT(f.build->description.max_model_len, ropes[i].max_model_len);
        end(&f);
    }
}

// ---- windows ------------------------------------------------------------------------------------

typedef struct window_row {
    const char *architecture;
    const char *model;  // whose weights are built
    const char *keys;   // of config.json, besides those that all of them have
    int64_t windows[3]; // of its layers
} window_row;

#define TYPES(first, second, third)                                                                \
    "\"layer_types\": [\"" first "_attention\", \"" second "_attention\", \"" third "_attention\"" \
    "]"
#define TIED "\"tie_word_embeddings\": true, "

#define ROW(of_architecture, of_model, extra_keys, ...)                                            \
    {                                                                                              \
        .architecture = (of_architecture), .model = MODELS of_model, .keys = extra_keys,           \
        .windows = {__VA_ARGS__},                                                                  \
    }

static const window_row windows[] = {
    // Means nothing to Llama.
    ROW("LlamaForCausalLM", "llama-yarn", TIED "\"sliding_window\": 64", 0, 0, 0),
    ROW("MistralForCausalLM", "mistral-swa", "\"sliding_window\": 64", 64, 64, 64),
    ROW("MistralForCausalLM", "mistral-swa", "\"sliding_window\": null", 0, 0, 0),
    ROW("MistralForCausalLM", "mistral-swa", "\"rope_theta\": 10000", 4096, 4096, 4096),
    ROW("MistralForCausalLM", "mistral-swa",
        "\"sliding_window\": 9, " TYPES("full", "sliding", "full"), 0, 9, 0),
    ROW("Qwen2ForCausalLM", "qwen2", TIED "\"sliding_window\": 32, \"use_sliding_window\": false",
        0, 0, 0),
    ROW("Qwen2ForCausalLM", "qwen2",
        TIED "\"sliding_window\": 32, \"use_sliding_window\": true, \"max_window_layers\": 2", 0, 0,
        32),
    ROW("Qwen3ForCausalLM", "qwen3",
        TIED
        "\"sliding_window\": 32, \"use_sliding_window\": true, \"max_window_layers\": 0, " TYPES(
            "sliding", "full", "sliding"),
        32, 0, 32),
};

static void write_checkpoint(const sandbox *box, const window_row *row) {
    char text[2048];
    char path[256];
    char target[4096];
    (void)snprintf(text, sizeof text,
                   "{\"architectures\": [\"%s\"], \"dtype\": \"bfloat16\", \"hidden_size\": 64, "
                   "\"intermediate_size\": 176, \"num_attention_heads\": 4, "
                   "\"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"vocab_size\": 512, "
                   "\"max_position_embeddings\": 512, %s}",
                   row->architecture, row->keys);
    sandbox_write(box, "config.json", text);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", row->model);
    CHECK(realpath(path, target) != NULL);
    CHECK_INT(symlink(target, sandbox_path(box, "model.safetensors")), 0);
}

static void check_windows(const fixture *f, const int64_t *wanted) {
    CHECK_UINT(f->build->kv_cache_count, 3);
    for (size_t i = 0; i < 3; ++i) {
        char attribute[64];
        CHECK_INT(f->build->kv_caches[i].sliding_window, wanted[i]);
        (void)snprintf(attribute, sizeof attribute, "sliding_window = %lld,", (long long)wanted[i]);
        CHECK_CONTAINS(f->graph.data, attribute);
    }
}

TEST(windows_are_in_the_layers_that_config_json_names) {
    for (size_t i = 0; i < BERTH_COUNT(windows); ++i) {
        sandbox box;
        fixture f;
        sandbox_make(&box);
        write_checkpoint(&box, &windows[i]);
        start(&f, box.dir);
        check_windows(&f, windows[i].windows);
        end(&f);
        sandbox_remove(&box);
    }
}
