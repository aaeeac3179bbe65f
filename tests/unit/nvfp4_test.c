// SPDX-License-Identifier: Apache-2.0
// core-quant's nvfp4: for the experts of a mixture which it takes, and that every expert and shard
// is scaled by its own global scale, which is a divisor; for a layer what its outputs' factors are.
#include <assert.h>
#include <string.h>

#include <fp8.h>

#include "base/array.h"
#include "base/json.h"
#include "registry/registry.h"
#include "support/core_registry.h"
#include "support/test.h"

#define EXPERTS 2
#define ROWS    6 // two of shard w1, four of w3
#define GROUPS  3

#define WEIGHTS                                                                                    \
    "{\"num_bits\": 4, \"type\": \"float\", \"symmetric\": true, \"strategy\": \"tensor_group\", " \
    "\"group_size\": 16}"
#define CHECKPOINT(more)                                                                           \
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "            \
    "\"nvfp4-pack-quantized\", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], "      \
    "\"weights\": " WEIGHTS more "}}}}"

static const char *const names[] = {"a.experts.0.gate_proj", "a.experts.1.down_proj"};
static const berth_shard gate = {.size = sizeof(berth_shard), .id = "w1", .extent = 2};
static const berth_shard up = {.size = sizeof(berth_shard), .id = "w3", .offset = 2, .extent = 4};
static const berth_shard *const shards[] = {&gate, &up};

static const berth_quant_config *find(const berth_registry *registry) {
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        const berth_quant_config *config = &berth_registry_quant_at(registry, i)->config;
        if (strcmp(config->name, "compressed-tensors") == 0) {
            return config;
        }
    }
    return NULL;
}

static void check_scales(const berth_quant_method *method, const berth_host *host,
                         const berth_linear *linear) {
    static const float divisors[EXPERTS * 2] = {3, 7, 11, 1000};
    uint8_t local[EXPERTS * ROWS * GROUPS];
    float scales[EXPERTS * ROWS * GROUPS] = {0};
    for (size_t i = 0; i < sizeof local; ++i) {
        local[i] = (uint8_t)(0x20 + i); // all of them positive and finite
    }
    const berth_tensor from = {.size = sizeof from, .data = local};
    const berth_tensor globals = {.size = sizeof globals, .data = (void *)(uintptr_t)divisors};
    const berth_tensor to = {.size = sizeof to, .data = scales};
    const berth_tensor *const stored[] = {&from, &globals, NULL};
    const berth_tensor *const made[] = {&to, NULL};
    CHECK_OK(method->process_weights_after_loading(host, linear, stored, made));
    for (size_t i = 0; i < BERTH_COUNT(scales); ++i) {
        const size_t expert = i / ((size_t)ROWS * GROUPS);
        const size_t shard = i / GROUPS % ROWS < 2 ? 0 : 1;
        CHECK_NEAR(scales[i], berth_from_f8(local[i]) / divisors[2 * expert + shard],
                   1e-6 * (double)scales[i]);
    }
}

// The first stack of a mixture whose checkpoint says that, and its method.
typedef struct stack {
    core_registry core;
    const berth_host *host;
    berth_json *checkpoint;
    berth_quant_layer quant;
    berth_linear linear;
    const berth_quant_method *method;
} stack;

static void open_stack(stack *of, const char *checkpoint) {
    core_registry_init(&of->core, NULL);
    CHECK_OK(berth_json_parse(berth_str_from(checkpoint), "config.json", NULL, &of->checkpoint));
    of->quant = (berth_quant_layer){
        .size = sizeof of->quant,
        .config = of->checkpoint,
        .names = names,
        .name_count = BERTH_COUNT(names),
    };
    of->linear = (berth_linear){
        .size = sizeof of->linear,
        .prefix = "a.experts.w13",
        .input_size = (int64_t)16 * GROUPS,
        .output_size = ROWS,
        .stack_size = EXPERTS,
        .layer_class = "RoutedExperts",
        .shards = shards,
        .shard_count = BERTH_COUNT(shards),
        .quant = &of->quant,
    };
    const berth_quant_config *config = find(of->core.registry);
    assert(config != NULL);
    of->host = berth_registry_host(of->core.registry);
    of->method = config->get_quant_method(of->host, of->checkpoint, &of->linear);
    assert(of->method != NULL);
    CHECK_STR(of->method->name, "nvfp4");
}

