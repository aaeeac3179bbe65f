// SPDX-License-Identifier: Apache-2.0
// RoutedExperts, MoERunner and FusedMoE as graphs of one layer: what every rank of a world has of
// the weights, and what the layers emit.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/model.h"
#include "support/core_registry.h"
#include "support/test.h"

enum { EXPERTS = 8, INNER = 16, HIDDEN = 3, TOKENS = 5, CHOICES = 2 };

// What a test asks of a layer.
typedef struct asked {
    const char *layer;
    const char *activation;
    int64_t is_by_expert;
    int64_t has_bias;
    int64_t has_shared;
    bool has_own_tensors; // every expert, of all its projections
} asked;

// The weights of all experts, each element its own number.
typedef struct whole {
    core_registry core;
    const asked *asked;
    int64_t gates;
    float *values[4];
    int64_t shapes[4][3];
    char names[4][64];
    berth_stored_tensor tensors[4];
    size_t count;
    int64_t part_shapes[2][2]; // of gate and up, of down
    char part_names[3 * EXPERTS][64];
    berth_stored_tensor parts[3 * EXPERTS]; // the same weights, where experts have their own
} whole;

#define RULE(text, name, id)                                                                       \
    &(const berth_weight_rule) {                                                                   \
        .size = sizeof(berth_weight_rule), .from = (text), .to = (name), .shard = (id)             \
    }
static const berth_weight_rule *const rules[] = {
    RULE(".*.w1.weight", ".w13_weight", "w1"),
    RULE(".*.w3.weight", ".w13_weight", "w3"),
    RULE(".*.w2.weight", ".w2_weight", NULL),
};

static const char *const names[] = {"w13_weight", "w2_weight", "w13_bias", "w2_bias"};

// Zeroed.
static void *room(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static float *numbered(size_t count) {
    float *values = room(count, sizeof *values);
    for (size_t i = 0; i < count; ++i) {
        values[i] = (float)i;
    }
    return values;
}

static void part_init(whole *self, size_t index) {
    static const char *const projections[] = {"w1", "w3", "w2"};
    const size_t expert = index / 3;
    const size_t part = index % 3;
    const size_t elements = (size_t)INNER * HIDDEN;
    const float *values = part < 2 ? self->values[0] + (2 * expert + part) * elements
                                   : self->values[1] + expert * elements;
    (void)snprintf(self->part_names[index], sizeof self->part_names[index], "mlp.%zu.%s.weight",
                   expert, projections[part]);
    self->parts[index] = (berth_stored_tensor){
        .name = self->part_names[index],
        .dtype = BERTH_DTYPE_F32,
        .ndim = 2,
        .shape = self->part_shapes[part == 2],
        .data = values,
        .bytes = elements * sizeof(float),
    };
}

static void whole_init(whole *self, const asked *what) {
    *self = (whole){.asked = what, .gates = strstr(what->activation, "_no_mul") == NULL ? 2 : 1};
    core_registry_init(&self->core, NULL);
    self->count = what->has_bias ? 4 : 2;
    const bool is_inside = strcmp(what->layer, "RoutedExperts") != 0;
    for (size_t i = 0; i < self->count; ++i) {
        const int64_t rows = i % 2 == 0 ? self->gates * INNER : HIDDEN;
        const int64_t columns = i == 0 ? HIDDEN : i == 1 ? INNER : 1;
        const int64_t shape[] = {EXPERTS, rows, columns};
        const size_t elements = (size_t)(EXPERTS * rows * columns);
        memcpy(self->shapes[i], shape, sizeof shape);
        self->values[i] = numbered(elements);
        (void)snprintf(self->names[i], sizeof self->names[i], "mlp%s.%s",
                       is_inside ? ".experts" : "", names[i]);
        self->tensors[i] = (berth_stored_tensor){
            .name = self->names[i],
            .dtype = BERTH_DTYPE_F32,
            .ndim = i < 2 ? 3 : 2,
            .shape = self->shapes[i],
            .data = self->values[i],
            .bytes = elements * sizeof(float),
        };
    }
    const int64_t shapes[2][2] = {
        {INNER,  HIDDEN},
        {HIDDEN, INNER },
    };
    memcpy(self->part_shapes, shapes, sizeof shapes);
    for (size_t i = 0; i < BERTH_COUNT(self->parts); ++i) {
        part_init(self, i);
    }
}

static void whole_deinit(whole *self) {
    for (size_t i = 0; i < self->count; ++i) {
        free(self->values[i]);
    }
    core_registry_deinit(&self->core);
}

static berth_value operand(berth_graph_builder *graph, const char *name, berth_dtype dtype,
                           int64_t columns) {
    const berth_value_type type = {
        .size = sizeof type,
        .dtype = dtype,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(TOKENS), BERTH_DIM_CONST(columns)},
    };
    return berth_graph_parameter(graph, name, &type);
}

