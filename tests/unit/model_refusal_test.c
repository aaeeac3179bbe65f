// SPDX-License-Identifier: Apache-2.0
// model: what cannot be built is refused in one line that says why, whoever is to blame: the
// checkpoint's author, a plugin's, or the machine's memory.
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/model.h"
#include "support/core_registry.h"
#include "support/test.h"
#include "support/toy_llama.h"

// ---- a plugin that does everything wrong --------------------------------------------------------

static void describe(berth_builder *b) {
    b->describe(b, &(const berth_model_description){.size = sizeof(berth_model_description),
                                                    .vocab_size = 10,
                                                    .hidden_size = 8,
                                                    .max_model_len = 64,
                                                    .layer_count = 1});
}

static void build_nothing(berth_builder *b) {
    (void)b;
}

static void build_described_twice(berth_builder *b) {
    describe(b);
    describe(b);
}

static void build_absurd(berth_builder *b) {
    b->describe(b, &(const berth_model_description){.size = sizeof(berth_model_description),
                                                    .vocab_size = 10,
                                                    .hidden_size = INT64_C(1) << 40,
                                                    .max_model_len = 64,
                                                    .layer_count = 1});
}

static void build_unknown_layer(berth_builder *b) {
    describe(b);
    (void)BERTH_LAYER(b, "NoSuchLayer", .prefix = "model.x",
                      BERTH_INPUTS(b->input(b, "token_ids")));
}

static void build_unknown_op(berth_builder *b) {
    describe(b);
    (void)BERTH_EMIT(b, "rms_nrom", .prefix = "model.x", BERTH_INPUTS(b->input(b, "token_ids")));
}

static void build_unknown_input(berth_builder *b) {
    describe(b);
    (void)b->input(b, "tokens");
}

static void build_without_inputs(berth_builder *b) {
    describe(b);
    (void)BERTH_LAYER(b, "ReplicatedLinear", .prefix = "model.x",
                      BERTH_ATTRIBUTES(BERTH_I64("input_size", 8), BERTH_I64("output_size", 8)));
}

static void build_caches(berth_builder *b, int64_t heads, int64_t kv_heads, int64_t head_size) {
    const berth_kv_cache cache = {
        .size = sizeof(berth_kv_cache),
        .layer = "attn",
        .num_heads = heads,
        .num_kv_heads = kv_heads,
        .head_size = head_size,
    };
    describe(b);
    b->kv_cache(b, &cache);
    b->kv_cache(b, &cache);
}

static void build_cache_twice(berth_builder *b) {
    build_caches(b, 2, 1, 4);
}

static void build_cache_of_odd_heads(berth_builder *b) {
    build_caches(b, 3, 2, 4);
}

static void build_huge_cache(berth_builder *b) {
    build_caches(b, BERTH_CONFIG_COUNT_MAX, BERTH_CONFIG_COUNT_MAX, BERTH_CONFIG_COUNT_MAX);
}

static void build_recursive_layer(berth_builder *b) {
    describe(b);
    (void)BERTH_LAYER(b, "Recursive", .prefix = "model.x", BERTH_INPUTS(b->input(b, "token_ids")));
}

static void build_silent_layer(berth_builder *b) {
    describe(b);
    (void)BERTH_LAYER(b, "Silent", .prefix = "model.x", BERTH_INPUTS(b->input(b, "token_ids")));
}

