// SPDX-License-Identifier: Apache-2.0
// Gemma3nForCausalLM: several streams of hidden states, of which a layer computes one and predicts
// the others (AltUp); a small second path beside attention (Laurel); an embedding of its own for
// every layer; sparse gates in the first layers; the last layers read the keys and values of
// earlier ones.
//
//   h[0] = embed(token_ids), h[i] = project_i(h[0]) as large as h[0]
//   for each layer:
//     p[i] = h[i] + Σ c[i][j](h[a]) · h[j]             a: the active stream
//     x = norm(p[a])
//     y = (p[a] + norm(attention(x)) + x + laurel(x)) / √2
//     y = y + norm(mlp(norm(y)))
//     h[i] = p[i] + (1 + c[i](y)) · (y − p[a])
//     h[i] += norm(project(gelu(gate(s · h[a])) · e))  i > 0; e: the layer's embedding
//   logits = head(norm(mean of unproject_i(h[i]) as large as h[0]))
#include "decoder/gemma.h"
#include "decoder/parts.h"

#include <math.h>

#define MAX_STREAMS 8 // as many as mix_rows takes

typedef struct gemma3n {
    berth_builder *b;
    berth_decoder decoder;
    int64_t streams;
    int64_t active;
    int64_t per_layer;  // width of a layer's own embedding
    int64_t rank;       // of Laurel
    int64_t own_layers; // the first ones, which have caches
    int64_t scales_active;
} gemma3n;

static const char *name_of(const gemma3n *m, int64_t layer, const char *piece) {
    return berth_decoder_piece(m->b, &m->decoder, layer, piece);
}

static berth_value project(const gemma3n *m, const char *name, int64_t inputs, int64_t outputs,
                           berth_value x) {
    return BERTH_LAYER(
        m->b, "ReplicatedLinear", .prefix = name, BERTH_INPUTS(x),
        BERTH_ATTRIBUTES(BERTH_I64("input_size", inputs), BERTH_I64("output_size", outputs)));
}

static berth_value norm(const gemma3n *m, const char *name, berth_value x) {
    return berth_decoder_norm_of(m->b, &m->decoder, name, x);
}

static berth_value add(const gemma3n *m, const char *name, berth_value a, berth_value b) {
    return BERTH_EMIT(m->b, "add", .prefix = name, BERTH_INPUTS(a, b));
}

static berth_value scale(const gemma3n *m, const char *name, berth_value x, double by) {
    return berth_decoder_scale(m->b, name, x, by);
}

// ---- streams ------------------------------------------------------------------------------------

// All of them as `name`.<i − 1> projects them, as large as the first; h[0] stays.
static void project_all(const gemma3n *m, const char *name, const berth_value *from,
                        berth_value *h) {
    const int64_t width = m->decoder.hidden_size;
    for (int64_t i = 1; i < m->streams; ++i) {
        const char *own = berth_build_name(m->b, "%s.%lld", name, (long long)(i - 1));
        h[i] = BERTH_EMIT(m->b, "match_magnitude", .prefix = own,
                          BERTH_INPUTS(project(m, own, width, width, from[i]), h[0]));
    }
}

// tanh(route(norm(x) / width)), [T, streams].
static berth_value route(const gemma3n *m, int64_t layer, berth_value x) {
    const char *name = name_of(m, layer, "altup.modality_router");
    const int64_t width = m->decoder.hidden_size;
    const berth_value normal =
        scale(m, name, norm(m, name_of(m, layer, "altup.router_norm"), x), 1 / (double)width);
    return BERTH_EMIT(m->b, "scale_logits", .prefix = name,
                      BERTH_INPUTS(project(m, name, width, m->streams, normal)),
                      BERTH_ATTRIBUTES(BERTH_F64("soft_cap", 1)));
}

static void predict(const gemma3n *m, int64_t layer, const berth_value *h, berth_value *p) {
    const char *name = name_of(m, layer, "altup.prediction_coefs");
    const berth_value all =
        project(m, name, m->streams, m->streams * m->streams, route(m, layer, h[m->active]));
    for (int64_t i = 0; i < m->streams; ++i) {
        berth_value inputs[2 + MAX_STREAMS] = {
            h[i],
            m->b->slice(m->b, all, 1, i * m->streams, m->streams),
        };
        for (int64_t j = 0; j < m->streams; ++j) {
            inputs[2 + j] = h[j];
        }
        p[i] = BERTH_EMIT(m->b, "mix_rows", .prefix = name, .inputs = inputs,
                          .input_count = (uint64_t)(2 + m->streams));
    }
}

