// SPDX-License-Identifier: Apache-2.0
// Input: a case and how to dispatch it. Output: its plan, loaded, whose steps can be run; and
// whether the first rows of one are those of the op's reference.
#include "cli/bench_op_side.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/memory.h"

#define CHECK_TOKENS 8 // of a prompt; later rows say nothing that these do not

// ---- loading ------------------------------------------------------------------------------------

// What stands behind the last dot: "copy.3.weight" is a weight like any other copy's.
static const char *operand_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

// The name by which the case knows a parameter or a state.
static const char *name_of(const berth_op_side *side, const berth_graph_value *value) {
    if (value->kind == BERTH_VALUE_PARAMETER) {
        return operand_name(value->name);
    }
    const berth_op_entry *op = berth_registry_find_op(side->session->registry, side->of->op);
    return op->op.states[value->state]->name;
}

static berth_status load_value(const berth_op_side *side, berth_value at) {
    const berth_graph_value *value = &side->graph->values[at];
    const size_t count = (size_t)berth_type_elements(&value->type, 1, 1);
    const uint64_t bytes = berth_dtype_bytes(value->type.dtype, count);
    void *data = berth_alloc(bytes);
    if (!data) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for an operand of %llu bytes",
                          (unsigned long long)bytes);
    }
    berth_status status =
        berth_op_fill(side->of, &side->size, name_of(side, value), &value->type, data);
    if (status == BERTH_OK) {
        status = value->kind == BERTH_VALUE_PARAMETER
                     ? berth_plan_set_parameter(side->plan, at, data, bytes)
                     : berth_plan_write_state(side->plan, value->name, value->state, data, bytes);
    }
    berth_free(data);
    return status;
}

static berth_status load_kind(const berth_op_side *side, berth_value_kind kind) {
    for (berth_value i = 1; i < side->graph->value_count; ++i) {
        if (side->graph->values[i].kind == kind) {
            BERTH_TRY(load_value(side, i));
        }
    }
    return BERTH_OK;
}

static berth_status load(const berth_op_side *side, bool has_cache) {
    BERTH_TRY(load_kind(side, BERTH_VALUE_PARAMETER));
    BERTH_TRY(berth_plan_ready(side->plan));
    if (!has_cache) {
        return load_kind(side, BERTH_VALUE_STATE);
    }
    return berth_plan_set_cache(side->plan, &(const berth_kv_cache_config){
                                                .size = sizeof(berth_kv_cache_config),
                                                .num_blocks = 1 + BERTH_OP_CONTEXT / BERTH_OP_BLOCK,
                                                .group_count = 1,
                                            });
}

// Puts what comes before the step into the paged caches, which belong to no operand.
static berth_status fill_caches(const berth_op_side *side) {
    for (int64_t at = 0; at < side->of->context; at += BERTH_OP_TOKENS) {
        const int64_t left = side->of->context - at;
        BERTH_TRY(berth_plan_run(
            side->plan,
            berth_op_batch_fill(side->batch, at, left < BERTH_OP_TOKENS ? left : BERTH_OP_TOKENS)));
    }
    return BERTH_OK;
}

berth_status berth_op_side_open(berth_op_side *side, berth_arena *arena, berth_runtime *runtime) {
    const bool has_cache = side->of->is_paged;
    const int64_t most = has_cache ? BERTH_OP_TOKENS : side->size.tokens; // caches are filled
    berth_kv_cache_spec *caches = NULL;
    BERTH_TRY(berth_op_batch_create(arena, &side->batch));
    BERTH_TRY(berth_op_graph_build(side->session->registry, side->of, &side->size, &side->graph));
    BERTH_TRY(has_cache ? berth_op_graph_caches(side->of, &side->size, arena, &caches) : BERTH_OK);
    BERTH_TRY(berth_plan_create(
        &(berth_plan_request){
            .registry = side->session->registry,
            .config = &side->config,
            .graph = side->graph,
            .runtime = runtime,
            .kv_caches = caches,
            .kv_cache_count = has_cache ? side->size.copies : 0,
            .max_tokens = most,
            .max_sequences = most,
            .max_seq_len = BERTH_OP_CONTEXT,
        },
        &side->plan));
    BERTH_TRY(load(side, has_cache));
    return has_cache ? fill_caches(side) : BERTH_OK;
}

