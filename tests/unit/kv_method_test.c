// SPDX-License-Identifier: Apache-2.0
// model: how a layer's cache is kept: under which names scales are found, what becomes of one
// alone, and what is refused.
#include <string.h>

#include "base/array.h"
#include "model/model.h"
#include "support/core_registry.h"
#include "support/test.h"

#define MAX_TENSORS 4

enum { FP8 = 1 }; // of berth_config_kv_dtypes

static const berth_weight_rule key_rule = {
    .size = sizeof(berth_weight_rule), .from = ".k_proj.", .to = ".qkv_proj.", .shard = "k"};
static const berth_weight_rule value_rule = {
    .size = sizeof(berth_weight_rule), .from = ".v_proj.", .to = ".qkv_proj.", .shard = "v"};
static const berth_weight_rule *const rules[] = {&key_rule, &value_rule};

// Tensors of one number, and the scales that the cache gets of them.
typedef struct name_case {
    const char *names[MAX_TENSORS];
    float numbers[MAX_TENSORS];
    float key;
    float value;
} name_case;

typedef struct fixture {
    core_registry core;
    berth_stored_tensor tensors[MAX_TENSORS];
    const berth_stored_tensor *list[MAX_TENSORS];
    berth_model_build *built;
    float scales[2];
} fixture;

// Rows of two heads of 8 numbers, one for each token.
static void feed(void *context, berth_graph_builder *graph, berth_value *inputs) {
    const berth_value_type type = {
        .size = sizeof type,
        .dtype = BERTH_DTYPE_F32,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(5), BERTH_DIM_CONST(16)},
    };
    const berth_value row_operands[] = {
        berth_graph_input(graph, "token_ids"),
        berth_graph_parameter(graph, "rows", &type),
    };
    const berth_call rows = {
        .size = sizeof rows,
        .name = "embedding",
        .prefix = "rows",
        .inputs = row_operands,
        .input_count = 2,
    };
    (void)context;
    for (size_t i = 0; i < 3; ++i) {
        inputs[i] = berth_graph_op(graph, &rows);
    }
}

static berth_status build(fixture *f, const name_case *of, int32_t kv_dtype) {
    static const int64_t one = 1;
    size_t count = 0;
    for (; count < MAX_TENSORS && of->names[count] != NULL; ++count) {
        f->tensors[count] = (berth_stored_tensor){
            .name = of->names[count],
            .dtype = BERTH_DTYPE_F32,
            .ndim = 1,
            .shape = &one,
            .data = &of->numbers[count],
            .bytes = sizeof of->numbers[count],
        };
        f->list[count] = &f->tensors[count];
    }
    const berth_call call = {
        .size = sizeof call,
        .name = "Attention",
        .prefix = "a.self_attn.attn",
        .output_count = 1,
        BERTH_ATTRIBUTES(BERTH_I64("num_heads", 2), BERTH_I64("num_kv_heads", 2),
                         BERTH_I64("head_size", 8), BERTH_F64("scale", 1)),
    };
    core_registry_init(&f->core, NULL);
    f->core.config.kv_cache_dtype = kv_dtype;
    const berth_layer_request request = {
        .registry = f->core.registry,
        .config = &f->core.config,
        .activation = BERTH_DTYPE_F32,
        .call = &call,
        .tensors = f->list,
        .tensor_count = count,
        .weight_rules = rules,
        .weight_rule_count = BERTH_COUNT(rules),
        .feed = feed,
    };
    f->built = NULL;
    return berth_layer_create(&request, &f->built);
}

static void end(fixture *f) {
    berth_model_destroy(f->built);
    core_registry_deinit(&f->core);
}

static berth_status accept(void *context, const berth_weight *weight, const void *data) {
    fixture *f = context;
    const bool is_value = strcmp(weight->name, "a.self_attn.attn.value_scale") == 0;
    CHECK(is_value || strcmp(weight->name, "a.self_attn.attn.key_scale") == 0);
    CHECK_UINT(weight->bytes, sizeof(float));
    memcpy(&f->scales[is_value], data, sizeof(float));
    return BERTH_OK;
}

static const name_case names[] = {
    {{"a.self_attn.k_scale", "a.self_attn.v_scale"},                                  {2, 3},     2,     3    },
    {{"a.self_attn.attn.k_scale", "a.self_attn.attn.v_scale", "a.self_attn.q_scale"},
     {2, 3, 9},
     2,                                                                                                  3    },
    {{"a.self_attn.k_proj.k_scale", "a.self_attn.v_proj.v_scale"},                    {4, 5},     4,     5    },
    {{"a.self_attn.qkv_proj.k_scale", "a.self_attn.qkv_proj.v_scale"},                {4, 5},     4,     5    },
    {{"a.self_attn.k_proj.output_scale", "a.self_attn.v_proj.output_scale",
      "a.self_attn.q_proj.output_scale"},
     {6, 7, 9},
     6,                                                                                                  7    },
    {{"a.self_attn.kv_scale"},                                                        {8},        8,     8    },
    {{"a.self_attn.k_scale"},                                                         {0.5F},     0.5F,  0.5F },
    {{"a.self_attn.v_scale", "a.self_attn.attn.prob_scale"},                          {0.25F, 9}, 0.25F, 0.25F},
    {{NULL},                                                                          {0},        1,     1    },
};

TEST(scales_are_found_under_every_name_that_they_have) {
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        fixture f;
        const berth_weight_taker taker = {.context = &f, .accept = accept};
        CHECK_OK(build(&f, &names[i], FP8));
        CHECK_UINT(f.built->weight_count, 2);
        CHECK_OK(berth_model_load(f.built, &taker));
        CHECK(f.scales[0] == names[i].key);
        CHECK(f.scales[1] == names[i].value);
        CHECK_UINT(f.built->kv_cache_count, 1);
        CHECK(f.built->kv_caches[0].dtype == BERTH_DTYPE_F8_E4M3FN);
        CHECK_UINT(f.built->kv_caches[0].page_bytes,
                   2 * (uint64_t)f.core.config.block_size * 2 * 8);
        end(&f);
    }
}

TEST(a_cache_that_nobody_wants_in_codes_is_of_the_activations_type) {
    fixture f;
    CHECK_OK(build(&f, &(const name_case){{NULL}, {0}, 0, 0}, 0));
    CHECK_UINT(f.built->weight_count, 0);
    CHECK(f.built->kv_caches[0].dtype == BERTH_DTYPE_F32);
    end(&f);
}

TEST(a_scale_that_is_none_and_one_that_nobody_wants_are_refused) {
    static const name_case zero = {{"a.self_attn.k_scale"}, {0}, 0, 0};
    fixture f;
    const berth_weight_taker taker = {.context = &f, .accept = accept};
    CHECK_OK(build(&f, &zero, FP8));
    CHECK_STATUS(berth_model_load(f.built, &taker), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "'a.self_attn.k_scale'");
    CHECK_CONTAINS(berth_status_message(), "greater than zero");
    end(&f);
    CHECK_STATUS(build(&f, &names[0], 0), BERTH_CORRUPT);
    CHECK_CONTAINS(berth_status_message(), "unknown to the model: 'a.self_attn.k_scale'");
    end(&f);
}
