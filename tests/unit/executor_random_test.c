// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "executor/plan.h"
#include "support/test.h"
#include "support/test_plan.h"

// ---- random graphs ------------------------------------------------------------------------------

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static berth_value call_op(berth_graph_builder *b, const char *name, const berth_value *inputs,
                           uint64_t count, const berth_attribute *attribute) {
    const berth_call call = {
        .size = sizeof(call),
        .name = name,
        .prefix = "layer",
        .inputs = inputs,
        .input_count = count,
        .attributes = &attribute,
        .attribute_count = attribute != NULL,
    };
    return berth_graph_op(b, &call);
}

static berth_value weight_of(berth_graph_builder *b, int64_t rows, int64_t columns) {
    char name[32];
    (void)snprintf(name, sizeof(name), "w%lldx%lld", (long long)rows, (long long)columns);
    const berth_value_type type = {
        .dtype = BERTH_DTYPE_F32,
        .ndim = 2,
        .dims = {BERTH_DIM_CONST(rows), BERTH_DIM_CONST(columns)},
    };
    return berth_graph_parameter(b, name, &type);
}

static berth_value widen(berth_graph_builder *b, berth_value x, int64_t columns) {
    const berth_value inputs[] = {x, weight_of(b, 8, columns)};
    return call_op(b, "linear", inputs, 2, NULL);
}

// Half of the columns, seen through views of all kinds, and back to [s0, 8].
static berth_value add_views(berth_graph_builder *b, uint64_t *random, berth_value x) {
    const berth_value half = berth_graph_slice(b, x, 1, (int64_t)(next_random(random) % 5), 4);
    const berth_dim flat[] = {
        {.symbol = BERTH_SYMBOL_TOKENS, .a = 4, .b = 0, .c = 1}
    };
    const berth_dim square[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(2), BERTH_DIM_CONST(2)};
    const berth_dim back[] = {BERTH_DIM_TOKENS, BERTH_DIM_CONST(4)};
    berth_value view = half;
    switch (next_random(random) % 6) {
    case 0: // a reshape that no strides can express
        view = berth_graph_reshape(b, berth_graph_reshape(b, half, flat, 1), back, 2);
        break;
    case 1: // one that strides can
        view = call_op(b, "scale", (berth_value[]){berth_graph_reshape(b, half, square, 3)}, 1,
                       BERTH_F64("factor", 0.5));
        view = berth_graph_reshape(b, view, back, 2);
        break;
    case 2: // a slice of the middle dimension
        view = berth_graph_slice(b, berth_graph_reshape(b, half, square, 3), 1, 1, 1);
        view = berth_graph_reshape(b, view,
                                   (const berth_dim[]){BERTH_DIM_TOKENS, BERTH_DIM_CONST(2)}, 2);
        return widen(b, view, 2);
    case 3: // rows any stride apart are enough
        return widen(b, call_op(b, "row_sum", &half, 1, NULL), 1);
    case 4: // but not gaps within a row
        view = berth_graph_slice(b, berth_graph_reshape(b, half, square, 3), 2, 1, 1);
        return widen(b, call_op(b, "row_sum", &view, 1, NULL), 1);
    default:
        break;
    }
    return widen(b, view, 4);
}

static berth_value add_random(berth_graph_builder *b, uint64_t *random, const berth_value *values,
                              size_t count) {
    const berth_value x = values[count - 1 - next_random(random) % (count < 4 ? count : 4)];
    const berth_value y = values[next_random(random) % count];
    const berth_value pair[] = {x, y};
    switch (next_random(random) % 7) {
    case 0:
        return call_op(b, "add", pair, 2, NULL);
    case 1:
        return call_op(b, "scale", pair, 1, BERTH_F64("factor", -0.75));
    case 2:
        return call_op(b, "norm", pair, 1, BERTH_F64("eps", 1e-5));
    case 3: {
        berth_value both[2];
        const berth_attribute *eps = BERTH_F64("eps", 1e-3);
        const berth_call call = {.size = sizeof(call),
                                 .name = "norm",
                                 .inputs = pair,
                                 .input_count = 2,
                                 .attributes = &eps,
                                 .attribute_count = 1,
                                 BERTH_OUTPUTS(both)};
        (void)berth_graph_op(b, &call);
        return both[next_random(random) % 2];
    }
    case 4:
        return call_op(b, "accumulate", pair, 1, NULL);
    case 5:
        return widen(b, x, 8);
    default:
        return add_views(b, random, x);
    }
}