static void correct(const gemma3n *m, int64_t layer, const berth_value *p, berth_value y,
                    berth_value *h) {
    const char *name = name_of(m, layer, "altup.correction_coefs");
    const berth_value all = project(m, name, m->streams, m->streams, route(m, layer, y));
    const berth_value news = add(m, name, y, scale(m, name, p[m->active], -1));
    for (int64_t i = 0; i < m->streams; ++i) {
        h[i] = BERTH_EMIT(m->b, "mix_rows", .prefix = name,
                          BERTH_INPUTS(p[i], m->b->slice(m->b, all, 1, i, 1), news),
                          BERTH_ATTRIBUTES(BERTH_F64("offset", 1)));
    }
}

// ---- a layer ------------------------------------------------------------------------------------

static berth_value heads(const gemma3n *m, berth_value x, int64_t count) {
    const berth_dim dims[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(count),
        BERTH_DIM_CONST(m->decoder.head_size),
    };
    return m->b->reshape(m->b, x, dims, 3);
}

// The last layer before the shared ones that is of the same kind.
static int64_t source_of(const gemma3n *m, int64_t layer) {
    const int64_t window = berth_decoder_window(m->b, &m->decoder, layer);
    int64_t source = layer < m->own_layers ? layer : m->own_layers - 1;
    while (layer >= m->own_layers && source > 0 &&
           (berth_decoder_window(m->b, &m->decoder, source) > 0) != (window > 0)) {
        --source;
    }
    return source;
}

static berth_value attention(const gemma3n *m, int64_t layer, berth_value x) {
    const berth_decoder *d = &m->decoder;
    const int64_t width = d->num_heads * d->head_size;
    const int64_t kv_width = d->num_kv_heads * d->head_size;
    const int has_own = layer < m->own_layers;
    berth_value qkv[3] = {
        heads(m, project(m, name_of(m, layer, "self_attn.q_proj"), d->hidden_size, width, x),
              d->num_heads)};
    qkv[0] = norm(m, name_of(m, layer, "self_attn.q_norm"), qkv[0]);
    if (has_own) {
        const char *value = name_of(m, layer, "self_attn.v_proj");
        const char *key = name_of(m, layer, "self_attn.k_proj");
        qkv[1] = norm(m, name_of(m, layer, "self_attn.k_norm"),
                      heads(m, project(m, key, d->hidden_size, kv_width, x), d->num_kv_heads));
        qkv[2] = BERTH_EMIT(
            m->b, "rms_norm", .prefix = value,
            BERTH_INPUTS(heads(m, project(m, value, d->hidden_size, kv_width, x), d->num_kv_heads)),
            BERTH_ATTRIBUTES(BERTH_F64("eps", d->norm_eps)));
    }
    const char *name = name_of(m, layer, "self_attn");
    berth_decoder_rotate(m->b, d, name, berth_decoder_window(m->b, d, layer), qkv);
    const char *cache =
        berth_build_name(m->b, "%s.attn", name_of(m, source_of(m, layer), "self_attn"));
    const berth_value y = BERTH_LAYER(
        m->b, "Attention", .prefix = cache, BERTH_INPUTS(qkv[0], qkv[1], qkv[2]),
        BERTH_ATTRIBUTES(BERTH_I64("num_heads", d->num_heads),
                         BERTH_I64("num_kv_heads", d->num_kv_heads),
                         BERTH_I64("head_size", d->head_size), BERTH_F64("scale", 1),
                         BERTH_I64("sliding_window", berth_decoder_window(m->b, d, layer))));
    return project(m, berth_build_name(m->b, "%s.o_proj", name), width, d->hidden_size, y);
}

static berth_value laurel(const gemma3n *m, int64_t layer, berth_value x) {
    const int64_t width = m->decoder.hidden_size;
    const berth_value small =
        project(m, name_of(m, layer, "laurel.linear_left"), width, m->rank, x);
    const berth_value y =
        project(m, name_of(m, layer, "laurel.linear_right"), m->rank, width, small);
    const char *name = name_of(m, layer, "laurel.post_laurel_norm");
    return add(m, name, x, norm(m, name, y));
}

// Where config.json does not list it: a deep model has it in its first layers.
static double usual_sparsity(const gemma3n *m, int64_t layer) {
    uint64_t listed = 0;
    const char *key = "activation_sparsity_pattern";
    const int is_listed = m->b->host->json_get_count(m->b->config, key, &listed) == BERTH_OK;
    return !is_listed && m->decoder.layer_count > 10 && layer < 10 ? 0.95 : 0;
}

