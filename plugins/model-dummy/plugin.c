// SPDX-License-Identifier: Apache-2.0
// model-dummy: an architecture of its own in one file, the template that a model author copies.
//
// It registers DummyForCausalLM, a small Llama whose config.json has words of its own: vocabulary,
// width, mlp_width, depth, heads, kv_heads, context. Nothing of the host is linked: layers and ops
// are named, and whoever registers a layer or an implementation of that name is used.
//
// To make it yours: rename the folder and `dummy`, read your numbers and build your layers. A
// number that is missing or absurd, a shape that does not fit and a tensor that is not in the
// checkpoint fail the build by themselves, with a text; so nothing here checks anything. Read from
// the last lines up.
#include <berth/plugin.h>

#include <math.h>

typedef struct dummy {
    int64_t vocabulary, width, mlp_width, depth, heads, kv_heads, head_size, context;
} dummy;

// An op: y = norm(x) or, when there is a running sum, y = norm(sum += x).
static berth_value norm(berth_builder *b, const char *name, berth_value x, berth_value *sum) {
    const int64_t width = b->type(b, x)->dims[1].b;
    const berth_value weight = berth_build_vector(b, berth_build_name(b, "%s.weight", name), width);
    berth_value results[2] = {0, x};
    BERTH_EMIT(b, "rms_norm", .prefix = name, BERTH_INPUTS(x, *sum, weight),
               BERTH_ATTRIBUTES(BERTH_F64("eps", 1e-5)), .outputs = results,
               .output_count = *sum == BERTH_VALUE_NONE ? 1 : 2);
    *sum = results[1];
    return results[0];
}

// A layer: x [tokens, …] times a weight of the checkpoint, which may be quantized.
static berth_value project(berth_builder *b, const char *name, berth_value x, int64_t width) {
    const int64_t from = b->type(b, x)->dims[1].b;
    return BERTH_LAYER(
        b, "ReplicatedLinear", .prefix = name, BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", from), BERTH_I64("output_size", width)));
}

// The same, seen head by head: [tokens, heads, head_size].
static berth_value project_heads(berth_builder *b, const dummy *model, const char *name,
                                 berth_value x, int64_t heads) {
    const berth_dim dims[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(heads),
                              BERTH_DIM_CONST(model->head_size)};
    return b->reshape(b, project(b, name, x, heads * model->head_size), dims, 3);
}

static berth_value attend(berth_builder *b, const dummy *model, const char *name, berth_value x) {
    berth_value qkv[] = {
        project_heads(b, model, berth_build_name(b, "%s.q_proj", name), x, model->heads),
        project_heads(b, model, berth_build_name(b, "%s.k_proj", name), x, model->kv_heads),
        project_heads(b, model, berth_build_name(b, "%s.v_proj", name), x, model->kv_heads),
    };
    BERTH_EMIT(b, "rotary_embedding", .prefix = berth_build_name(b, "%s.rotary_emb", name),
               BERTH_INPUTS(b->input(b, "positions"), qkv[0], qkv[1]),
               BERTH_ATTRIBUTES(BERTH_I64("rotary_dim", model->head_size),
                                BERTH_I64("max_position", model->context)),
               .outputs = qkv, .output_count = 2);
    // The layer declares its KV cache under its own name; that is all there is to paging.
    x = BERTH_LAYER(b, "Attention", .prefix = berth_build_name(b, "%s.attn", name),
                    BERTH_INPUTS(qkv[0], qkv[1], qkv[2]),
                    BERTH_ATTRIBUTES(BERTH_I64("num_heads", model->heads),
                                     BERTH_I64("num_kv_heads", model->kv_heads),
                                     BERTH_I64("head_size", model->head_size),
                                     BERTH_F64("scale", 1 / sqrt((double)model->head_size))));
    return project(b, berth_build_name(b, "%s.o_proj", name), x, model->width);
}

static berth_value mlp(berth_builder *b, const dummy *model, const char *name, berth_value x) {
    const int64_t sizes[] = {model->mlp_width, model->mlp_width};
    x = BERTH_LAYER(b, "MergedColumnParallelLinear", BERTH_INPUTS(x),
                    .prefix = berth_build_name(b, "%s.gate_up_proj", name),
                    BERTH_ATTRIBUTES(BERTH_I64("input_size", model->width),
                                     BERTH_I64S("output_sizes", sizes, 2)));
    x = BERTH_EMIT(b, "silu_and_mul", .prefix = name, BERTH_INPUTS(x));
    return project(b, berth_build_name(b, "%s.down_proj", name), x, model->width);
}

static void build(berth_builder *b) {
    dummy model = {
        .vocabulary = berth_config_count(b, "vocabulary"),
        .width = berth_config_count(b, "width"),
        .mlp_width = berth_config_count(b, "mlp_width"),
        .depth = berth_config_layer_count(b, "depth"),
        .heads = berth_config_count(b, "heads"),
        .kv_heads = berth_config_count(b, "kv_heads"),
        .context = berth_config_count(b, "context"),
    };
    model.head_size = model.width / model.heads;
    b->describe(b, &(const berth_model_description){.size = sizeof(berth_model_description),
                                                    .vocab_size = model.vocabulary,
                                                    .hidden_size = model.width,
                                                    .max_model_len = model.context,
                                                    .layer_count = model.depth});
    berth_value x = BERTH_LAYER(b, "VocabParallelEmbedding", .prefix = "model.embed_tokens",
                                BERTH_INPUTS(b->input(b, "token_ids")),
                                BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", model.vocabulary),
                                                 BERTH_I64("embedding_dim", model.width)));
    berth_value sum = BERTH_VALUE_NONE;
    for (int64_t i = 0; i < model.depth; ++i) {
        const char *name = berth_build_name(b, "model.layers.%d", (int)i);
        x = norm(b, berth_build_name(b, "%s.input_layernorm", name), x, &sum);
        x = attend(b, &model, berth_build_name(b, "%s.self_attn", name), x);
        x = norm(b, berth_build_name(b, "%s.post_attention_layernorm", name), x, &sum);
        x = mlp(b, &model, berth_build_name(b, "%s.mlp", name), x);
    }
    x = norm(b, "model.norm", x, &sum);
    x = BERTH_LAYER(b, "LogitsProcessor", .prefix = "lm_head", BERTH_INPUTS(x),
                    BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", model.vocabulary),
                                     BERTH_I64("embedding_dim", model.width),
                                     BERTH_TEXT("tied_to", "model.embed_tokens")));
    b->output(b, "logits", x);
}

// Two tensors of the checkpoint are the halves of one weight here; all others keep their names.
#define RULE(text, half)                                                                           \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (text), .to = ".gate_up_proj.", .shard = (half) \
    }
static const berth_weight_rule *const rules[] = {RULE(".gate_proj.", "0"), RULE(".up_proj.", "1")};

static const berth_model dummy_model = {.size = sizeof(berth_model),
                                        .architecture = "DummyForCausalLM",
                                        .build = build,
                                        .weight_rules = rules,
                                        .weight_rule_count = 2};

static berth_status register_plugin(const berth_host *host, berth_registrar *registrar) {
    (void)host;
    return registrar->add_model(registrar, &dummy_model, 0);
}

static const berth_entry_point entry = {.size = sizeof(berth_entry_point),
                                        .group = BERTH_GROUP_GENERAL,
                                        .name = "model-dummy",
                                        .register_plugin = register_plugin};
static const berth_entry_point *const entries[] = {&entry};

BERTH_PLUGIN_DEFINE(.id = "model-dummy", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entries, .entry_point_count = 1);