// After a failure nothing happens any more, and the first failure is the one that is reported.
static void build_on_after_a_failure(berth_builder *b) {
    describe(b);
    berth_build_fail(b, BERTH_UNSUPPORTED, "the first failure");
    berth_build_fail(b, BERTH_UNSUPPORTED, "the second failure");
    CHECK_UINT(b->has_failed(b), 1);
    CHECK_UINT(b->input(b, "token_ids"), BERTH_VALUE_NONE);
    CHECK_UINT(berth_build_vector(b, "model.norm.weight", 8), BERTH_VALUE_NONE);
    CHECK_UINT(BERTH_LAYER(b, "NoSuchLayer", .prefix = "x"), BERTH_VALUE_NONE);
    CHECK_UINT(BERTH_EMIT(b, "no_such_op", .prefix = "x"), BERTH_VALUE_NONE);
    CHECK_UINT(b->linear(b, &(const berth_linear){.size = sizeof(berth_linear)}, 1),
               BERTH_VALUE_NONE);
    CHECK_UINT(b->slice(b, 1, 0, 0, 1), BERTH_VALUE_NONE);
    CHECK_UINT(b->reshape(b, 1, &(const berth_dim){.c = 1}, 1), BERTH_VALUE_NONE);
    CHECK_UINT(b->type(b, 1)->ndim, 0);
    CHECK_STR(berth_build_name(b, "%s", "name"), "");
    CHECK_INT(berth_config_layer_count(b, "num_hidden_layers"), 1);
    b->kv_cache(b, &(const berth_kv_cache){.size = sizeof(berth_kv_cache)});
    b->output(b, "logits", 1);
}

static void build_linear_of_nothing(berth_builder *b) {
    describe(b);
    (void)BERTH_LAYER(b, "ColumnParallelLinear", .prefix = "model.x",
                      BERTH_INPUTS(b->input(b, "token_ids")));
}

static void build_merged_without_sizes(berth_builder *b) {
    describe(b);
    (void)BERTH_LAYER(b, "MergedColumnParallelLinear", .prefix = "model.x",
                      BERTH_INPUTS(b->input(b, "token_ids")));
}

static void declare_state(berth_builder *b, const char *layer, const char *dtype,
                          const int64_t *shape, uint64_t ndim) {
    const berth_layer_state state = {
        .size = sizeof state,
        .layer = layer,
        .dtype = dtype,
        .shape = shape,
        .ndim = ndim,
    };
    describe(b);
    b->state(b, &state);
}

static void build_huge_state(berth_builder *b) {
    const int64_t shape[] = {INT64_C(1) << 40, INT64_C(1) << 40};
    declare_state(b, "mixer", "f32", shape, 2);
}

static void build_state_of_integers(berth_builder *b) {
    const int64_t channels = 4;
    declare_state(b, "mixer", "i32", &channels, 1);
}

static void build_cache_and_state(berth_builder *b) {
    const int64_t channels = 4;
    const berth_kv_cache cache = {
        .size = sizeof cache,
        .layer = "mixer",
        .num_heads = 2,
        .num_kv_heads = 1,
        .head_size = 8,
    };
    b->kv_cache(b, &cache);
    b->state(b, &(const berth_layer_state){
                    .size = sizeof(berth_layer_state),
                    .layer = "mixer",
                    .index = 2,
                    .dtype = "f32",
                    .shape = &channels,
                    .ndim = 1,
                });
}

static void layer_recursive(berth_builder *b, const berth_call *call) {
    call->outputs[0] =
        BERTH_LAYER(b, "Recursive", .prefix = call->prefix, BERTH_INPUTS(call->inputs[0]));
}

static void layer_silent(berth_builder *b, const berth_call *call) {
    (void)b;
    (void)call;
}

static const berth_layer bad_layers[] = {
    {.size = sizeof(berth_layer), .name = "Recursive", .build = layer_recursive},
    {.size = sizeof(berth_layer), .name = "Silent",    .build = layer_silent   },
};

// A model class, and what is said of it.
typedef struct bad_model {
    berth_model model;
    berth_status status;
    const char *words;
} bad_model;

#define BAD(name, function, wanted_status, wanted_words)                                           \
    {                                                                                              \
        .model = {.size = sizeof(berth_model), .architecture = (name), .build = (function)},       \
        .status = (wanted_status), .words = (wanted_words),                                        \
    }