void berth_op_side_close(berth_op_side *side) {
    berth_plan_destroy(side->plan);
    berth_graph_destroy(side->graph);
    side->plan = NULL;
    side->graph = NULL;
}

berth_status berth_op_side_run(const berth_op_side *side) {
    return berth_plan_run(side->plan, side->of->context > 0
                                          ? berth_op_batch_decode(side->batch, side->of->context)
                                          : berth_op_batch_prompt(side->batch, side->size.tokens));
}

// ---- the check ----------------------------------------------------------------------------------

static size_t elements_of(const berth_tensor *tensor) {
    size_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; ++i) {
        count *= (size_t)tensor->shape[i];
    }
    return count;
}

static const char *data_of(const berth_tensor *tensor) {
    return (const char *)tensor->data + tensor->byte_offset;
}

// The largest error beside the root mean square of what is wanted; of other types than floats, 0
// or infinity.
static double error_of(const berth_tensor *got, const berth_tensor *wanted) {
    const size_t count = elements_of(wanted);
    double sum = 0;
    double largest = 0;
    if (wanted->dtype != BERTH_DTYPE_F32) {
        const size_t bytes = (size_t)berth_dtype_bytes(wanted->dtype, count);
        return memcmp(data_of(got), data_of(wanted), bytes) == 0 ? 0 : (double)INFINITY;
    }
    for (size_t i = 0; i < count; ++i) {
        const double is = ((const float *)(const void *)data_of(got))[i];
        const double should = ((const float *)(const void *)data_of(wanted))[i];
        const double error = is == should ? 0 : fabs(is - should); // infinities are equal
        largest = error <= largest ? largest : error;              // a NaN is kept
        sum += isfinite(should) ? should * should : 0;
    }
    return sum > 0 ? largest / sqrt(sum / (double)count) : (double)INFINITY;
}

static berth_status compare(const berth_op_side *reference, const berth_op_side *side, char kind) {
    const double allowed = side->size.dtype == BERTH_DTYPE_F32   ? 1e-4
                           : side->size.dtype == BERTH_DTYPE_F16 ? 1e-2
                                                                 : 6e-2;
    const berth_tensor *wanted = NULL;
    char name[32] = {kind, '0', 0};
    BERTH_TRY(berth_plan_output(reference->plan, name, &wanted));
    for (size_t copy = 0; copy < side->size.copies; ++copy) {
        const berth_tensor *got = NULL;
        (void)snprintf(name, sizeof name, "%c%zu", kind, copy);
        BERTH_TRY(berth_plan_output(side->plan, name, &got));
        const double error = error_of(got, wanted);
        if (!(error <= allowed)) {
            return BERTH_FAIL(INTERNAL,
                              "the largest error beside the op's reference is %.3g of the root "
                              "mean square, %.3g are allowed; it is not timed",
                              error, allowed);
        }
    }
    return BERTH_OK;
}

static berth_status check_with(berth_op_side *reference, const berth_op_side *side,
                               berth_arena *arena, berth_runtime *runtime) {
    BERTH_TRY(berth_op_side_open(reference, arena, runtime));
    BERTH_TRY(berth_op_side_run(reference));
    BERTH_TRY(berth_op_side_run(side));
    for (size_t i = 0; i < side->of->output_count; ++i) {
        BERTH_TRY(compare(reference, side, BERTH_OP_OUTPUTS[i]));
    }
    return BERTH_OK;
}

berth_status berth_op_side_check(const berth_op_side *side, berth_arena *arena,
                                 berth_runtime *runtime) {
    static const char *none[] = {"none"};
    berth_op_side reference = *side;
    reference.plan = NULL;
    reference.graph = NULL;
    reference.size.copies = 1;
    if (!side->of->is_whole && side->size.tokens > CHECK_TOKENS) {
        reference.size.tokens = CHECK_TOKENS;
    }
    reference.config.custom_ops = (berth_option_list){.items = none, .count = 1};
    reference.config.user_ops = reference.config.custom_ops;
    const berth_status status = check_with(&reference, side, arena, runtime);
    berth_op_side_close(&reference);
    return status;
}