static berth_value mlp(const gemma3n *m, int64_t layer, berth_value x) {
    const char *sparsity =
        berth_build_name(m->b, "activation_sparsity_pattern.%lld", (long long)layer);
    const char *size = berth_build_name(m->b, "intermediate_size.%lld", (long long)layer);
    berth_decoder own = m->decoder;
    own.sparsity = berth_config_f64_or(m->b, sparsity, usual_sparsity(m, layer));
    return berth_decoder_dense(m->b, &own, name_of(m, layer, "mlp"),
                               berth_config_count_or(m->b, size, own.intermediate_size), x);
}

// Adds to all streams but the first what the layer's own embedding says.
static void add_embedding(const gemma3n *m, int64_t layer, berth_value own, berth_value *h) {
    const int64_t width = m->decoder.hidden_size;
    const char *gate = name_of(m, layer, "per_layer_input_gate");
    const char *last = name_of(m, layer, "post_per_layer_input_norm");
    berth_value x = h[m->active];
    if (m->scales_active) {
        const char *name = name_of(m, layer, "altup.correct_output_scale");
        x = BERTH_EMIT(m->b, "scale_columns", .prefix = name,
                       BERTH_INPUTS(x, berth_build_vector(m->b, name, width)));
    }
    x = berth_decoder_activate(m->b, &m->decoder, gate, project(m, gate, width, m->per_layer, x));
    x = BERTH_EMIT(m->b, "mul", .prefix = gate,
                   BERTH_INPUTS(x, m->b->slice(m->b, own, 1, layer * m->per_layer, m->per_layer)));
    x = project(m, name_of(m, layer, "per_layer_projection"), m->per_layer, width, x);
    x = norm(m, last, x);
    for (int64_t i = 1; i < m->streams; ++i) {
        h[i] = add(m, last, h[i], x);
    }
}

static void add_layer(const gemma3n *m, int64_t layer, berth_value own, berth_value *h) {
    berth_value p[MAX_STREAMS] = {0};
    predict(m, layer, h, p);
    const char *name = name_of(m, layer, "self_attn");
    const berth_value x = norm(m, name_of(m, layer, "input_layernorm"), p[m->active]);
    berth_value y = norm(m, name_of(m, layer, "post_attention_layernorm"), attention(m, layer, x));
    y = add(m, name, add(m, name, p[m->active], y), laurel(m, layer, x));
    y = scale(m, name, y, sqrt(0.5));
    const berth_value z = mlp(m, layer, norm(m, name_of(m, layer, "pre_feedforward_layernorm"), y));
    y = add(m, name_of(m, layer, "mlp"), y,
            norm(m, name_of(m, layer, "post_feedforward_layernorm"), z));
    correct(m, layer, p, y, h);
    add_embedding(m, layer, own, h);
}

// ---- the model ----------------------------------------------------------------------------------

// Ids behind the table, which are what a model of images and sounds adds, read its first row.
static berth_value embed(const gemma3n *m, const char *name, int64_t tokens, int64_t width) {
    berth_value ids[2] = {m->b->input(m->b, "token_ids")};
    if (tokens < m->decoder.vocab_size) {
        BERTH_EMIT(m->b, "vocab_parallel_mask", .prefix = name, BERTH_INPUTS(ids[0]),
                   BERTH_ATTRIBUTES(BERTH_I64("org_vocab_start_index", 0),
                                    BERTH_I64("org_vocab_end_index", tokens)),
                   .outputs = ids, .output_count = 2);
    }
    return BERTH_LAYER(m->b, "VocabParallelEmbedding", .prefix = name, BERTH_INPUTS(ids[0]),
                       BERTH_ATTRIBUTES(BERTH_I64("num_embeddings", tokens),
                                        BERTH_I64("embedding_dim", width),
                                        BERTH_TEXT("tied_to", NULL)));
}

