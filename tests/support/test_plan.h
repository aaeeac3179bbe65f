// SPDX-License-Identifier: Apache-2.0
// One plan of the tests from end to end: a graph as text or built, a fake platform, a configuration
// to change, weights that are made up from their names, batches, and what the outputs must be, as
// computed one node after the other with a buffer of its own for every value.
#ifndef TEST_PLAN_H
#define TEST_PLAN_H

#include "executor/executor.h"
#include "support/test_devices.h"

#define TEST_MAX_TOKENS    12
#define TEST_MAX_SEQUENCES 6
#define TEST_MAX_BLOCKS    16
#define TEST_BLOCK_SIZE    4

typedef struct test_plan {
    berth_registry *registry;
    berth_runtime *runtime;
    berth_arena *arena;
    berth_config config;
    berth_graph *graph;
    berth_plan *plan;
    berth_kv_cache_spec caches[2];
    size_t cache_count;
    void **values; // of the reference computation, one per graph value
} test_plan;

// A batch in memory of its own: `query_lens` new tokens of each sequence, `seq_lens` all of them.
typedef struct test_batch {
    berth_batch batch;
    berth_batch_view view;
    berth_tensor tensors[7];
    int64_t shapes[7][2];
    int64_t strides[7][2];
    const berth_tensor *table;
    const berth_tensor *mapping;
    int32_t token_ids[TEST_MAX_TOKENS];
    int32_t positions[TEST_MAX_TOKENS];
    int32_t starts[TEST_MAX_SEQUENCES + 1];
    int32_t lengths[TEST_MAX_SEQUENCES];
    int32_t rows[TEST_MAX_SEQUENCES];
    int32_t blocks[TEST_MAX_SEQUENCES * TEST_MAX_BLOCKS];
    int64_t slots[TEST_MAX_TOKENS];
} test_batch;

// Registry, runtime (`platform` NULL: the host itself), an empty configuration.
void test_plan_open(test_plan *it, const test_content *content, const char *platform);
void test_plan_parse(test_plan *it, const char *text);
// Items of custom_ops or fallback_ops: "all,-add".
void test_plan_list(test_plan *it, berth_option_list *list, const char *items);
// A KV cache for a layer whose states are f32[TEST_BLOCK_SIZE, heads, size].
void test_plan_cache(test_plan *it, const char *layer, int64_t heads, int64_t size);
// What berth_plan_create and berth_passes_run are asked for.
berth_plan_request test_plan_request(const test_plan *it);
berth_status test_plan_create(test_plan *it);
void test_plan_set_weights(test_plan *it);
// Weights, ready, caches.
void test_plan_load(test_plan *it);
// The content of a weight.
void test_plan_weight(const berth_graph_value *value, float *out);
void test_batch_fill(test_batch *it, const int *query_lens, const int *seq_lens, int sequences,
                     int rows);
// Runs the batch and compares every output with the reference computation, bit for bit.
void test_plan_check(test_plan *it, const test_batch *batch);
void test_plan_close(test_plan *it);

#endif
