// SPDX-License-Identifier: Apache-2.0
// What each rank of worlds of 1, 2, 4 and 8 holds of the layers that own several weights: every
// element of a weight that is divided is on one rank, in the order of the whole; the others are
// whole on every rank. One process plays all ranks; nothing is computed.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/model.h"
#include "support/core_registry.h"
#include "support/test.h"

#define MAX_WEIGHTS  14
#define MAX_ELEMENTS 8192
#define HIDDEN       16

// How ranks have a weight.
typedef enum holding {
    WHOLE,  // all of it each
    PARTS,  // each element once
    FIRST,  // all of it, the first rank only: what is added before ranks are added up
    SHARED, // parts, and in one of them what is whole: B and C of a mixer's only group
} holding;

typedef struct stored {
    const char *name;
    int64_t shape[3];
    holding held;
} stored;

typedef struct divided {
    const char *layer;
    size_t input; // of the layer that the hidden states are
    stored weights[MAX_WEIGHTS];
    berth_attribute attributes[10];
} divided;

// Why macros: clang-format 14 crashes on rows in braces that differ in the number of members.
#define NUMBER(attribute_name, value)                                                              \
    (berth_attribute) {                                                                            \
        .size = sizeof(berth_attribute), .name = (attribute_name), .kind = BERTH_ATTRIBUTE_I64,    \
        .i64 = (value)                                                                             \
    }
#define WEIGHT(weight_name, is_held, ...)                                                          \
    { .name = (weight_name), .shape = {__VA_ARGS__}, .held = (is_held) }
#define LIST(...)                                                                                  \
    { __VA_ARGS__ }
#define ROW(...)                                                                                   \
    { __VA_ARGS__ }

