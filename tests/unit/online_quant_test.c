// SPDX-License-Identifier: Apache-2.0
// core-quant's schemes that quantize at load: their codes and scales beside the rule by hand, and
// which layers they leave alone.
#include <assert.h>
#include <math.h>
#include <string.h>

#include <fp8.h>

#include "base/array.h"
#include "registry/registry.h"
#include "support/core_registry.h"
#include "support/test.h"

#define ROWS    131 // the last blocks of 128 are small
#define COLUMNS 130
#define EXPERTS 2

// A scheme, and the block of its scales; 0: as large as the matrix.
typedef struct scheme_case {
    const char *name;
    int64_t rows;
    int64_t columns;
    bool is_i8;
} scheme_case;

static const scheme_case schemes[] = {
    {"fp8_per_tensor",               0,   0,   false},
    {"fp8_per_block",                128, 128, false},
    {"int8_per_channel_weight_only", 1,   0,   true },
};

static const berth_quant_config *find(const berth_registry *registry, const char *name) {
    for (size_t i = 0; i < berth_registry_quant_count(registry); ++i) {
        if (strcmp(berth_registry_quant_at(registry, i)->config.name, name) == 0) {
            return &berth_registry_quant_at(registry, i)->config;
        }
    }
    return NULL;
}

static float weight_at(int64_t row, int64_t column) {
    const float wave = sinf((float)(row * COLUMNS + column) * 1.7F);
    return row == 5 ? 0.0F : wave * wave * wave * (float)(1 + row % 7);
}

// By hand: of the block around an element the largest magnitude, the scale and the code.
static float scale_at(const scheme_case *of, int64_t row, int64_t column) {
    const int64_t rows = of->rows > 0 ? of->rows : ROWS;
    const int64_t columns = of->columns > 0 ? of->columns : COLUMNS;
    float largest = 0;
    for (int64_t n = row / rows * rows; n < row / rows * rows + rows && n < ROWS; ++n) {
        for (int64_t k = column / columns * columns;
             k < column / columns * columns + columns && k < COLUMNS; ++k) {
            largest = fmaxf(largest, fabsf(weight_at(n, k)));
        }
    }
    return !of->is_i8    ? fmaxf(largest / 448, (float)(1.0 / (448.0 * 512.0)))
           : largest > 0 ? largest / 127
                         : 1;
}

typedef struct layer {
    berth_linear linear;
    berth_quant_layer quant;
    float weight[EXPERTS * ROWS * COLUMNS];
    uint8_t codes[EXPERTS * ROWS * COLUMNS];
    float scales[EXPERTS * ROWS * 2];
} layer;

static void make_layer(layer *of, const char *class_name) {
    of->linear = (berth_linear){
        .size = sizeof of->linear,
        .prefix = "a.q_proj",
        .input_size = COLUMNS,
        .output_size = ROWS,
        .layer_class = class_name,
        .quant = &of->quant,
    };
    of->quant = (berth_quant_layer){.size = sizeof of->quant};
    for (int64_t i = 0; i < EXPERTS * ROWS * COLUMNS; ++i) {
        const int64_t expert = i / (ROWS * COLUMNS);
        of->weight[i] = weight_at(i / COLUMNS % ROWS, i % COLUMNS) * (float)(1 + expert);
    }
}

static berth_status process(layer *of, const berth_quant_method *method, const berth_host *host) {
    const berth_tensor weight = {.size = sizeof weight, .data = of->weight};
    const berth_tensor codes = {.size = sizeof codes, .data = of->codes};
    const berth_tensor scales = {.size = sizeof scales, .data = of->scales};
    const berth_tensor *const stored[] = {&weight, NULL};
    const berth_tensor *const made[] = {&codes, &scales, NULL};
    return method->process_weights_after_loading(host, &of->linear, stored, made);
}