static void close_stack(stack *of) {
    berth_json_destroy(of->checkpoint);
    core_registry_deinit(&of->core);
}

TEST(experts_in_nvfp4_have_a_scale_of_their_own) {
    stack of;
    open_stack(&of, CHECKPOINT(""));
    CHECK(of.method->apply_experts != NULL);
    check_scales(of.method, of.host, &of.linear);
    close_stack(&of);
}

// Of every expert the smaller divisor of its two shards, which holds both ranges.
TEST(experts_whose_inputs_are_nvfp4_have_a_divisor_each) {
    static const float divisors[EXPERTS * 2] = {3, 7, 11, 5};
    stack of;
    uint8_t local[EXPERTS * ROWS * GROUPS] = {0};
    float scales[EXPERTS * ROWS * GROUPS];
    float inputs[EXPERTS] = {0};
    const berth_tensor from = {.size = sizeof from, .data = local};
    const berth_tensor globals = {.size = sizeof globals, .data = (void *)(uintptr_t)divisors};
    const berth_tensor to = {.size = sizeof to, .data = scales};
    const berth_tensor of_inputs = {.size = sizeof of_inputs, .data = inputs};
    const berth_tensor *const stored[] = {&from, &globals, &globals, NULL};
    const berth_tensor *const made[] = {&to, &of_inputs, NULL};
    open_stack(&of, CHECKPOINT(", \"input_activations\": " WEIGHTS));
    CHECK_OK(of.method->process_weights_after_loading(of.host, &of.linear, stored, made));
    CHECK_NEAR(inputs[0], 3, 0);
    CHECK_NEAR(inputs[1], 5, 0);
    close_stack(&of);
}

// What is left of the divisors, each shard's and the smallest one of the inputs.
TEST(a_layer_in_nvfp4_has_factors_of_its_outputs) {
    static const float divisors[] = {3, 7};
    static const float of_inputs[] = {300, 11};
    uint8_t local[ROWS * GROUPS] = {0};
    uint16_t scales[ROWS * GROUPS];
    float factors[ROWS] = {0};
    float input = 0;
    float power = 0;
    const int64_t shape[] = {ROWS, GROUPS};
    const berth_tensor from = {.size = sizeof from, .data = local};
    const berth_tensor globals = {.size = sizeof globals, .data = (void *)(uintptr_t)divisors};
    const berth_tensor inputs = {.size = sizeof inputs, .data = (void *)(uintptr_t)of_inputs};
    const berth_tensor to = {.size = sizeof to, .data = scales, .shape = shape};
    const berth_tensor of_outputs = {.size = sizeof of_outputs, .data = factors};
    const berth_tensor smallest = {.size = sizeof smallest, .data = &input};
    const berth_tensor below = {.size = sizeof below, .data = &power};
    const berth_tensor *const stored[] = {&from, &globals, &inputs, NULL};
    const berth_tensor *const made[] = {&to, &of_outputs, &smallest, &below, NULL};
    static const char *const forms[] = {CHECKPOINT(""),
                                        CHECKPOINT(", \"input_activations\": " WEIGHTS)};
    for (int has_inputs = 0; has_inputs < 2; ++has_inputs) {
        stack of;
        open_stack(&of, forms[has_inputs]);
        of.linear.stack_size = 0;
        CHECK_OK(of.method->process_weights_after_loading(of.host, &of.linear, stored, made));
        for (int64_t n = 0; n < ROWS; ++n) {
            const float divisor = divisors[n < 2 ? 0 : 1];
            CHECK_NEAR(factors[n], (has_inputs ? 8.0 / 11 : 1.0) / divisor, 1e-7);
        }
        close_stack(&of);
    }
    CHECK_NEAR(input, 11, 0);
    CHECK_NEAR(power, 8, 0);
}