static const divided layers[] = {
    ROW(.layer = "ReplicatedLinear", .weights = LIST(WEIGHT("weight", WHOLE, 24, HIDDEN)),
        .attributes = LIST(NUMBER("input_size", HIDDEN), NUMBER("output_size", 24))),
    ROW(.layer = "GateLinear", .weights = LIST(WEIGHT("weight", WHOLE, 8, HIDDEN)),
        .attributes = LIST(NUMBER("input_size", HIDDEN), NUMBER("output_size", 8))),
    ROW(.layer = "LogitsProcessor", .weights = LIST(WEIGHT("weight", PARTS, 512, HIDDEN)),
        .attributes = LIST(NUMBER("num_embeddings", 512), NUMBER("embedding_dim", HIDDEN))),
    ROW(.layer = "ShortConv",
        .weights =
            LIST(WEIGHT("in_proj.weight", PARTS, 48, HIDDEN), WEIGHT("in_proj.bias", PARTS, 48),
                 WEIGHT("conv.weight", PARTS, 16, 1, 3), WEIGHT("conv.bias", PARTS, 16),
                 WEIGHT("out_proj.weight", PARTS, 16, 16), WEIGHT("out_proj.bias", FIRST, 16)),
        .attributes =
            LIST(NUMBER("dim", HIDDEN), NUMBER("conv_L_cache", 3), NUMBER("conv_bias", 1))),
    ROW(.layer = "MambaMixer",
        .weights = LIST(
            WEIGHT("in_proj.weight", PARTS, 64, HIDDEN), WEIGHT("conv1d.weight", PARTS, 32, 1, 4),
            WEIGHT("conv1d.bias", PARTS, 32), WEIGHT("x_proj.weight", PARTS, 10, 32),
            WEIGHT("dt_proj.weight", PARTS, 32, 2), WEIGHT("dt_proj.bias", PARTS, 32),
            WEIGHT("A", PARTS, 32, 4), WEIGHT("D", PARTS, 32),
            WEIGHT("dt_layernorm.weight", WHOLE, 2), WEIGHT("b_layernorm.weight", WHOLE, 4),
            WEIGHT("c_layernorm.weight", WHOLE, 4), WEIGHT("out_proj.weight", PARTS, HIDDEN, 32)),
        .attributes = LIST(NUMBER("hidden_size", HIDDEN), NUMBER("intermediate_size", 32),
                           NUMBER("ssm_state_size", 4), NUMBER("conv_kernel_size", 4),
                           NUMBER("time_step_rank", 2), NUMBER("use_rms_norm", 1))),
    // z and x have 32 rows each, B and C 16, dt 16.
    ROW(.layer = "MambaMixer2",
        .weights =
            LIST(WEIGHT("in_proj.weight", PARTS, 112, HIDDEN),
                 WEIGHT("conv1d.weight", PARTS, 64, 1, 4), WEIGHT("conv1d.bias", PARTS, 64),
                 WEIGHT("A", PARTS, 16), WEIGHT("D", PARTS, 16), WEIGHT("dt_bias", PARTS, 16),
                 WEIGHT("norm.weight", PARTS, 32), WEIGHT("out_proj.weight", PARTS, HIDDEN, 32)),
        .attributes = LIST(NUMBER("hidden_size", HIDDEN), NUMBER("intermediate_size", 32),
                           NUMBER("ssm_state_size", 2), NUMBER("conv_kernel_size", 4),
                           NUMBER("num_heads", 16), NUMBER("head_dim", 2), NUMBER("n_groups", 8))),
    // The same with one group: B and C have 2 rows, which every rank has; no norm, whose mean would
    // be of all ranks.
    ROW(.layer = "MambaMixer2",
        .weights = LIST(
            WEIGHT("in_proj.weight", SHARED, 84, HIDDEN), WEIGHT("conv1d.weight", SHARED, 36, 1, 4),
            WEIGHT("conv1d.bias", SHARED, 36), WEIGHT("A", PARTS, 16), WEIGHT("D", PARTS, 16),
            WEIGHT("dt_bias", PARTS, 16), WEIGHT("out_proj.weight", PARTS, HIDDEN, 32)),
        .attributes =
            LIST(NUMBER("hidden_size", HIDDEN), NUMBER("intermediate_size", 32),
                 NUMBER("ssm_state_size", 2), NUMBER("conv_kernel_size", 4),
                 NUMBER("num_heads", 16), NUMBER("head_dim", 2), NUMBER("use_rms_norm", 0))),
    ROW(.layer = "MultiHeadLatentAttentionWrapper", .input = 1,
        .weights = LIST(
            WEIGHT("fused_qkv_a_proj.weight", WHOLE, 18, HIDDEN),
            WEIGHT("q_a_layernorm.weight", WHOLE, 8), WEIGHT("q_b_proj.weight", PARTS, 48, 8),
            WEIGHT("kv_a_layernorm.weight", WHOLE, 8), WEIGHT("kv_b_proj.weight", PARTS, 64, 8),
            WEIGHT("o_proj.weight", PARTS, HIDDEN, 32)),
        .attributes =
            LIST(NUMBER("hidden_size", HIDDEN), NUMBER("num_heads", 8),
                 NUMBER("qk_nope_head_dim", 4), NUMBER("qk_rope_head_dim", 2),
                 NUMBER("v_head_dim", 4), NUMBER("q_lora_rank", 8), NUMBER("kv_lora_rank", 8))),
    ROW(.layer = "MultiHeadLatentAttentionWrapper", .input = 1,
        .weights = LIST(WEIGHT("q_proj.weight", PARTS, 48, HIDDEN),
                        WEIGHT("kv_a_proj_with_mqa.weight", WHOLE, 10, HIDDEN),
                        WEIGHT("kv_a_layernorm.weight", WHOLE, 8),
                        WEIGHT("kv_b_proj.weight", PARTS, 64, 8),
                        WEIGHT("o_proj.weight", PARTS, HIDDEN, 32)),
        .attributes = LIST(NUMBER("hidden_size", HIDDEN), NUMBER("num_heads", 8),
                           NUMBER("qk_nope_head_dim", 4), NUMBER("qk_rope_head_dim", 2),
                           NUMBER("v_head_dim", 4), NUMBER("kv_lora_rank", 8))),
};

// ---- a rank's weights ---------------------------------------------------------------------------

static int64_t elements_of(const stored *weight) {
    int64_t count = 1;
    for (int i = 0; i < 3 && weight->shape[i] > 0; ++i) {
        count *= weight->shape[i];
    }
    return count;
}

static void feed(void *context, berth_graph_builder *graph, berth_value *inputs) {
    const divided *in = context;
    const berth_value_type table = {
        .size = sizeof table,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(8), BERTH_DIM_CONST(HIDDEN)},
    };
    const berth_value looked_up[] = {
        berth_graph_input(graph, "token_ids"),
        berth_graph_parameter(graph, "table", &table),
    };
    const berth_call call = {
        .size = sizeof call,
        .name = "embedding",
        .inputs = looked_up,
        .input_count = BERTH_COUNT(looked_up),
    };
    inputs[in->input] = berth_graph_op(graph, &call);
}

// The checkpoint: element i of every weight is i.
typedef struct checkpoint {
    berth_stored_tensor tensors[MAX_WEIGHTS];
    const berth_stored_tensor *list[MAX_WEIGHTS];
    char names[MAX_WEIGHTS][64];
    float numbers[MAX_ELEMENTS];
    size_t count;
} checkpoint;