static void feed(void *context, berth_graph_builder *graph, berth_value *inputs) {
    const asked *what = context;
    inputs[0] = operand(graph, "x", BERTH_DTYPE_F32, HIDDEN);
    if (strcmp(what->layer, "RoutedExperts") == 0) {
        inputs[1] = operand(graph, "topk_weights", BERTH_DTYPE_F32, CHOICES);
        inputs[2] = operand(graph, "topk_ids", BERTH_DTYPE_I32, CHOICES);
        return;
    }
    inputs[1] = operand(graph, "router_logits", BERTH_DTYPE_F32, EXPERTS);
    if (what->has_shared) {
        inputs[3] = operand(graph, "shared", BERTH_DTYPE_F32, HIDDEN);
    }
}

static berth_status build(const whole *self, int64_t size, int64_t rank, berth_model_build **out) {
    const asked *what = self->asked;
    const berth_attribute *const attributes[] = {
        BERTH_I64("num_experts", EXPERTS),
        BERTH_I64("hidden_size", HIDDEN),
        BERTH_I64("intermediate_size", INNER),
        BERTH_TEXT("activation", what->activation),
        BERTH_I64("has_bias", what->has_bias),
        BERTH_I64("enable_expert_parallel", what->is_by_expert),
        BERTH_I64("tp_size", size),
        BERTH_I64("tp_rank", rank),
        BERTH_I64("top_k", CHOICES),
        BERTH_I64("use_grouped_topk", what->has_shared),
    };
    const berth_stored_tensor *tensors[3 * EXPERTS];
    const bool has_parts = what->has_own_tensors;
    const size_t count = has_parts ? BERTH_COUNT(self->parts) : self->count;
    for (size_t i = 0; i < count; ++i) {
        tensors[i] = has_parts ? &self->parts[i] : &self->tensors[i];
    }
    const berth_call call = {
        .size = sizeof call,
        .name = what->layer,
        .prefix = "mlp",
        .attributes = attributes,
        .attribute_count = BERTH_COUNT(attributes),
        .output_count = 1,
    };
    const berth_layer_request request = {
        .registry = self->core.registry,
        .config = &self->core.config,
        .activation = BERTH_DTYPE_F32,
        .call = &call,
        .tensors = tensors,
        .tensor_count = count,
        .weight_rules = rules,
        .weight_rule_count = BERTH_COUNT(rules),
        .feed = feed,
        .context = (void *)(uintptr_t)what,
    };
    return berth_layer_create(&request, out);
}

// Where element (expert, row, column) of a rank's weight stands in the whole.
static int64_t place_of(const whole *self, size_t weight, const int64_t at[3],
                        const int64_t world[2]) {
    const int64_t *shape = self->shapes[weight];
    const bool is_by_expert = self->asked->is_by_expert;
    const int64_t share = INNER / world[0];
    const int64_t experts = EXPERTS / world[0];
    int64_t place[] = {at[0] + (is_by_expert ? world[1] * experts : 0), at[1], at[2]};
    if (!is_by_expert && weight == 1) {
        place[2] += world[1] * share;
    } else if (!is_by_expert && weight % 2 == 0) {
        const bool is_in_turns = strcmp(self->asked->activation, "swigluoai") == 0;
        const int64_t half = at[1] / share;
        place[1] = is_in_turns ? at[1] + 2 * world[1] * share
                               : half * INNER + world[1] * share + at[1] % share;
    }
    return (place[0] * shape[1] + place[1]) * shape[2] + place[2];
}

static size_t index_of(const char *name) {
    const char *last = strrchr(name, '.') + 1;
    size_t i = 0;
    while (strcmp(names[i], last) != 0) {
        ++i;
    }
    return i;
}