static berth_graph *random_graph(const berth_registry *registry, uint64_t seed) {
    berth_graph_builder *b = NULL;
    CHECK_OK(berth_graph_begin(registry, "random", &b));
    const berth_value_type state = {
        .dtype = BERTH_DTYPE_F32, .ndim = 1, .dims = {BERTH_DIM_CONST(8)}};
    berth_graph_state(b, "layer", 0, &state);
    const berth_value ids[] = {berth_graph_input(b, "token_ids"), weight_of(b, 16, 8)};
    berth_value values[24];
    size_t count = 1;
    values[0] = call_op(b, "embedding", ids, 2, NULL);
    while (count < 24) {
        values[count] = add_random(b, &seed, values, count);
        ++count;
    }
    const berth_value rows[] = {values[23], berth_graph_input(b, "logits_rows")};
    berth_graph_output_add(b, "rows", call_op(b, "select_rows", rows, 2, NULL));
    berth_graph_output_add(b, "pooled", call_op(b, "pool", &values[22], 1, NULL));
    berth_graph_output_add(b, "value", values[next_random(&seed) % 24]);
    berth_graph_output_add(b, "part", berth_graph_slice(b, values[21], 1, 2, 3));
    berth_graph *graph = NULL;
    CHECK_OK(berth_graph_finish(b, &graph));
    return graph;
}

// A random choice of implementations: `count` of them for the content.
static size_t choose_impls(uint64_t seed, bool is_device, berth_op_impl *impls) {
    size_t count = 0;
    for (size_t i = 0; i < TEST_DEVICE_IMPLS; ++i) {
        if (next_random(&seed) % 3 > 0) {
            impls[count] = test_device_impls[i];
            impls[count].dispatch_key = is_device ? "oot" : "cpu";
            impls[count++].forward = is_device ? test_device_forward : test_host_forward;
        }
    }
    return count;
}

static bool is_planned_in(const berth_storage *storage, int space) {
    return storage->kind == BERTH_STORAGE_PLANNED && (int)storage->space == space;
}

// Storages that live at the same time lie apart, all within the block, which is no larger than all
// of them together and no smaller than what lives at any one time.
static void check_memory(const berth_plan *plan, int space) {
    const berth_storage *all = plan->storages.data;
    const uint64_t alignment = berth_runtime_alignment(plan->runtime);
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->storages.count; ++i) {
        uint64_t live = all[i].bytes;
        if (!is_planned_in(&all[i], space)) {
            continue;
        }
        sum += (all[i].bytes + alignment - 1) / alignment * alignment;
        CHECK_UINT(all[i].offset % alignment, 0);
        CHECK(all[i].offset + all[i].bytes <= plan->block_bytes[space]);
        for (size_t j = 0; j < plan->storages.count; ++j) {
            const bool is_other = j != i && is_planned_in(&all[j], space);
            live += is_other && all[j].first <= all[i].first && all[i].first <= all[j].last
                        ? all[j].bytes
                        : 0;
            if (is_other && all[i].first <= all[j].last && all[j].first <= all[i].last) {
                CHECK(all[i].offset + all[i].bytes <= all[j].offset ||
                      all[j].offset + all[j].bytes <= all[i].offset);
            }
        }
        CHECK(live <= plan->block_bytes[space]);
    }
    CHECK(plan->block_bytes[space] <= sum);
}

TEST(executor_computes_random_graphs_like_the_reference_on_every_platform) {
    const char *const platforms[] = {NULL, "fake-host", "fake-device"};
    for (uint64_t seed = 0; seed < 60; ++seed) {
        berth_op_impl impls[TEST_DEVICE_IMPLS];
        const test_content content = {
            .impls = impls,
            .impl_count = choose_impls(seed, seed % 3 == 2, impls),
        };
        test_plan it;
        test_plan_open(&it, &content, platforms[seed % 3]);
        it.config.allow_fallback = true;
        it.graph = random_graph(it.registry, seed * 77);
        const berth_status status = test_plan_create(&it);
        CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
        test_plan_load(&it);
        check_memory(it.plan, BERTH_SPACE_DEVICE);
        check_memory(it.plan, BERTH_SPACE_HOST);
        test_batch batch;
        test_batch_fill(&batch, (const int[]){4, 3}, (const int[]){4, 3}, 2, 3);
        test_plan_check(&it, &batch);
        test_batch_fill(&batch, (const int[]){5}, (const int[]){9}, 1, 0);
        test_plan_check(&it, &batch);
        test_batch_fill(&batch, (const int[]){1}, (const int[]){10}, 1, 1);
        test_plan_check(&it, &batch);
        test_plan_close(&it);
    }
}