static void check_scheme(const scheme_case *of, const layer *made) {
    const int64_t rows = of->rows > 1 ? of->rows : 1; // that have no scale of their own
    const int64_t groups = of->columns > 0 ? (COLUMNS + of->columns - 1) / of->columns : 1;
    for (int64_t n = 0; n < ROWS; ++n) {
        for (int64_t k = 0; k < COLUMNS; ++k) {
            const int64_t group = of->columns > 0 ? k / of->columns : 0;
            const float scale = scale_at(of, n, k);
            const float number = weight_at(n, k) / scale;
            const uint8_t code = of->is_i8 ? (uint8_t)(int8_t)rintf(number) : berth_to_f8(number);
            CHECK(made->scales[n / rows * groups + group] == scale);
            CHECK_UINT(made->codes[n * COLUMNS + k], code);
        }
    }
}

TEST(codes_and_scales_are_those_of_the_rule) {
    static layer of;
    core_registry core;
    core_registry_init(&core, NULL);
    const berth_host *host = berth_registry_host(core.registry);
    for (size_t i = 0; i < BERTH_COUNT(schemes); ++i) {
        const berth_quant_config *config = find(core.registry, schemes[i].name);
        assert(config != NULL);
        make_layer(&of, "ReplicatedLinear");
        const berth_quant_method *method = config->get_quant_method(host, NULL, &of.linear);
        assert(method != NULL);
        CHECK_OK(process(&of, method, host));
        check_scheme(&schemes[i], &of);
        of.weight[COLUMNS + 3] = NAN;
        CHECK_STATUS(process(&of, method, host), BERTH_CORRUPT);
    }
    core_registry_deinit(&core);
}

// Every expert has its own scales: numbers twice as large have the same codes and scales twice as
// large, but those of zeros.
TEST(experts_are_quantized_one_by_one) {
    static layer of;
    core_registry core;
    core_registry_init(&core, NULL);
    const berth_host *host = berth_registry_host(core.registry);
    for (size_t i = 0; i < BERTH_COUNT(schemes); ++i) {
        const berth_quant_config *config = find(core.registry, schemes[i].name);
        assert(config != NULL);
        make_layer(&of, "RoutedExperts");
        of.linear.stack_size = EXPERTS;
        const berth_quant_method *method = config->get_quant_method(host, NULL, &of.linear);
        assert(method != NULL);
        CHECK(method->apply_experts != NULL);
        CHECK_OK(process(&of, method, host));
        check_scheme(&schemes[i], &of);
        CHECK_BYTES(of.codes + (size_t)ROWS * COLUMNS, of.codes, (size_t)ROWS * COLUMNS);
        const int64_t scales = schemes[i].rows > 1 ? 4 : ROWS; // of an expert
        for (int64_t k = 0; k < scales; ++k) {
            const float times = schemes[i].is_i8 && k == 5 ? 1 : 2;
            CHECK(of.scales[scales + k] == of.scales[k] * times);
        }
        of.weight[ROWS * COLUMNS + 7] = INFINITY; // of the second
        CHECK_STATUS(process(&of, method, host), BERTH_CORRUPT);
    }
    core_registry_deinit(&core);
}

TEST(heads_routers_and_matrices_stay_as_they_are) {
    static const char *const classes[] = {"ParallelLMHead", "GateLinear", "ColumnParallelLinear"};
    static layer of;
    core_registry core;
    core_registry_init(&core, NULL);
    const berth_host *host = berth_registry_host(core.registry);
    for (size_t i = 0; i < BERTH_COUNT(schemes) * BERTH_COUNT(classes); ++i) {
        const berth_quant_config *config = find(core.registry, schemes[i / 3].name);
        assert(config != NULL);
        make_layer(&of, classes[i % 3]);
        of.linear.is_matrix = i % 3 == 2;
        CHECK_NULL((const void *)config->get_quant_method(host, NULL, &of.linear));
        CHECK_UINT(of.quant.is_unquantized, 1);
    }
    core_registry_deinit(&core);
}