static const bad_model bad_models[] = {
    BAD("Nothing", build_nothing, BERTH_INTERNAL, "does not describe itself"),
    BAD("Twice", build_described_twice, BERTH_INTERNAL, "describes itself twice"),
    BAD("Absurd", build_absurd, BERTH_CORRUPT, "width 1099511627776"),
    BAD("NoLayer", build_unknown_layer, BERTH_NOT_FOUND, "layer class 'NoSuchLayer'"),
    BAD("NoOp", build_unknown_op, BERTH_NOT_FOUND, "did you mean 'rms_norm'"),
    BAD("NoInput", build_unknown_input, BERTH_NOT_FOUND, "tokens"),
    BAD("NoInputs", build_without_inputs, BERTH_INVALID_ARGUMENT, "needs the input 'x'"),
    BAD("CacheTwice", build_cache_twice, BERTH_INTERNAL, "layer 'attn' declares its cache twice"),
    BAD("OddHeads", build_cache_of_odd_heads, BERTH_CORRUPT, "3 heads over 2 key heads"),
    BAD("HugeCache", build_huge_cache, BERTH_INVALID_ARGUMENT, "attn"),
    BAD("Recursion", build_recursive_layer, BERTH_INTERNAL, "nests more than 32 layers deep"),
    BAD("Silence", build_silent_layer, BERTH_INTERNAL,
        "layer Silent of plugin bad gives no output"),
    BAD("Failure", build_on_after_a_failure, BERTH_UNSUPPORTED, "the first failure"),
    BAD("NoSizes", build_linear_of_nothing, BERTH_CORRUPT, "a linear layer of 0 inputs"),
    BAD("HugeState", build_huge_state, BERTH_INVALID_ARGUMENT, "mixer"),
    BAD("OddState", build_state_of_integers, BERTH_CORRUPT,
        "no state of 1 dimensions of type 'i32'"),
    BAD("Both", build_cache_and_state, BERTH_INTERNAL, "declares a cache and a state"),
    BAD("NoList", build_merged_without_sizes, BERTH_INVALID_ARGUMENT, "output_sizes lists"),
};

static berth_status add_bad_things(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    for (size_t i = 0; i < BERTH_COUNT(bad_models); ++i) {
        CHECK_OK(registrar->add_model(registrar, &bad_models[i].model, 0));
    }
    for (size_t i = 0; i < BERTH_COUNT(bad_layers); ++i) {
        CHECK_OK(registrar->add_layer(registrar, &bad_layers[i], 0));
    }
    return BERTH_OK;
}

static berth_status match_all(const berth_host *host, const berth_json *config) {
    (void)host;
    (void)config;
    return BERTH_OK;
}

static berth_status match_badly(const berth_host *host, const berth_json *config) {
    (void)config;
    return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT, "quantization_config is nonsense");
}

static const berth_quant_method *no_method(const berth_host *host, const berth_json *config,
                                           const berth_linear *linear) {
    (void)config;
    (void)BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "no method for %s", linear->layer_class);
    return NULL;
}

static const berth_quant_config greedy = {
    .size = sizeof(berth_quant_config),
    .name = "greedy",
    .matches = match_all,
    .get_quant_method = no_method,
};

static const berth_quant_config failing = {
    .size = sizeof(berth_quant_config),
    .name = "failing",
    .matches = match_badly,
    .get_quant_method = no_method,
};

static berth_status add_greedy(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_quant_config(registrar, &greedy, 0);
}

static berth_status add_failing(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_quant_config(registrar, &failing, 0);
}

// A plugin "bad" with this one entry point.
typedef struct bad_plugin {
    berth_plugin plugin;
    berth_entry_point entry;
    const berth_entry_point *entries[1];
} bad_plugin;

static const berth_plugin *make_plugin(bad_plugin *bad,
                                       berth_status (*add)(const berth_host *, berth_registrar *)) {
    bad->entry = (berth_entry_point){
        .size = sizeof(berth_entry_point),
        .group = BERTH_GROUP_GENERAL,
        .name = "bad",
        .register_plugin = add,
    };
    bad->entries[0] = &bad->entry;
    bad->plugin = (berth_plugin){
        .size = sizeof(berth_plugin),
        .abi_min = BERTH_ABI_CURRENT,
        .abi_max = BERTH_ABI_CURRENT,
        .id = "bad",
        .version = "1.0.0",
        .vendor = "test",
        .entry_points = bad->entries,
        .entry_point_count = 1,
    };
    return &bad->plugin;
}