// Every element where the rank must have it; counts those seen.
static void check_weight(const whole *self, const berth_weight *weight, const int64_t world[2],
                         int *seen) {
    assert(seen); // every weight has a name of the list
    const size_t which = index_of(weight->name);
    float *values = room(1, weight->bytes);
    CHECK_OK(berth_weight_load(weight, values));
    const int64_t rows = weight->type.dims[1].b;
    const int64_t columns = weight->type.ndim == 3 ? weight->type.dims[2].b : 1;
    const int64_t count = weight->type.dims[0].b * rows * columns;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at[] = {i / columns / rows, i / columns % rows, i % columns};
        const int64_t place = place_of(self, which, at, world);
        CHECK_INT((int64_t)values[i], place);
        ++seen[place];
    }
    free(values);
}

// All ranks together have every element of every weight once.
static void check_world(const whole *self, int64_t size) {
    int *seen[4] = {NULL};
    for (size_t i = 0; i < self->count; ++i) {
        seen[i] = room(self->tensors[i].bytes / sizeof(float), sizeof(int));
    }
    for (int64_t rank = 0; rank < size; ++rank) {
        const int64_t world[] = {size, rank};
        berth_model_build *built = NULL;
        CHECK_OK(build(self, size, rank, &built));
        for (size_t i = 0; i < built->weight_count; ++i) {
            check_weight(self, &built->weights[i], world, seen[index_of(built->weights[i].name)]);
        }
        berth_model_destroy(built);
    }
    for (size_t i = 0; i < self->count; ++i) {
        for (size_t k = 0; k < self->tensors[i].bytes / sizeof(float); ++k) {
            CHECK_INT(seen[i][k], 1);
        }
        free(seen[i]);
    }
}

TEST(ranks_have_every_element_of_the_experts_once) {
    static const asked cases[] = {
        {"RoutedExperts", "silu",         0, 0, 0, false},
        {"RoutedExperts", "gelu",         0, 1, 0, false},
        {"RoutedExperts", "swigluoai",    0, 1, 0, false},
        {"RoutedExperts", "relu2_no_mul", 0, 1, 0, false},
        {"RoutedExperts", "silu",         1, 0, 0, false},
        {"RoutedExperts", "swigluoai",    1, 1, 0, false},
        {"MoERunner",     "silu",         0, 0, 0, false},
        {"FusedMoE",      "silu",         0, 1, 1, false},
        {"RoutedExperts", "silu",         0, 0, 0, true },
        {"RoutedExperts", "silu",         1, 0, 0, true },
        {"RoutedExperts", "gelu",         1, 1, 0, false},
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        whole all;
        whole_init(&all, &cases[i]);
        for (int64_t size = 1; size <= 8; size *= 2) {
            check_world(&all, size);
        }
        whole_deinit(&all);
    }
}

static void check_graph(const asked *what, int64_t size, const char *const *texts, size_t count) {
    whole all;
    berth_model_build *built = NULL;
    berth_text text;
    whole_init(&all, what);
    CHECK_OK(build(&all, size, size - 1, &built));
    berth_text_init(&text, 1 << 16);
    berth_graph_print(built->graph, &text);
    for (size_t i = 0; i < count; ++i) {
        CHECK_CONTAINS(text.data, texts[i]);
    }
    berth_text_deinit(&text);
    berth_model_destroy(built);
    whole_deinit(&all);
}

TEST(layers_of_experts_are_made_of_ops) {
    static const char *const runner[] = {"topk_softmax", "unquantized_fused_moe", "all_reduce"};
    static const char *const shared[] = {"grouped_topk", "unquantized_fused_moe", "add"};
    static const char *const by_expert[] = {"local_expert_ids", "first = 4", "count = 4"};
    check_graph(&(asked){"MoERunner", "silu", 0, 0, 0, false}, 2, runner, BERTH_COUNT(runner));
    check_graph(&(asked){"FusedMoE", "silu", 0, 0, 1, false}, 1, shared, BERTH_COUNT(shared));
    check_graph(&(asked){"RoutedExperts", "silu", 1, 0, 0, false}, 2, by_expert,
                BERTH_COUNT(by_expert));
}

TEST(a_world_that_does_not_divide_the_experts_is_refused) {
    static const asked by_inner = {"RoutedExperts", "silu", 0, 0, 0, false};
    static const asked by_expert = {"RoutedExperts", "silu", 1, 0, 0, false};
    const asked *const cases[] = {&by_inner, &by_expert};
    const char *const texts[] = {"intermediate_size 16 cannot be divided among 3 ranks",
                                 "num_experts 8 cannot be divided among 3 ranks"};
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        whole all;
        berth_model_build *built = NULL;
        whole_init(&all, cases[i]);
        CHECK_STATUS(build(&all, 3, 0, &built), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(berth_status_message(), texts[i]);
        whole_deinit(&all);
    }
}