static void store_all(const divided *in, checkpoint *out) {
    for (int64_t i = 0; i < MAX_ELEMENTS; ++i) {
        out->numbers[i] = (float)i;
    }
    size_t count = 0;
    for (; count < MAX_WEIGHTS && in->weights[count].name != NULL; ++count) {
        const stored *weight = &in->weights[count];
        uint64_t ndim = 0;
        while (ndim < 3 && weight->shape[ndim] > 0) {
            ++ndim;
        }
        (void)snprintf(out->names[count], sizeof out->names[count], "layer.%s", weight->name);
        out->tensors[count] = (berth_stored_tensor){
            .name = out->names[count],
            .dtype = BERTH_DTYPE_F32,
            .ndim = ndim,
            .shape = weight->shape,
            .data = out->numbers,
            .bytes = (uint64_t)elements_of(weight) * sizeof(float),
        };
        out->list[count] = &out->tensors[count];
    }
    out->count = count;
}

static berth_model_build *build_rank(const core_registry *core, const divided *in,
                                     const checkpoint *all, const int64_t world[2]) {
    const berth_attribute more[] = {NUMBER("tp_size", world[0]), NUMBER("tp_rank", world[1])};
    const berth_attribute *attributes[14];
    uint64_t count = 0;
    for (size_t i = 0; i < BERTH_COUNT(in->attributes) && in->attributes[i].name != NULL; ++i) {
        attributes[count++] = &in->attributes[i];
    }
    attributes[count++] = &more[0];
    attributes[count++] = &more[1];
    const berth_call call = {
        .size = sizeof call,
        .name = in->layer,
        .prefix = "layer",
        .attributes = attributes,
        .attribute_count = count,
        .output_count = 1,
    };
    const berth_layer_request request = {
        .registry = core->registry,
        .config = &core->config,
        .activation = BERTH_DTYPE_F32,
        .call = &call,
        .tensors = all->list,
        .tensor_count = all->count,
        .feed = feed,
        .context = (void *)in,
    };
    berth_model_build *build = NULL;
    CHECK_OK(berth_layer_create(&request, &build));
    return build;
}

// ---- what ranks have together -------------------------------------------------------------------

// How often each element was met.
typedef struct tally {
    int met[MAX_WEIGHTS][MAX_ELEMENTS];
} tally;

static void count_weight(const divided *in, const berth_weight *weight, tally *all) {
    size_t which = 0;
    while (in->weights[which].name != NULL &&
           strcmp(in->weights[which].name, weight->name + strlen("layer.")) != 0) {
        ++which;
    }
    CHECK(in->weights[which].name != NULL);
    float *values = malloc((size_t)weight->bytes);
    assert(values != NULL);
    CHECK_OK(berth_weight_load(weight, values));
    for (uint64_t i = 0; i < weight->bytes / sizeof(float); ++i) {
        CHECK(i == 0 || values[i] > values[i - 1]);
        ++all->met[which][(int64_t)values[i]];
    }
    free(values);
}

static void check_counts(const divided *in, const tally *all, int64_t ranks) {
    for (size_t k = 0; in->weights[k].name != NULL; ++k) {
        const holding held = in->weights[k].held;
        for (int64_t i = 0; i < elements_of(&in->weights[k]); ++i) {
            const int64_t met = all->met[k][i];
            CHECK(met == (held == WHOLE ? ranks : 1) || (held == SHARED && met == ranks));
        }
    }
}

static void check_world(const core_registry *core, const divided *in, int64_t ranks) {
    static checkpoint all;
    static tally found;
    memset(&found, 0, sizeof found);
    store_all(in, &all);
    for (int64_t rank = 0; rank < ranks; ++rank) {
        berth_model_build *build = build_rank(core, in, &all, (const int64_t[]){ranks, rank});
        for (size_t i = 0; i < build->weight_count; ++i) {
            count_weight(in, &build->weights[i], &found);
        }
        berth_model_destroy(build);
    }
    check_counts(in, &found, ranks);
}

TEST(ranks_of_a_layer_have_every_element_of_its_weights) {
    core_registry core;
    core_registry_init(&core, NULL);
    for (size_t i = 0; i < BERTH_COUNT(layers); ++i) {
        for (int64_t ranks = 1; ranks <= 8; ranks *= 2) {
            check_world(&core, &layers[i], ranks);
        }
    }
    core_registry_deinit(&core);
}