// ---- helpers ------------------------------------------------------------------------------------

static berth_status try_build(const core_registry *core, const char *directory) {
    berth_checkpoint *checkpoint = NULL;
    CHECK_OK(berth_checkpoint_open(directory, &checkpoint));
    berth_model_build *build = NULL;
    const berth_status status =
        berth_model_create(core->registry, &core->config, checkpoint, BERTH_DTYPE_F32, &build);
    berth_model_destroy(build);
    berth_checkpoint_close(checkpoint);
    return status;
}

static void check_refused(const core_registry *core, const sandbox *box, berth_status status,
                          const char *words) {
    CHECK_STATUS(try_build(core, box->dir), status);
    CHECK_CONTAINS(berth_status_message(), words);
    CHECK_CONTAINS(berth_status_message(), box->dir);
    CHECK_NULL(strchr(berth_status_message(), '\n'));
}

// A change of config.json, and what is said of it.
typedef struct bad_key {
    toy_key key;
    berth_status status;
    const char *words;
} bad_key;

#define BAD_KEY(name, text, wanted_status, wanted_words)                                           \
    { .key = {.key = (name), .value = (text)}, .status = (wanted_status), .words = (wanted_words), }

// ---- the checkpoint is to blame -----------------------------------------------------------------

static const bad_key bad_keys[] = {
    BAD_KEY("hidden_size", NULL, BERTH_CORRUPT, "'hidden_size' is missing"),
    BAD_KEY("hidden_size", "null", BERTH_CORRUPT, "'hidden_size' is missing"),
    BAD_KEY("hidden_size", "\"8\"", BERTH_CORRUPT, "'hidden_size' is not an integer"),
    BAD_KEY("hidden_size", "8.5", BERTH_CORRUPT, "'hidden_size' is not an integer"),
    BAD_KEY("hidden_size", "0", BERTH_CORRUPT, "'hidden_size' is 0, must be 1 to"),
    BAD_KEY("hidden_size", "-8", BERTH_CORRUPT, "'hidden_size' is -8, must be 1 to"),
    BAD_KEY("hidden_size", "1099511627776", BERTH_CORRUPT, "'hidden_size' is 1099511627776, must"),
    BAD_KEY("hidden_size", "1073741824", BERTH_CORRUPT, "has the shape [10, 8], the model needs"),
    BAD_KEY("vocab_size", "1073741824", BERTH_CORRUPT, "has the shape [10, 8], the model needs"),
    BAD_KEY("vocab_size", "11", BERTH_CORRUPT, "has the shape [10, 8], the model needs [11, 8]"),
    BAD_KEY("intermediate_size", "1073741824", BERTH_CORRUPT, "has the shape [6, 8]"),
    BAD_KEY("num_hidden_layers", NULL, BERTH_CORRUPT, "'num_hidden_layers' is missing"),
    BAD_KEY("num_hidden_layers", "1000000000", BERTH_CORRUPT, "must be 1 to 4096"),
    BAD_KEY("num_hidden_layers", "1000000000000000000", BERTH_CORRUPT, "must be 1 to 4096"),
    BAD_KEY("num_hidden_layers", "4096", BERTH_CORRUPT,
            "36855 tensors missing: 'model.layers.1.input_layernorm.weight'"),
    BAD_KEY("num_attention_heads", "3", BERTH_CORRUPT, "has the shape [8, 8]"),
    BAD_KEY("num_attention_heads", "1073741824", BERTH_CORRUPT, "the model needs [4294967296, 8]"),
    BAD_KEY("num_key_value_heads", "1073741824", BERTH_CORRUPT, "no multiple of num_key_value"),
    BAD_KEY("num_key_value_heads", "3", BERTH_CORRUPT,
            "num_attention_heads 2 is no multiple of num_key_value_heads 3"),
    BAD_KEY("head_dim", "3", BERTH_CORRUPT,
            "'head_dim' is 3, all of which is rotated: must be even"),
    BAD_KEY("head_dim", "1073741824", BERTH_CORRUPT, "has the shape [8, 8]"),
    BAD_KEY("max_position_embeddings", "0", BERTH_CORRUPT, "'max_position_embeddings' is 0"),
    BAD_KEY("rms_norm_eps", "\"small\"", BERTH_CORRUPT, "'rms_norm_eps' is not a number"),
    BAD_KEY("rms_norm_eps", "-1", BERTH_CORRUPT, "'rms_norm_eps' is -1, must be 0 or more"),
    BAD_KEY("tie_word_embeddings", "1", BERTH_CORRUPT,
            "'tie_word_embeddings' is not true or false"),
    BAD_KEY("hidden_act", "\"mish\"", BERTH_UNSUPPORTED, "hidden_act 'mish'"),
    BAD_KEY("hidden_act", "7", BERTH_CORRUPT, "'hidden_act' is not a string"),
    BAD_KEY("rope_parameters", "{\"rope_type\": \"llama3\"}", BERTH_CORRUPT,
            "'rope_parameters.factor' is missing, rope_type 'llama3' needs it"),
    BAD_KEY("rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 1e300}", BERTH_CORRUPT,
            "'rope_parameters.factor' is 1e+300, must be above 0 and at most 1e+09"),
    BAD_KEY("rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 1e9}", BERTH_CORRUPT,
            "give 6.4e+10 positions"),
    BAD_KEY("rope_parameters",
            "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
            "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 32}",
            BERTH_CORRUPT, "high_freq_factor' is 4, must be above low_freq_factor, which is 4"),
    BAD_KEY("rope_parameters",
            "{\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 0}",
            BERTH_CORRUPT, "original_max_position_embeddings' is 0, must be above 0"),
    BAD_KEY("rope_parameters", "{\"rope_type\": \"dynamic\", \"factor\": -2}", BERTH_CORRUPT,
            "'rope_parameters.factor' is -2, must be above 0"),
    BAD_KEY("rope_parameters", "{\"rope_type\": \"dynamic\", \"factor\": true}", BERTH_CORRUPT,
            "'rope_parameters.factor' is not a number"),
    BAD_KEY("rope_parameters", "{\"rope_type\": \"spiral\"}", BERTH_UNSUPPORTED,
            "rope_type 'spiral'; this release knows"),
    BAD_KEY("rope_parameters", "{\"rope_type\": \"longrope\"}", BERTH_CORRUPT,
            "'rope_parameters.original_max_position_embeddings' is missing"),
    BAD_KEY("rope_parameters",
            "{\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 32, "
            "\"short_factor\": [1]}",
            BERTH_CORRUPT, "'rope_parameters.short_factor' must be a list of 2 numbers"),
    BAD_KEY("rope_parameters", "{\"full_attention\": {\"rope_type\": \"linear\"}}",
            BERTH_UNSUPPORTED, "rope_parameters.full_attention"),
    BAD_KEY("rope_scaling", "{\"type\": \"yarn\", \"factor\": 2}", BERTH_CORRUPT,
            "original_max_position_embeddings' is missing"),
    BAD_KEY("rope_scaling", "{\"type\": \"mrope\", \"mrope_section\": [1]}", BERTH_UNSUPPORTED,
            "mrope_section"),
    BAD_KEY("rope_parameters", "{\"rope_theta\": -1}", BERTH_CORRUPT,
            "'rope_parameters.rope_theta' is -1, must be 1 or more"),
    BAD_KEY("rope_parameters", "{\"rope_theta\": \"x\"}", BERTH_CORRUPT, "is not a number"),
    BAD_KEY("rope_parameters", "{\"partial_rotary_factor\": 2}", BERTH_CORRUPT,
            "'rope_parameters.partial_rotary_factor' is 2: of a head of"),
    BAD_KEY("rope_parameters", "{\"partial_rotary_factor\": 0.3}", BERTH_CORRUPT,
            "an even number from 2 on must be rotated"),
    BAD_KEY("layer_types", "[\"full_attention\", \"full_attention\"]", BERTH_CORRUPT,
            "layer_types lists 2 layers, num_hidden_layers is 1"),
    BAD_KEY("layer_types", "[\"chunked_attention\"]", BERTH_UNSUPPORTED,
            "layer_types.0 is 'chunked_attention'; this architecture knows"),
    BAD_KEY("layer_types", "[\"sliding_attention\"]", BERTH_UNSUPPORTED,
            "layer_types.0 is 'sliding_attention'"),
    BAD_KEY("layer_types", "[3]", BERTH_CORRUPT, "'layer_types.0' is not a string"),
    BAD_KEY("quantization_config", "{\"quant_method\": \"gptp\"}", BERTH_UNSUPPORTED,
            "quantization 'gptp' is registered by no plugin; the nearest one is 'gptq'"),
    BAD_KEY("quantization_config", "{\"quant_method\": \"bitsandbytes\"}", BERTH_UNSUPPORTED,
            "quantization 'bitsandbytes' is registered by no plugin; registered: "),
    BAD_KEY("quantization_config", "{}", BERTH_UNSUPPORTED, "quantization"),
    BAD_KEY("architectures", "[\"LlamaForCasualLM\"]", BERTH_UNSUPPORTED,
            "'LlamaForCasualLM' is registered by no plugin; the nearest one is 'LlamaForCausalLM'"),
    BAD_KEY("architectures", "[\"BertForMaskedLM\"]", BERTH_UNSUPPORTED,
            "registered: ApertusForCausalLM, "),
    BAD_KEY("architectures", "[\"GPT3LMHeadModel\"]", BERTH_UNSUPPORTED,
            "registered by no plugin; the nearest one is 'GPT2LMHeadModel'"),
    BAD_KEY("architectures", "[\"Qwen3ForCausalLM\"]", BERTH_CORRUPT,
            "2 tensors missing: 'model.layers.0.self_attn.q_norm.weight'"),
    BAD_KEY("attention_bias", "true", BERTH_CORRUPT,
            "4 tensors missing: 'model.layers.0.self_attn.q_proj.bias'"),
    BAD_KEY("tie_word_embeddings", "false", BERTH_CORRUPT, "1 tensor missing: 'lm_head.weight'"),
};