// The embeddings of all layers, [T, layers · per_layer]: from a table, and from the first stream.
static berth_value embed_layers(const gemma3n *m, berth_value x) {
    const char *name = "model.per_layer_model_projection";
    const berth_decoder *d = &m->decoder;
    const int64_t width = d->layer_count * m->per_layer;
    const berth_dim split[] = {
        BERTH_DIM_TOKENS,
        BERTH_DIM_CONST(d->layer_count),
        BERTH_DIM_CONST(m->per_layer),
    };
    const berth_dim flat[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(width)};
    const int64_t tokens = berth_config_count_or(m->b, "vocab_size_per_layer_input", d->vocab_size);
    const berth_value table =
        scale(m, "model.embed_tokens_per_layer",
              embed(m, "model.embed_tokens_per_layer", tokens, width), sqrt((double)m->per_layer));
    berth_value y = scale(m, name, project(m, name, d->hidden_size, width, x),
                          1 / sqrt((double)d->hidden_size));
    y = norm(m, "model.per_layer_projection_norm", m->b->reshape(m->b, y, split, 3));
    return scale(m, name, add(m, name, m->b->reshape(m->b, y, flat, 2), table), sqrt(0.5));
}

static berth_value mean(const gemma3n *m, const berth_value *h) {
    berth_value sum = h[0];
    for (int64_t i = 1; i < m->streams; ++i) {
        sum = add(m, "model.altup_unembed_projections", sum, h[i]);
    }
    return scale(m, "model.altup_unembed_projections", sum, 1 / (double)m->streams);
}

static void read(gemma3n *m) {
    berth_builder *b = m->b;
    int64_t shared = 15;
    berth_gemma2_read(b, &m->decoder);
    m->decoder.attention_soft_cap = 0;
    m->streams = berth_config_count_or(b, "altup_num_inputs", 4);
    m->per_layer = berth_config_count_or(b, "hidden_size_per_layer_input", 256);
    m->rank = berth_config_count_or(b, "laurel_rank", 64);
    m->scales_active = berth_config_bool_or(b, "altup_correct_scale", 1);
    (void)b->host->json_get_i64(b->config, "altup_active_idx", &m->active);
    (void)b->host->json_get_i64(b->config, "num_kv_shared_layers", &shared);
    m->own_layers = m->decoder.layer_count - shared;
    if (m->streams < 2 || m->streams > MAX_STREAMS || m->active < 0 || m->active >= m->streams ||
        m->own_layers < 1 || shared < 0) {
        berth_build_fail(b, BERTH_CORRUPT,
                         "config.json: altup_num_inputs %lld (2 to %d), altup_active_idx %lld and "
                         "num_kv_shared_layers %lld of %lld layers do not go together",
                         (long long)m->streams, MAX_STREAMS, (long long)m->active,
                         (long long)shared, (long long)m->decoder.layer_count);
        m->streams = 2;
        m->active = 0;
        m->own_layers = 1;
    }
}

// Files may hold tensors of layers that read others' keys and values, and scales that are not used.
static void ignore_unused(const gemma3n *m) {
    static const char *const pieces[] = {"k_proj", "v_proj", "k_norm", "v_norm"};
    if (!m->scales_active) {
        m->b->ignore(m->b, ".altup.correct_output_scale");
    }
    for (int64_t i = m->own_layers; i < m->decoder.layer_count; ++i) {
        for (size_t k = 0; k < sizeof pieces / sizeof pieces[0]; ++k) {
            m->b->ignore(
                m->b, berth_build_name(m->b, "layers.%lld.self_attn.%s.", (long long)i, pieces[k]));
        }
    }
}

static void build(berth_builder *builder) {
    gemma3n m = {
        .b = builder,
        .decoder.sliding_window = 512,
        .decoder.sliding_period = 5,
        .decoder.logit_soft_cap = 30,
        .decoder.rope_theta = 1e6,
    };
    berth_value h[MAX_STREAMS] = {0};
    read(&m);
    ignore_unused(&m);
    berth_decoder_describe(builder, &m.decoder);
    h[0] = berth_decoder_embed(builder, &m.decoder);
    const berth_value own = embed_layers(&m, h[0]);
    for (int64_t i = 1; i < m.streams; ++i) {
        h[i] = h[0];
    }
    project_all(&m, "model.altup_projections", h, h);
    for (int64_t i = 0; i < m.decoder.layer_count; ++i) {
        add_layer(&m, i, own, h);
    }
    project_all(&m, "model.altup_unembed_projections", h, h);
    const berth_value x = norm(&m, m.decoder.names->final_norm, mean(&m, h));
    builder->output(builder, "logits", berth_decoder_head(builder, &m.decoder, x));
}

static const berth_weight_rule *const rules[] = {BERTH_DECODER_GATE_RULES};

const berth_model berth_model_gemma3n = {
    .size = sizeof(berth_model),
    .architecture = "Gemma3nForCausalLM",
    .build = build,
    .weight_rules = rules,
    .weight_rule_count = sizeof rules / sizeof rules[0],
};
