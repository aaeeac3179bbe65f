// SPDX-License-Identifier: Apache-2.0
// The cases of `berth bench op`: that every op has one, and that each of them is one.
#include <string.h>

#include "cli/bench_op.h"
#include "support/core_registry.h"
#include "support/test.h"

#define CACHE_BYTES (128 << 20) // of a last-level cache, as servers have

// The graph of one copy, for the tokens that are timed.
static berth_graph *build(const core_registry *core, const berth_op_case *one, berth_dtype dtype) {
    berth_graph *graph = NULL;
    const berth_op_size size = {dtype, one->tokens, 1};
    if (berth_op_graph_build(core->registry, one, &size, &graph) != BERTH_OK) {
        print_error("case %s: %s\n", one->name, berth_status_message());
        return NULL;
    }
    return graph;
}

TEST(every_op_has_a_case_to_be_timed_by) {
    core_registry core;
    core_registry_init(&core, NULL);
    for (size_t i = 0; i < berth_registry_op_count(core.registry); ++i) {
        const char *name = berth_registry_op_at(core.registry, i)->op.name;
        size_t cases = 0;
        for (size_t k = 0; k < berth_op_case_count(); ++k) {
            cases += strcmp(berth_op_case_at(k)->op, name) == 0;
        }
        if (cases == 0) {
            print_error("op '%s' has no case\n", name);
        }
        CHECK(cases > 0);
    }
    core_registry_deinit(&core);
}

TEST(every_case_builds_a_graph_with_each_type_of_activations) {
    static const berth_dtype dtypes[] = {BERTH_DTYPE_F32, BERTH_DTYPE_BF16, BERTH_DTYPE_F16};
    core_registry core;
    core_registry_init(&core, NULL);
    for (size_t i = 0; i < berth_op_case_count(); ++i) {
        for (size_t k = 0; k < 3; ++k) {
            berth_graph *graph = build(&core, berth_op_case_at(i), dtypes[k]);
            CHECK(graph != NULL);
            berth_graph_destroy(graph);
        }
    }
    core_registry_deinit(&core);
}

TEST(every_case_is_large_enough_for_its_copies_to_be_4_times_the_last_cache) {
    core_registry core;
    core_registry_init(&core, NULL);
    for (size_t i = 0; i < berth_op_case_count(); ++i) {
        berth_graph *graph = build(&core, berth_op_case_at(i), BERTH_DTYPE_BF16);
        CHECK(graph != NULL);
        const double bytes = berth_op_case_bytes(berth_op_case_at(i), graph, false);
        if (bytes * BERTH_OP_COPIES < 4.0 * CACHE_BYTES) {
            print_error("case %s: %.0f bytes\n", berth_op_case_at(i)->name, bytes);
        }
        CHECK(bytes * BERTH_OP_COPIES >= 4.0 * CACHE_BYTES);
        berth_graph_destroy(graph);
    }
    core_registry_deinit(&core);
}

static bool is_output(const berth_graph *graph, berth_value value) {
    for (size_t i = 0; i < graph->output_count; ++i) {
        if (graph->outputs[i].value == value) {
            return true;
        }
    }
    return false;
}

// Else its memory would be where the next copy's results go, and these lines are in the cache.
TEST(what_a_copy_reads_lives_until_the_step_ends) {
    core_registry core;
    size_t count = 0;
    core_registry_init(&core, NULL);
    for (size_t i = 0; i < berth_op_case_count(); ++i) {
        berth_graph *graph = build(&core, berth_op_case_at(i), BERTH_DTYPE_F32);
        CHECK(graph != NULL);
        for (size_t k = 0; graph && k < graph->node_count; ++k) {
            const berth_graph_node *node = &graph->nodes[k];
            if (strcmp(node->layer, "inputs") == 0) {
                CHECK(is_output(graph, node->outputs[0]));
                ++count;
            }
        }
        berth_graph_destroy(graph);
    }
    CHECK(count > 0);
    core_registry_deinit(&core);
}

TEST(no_two_cases_have_one_name) {
    for (size_t i = 0; i < berth_op_case_count(); ++i) {
        for (size_t k = 0; k < i; ++k) {
            CHECK(strcmp(berth_op_case_at(i)->name, berth_op_case_at(k)->name) != 0);
        }
    }
}

TEST(an_operand_has_the_numbers_that_its_text_says) {
    static const berth_op_case one = {
        .name = "texts",
        .op = "add",
        .tokens = 4,
        .text = "a=i32[2T]<5 b=i32[3]:0..T c=f32[64](2,3) d=f32[T]*0.25",
    };
    const berth_op_size size = {BERTH_DTYPE_F32, 4, 1};
    const berth_value_type ids = {
        .dtype = BERTH_DTYPE_I32, .ndim = 1, .dims = {BERTH_DIM_CONST(8)}};
    const berth_value_type steps = {
        .dtype = BERTH_DTYPE_I32, .ndim = 1, .dims = {BERTH_DIM_CONST(3)}};
    const berth_value_type floats = {
        .dtype = BERTH_DTYPE_F32, .ndim = 1, .dims = {BERTH_DIM_CONST(64)}};
    int32_t numbers[8] = {0};
    float values[64] = {0};
    CHECK_OK(berth_op_fill(&one, &size, "a", &ids, numbers));
    CHECK_INT(numbers[1], 37 % 5);
    CHECK_INT(numbers[7], 7 * 37 % 5);
    CHECK_OK(berth_op_fill(&one, &size, "b", &steps, numbers));
    CHECK_INT(numbers[1], 2);
    CHECK_INT(numbers[2], 4);
    CHECK_OK(berth_op_fill(&one, &size, "c", &floats, values));
    for (size_t i = 0; i < 64; ++i) {
        CHECK(values[i] >= 2 && values[i] < 3);
    }
    CHECK(berth_op_text_share(&one, "d") == 0.25);
    CHECK(berth_op_text_share(&one, "a") == 1);
}