TEST(config_with_missing_wrong_or_absurd_values_is_refused_by_its_key) {
    core_registry core;
    core_registry_init(&core, NULL);
    sandbox box;
    sandbox_make(&box);
    toy_llama_weights(&box, 0);
    for (size_t i = 0; i < BERTH_COUNT(bad_keys); ++i) {
        const toy_key keys[] = {bad_keys[i].key, {.key = NULL}};
        toy_llama_config(&box, keys);
        const uint64_t begin = berth_clock_ns();
        check_refused(&core, &box, bad_keys[i].status, bad_keys[i].words);
        CHECK(berth_clock_ns() - begin < UINT64_C(20000000000));
    }
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

// The file of that path under a name of the folder.
static void link_file(const sandbox *box, const char *path, const char *name) {
    char target[PATH_MAX];
    CHECK(realpath(path, target) != NULL);
    (void)unlink(sandbox_path(box, name));
    CHECK_INT(symlink(target, sandbox_path(box, name)), 0);
}

// What the fuzzer found, beside the weights that it has: a graph, or a text that says why not.
TEST(config_files_of_the_fuzzer_are_built_or_refused) {
    core_registry core;
    berth_dir_listing files = {0};
    berth_arena *arena = NULL;
    sandbox box;
    core_registry_init(&core, NULL);
    sandbox_make(&box);
    link_file(&box, "tests/data/models/llama/model.safetensors", "model.safetensors");
    CHECK_OK(berth_arena_create(4096, (size_t)1 << 20, &arena));
    CHECK_OK(berth_dir_list("tests/fuzz/config_json", arena, &files));
    size_t built = 0;
    for (size_t i = 0; i < files.count; ++i) {
        berth_checkpoint *checkpoint = NULL;
        berth_model_build *build = NULL;
        link_file(&box, berth_path_join(arena, "tests/fuzz/config_json", files.names[i]),
                  "config.json");
        berth_status status = berth_checkpoint_open(box.dir, &checkpoint);
        if (status == BERTH_OK) {
            status = berth_model_create(core.registry, &core.config, checkpoint, BERTH_DTYPE_F32,
                                        &build);
        }
        built += status == BERTH_OK;
        CHECK(status == BERTH_OK || berth_status_message()[0] != '\0');
        berth_model_destroy(build);
        berth_checkpoint_close(checkpoint);
    }
    CHECK(built > 0 && built < files.count);
    berth_arena_destroy(arena);
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

TEST(config_with_heads_that_do_not_divide_the_width_is_refused) {
    core_registry core;
    core_registry_init(&core, NULL);
    sandbox box;
    sandbox_make(&box);
    const toy_key heads[] = {
        {.key = "head_dim", .value = NULL},
        {.key = "num_attention_heads",                 .value = "3"},
        {.key = NULL},
    };
    toy_llama_config(&box, heads);
    toy_llama_weights(&box, 0);
    check_refused(&core, &box, BERTH_CORRUPT,
                  "hidden_size 8 is no multiple of num_attention_heads 3");
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

TEST(config_with_a_window_says_where_it_begins) {
    core_registry core;
    core_registry_init(&core, NULL);
    sandbox box;
    sandbox_make(&box);
    toy_key keys[] = {
        {.key = "architectures",  .value = "[\"Qwen2ForCausalLM\"]"},
        {.key = "use_sliding_window",                       .value = "true"},
        {.key = "sliding_window",.value = "16"},
        {.key = "max_window_layers", .value = "-1"},
        {.key = NULL                      },
    };
    toy_llama_config(&box, keys);
    toy_llama_weights(&box, 0);
    check_refused(&core, &box, BERTH_CORRUPT, "'max_window_layers' is not a number of layers");
    keys[2].value = "0";
    keys[3].value = "0";
    toy_llama_config(&box, keys);
    check_refused(&core, &box, BERTH_CORRUPT, "'sliding_window' is 0");
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

// Their pictures and prefixes, or all of their tokens, see what comes later.
TEST(gemma_whose_attention_is_not_causal_is_refused) {
    core_registry core;
    core_registry_init(&core, NULL);
    sandbox box;
    sandbox_make(&box);
    const toy_key both_ways[] = {
        {.key = "architectures", .value = "[\"GemmaForCausalLM\"]"},
        {.key = "use_bidirectional_attention",                      .value = "true"},
        {.key = NULL},
    };
    const toy_key seeing[] = {
        {.key = "architectures",    .value = "[\"PaliGemmaForConditionalGeneration\"]"},
        {.key = "model_type",                         .value = "\"paligemma\""},
        {.key = "text_config",.value = "{\"model_type\": \"gemma2\"}"},
        {.key = NULL     },
    };
    toy_llama_weights(&box, 0);
    toy_llama_config(&box, both_ways);
    check_refused(&core, &box, BERTH_UNSUPPORTED,
                  "config.json: use_bidirectional_attention: tokens of a prompt attend to later");
    toy_llama_config(&box, seeing);
    check_refused(&core, &box, BERTH_UNSUPPORTED,
                  "config.json: model_type 'paligemma': tokens of a prompt attend to later");
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

TEST(weights_that_do_not_fit_the_model_are_listed) {
    core_registry core;
    core_registry_init(&core, NULL);
    sandbox box;
    sandbox_make(&box);
    const toy_key none = {.key = NULL};
    toy_llama_config(&box, &none);
    toy_llama_weights(&box, TOY_NO_NORM | TOY_EXTRA | TOY_QK_NORM);
    check_refused(&core, &box, BERTH_CORRUPT,
                  "do not fit LlamaForCausalLM: 1 tensor missing: 'model.norm.weight'; "
                  "3 tensors unknown to the model: ");
    CHECK_CONTAINS(berth_status_message(), "'model.surplus'");
    CHECK_NULL(strstr(berth_status_message(), "inv_freq"));
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

// ---- the user or a plugin is to blame -----------------------------------------------------------

TEST(quantization_that_the_user_asks_for_must_be_the_checkpoints) {
    core_registry core;
    core_registry_init(&core, NULL);
    core.config.quantization = "unquantized";
    CHECK_OK(try_build(&core, "tests/data/models/llama"));
    core.config.quantization = "fp8";
    CHECK_STATUS(try_build(&core, "tests/data/models/llama"), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "asked for is 'fp8', the checkpoint's is 'unquantized'");
    core_registry_deinit(&core);
}

TEST(quantization_that_two_schemes_claim_is_refused_naming_both) {
    bad_plugin bad;
    core_registry core;
    core_registry_init(&core, make_plugin(&bad, add_greedy));
    CHECK_STATUS(try_build(&core, "tests/data/models/llama"), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(), "'greedy' of plugin bad");
    CHECK_CONTAINS(berth_status_message(), "'unquantized' of plugin core-quant");
    core_registry_deinit(&core);
}

TEST(quantization_scheme_that_fails_to_look_refuses_with_its_text) {
    bad_plugin bad;
    core_registry core;
    core_registry_init(&core, make_plugin(&bad, add_failing));
    CHECK_STATUS(try_build(&core, "tests/data/models/llama"), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "quantization_config is nonsense");
    core_registry_deinit(&core);
}

TEST(quantization_scheme_without_a_method_for_a_layer_refuses_with_its_text) {
    bad_plugin bad;
    core_registry core;
    core_registry_init(&core, make_plugin(&bad, add_greedy));
    sandbox box;
    sandbox_make(&box);
    const toy_key keys[] = {
        {.key = "quantization_config", .value = "{}"},
        {.key = NULL                           }
    };
    toy_llama_config(&box, keys);
    toy_llama_weights(&box, 0);
    check_refused(&core, &box, BERTH_UNSUPPORTED, "no method for QKVParallelLinear");
    CHECK_CONTAINS(berth_status_message(), "model.layers.0.self_attn.qkv_proj");
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

TEST(model_class_that_breaks_a_rule_is_refused_with_the_rule) {
    bad_plugin bad;
    core_registry core;
    core_registry_init(&core, make_plugin(&bad, add_bad_things));
    sandbox box;
    sandbox_make(&box);
    toy_llama_weights(&box, 0);
    for (size_t i = 0; i < BERTH_COUNT(bad_models); ++i) {
        char name[64];
        (void)snprintf(name, sizeof name, "[\"%s\"]", bad_models[i].model.architecture);
        const toy_key keys[] = {
            {.key = "architectures", .value = name},
            {.key = NULL                     }
        };
        toy_llama_config(&box, keys);
        check_refused(&core, &box, bad_models[i].status, bad_models[i].words);
    }
    sandbox_remove(&box);
    core_registry_deinit(&core);
}

// ---- the machine is to blame --------------------------------------------------------------------

TEST(build_survives_every_failing_allocation) {
    core_registry core;
    core_registry_init(&core, NULL);
    sandbox box;
    sandbox_make(&box);
    const toy_key none = {.key = NULL};
    toy_llama_config(&box, &none);
    toy_llama_weights(&box, 0);
    uint64_t failures = 0;
    for (uint64_t n = 1;; ++n) {
        berth_checkpoint *checkpoint = NULL;
        berth_model_build *build = NULL;
        (void)berth_memory_fail_after(n);
        berth_status status = berth_checkpoint_open(box.dir, &checkpoint);
        if (status == BERTH_OK) {
            status = berth_model_create(core.registry, &core.config, checkpoint, BERTH_DTYPE_F32,
                                        &build);
        }
        const bool was_reached = berth_memory_fail_after(0) == 0;
        berth_model_destroy(build);
        berth_checkpoint_close(checkpoint);
        if (!was_reached) {
            CHECK_OK(status);
            break;
        }
        CHECK_STATUS(status, BERTH_OUT_OF_MEMORY);
        ++failures;
    }
    CHECK(failures > 20);
    sandbox_remove(&box);
    core_registry_deinit(&core);
}
